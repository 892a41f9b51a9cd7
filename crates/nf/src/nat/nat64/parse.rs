//! Parsing of frames of either IP version.

use crate::link::{self, LinkError};
use wire::{EtherType, IpProtocol, checksum, ipv4, ipv6};

/// Shortest headers in bytes.
const TCP_HEADER_LEN: usize = 20;
pub(super) const UDP_HEADER_LEN: usize = 8;
pub(super) const ICMP_HEADER_LEN: usize = 8;

/// Header fields of an IP packet, common to both versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PacketInfo {
    pub(super) is_ipv6: bool,
    /// Byte offsets in the frame: of the IP header, of the payload, and of the end of the packet.
    pub(super) ip: usize,
    pub(super) l4: usize,
    pub(super) end: usize,
    /// IPv4 addresses are in the low 32 bits.
    pub(super) src: u128,
    pub(super) dst: u128,
    /// Protocol number of IPv4; ICMPv6 is represented as 1. In later IPv6 fragments the value of the fragment header.
    pub(super) protocol: u8,
    /// Traffic class or type of service.
    pub(super) traffic_class: u8,
    /// Hop limit or TTL.
    pub(super) hop_limit: u8,
    /// IPv6 with a fragment header, or an IPv4 fragment.
    pub(super) has_fragment_header: bool,
    pub(super) id: u32,
    /// Fragment offset in bytes.
    pub(super) offset: u16,
    pub(super) more_fragments: bool,
    /// True if "don't fragment" is set; false for IPv6.
    pub(super) dont_fragment: bool,
    /// Offset of an IPv6 routing header's segments left, or of an unfinished IPv4 source route.
    pub(super) source_route: Option<u32>,
}

/// Fields that all fragments of a datagram share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct DatagramKey {
    src: u128,
    dst: u128,
    id: u32,
    protocol: u8,
}

impl PacketInfo {
    pub(super) fn datagram(&self) -> DatagramKey {
        // in IPv6 the identification is common to all protocols (RFC 8200 §4.5)
        let protocol = if self.is_ipv6 { 0 } else { self.protocol };
        DatagramKey { src: self.src, dst: self.dst, id: self.id, protocol }
    }

    pub(super) fn len(&self) -> usize {
        self.end - self.l4
    }

    /// Returns true for one of several fragments.
    pub(super) fn is_fragment(&self) -> bool {
        self.has_fragment_header && (self.more_fragments || self.offset != 0)
    }
}

/// The transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum L4 {
    /// TCP or UDP ports, and TCP flags.
    Ports { src: u16, dst: u16, flags: u8 },
    /// ICMP echo request or reply.
    Echo { id: u16, reply: bool },
    /// An ICMP error.
    IcmpError,
    /// A fragment other than the first.
    LaterFragment,
    /// A first fragment without a complete transport header (RFC 1858).
    TinyFragment,
    /// A truncated header, or a wrong UDP length.
    Malformed,
    /// A protocol or ICMP type that is not translated.
    Unsupported,
}

/// A parsed frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    Ip(PacketInfo),
    /// An invalid IP packet.
    Malformed,
    /// Neither IPv4 nor IPv6.
    Other,
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// Parses any frame.
#[inline]
pub(super) fn parse(frame: &[u8]) -> Frame {
    let (ether_type, packet) = match link::parse(frame) {
        Ok(link) => link,
        Err(LinkError::NoEthernet) => return Frame::Other,
        Err(LinkError::InvalidTags) => return Frame::Malformed,
    };
    let ip = frame.len() - packet.len();
    let info = match ether_type {
        // a translated packet would hide a wrong header checksum (RFC 1812 §5.2.2)
        EtherType::IPV4 => parse_ipv4(ip, packet).filter(|info| checksum::verify(&frame[ip..info.l4])),
        EtherType::IPV6 => parse_ipv6(ip, packet),
        _ => return Frame::Other,
    };
    // a fragment beyond the largest packet would wrap around
    let fits = |info: &PacketInfo| usize::from(info.offset) + (info.end - info.l4) <= usize::from(u16::MAX);
    info.filter(fits).map_or(Frame::Malformed, Frame::Ip)
}

