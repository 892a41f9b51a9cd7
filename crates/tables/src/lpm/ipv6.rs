//! IPv6 as an address family.

use super::address::Family;
use super::limits::MAX_SPACES;
use super::look_up::Isa;
use super::look_up6;
use super::words::LpmWord;
use core::fmt::Display;
use core::hash::{Hash, Hasher};
use core::net::Ipv6Addr;

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
    const SPACES: usize = MAX_SPACES;
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
    unsafe fn look_up<W: LpmWord>(words: &[W], isa: Isa, addresses: &[u128], values: &mut [u32]) {
        // SAFETY: the caller's promise, handed on.
        unsafe { look_up6::look_up(words, isa, addresses, values) }
    }
}
