//! A prefix that was checked, and where it lies in the table.

use super::limits::TOP_BITS;
use super::{Address, Error};
use std::ops::Range;

/// An address and a length, no bits set behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Prefix<A> {
    pub(super) len: u8,
    pub(super) address: A,
}

impl<A: Address> Prefix<A> {
    pub(super) fn new(address: A, len: u8) -> Result<Self, Error> {
        if len > A::BITS {
            return Err(Error::Length { len, max: A::BITS });
        }
        let clean = address.truncated(len);
        if clean != address {
            return Err(Error::HostBits {
                prefix: format!("{}/{len}", address.shown()),
                instead: format!("{}/{len}", clean.shown()),
            });
        }
        Ok(Prefix { len, address })
    }

    /// Formats the address.
    pub(super) fn shown(&self) -> String {
        format!("{}/{}", self.address.shown(), self.len)
    }

    /// Returns the level whose words it covers: 0, or the number of groups on the way to them.
    pub(super) fn level(&self) -> usize {
        usize::from(self.len).saturating_sub(TOP_BITS as usize).div_ceil(8)
    }

    /// Returns the words of its level that it covers, counted from the first of that level's words on the way to it.
    pub(super) fn covers(&self) -> Range<usize> {
        let level = self.level();
        let first = if level == 0 { self.address.top() } else { self.address.byte(level) };
        first..first + (1 << (TOP_BITS as usize + 8 * level - usize::from(self.len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(address: u128, len: u8) -> (usize, Range<usize>) {
        let prefix = Prefix::new(address, len).unwrap();
        (prefix.level(), prefix.covers())
    }

    #[test]
    fn lies_where_its_bits_say() {
        assert_eq!(place(0, 0), (0, 0..1 << 24));
        assert_eq!(place(1 << 127, 1), (0, 1 << 23..1 << 24));
        assert_eq!(place(0x2a00_0100 << 96, 24), (0, 0x2a_0001..0x2a_0002));
        assert_eq!(place(0x2a00_0180 << 96, 25), (1, 128..256));
        assert_eq!(place(0x2a00_0185 << 96, 32), (1, 0x85..0x86));
        assert_eq!(place(0x8000_0000 << 64, 33), (2, 128..256));
        assert_eq!(place(7, 128), (13, 7..8));
    }

    #[test]
    fn faults_name_the_cure() {
        assert!(Prefix::new(0u32, 33).is_err_and(|e| e.to_string() == "prefix length 33: it is at most 32"));
        let fault = Prefix::new(0x0a00_0001u32, 8).err().unwrap().to_string();
        assert_eq!(fault, "prefix 10.0.0.1/8: bits set behind its length; write 10.0.0.0/8");
        assert!(Prefix::new(1u32, 0).is_err() && Prefix::new(1u32, 32).is_ok());
    }
}