fn parse_ipv4(ip: usize, bytes: &[u8]) -> Option<PacketInfo> {
    let packet = ipv4::Packet::new(bytes).ok()?;
    let h = packet.header();
    let options = &packet.header_bytes()[size_of::<wire::Ipv4>()..];
    Some(PacketInfo {
        is_ipv6: false,
        ip,
        l4: ip + packet.header_bytes().len(),
        end: ip + packet.bytes().len(),
        src: h.src_bits().into(),
        dst: h.dst_bits().into(),
        protocol: h.protocol().0,
        traffic_class: bytes[1],
        hop_limit: h.ttl(),
        has_fragment_header: h.more_fragments() || h.is_later_fragment(),
        id: h.id().into(),
        offset: h.fragment_offset(),
        more_fragments: h.more_fragments(),
        dont_fragment: h.dont_fragment(),
        source_route: if options.is_empty() { None } else { find_source_route(options) },
    })
}

/// Returns the offset of an unfinished source route in IPv4 options (RFC 791 §3.1).
#[cold]
fn find_source_route(mut options: &[u8]) -> Option<u32> {
    let all = options.len();
    while let [kind, rest @ ..] = options {
        let len = match (kind, rest.first()) {
            (0, _) => return None,
            (1, _) => 1,
            (_, Some(len)) if *len >= 2 => usize::from(*len),
            _ => return None,
        };
        // the pointer exceeds the length once the route is finished
        if matches!(kind, 131 | 137) && options.get(2).is_some_and(|pointer| usize::from(*pointer) <= len) {
            return Some((size_of::<wire::Ipv4>() + all - options.len()) as u32);
        }
        options = options.get(len..)?;
    }
    None
}

fn parse_ipv6(ip: usize, bytes: &[u8]) -> Option<PacketInfo> {
    let packet = ipv6::Packet::new(bytes).ok()?;
    let h = packet.header();
    let mut info = PacketInfo {
        is_ipv6: true,
        ip,
        l4: ip + packet.header_bytes().len(),
        end: ip + packet.bytes().len(),
        src: u128::from_be_bytes(h.src_octets()),
        dst: u128::from_be_bytes(h.dst_octets()),
        protocol: ipv4_protocol(h.next_header()),
        traffic_class: h.traffic_class(),
        hop_limit: h.hop_limit(),
        has_fragment_header: false,
        id: 0,
        offset: 0,
        more_fragments: false,
        dont_fragment: false,
        source_route: None,
    };
    if h.next_header().is_extension() {
        parse_extensions(&packet, &mut info)?;
    }
    Some(info)
}

/// Walks the extension headers; hop-by-hop and destination options are ignored.
#[cold]
fn parse_extensions(packet: &ipv6::Packet<'_>, info: &mut PacketInfo) -> Option<()> {
    let mut at = size_of::<wire::Ipv6>();
    let mut authenticated = false;
    for extension in packet.extensions() {
        match extension.kind {
            // extension headers after a fragment header may be fragmented themselves
            _ if info.has_fragment_header => return None,
            IpProtocol::ROUTING if extension.bytes.get(3).is_some_and(|left| *left != 0) => {
                info.source_route = Some(at as u32 + 3);
                info.protocol = ipv4_protocol(extension.next_header());
            }
            IpProtocol::FRAGMENT => {
                let fragment = extension.fragment()?;
                (info.has_fragment_header, info.id, info.offset, info.more_fragments) =
                    (true, fragment.id, fragment.offset, fragment.more);
                info.protocol = ipv4_protocol(extension.next_header());
            }
            kind => {
                // an authenticated packet cannot be translated (RFC 7915 §5.1)
                authenticated |= kind == IpProtocol::AH;
                info.protocol = ipv4_protocol(extension.next_header());
            }
        }
        at += extension.bytes.len();
    }
    if authenticated {
        info.protocol = IpProtocol::AH.0;
    }
    Some(())
}

