//! Packets on their way: rewritten, or in a tunnel.

use super::look::{Look, Quoted};
use super::node::Reason;
use super::target::{Change, OUTER_MOST, Reply, Target, address};
use packet::Packet;
use std::net::IpAddr;
use wire::checksum::Delta;
use wire::{EtherType, IpProtocol};

/// Bytes of Ethernet, and of the shortest IPv4 behind it.
const L2: usize = 14;
const L3: usize = 20;
/// A plain packet's first bytes: its addresses and ports.
const FRONT: usize = L2 + L3 + 8;

#[inline(always)]
fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b))
}

#[inline(always)]
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// The checksum of TCP or UDP after a change; a UDP packet without one has none.
#[inline(always)]
fn upper_sum(old: u16, delta: Delta, udp: bool) -> u16 {
    if udp { delta.apply_udp(old) } else { delta.apply(old) }
}

/// Writes address and port of a plain IPv4 packet, at `side` its source (0) or its destination (1).
#[inline(always)]
fn rewrite4(frame: &mut [u8], side: usize, to: ([u8; 4], [u8; 2]), ip: Change, upper: Change) {
    let Some(h) = frame.first_chunk_mut::<FRONT>() else { return };
    let udp = h[23] == IpProtocol::UDP.0;
    let sum = ip.apply([h[24], h[25]]);
    h[24..26].copy_from_slice(&sum);
    h[26 + 4 * side..30 + 4 * side].copy_from_slice(&to.0);
    h[34 + 2 * side..36 + 2 * side].copy_from_slice(&to.1);
    let at = if udp { 40 } else { 50 };
    if let Some(field) = frame.get_mut(at..).and_then(|f| f.first_chunk_mut::<2>()) {
        *field = if udp { upper.apply_udp(*field) } else { upper.apply(*field) };
    }
}

/// Network address translation of a plain IPv4 packet to a backend.
#[inline(always)]
pub(super) fn nat4(frame: &mut [u8], t: &Target) {
    rewrite4(frame, 1, (t.address, t.port), t.ip, t.upper);
}

/// The same of an answer.
#[inline(always)]
pub(super) fn reply4(frame: &mut [u8], r: &Reply) {
    rewrite4(frame, 0, (r.address, r.port), r.ip, r.upper);
}

/// A plain IPv4 packet to a backend that knows the virtual address by the code point.
#[inline(always)]
pub(super) fn l3dsr4(frame: &mut [u8], t: &Target) {
    let tos = be16(frame, L2);
    let marked = tos & 0xff03 | u16::from(t.tos);
    put(frame, L2, &marked.to_be_bytes());
    let sum = Delta::ZERO.u16(tos, marked).apply(be16(frame, L2 + 10));
    put(frame, L2 + 10, &sum.to_be_bytes());
    nat4(frame, t);
}

/// Puts a plain IPv4 packet into IPv4, with `N` bytes of headers in front.
#[inline(always)]
pub(super) fn tunnel4<const N: usize>(packet: &mut Packet, t: &Target, id: u16, mtu: u16) -> Result<(), Reason> {
    let Some(h) = packet.data().first_chunk::<FRONT>() else { return Ok(()) };
    // as two words that overlap: pieces on the stack would have to be put together again
    let word = |at: usize| [h[at], h[at + 1], h[at + 2], h[at + 3], h[at + 4], h[at + 5], h[at + 6], h[at + 7]];
    let link = [word(0), word(L2 - 8)].map(u64::from_ne_bytes);
    let (tos, whole_only) = (h[15], h[20] & 0x40);
    let len = usize::from(u16::from_be_bytes([h[16], h[17]])) + N;
    if len > usize::from(mtu) && (whole_only != 0 || len > 0xffff) {
        return Err(Reason::TooBig);
    }
    if packet.prepend(N).is_none() {
        return Err(Reason::NoRoom);
    }
    let Some(h) = packet.data_mut().first_chunk_mut::<FRONT>() else { return Ok(()) };
    h[..8].copy_from_slice(&link[0].to_ne_bytes());
    h[L2 - 8..L2].copy_from_slice(&link[1].to_ne_bytes());
    h[L2..L2 + N].copy_from_slice(&t.outer[..N]);
    outer4(&mut h[L2..], t.outer_sum, (tos, len as u16, id, whole_only));
    Ok(())
}

