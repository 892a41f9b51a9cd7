//! Decoding of frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::IpProtocol;
use wire::checksum::{self, Pseudo};

/// Headers and payload of an IP packet.
#[derive(Clone, Copy, Debug)]
pub(in crate::ids) struct Packet<'a> {
    pub(in crate::ids) src: IpAddr,
    pub(in crate::ids) dst: IpAddr,
    pub(in crate::ids) src_port: u16,
    pub(in crate::ids) dst_port: u16,
    pub(in crate::ids) protocol: u8,
    /// IP header with options, or with extension headers.
    pub(in crate::ids) ip_header: &'a [u8],
    /// Header of TCP, UDP or ICMP; empty if there is none.
    pub(in crate::ids) header: &'a [u8],
    pub(in crate::ids) payload: &'a [u8],
    /// Length of the frame, or of a packet in a tunnel, in bytes.
    pub(in crate::ids) len: usize,
    /// Number of tunnels around the packet.
    pub(in crate::ids) tunnels: u8,
    /// Identifiers of the outer and the inner VLAN tag, 12 bits each; 0 without tags.
    pub(in crate::ids) vlans: u32,
    pub(in crate::ids) ttl: u8,
    pub(in crate::ids) tos: u8,
    pub(in crate::ids) id: u32,
    /// More fragments, don't fragment, reserved: bits 0, 1 and 2.
    pub(in crate::ids) fragment_bits: u8,
    /// Fragment offset in units of 8 bytes.
    pub(in crate::ids) fragment_offset: u16,
    /// False if a checksum is wrong.
    pub(in crate::ids) valid: bool,
}

pub(in crate::ids) const ICMP: u8 = 1;
pub(in crate::ids) const IGMP: u8 = 2;
pub(in crate::ids) const TCP: u8 = 6;
pub(in crate::ids) const UDP: u8 = 17;
pub(in crate::ids) const ICMPV6: u8 = 58;
pub(in crate::ids) const SCTP: u8 = 132;

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

impl<'a> Packet<'a> {
    pub(in crate::ids) fn is_fragment(&self) -> bool {
        self.fragment_bits & 1 != 0 || self.fragment_offset != 0
    }

    /// Returns true if packets of the protocol have flows.
    pub(in crate::ids) fn has_flow(&self) -> bool {
        !self.is_fragment()
            && match self.protocol {
                TCP | UDP | ICMP | ICMPV6 | SCTP => !self.header.is_empty(),
                // ESP
                50 => true,
                _ => false,
            }
    }

    pub(in crate::ids) fn is_icmp(&self) -> bool {
        !self.header.is_empty() && matches!(self.protocol, ICMP | ICMPV6)
    }

    pub(in crate::ids) fn is_tcp(&self) -> bool {
        self.protocol == TCP && !self.header.is_empty()
    }

    pub(in crate::ids) fn tcp_flags(&self) -> u8 {
        self.header.get(13).copied().unwrap_or(0)
    }

    pub(in crate::ids) fn field32(&self, at: usize) -> u32 {
        self.header.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
    }

    pub(in crate::ids) fn field16(&self, at: usize) -> Option<u16> {
        be16(self.header, at)
    }

    /// Returns the value of a TCP option.
    pub(in crate::ids) fn tcp_option(&self, kind: u8) -> Option<&'a [u8]> {
        find_option(self.header.get(20..)?, kind)
    }

    pub(in crate::ids) fn has_ip_option(&self, kind: Option<u8>) -> bool {
        let options = if self.src.is_ipv4() { self.ip_header.get(20..).unwrap_or_default() } else { &[] };
        match kind {
            Some(kind) => find_option(options, kind).is_some(),
            None => !options.is_empty(),
        }
    }

    /// Returns the packet inside a tunnel.
    pub(in crate::ids) fn inner(&self, checksums: bool) -> Option<Packet<'a>> {
        if self.is_fragment() {
            return None;
        }
        let inner = match self.protocol {
            4 | 41 => decode_ip(self.payload, checksums),
            47 => {
                let flags = be16(self.payload, 0)?;
                // version 1 carries PPP (RFC 2637)
                if flags & 7 != 0 {
                    return None;
                }
                let optional: usize =
                    [0x8000, 0x2000, 0x1000].iter().map(|bit| if flags & bit != 0 { 4 } else { 0 }).sum();
                let inner = self.payload.get(4 + optional..)?;
                match be16(self.payload, 2)? {
                    0x0800 | 0x86dd => decode_ip(inner, checksums),
                    0x6558 => decode_frame(inner, checksums),
                    0x88be => decode_frame(inner.get(8..)?, checksums),
                    _ => None,
                }
            }
            _ => None,
        };
        inner.map(|packet| Packet { tunnels: self.tunnels + 1, ..packet })
    }
}

