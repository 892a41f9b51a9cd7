//! Sliding windows over bytes that arrive in pieces.
//!
//! The bytes of a window are contiguous. Windows within one piece are delivered in place; only those across a border
//! are copied into a buffer, so that at most two windows are copied per piece of any length.

use super::memory::{Buffer, Memory};

/// Geometry of windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WindowShape {
    /// Bytes that a window repeats.
    pub(super) overlap: usize,
    /// New bytes of a window; 0: as many as arrive.
    pub(super) increment: usize,
}

/// Bytes that a stream keeps for its next window: delivered ones, then new ones.
#[derive(Default)]
pub(super) struct SlidingWindow {
    buffer: Option<Buffer>,
    kept: u32,
    fresh: u32,
}

/// Consumer of windows and of the number of repeated bytes; returns false to stop.
pub(super) trait WindowSink: FnMut(&[u8], usize) -> bool {}
impl<F: FnMut(&[u8], usize) -> bool> WindowSink for F {}

impl SlidingWindow {
    /// Returns the number of new bytes that wait for a full window.
    #[inline(always)]
    pub(super) fn fresh(&self) -> u32 {
        self.fresh
    }

    /// Returns true if it holds memory.
    #[inline(always)]
    pub(super) fn holds(&self) -> bool {
        self.buffer.is_some()
    }

    /// Frees its memory and discards its bytes.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        if let Some(buffer) = core::mem::take(self).buffer {
            memory.free_window(buffer);
        }
    }

    /// Processes the next bytes and delivers the windows that are complete. Without memory for a buffer, bytes that
    /// would wait in it are delivered at once. Returns false to stop.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        shape: WindowShape,
        memory: &mut Memory,
        bytes: &[u8],
        show: &mut impl WindowSink,
    ) -> bool {
        if shape == (WindowShape { overlap: 0, increment: 0 }) {
            return show(bytes, 0);
        }
        if shape.increment == 0 {
            self.push_any(shape.overlap, memory, bytes, show)
        } else {
            self.push_fixed(shape, memory, bytes, show)
        }
    }

    fn push_any(&mut self, overlap: usize, memory: &mut Memory, bytes: &[u8], show: &mut impl WindowSink) -> bool {
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

    fn push_fixed(
        &mut self,
        shape: WindowShape,
        memory: &mut Memory,
        bytes: &[u8],
        show: &mut impl WindowSink,
    ) -> bool {
        let WindowShape { overlap, increment } = shape;
        let (kept, fresh) = (self.kept as usize, self.fresh as usize);
        // new bytes that were delivered or buffered
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

    /// Keeps the last `n` of `bytes`, `fresh` of which are new. Returns false and keeps nothing without memory.
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

    /// Keeps the last `n` of the `end` bytes in the buffer, or all if there are fewer.
    fn keep_end(&mut self, end: usize, n: usize, fresh: u32) {
        let n = n.min(end);
        if n < end
            && let Some(buffer) = &mut self.buffer
        {
            buffer.copy_within(end - n..end, 0);
        }
        (self.kept, self.fresh) = (n as u32, fresh);
    }

    /// Delivers bytes that wait for a full window, if there are any. Returns false to stop.
    pub(super) fn flush(&mut self, shape: WindowShape, show: &mut impl WindowSink) -> bool {
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

    /// Returns all windows over `cuts` as (start, first new byte, end) in the stream.
    fn windows(shape: WindowShape, cuts: &[Vec<u8>], memory: &mut Memory) -> Vec<(usize, usize, usize)> {
        let all = cuts.concat();
        let mut slide = SlidingWindow::default();
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
            let shape = WindowShape { overlap, increment };
            let mut memory = Memory::new(1000, 0, if overlap == 0 { increment } else { 2 * (overlap + increment) });
            let len = cuts.concat().len();
            let expected: Vec<_> = (0..len)
                .step_by(increment)
                .map(|at| (at.saturating_sub(overlap), at, (at + increment).min(len)))
                .collect();
            prop_assert_eq!(windows(shape, &cuts, &mut memory), expected);
            prop_assert_eq!(memory.allocated(), 0);
        }

        #[test]
        fn what_comes_is_shown_behind_what_came(cuts in cuts(), overlap in 0..60usize) {
            let mut memory = Memory::new(1000, 0, 2 * overlap);
            let seen = windows(WindowShape { overlap, increment: 0 }, &cuts, &mut memory);
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
            for (start, new, end) in windows(WindowShape { overlap, increment }, &cuts, &mut memory) {
                prop_assert!(new == at && start <= new);
                at = end;
            }
            prop_assert_eq!(at, cuts.concat().len());
        }
    }

    #[test]
    fn bytes_are_not_copied_where_they_need_not_be() {
        let mut memory = Memory::new(1 << 20, 0, 64);
        let mut slide = SlidingWindow::default();
        let bytes = [7u8; 100];
        let within = |window: &[u8]| bytes.as_ptr_range().contains(&window.as_ptr());
        let mut own = vec![];
        for _ in 0..2 {
            slide.push(WindowShape { overlap: 0, increment: 0 }, &mut memory, &bytes, &mut |window, _| {
                own.push(within(window));
                true
            });
        }
        assert_eq!((own.as_slice(), memory.taken()), ([true; 2].as_slice(), 0));
        own.clear();
        let shape = WindowShape { overlap: 22, increment: 10 };
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
        for shape in [(0, 0), (5, 0), (0, 4), (5, 4)].map(|(overlap, increment)| WindowShape { overlap, increment }) {
            let (mut slide, mut calls) = (SlidingWindow::default(), 0);
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
        assert_eq!(memory.allocated(), 0);
    }
}
