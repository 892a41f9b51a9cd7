//! Parsing of packets for connection tracking.

use super::connection::{Segment, State};
use crate::link;
use core::net::IpAddr;
use wire::checksum::Pseudo;
use wire::flow::FiveTuple;
use wire::tcp::{Segment as TcpSegment, TcpOption};
use wire::{EtherType, Icmpv6, IpProtocol, Ipv4, Ipv6, ipv4, ipv6};
use zerocopy::FromBytes;

/// Identification and offset of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FragmentInfo {
    pub(crate) id: u32,
    /// Offset of its first byte in the datagram.
    pub(crate) offset: u32,
}

/// A packet with valid headers.
pub(crate) struct TrackedPacket<'a> {
    /// Addresses, protocol and ports; for an ICMP query the identifier and type in place of ports.
    pub(crate) tuple: FiveTuple,
    pub(crate) fragment: Option<FragmentInfo>,
    pub(crate) content: Content<'a>,
    /// Bytes after the IP headers.
    pub(crate) len: u32,
}

pub(crate) enum Content<'a> {
    Tcp {
        segment: Segment,
        header: u32,
    },
    /// A packet without sequence numbers: the state of a new connection, and true if it may be the first packet (for an
    /// ICMP query, if it is the request).
    Flow(State, bool),
    /// An ICMP error and the packet that it quotes.
    IcmpError(&'a [u8]),
    /// Any other ICMP message; only rules apply to it.
    OtherIcmp,
    /// A fragment other than the first.
    LaterFragment,
}

/// Reason for which a packet is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketError {
    Header,
    Checksum,
}

/// Returns the type of the request of an ICMP query message, and true if the message is the request.
fn query4(kind: u8) -> Option<(u8, bool)> {
    match kind {
        8 | 13 | 15 | 17 => Some((kind, true)),
        0 => Some((8, false)),
        14 | 16 | 18 => Some((kind - 1, false)),
        _ => None,
    }
}

fn query6(kind: u8) -> Option<(u8, bool)> {
    match kind {
        Icmpv6::ECHO_REQUEST => Some((kind, true)),
        Icmpv6::ECHO_REPLY => Some((Icmpv6::ECHO_REQUEST, false)),
        _ => None,
    }
}

/// Parses a frame for which [`key::parse`](crate::firewall::key::parse) found an IP packet.
pub(crate) fn parse(frame: &[u8]) -> Result<TrackedPacket<'_>, PacketError> {
    let (ether_type, packet) = link::parse(frame).map_err(|_| PacketError::Header)?;
    if ether_type == EtherType::IPV4 { parse_ipv4(packet) } else { parse_ipv6(packet) }
}

fn parse_ipv4(bytes: &[u8]) -> Result<TrackedPacket<'_>, PacketError> {
    let ip = ipv4::Packet::new(bytes).map_err(|_| PacketError::Header)?;
    let h = ip.header();
    let fragment = h.is_fragment().then(|| FragmentInfo { id: h.id().into(), offset: h.fragment_offset().into() });
    parse_l4((h.src().into(), h.dst().into()), h.protocol(), fragment, ip.payload(), || ip.pseudo())
}

fn parse_ipv6(bytes: &[u8]) -> Result<TrackedPacket<'_>, PacketError> {
    let ip = ipv6::Packet::new(bytes).map_err(|_| PacketError::Header)?;
    let h = ip.header();
    let header = ip.extensions().find_map(|extension| extension.fragment());
    // an atomic fragment is a whole packet (RFC 6946)
    let header = header.filter(|f| f.more || f.offset != 0);
    let fragment = header.map(|f| FragmentInfo { id: f.id, offset: f.offset.into() });
    parse_l4((h.src().into(), h.dst().into()), ip.upper().0, fragment, ip.payload(), || ip.pseudo())
}

fn parse_l4<'a>(
    (src, dst): (IpAddr, IpAddr),
    protocol: IpProtocol,
    fragment: Option<FragmentInfo>,
    payload: &'a [u8],
    pseudo: impl FnOnce() -> Pseudo,
) -> Result<TrackedPacket<'a>, PacketError> {
    let tuple = FiveTuple { src, dst, src_port: 0, dst_port: 0, protocol };
    let packet = |tuple, content| Ok(TrackedPacket { tuple, fragment, content, len: payload.len() as u32 });
    if fragment.is_some_and(|p| p.offset != 0) {
        return packet(tuple, Content::LaterFragment);
    }
    match (protocol, payload) {
        (IpProtocol::TCP, _) => {
            let segment = TcpSegment::new(payload).map_err(|_| PacketError::Header)?;
            if fragment.is_none() && !segment.checksum_ok(pseudo()) {
                return Err(PacketError::Checksum);
            }
            let h = segment.header();
            let header = h.header_len() as u32;
            let scale = segment.options().find_map(|option| match option {
                Ok(TcpOption::WindowScale(shift)) => Some(shift),
                _ => None,
            });
            let tuple = FiveTuple { src_port: h.src_port(), dst_port: h.dst_port(), ..tuple };
            let segment = Segment {
                seq: h.seq(),
                ack: h.ack(),
                flags: h.flags().0,
                window: h.window(),
                len: payload.len() as u32 - header,
                scale,
            };
            packet(tuple, Content::Tcp { segment, header })
        }
        (IpProtocol::ICMPV4, [kind, _, _, _, a, b, _, _, inner @ ..]) if src.is_ipv4() => {
            let content = if matches!(kind, 3 | 11 | 12) { Some(Content::IcmpError(inner)) } else { None };
            query(tuple, query4(*kind), [*a, *b], content, packet)
        }
        (IpProtocol::ICMPV6, [kind, _, _, _, a, b, _, _, inner @ ..]) if src.is_ipv6() => {
            let content = if *kind < 128 { Some(Content::IcmpError(inner)) } else { None };
            query(tuple, query6(*kind), [*a, *b], content, packet)
        }
        (IpProtocol::ICMPV4 | IpProtocol::ICMPV6, _) if payload.len() < 8 => Err(PacketError::Header),
        // UDP, DCCP, SCTP, UDP-Lite, as in the classifier keys
        (IpProtocol(17 | 33 | 132 | 136), [a, b, c, d, _, _, _, _, ..]) => {
            let (src_port, dst_port) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            packet(FiveTuple { src_port, dst_port, ..tuple }, Content::Flow(State::OneWay, true))
        }
        (IpProtocol(17 | 33 | 132 | 136), _) => Err(PacketError::Header),
        _ => packet(tuple, Content::Flow(State::Generic, true)),
    }
}

