//! Rings of frames between a worker and the thread of the representors.

use rtrb::{Consumer, Producer, RingBuffer};

/// Bytes of the length before each frame.
const LENGTH: usize = 2;
/// Smallest capacity in bytes.
const MIN_CAPACITY: usize = 256 << 10;
/// Frames of the greatest length that fit.
const MIN_FRAMES: usize = 64;

/// The sending end of a ring.
pub(super) struct FrameSender {
    bytes: Producer<u8>,
}

/// The receiving end of a ring.
pub(super) struct FrameReceiver {
    bytes: Consumer<u8>,
}

/// Creates a ring for frames of up to `max_frame` bytes.
pub(super) fn frame_ring(max_frame: usize) -> (FrameSender, FrameReceiver) {
    let (sender, receiver) = RingBuffer::new((MIN_FRAMES * (LENGTH + max_frame)).max(MIN_CAPACITY));
    (FrameSender { bytes: sender }, FrameReceiver { bytes: receiver })
}

impl FrameSender {
    /// Copies a frame into the ring; returns false if it does not fit.
    pub(super) fn push(&mut self, frame: &[u8]) -> bool {
        let Ok(len) = u16::try_from(frame.len()) else { return false };
        let Ok(mut chunk) = self.bytes.write_chunk(LENGTH + frame.len()) else { return false };
        let (first, second) = chunk.as_mut_slices();
        let bytes = len.to_ne_bytes().into_iter().chain(frame.iter().copied());
        if first.len() >= LENGTH {
            let (length, data) = first.split_at_mut(LENGTH);
            length.copy_from_slice(&len.to_ne_bytes());
            let (start, rest) = frame.split_at(data.len());
            data.copy_from_slice(start);
            second.copy_from_slice(rest);
        } else {
            first.iter_mut().chain(second).zip(bytes).for_each(|(to, from)| *to = from);
        }
        chunk.commit_all();
        true
    }

    /// Returns true if a frame of this length fits.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.bytes.slots() >= LENGTH + len
    }
}

impl FrameReceiver {
    /// Returns true if no frame waits, after one atomic load.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Calls `read` with the two parts of the next frame, if there is one, and removes it if `read` returns `Some`.
    pub(super) fn take<T>(&mut self, read: impl FnOnce([&[u8]; 2]) -> Option<T>) -> Option<T> {
        let length = self.bytes.read_chunk(LENGTH).ok()?;
        let (first, second) = length.as_slices();
        let len = match (first, second) {
            (&[a, b], []) | (&[a], &[b]) => u16::from_ne_bytes([a, b]),
            _ => unreachable!("the chunk has {LENGTH} bytes"),
        };
        // both were committed at once
        let chunk = self.bytes.read_chunk(LENGTH + usize::from(len)).ok()?;
        let (first, second) = chunk.as_slices();
        let parts = match first.get(LENGTH..) {
            Some(first) => [first, second],
            None => [&[], &second[LENGTH - first.len()..]],
        };
        let result = read(parts)?;
        chunk.commit_all();
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Step {
        Push(usize),
        Take,
        Refuse,
    }

    proptest! {
        #[test]
        fn behaves_like_a_queue_of_frames(
            steps in proptest::collection::vec(prop_oneof![
                4 => (0usize..4000).prop_map(Step::Push),
                3 => Just(Step::Take),
                1 => Just(Step::Refuse),
            ], 1..600),
            start in 0usize..1000,
        ) {
            let (mut sender, mut receiver) = frame_ring(1500);
            // frames begin at any offset, so that lengths and data wrap around
            for _ in 0..start {
                prop_assert!(sender.push(&[7; 1001]));
                prop_assert!(receiver.take(|_| Some(())).is_some());
            }
            let mut model: VecDeque<Vec<u8>> = VecDeque::new();
            let mut used = 0;
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(len) => {
                        let frame: Vec<u8> = (0..len).map(|i| (i + n) as u8).collect();
                        let fits = used + LENGTH + len <= MIN_CAPACITY;
                        prop_assert_eq!(sender.has_room(len), fits);
                        prop_assert_eq!(sender.push(&frame), fits);
                        if fits {
                            used += LENGTH + len;
                            model.push_back(frame);
                        }
                    }
                    Step::Take => {
                        let expected = model.pop_front();
                        prop_assert_eq!(receiver.take(|parts| Some(parts.concat())), expected.clone());
                        used -= expected.map_or(0, |frame| LENGTH + frame.len());
                    }
                    Step::Refuse => prop_assert!(receiver.take(|_| None::<()>).is_none()),
                }
                prop_assert_eq!(receiver.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    fn long_frames_and_frames_above_a_length_field() {
        let (mut sender, mut receiver) = frame_ring(packet::MAX_JUMBO_FRAME);
        for _ in 0..MIN_FRAMES {
            assert!(sender.push(&[1; packet::MAX_JUMBO_FRAME]));
        }
        assert!(!sender.push(&[1; packet::MAX_JUMBO_FRAME]) && !sender.has_room(packet::MAX_JUMBO_FRAME));
        assert_eq!(receiver.take(|[a, b]| Some(a.len() + b.len())), Some(packet::MAX_JUMBO_FRAME));
        assert!(!sender.push(&vec![0; 1 << 16]));
    }
}
