//! What a frame is, whatever it looks like.

use super::flow::{Flow, Translation, Way};
use wire::flow::MAX_TAGS;
use wire::{EtherType, Ethernet, Icmpv4, IpProtocol, Ipv4, Vlan, checksum, ipv4};
use zerocopy::FromBytes;

/// Bytes of a TCP header up to its checksum, and that of it; of UDP's; of an ICMP header.
const TCP_LEAST: usize = 20;
const UDP_LEAST: usize = 8;
const ICMP_LEAST: usize = 8;
/// Bytes behind the IP header that an error quotes at the least (RFC 792).
const QUOTED: usize = 8;

/// What the datagram is a piece of, for all fragments alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Datagram {
    pub(super) src: u32,
    pub(super) dst: u32,
    pub(super) id: u16,
    pub(super) protocol: u8,
}

/// A frame, as the translation sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// Not IPv4: nothing to translate.
    Other,
    /// IPv4 that is not what it says.
    Malformed,
    /// A first fragment too short to have what is translated (RFC 1858).
    Tiny,
    /// A protocol that has no ports.
    Unknown,
    /// A packet of a session with TCP's flags, or whether ICMP is an [`ANSWER`], perhaps the first of several fragments.
    Packet(Place, Flow, u8, Option<Datagram>),
    /// A fragment but the first.
    Later(Place, Datagram),
    /// An error about a packet that went the other way: its addresses and ports, as quoted.
    Error(Place, Outer, Flow),
    /// An error that cannot be read, or has a wrong checksum.
    BadError,
}

/// Where headers begin in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) ip: usize,
    /// Behind the IP header.
    pub(super) upper: usize,
    /// Behind the packet.
    pub(super) end: usize,
    pub(super) protocol: u8,
}

/// Addresses of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outer {
    pub(super) src: u32,
    pub(super) dst: u32,
}

/// What stands in the place of TCP's flags for ICMP.
const QUERY: u8 = 0;
pub(super) const ANSWER: u8 = 1;

/// ICMP queries and what answers them (RFC 5508 §3): echo, timestamp, address mask.
fn is_query(kind: u8) -> Option<bool> {
    match kind {
        8 | 13 | 17 => Some(true),
        0 | 14 | 18 => Some(false),
        _ => None,
    }
}

