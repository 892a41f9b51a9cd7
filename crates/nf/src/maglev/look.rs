//! What a frame is, in general.

use std::net::IpAddr;
use wire::flow::MAX_TAGS;
use wire::{EtherType, Ethernet, Header, IpProtocol, Ipv4, Ipv6, Tcp, Udp, Vlan, ipv4, ipv6};

/// Which part of a datagram it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Whole,
    First,
    Later,
}

/// An IP packet in a frame; places are bytes from the frame's beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Its first byte.
    pub(super) at: usize,
    /// The first byte behind its headers.
    pub(super) upper: usize,
    /// The first byte behind it.
    pub(super) end: usize,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: IpProtocol,
    pub(super) part: Part,
    /// The datagram's identification.
    pub(super) id: u32,
    /// Type of service, or traffic class.
    pub(super) tos: u8,
    /// Whether routers may not cut it.
    pub(super) whole_only: bool,
}

fn fixed<H: Header>(bytes: &[u8]) -> Option<&H> {
    Some(H::ref_from_prefix(bytes).ok()?.0)
}

/// `None` if it is no IP packet, or one that lies about its lengths.
pub(super) fn look(frame: &[u8]) -> Option<Look> {
    let mut ether_type = fixed::<Ethernet>(frame)?.ether_type();
    let mut at = size_of::<Ethernet>();
    for _ in 0..MAX_TAGS {
        if !ether_type.is_vlan() {
            break;
        }
        ether_type = fixed::<Vlan>(frame.get(at..)?)?.ether_type();
        at += size_of::<Vlan>();
    }
    match ether_type {
        EtherType::IPV4 => v4(frame, at),
        EtherType::IPV6 => v6(frame, at),
        _ => None,
    }
}

fn part(offset: u16, more: bool) -> Part {
    match (offset, more) {
        (0, false) => Part::Whole,
        (0, true) => Part::First,
        _ => Part::Later,
    }
}

fn v4(frame: &[u8], at: usize) -> Option<Look> {
    let ip = ipv4::Packet::new(frame.get(at..)?).ok()?;
    let h = ip.header();
    let upper = at + ip.header_bytes().len();
    Some(Look {
        at,
        upper,
        end: upper + ip.payload().len(),
        src: h.src().into(),
        dst: h.dst().into(),
        protocol: h.protocol(),
        part: part(h.fragment_offset(), h.more_fragments()),
        id: h.id().into(),
        tos: h.dscp() << 2 | h.ecn(),
        whole_only: h.dont_fragment(),
    })
}

