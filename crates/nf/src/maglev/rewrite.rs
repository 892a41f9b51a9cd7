//! Rewriting and encapsulation of packets.

use super::counters::DropReason;
use super::destination::{Destination, OUTER_MAX, Reply, address_delta};
use super::headers::{ParsedPacket, QuotedPacket};
use crate::checksum_delta::ChecksumDelta;
use packet::Packet;
use std::net::IpAddr;
use wire::checksum::Delta;
use wire::{EtherType, IpProtocol};

/// Length of an Ethernet header in bytes.
const ETHERNET_LEN: usize = 14;
/// Length of the first headers of a plain packet in bytes: Ethernet, IPv4 without options, ports.
const PLAIN_LEN: usize = ETHERNET_LEN + 20 + 8;

#[inline(always)]
fn be16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b))
}

#[inline(always)]
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(field) = bytes.get_mut(at..at + value.len()) {
        field.copy_from_slice(value);
    }
}

/// Returns the checksum of TCP or UDP after a rewrite; a UDP packet without a checksum keeps none.
#[inline(always)]
fn transport_checksum(old: u16, delta: Delta, udp: bool) -> u16 {
    if udp { delta.apply_udp(old) } else { delta.apply(old) }
}

/// Writes address and port of a plain IPv4 packet: those of the source if `side` is 0, of the destination if it is 1.
#[inline(always)]
fn rewrite4(frame: &mut [u8], side: usize, to: ([u8; 4], [u8; 2]), ip: ChecksumDelta, transport: ChecksumDelta) {
    let Some(h) = frame.first_chunk_mut::<PLAIN_LEN>() else { return };
    let sum = ip.apply([h[24], h[25]]);
    h[24..26].copy_from_slice(&sum);
    h[26 + 4 * side..30 + 4 * side].copy_from_slice(&to.0);
    h[34 + 2 * side..36 + 2 * side].copy_from_slice(&to.1);
    if h[23] == IpProtocol::UDP.0 {
        let sum = transport.apply_udp([h[40], h[41]]);
        h[40..42].copy_from_slice(&sum);
    } else if let Some(field) = frame.get_mut(50..52).and_then(|f| f.first_chunk_mut()) {
        *field = transport.apply(*field);
    }
}

/// Rewrites the destination of a plain IPv4 packet to a backend.
#[inline(always)]
pub(super) fn nat4(frame: &mut [u8], to: &Destination) {
    rewrite4(frame, 1, (to.address, to.port), to.ip_delta, to.transport_delta);
}

/// Rewrites the source of a plain IPv4 packet from a backend.
#[inline(always)]
pub(super) fn reply4(frame: &mut [u8], reply: &Reply) {
    rewrite4(frame, 0, (reply.address, reply.port), reply.ip_delta, reply.transport_delta);
}

/// Rewrites the destination of a plain IPv4 packet to a backend, and sets the DSCP that stands for the virtual address.
#[inline(always)]
pub(super) fn l3dsr4(frame: &mut [u8], to: &Destination) {
    let tos = be16(frame, ETHERNET_LEN);
    let marked = tos & 0xff03 | u16::from(to.tos);
    put(frame, ETHERNET_LEN, &marked.to_be_bytes());
    let sum = Delta::ZERO.u16(tos, marked).apply(be16(frame, ETHERNET_LEN + 10));
    put(frame, ETHERNET_LEN + 10, &sum.to_be_bytes());
    nat4(frame, to);
}

/// Prepends `N` bytes of IPv4 and possibly GRE headers to a plain IPv4 packet.
#[inline(always)]
pub(super) fn tunnel4<const N: usize>(
    packet: &mut Packet,
    to: &Destination,
    id: u16,
    mtu: u16,
) -> Result<(), DropReason> {
    let Some(h) = packet.data().first_chunk::<PLAIN_LEN>() else { return Ok(()) };
    // the Ethernet header as two overlapping words, which stay in registers
    let word = |at: usize| [h[at], h[at + 1], h[at + 2], h[at + 3], h[at + 4], h[at + 5], h[at + 6], h[at + 7]];
    let link = [word(0), word(ETHERNET_LEN - 8)].map(u64::from_ne_bytes);
    let (tos, dont_fragment) = (h[15], h[20] & 0x40);
    let len = usize::from(u16::from_be_bytes([h[16], h[17]])) + N;
    if len > usize::from(mtu) && (dont_fragment != 0 || len > 0xffff) {
        return Err(DropReason::TooBig);
    }
    if packet.prepend(N).is_none() {
        return Err(DropReason::NoHeadroom);
    }
    let Some(h) = packet.data_mut().first_chunk_mut::<PLAIN_LEN>() else { return Ok(()) };
    h[..8].copy_from_slice(&link[0].to_ne_bytes());
    h[ETHERNET_LEN - 8..ETHERNET_LEN].copy_from_slice(&link[1].to_ne_bytes());
    h[ETHERNET_LEN..ETHERNET_LEN + N].copy_from_slice(&to.outer[..N]);
    write_outer4(&mut h[ETHERNET_LEN..], to.outer_sum, (tos, len as u16, id, dont_fragment));
    Ok(())
}