/// Finds an option in the list of an IPv4 or TCP header and returns its value.
fn find_option(mut options: &[u8], kind: u8) -> Option<&[u8]> {
    loop {
        match *options.first()? {
            0 => return (kind == 0).then_some(&[]),
            1 if kind == 1 => return Some(&[]),
            1 => options = &options[1..],
            other => {
                let len = usize::from(*options.get(1)?);
                let value = options.get(2..len)?;
                if other == kind {
                    return Some(value);
                }
                options = &options[len..];
            }
        }
    }
}

/// Decodes an Ethernet frame with up to four VLAN tags.
pub(in crate::ids) fn decode_frame(frame: &[u8], checksums: bool) -> Option<Packet<'_>> {
    let (mut at, mut vlans) = (12, 0);
    for _ in 0..5 {
        let ip = match be16(frame, at)? {
            0x8100 | 0x88a8 | 0x9100 => {
                vlans = (vlans << 12 | u32::from(be16(frame, at + 2)? & 0xfff)) & 0xff_ffff;
                at += 4;
                continue;
            }
            0x0800 | 0x86dd => frame.get(at + 2..)?,
            0x8864 => frame.get(at + 10..)?,
            _ => return None,
        };
        return decode_ip(ip, checksums).map(|packet| Packet { vlans, len: frame.len(), ..packet });
    }
    None
}

/// Decodes an IP packet.
pub(in crate::ids) fn decode_ip(bytes: &[u8], checksums: bool) -> Option<Packet<'_>> {
    match bytes.first()? >> 4 {
        4 => decode_ipv4(bytes, checksums),
        6 => decode_ipv6(bytes, checksums),
        _ => None,
    }
}

fn decode_ipv4(bytes: &[u8], checksums: bool) -> Option<Packet<'_>> {
    let header_len = usize::from(bytes.first()? & 15) * 4;
    let total = usize::from(be16(bytes, 2)?);
    if header_len < 20 || total < header_len {
        return None;
    }
    let ip_header = bytes.get(..header_len)?;
    let rest = bytes.get(header_len..total)?;
    let fragment = be16(bytes, 6)?;
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?));
    let packet = Packet {
        src: address(12)?.into(),
        dst: address(16)?.into(),
        src_port: 0,
        dst_port: 0,
        protocol: bytes[9],
        ip_header,
        header: &[],
        payload: rest,
        len: total,
        tunnels: 0,
        vlans: 0,
        ttl: bytes[8],
        tos: bytes[1],
        id: be16(bytes, 4)?.into(),
        fragment_bits: (fragment >> 13) as u8,
        fragment_offset: fragment & 0x1fff,
        valid: !checksums || checksum::verify(ip_header),
    };
    Some(transport(packet, checksums))
}

fn decode_ipv6(bytes: &[u8], checksums: bool) -> Option<Packet<'_>> {
    let total = 40 + usize::from(be16(bytes, 4)?);
    let bytes = bytes.get(..total)?;
    let address = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok()?));
    let (mut next, mut at) = skip_extension_headers(bytes, bytes[6], 40)?;
    let (mut id, mut fragment) = (0, 0);
    if next == 44 {
        fragment = be16(bytes, at + 2)?;
        id = u32::from_be_bytes(bytes.get(at + 4..at + 8)?.try_into().ok()?);
        (next, at) = (bytes[at], at + 8);
        // the payload of a fragment is not decoded
        if fragment & 0xfff9 == 0 {
            (next, at) = skip_extension_headers(bytes, next, at)?;
        }
    }
    let packet = Packet {
        src: address(8)?.into(),
        dst: address(24)?.into(),
        src_port: 0,
        dst_port: 0,
        protocol: next,
        ip_header: bytes.get(..at)?,
        header: &[],
        payload: bytes.get(at..)?,
        len: total,
        tunnels: 0,
        vlans: 0,
        ttl: bytes[7],
        tos: (be16(bytes, 0)? >> 4) as u8,
        id,
        fragment_bits: (fragment & 1) as u8,
        fragment_offset: fragment >> 3,
        valid: true,
    };
    Some(transport(packet, checksums))
}

