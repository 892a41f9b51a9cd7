//! The words of a table: 2 bytes each while values and groups are few, 4 bytes from then on.
//!
//! Half the bytes are half the cache lines that random destinations touch, and most routers have fewer than 32,768 next
//! hops and groups. One value or group too many widens the words for good: they are copied, and readers go to the copy
//! from their next look-up on.

use super::limits::{GROUP, LINK, Limits, TOP};
use crate::memory::{Backing, Memory, Zeroed};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// One word. What it holds is handed around as a `u32`: a value, or [`LINK`] and the number of a group.
pub trait LpmWord: Zeroed {
    /// Bits of a value, and of a group's number. Its upper neighbour says that it is the latter.
    const BITS: u32;
    /// The largest value, and the largest number of a group.
    const MAX: u32 = u32::MAX >> (32 - Self::BITS);

    fn load(&self, order: Ordering) -> u32;
    fn store(&self, found: u32, order: Ordering);

    /// Returns the number of the group that it links to.
    fn group(&self) -> u32 {
        self.load(Ordering::Relaxed) & Self::MAX
    }

    /// Returns the index of the word in the group of `link` that `byte` leads to.
    #[inline(always)]
    fn inside(link: u32, byte: usize) -> usize {
        first(link & Self::MAX) + byte
    }
}

impl LpmWord for AtomicU16 {
    const BITS: u32 = 15;

    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        // the link's bit comes to the top, with ones below it
        self.load(order).cast_signed() as u32
    }

    #[inline(always)]
    fn store(&self, found: u32, order: Ordering) {
        self.store((found | found >> 16) as u16, order);
    }
}

impl LpmWord for AtomicU32 {
    const BITS: u32 = 31;

    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, found: u32, order: Ordering) {
        self.store(found, order);
    }
}

/// Returns the index of the first word of the group of this number.
#[inline(always)]
pub(super) const fn first(group: u32) -> usize {
    TOP + group as usize * GROUP
}

/// All words of a table.
pub(super) struct Words {
    narrow: Memory<AtomicU16>,
    wide: OnceLock<Memory<AtomicU32>>,
    limits: Limits,
}

/// The words that count now.
pub(super) enum Width<'a> {
    Narrow(&'a [AtomicU16]),
    Wide(&'a [AtomicU32]),
}

/// Runs an expression on the words of either width.
macro_rules! either {
    ($words:expr, $w:ident => $what:expr) => {
        match $words.width() {
            $crate::lpm::words::Width::Narrow($w) => $what,
            $crate::lpm::words::Width::Wide($w) => $what,
        }
    };
}
pub(super) use either;

impl Words {
    /// Returns the words for `limits`, all 0.
    pub(super) fn reserve(limits: Limits) -> Result<Self, Errno> {
        let groups = limits.groups.min(AtomicU16::MAX as usize + 1);
        Ok(Words { narrow: Memory::reserve(TOP + groups * GROUP, limits.pages)?, wide: OnceLock::new(), limits })
    }

    #[inline(always)]
    pub(super) fn width(&self) -> Width<'_> {
        match self.wide.get() {
            None => Width::Narrow(self.narrow.words()),
            Some(wide) => Width::Wide(wide.words()),
        }
    }

    /// Returns the value of the word at `index`. For the writer, the only one who stores.
    pub(super) fn get(&self, index: usize) -> u32 {
        either!(self, words => LpmWord::load(&words[index], Ordering::Relaxed))
    }

    /// Returns the number of the group that the word at `index` links to.
    pub(super) fn group(&self, index: usize) -> u32 {
        either!(self, words => LpmWord::group(&words[index]))
    }

    /// Stores `found`, which fits: see [`hold`](Self::hold).
    pub(super) fn set(&self, index: usize, found: u32) {
        // Release: who finds a link finds its group filled.
        either!(self, words => LpmWord::store(&words[index], found, Ordering::Release));
    }

    /// Makes words writable. See [`Memory::back`].
    pub(super) fn back(&self, words: Range<usize>) -> Result<(), Errno> {
        match self.wide.get() {
            None => self.narrow.back(words),
            Some(wide) => wide.back(words),
        }
    }

    /// Sees to it that words can hold a value or the number of a group. For the one writer.
    pub(super) fn hold(&self, value: u32) -> Result<(), Errno> {
        if value <= AtomicU16::MAX || self.wide.get().is_some() { Ok(()) } else { self.widen() }
    }

    #[cold]
    fn widen(&self) -> Result<(), Errno> {
        let wide = Memory::reserve(TOP + self.limits.groups * GROUP, self.limits.pages)?;
        let (old, new): (_, &[AtomicU32]) = (self.narrow.words(), wide.words());
        for range in self.narrow.backed() {
            wide.back(range.clone())?;
            for (old, new) in old[range.clone()].iter().zip(&new[range]) {
                let found = LpmWord::load(old, Ordering::Relaxed);
                let found = if found & LINK == 0 { found } else { LINK | found & AtomicU16::MAX };
                new.store(found, Ordering::Relaxed);
            }
        }
        // set by the single writer only
        let _ = self.wide.set(wide);
        Ok(())
    }

    /// Returns the bytes of a word.
    pub(super) fn bytes(&self) -> usize {
        if self.wide.get().is_none() { size_of::<AtomicU16>() } else { size_of::<AtomicU32>() }
    }

    /// Returns the kinds of pages that back the words, and their size before they were widened.
    pub(super) fn backing(&self) -> Backing {
        let (a, b) = (self.narrow.backing(), self.wide.get().map(Memory::backing).unwrap_or_default());
        Backing {
            hugetlb: a.hugetlb + b.hugetlb,
            transparent: a.transparent + b.transparent,
            ordinary: a.ordinary + b.ordinary,
        }
    }
}
