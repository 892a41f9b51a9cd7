//! Positions of the headers and the payload of a frame, and the key of its flow.

use super::protocol::Transport;
use crate::link;
use tables::flow::{Tuple4, Tuple6};
use wire::{EtherType, Ethernet, Header, IpProtocol, Ipv4, Ipv6, Tcp, Udp};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const TUNNELS_MAX: usize = 2;

/// Key of a flow, the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    V4(Tuple4),
    V6(Tuple6),
}

/// Headers of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    pub(super) key: Key,
    /// Direction of the packet in its flow, 0 or 1.
    pub(super) direction: usize,
    /// Source and destination port.
    pub(super) ports: [u16; 2],
    pub(super) protocol: IpProtocol,
    /// Sequence number of a TCP segment, that of its first byte of payload.
    pub(super) sequence: u32,
    /// Start and end of the payload.
    pub(super) payload: (usize, usize),
}

impl Headers {
    /// Returns the transport protocol.
    pub(super) fn transport(&self) -> Option<Transport> {
        match self.protocol {
            IpProtocol::TCP => Some(Transport::Tcp),
            IpProtocol::UDP => Some(Transport::Udp),
            _ => None,
        }
    }
}

/// Reason why a frame has no flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoFlow {
    NotIp,
    Fragment,
    /// Neither TCP nor UDP nor IPsec.
    OtherProtocol,
}

/// Returns the offset of the IP header.
pub(super) fn ip_offset(frame: &[u8]) -> Option<(EtherType, usize)> {
    let (kind, payload) = link::parse(frame).ok()?;
    Some((kind, frame.len() - payload.len()))
}

/// An IP header.
struct Ip {
    addresses: Addresses,
    protocol: IpProtocol,
    fragment: bool,
    /// Start and end of the payload.
    upper: (usize, usize),
}

#[derive(Clone, Copy)]
enum Addresses {
    V4(u32, u32),
    V6(u128, u128),
}

fn ip(frame: &[u8], kind: EtherType, at: usize) -> Option<Ip> {
    let packet = frame.get(at..)?;
    if kind == EtherType::IPV4 {
        let length = Ipv4::check(packet).ok()?;
        let (header, _) = Ipv4::ref_from_prefix(packet).ok()?;
        return Some(Ip {
            addresses: Addresses::V4(header.src_bits(), header.dst_bits()),
            protocol: header.protocol(),
            fragment: header.is_later_fragment(),
            upper: (at + length, at + Ipv4::extent(packet)),
        });
    }
    if kind != EtherType::IPV6 {
        return None;
    }
    let length = Ipv6::check(packet).ok()?;
    let (header, _) = Ipv6::ref_from_prefix(packet).ok()?;
    let (protocol, fragment) = Ipv6::upper(packet.get(..length)?);
    Some(Ip {
        addresses: Addresses::V6(header.src().to_bits(), header.dst().to_bits()),
        protocol,
        fragment,
        upper: (at + length, at + Ipv6::extent(packet)),
    })
}

/// UDP ports of tunnels.
const GTP_U: u16 = 2152;
const VXLAN: u16 = 4789;
const _: () = assert!(size_of::<Udp>() == 8, "tunnels over UDP start behind its header");

