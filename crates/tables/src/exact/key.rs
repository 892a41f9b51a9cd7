//! Keys, by their bits.

use super::layout::Layout;
use core::fmt::Debug;
use core::hash::Hash;

/// What entries are found by. Every key is legal, zero too. Sealed: 48, 64 and 144 bits.
pub trait Key: Layout + Copy + Eq + Hash + Debug + Send + Sync + 'static {
    /// What an entry tells: `u16` with keys of 48 bits, otherwise `u32`.
    type Value: Copy + Eq + Debug + Send + Sync + Into<u32> + 'static;
    /// Bits of a key.
    const BITS: u32;
    /// The greatest value: one less than the type's own, which stands for a free slot.
    const MAX_VALUE: u32;

    /// A value of at most [`MAX_VALUE`](Self::MAX_VALUE).
    #[doc(hidden)]
    fn value(value: u32) -> Self::Value;
}

/// 48 bits with values up to 65,534: eight entries to a cache line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Key48(pub(super) u64);

/// 64 bits with values up to 4,294,967,294: five entries to a cache line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Key64(pub(super) u64);

/// 144 bits with values up to 4,294,967,294: five entries to two adjacent cache lines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Key144 {
    pub(super) high: u16,
    pub(super) words: [u64; 2],
}

impl Key48 {
    /// The low 48 bits of a number.
    #[inline(always)]
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits & ((1 << 48) - 1))
    }

    /// An IPv4 address (`10.0.0.1` is `0x0a00_0001`) of a routing instance.
    #[inline(always)]
    #[must_use]
    pub const fn vrf_ipv4(vrf: u16, address: u32) -> Self {
        Self((vrf as u64) << 32 | address as u64)
    }

    /// A MAC address, as it stands in a frame.
    #[inline(always)]
    #[must_use]
    pub const fn mac(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// The bits as a number.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl Key64 {
    /// A number.
    #[inline(always)]
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// A MAC address, as it stands in a frame, in a VLAN.
    #[inline(always)]
    #[must_use]
    pub const fn mac_vlan(mac: [u8; 6], vlan: u16) -> Self {
        Self(Key48::mac(mac).0 << 16 | vlan as u64)
    }

    /// The bits as a number.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl Key144 {
    /// An IPv6 address (`::1` is 1) of a routing instance.
    #[inline(always)]
    #[must_use]
    pub const fn vrf_ipv6(vrf: u16, address: u128) -> Self {
        Self { high: vrf, words: [(address >> 64) as u64, address as u64] }
    }

    /// The two again.
    #[inline(always)]
    #[must_use]
    pub const fn parts(self) -> (u16, u128) {
        (self.high, (self.words[0] as u128) << 64 | self.words[1] as u128)
    }
}

impl Key for Key48 {
    type Value = u16;
    const BITS: u32 = 48;
    const MAX_VALUE: u32 = u16::MAX as u32 - 1;

    #[inline(always)]
    fn value(value: u32) -> u16 {
        value as u16
    }
}

impl Key for Key64 {
    type Value = u32;
    const BITS: u32 = 64;
    const MAX_VALUE: u32 = u32::MAX - 1;

    #[inline(always)]
    fn value(value: u32) -> u32 {
        value
    }
}

impl Key for Key144 {
    type Value = u32;
    const BITS: u32 = 144;
    const MAX_VALUE: u32 = u32::MAX - 1;

    #[inline(always)]
    fn value(value: u32) -> u32 {
        value
    }
}
