//! A packet as the classifier sees it.

use super::region::meta;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Fragment state of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum FragmentKind {
    /// Not a fragment.
    Whole = 0,
    /// Offset 0, more to follow: it has the upper header.
    First = meta::FRAGMENT,
    /// Offset above 0: it has none.
    Later = meta::FRAGMENT | meta::LATER,
}

/// An IPv4 packet: 16 bytes, most of them as they stand in it.
///
/// ```
/// use tables::classifier::{FragmentKind, Key4};
///
/// let syn = Key4::new([10, 0, 0, 1].into(), [192, 0, 2, 7].into(), 6, FragmentKind::Whole).with_tcp(40_000, 443, 0x02);
/// // from the time to live on: protocol, checksum, addresses, ports
/// let wire = [64, 6, 0x12, 0x34, 10, 0, 0, 1, 192, 0, 2, 7, 0x9c, 0x40, 0x01, 0xbb];
/// assert_eq!(Key4::of_wire(&wire).with_flags(0x02), syn);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C, align(16))]
pub struct Key4 {
    /// Bits of [`meta`]; then source, destination, and source port before destination port, with the bytes of the wire.
    wire: [u32; 4],
}

/// An IPv6 packet: 40 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Key6 {
    /// Source and destination with their most significant word first, source port above destination port, bits of [`meta`].
    words: [u32; 10],
}

impl Key4 {
    /// Returns a packet of which only the IP header is known.
    #[inline(always)]
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, fragment: FragmentKind) -> Self {
        let [src, dst] = [src, dst].map(|a| a.to_bits().to_be());
        Self { wire: [u32::from(protocol) << meta::PROTOCOL_AT | fragment as u32, src, dst, 0] }
    }

    /// A whole packet without IP options of a protocol that has ports, by bytes 8 to 23 of it: time to live, protocol,
    /// checksum, addresses, ports.
    #[inline(always)]
    pub fn of_wire(bytes: &[u8; 16]) -> Self {
        // in one register and out of it: the classifier reads four keys at a time, and would wait for pieces
        #[cfg(target_arch = "x86_64")]
        // SAFETY: sixteen bytes are loaded, unaligned; a key is four words of any value.
        unsafe {
            use core::arch::x86_64::{_mm_and_si128, _mm_loadu_si128, _mm_or_si128, _mm_setr_epi32};
            let all = _mm_loadu_si128(bytes.as_ptr().cast());
            let all = _mm_and_si128(all, _mm_setr_epi32(meta::PROTOCOL as i32, -1, -1, -1));
            core::mem::transmute(_mm_or_si128(all, _mm_setr_epi32(meta::PORTS as i32, 0, 0, 0)))
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let (words, _) = bytes.as_chunks::<4>();
            let [front, src, dst, ports] = core::array::from_fn(|n| u32::from_ne_bytes(words[n]));
            Self { wire: [u32::from_le(front) & meta::PROTOCOL | meta::PORTS, src, dst, ports] }
        }
    }

    /// Returns the same with TCP flags (byte 13 of the header), of a packet whose ports are known.
    #[inline(always)]
    #[must_use]
    pub fn with_flags(mut self, flags: u8) -> Self {
        self.wire[0] |= u32::from(flags) | meta::FLAGS;
        self
    }

    /// Returns the key words of trees: source, destination, source port above destination port, bits of [`meta`].
    #[inline(always)]
    pub(super) fn words(self) -> [u32; 4] {
        let [meta, rest @ ..] = self.wire;
        let [src, dst, ports] = rest.map(u32::from_be);
        [src, dst, ports, meta]
    }

    /// Returns all of them as they stand in memory.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn wire(keys: &[Self]) -> &[[u32; 4]] {
        // SAFETY: a key is nothing but its four words.
        unsafe { core::slice::from_raw_parts(keys.as_ptr().cast(), keys.len()) }
    }

    #[inline(always)]
    fn set_upper(&mut self, high: u16, low: u16, known: u32) {
        self.wire[3] = (u32::from(high) << 16 | u32::from(low)).to_be();
        self.wire[0] |= known;
    }
}

impl Key6 {
    /// Returns a packet of which only the IP header and extension headers are known; `protocol` is the one behind them.
    #[inline(always)]
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, fragment: FragmentKind) -> Self {
        let (s, d) = (src.to_bits(), dst.to_bits());
        let word = |bits: u128, n: u32| (bits >> (96 - 32 * n)) as u32;
        let meta = u32::from(protocol) << meta::PROTOCOL_AT | fragment as u32;
        let [a, b] = [s, d].map(|bits| [word(bits, 0), word(bits, 1), word(bits, 2), word(bits, 3)]);
        Self { words: [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], 0, meta] }
    }

    /// Returns the same with TCP flags (byte 13 of the header), of a packet whose ports are known.
    #[inline(always)]
    #[must_use]
    pub fn with_flags(mut self, flags: u8) -> Self {
        self.words[9] |= u32::from(flags) | meta::FLAGS;
        self
    }

    /// Returns the keys as their words.
    #[inline(always)]
    pub(super) fn words(keys: &[Self]) -> &[[u32; 10]] {
        // SAFETY: a key is transparent over its words.
        unsafe { core::slice::from_raw_parts(keys.as_ptr().cast(), keys.len()) }
    }

    #[inline(always)]
    fn set_upper(&mut self, high: u16, low: u16, known: u32) {
        self.words[8] = u32::from(high) << 16 | u32::from(low);
        self.words[9] |= known;
    }
}

macro_rules! upper {
    ($key:ident, $field:ident) => {
        impl $key {
            /// Adds the ports of TCP, UDP, SCTP, DCCP or UDP-Lite.
            #[inline(always)]
            #[must_use]
            pub fn with_ports(mut self, src: u16, dst: u16) -> Self {
                self.set_upper(src, dst, meta::PORTS);
                self
            }

            /// Adds the ports and flags (byte 13) of TCP.
            #[inline(always)]
            #[must_use]
            pub fn with_tcp(self, src: u16, dst: u16, flags: u8) -> Self {
                self.with_ports(src, dst).with_flags(flags)
            }

            /// Adds the type and code of ICMP or ICMPv6.
            #[inline(always)]
            #[must_use]
            pub fn with_icmp(mut self, kind: u8, code: u8) -> Self {
                self.set_upper(kind.into(), code.into(), meta::ICMP);
                self
            }
        }

        impl fmt::Debug for $key {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($key), "({:08x?})"), self.$field)
            }
        }
    };
}

upper!(Key4, wire);
upper!(Key6, words);
