//! The words of a table: 2 bytes each while values and groups are few, 4 bytes from then on.
//!
//! Half the bytes are half the cache lines that random destinations touch, and most routers have fewer than 32,768 next
//! hops. A word of 16 bits names one of 32,768 groups of a space, and which space that is follows from the level of the
//! word; the groups of the levels of IPv6 take turns in three spaces. One value or group too many widens the words for
//! good: they are copied, and readers go to the copy from their next look-up on.

use super::limits::{GROUP, LINK, Limits, SPACE, TOP};
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

    /// Returns the least number of a group of a space that is counted from 0 in a word.
    fn space(space: usize) -> usize;
    fn load(&self, order: Ordering) -> u32;
    fn store(&self, found: u32, order: Ordering);

    /// Returns the number of the group of a space that it links to.
    fn group(&self, space: usize) -> u32 {
        Self::space(space) as u32 + (self.load(Ordering::Relaxed) & Self::MAX)
    }

    /// Stores a link to a group.
    fn link(&self, group: u32) {
        // Release: a reader that finds the link finds the group filled.
        self.store(LINK | group & Self::MAX, Ordering::Release);
    }

    /// Returns the index of the word from which the groups of a space are counted.
    #[inline(always)]
    fn space_start(space: usize) -> usize {
        TOP + Self::space(space) * GROUP
    }

    /// Returns the index of the word in the group of `link` that `byte` leads to, from the start of the space.
    #[inline(always)]
    fn inside(link: u32, start: usize, byte: usize) -> usize {
        start + (link & Self::MAX) as usize * GROUP + byte
    }
}

impl LpmWord for AtomicU16 {
    const BITS: u32 = 15;

    #[inline(always)]
    fn space(space: usize) -> usize {
        space * SPACE
    }

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
    fn space(_: usize) -> usize {
        0
    }

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
    spaces: usize,
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
    pub(super) fn reserve(limits: Limits, spaces: usize) -> Result<Self, Errno> {
        let groups = (spaces - 1) * SPACE + limits.groups.min(SPACE);
        let narrow = Memory::reserve(TOP + groups * GROUP, limits.pages)?;
        Ok(Words { narrow, wide: OnceLock::new(), limits, spaces })
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

    /// Returns the number of the group that the word at `index` of a level links to.
    pub(super) fn group(&self, index: usize, level: usize) -> u32 {
        either!(self, words => LpmWord::group(&words[index], level % self.spaces))
    }

    /// Stores a value, which fits: see [`hold`](Self::hold).
    pub(super) fn set(&self, index: usize, value: u32) {
        either!(self, words => LpmWord::store(&words[index], value, Ordering::Release));
    }

    /// Stores a link to a group, of the space of the level below while words are narrow.
    pub(super) fn link(&self, index: usize, group: u32) {
        either!(self, words => words[index].link(group));
    }

    /// Returns true if words have 32 bits, and groups of any space the numbers of all.
    pub(super) fn is_wide(&self) -> bool {
        self.wide.get().is_some()
    }

    /// Makes words writable. See [`Memory::back_sparse`].
    pub(super) fn back(&self, words: Range<usize>) -> Result<(), Errno> {
        match self.wide.get() {
            None => self.narrow.back_sparse(words),
            Some(wide) => wide.back_sparse(words),
        }
    }

    /// Returns true if words can hold a value without [`widen`](Self::widen).
    pub(super) fn hold(&self, value: u32) -> bool {
        value <= AtomicU16::MAX || self.is_wide()
    }

    /// Copies the words to words of 32 bits, which readers use from their next look-up on. For the one writer.
    #[cold]
    pub(super) fn widen(&self) -> Result<(), Errno> {
        let groups = (self.spaces - 1) * SPACE + self.limits.groups;
        let wide = Memory::reserve(TOP + groups * GROUP, self.limits.pages)?;
        let (old, new): (_, &[AtomicU32]) = (self.narrow.words(), wide.words());
        for range in self.narrow.backed() {
            wide.back_sparse(range.clone())?;
            for index in range {
                let found = LpmWord::load(&old[index], Ordering::Relaxed);
                // The groups below those of a space are in the next one.
                let space = || index.checked_sub(TOP).map_or(0, |word| (word / GROUP / SPACE + 1) % self.spaces);
                let found = if found & LINK == 0 { found } else { LINK | old[index].group(space()) };
                new[index].store(found, Ordering::Relaxed);
            }
        }
        // set by the single writer only
        let _ = self.wide.set(wide);
        Ok(())
    }

    /// Returns the memory of the words of 16 bits, after [`widen`](Self::widen) and when no reader uses them any more.
    pub(super) fn release_narrow(&self) {
        self.narrow.discard();
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
