//! Windows over bytes that come in pieces.
//!
//! A window's bytes lie in one slice. Windows that lie within one piece are shown where they are; only those across a
//! border are put together in a buffer, so that for each piece no more is copied than two windows, however long it is.

use super::memory::{Buffer, Memory};

/// How windows lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    /// Bytes shown before that a window shows again.
    pub(super) overlap: usize,
    /// New bytes of a window; 0: as many as come.
    pub(super) increment: usize,
}

/// What one stream keeps for its next window: bytes that were shown, then bytes that were not.
#[derive(Default)]
pub(super) struct Slide {
    buffer: Option<Buffer>,
    kept: u32,
    fresh: u32,
}

/// Takes a window and how many of its bytes were shown before; false when it wants no more.
pub(super) trait Show: FnMut(&[u8], usize) -> bool {}
impl<F: FnMut(&[u8], usize) -> bool> Show for F {}

impl Slide {
    /// Bytes that wait for their window to be full.
    #[inline(always)]
    pub(super) fn fresh(&self) -> u32 {
        self.fresh
    }

    /// Whether it holds memory.
    #[inline(always)]
    pub(super) fn holds(&self) -> bool {
        self.buffer.is_some()
    }

    /// Gives its memory back, and forgets.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        if let Some(buffer) = core::mem::take(self).buffer {
            memory.give_window(buffer);
        }
    }

    /// Takes the next bytes, and shows the windows that are full now. Without memory for a buffer what would wait in it is
    /// shown at once. False when no more is wanted.
    #[inline(always)]
    pub(super) fn push(&mut self, shape: Shape, memory: &mut Memory, bytes: &[u8], show: &mut impl Show) -> bool {
        if shape == (Shape { overlap: 0, increment: 0 }) {
            return show(bytes, 0);
        }
        if shape.increment == 0 {
            self.push_any(shape.overlap, memory, bytes, show)
        } else {
            self.push_fixed(shape, memory, bytes, show)
        }
    }

    fn push_any(&mut self, overlap: usize, memory: &mut Memory, bytes: &[u8], show: &mut impl Show) -> bool {
        let kept = self.kept as usize;
        let Some(buffer) = self.buffer.as_mut().filter(|_| kept > 0) else {
            let more = show(bytes, 0);
            self.keep(bytes, bytes.len().min(overlap), 0, memory);
            return more;
        };
        let head = bytes.len().min(overlap);
        buffer[kept..kept + head].copy_from_slice(&bytes[..head]);
        let more = show(&buffer[..kept + head], kept) && (bytes.len() == head || show(bytes, head));
        if bytes.len() >= overlap {
            self.keep(bytes, overlap, 0, memory);
        } else {
            self.keep_end(kept + head, overlap, 0);
        }
        more
    }

    fn push_fixed(&mut self, shape: Shape, memory: &mut Memory, bytes: &[u8], show: &mut impl Show) -> bool {
        let Shape { overlap, increment } = shape;
        let (kept, fresh) = (self.kept as usize, self.fresh as usize);
        // new bytes that have been shown or put into the buffer
        let mut done = 0;
        if let Some(buffer) = self.buffer.as_mut().filter(|_| kept > 0) {
            // up to the first window that lies in `bytes` alone
            let border = (overlap + fresh).div_ceil(increment) * increment - fresh;
            done = border.min(bytes.len());
            buffer[kept..kept + done].copy_from_slice(&bytes[..done]);
            let (mut at, end) = (kept - fresh, kept + done);
            while end - at >= increment {
                let old = at.min(overlap);
                if !show(&buffer[at - old..at + increment], old) {
                    return false;
                }
                at += increment;
            }
            if done < border {
                self.keep_end(end, overlap.min(at) + end - at, (end - at) as u32);
                return true;
            }
        }
        let old = |done: usize| done.min(overlap);
        while bytes.len() - done >= increment {
            if !show(&bytes[done - old(done)..done + increment], old(done)) {
                return false;
            }
            done += increment;
        }
        let rest = bytes.len() - done;
        if self.keep(bytes, old(done) + rest, rest as u32, memory) || rest == 0 {
            return true;
        }
        show(&bytes[done - old(done)..], old(done))
    }

    /// Keeps the last `n` of `bytes`, `fresh` of which were not shown yet. False, and nothing is kept, without memory.
    fn keep(&mut self, bytes: &[u8], n: usize, fresh: u32, memory: &mut Memory) -> bool {
        if n == 0 {
            self.clear(memory);
            return true;
        }
        if self.buffer.is_none() {
            self.buffer = memory.window();
        }
        let Some(buffer) = &mut self.buffer else {
            (self.kept, self.fresh) = (0, 0);
            return false;
        };
        buffer[..n].copy_from_slice(&bytes[bytes.len() - n..]);
        (self.kept, self.fresh) = (n as u32, fresh);
        true
    }

    /// Keeps the last `n` of the `end` bytes in the buffer, or all if they are fewer.
    fn keep_end(&mut self, end: usize, n: usize, fresh: u32) {
        let n = n.min(end);
        if n < end
            && let Some(buffer) = &mut self.buffer
        {
            buffer.copy_within(end - n..end, 0);
        }
        (self.kept, self.fresh) = (n as u32, fresh);
    }

    /// Shows what waits for its window to be full, if there is something. False when no more is wanted.
    pub(super) fn flush(&mut self, shape: Shape, show: &mut impl Show) -> bool {
        let (kept, fresh) = (self.kept as usize, self.fresh as usize);
        let Some(buffer) = self.buffer.as_ref().filter(|_| fresh > 0) else { return true };
        let more = show(&buffer[..kept], kept - fresh);
        self.keep_end(kept, shape.overlap, 0);
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All windows over `cuts` put together, as (start, first new byte, end) in the stream.
    fn windows(shape: Shape, cuts: &[Vec<u8>], memory: &mut Memory) -> Vec<(usize, usize, usize)> {
        let all = cuts.concat();
        let mut slide = Slide::default();
        let (mut shown, mut seen) = (0, vec![]);
        let mut show = |bytes: &[u8], old: usize| {
            let start = shown - old;
            assert_eq!(bytes, &all[start..start + bytes.len()]);
            seen.push((start, shown, start + bytes.len()));
            shown = start + bytes.len();
            true
        };
        for cut in cuts {
            assert!(slide.push(shape, memory, cut, &mut show));
        }
        assert!(slide.flush(shape, &mut show));
        assert_eq!(slide.fresh(), 0);
        slide.clear(memory);
        seen
    }

    fn cuts() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let cut = prop_oneof![prop::collection::vec(any::<u8>(), 1..8), prop::collection::vec(any::<u8>(), 1..200)];
        prop::collection::vec(cut, 0..20)
    }

    proptest! {
        #[test]
        fn fixed_windows_are_those_of_the_whole(cuts in cuts(), increment in 1..40usize, overlap in 0..60usize) {
            let shape = Shape { overlap, increment };
            let mut memory = Memory::new(1000, 0, if overlap == 0 { increment } else { 2 * (overlap + increment) });
            let len = cuts.concat().len();
            let expected: Vec<_> = (0..len)
                .step_by(increment)
                .map(|at| (at.saturating_sub(overlap), at, (at + increment).min(len)))
                .collect();
            prop_assert_eq!(windows(shape, &cuts, &mut memory), expected);
            prop_assert_eq!(memory.lent(), 0);
        }

        #[test]
        fn what_comes_is_shown_behind_what_came(cuts in cuts(), overlap in 0..60usize) {
            let mut memory = Memory::new(1000, 0, 2 * overlap);
            let seen = windows(Shape { overlap, increment: 0 }, &cuts, &mut memory);
            let mut at = 0;
            for (start, new, end) in seen {
                prop_assert_eq!(new, at, "each byte is new once");
                prop_assert_eq!(start, at.saturating_sub(overlap), "all there is comes again");
                at = end;
            }
            prop_assert_eq!(at, cuts.concat().len());
        }

        #[test]
        fn without_memory_every_byte_is_shown_all_the_same(cuts in cuts(), increment in 0..40usize, overlap in 0..60usize) {
            let mut memory = Memory::new(0, 0, 200);
            let mut at = 0;
            for (start, new, end) in windows(Shape { overlap, increment }, &cuts, &mut memory) {
                prop_assert!(new == at && start <= new);
                at = end;
            }
            prop_assert_eq!(at, cuts.concat().len());
        }
    }

    #[test]
    fn bytes_are_not_copied_where_they_need_not_be() {
        let mut memory = Memory::new(1 << 20, 0, 64);
        let mut slide = Slide::default();
        let bytes = [7u8; 100];
        let within = |window: &[u8]| bytes.as_ptr_range().contains(&window.as_ptr());
        let mut own = vec![];
        for _ in 0..2 {
            slide.push(Shape { overlap: 0, increment: 0 }, &mut memory, &bytes, &mut |window, _| {
                own.push(within(window));
                true
            });
        }
        assert_eq!((own.as_slice(), memory.taken()), ([true; 2].as_slice(), 0));
        own.clear();
        let shape = Shape { overlap: 22, increment: 10 };
        for _ in 0..2 {
            slide.push(shape, &mut memory, &bytes, &mut |window, _| {
                own.push(within(window));
                true
            });
        }
        assert_eq!(own.iter().filter(|own| !**own).count(), 3, "the windows across the border");
    }

    #[test]
    fn who_has_enough_gets_no_more() {
        let mut memory = Memory::new(1 << 20, 0, 64);
        for shape in [(0, 0), (5, 0), (0, 4), (5, 4)].map(|(overlap, increment)| Shape { overlap, increment }) {
            let (mut slide, mut calls) = (Slide::default(), 0);
            for _ in 0..2 {
                let more = slide.push(shape, &mut memory, &[1; 9], &mut |_, _| {
                    calls += 1;
                    false
                });
                assert!(!more);
            }
            assert_eq!(calls, 2);
            slide.clear(&mut memory);
        }
        assert_eq!(memory.lent(), 0);
    }
}