/// What differs from packet to packet in an outer IPv4 header, and its checksum.
#[inline(always)]
fn outer4(h: &mut [u8], sum: u32, (tos, len, id, whole_only): (u8, u16, u16, u8)) {
    h[1] = tos;
    h[2..4].copy_from_slice(&len.to_be_bytes());
    h[4..6].copy_from_slice(&id.to_be_bytes());
    h[6] = whole_only;
    let sum = sum + u32::from(tos) + u32::from(len) + u32::from(id) + (u32::from(whole_only) << 8);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    h[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Puts any packet into any tunnel.
pub(super) fn tunnel(packet: &mut Packet, look: &Look, t: &Target, id: u16, mtu: u16) -> Result<(), Reason> {
    let n = usize::from(t.outer_len);
    let len = look.end - look.at + n;
    let may_cut = t.outer_type == EtherType::IPV4 && !look.whole_only;
    if len > usize::from(mtu) && (!may_cut || len > 0xffff) {
        return Err(Reason::TooBig);
    }
    if packet.prepend(n).is_none() {
        return Err(Reason::NoRoom);
    }
    let frame = packet.data_mut();
    frame.copy_within(n..n + look.at, 0);
    put(frame, look.at - 2, &t.outer_type.0.to_be_bytes());
    put(frame, look.at, &t.outer[..n.min(OUTER_MOST)]);
    let h = &mut frame[look.at..];
    if t.outer_type == EtherType::IPV4 {
        outer4(h, t.outer_sum, (look.tos, len as u16, id, u8::from(look.whole_only) << 6));
    } else {
        put(h, 0, &[0x60 | look.tos >> 4, look.tos << 4]);
        put(h, 4, &(len as u16 - 40).to_be_bytes());
    }
    Ok(())
}

/// An address of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Source,
    Destination,
}

impl Side {
    /// Where it stands in an IP header.
    fn place(self, v4: bool) -> usize {
        match (v4, self) {
            (true, Side::Source) => 12,
            (true, Side::Destination) => 16,
            (false, Side::Source) => 8,
            (false, Side::Destination) => 24,
        }
    }

    /// Where its port stands in a header of TCP or UDP.
    fn port(self) -> usize {
        if self == Side::Source { 0 } else { 2 }
    }
}

fn write_address(frame: &mut [u8], at: usize, to: IpAddr) {
    match to {
        IpAddr::V4(to) => put(frame, at, &to.octets()),
        IpAddr::V6(to) => put(frame, at, &to.octets()),
    }
}

/// Gives any packet another address, and port where it has one, with all checksums that sum them.
pub(super) fn redirect(frame: &mut [u8], look: &Look, side: Side, to: (IpAddr, u16)) {
    let from = if side == Side::Source { look.src } else { look.dst };
    let ip = address(from, to.0);
    write_address(frame, look.at + side.place(from.is_ipv4()), to.0);
    if from.is_ipv4() {
        let sum = ip.apply(be16(frame, look.at + 10));
        put(frame, look.at + 10, &sum.to_be_bytes());
    }
    let mut upper = ip;
    if look.ports(frame).is_some() {
        let at = look.upper + side.port();
        upper = upper.u16(be16(frame, at), to.1);
        put(frame, at, &to.1.to_be_bytes());
    }
    if let Some(at) = look.checksum() {
        let sum = upper_sum(be16(frame, at), upper, look.protocol == IpProtocol::UDP);
        put(frame, at, &sum.to_be_bytes());
    }
}

/// Gives any packet a code point.
pub(super) fn mark(frame: &mut [u8], look: &Look, tos: u8) {
    let (old, tos) = (be16(frame, look.at), tos | look.tos & 3);
    if look.dst.is_ipv4() {
        let new = old & 0xff00 | u16::from(tos);
        put(frame, look.at, &new.to_be_bytes());
        let sum = Delta::ZERO.u16(old, new).apply(be16(frame, look.at + 10));
        put(frame, look.at + 10, &sum.to_be_bytes());
    } else {
        put(frame, look.at, &(old & 0xf00f | u16::from(tos) << 4).to_be_bytes());
    }
}

/// Gives the packet that an ICMP error quotes another address and port, with its own checksums, and that of the error.
pub(super) fn redirect_quoted(frame: &mut [u8], look: &Look, q: &Quoted, side: Side, to: (IpAddr, u16)) {
    let from = if side == Side::Source { q.src } else { q.dst };
    let mut delta = address(from, to.0);
    let change = delta;
    write_address(frame, q.at + side.place(from.is_ipv4()), to.0);
    // a field goes from one value to another, and the error's checksum with it
    let mut set = |frame: &mut [u8], at: usize, value: u16| {
        delta = delta.u16(be16(frame, at), value);
        put(frame, at, &value.to_be_bytes());
    };
    if from.is_ipv4() {
        let sum = change.apply(be16(frame, q.at + 10));
        set(frame, q.at + 10, sum);
    }
    if matches!(q.protocol, IpProtocol::TCP | IpProtocol::UDP) {
        let at = q.upper + side.port();
        let change = change.u16(be16(frame, at), to.1);
        set(frame, at, to.1);
        let udp = q.protocol == IpProtocol::UDP;
        let at = q.upper + if udp { 6 } else { 16 };
        if at + 2 <= look.end {
            let sum = upper_sum(be16(frame, at), change, udp);
            set(frame, at, sum);
        }
    } else if q.protocol == IpProtocol::ICMPV6 {
        let sum = change.apply(be16(frame, q.upper + 2));
        set(frame, q.upper + 2, sum);
    }
    let sum = delta.apply(be16(frame, look.upper + 2));
    put(frame, look.upper + 2, &sum.to_be_bytes());
}
