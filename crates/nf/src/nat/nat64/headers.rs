//! Translation of IP headers (RFC 7915 §4.1, §5.1).

use super::parse::{PacketInfo, ipv6_protocol, u16_at};
use crate::checksum_delta::ChecksumDelta;
use crate::nat::flow::Direction;
use packet::Packet;
use wire::{EtherType, IpProtocol, checksum};

/// Bytes of the headers.
pub(super) const IPV4_HEADER_LEN: usize = 20;
pub(super) const IPV6_HEADER_LEN: usize = 40;
pub(super) const FRAGMENT_HEADER_LEN: usize = 8;
/// IPv4 packets up to this length may be fragmented, because IPv6 hosts do not learn of links with an MTU below 1280
/// (RFC 7915 §5.1).
pub(super) const MAX_FRAGMENTABLE_LEN: usize = 1260;
/// Shortest frame in bytes, without FCS.
const MIN_FRAME_LEN: usize = 60;

/// Source and destination; IPv4 addresses are in the low 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AddressPair {
    pub(super) src: u128,
    pub(super) dst: u128,
}

/// IP headers, up to 48 bytes.
pub(super) struct Header {
    bytes: [u8; IPV6_HEADER_LEN + FRAGMENT_HEADER_LEN],
    len: usize,
}

