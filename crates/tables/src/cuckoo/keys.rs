//! Key types, by their size.

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
    /// Returns the low 48 bits of a number.
    #[inline(always)]
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits & ((1 << 48) - 1))
    }

    /// Returns an IPv4 address (`10.0.0.1` is `0x0a00_0001`) of a routing instance.
    #[inline(always)]
    #[must_use]
    pub const fn vrf_ipv4(vrf: u16, address: u32) -> Self {
        Self((vrf as u64) << 32 | address as u64)
    }

    /// Returns a MAC address, as it stands in a frame.
    #[inline(always)]
    #[must_use]
    pub const fn mac(mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// Returns the bits as a number.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl Key64 {
    /// Returns a number.
    #[inline(always)]
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns a MAC address, as it stands in a frame, in a VLAN.
    #[inline(always)]
    #[must_use]
    pub const fn mac_vlan(mac: [u8; 6], vlan: u16) -> Self {
        Self(Key48::mac(mac).0 << 16 | vlan as u64)
    }

    /// Returns the bits as a number.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl Key144 {
    /// Returns an IPv6 address (`::1` is 1) of a routing instance.
    #[inline(always)]
    #[must_use]
    pub const fn vrf_ipv6(vrf: u16, address: u128) -> Self {
        Self { high: vrf, words: [(address >> 64) as u64, address as u64] }
    }

    /// Splits the two.
    #[inline(always)]
    #[must_use]
    pub const fn parts(self) -> (u16, u128) {
        (self.high, (self.words[0] as u128) << 64 | self.words[1] as u128)
    }
}