fn ipv4_protocol(protocol: IpProtocol) -> u8 {
    match protocol {
        IpProtocol::ICMPV6 => IpProtocol::ICMPV4.0,
        // ICMPv4 is not a protocol of IPv6
        IpProtocol::ICMPV4 => IpProtocol::NO_NEXT.0,
        other => other.0,
    }
}

/// Converts a protocol number to that of IPv6.
pub(super) fn ipv6_protocol(protocol: u8) -> u8 {
    if protocol == IpProtocol::ICMPV4.0 { IpProtocol::ICMPV6.0 } else { protocol }
}

/// Parses the transport header in `bytes`; with `quoted` the packet may be truncated.
#[inline]
pub(super) fn parse_l4(info: &PacketInfo, bytes: &[u8], quoted: bool) -> L4 {
    if info.offset != 0 {
        return L4::LaterFragment;
    }
    let short = if info.more_fragments { L4::TinyFragment } else { L4::Malformed };
    let min_len = match IpProtocol(info.protocol) {
        IpProtocol::TCP if !quoted => TCP_HEADER_LEN,
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV4 => UDP_HEADER_LEN,
        _ => return L4::Unsupported,
    };
    if bytes.len() < min_len {
        return short;
    }
    match IpProtocol(info.protocol) {
        IpProtocol::TCP if quoted => L4::Ports { src: u16_at(bytes, 0), dst: u16_at(bytes, 2), flags: 0 },
        IpProtocol::TCP => L4::Ports { src: u16_at(bytes, 0), dst: u16_at(bytes, 2), flags: bytes[13] },
        IpProtocol::UDP => {
            // the checksum covers the bytes of the UDP length
            let len = usize::from(u16_at(bytes, 4));
            if !quoted && !info.more_fragments && !(UDP_HEADER_LEN..=bytes.len()).contains(&len) {
                return L4::Malformed;
            }
            L4::Ports { src: u16_at(bytes, 0), dst: u16_at(bytes, 2), flags: 0 }
        }
        _ => {
            let id = u16_at(bytes, 4);
            match (info.is_ipv6, bytes[0]) {
                (true, 128) | (false, 8) => L4::Echo { id, reply: false },
                (true, 129) | (false, 0) => L4::Echo { id, reply: true },
                (true, 1..=4) | (false, 3 | 11 | 12) => L4::IcmpError,
                _ => L4::Unsupported,
            }
        }
    }
}

/// Verifies the checksum of an ICMP message.
pub(super) fn checksum_ok(info: &PacketInfo, bytes: &[u8]) -> bool {
    match info.is_ipv6 {
        true => pseudo(info).sum(bytes).is_valid(),
        false => checksum::verify(bytes),
    }
}

/// Returns the pseudo header of an IPv6 packet.
pub(super) fn pseudo(info: &PacketInfo) -> checksum::Pseudo {
    checksum::Pseudo::v6(info.src.into(), info.dst.into(), IpProtocol(ipv6_protocol(info.protocol)))
}

/// Parses the possibly truncated packet that an ICMP error quotes.
pub(super) fn parse_quoted(is_ipv6: bool, bytes: &[u8]) -> Option<PacketInfo> {
    let (len, fixed) = match is_ipv6 {
        true => (usize::from(u16_at(bytes, 4)) + 40, 40),
        false => (usize::from(u16_at(bytes, 2)), 20),
    };
    // the parser requires the length field to match, so it is set to the bytes that are present
    let mut all = bytes.to_vec();
    all.resize(bytes.len().max(fixed), 0);
    if len > all.len() {
        let (at, short) = if is_ipv6 { (4, all.len() - fixed) } else { (2, all.len()) };
        all[at..at + 2].copy_from_slice(&(short as u16).to_be_bytes());
    }
    let info = if is_ipv6 { parse_ipv6(0, &all) } else { parse_ipv4(0, &all) }?;
    (info.l4 <= bytes.len()).then_some(PacketInfo { end: len.max(info.end), ..info })
}
