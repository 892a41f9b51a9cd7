//! What a frame is, of either IP version.

use wire::flow::MAX_TAGS;
use wire::{EtherType, Ethernet, IpProtocol, Vlan, checksum, ipv4, ipv6};
use zerocopy::FromBytes;

/// Bytes of a TCP header without options, of a UDP header, of an ICMP header.
const TCP_LEAST: usize = 20;
pub(super) const UDP_LEAST: usize = 8;
pub(super) const ICMP_LEAST: usize = 8;

/// An IP packet: what its headers say, in the same words for both versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) six: bool,
    /// Where it begins in its frame, where what is behind its headers begins, and where it ends.
    pub(super) ip: usize,
    pub(super) upper: usize,
    pub(super) end: usize,
    /// IPv4 addresses are the low 32 bits.
    pub(super) src: u128,
    pub(super) dst: u128,
    /// As IPv4 has it: ICMP of either version is 1. Of fragments but the first what the header says, of IPv6's 0.
    pub(super) protocol: u8,
    /// Traffic class, or type of service.
    pub(super) class: u8,
    /// Hop limit, or time to live.
    pub(super) hops: u8,
    /// IPv6 with a fragment header, or IPv4 that is a fragment.
    pub(super) piece: bool,
    pub(super) id: u32,
    /// In bytes.
    pub(super) offset: u16,
    pub(super) more: bool,
    /// IPv4 that is not to be cut.
    pub(super) whole: bool,
    /// Where an IPv6 routing header has segments left, or IPv4 options a source route.
    pub(super) routed: Option<u32>,
}

/// What makes the fragments of a datagram one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Datagram {
    src: u128,
    dst: u128,
    id: u32,
    protocol: u8,
}

impl Head {
    pub(super) fn datagram(&self) -> Datagram {
        // IPv6 has fragments of any protocol under one number (RFC 8200 §4.5)
        let protocol = if self.six { 0 } else { self.protocol };
        Datagram { src: self.src, dst: self.dst, id: self.id, protocol }
    }

    pub(super) fn len(&self) -> usize {
        self.end - self.upper
    }

    /// Whether it is one of several fragments.
    pub(super) fn is_part(&self) -> bool {
        self.piece && (self.more || self.offset != 0)
    }
}

/// What is behind the headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Body {
    /// TCP or UDP with its ports, and TCP's flags.
    Ports { src: u16, dst: u16, flags: u8 },
    /// An ICMP echo, or an answer to one, by its identifier.
    Echo { id: u16, answer: bool },
    /// An ICMP error.
    Error,
    /// The middle or the end of something.
    Later,
    /// A first fragment that is too short (RFC 1858).
    Tiny,
    /// A packet that is too short, or a message with a wrong length.
    Malformed,
    /// A protocol, or ICMP message, that is not translated.
    Unknown,
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    Ip(Head),
    /// An IP packet that is not what it says.
    Malformed,
    /// Neither version of IP.
    Other,
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// Where the packet begins in a frame, and of which kind it is.
fn link(frame: &[u8]) -> Result<(usize, EtherType), Seen> {
    let Ok((ethernet, mut rest)) = Ethernet::ref_from_prefix(frame) else { return Err(Seen::Other) };
    let mut ether_type = ethernet.ether_type();
    for _ in 0..MAX_TAGS {
        if !ether_type.is_vlan() {
            break;
        }
        let Ok((vlan, behind)) = Vlan::ref_from_prefix(rest) else { return Err(Seen::Malformed) };
        (ether_type, rest) = (vlan.ether_type(), behind);
    }
    if ether_type.is_vlan() {
        return Err(Seen::Malformed);
    }
    Ok((frame.len() - rest.len(), ether_type))
}

