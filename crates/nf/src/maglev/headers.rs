//! Parsing of IP packets and of packets quoted by ICMP errors.

use std::net::IpAddr;
use wire::flow::MAX_TAGS;
use wire::{EtherType, Ethernet, Header, IpProtocol, Ipv4, Ipv6, Tcp, Udp, Vlan, ipv4, ipv6};

/// Position of a packet in a fragmented datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FragmentPosition {
    /// Not fragmented.
    Whole,
    First,
    Later,
}

/// An IP packet in a frame. Offsets are in bytes from the start of the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParsedPacket {
    /// Offset of the IP header.
    pub(super) ip: usize,
    /// Offset of the transport header.
    pub(super) transport: usize,
    /// Offset of the end of the packet.
    pub(super) end: usize,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: IpProtocol,
    pub(super) position: FragmentPosition,
    /// Identification of the datagram.
    pub(super) id: u32,
    /// Type of service, or traffic class.
    pub(super) tos: u8,
    /// True if routers must not fragment the packet.
    pub(super) dont_fragment: bool,
}

fn header<H: Header>(bytes: &[u8]) -> Option<&H> {
    Some(H::ref_from_prefix(bytes).ok()?.0)
}

/// Parses a frame. Returns `None` if it has no IP packet, or one with invalid lengths.
pub(super) fn parse(frame: &[u8]) -> Option<ParsedPacket> {
    let mut ether_type = header::<Ethernet>(frame)?.ether_type();
    let mut at = size_of::<Ethernet>();
    for _ in 0..MAX_TAGS {
        if !ether_type.is_vlan() {
            break;
        }
        ether_type = header::<Vlan>(frame.get(at..)?)?.ether_type();
        at += size_of::<Vlan>();
    }
    match ether_type {
        EtherType::IPV4 => v4(frame, at),
        EtherType::IPV6 => v6(frame, at),
        _ => None,
    }
}

fn position(offset: u16, more: bool) -> FragmentPosition {
    match (offset, more) {
        (0, false) => FragmentPosition::Whole,
        (0, true) => FragmentPosition::First,
        _ => FragmentPosition::Later,
    }
}

fn v4(frame: &[u8], at: usize) -> Option<ParsedPacket> {
    let ip = ipv4::Packet::new(frame.get(at..)?).ok()?;
    let h = ip.header();
    let transport = at + ip.header_bytes().len();
    Some(ParsedPacket {
        ip: at,
        transport,
        end: transport + ip.payload().len(),
        src: h.src().into(),
        dst: h.dst().into(),
        protocol: h.protocol(),
        position: position(h.fragment_offset(), h.more_fragments()),
        id: h.id().into(),
        tos: h.dscp() << 2 | h.ecn(),
        dont_fragment: h.dont_fragment(),
    })
}

