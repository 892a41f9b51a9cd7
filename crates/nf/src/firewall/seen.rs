//! What tracking sees of a packet.

use super::connection::{Segment, State};
use core::net::IpAddr;
use wire::checksum::Pseudo;
use wire::flow::{FiveTuple, MAX_TAGS};
use wire::tcp::{Segment as TcpSegment, TcpOption};
use wire::{EtherType, Ethernet, Icmpv6, IpProtocol, Ipv4, Ipv6, Vlan, ipv4, ipv6};
use zerocopy::FromBytes;

/// Which part of a datagram a fragment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) id: u32,
    /// Of its first byte, in the datagram.
    pub(super) offset: u32,
}

/// A packet whose headers are right.
pub(super) struct Seen<'a> {
    /// Addresses, protocol, and what stands for ports: of an ICMP request the identifier and the type.
    pub(super) tuple: FiveTuple,
    pub(super) piece: Option<Piece>,
    pub(super) what: What<'a>,
    /// Bytes behind the IP headers.
    pub(super) len: u32,
}

pub(super) enum What<'a> {
    Tcp {
        segment: Segment,
        header: u32,
    },
    /// One of no sequence numbers, and whether it may be the first: of a query, whether it is the request.
    Flow(State, bool),
    /// An error message, and the packet that it is about, as far as it is there.
    Error(&'a [u8]),
    /// ICMP that is neither: rules alone decide.
    Message,
    /// Without a header but that of IP.
    Later,
}

/// Why it is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    Header,
    Checksum,
}

/// The type of the request that an ICMP message is or answers, and whether it is the request.
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

/// Looks at a frame that [`super::key::look`] has found to be IP.
pub(super) fn see(frame: &[u8]) -> Result<Seen<'_>, Wrong> {
    let (ethernet, mut rest) = Ethernet::ref_from_prefix(frame).map_err(|_| Wrong::Header)?;
    let mut ether_type = ethernet.ether_type();
    for _ in 0..MAX_TAGS {
        if !ether_type.is_vlan() {
            break;
        }
        let (vlan, behind) = Vlan::ref_from_prefix(rest).map_err(|_| Wrong::Header)?;
        (ether_type, rest) = (vlan.ether_type(), behind);
    }
    if ether_type == EtherType::IPV4 { v4(rest) } else { v6(rest) }
}

fn v4(bytes: &[u8]) -> Result<Seen<'_>, Wrong> {
    let ip = ipv4::Packet::new(bytes).map_err(|_| Wrong::Header)?;
    let h = ip.header();
    let piece = h.is_fragment().then(|| Piece { id: h.id().into(), offset: h.fragment_offset().into() });
    upper((h.src().into(), h.dst().into()), h.protocol(), piece, ip.payload(), || ip.pseudo())
}

fn v6(bytes: &[u8]) -> Result<Seen<'_>, Wrong> {
    let ip = ipv6::Packet::new(bytes).map_err(|_| Wrong::Header)?;
    let h = ip.header();
    let fragment = ip.extensions().find_map(|extension| extension.fragment());
    // an atomic fragment is a whole packet (RFC 6946)
    let fragment = fragment.filter(|f| f.more || f.offset != 0);
    let piece = fragment.map(|f| Piece { id: f.id, offset: f.offset.into() });
    upper((h.src().into(), h.dst().into()), ip.upper().0, piece, ip.payload(), || ip.pseudo())
}