/// Skips extension headers but those of fragments; returns the protocol behind them and its position.
fn skip_extension_headers(bytes: &[u8], mut next: u8, mut at: usize) -> Option<(u8, usize)> {
    // the packet is as long as its headers at least
    loop {
        let len = match next {
            0 | 43 | 60 | 135 => (usize::from(*bytes.get(at + 1)?) + 1) * 8,
            51 => (usize::from(*bytes.get(at + 1)?) + 2) * 4,
            _ => break,
        };
        (next, at) = (bytes[at], at + len);
    }
    Some((next, at))
}

/// Returns the packet whose payload was reassembled from fragments.
pub(super) fn reassembled<'a>(fragment: &Packet<'a>, payload: &'a [u8], checksums: bool) -> Option<Packet<'a>> {
    let (protocol, at) = match fragment.src {
        IpAddr::V4(_) => (fragment.protocol, 0),
        IpAddr::V6(_) => skip_extension_headers(payload, fragment.protocol, 0)?,
    };
    let len = fragment.ip_header.len() + payload.len();
    let payload = payload.get(at..)?;
    let packet = Packet { protocol, payload, len, fragment_bits: 0, fragment_offset: 0, ..*fragment };
    Some(transport(packet, checksums))
}

/// Decodes the transport header of an unfragmented packet.
fn transport(mut packet: Packet<'_>, checksums: bool) -> Packet<'_> {
    if packet.is_fragment() {
        return packet;
    }
    let mut rest = packet.payload;
    if packet.protocol == UDP {
        // bytes behind the datagram are not part of it; a length of 0 is that of a jumbogram (RFC 2675 §4)
        match be16(rest, 4).map(usize::from) {
            Some(len @ 8..) if len <= rest.len() => rest = &rest[..len],
            Some(0) if packet.src.is_ipv6() => {}
            _ => return packet,
        }
    }
    let header_len = match packet.protocol {
        TCP => rest.get(12).map_or(0, |b| usize::from(b >> 4) * 4),
        UDP => 8,
        ICMP => icmp_header_len(rest.first().copied().unwrap_or(0)),
        ICMPV6 => 8,
        SCTP => 12,
        _ => 0,
    };
    let least = match packet.protocol {
        TCP => 20,
        ICMP | ICMPV6 => 4,
        _ => 8,
    };
    let header_len = if matches!(packet.protocol, ICMP | ICMPV6) { header_len.min(rest.len()) } else { header_len };
    if header_len < least || header_len > rest.len() {
        return packet;
    }
    if checksums {
        let ok = match packet.protocol {
            TCP | ICMPV6 => pseudo_header(&packet).sum(rest).is_valid(),
            UDP => be16(rest, 6) == Some(0) || pseudo_header(&packet).sum(rest).is_valid(),
            ICMP => checksum::verify(rest),
            _ => true,
        };
        packet.valid &= ok;
    }
    (packet.header, packet.payload) = rest.split_at(header_len);
    if matches!(packet.protocol, TCP | UDP | SCTP) {
        packet.src_port = be16(rest, 0).unwrap_or(0);
        packet.dst_port = be16(rest, 2).unwrap_or(0);
    }
    packet
}

/// Returns the length of an ICMP header (RFC 792).
fn icmp_header_len(kind: u8) -> usize {
    if matches!(kind, 13 | 14) { 20 } else { 8 }
}

fn pseudo_header(packet: &Packet<'_>) -> Pseudo {
    let protocol = IpProtocol(packet.protocol);
    match (packet.src, packet.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Pseudo::v4(src, dst, protocol),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Pseudo::v6(src, dst, protocol),
        // both addresses are of one version
        _ => Pseudo::v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, protocol),
    }
}
