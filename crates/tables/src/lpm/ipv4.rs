//! IPv4 as an address family.

use super::address::Family;
use super::look_up::Isa;
use super::look_up4;
use super::words::LpmWord;
use core::fmt::Display;
use core::net::Ipv4Addr;

impl Family for u32 {
    const BITS: u8 = 32;
    const SPACES: usize = 1;
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
    unsafe fn look_up<W: LpmWord>(words: &[W], isa: Isa, addresses: &[u32], values: &mut [u32]) {
        // SAFETY: the caller's promise, handed on.
        unsafe { look_up4::look_up(words, isa, addresses, values) }
    }
}
