//! Limits and layout constants of a table.

use crate::memory::Pages;

/// Bits that index the first level.
pub(super) const TOP_BITS: u32 = 24;
/// Words of the first level.
pub(super) const TOP: usize = 1 << TOP_BITS;
/// Words of a group.
pub(super) const GROUP: usize = 256;
/// Set in what a word holds that is no value: the other bits are the number of a group.
pub(super) const LINK: u32 = 1 << 31;

/// Bits of a value; the two above it in a route are its tag.
pub(super) const VALUE_BITS: u32 = 30;

/// The largest value of a route.
pub const MAX_VALUE: u32 = (1 << VALUE_BITS) - 1;
/// The largest tag of a route.
pub const MAX_TAG: u8 = 3;
/// Groups of a space, the numbers of which words of 16 bits hold.
pub(super) const SPACE: usize = 1 << 15;
/// Spaces at most.
pub(super) const MAX_SPACES: usize = 3;
/// The most groups that a table can be made for: their words are indexed by 31 bits.
pub const MAX_GROUPS: usize = (LINK as usize - TOP) / GROUP - (MAX_SPACES - 1) * SPACE;

/// Limits of a table, and its kind of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Routes at most. A route takes 10 to 40 bytes of the writer's memory.
    pub routes: usize,
    /// Groups of 256 words at most ([`MAX_GROUPS`] at most): each 512 B or 1 KiB of table and 132 bytes of the writer's,
    /// taken when a route needs it. Of address space all are reserved at once.
    pub groups: usize,
    /// The best pages to try.
    pub pages: Pages,
}