fn is_error(kind: u8) -> bool {
    // unreachable, time exceeded, parameter problem
    matches!(kind, 3 | 11 | 12)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// The IPv4 packet of a frame; else what it is instead.
fn ip_of(frame: &[u8]) -> Result<(&[u8], ipv4::Packet<'_>), Seen> {
    let Ok((ethernet, mut rest)) = Ethernet::ref_from_prefix(frame) else { return Err(Seen::Other) };
    let mut ether_type = ethernet.ether_type();
    for _ in 0..MAX_TAGS {
        if !ether_type.is_vlan() {
            break;
        }
        let Ok((vlan, behind)) = Vlan::ref_from_prefix(rest) else { return Err(Seen::Malformed) };
        (ether_type, rest) = (vlan.ether_type(), behind);
    }
    if ether_type != EtherType::IPV4 {
        // what is behind still more tags is not known, so it is not known to need no translation either
        return Err(if ether_type.is_vlan() { Seen::Malformed } else { Seen::Other });
    }
    Ok((rest, ipv4::Packet::new(rest).map_err(|_| Seen::Malformed)?))
}

/// Looks at any frame; with source and destination where it is of IPv4.
#[inline]
pub(super) fn look(frame: &[u8]) -> (Seen, Option<Outer>) {
    match ip_of(frame) {
        Ok((rest, packet)) => {
            let ends = Outer { src: packet.header().src_bits(), dst: packet.header().dst_bits() };
            (look_at(frame.len() - rest.len(), &packet), Some(ends))
        }
        Err(seen) => (seen, None),
    }
}

/// Looks at a packet that begins at `ip`.
fn look_at(ip: usize, packet: &ipv4::Packet<'_>) -> Seen {
    let h = packet.header();
    let upper = ip + packet.header_bytes().len();
    let place = Place { ip, upper, end: ip + packet.bytes().len(), protocol: h.protocol().0 };
    let datagram = Datagram { src: h.src_bits(), dst: h.dst_bits(), id: h.id(), protocol: h.protocol().0 };
    if h.is_later_fragment() {
        return Seen::Later(place, datagram);
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
    let short = if first.is_some() { Seen::Tiny } else { Seen::Malformed };
    match h.protocol() {
        IpProtocol::TCP if body.len() < TCP_LEAST => short,
        IpProtocol::UDP if body.len() < UDP_LEAST => short,
        IpProtocol::ICMPV4 if body.len() < ICMP_LEAST => short,
        IpProtocol::TCP => Seen::Packet(place, flow, body[13], first),
        IpProtocol::UDP => Seen::Packet(place, flow, 0, first),
        IpProtocol::ICMPV4 => icmp(place, flow, body, first),
        _ => Seen::Unknown,
    }
}

fn icmp(place: Place, flow: Flow, body: &[u8], first: Option<Datagram>) -> Seen {
    if let Some(query) = is_query(body[0]) {
        let id = u16_at(body, 4);
        let (src_port, dst_port) = if query { (id, 0) } else { (0, id) };
        return Seen::Packet(place, Flow { src_port, dst_port, ..flow }, if query { QUERY } else { ANSWER }, first);
    }
    if !is_error(body[0]) {
        return Seen::Unknown;
    }
    // the checksum is made anew over what is changed, so it has to be right before (RFC 5508 REQ-3)
    if first.is_some() || !checksum::verify(body) {
        return Seen::BadError;
    }
    match quoted(&body[ICMP_LEAST..]) {
        Some(flow_quoted) => Seen::Error(place, Outer { src: flow.src, dst: flow.dst }, flow_quoted),
        None => Seen::BadError,
    }
}

/// Addresses and ports of a packet that an error quotes, which may be cut.
fn quoted(bytes: &[u8]) -> Option<Flow> {
    let h = bytes.first_chunk::<20>()?;
    let len = usize::from(h[0] & 15) * 4;
    let later = u16_at(bytes, 6) & 0x1fff != 0;
    if h[0] >> 4 != 4 || len < size_of::<Ipv4>() || later {
        return None;
    }
    let upper = bytes.get(len..len + QUOTED)?;
    let word = |at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    let (src_port, dst_port) = match IpProtocol(h[9]) {
        IpProtocol::TCP | IpProtocol::UDP => (u16_at(upper, 0), u16_at(upper, 2)),
        IpProtocol::ICMPV4 => match is_query(upper[0])? {
            true => (u16_at(upper, 4), 0),
            false => (0, u16_at(upper, 4)),
        },
        _ => return None,
    };
    Some(Flow { src: word(12), dst: word(16), src_port, dst_port, protocol: h[9] })
}

fn put(frame: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = frame.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Writes another source or destination address, and its checksum.
pub(super) fn address(frame: &mut [u8], place: &Place, t: &Translation, way: Way) {
    let sum = t.ip.apply(u16_at(frame, place.ip + 10).to_be_bytes());
    put(frame, place.ip + 10, &sum);
    put(frame, place.ip + if way == Way::Out { 12 } else { 16 }, &t.address);
}

/// Translates a packet with its ports.
pub(super) fn packet(frame: &mut [u8], place: &Place, t: &Translation, way: Way) {
    address(frame, place, t, way);
    let at = place.upper;
    let (port, sum) = match (IpProtocol(place.protocol), way) {
        (IpProtocol::ICMPV4, _) => (at + 4, at + 2),
        (IpProtocol::TCP, Way::Out) => (at, at + 16),
        (IpProtocol::TCP, Way::In) => (at + 2, at + 16),
        (_, Way::Out) => (at, at + 6),
        (_, Way::In) => (at + 2, at + 6),
    };
    put(frame, port, &t.port);
    let old = u16_at(frame, sum).to_be_bytes();
    let udp = place.protocol == IpProtocol::UDP.0;
    let new = if udp { t.upper.apply_udp(old) } else { t.upper.apply(old) };
    put(frame, sum, &new);
}

/// Translates an error and what it quotes (RFC 5508 §4): the quoted packet went the other way, so that its destination is
/// what the source of its answers becomes, and the other way round. `t` is the translation of these answers; `outer` what
/// the error's own address becomes.
pub(super) fn error(frame: &mut [u8], place: &Place, t: &Translation, way: Way, outer: u32) {
    let inner = place.upper + ICMP_LEAST;
    let len = usize::from(frame.get(inner).map_or(0, |b| b & 15)) * 4;
    let protocol = frame.get(inner + 9).copied().unwrap_or(0);
    let quoted = Place { ip: inner, upper: inner + len, end: place.end, protocol };
    // of what is quoted the other address
    let turned = if way == Way::Out { Way::In } else { Way::Out };
    let sums = match IpProtocol(protocol) {
        IpProtocol::TCP => quoted.upper + 18,
        _ => quoted.upper + 8,
    };
    // a quote may end before the checksum of TCP
    if sums <= place.end {
        packet(frame, &quoted, t, turned);
    } else {
        address(frame, &quoted, t, turned);
        put(frame, quoted.upper + if turned == Way::Out { 0 } else { 2 }, &t.port);
    }
    put(frame, place.upper + 2, &[0, 0]);
    if let Some(message) = frame.get(place.upper..place.end) {
        let sum = checksum::of(message);
        put(frame, place.upper + 2, &sum.to_be_bytes());
    }
    let at = place.ip + if way == Way::Out { 12 } else { 16 };
    let old = frame.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b));
    let sum = u16_at(frame, place.ip + 10);
    put(frame, place.ip + 10, &checksum::update32(sum, old, outer).to_be_bytes());
    put(frame, at, &outer.to_be_bytes());
}

const _: () = assert!(size_of::<Icmpv4>() == ICMP_LEAST);