fn upper<'a>(
    (src, dst): (IpAddr, IpAddr),
    protocol: IpProtocol,
    piece: Option<Piece>,
    payload: &'a [u8],
    pseudo: impl FnOnce() -> Pseudo,
) -> Result<Seen<'a>, Wrong> {
    let tuple = FiveTuple { src, dst, src_port: 0, dst_port: 0, protocol };
    let seen = |tuple, what| Ok(Seen { tuple, piece, what, len: payload.len() as u32 });
    if piece.is_some_and(|p| p.offset != 0) {
        return seen(tuple, What::Later);
    }
    match (protocol, payload) {
        (IpProtocol::TCP, _) => {
            let segment = TcpSegment::new(payload).map_err(|_| Wrong::Header)?;
            if piece.is_none() && !segment.checksum_ok(pseudo()) {
                return Err(Wrong::Checksum);
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
            seen(tuple, What::Tcp { segment, header })
        }
        (IpProtocol::ICMPV4, [kind, _, _, _, a, b, _, _, inner @ ..]) if src.is_ipv4() => {
            let what = if matches!(kind, 3 | 11 | 12) { Some(What::Error(inner)) } else { None };
            query(tuple, query4(*kind), [*a, *b], what, seen)
        }
        (IpProtocol::ICMPV6, [kind, _, _, _, a, b, _, _, inner @ ..]) if src.is_ipv6() => {
            let what = if *kind < 128 { Some(What::Error(inner)) } else { None };
            query(tuple, query6(*kind), [*a, *b], what, seen)
        }
        (IpProtocol::ICMPV4 | IpProtocol::ICMPV6, _) if payload.len() < 8 => Err(Wrong::Header),
        // UDP, DCCP, SCTP, UDP-Lite: as the rules know them
        (IpProtocol(17 | 33 | 132 | 136), [a, b, c, d, _, _, _, _, ..]) => {
            let (src_port, dst_port) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            seen(FiveTuple { src_port, dst_port, ..tuple }, What::Flow(State::OneWay, true))
        }
        (IpProtocol(17 | 33 | 132 | 136), _) => Err(Wrong::Header),
        _ => seen(tuple, What::Flow(State::Plain, true)),
    }
}

/// A query's tuple, the same for request and answer but for direction: the side that asks has the identifier for a port, the
/// other one the type.
fn asked(tuple: FiveTuple, (kind, request): (u8, bool), id: u16) -> FiveTuple {
    let there = FiveTuple { src_port: id, dst_port: kind.into(), ..tuple };
    if request { there } else { FiveTuple { src_port: kind.into(), dst_port: id, ..tuple } }
}

fn query<'a>(
    tuple: FiveTuple,
    query: Option<(u8, bool)>,
    id: [u8; 2],
    error: Option<What<'a>>,
    seen: impl Fn(FiveTuple, What<'a>) -> Result<Seen<'a>, Wrong>,
) -> Result<Seen<'a>, Wrong> {
    match (query, error) {
        (Some(what), _) => seen(asked(tuple, what, u16::from_be_bytes(id)), What::Flow(State::Query, what.1)),
        (None, Some(error)) => seen(tuple, error),
        (None, None) => seen(tuple, What::Message),
    }
}

/// What an error message is about.
pub(super) struct About {
    /// The packet's.
    pub(super) tuple: FiveTuple,
    /// Of a TCP segment.
    pub(super) seq: Option<u32>,
}

/// The packet that an error message of this IP version quotes, which may end behind eight bytes of its upper header (RFC 792,
/// RFC 4443 §2.4).
pub(super) fn about(quoted: &[u8], version4: bool) -> Option<About> {
    let (src, dst, protocol, upper): (IpAddr, IpAddr, _, _) = if version4 {
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
        let (protocol, rest) = behind(h.next_header(), rest)?;
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
            About { tuple: ports([a, b, c, d]), seq: Some(u32::from_be_bytes([s, t, u, v])) }
        }
        (17 | 33 | 132 | 136, Some(&[a, b, c, d, ..])) => About { tuple: ports([a, b, c, d]), seq: None },
        (1 | 58, Some(&[kind, _, _, _, a, b, ..])) => {
            let what = if protocol == IpProtocol::ICMPV4 { query4(kind) } else { query6(kind) };
            About { tuple: asked(tuple, what?, u16::from_be_bytes([a, b])), seq: None }
        }
        (6 | 17 | 33 | 132 | 136 | 1 | 58, None) => return None,
        _ => About { tuple, seq: None },
    })
}

/// The protocol behind extension headers, of which there may be no more than a few, and what follows.
fn behind(mut protocol: IpProtocol, mut rest: &[u8]) -> Option<(IpProtocol, &[u8])> {
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
