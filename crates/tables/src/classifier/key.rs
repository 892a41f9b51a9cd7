//! A packet as the classifier sees it.

use super::region::meta;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Whether a packet is a fragment, and which.
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

/// An IPv4 packet: 16 bytes.
///
/// ```
/// use tables::classifier::{FragmentKind, Key4};
///
/// let syn = Key4::new([10, 0, 0, 1].into(), [192, 0, 2, 7].into(), 6, FragmentKind::Whole).with_tcp(40_000, 443, 0x02);
/// let echo = Key4::new([10, 0, 0, 1].into(), [192, 0, 2, 7].into(), 1, FragmentKind::Whole).with_icmp(8, 0);
/// # assert_ne!(syn, echo);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Key4 {
    /// Source, destination, source port above destination port, and bits of [`meta`].
    words: [u32; 4],
}

/// An IPv6 packet: 40 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Key6 {
    /// As for IPv4; addresses with their most significant word first.
    words: [u32; 10],
}

impl Key4 {
    /// A packet of which only the IP header is known.
    #[inline(always)]
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, fragment: FragmentKind) -> Self {
        Self { words: [src.to_bits(), dst.to_bits(), 0, u32::from(protocol) | fragment as u32] }
    }
}

impl Key6 {
    /// A packet of which only the IP header and extension headers are known; `protocol` is the one behind them.
    #[inline(always)]
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, fragment: FragmentKind) -> Self {
        let (s, d) = (src.to_bits(), dst.to_bits());
        let word = |bits: u128, n: u32| (bits >> (96 - 32 * n)) as u32;
        let meta = u32::from(protocol) | fragment as u32;
        let [a, b] = [s, d].map(|bits| [word(bits, 0), word(bits, 1), word(bits, 2), word(bits, 3)]);
        Self { words: [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], 0, meta] }
    }
}

macro_rules! upper {
    ($key:ident, $words:literal) => {
        impl $key {
            const PORTS: usize = $words - 2;
            const META: usize = $words - 1;

            /// Keys as their words.
            #[inline(always)]
            pub(super) fn words(keys: &[Self]) -> &[[u32; $words]] {
                // SAFETY: a key is transparent over its words.
                unsafe { core::slice::from_raw_parts(keys.as_ptr().cast(), keys.len()) }
            }

            /// With the ports of TCP, UDP, SCTP, DCCP or UDP-Lite.
            #[inline(always)]
            #[must_use]
            pub fn with_ports(mut self, src: u16, dst: u16) -> Self {
                self.words[Self::PORTS] = u32::from(src) << 16 | u32::from(dst);
                self.words[Self::META] |= meta::PORTS;
                self
            }

            /// With the ports and flags (byte 13) of TCP.
            #[inline(always)]
            #[must_use]
            pub fn with_tcp(mut self, src: u16, dst: u16, flags: u8) -> Self {
                self = self.with_ports(src, dst);
                self.words[Self::META] |= u32::from(flags) << 8 | meta::FLAGS;
                self
            }

            /// With the type and code of ICMP or ICMPv6.
            #[inline(always)]
            #[must_use]
            pub fn with_icmp(mut self, kind: u8, code: u8) -> Self {
                self.words[Self::PORTS] = u32::from(kind) << 16 | u32::from(code);
                self.words[Self::META] |= meta::ICMP;
                self
            }
        }

        impl fmt::Debug for $key {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($key), "({:08x?})"), self.words)
            }
        }
    };
}

upper!(Key4, 4);
upper!(Key6, 10);