/// Looks at any frame.
#[inline]
pub(super) fn look(frame: &[u8]) -> Seen {
    let (ip, kind) = match link(frame) {
        Ok(found) => found,
        Err(seen) => return seen,
    };
    let head = match kind {
        // what has no checksum behind it would hide that this one is wrong (RFC 1812 §5.2.2)
        EtherType::IPV4 => four(ip, &frame[ip..]).filter(|head| checksum::verify(&frame[ip..head.upper])),
        EtherType::IPV6 => six(ip, &frame[ip..]),
        _ => return Seen::Other,
    };
    // a piece that goes beyond what a packet can be would come out as another one
    let fits = |head: &Head| usize::from(head.offset) + (head.end - head.upper) <= usize::from(u16::MAX);
    head.filter(fits).map_or(Seen::Malformed, Seen::Ip)
}

fn four(ip: usize, bytes: &[u8]) -> Option<Head> {
    let packet = ipv4::Packet::new(bytes).ok()?;
    let h = packet.header();
    let options = &packet.header_bytes()[size_of::<wire::Ipv4>()..];
    Some(Head {
        six: false,
        ip,
        upper: ip + packet.header_bytes().len(),
        end: ip + packet.bytes().len(),
        src: h.src_bits().into(),
        dst: h.dst_bits().into(),
        protocol: h.protocol().0,
        class: bytes[1],
        hops: h.ttl(),
        piece: h.more_fragments() || h.is_later_fragment(),
        id: h.id().into(),
        offset: h.fragment_offset(),
        more: h.more_fragments(),
        whole: h.dont_fragment(),
        routed: if options.is_empty() { None } else { source_route(options) },
    })
}

/// Where a source route that has not ended stands in the options (RFC 791 §3.1).
#[cold]
fn source_route(mut options: &[u8]) -> Option<u32> {
    let all = options.len();
    while let [kind, rest @ ..] = options {
        let len = match (kind, rest.first()) {
            (0, _) => return None,
            (1, _) => 1,
            (_, Some(len)) if *len >= 2 => usize::from(*len),
            _ => return None,
        };
        // the pointer is behind the length, and beyond it once the route has ended
        if matches!(kind, 131 | 137) && options.get(2).is_some_and(|pointer| usize::from(*pointer) <= len) {
            return Some((size_of::<wire::Ipv4>() + all - options.len()) as u32);
        }
        options = options.get(len..)?;
    }
    None
}

fn six(ip: usize, bytes: &[u8]) -> Option<Head> {
    let packet = ipv6::Packet::new(bytes).ok()?;
    let h = packet.header();
    let mut head = Head {
        six: true,
        ip,
        upper: ip + packet.header_bytes().len(),
        end: ip + packet.bytes().len(),
        src: u128::from_be_bytes(h.src_octets()),
        dst: u128::from_be_bytes(h.dst_octets()),
        protocol: four_of(h.next_header()),
        class: h.traffic_class(),
        hops: h.hop_limit(),
        piece: false,
        id: 0,
        offset: 0,
        more: false,
        whole: false,
        routed: None,
    };
    if h.next_header().is_extension() {
        extensions(&packet, &mut head)?;
    }
    Some(head)
}

/// What the extension headers say: hop-by-hop and destination options nothing.
#[cold]
fn extensions(packet: &ipv6::Packet<'_>, head: &mut Head) -> Option<()> {
    let mut at = size_of::<wire::Ipv6>();
    let mut sealed = false;
    for extension in packet.extensions() {
        match extension.kind {
            // behind it what is cut would have to be put together first
            _ if head.piece => return None,
            IpProtocol::ROUTING if extension.bytes.get(3).is_some_and(|left| *left != 0) => {
                head.routed = Some(at as u32 + 3);
                head.protocol = four_of(extension.next_header());
            }
            IpProtocol::FRAGMENT => {
                let piece = extension.fragment()?;
                (head.piece, head.id, head.offset, head.more) = (true, piece.id, piece.offset, piece.more);
                head.protocol = four_of(extension.next_header());
            }
            kind => {
                // what is authenticated cannot be changed (RFC 7915 §5.1)
                sealed |= kind == IpProtocol::AH;
                head.protocol = four_of(extension.next_header());
            }
        }
        at += extension.bytes.len();
    }
    if sealed {
        head.protocol = IpProtocol::AH.0;
    }
    Some(())
}

