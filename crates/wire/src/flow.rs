//! Which flow a packet belongs to.

use crate::ethernet::EtherType;
use crate::{Ethernet, Header, IpProtocol, Ipv4, Ipv6, Vlan, fixed, ipv6};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// VLAN tags that [`FiveTuple::of_frame`] looks behind; a frame with more has no tuple.
pub const MAX_TAGS: usize = 4;

/// Addresses, ports and protocol of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FiveTuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same version.
    pub dst: IpAddr,
    /// Source port; 0 for fragments and for protocols other than TCP and UDP.
    pub src_port: u16,
    /// Destination port; 0 where [`src_port`](Self::src_port) is.
    pub dst_port: u16,
    /// The protocol behind extension headers; for a fragment, the one its fragment header names.
    pub protocol: IpProtocol,
}

impl FiveTuple {
    /// Returns a tuple of IPv4 addresses.
    #[inline(always)]
    pub const fn v4(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16, protocol: IpProtocol) -> Self {
        Self { src: IpAddr::V4(src), dst: IpAddr::V4(dst), src_port, dst_port, protocol }
    }

    /// Returns a tuple of IPv6 addresses.
    #[inline(always)]
    pub const fn v6(src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16, protocol: IpProtocol) -> Self {
        Self { src: IpAddr::V6(src), dst: IpAddr::V6(dst), src_port, dst_port, protocol }
    }

    /// Returns the tuple of an Ethernet frame, looking behind up to [`MAX_TAGS`] VLAN tags.
    ///
    /// `None` if the frame does not carry a well-formed IPv4 or IPv6 header. All fragments of a datagram, the first
    /// included, have the same tuple, with ports 0; so do packets too short for ports.
    ///
    /// ```
    /// use wire::{build, flow::FiveTuple, IpProtocol};
    ///
    /// let frame = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53).vlan(5).to_vec();
    /// let flow = FiveTuple::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1000, 53, IpProtocol::UDP);
    /// assert_eq!(FiveTuple::of_frame(&frame), Some(flow));
    /// assert_eq!(flow.symmetric_hash(), flow.reversed().symmetric_hash());
    /// ```
    #[inline]
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        Self::of_frame_with_upper(frame).map(|(tuple, _)| tuple)
    }

    /// Returns the tuple as [`of_frame`](Self::of_frame) does, and the bytes behind the headers of IP; none of a fragment.
    ///
    /// ```
    /// use wire::{TcpFlags, build, flow::FiveTuple};
    ///
    /// let frame = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 80).flags(TcpFlags::SYN).to_vec();
    /// let (flow, upper) = FiveTuple::of_frame_with_upper(&frame).unwrap();
    /// assert_eq!((flow.dst_port, upper[13]), (80, TcpFlags::SYN.0));
    /// ```
    #[inline]
    pub fn of_frame_with_upper(frame: &[u8]) -> Option<(Self, &[u8])> {
        let mut ether_type = fixed::<Ethernet>(frame).ok()?.ether_type();
        let mut bytes = frame.get(size_of::<Ethernet>()..)?;
        for _ in 0..MAX_TAGS {
            if !ether_type.is_vlan() {
                break;
            }
            ether_type = fixed::<Vlan>(bytes).ok()?.ether_type();
            bytes = bytes.get(size_of::<Vlan>()..)?;
        }
        match ether_type {
            EtherType::IPV4 => Self::of_ipv4_with_upper(bytes),
            EtherType::IPV6 => Self::of_ipv6_with_upper(bytes),
            _ => None,
        }
    }

    /// Returns the tuple of a packet that starts with its IPv4 header; `None` if that is malformed.
    #[inline]
    pub fn of_ipv4(packet: &[u8]) -> Option<Self> {
        Self::of_ipv4_with_upper(packet).map(|(tuple, _)| tuple)
    }

    #[inline(always)]
    fn of_ipv4_with_upper(packet: &[u8]) -> Option<(Self, &[u8])> {
        let len = Ipv4::check(packet).ok()?;
        let header = fixed::<Ipv4>(packet).ok()?;
        let upper = packet.get(len..Ipv4::extent(packet))?;
        let upper = if header.is_fragment() { &[] } else { upper };
        let (src_port, dst_port) = ports(header.protocol(), upper);
        Some((Self::v4(header.src(), header.dst(), src_port, dst_port, header.protocol()), upper))
    }

    /// Returns the tuple of a packet that starts with its IPv6 header; `None` if that is malformed.
    #[inline]
    pub fn of_ipv6(packet: &[u8]) -> Option<Self> {
        Self::of_ipv6_with_upper(packet).map(|(tuple, _)| tuple)
    }

    #[inline(always)]
    fn of_ipv6_with_upper(packet: &[u8]) -> Option<(Self, &[u8])> {
        let len = Ipv6::check(packet).ok()?;
        let header = fixed::<Ipv6>(packet).ok()?;
        let upper = packet.get(len..Ipv6::extent(packet))?;
        let (protocol, is_fragment) = ipv6::flow_protocol(packet.get(..len)?);
        let upper = if is_fragment { &[] } else { upper };
        let (src_port, dst_port) = ports(protocol, upper);
        Some((Self::v6(header.src(), header.dst(), src_port, dst_port, protocol), upper))
    }

    /// Returns the tuple of the opposite direction.
    #[inline(always)]
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src, src_port: self.dst_port, dst_port: self.src_port, ..self }
    }

    /// Returns a hash of all five fields, well spread in all its bits: take as few as needed, from either end.
    ///
    /// Stable within one version of this crate only. Not keyed: a sender that chooses its addresses can choose the hash.
    #[inline]
    #[must_use]
    pub fn hash(&self) -> u32 {
        let ports = u64::from(self.src_port) << 16 | u64::from(self.dst_port);
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                hash4(u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits()), ports, self.protocol)
            }
            (src, dst) => {
                let rest = u64::from(self.protocol.0) << 32 | ports;
                let (src, dst) = (bits(src), bits(dst));
                let src = mix((src >> 64) as u64, src as u64, KEYS[1]);
                let dst = mix((dst >> 64) as u64, dst as u64, KEYS[2]);
                fold(mix(mix(src, dst.rotate_left(32) ^ rest, KEYS[0]), rest, KEYS[3]))
            }
        }
    }

    /// Returns a hash that is the same for both directions of a flow, as good as [`hash`](Self::hash).
    #[inline]
    #[must_use]
    pub fn symmetric_hash(&self) -> u32 {
        let end = |address: IpAddr, port: u16| match address {
            IpAddr::V4(address) => end4(u64::from(address.to_bits()) << 16 | u64::from(port), self.protocol),
            IpAddr::V6(address) => {
                let host = address.to_bits();
                mix(
                    mix((host >> 64) as u64, host as u64, KEYS[1]),
                    u64::from(self.protocol.0) << 16 | u64::from(port),
                    KEYS[2],
                )
            }
        };
        both(end(self.src, self.src_port), end(self.dst, self.dst_port))
    }
}

