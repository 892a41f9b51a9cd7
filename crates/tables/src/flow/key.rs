//! Keys of flows, and how they are hashed.

use std::hash::{BuildHasher, RandomState};
use wire::IpProtocol;
use wire::flow::FiveTuple;

/// Key of a flow.
///
/// `Default` fills slots that no flow has; its value does not matter.
pub trait FlowKey: Copy + Default {
    /// The key as tables keep it, in as few bytes as it can be, aligned to one, so that other things fit in beside it.
    type Packed: Copy;

    /// Hashes the whole key with [`Seed::mix`]: all bits are usable, and unpredictable without the seed.
    fn flow_hash(&self, seed: &Seed) -> u64;

    /// Returns the key as tables keep it.
    fn pack(&self) -> Self::Packed;

    /// Unpacks the key.
    fn unpack(packed: &Self::Packed) -> Self;

    /// Returns true if this key was packed as `packed`.
    fn is(&self, packed: &Self::Packed) -> bool;
}

/// Secret seed of the hash, so that an attacker cannot choose colliding flows.
///
/// The hash folds products of 128 bits: fast, and unpredictable from outside, but no cryptographic function. What it could
/// let through costs room and not time: work per packet is bounded whatever the keys.
#[derive(Clone, Copy)]
pub struct Seed([u64; 2]);

impl Seed {
    /// Creates a seed from the random numbers of the system.
    #[must_use]
    pub fn random() -> Self {
        let source = RandomState::new();
        Self([0, 1].map(|i: u64| source.hash_one(i)))
    }

    /// Always the same one for a number: for runs that are to be repeated, and for nothing that meets strangers.
    #[must_use]
    pub fn fixed(number: u64) -> Self {
        // splitmix64
        Self([1, 2].map(|i: u64| {
            let z = number.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }))
    }

    /// Mixes two more words into a hash.
    ///
    /// The folded product of keys that differ in 16 bits, such as a port, takes few values with some seeds; the odd factor
    /// distributes them.
    #[inline(always)]
    #[must_use]
    pub fn mix(&self, hash: u64, a: u64, b: u64) -> u64 {
        let product = u128::from(a ^ self.0[0] ^ hash) * u128::from(b ^ self.0[1] ^ hash.rotate_left(32));
        (product as u64 ^ (product >> 64) as u64).wrapping_mul(0xd134_2543_de82_ef95)
    }
}

impl core::fmt::Debug for Seed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seed(secret)")
    }
}

/// Addresses, ports and protocol of an IPv4 flow, 13 bytes packed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Tuple4 {
    /// Source address, then destination address, with the bytes of the wire, the first one lowest.
    addresses: u64,
    /// Source port, destination port, with the bytes of the wire, then the protocol.
    rest: u64,
}

/// Addresses, ports and protocol of an IPv6 flow, 37 bytes packed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Tuple6 {
    src: [u64; 2],
    dst: [u64; 2],
    rest: u64,
}

#[inline(always)]
fn rest(high: u16, low: u16, protocol: u8) -> u64 {
    u64::from(protocol) << 32 | u64::from(high) << 16 | u64::from(low)
}

#[inline(always)]
fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

/// Returns the eight bytes of a packed key as a number.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Returns the last five bytes.
#[inline(always)]
fn last<const N: usize>(bytes: &[u8; N]) -> u64 {
    word(bytes, N - 8) >> 24
}

#[inline(always)]
fn packed<const N: usize>(words: &[u64], rest: u64) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
    bytes[N - 5..].copy_from_slice(&rest.to_le_bytes()[..5]);
    bytes
}

impl Tuple4 {
    /// Returns the addresses as numbers (`10.0.0.1` is `0x0a00_0001`).
    #[inline(always)]
    #[must_use]
    pub fn new(src: u32, dst: u32, src_port: u16, dst_port: u16, protocol: u8) -> Self {
        let addresses = u64::from(dst.swap_bytes()) << 32 | u64::from(src.swap_bytes());
        Self { addresses, rest: rest(dst_port.swap_bytes(), src_port.swap_bytes(), protocol) }
    }

    /// Returns the addresses and ports of an IPv4 packet without options, as they stand in it from byte 12 on.
    ///
    /// ```
    /// use tables::flow::Tuple4;
    ///
    /// let wire = [10, 0, 0, 1, 192, 0, 2, 7, 0x9c, 0x40, 0x00, 0x35];
    /// assert_eq!(Tuple4::of_wire(&wire, 17), Tuple4::new(0x0a00_0001, 0xc000_0207, 40_000, 53, 17));
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn of_wire(bytes: &[u8; 12], protocol: u8) -> Self {
        let ports = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        Self { addresses: word(bytes, 0), rest: u64::from(protocol) << 32 | u64::from(ports) }
    }

    /// Returns source and destination address, source and destination port, and protocol, as numbers.
    #[inline(always)]
    #[must_use]
    pub fn fields(&self) -> (u32, u32, u16, u16, u8) {
        let address = |at: u32| ((self.addresses >> at) as u32).swap_bytes();
        let port = |at: u32| ((self.rest >> at) as u16).swap_bytes();
        (address(0), address(32), port(0), port(16), (self.rest >> 32) as u8)
    }

