//! The addresses of the two families, as the table walks them.

use super::look_up::Isa;
use super::words::LpmWord;
use core::fmt::{Debug, Display};
use core::hash::Hash;

/// An address in host byte order: `u32` for IPv4, `u128` for IPv6. No other type can be one.
pub trait Address: Family {}

impl Address for u32 {}
impl Address for u128 {}

/// An address family.
pub trait Family: Copy + Eq + Ord + Debug + Send + Sync + 'static {
    /// Bits of an address.
    const BITS: u8;
    /// Spaces of group numbers. A group of level `n` is in space `(n - 1) % SPACES`.
    const SPACES: usize;
    /// The address in a rule: no larger and no more aligned than it must be.
    type Stored: Copy + Eq + Hash + Send + 'static;

    fn stored(self) -> Self::Stored;
    fn restored(stored: Self::Stored) -> Self;
    /// Returns the address with all bits behind the first `len` clear.
    fn truncated(self, len: u8) -> Self;
    /// Returns the bits that index the first level.
    fn top(self) -> usize;
    /// Returns the byte that indexes the groups of `level`, from 1.
    fn byte(self, level: usize) -> usize;
    /// Formats the address.
    fn shown(self) -> impl Display;

    /// # Safety
    /// `words` are a table of this family as its writer keeps it, the processor has `isa`, and the slices are of one length.
    unsafe fn look_up<W: LpmWord>(words: &[W], isa: Isa, addresses: &[Self], values: &mut [u32]);
}