fn four_of(protocol: IpProtocol) -> u8 {
    match protocol {
        IpProtocol::ICMPV6 => IpProtocol::ICMPV4.0,
        // IPv4's ICMP is nothing in IPv6
        IpProtocol::ICMPV4 => IpProtocol::NO_NEXT.0,
        other => other.0,
    }
}

/// What a protocol is called over IPv6.
pub(super) fn six_of(protocol: u8) -> u8 {
    if protocol == IpProtocol::ICMPV4.0 { IpProtocol::ICMPV6.0 } else { protocol }
}

/// What is behind the headers, of which `bytes` are all there are: also of a packet that is quoted and cut.
#[inline]
pub(super) fn body(head: &Head, bytes: &[u8], quoted: bool) -> Body {
    if head.offset != 0 {
        return Body::Later;
    }
    let short = if head.more { Body::Tiny } else { Body::Malformed };
    let least = match IpProtocol(head.protocol) {
        IpProtocol::TCP if !quoted => TCP_LEAST,
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV4 => UDP_LEAST,
        _ => return Body::Unknown,
    };
    if bytes.len() < least {
        return short;
    }
    match IpProtocol(head.protocol) {
        IpProtocol::TCP if quoted => Body::Ports { src: u16_at(bytes, 0), dst: u16_at(bytes, 2), flags: 0 },
        IpProtocol::TCP => Body::Ports { src: u16_at(bytes, 0), dst: u16_at(bytes, 2), flags: bytes[13] },
        IpProtocol::UDP => {
            // the checksum is over what the length says
            let len = usize::from(u16_at(bytes, 4));
            if !quoted && !head.more && !(UDP_LEAST..=bytes.len()).contains(&len) {
                return Body::Malformed;
            }
            Body::Ports { src: u16_at(bytes, 0), dst: u16_at(bytes, 2), flags: 0 }
        }
        _ => {
            let id = u16_at(bytes, 4);
            match (head.six, bytes[0]) {
                (true, 128) | (false, 8) => Body::Echo { id, answer: false },
                (true, 129) | (false, 0) => Body::Echo { id, answer: true },
                (true, 1..=4) | (false, 3 | 11 | 12) => Body::Error,
                _ => Body::Unknown,
            }
        }
    }
}

/// Whether an ICMP message has a right checksum.
pub(super) fn sums_up(head: &Head, bytes: &[u8]) -> bool {
    match head.six {
        true => pseudo(head).sum(bytes).is_valid(),
        false => checksum::verify(bytes),
    }
}

/// The pseudo header of a packet of IPv6.
pub(super) fn pseudo(head: &Head) -> checksum::Pseudo {
    checksum::Pseudo::v6(head.src.into(), head.dst.into(), IpProtocol(six_of(head.protocol)))
}

/// The packet that an error quotes, which begins with `bytes` and may be cut: it may end behind them.
pub(super) fn quoted(six: bool, bytes: &[u8]) -> Option<Head> {
    let (len, fixed) = match six {
        true => (usize::from(u16_at(bytes, 4)) + 40, 40),
        false => (usize::from(u16_at(bytes, 2)), 20),
    };
    // what checks it asks for all that the length says: that of what is there
    let mut all = bytes.to_vec();
    all.resize(bytes.len().max(fixed), 0);
    if len > all.len() {
        let (at, short) = if six { (4, all.len() - fixed) } else { (2, all.len()) };
        all[at..at + 2].copy_from_slice(&(short as u16).to_be_bytes());
    }
    let head = if six { self::six(0, &all) } else { four(0, &all) }?;
    (head.upper <= bytes.len()).then_some(Head { end: len.max(head.end), ..head })
}