    /// The same key for both directions of a flow, and whether it is the other direction's: both ends change places where
    /// that makes it the smaller.
    ///
    /// ```
    /// use tables::flow::Tuple4;
    ///
    /// let there = Tuple4::new(0x0a00_0001, 0xc000_0207, 40_000, 53, 17);
    /// let back = Tuple4::new(0xc000_0207, 0x0a00_0001, 53, 40_000, 17);
    /// assert_eq!(there.either().0, back.either().0);
    /// assert_ne!(there.either().1, back.either().1);
    /// ```
    #[inline(always)]
    #[must_use]
    pub fn either(self) -> (Self, bool) {
        let addresses = self.addresses.rotate_left(32);
        let ports = u64::from((self.rest as u32).rotate_left(16));
        let turned = Self { addresses, rest: self.rest >> 32 << 32 | ports };
        let turn = addresses < self.addresses || addresses == self.addresses && turned.rest < self.rest;
        (Self { addresses: addresses.min(self.addresses), rest: if turn { turned.rest } else { self.rest } }, turn)
    }

    /// Returns the same as a [`FiveTuple`].
    #[must_use]
    pub fn five_tuple(&self) -> FiveTuple {
        let (src, dst, src_port, dst_port, protocol) = self.fields();
        FiveTuple::v4(src.into(), dst.into(), src_port, dst_port, IpProtocol(protocol))
    }
}

impl Tuple6 {
    /// Returns the addresses as numbers (`::1` is 1).
    #[inline(always)]
    #[must_use]
    pub fn new(src: u128, dst: u128, src_port: u16, dst_port: u16, protocol: u8) -> Self {
        Self { src: halves(src), dst: halves(dst), rest: rest(src_port, dst_port, protocol) }
    }

    /// As [`Tuple4::either`].
    #[inline(always)]
    #[must_use]
    pub fn either(self) -> (Self, bool) {
        let ports = u64::from((self.rest as u32).rotate_left(16));
        let turned = Self { src: self.dst, dst: self.src, rest: self.rest >> 32 << 32 | ports };
        let turn = (turned.src, turned.dst, turned.rest) < (self.src, self.dst, self.rest);
        (if turn { turned } else { self }, turn)
    }

    /// Returns the same as a [`FiveTuple`].
    #[must_use]
    pub fn five_tuple(&self) -> FiveTuple {
        let address = |[high, low]: [u64; 2]| (u128::from(high) << 64 | u128::from(low)).into();
        let protocol = IpProtocol((self.rest >> 32) as u8);
        let ports = ((self.rest >> 16) as u16, self.rest as u16);
        FiveTuple::v6(address(self.src), address(self.dst), ports.0, ports.1, protocol)
    }
}

/// An IPv6 address, or any other number.
impl FlowKey for u64 {
    type Packed = [u8; 8];

    #[inline(always)]
    fn flow_hash(&self, seed: &Seed) -> u64 {
        seed.mix(0, *self, 0)
    }

    fn pack(&self) -> [u8; 8] {
        self.to_ne_bytes()
    }

    fn unpack(p: &[u8; 8]) -> Self {
        Self::from_ne_bytes(*p)
    }

    #[inline(always)]
    fn is(&self, p: &[u8; 8]) -> bool {
        *self == Self::from_ne_bytes(*p)
    }
}

impl FlowKey for u128 {
    type Packed = [u8; 16];

    #[inline(always)]
    fn flow_hash(&self, seed: &Seed) -> u64 {
        let [high, low] = halves(*self);
        seed.mix(0, high, low)
    }

    fn pack(&self) -> [u8; 16] {
        self.to_ne_bytes()
    }

    fn unpack(p: &[u8; 16]) -> Self {
        Self::from_ne_bytes(*p)
    }

    #[inline(always)]
    fn is(&self, p: &[u8; 16]) -> bool {
        *self == Self::from_ne_bytes(*p)
    }
}

impl FlowKey for Tuple4 {
    type Packed = [u8; 13];

    #[inline(always)]
    fn flow_hash(&self, seed: &Seed) -> u64 {
        seed.mix(0, self.addresses, self.rest)
    }

    fn pack(&self) -> [u8; 13] {
        packed(&[self.addresses], self.rest)
    }

    fn unpack(p: &[u8; 13]) -> Self {
        Self { addresses: word(p, 0), rest: last(p) }
    }

    #[inline(always)]
    fn is(&self, p: &[u8; 13]) -> bool {
        (self.addresses ^ word(p, 0)) | (self.rest ^ last(p)) == 0
    }
}

impl FlowKey for Tuple6 {
    type Packed = [u8; 37];

    #[inline(always)]
    fn flow_hash(&self, seed: &Seed) -> u64 {
        let src = seed.mix(self.rest, self.src[0], self.src[1]);
        seed.mix(src, self.dst[0], self.dst[1])
    }

    fn pack(&self) -> [u8; 37] {
        packed(&[self.src[0], self.src[1], self.dst[0], self.dst[1]], self.rest)
    }

    fn unpack(p: &[u8; 37]) -> Self {
        Self { src: [word(p, 0), word(p, 8)], dst: [word(p, 16), word(p, 24)], rest: last(p) }
    }

    #[inline(always)]
    fn is(&self, p: &[u8; 37]) -> bool {
        let src = (self.src[0] ^ word(p, 0)) | (self.src[1] ^ word(p, 8));
        let dst = (self.dst[0] ^ word(p, 16)) | (self.dst[1] ^ word(p, 24));
        src | dst | (self.rest ^ last(p)) == 0
    }
}
