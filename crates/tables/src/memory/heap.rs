//! The same memory from the allocator, for miri, which cannot change the protection of pages.

use super::{Backing, Pages, Zeroed};
use rustix::io::Errno;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::NonNull;

/// More than a table of a test needs: miri keeps a tag per byte.
const MOST: usize = 1 << 28;

pub(crate) struct Memory<W> {
    base: NonNull<W>,
    words: usize,
    layout: Layout,
}

// SAFETY: the allocation is freed by Drop alone, and the words in it are atomics.
unsafe impl<W: Zeroed> Send for Memory<W> {}
// SAFETY: as above.
unsafe impl<W: Zeroed> Sync for Memory<W> {}

impl<W: Zeroed> Memory<W> {
    pub(crate) fn reserve(words: usize, _best: Pages) -> Result<Self, Errno> {
        let bytes = words.checked_mul(size_of::<W>()).filter(|bytes| *bytes <= MOST).ok_or(Errno::NOMEM)?;
        let layout = Layout::from_size_align(bytes.max(1), 4096).map_err(|_| Errno::NOMEM)?;
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }.cast()).ok_or(Errno::NOMEM)?;
        Ok(Memory { base, words, layout })
    }

    pub(crate) fn words(&self) -> &[W] {
        // SAFETY: allocated for so many words; zeros are valid; there is no reference as anything but atomics.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    pub(crate) fn back(&self, words: Range<usize>) -> Result<(), Errno> {
        assert!(words.end <= self.words, "within the reservation");
        Ok(())
    }

    pub(crate) fn back_sparse(&self, words: Range<usize>) -> Result<(), Errno> {
        self.back(words)
    }

    pub(crate) fn discard(&self) {}

    pub(crate) fn backed(&self) -> impl Iterator<Item = Range<usize>> {
        std::iter::once(0..self.words)
    }

    pub(crate) fn backing(&self) -> Backing {
        Backing { ordinary: self.layout.size(), ..Backing::default() }
    }
}

impl<W> Drop for Memory<W> {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no reference to the words exists.
        unsafe { dealloc(self.base.as_ptr().cast(), self.layout) };
    }
}