/// Returns the tuple of an ICMP query, in which request and reply differ only by direction: the requester has the
/// identifier as port, the other side the type.
fn query_tuple(tuple: FiveTuple, (kind, request): (u8, bool), id: u16) -> FiveTuple {
    let there = FiveTuple { src_port: id, dst_port: kind.into(), ..tuple };
    if request { there } else { FiveTuple { src_port: kind.into(), dst_port: id, ..tuple } }
}

fn query<'a>(
    tuple: FiveTuple,
    query: Option<(u8, bool)>,
    id: [u8; 2],
    error: Option<Content<'a>>,
    packet: impl Fn(FiveTuple, Content<'a>) -> Result<TrackedPacket<'a>, PacketError>,
) -> Result<TrackedPacket<'a>, PacketError> {
    match (query, error) {
        (Some(content), _) => {
            packet(query_tuple(tuple, content, u16::from_be_bytes(id)), Content::Flow(State::Query, content.1))
        }
        (None, Some(error)) => packet(tuple, error),
        (None, None) => packet(tuple, Content::OtherIcmp),
    }
}

/// The packet that an ICMP error quotes.
pub(crate) struct QuotedPacket {
    pub(crate) tuple: FiveTuple,
    /// Sequence number of a TCP segment.
    pub(crate) seq: Option<u32>,
}

/// Parses the packet that an ICMP error quotes, which may be truncated after eight bytes of its transport header (RFC
/// 792, RFC 4443 §2.4).
pub(crate) fn parse_quoted(quoted: &[u8], is_ipv4: bool) -> Option<QuotedPacket> {
    let (src, dst, protocol, upper): (IpAddr, IpAddr, _, _) = if is_ipv4 {
        let (h, _) = Ipv4::ref_from_prefix(quoted).ok()?;
        if h.version() != 4 || h.header_len() < size_of::<Ipv4>() || h.is_later_fragment() {
            return None;
        }
        (h.src().into(), h.dst().into(), h.protocol(), quoted.get(h.header_len()..)?)
    } else {
        let (h, rest) = Ipv6::ref_from_prefix(quoted).ok()?;
        if h.version() != 6 {
            return None;
        }
        let (protocol, rest) = skip_extensions(h.next_header(), rest)?;
        (h.src().into(), h.dst().into(), protocol, rest)
    };
    let tuple = FiveTuple { src, dst, src_port: 0, dst_port: 0, protocol };
    let ports = |[a, b, c, d]: [u8; 4]| FiveTuple {
        src_port: u16::from_be_bytes([a, b]),
        dst_port: u16::from_be_bytes([c, d]),
        ..tuple
    };
    let eight = upper.first_chunk::<8>();
    Some(match (protocol.0, eight) {
        (6, Some(&[a, b, c, d, s, t, u, v])) => {
            QuotedPacket { tuple: ports([a, b, c, d]), seq: Some(u32::from_be_bytes([s, t, u, v])) }
        }
        (17 | 33 | 132 | 136, Some(&[a, b, c, d, ..])) => QuotedPacket { tuple: ports([a, b, c, d]), seq: None },
        (1 | 58, Some(&[kind, _, _, _, a, b, ..])) => {
            let content = if protocol == IpProtocol::ICMPV4 { query4(kind) } else { query6(kind) };
            QuotedPacket { tuple: query_tuple(tuple, content?, u16::from_be_bytes([a, b])), seq: None }
        }
        (6 | 17 | 33 | 132 | 136 | 1 | 58, None) => return None,
        _ => QuotedPacket { tuple, seq: None },
    })
}

/// Skips a limited number of extension headers and returns the protocol and the bytes that follow.
fn skip_extensions(mut protocol: IpProtocol, mut rest: &[u8]) -> Option<(IpProtocol, &[u8])> {
    for _ in 0..8 {
        if !protocol.is_extension() {
            return Some((protocol, rest));
        }
        let &[next, len, high, low, ..] = rest else { return None };
        let len = match protocol {
            IpProtocol::FRAGMENT if u16::from_be_bytes([high, low]) & 0xfff8 != 0 => return None,
            IpProtocol::FRAGMENT => 8,
            IpProtocol::AH => 4 * (usize::from(len) + 2),
            _ => 8 * (usize::from(len) + 1),
        };
        (protocol, rest) = (IpProtocol(next), rest.get(len..)?);
    }
    None
}
