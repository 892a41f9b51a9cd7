//! Parsing of any frame for `nat44`.

use crate::link::{self, LinkError};
use crate::nat::flow::Flow;
use tables::flow::Tuple4;
use wire::{EtherType, Ethernet, Icmpv4, IpProtocol, Ipv4, ipv4};

/// Shortest headers in bytes.
const TCP_HEADER_LEN: usize = 20;
const UDP_HEADER_LEN: usize = 8;
pub(super) const ICMP_HEADER_LEN: usize = 8;
/// Bytes of the quoted packet after its IP header that an ICMP error contains at least (RFC 792).
const MIN_QUOTED_LEN: usize = 8;

/// Fields that all fragments of a datagram share.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ipv4DatagramId {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) id: u16,
    pub(super) protocol: u8,
}

/// A parsed frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NatPacket {
    /// Not IPv4; passes untranslated.
    NotIpv4,
    /// Invalid IPv4.
    Malformed,
    /// A first fragment that does not contain the ports (RFC 1858).
    TinyFragment,
    /// A protocol without ports.
    UnsupportedProtocol,
    /// A packet of a session.
    Session(SessionPacket),
    /// A fragment other than the first.
    LaterFragment(Offsets, Ipv4DatagramId),
    /// An ICMP error, whose checksum was not verified, with the flow of the packet that it quotes.
    IcmpError(Offsets, OuterAddresses, Flow),
    /// An ICMP error that cannot be parsed.
    BadIcmpError,
}

/// Byte offsets of the headers in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offsets {
    pub(super) ip: usize,
    /// End of the IP header.
    pub(super) l4: usize,
    /// End of the IP packet.
    pub(super) end: usize,
    pub(super) protocol: u8,
}

/// A packet that belongs to a session or may begin one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SessionPacket {
    pub(super) offsets: Offsets,
    pub(super) flow: Flow,
    /// TCP flags or, for ICMP, [`QUERY`] or [`REPLY`].
    pub(super) flags: u8,
    /// The datagram, of the first of several fragments.
    pub(super) first: Option<Ipv4DatagramId>,
}

impl SessionPacket {
    /// Returns a plain packet with this key (see [`plain_ipv4_key`](crate::nat::flow::plain_ipv4_key)).
    pub(super) fn of_plain(key: &Tuple4, frame: &[u8]) -> Self {
        let (flow, ip) = (Flow::of_key(key), size_of::<Ethernet>());
        let (l4, end) = (ip + size_of::<Ipv4>(), ip + usize::from(u16_at(frame, ip + 2)));
        let is_tcp = flow.protocol == IpProtocol::TCP.0;
        let flags = frame.get(l4 + 13).filter(|_| is_tcp).copied().unwrap_or(0);
        SessionPacket { offsets: Offsets { ip, l4, end, protocol: flow.protocol }, flow, flags, first: None }
    }
}

/// Addresses of the outer IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OuterAddresses {
    pub(super) src: u32,
    pub(super) dst: u32,
}

/// Kinds of ICMP query messages, in place of TCP flags.
const QUERY: u8 = 0;
pub(super) const REPLY: u8 = 1;

/// Returns whether an ICMP type is a query or its reply (RFC 5508 §3): echo, timestamp, address mask.
fn is_query(kind: u8) -> Option<bool> {
    match kind {
        8 | 13 | 17 => Some(true),
        0 | 14 | 18 => Some(false),
        _ => None,
    }
}

