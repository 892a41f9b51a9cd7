//! Rewriting of addresses, ports and checksums of any IPv4 packet.

use super::parse::{ICMP_HEADER_LEN, Offsets, u16_at};
use crate::nat::flow::{Direction, Translation};
use wire::{IpProtocol, checksum};

fn put(frame: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(offsets) = frame.get_mut(at..at + bytes.len()) {
        offsets.copy_from_slice(bytes);
    }
}

/// Rewrites the source or destination address and updates the IPv4 checksum.
pub(super) fn address(frame: &mut [u8], offsets: &Offsets, t: &Translation, direction: Direction) {
    let sum = t.ip.apply(u16_at(frame, offsets.ip + 10).to_be_bytes());
    put(frame, offsets.ip + 10, &sum);
    put(frame, offsets.ip + if direction == Direction::Outbound { 12 } else { 16 }, &t.address);
}

/// Rewrites address and port and updates the checksums.
pub(super) fn packet(frame: &mut [u8], offsets: &Offsets, t: &Translation, direction: Direction) {
    address(frame, offsets, t, direction);
    let at = offsets.l4;
    let (port, sum) = match (IpProtocol(offsets.protocol), direction) {
        (IpProtocol::ICMPV4, _) => (at + 4, at + 2),
        (IpProtocol::TCP, Direction::Outbound) => (at, at + 16),
        (IpProtocol::TCP, Direction::Inbound) => (at + 2, at + 16),
        (_, Direction::Outbound) => (at, at + 6),
        (_, Direction::Inbound) => (at + 2, at + 6),
    };
    put(frame, port, &t.port);
    let old = u16_at(frame, sum).to_be_bytes();
    let udp = offsets.protocol == IpProtocol::UDP.0;
    let new = if udp { t.upper.apply_udp(old) } else { t.upper.apply(old) };
    put(frame, sum, &new);
}

/// Translates an ICMP error and the packet that it quotes (RFC 5508 §4). The quoted packet has the opposite direction,
/// so its other address is replaced. `t` is the translation of replies to the quoted packet, `outer` the new address of
/// the error itself.
pub(super) fn icmp_error(frame: &mut [u8], offsets: &Offsets, t: &Translation, direction: Direction, outer: u32) {
    let inner = offsets.l4 + ICMP_HEADER_LEN;
    let len = usize::from(frame.get(inner).map_or(0, |b| b & 15)) * 4;
    let protocol = frame.get(inner + 9).copied().unwrap_or(0);
    let quoted = Offsets { ip: inner, l4: inner + len, end: offsets.end, protocol };
    // the other address of the quoted packet is translated
    let opposite = if direction == Direction::Outbound { Direction::Inbound } else { Direction::Outbound };
    let sums = match IpProtocol(protocol) {
        IpProtocol::TCP => quoted.l4 + 18,
        _ => quoted.l4 + 8,
    };
    // the quote may end before the TCP checksum
    if sums <= offsets.end {
        packet(frame, &quoted, t, opposite);
    } else {
        address(frame, &quoted, t, opposite);
        put(frame, quoted.l4 + if opposite == Direction::Outbound { 0 } else { 2 }, &t.port);
    }
    put(frame, offsets.l4 + 2, &[0, 0]);
    if let Some(message) = frame.get(offsets.l4..offsets.end) {
        let sum = checksum::of(message);
        put(frame, offsets.l4 + 2, &sum.to_be_bytes());
    }
    let at = offsets.ip + if direction == Direction::Outbound { 12 } else { 16 };
    let old = frame.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b));
    let sum = u16_at(frame, offsets.ip + 10);
    put(frame, offsets.ip + 10, &checksum::update32(sum, old, outer).to_be_bytes());
    put(frame, at, &outer.to_be_bytes());
}