impl Header {
    fn new() -> Self {
        Header { bytes: [0; IPV6_HEADER_LEN + FRAGMENT_HEADER_LEN], len: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Builds the IPv4 header for an IPv6 packet; `id` is the identification of a packet without fragment header.
pub(super) fn ipv4_header(info: &PacketInfo, protocol: u8, addresses: &AddressPair, hop_limit: u8, id: u16) -> Header {
    let datagram_len = IPV4_HEADER_LEN + info.len();
    let (id, flags) = match info.has_fragment_header {
        true => (info.id as u16, info.offset >> 3 | u16::from(info.more_fragments) << 13),
        false => (id, u16::from(datagram_len > MAX_FRAGMENTABLE_LEN) << 14),
    };
    let mut header = Header::new();
    header.push(&[0x45, info.traffic_class]);
    header.push(&(datagram_len as u16).to_be_bytes());
    header.push(&id.to_be_bytes());
    header.push(&flags.to_be_bytes());
    header.push(&[hop_limit, protocol, 0, 0]);
    header.push(&(addresses.src as u32).to_be_bytes());
    header.push(&(addresses.dst as u32).to_be_bytes());
    let sum = checksum::of(header.bytes()).to_be_bytes();
    header.bytes[10..12].copy_from_slice(&sum);
    header
}

/// Builds the IPv6 header for an IPv4 packet, with a fragment header if it is a fragment.
pub(super) fn ipv6_header(info: &PacketInfo, addresses: &AddressPair, hop_limit: u8) -> Header {
    let is_fragment = info.is_fragment();
    let payload = info.len() + if is_fragment { FRAGMENT_HEADER_LEN } else { 0 };
    let next = ipv6_protocol(info.protocol);
    let mut header = Header::new();
    header.push(&(6 << 28 | u32::from(info.traffic_class) << 20).to_be_bytes());
    header.push(&(payload as u16).to_be_bytes());
    header.push(&[if is_fragment { IpProtocol::FRAGMENT.0 } else { next }, hop_limit]);
    header.push(&addresses.src.to_be_bytes());
    header.push(&addresses.dst.to_be_bytes());
    if is_fragment {
        header.push(&fragment_header(next, info.offset, info.more_fragments, info.id));
    }
    header
}

/// Builds a fragment header (RFC 8200 §4.5).
fn fragment_header(next: u8, offset: u16, more_fragments: bool, id: u32) -> [u8; FRAGMENT_HEADER_LEN] {
    let [high, low] = (offset & !7 | u16::from(more_fragments)).to_be_bytes();
    let [a, b, c, d] = id.to_be_bytes();
    [next, 0, high, low, a, b, c, d]
}

/// Replaces the IP headers of a packet and removes the padding of its frame. Returns false if the headroom is too
/// small.
pub(super) fn replace_headers(packet: &mut Packet, info: &PacketInfo, header: &Header) -> bool {
    /// Ethernet header with the largest number of VLAN tags.
    const MAX_LINK_HEADER_LEN: usize = 14 + 4 * wire::flow::MAX_TAGS;
    let mut link = [0; MAX_LINK_HEADER_LEN];
    let (old, new) = (info.l4 - info.ip, header.len);
    let Some(kept) = link.get_mut(..info.ip) else { return false };
    kept.copy_from_slice(&packet.data()[..info.ip]);
    let kind = if info.is_ipv6 { EtherType::IPV4 } else { EtherType::IPV6 };
    let [.., a, b] = kept else { return false };
    [*a, *b] = kind.0.to_be_bytes();
    packet.truncate(info.end);
    let moved = if new > old { packet.prepend(new - old).is_some() } else { packet.trim_front(old - new) };
    if !moved {
        return false;
    }
    let data = packet.data_mut();
    data[..info.ip].copy_from_slice(&link[..info.ip]);
    data[info.ip..info.ip + new].copy_from_slice(header.bytes());
    pad_to_minimum(packet);
    true
}

/// Pads a frame to the minimum length of Ethernet.
#[inline(always)]
pub(super) fn pad_to_minimum(packet: &mut Packet) {
    if let Some(short) = MIN_FRAME_LEN.checked_sub(packet.len()).filter(|short| *short != 0)
        && let Some(padding) = packet.append(short)
    {
        padding.fill(0);
    }
}

/// The part of a checksum's input that changes: pseudo header and port, or ICMP type and identifier.
struct ChecksumInput {
    bytes: [u8; 48],
    len: usize,
}

impl ChecksumInput {
    fn new(is_ipv6: bool, addresses: &AddressPair) -> Self {
        let mut it = ChecksumInput { bytes: [0; 48], len: 0 };
        if is_ipv6 {
            it.push(&addresses.src.to_be_bytes());
            it.push(&addresses.dst.to_be_bytes());
        } else {
            it.push(&(addresses.src as u32).to_be_bytes());
            it.push(&(addresses.dst as u32).to_be_bytes());
        }
        it
    }

    fn none() -> Self {
        ChecksumInput { bytes: [0; 48], len: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + new.len()) {
        place.copy_from_slice(new);
    }
}

fn u16s(bytes: &[u8], at: usize) -> [u8; 2] {
    u16_at(bytes, at).to_be_bytes()
}

/// Writes the translated port of a TCP, UDP or ICMP echo header and updates the checksum. `direction` selects the port,
/// and `datagram_len` is the payload length of the whole datagram for the pseudo header. The checksum may be missing in
/// a truncated quote.
pub(super) fn translate_l4(
    bytes: &mut [u8],
    info: &PacketInfo,
    addresses: &AddressPair,
    port: u16,
    direction: Direction,
    datagram_len: usize,
) {
    let before = AddressPair { src: info.src, dst: info.dst };
    let at = if direction == Direction::Outbound { 0 } else { 2 };
    let port = port.to_be_bytes();
    let sum = match IpProtocol(info.protocol) {
        IpProtocol::ICMPV4 => return translate_echo(bytes, info, &before, addresses, port, datagram_len),
        IpProtocol::TCP => 16,
        _ => 6,
    };
    let (mut old, mut new) = (ChecksumInput::new(info.is_ipv6, &before), ChecksumInput::new(!info.is_ipv6, addresses));
    old.push(&u16s(bytes, at));
    new.push(&port);
    put(bytes, at, &port);
    let change = ChecksumDelta::new(&old.bytes[..old.len], &new.bytes[..new.len]);
    let sum_old = u16s(bytes, sum);
    let sum_new = if sum == 6 { change.apply_udp(sum_old) } else { change.apply(sum_old) };
    put(bytes, sum, &sum_new);
}

fn translate_echo(
    bytes: &mut [u8],
    info: &PacketInfo,
    before: &AddressPair,
    addresses: &AddressPair,
    id: [u8; 2],
    datagram_len: usize,
) {
    let kind = match (info.is_ipv6, bytes.first()) {
        (true, Some(128)) => 8,
        (true, _) => 0,
        (false, Some(8)) => 128,
        (false, _) => 129,
    };
    // only the ICMPv6 checksum covers a pseudo header
    let [mut old, mut new] = match info.is_ipv6 {
        true => [ChecksumInput::new(true, before), ChecksumInput::none()],
        false => [ChecksumInput::none(), ChecksumInput::new(true, addresses)],
    };
    let pseudo = if info.is_ipv6 { &mut old } else { &mut new };
    pseudo.push(&(datagram_len as u32).to_be_bytes());
    pseudo.push(&[0, IpProtocol::ICMPV6.0]);
    old.push(&u16s(bytes, 0));
    old.push(&u16s(bytes, 4));
    put(bytes, 0, &[kind]);
    put(bytes, 4, &id);
    new.push(&u16s(bytes, 0));
    new.push(&id);
    let sum = ChecksumDelta::new(&old.bytes[..old.len], &new.bytes[..new.len]).apply(u16s(bytes, 2));
    put(bytes, 2, &sum);
}

/// Fragments the IPv6 packet of a frame so that no fragment is longer than `mtu` bytes. The frame becomes the first
/// fragment, and the frames of the others are returned. `id` is the identification of a packet that is no fragment yet.
/// Returns nothing and leaves the frame unchanged if the packet is short enough.
pub(super) fn fragment(packet: &mut Packet, ip: usize, mtu: usize, id: u32) -> Vec<Vec<u8>> {
    let frame = packet.data();
    let end = ip + IPV6_HEADER_LEN + usize::from(u16_at(frame, ip + 4));
    if end - ip <= mtu || end > frame.len() {
        return vec![];
    }
    let next = frame[ip + 6];
    // a fragment is fragmented further
    let is_fragment = next == IpProtocol::FRAGMENT.0;
    let (begin, next, field, id) = match frame.get(ip + IPV6_HEADER_LEN..ip + IPV6_HEADER_LEN + FRAGMENT_HEADER_LEN) {
        Some(&[next, _, a, b, c, d, e, f]) if is_fragment => (
            ip + IPV6_HEADER_LEN + FRAGMENT_HEADER_LEN,
            next,
            u16::from_be_bytes([a, b]),
            u32::from_be_bytes([c, d, e, f]),
        ),
        _ => (ip + IPV6_HEADER_LEN, next, 0, id),
    };
    let room = (mtu - IPV6_HEADER_LEN - FRAGMENT_HEADER_LEN) & !7;
    let body = &frame[begin..end];
    let fragments = body.chunks(room).enumerate().map(|(n, chunk)| {
        let offset = (field & !7) as usize + n * room;
        let last = (n + 1) * room >= body.len();
        let mut fragment = frame[..ip + IPV6_HEADER_LEN].to_vec();
        fragment[ip + 4..ip + 6].copy_from_slice(&((FRAGMENT_HEADER_LEN + chunk.len()) as u16).to_be_bytes());
        fragment[ip + 6] = IpProtocol::FRAGMENT.0;
        fragment.extend(fragment_header(next, offset as u16, !last || field & 1 != 0, id));
        fragment.extend(chunk);
        fragment
    });
    let mut fragments: Vec<_> = fragments.collect();
    let first = fragments.remove(0);
    packet.truncate(first.len().min(packet.len()));
    packet.data_mut().copy_from_slice(&first);
    fragments
}