/// Writes the fields of an outer IPv4 header that differ from packet to packet, and its checksum.
#[inline(always)]
fn write_outer4(h: &mut [u8], sum: u32, (tos, len, id, dont_fragment): (u8, u16, u16, u8)) {
    h[1] = tos;
    h[2..4].copy_from_slice(&len.to_be_bytes());
    h[4..6].copy_from_slice(&id.to_be_bytes());
    h[6] = dont_fragment;
    let sum = sum + u32::from(tos) + u32::from(len) + u32::from(id) + (u32::from(dont_fragment) << 8);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    h[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Prepends the headers of any tunnel to any packet.
pub(super) fn tunnel(
    packet: &mut Packet,
    parsed: &ParsedPacket,
    to: &Destination,
    id: u16,
    mtu: u16,
) -> Result<(), DropReason> {
    let n = usize::from(to.outer_len);
    let len = parsed.end - parsed.ip + n;
    let may_fragment = to.outer_type == EtherType::IPV4 && !parsed.dont_fragment;
    if len > usize::from(mtu) && (!may_fragment || len > 0xffff) {
        return Err(DropReason::TooBig);
    }
    if packet.prepend(n).is_none() {
        return Err(DropReason::NoHeadroom);
    }
    let frame = packet.data_mut();
    frame.copy_within(n..n + parsed.ip, 0);
    put(frame, parsed.ip - 2, &to.outer_type.0.to_be_bytes());
    put(frame, parsed.ip, &to.outer[..n.min(OUTER_MAX)]);
    let h = &mut frame[parsed.ip..];
    if to.outer_type == EtherType::IPV4 {
        write_outer4(h, to.outer_sum, (parsed.tos, len as u16, id, u8::from(parsed.dont_fragment) << 6));
    } else {
        put(h, 0, &[0x60 | parsed.tos >> 4, parsed.tos << 4]);
        put(h, 4, &(len as u16 - 40).to_be_bytes());
    }
    Ok(())
}

/// Address field of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressField {
    Source,
    Destination,
}

impl AddressField {
    /// Returns the offset of the address in an IP header.
    fn address_offset(self, v4: bool) -> usize {
        match (v4, self) {
            (true, AddressField::Source) => 12,
            (true, AddressField::Destination) => 16,
            (false, AddressField::Source) => 8,
            (false, AddressField::Destination) => 24,
        }
    }

    /// Returns the offset of the port in a TCP or UDP header.
    fn port_offset(self) -> usize {
        if self == AddressField::Source { 0 } else { 2 }
    }
}

fn write_address(frame: &mut [u8], at: usize, to: IpAddr) {
    match to {
        IpAddr::V4(to) => put(frame, at, &to.octets()),
        IpAddr::V6(to) => put(frame, at, &to.octets()),
    }
}

/// Rewrites an address of any packet, and its port if it has one, and updates the checksums.
pub(super) fn redirect(frame: &mut [u8], parsed: &ParsedPacket, side: AddressField, to: (IpAddr, u16)) {
    let from = if side == AddressField::Source { parsed.src } else { parsed.dst };
    let ip = address_delta(from, to.0);
    write_address(frame, parsed.ip + side.address_offset(from.is_ipv4()), to.0);
    if from.is_ipv4() {
        let sum = ip.apply(be16(frame, parsed.ip + 10));
        put(frame, parsed.ip + 10, &sum.to_be_bytes());
    }
    let mut transport = ip;
    if parsed.ports(frame).is_some() {
        let at = parsed.transport + side.port_offset();
        transport = transport.u16(be16(frame, at), to.1);
        put(frame, at, &to.1.to_be_bytes());
    }
    if let Some(at) = parsed.checksum() {
        let sum = transport_checksum(be16(frame, at), transport, parsed.protocol == IpProtocol::UDP);
        put(frame, at, &sum.to_be_bytes());
    }
}

/// Sets the DSCP of any packet.
pub(super) fn set_dscp(frame: &mut [u8], parsed: &ParsedPacket, tos: u8) {
    let (old, tos) = (be16(frame, parsed.ip), tos | parsed.tos & 3);
    if parsed.dst.is_ipv4() {
        let new = old & 0xff00 | u16::from(tos);
        put(frame, parsed.ip, &new.to_be_bytes());
        let sum = Delta::ZERO.u16(old, new).apply(be16(frame, parsed.ip + 10));
        put(frame, parsed.ip + 10, &sum.to_be_bytes());
    } else {
        put(frame, parsed.ip, &(old & 0xf00f | u16::from(tos) << 4).to_be_bytes());
    }
}

/// Rewrites an address and port of the packet that an ICMP error quotes, and updates its checksums and that of the
/// error.
pub(super) fn redirect_quoted(
    frame: &mut [u8],
    parsed: &ParsedPacket,
    q: &QuotedPacket,
    side: AddressField,
    to: (IpAddr, u16),
) {
    let from = if side == AddressField::Source { q.src } else { q.dst };
    let mut delta = address_delta(from, to.0);
    let change = delta;
    write_address(frame, q.ip + side.address_offset(from.is_ipv4()), to.0);
    // sets a field and adds the difference to that of the error's checksum
    let mut set = |frame: &mut [u8], at: usize, value: u16| {
        delta = delta.u16(be16(frame, at), value);
        put(frame, at, &value.to_be_bytes());
    };
    if from.is_ipv4() {
        let sum = change.apply(be16(frame, q.ip + 10));
        set(frame, q.ip + 10, sum);
    }
    if matches!(q.protocol, IpProtocol::TCP | IpProtocol::UDP) {
        let at = q.transport + side.port_offset();
        let change = change.u16(be16(frame, at), to.1);
        set(frame, at, to.1);
        let udp = q.protocol == IpProtocol::UDP;
        let at = q.transport + if udp { 6 } else { 16 };
        if at + 2 <= parsed.end {
            let sum = transport_checksum(be16(frame, at), change, udp);
            set(frame, at, sum);
        }
    } else if q.protocol == IpProtocol::ICMPV6 {
        let sum = change.apply(be16(frame, q.transport + 2));
        set(frame, q.transport + 2, sum);
    }
    let sum = delta.apply(be16(frame, parsed.transport + 2));
    put(frame, parsed.transport + 2, &sum.to_be_bytes());
}