/// Returns the [`FiveTuple::symmetric_hash`] of an Ethernet frame; 0 if that has no tuple.
///
/// ```
/// use wire::{build, flow};
///
/// let there = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53).to_vec();
/// let back = build::udp4([10, 0, 0, 2], [10, 0, 0, 1], 53, 1000).to_vec();
/// assert_eq!(flow::symmetric_hash(&there), flow::symmetric_hash(&back));
/// ```
#[inline(always)]
pub fn symmetric_hash(frame: &[u8]) -> u32 {
    plain4(frame).unwrap_or_else(|| hash_any(frame))
}

/// Maps a hash uniformly to 0 to `n - 1`.
#[inline(always)]
pub const fn share(hash: u32, n: u32) -> u32 {
    ((hash as u64 * n as u64) >> 32) as u32
}

#[cold]
fn hash_any(frame: &[u8]) -> u32 {
    FiveTuple::of_frame(frame).map_or(0, |flow| flow.symmetric_hash())
}

/// Returns the hash of an untagged, unfragmented TCP or UDP packet over IPv4 without options.
#[inline(always)]
fn plain4(frame: &[u8]) -> Option<u32> {
    let h = frame.first_chunk::<38>()?;
    let word = |at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    let port = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    // EtherType, version and header length; of the flags only "don't fragment" may be set
    let odd = ((word(12) >> 8) ^ 0x0008_0045) | (word(20) >> 16) & 0xbfff;
    let (total, protocol) = (usize::from(port(16)), IpProtocol(h[23]));
    let plain = odd == 0
        && (protocol == IpProtocol::UDP || protocol == IpProtocol::TCP)
        && total >= size_of::<Ipv4>() + 4
        && total <= frame.len() - size_of::<Ethernet>();
    let one = u64::from(word(26)) << 16 | u64::from(port(34));
    let other = u64::from(word(30)) << 16 | u64::from(port(36));
    plain.then(|| both(end4(one, protocol), end4(other, protocol)))
}

/// Hashes one end of an IPv4 flow: address, then port.
#[inline(always)]
fn end4(end: u64, protocol: IpProtocol) -> u64 {
    mix(end, protocol.0.into(), KEYS[0])
}

/// Combines the hashes of both ends, independent of their order.
#[inline(always)]
fn both(one: u64, other: u64) -> u32 {
    fold(mix(one.wrapping_add(other), 0, KEYS[3]))
}

/// Returns the hash of a flow over IPv4: source and destination address, source and destination port, in this order.
#[inline(always)]
fn hash4(addresses: u64, ports: u64, protocol: IpProtocol) -> u32 {
    let rest = u64::from(protocol.0) << 32 | ports;
    fold(mix(mix(addresses, rest, KEYS[0]), rest, KEYS[3]))
}

#[inline(always)]
fn fold(mixed: u64) -> u32 {
    (mixed ^ mixed >> 32) as u32
}

#[inline(always)]
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Odd numbers without pattern: the fractional digits of pi.
const KEYS: [[u64; 2]; 4] = [
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345],
    [0xa409_3822_299f_31d1, 0x082e_fa98_ec4e_6c89],
    [0x4528_21e6_38d0_1377, 0xbe54_66cf_34e9_0c6d],
    [0xc0ac_29b7_c97c_50dd, 0x3f84_d5b5_b547_0917],
];

/// Folds the two halves of a 128-bit product, so that every input bit affects every output bit.
#[inline(always)]
fn mix(a: u64, b: u64, keys: [u64; 2]) -> u64 {
    let product = u128::from(a ^ keys[0]) * u128::from(b ^ keys[1]);
    product as u64 ^ (product >> 64) as u64
}

/// Returns the source and destination port at the start of `upper`.
#[inline(always)]
fn ports(protocol: IpProtocol, upper: &[u8]) -> (u16, u16) {
    match upper {
        [a, b, c, d, ..] if matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) => {
            (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
        }
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests;