/// Returns type and offset of the packet in a tunnel: IP in IP (RFC 2003, RFC 2473, RFC 4213), GRE (RFC 2784, RFC 2890),
/// PPTP (RFC 2637), GTP-U (3GPP TS 29.281 §5.1) or VXLAN (RFC 7348 §5).
fn tunnelled(frame: &[u8], ip: &Ip) -> Option<(EtherType, usize)> {
    let at = ip.upper.0;
    match ip.protocol {
        IpProtocol(4) => Some((EtherType::IPV4, at)),
        IpProtocol(41) => Some((EtherType::IPV6, at)),
        IpProtocol(47) => {
            let [flags, version, high, low, ..] = frame.get(at..)? else { return None };
            if version & 7 == 1 {
                return pptp(frame.get(at..)?).map(|(kind, offset)| (kind, at + offset));
            }
            let options = [0x80, 0x20, 0x10].iter().filter(|flag| *flags & **flag != 0).count();
            let kind = EtherType(u16::from_be_bytes([*high, *low]));
            (version & 7 == 0 && flags & 0x40 == 0).then_some((kind, at + 4 + 4 * options))
        }
        IpProtocol::UDP => {
            let (udp, message) = Udp::ref_from_prefix(frame.get(at..ip.upper.1)?).ok()?;
            match udp.dst_port() {
                GTP_U => gtp_u(message).map(|(kind, offset)| (kind, at + 8 + offset)),
                VXLAN => {
                    let [0x08, 0, 0, 0, _, _, _, 0, inner @ ..] = message else { return None };
                    let (kind, offset) = ip_offset(inner)?;
                    Some((kind, at + 16 + offset))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns type and offset of the packet in PPP in GRE (RFC 2637 §4.1).
fn pptp(message: &[u8]) -> Option<(EtherType, usize)> {
    let [flags, version, 0x88, 0x0b, ..] = message else { return None };
    // sequence and acknowledgement number
    let at = 8 + 4 * usize::from(flags & 0x10 != 0) + 4 * usize::from(version & 0x80 != 0);
    let (protocol, at) = match message.get(at..)? {
        [0xff, 3, 0, protocol, ..] => (*protocol, at + 4),
        [0, protocol, ..] => (*protocol, at + 2),
        [protocol, ..] => (*protocol, at + 1),
        [] => return None,
    };
    match protocol {
        0x21 => Some((EtherType::IPV4, at)),
        0x57 => Some((EtherType::IPV6, at)),
        _ => None,
    }
}

/// Returns type and offset of the packet in a message of GTP-U with user data.
fn gtp_u(message: &[u8]) -> Option<(EtherType, usize)> {
    let [0x30..=0x37, 0xff, ..] = message else { return None };
    // sequence number, N-PDU number and type of the next extension header are all present if any is
    let mut at = if message[0] & 7 == 0 { 8 } else { 12 };
    if message[0] & 4 != 0 {
        for _ in 0..8 {
            if *message.get(at - 1)? == 0 {
                break;
            }
            // extension headers state their length in units of four bytes
            at += 4 * usize::from(*message.get(at)?).max(1);
        }
    }
    match message.get(at)? >> 4 {
        4 => Some((EtherType::IPV4, at)),
        6 => Some((EtherType::IPV6, at)),
        _ => None,
    }
}

/// Finds headers and flow of a frame, behind VLAN tags and in tunnels.
pub(super) fn parse(frame: &[u8]) -> Result<Headers, NoFlow> {
    let (kind, outer) = ip_offset(frame).ok_or(NoFlow::NotIp)?;
    let mut header = ip(frame, kind, outer).ok_or(NoFlow::NotIp)?;
    for _ in 0..TUNNELS_MAX {
        let inner = tunnelled(frame, &header).filter(|_| !header.fragment);
        let Some(inner) = inner.and_then(|(kind, at)| ip(frame, kind, at)) else { break };
        header = inner;
    }
    if header.fragment {
        return Err(NoFlow::Fragment);
    }
    let (start, end) = header.upper;
    let upper = frame.get(start..end).ok_or(NoFlow::NotIp)?;
    let (mut ports, mut sequence, mut payload) = ([0, 0], 0, (start, end));
    match header.protocol {
        IpProtocol::TCP => {
            let length = Tcp::check(upper).map_err(|_| NoFlow::OtherProtocol)?;
            let (tcp, _) = Tcp::ref_from_prefix(upper).map_err(|_| NoFlow::OtherProtocol)?;
            ports = [tcp.src_port(), tcp.dst_port()];
            sequence = tcp.seq();
            payload.0 += length;
        }
        IpProtocol::UDP => {
            let (udp, _) = Udp::ref_from_prefix(upper).map_err(|_| NoFlow::OtherProtocol)?;
            ports = [udp.src_port(), udp.dst_port()];
            payload.0 += size_of::<Udp>();
            // the first fragment of a datagram has only a part of it
            let length = usize::from(u16::from_be_bytes([upper[4], upper[5]]));
            payload.1 = payload.1.min(start + length).max(payload.0);
        }
        IpProtocol(50 | 51) => {}
        _ => return Err(NoFlow::OtherProtocol),
    }
    let [src, dst] = ports;
    let protocol = header.protocol.0;
    let (key, swapped) = match header.addresses {
        Addresses::V4(from, to) => {
            let (key, swapped) = Tuple4::new(from, to, src, dst, protocol).either();
            (Key::V4(key), swapped)
        }
        Addresses::V6(from, to) => {
            let (key, swapped) = Tuple6::new(from, to, src, dst, protocol).either();
            (Key::V6(key), swapped)
        }
    };
    let direction = usize::from(swapped);
    Ok(Headers { key, direction, ports, protocol: header.protocol, sequence, payload })
}

/// First headers of a TCP or UDP packet over IPv4.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Plain4 {
    ethernet: Ethernet,
    /// First bytes of the IPv4 header.
    ip: [u8; 12],
    /// Addresses and ports.
    tuple: [u8; 12],
    /// The four bytes behind the ports.
    rest: [u8; 4],
}

/// Returns the key of an untagged, unfragmented packet over IPv4 without options, of TCP, or of UDP that is not in a
/// tunnel.
#[inline(always)]
fn plain(frame: &[u8]) -> Option<Tuple4> {
    /// Shortest header of TCP.
    const TCP: usize = size_of::<Tcp>();
    let (h, _) = Plain4::ref_from_prefix(frame).ok()?;
    let [version, _, total_high, total_low, _, _, flags, offset, _, protocol, _, _] = h.ip;
    let total = usize::from(u16::from_be_bytes([total_high, total_low]));
    let room = total.checked_sub(size_of::<Ipv4>())?;
    let is_plain = h.ethernet.ether_type() == EtherType::IPV4
        && version == 0x45
        && total <= frame.len() - size_of::<Ethernet>()
        // "don't fragment" is the only flag that may be set
        && u16::from_le_bytes([flags, offset]) & 0xff3f == 0;
    let has_ports = match IpProtocol(protocol) {
        IpProtocol::TCP => {
            let words = usize::from(*frame.get(size_of::<Plain4>() + 4)? >> 4);
            room >= TCP && words * 4 >= TCP && words * 4 <= room
        }
        IpProtocol::UDP => {
            let dst = u16::from_be_bytes([h.tuple[10], h.tuple[11]]);
            room >= size_of::<Udp>() && dst != GTP_U && dst != VXLAN
        }
        _ => false,
    };
    (is_plain && has_ports).then(|| Tuple4::of_wire(&h.tuple, protocol).either().0)
}

/// Returns the key that [`parse`] finds, sooner for most packets.
#[inline(always)]
pub(super) fn key(frame: &[u8]) -> Result<Key, NoFlow> {
    match plain(frame) {
        Some(key) => Ok(Key::V4(key)),
        None => key_of_any(frame),
    }
}

#[inline(never)]
fn key_of_any(frame: &[u8]) -> Result<Key, NoFlow> {
    parse(frame).map(|headers| headers.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::packets;
    use testkit::proptest::prelude::*;
    use testkit::wire::build;

    proptest! {
        #[test]
        fn keys_are_those_of_all_headers(frames in packets::mixed(100)) {
            for frame in frames {
                prop_assert_eq!(key(&frame), parse(&frame).map(|headers| headers.key));
            }
        }

        #[test]
        fn keys_of_changed_packets_are_those_of_all_headers(
            tcp in any::<bool>(), at in 12..50_usize, byte in any::<u8>(), len in 0..80_usize,
        ) {
            let mut frame = if tcp {
                build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&[1; 20]).to_vec()
            } else {
                build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&[1; 20]).to_vec()
            };
            prop_assert!(plain(&frame).is_some());
            let at = at.min(frame.len() - 1);
            frame[at] = byte;
            frame.truncate(len);
            prop_assert_eq!(key(&frame), parse(&frame).map(|headers| headers.key));
        }
    }

    #[test]
    fn directions_have_one_key() {
        for (a, b) in [([10, 0, 0, 1], [10, 0, 0, 2]), ([10, 0, 0, 9], [9, 0, 0, 10]), ([1; 4], [1; 4])] {
            let there = parse(&build::udp4(a, b, 1000, 2000).to_vec()).unwrap();
            let back = parse(&build::udp4(b, a, 2000, 1000).to_vec()).unwrap();
            assert_eq!((there.key, there.direction), (back.key, back.direction ^ 1));
        }
    }
}