fn is_error(kind: u8) -> bool {
    // destination unreachable, time exceeded, parameter problem
    matches!(kind, 3 | 11 | 12)
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// Parses any frame; returns its addresses if it is IPv4.
#[inline]
pub(super) fn parse(frame: &[u8]) -> (NatPacket, Option<OuterAddresses>) {
    let (ether_type, rest) = match link::parse(frame) {
        Ok(link) => link,
        Err(LinkError::NoEthernet) => return (NatPacket::NotIpv4, None),
        Err(LinkError::InvalidTags) => return (NatPacket::Malformed, None),
    };
    if ether_type != EtherType::IPV4 {
        return (NatPacket::NotIpv4, None);
    }
    let Ok(packet) = ipv4::Packet::new(rest) else { return (NatPacket::Malformed, None) };
    let addresses = OuterAddresses { src: packet.header().src_bits(), dst: packet.header().dst_bits() };
    (parse_l4(frame.len() - rest.len(), &packet), Some(addresses))
}

/// Classifies an IPv4 packet that begins at offset `ip`.
fn parse_l4(ip: usize, packet: &ipv4::Packet<'_>) -> NatPacket {
    let h = packet.header();
    let l4 = ip + packet.header_bytes().len();
    let offsets = Offsets { ip, l4, end: ip + packet.bytes().len(), protocol: h.protocol().0 };
    let datagram = Ipv4DatagramId { src: h.src_bits(), dst: h.dst_bits(), id: h.id(), protocol: h.protocol().0 };
    if h.is_later_fragment() {
        return NatPacket::LaterFragment(offsets, datagram);
    }
    let first = h.more_fragments().then_some(datagram);
    let body = packet.payload();
    let flow = Flow {
        src: h.src_bits(),
        dst: h.dst_bits(),
        src_port: u16_at(body, 0),
        dst_port: u16_at(body, 2),
        protocol: h.protocol().0,
    };
    let short = if first.is_some() { NatPacket::TinyFragment } else { NatPacket::Malformed };
    match h.protocol() {
        IpProtocol::TCP if body.len() < TCP_HEADER_LEN => short,
        IpProtocol::UDP if body.len() < UDP_HEADER_LEN => short,
        IpProtocol::ICMPV4 if body.len() < ICMP_HEADER_LEN => short,
        IpProtocol::TCP => NatPacket::Session(SessionPacket { offsets, flow, flags: body[13], first }),
        IpProtocol::UDP => NatPacket::Session(SessionPacket { offsets, flow, flags: 0, first }),
        IpProtocol::ICMPV4 => parse_icmp(offsets, flow, body, first),
        _ => NatPacket::UnsupportedProtocol,
    }
}

fn parse_icmp(offsets: Offsets, flow: Flow, body: &[u8], first: Option<Ipv4DatagramId>) -> NatPacket {
    if let Some(query) = is_query(body[0]) {
        let id = u16_at(body, 4);
        let (src_port, dst_port) = if query { (id, 0) } else { (0, id) };
        let (flow, flags) = (Flow { src_port, dst_port, ..flow }, if query { QUERY } else { REPLY });
        return NatPacket::Session(SessionPacket { offsets, flow, flags, first });
    }
    if !is_error(body[0]) {
        return NatPacket::UnsupportedProtocol;
    }
    if first.is_some() {
        return NatPacket::BadIcmpError;
    }
    match parse_quoted(&body[ICMP_HEADER_LEN..]) {
        Some(flow_quoted) => {
            NatPacket::IcmpError(offsets, OuterAddresses { src: flow.src, dst: flow.dst }, flow_quoted)
        }
        None => NatPacket::BadIcmpError,
    }
}

/// Parses the possibly truncated packet that an ICMP error quotes.
fn parse_quoted(bytes: &[u8]) -> Option<Flow> {
    let h = bytes.first_chunk::<20>()?;
    let len = usize::from(h[0] & 15) * 4;
    let later = u16_at(bytes, 6) & 0x1fff != 0;
    if h[0] >> 4 != 4 || len < size_of::<Ipv4>() || later {
        return None;
    }
    let l4 = bytes.get(len..len + MIN_QUOTED_LEN)?;
    let word = |at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    let (src_port, dst_port) = match IpProtocol(h[9]) {
        IpProtocol::TCP | IpProtocol::UDP => (u16_at(l4, 0), u16_at(l4, 2)),
        IpProtocol::ICMPV4 => match is_query(l4[0])? {
            true => (u16_at(l4, 4), 0),
            false => (0, u16_at(l4, 4)),
        },
        _ => return None,
    };
    Some(Flow { src: word(12), dst: word(16), src_port, dst_port, protocol: h[9] })
}

const _: () = assert!(size_of::<Icmpv4>() == ICMP_HEADER_LEN);