fn v6(frame: &[u8], at: usize) -> Option<Look> {
    let ip = ipv6::Packet::new(frame.get(at..)?).ok()?;
    let (h, mut kind, mut id, mut seen) = (ip.header(), Part::Whole, 0, false);
    for extension in ip.extensions() {
        if let Some(fragment) = extension.fragment() {
            // no sender writes two (RFC 8200 §4.1)
            if std::mem::replace(&mut seen, true) {
                return None;
            }
            (kind, id) = (part(fragment.offset, fragment.more), fragment.id);
        }
    }
    let upper = at + ip.header_bytes().len();
    Some(Look {
        at,
        upper,
        end: upper + ip.payload().len(),
        src: h.src().into(),
        dst: h.dst().into(),
        protocol: ip.upper().0,
        part: kind,
        id,
        tos: h.traffic_class(),
        whole_only: true,
    })
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

impl Look {
    /// Source and destination port of TCP or UDP, whose header has to be there whole: its checksum may have to change.
    pub(super) fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        let header = match self.protocol {
            IpProtocol::TCP => size_of::<Tcp>(),
            IpProtocol::UDP => size_of::<Udp>(),
            _ => return None,
        };
        if self.part == Part::Later || self.end - self.upper < header {
            return None;
        }
        Some((be16(frame, self.upper)?, be16(frame, self.upper + 2)?))
    }

    /// Where the checksum stands that sums the addresses too, if it is here.
    pub(super) fn checksum(&self) -> Option<usize> {
        let at = match self.protocol {
            IpProtocol::TCP => 16,
            IpProtocol::UDP => 6,
            IpProtocol::ICMPV6 => 2,
            _ => return None,
        };
        (self.part != Part::Later && self.upper + at + 2 <= self.end).then_some(self.upper + at)
    }

    /// Type of an ICMP message that is here whole.
    pub(super) fn icmp(&self, frame: &[u8]) -> Option<u8> {
        let is = self.protocol == if self.src.is_ipv4() { IpProtocol::ICMPV4 } else { IpProtocol::ICMPV6 };
        if !is || self.part == Part::Later || self.end - self.upper < 8 {
            return None;
        }
        frame.get(self.upper).copied()
    }

    /// Whether it is an echo, and then whether it asks.
    pub(super) fn echo(&self, frame: &[u8]) -> Option<bool> {
        match (self.src, self.icmp(frame)?) {
            (IpAddr::V4(_), 8) | (IpAddr::V6(_), 128) => Some(true),
            (IpAddr::V4(_), 0) | (IpAddr::V6(_), 129) => Some(false),
            _ => None,
        }
    }

    /// The packet that an ICMP error is about: as much of it as is quoted.
    pub(super) fn quoted(&self, frame: &[u8]) -> Option<Quoted> {
        let kind = self.icmp(frame)?;
        let at = self.upper + 8;
        let bytes = frame.get(at..self.end)?;
        match self.src {
            // unreachable, quench, time exceeded, parameter problem
            IpAddr::V4(_) if self.part == Part::Whole && [3, 4, 11, 12].contains(&kind) => quoted4(bytes, at),
            IpAddr::V6(_) if self.part == Part::Whole && (1..=127).contains(&kind) => quoted6(bytes, at),
            _ => None,
        }
    }
}

/// A packet quoted by an ICMP error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quoted {
    /// Its first byte, and the first behind its headers.
    pub(super) at: usize,
    pub(super) upper: usize,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) protocol: IpProtocol,
    /// Ports; 0 of ICMP.
    pub(super) ports: (u16, u16),
}

fn quoted4(bytes: &[u8], at: usize) -> Option<Quoted> {
    let h = fixed::<Ipv4>(bytes)?;
    let len = h.header_len();
    if h.version() != 4 || len < size_of::<Ipv4>() || h.is_later_fragment() {
        return None;
    }
    Quoted { at, upper: at + len, src: h.src().into(), dst: h.dst().into(), protocol: h.protocol(), ports: (0, 0) }
        .with_ports(bytes.get(len..)?)
}

fn quoted6(bytes: &[u8], at: usize) -> Option<Quoted> {
    let h = fixed::<Ipv6>(bytes)?;
    let (mut len, mut protocol) = (size_of::<Ipv6>(), h.next_header());
    if h.version() != 6 {
        return None;
    }
    // of a first fragment; nobody quotes more headers than a server sends
    if protocol == IpProtocol::FRAGMENT {
        let [next, _, high, low, ..] = *bytes.get(len..)?.first_chunk::<8>()?;
        if u16::from_be_bytes([high, low]) & 0xfff8 != 0 {
            return None;
        }
        (len, protocol) = (len + 8, IpProtocol(next));
    }
    Quoted { at, upper: at + len, src: h.src().into(), dst: h.dst().into(), protocol, ports: (0, 0) }
        .with_ports(bytes.get(len..)?)
}

impl Quoted {
    /// At least the eight bytes that every error quotes (RFC 792).
    fn with_ports(mut self, upper: &[u8]) -> Option<Self> {
        let h = upper.first_chunk::<8>()?;
        match self.protocol {
            IpProtocol::TCP | IpProtocol::UDP => {
                self.ports = (u16::from_be_bytes([h[0], h[1]]), u16::from_be_bytes([h[2], h[3]]));
            }
            // an echo's answer
            IpProtocol::ICMPV4 if h[0] == 0 => {}
            IpProtocol::ICMPV6 if h[0] == 129 => {}
            _ => return None,
        }
        Some(self)
    }
}
