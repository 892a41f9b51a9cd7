//! The addresses of the two families, as the table walks them.

use super::words::Word;
use super::{Isa, look_up4, look_up6};
use core::fmt::{Debug, Display};
use core::hash::{Hash, Hasher};
use core::net::{Ipv4Addr, Ipv6Addr};

/// An address in host byte order: `u32` for IPv4, `u128` for IPv6. No other type can be one.
pub trait Address: Family {}

impl Address for u32 {}
impl Address for u128 {}

/// What the table needs to know of a family.
pub trait Family: Copy + Eq + Ord + Debug + Send + Sync + 'static {
    /// Bits of an address.
    const BITS: u8;
    /// The address in a rule: no larger and no more aligned than it must be.
    type Stored: Copy + Eq + Hash + Send + 'static;

    fn stored(self) -> Self::Stored;
    fn restored(stored: Self::Stored) -> Self;
    /// The address with all bits behind the first `len` clear.
    fn truncated(self, len: u8) -> Self;
    /// The bits that index the first level.
    fn top(self) -> usize;
    /// The byte that indexes the groups of `level`, from 1.
    fn byte(self, level: usize) -> usize;
    /// As people write it.
    fn shown(self) -> impl Display;

    /// # Safety
    /// `words` are a table of this family as its writer keeps it, the processor has `isa`, and the slices are of one length.
    unsafe fn look_up<W: Word>(words: &[W], isa: Isa, addresses: &[Self], values: &mut [u32]);
}

impl Family for u32 {
    const BITS: u8 = 32;
    type Stored = u32;

    fn stored(self) -> u32 {
        self
    }

    fn restored(stored: u32) -> u32 {
        stored
    }

    fn truncated(self, len: u8) -> u32 {
        self & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
    }

    #[inline(always)]
    fn top(self) -> usize {
        (self >> 8) as usize
    }

    #[inline(always)]
    fn byte(self, level: usize) -> usize {
        debug_assert_eq!(level, 1);
        usize::from(self as u8)
    }

    fn shown(self) -> impl Display {
        Ipv4Addr::from(self)
    }

    #[inline(always)]
    unsafe fn look_up<W: Word>(words: &[W], isa: Isa, addresses: &[u32], values: &mut [u32]) {
        // SAFETY: the caller's promise, handed on.
        unsafe { look_up4::look_up(words, isa, addresses, values) }
    }
}

/// An IPv6 address that needs no alignment of 16.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct Packed(u128);

impl Hash for Packed {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.0);
    }
}

impl Family for u128 {
    const BITS: u8 = 128;
    type Stored = Packed;

    fn stored(self) -> Packed {
        Packed(self)
    }

    fn restored(stored: Packed) -> u128 {
        stored.0
    }

    fn truncated(self, len: u8) -> u128 {
        self & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
    }

    #[inline(always)]
    fn top(self) -> usize {
        (self >> 104) as usize
    }

    #[inline(always)]
    fn byte(self, level: usize) -> usize {
        usize::from((self >> (104 - 8 * level)) as u8)
    }

    fn shown(self) -> impl Display {
        Ipv6Addr::from(self)
    }

    #[inline(always)]
    unsafe fn look_up<W: Word>(words: &[W], isa: Isa, addresses: &[u128], values: &mut [u32]) {
        // SAFETY: the caller's promise, handed on.
        unsafe { look_up6::look_up(words, isa, addresses, values) }
    }
}