fn v6(frame: &[u8], at: usize) -> Option<ParsedPacket> {
    let ip = ipv6::Packet::new(frame.get(at..)?).ok()?;
    let (h, mut fragment_position, mut id) = (ip.header(), None, 0);
    for extension in ip.extensions() {
        if let Some(fragment) = extension.fragment() {
            // a packet has at most one fragment header (RFC 8200 §4.1)
            if fragment_position.is_some() {
                return None;
            }
            (fragment_position, id) = (Some(position(fragment.offset, fragment.more)), fragment.id);
        }
    }
    let transport = at + ip.header_bytes().len();
    Some(ParsedPacket {
        ip: at,
        transport,
        end: transport + ip.payload().len(),
        src: h.src().into(),
        dst: h.dst().into(),
        protocol: ip.upper().0,
        position: fragment_position.unwrap_or(FragmentPosition::Whole),
        id,
        tos: h.traffic_class(),
        dont_fragment: true,
    })
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

impl ParsedPacket {
    /// Returns the ports of TCP or UDP if the header is complete, as its checksum may have to be updated.
    pub(super) fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        let header = match self.protocol {
            IpProtocol::TCP => size_of::<Tcp>(),
            IpProtocol::UDP => size_of::<Udp>(),
            _ => return None,
        };
        if self.position == FragmentPosition::Later || self.end - self.transport < header {
            return None;
        }
        Some((be16(frame, self.transport)?, be16(frame, self.transport + 2)?))
    }

    /// Returns the offset of the transport checksum that includes the addresses, if it is in this packet.
    pub(super) fn checksum(&self) -> Option<usize> {
        let at = match self.protocol {
            IpProtocol::TCP => 16,
            IpProtocol::UDP => 6,
            IpProtocol::ICMPV6 => 2,
            _ => return None,
        };
        (self.position != FragmentPosition::Later && self.transport + at + 2 <= self.end).then_some(self.transport + at)
    }

    /// Returns the type of an ICMP message with a complete header.
    pub(super) fn icmp_type(&self, frame: &[u8]) -> Option<u8> {
        let is_icmp = self.protocol == if self.src.is_ipv4() { IpProtocol::ICMPV4 } else { IpProtocol::ICMPV6 };
        if !is_icmp || self.position == FragmentPosition::Later || self.end - self.transport < 8 {
            return None;
        }
        frame.get(self.transport).copied()
    }

    /// Returns true for an echo request, false for an echo reply, and `None` for other packets.
    pub(super) fn is_echo_request(&self, frame: &[u8]) -> Option<bool> {
        match (self.src, self.icmp_type(frame)?) {
            (IpAddr::V4(_), 8) | (IpAddr::V6(_), 128) => Some(true),
            (IpAddr::V4(_), 0) | (IpAddr::V6(_), 129) => Some(false),
            _ => None,
        }
    }

    /// Returns the packet that an ICMP error quotes.
    pub(super) fn quoted(&self, frame: &[u8]) -> Option<QuotedPacket> {
        let icmp_type = self.icmp_type(frame)?;
        let at = self.transport + 8;
        let bytes = frame.get(at..self.end)?;
        match self.src {
            // destination unreachable, source quench, time exceeded, parameter problem
            IpAddr::V4(_) if self.position == FragmentPosition::Whole && [3, 4, 11, 12].contains(&icmp_type) => {
                quoted4(bytes, at)
            }
            IpAddr::V6(_) if self.position == FragmentPosition::Whole && (1..=127).contains(&icmp_type) => {
                quoted6(bytes, at)
            }
            _ => None,
        }
    }
}

/// A packet quoted by an ICMP error.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotedPacket {
    /// Offset of the IP header.
    pub(super) ip: usize,
    /// Offset of the transport header.
    pub(super) transport: usize,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: IpProtocol,
    /// Source and destination port; 0 for ICMP.
    pub(super) ports: (u16, u16),
}

fn quoted4(bytes: &[u8], at: usize) -> Option<QuotedPacket> {
    let h = header::<Ipv4>(bytes)?;
    let len = h.header_len();
    if h.version() != 4 || len < size_of::<Ipv4>() || h.is_later_fragment() {
        return None;
    }
    QuotedPacket {
        ip: at,
        transport: at + len,
        src: h.src().into(),
        dst: h.dst().into(),
        protocol: h.protocol(),
        ports: (0, 0),
    }
    .with_ports(bytes.get(len..)?)
}

fn quoted6(bytes: &[u8], at: usize) -> Option<QuotedPacket> {
    let h = header::<Ipv6>(bytes)?;
    let (mut len, mut protocol) = (size_of::<Ipv6>(), h.next_header());
    if h.version() != 6 {
        return None;
    }
    // other extension headers are not supported: servers do not send them
    if protocol == IpProtocol::FRAGMENT {
        let [next, _, high, low, ..] = *bytes.get(len..)?.first_chunk::<8>()?;
        if u16::from_be_bytes([high, low]) & 0xfff8 != 0 {
            return None;
        }
        (len, protocol) = (len + 8, IpProtocol(next));
    }
    QuotedPacket { ip: at, transport: at + len, src: h.src().into(), dst: h.dst().into(), protocol, ports: (0, 0) }
        .with_ports(bytes.get(len..)?)
}

impl QuotedPacket {
    /// Adds the ports from the eight bytes of the transport header that every error quotes (RFC 792).
    fn with_ports(mut self, transport: &[u8]) -> Option<Self> {
        let h = transport.first_chunk::<8>()?;
        match self.protocol {
            IpProtocol::TCP | IpProtocol::UDP => {
                self.ports = (u16::from_be_bytes([h[0], h[1]]), u16::from_be_bytes([h[2], h[3]]));
            }
            // echo replies
            IpProtocol::ICMPV4 if h[0] == 0 => {}
            IpProtocol::ICMPV6 if h[0] == 129 => {}
            _ => return None,
        }
        Some(self)
    }
}
