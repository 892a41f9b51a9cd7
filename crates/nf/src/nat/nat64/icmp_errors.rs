//! Translation of ICMP errors about packets of sessions.

use super::headers::AddressPair;
use super::icmp::{self, TranslatedError, quoted_packet};
use super::node::{Nat64Node, Nat64Verdict};
use super::parse::{L4, PacketInfo, checksum_ok, parse_l4, parse_quoted};
use crate::nat::drop_reason::DropReason;
use crate::nat::flow::{Direction, Flow};
use packet::Packet;
use std::time::Duration;

impl Nat64Node {
    /// Translates an ICMP error and the packet that it quotes (RFC 7915 §4.2, §5.2).
    #[cold]
    pub(super) fn translate_icmp_error(
        &mut self,
        packet: &mut Packet,
        info: &PacketInfo,
        direction: Direction,
        now: Duration,
    ) -> Nat64Verdict {
        let bytes = &packet.data()[info.l4..info.end];
        // the checksum is recomputed after the translation, so it has to be verified first
        if info.is_fragment() || !checksum_ok(info, bytes) {
            return Nat64Verdict::Drop(DropReason::BadIcmpError);
        }
        let Some(inside) = quoted_packet(info.is_ipv6, bytes) else {
            return Nat64Verdict::Drop(DropReason::BadIcmpError);
        };
        let Some(inner) = parse_quoted(info.is_ipv6, inside) else {
            return Nat64Verdict::Drop(DropReason::BadIcmpError);
        };
        let quoted_l4 = &inside[inner.l4..inside.len().min(inner.end).max(inner.l4)];
        let (src_port, dst_port) = match parse_l4(&inner, quoted_l4, true) {
            L4::Ports { src, dst, .. } => (src, dst),
            L4::Echo { id, reply: false } => (id, 0),
            L4::Echo { id, reply: true } => (0, id),
            _ => return Nat64Verdict::Drop(DropReason::BadIcmpError),
        };
        let rest = u32::from_be_bytes(*bytes[4..].first_chunk().unwrap_or(&[0; 4]));
        let old = (bytes[0], bytes[1], rest);
        let new = match direction {
            Direction::Outbound => icmp::to_icmpv4(old, self.config.mtu),
            Direction::Inbound => icmp::to_icmpv6(old, self.config.mtu, (inner.end - inner.ip) as u16),
        };
        let Some(message) = new else { return Nat64Verdict::Drop(DropReason::UnsupportedProtocol) };
        let prefix = self.config.prefix;
        // replies to the quoted packet have the direction of the error
        let (src, dst) = match direction {
            Direction::Outbound => match self.hosts.get(inner.dst).filter(|_| prefix.contains(inner.src)) {
                Some(host) => (host, prefix.extract(inner.src)),
                None => return Nat64Verdict::Drop(DropReason::UnknownIcmpError),
            },
            Direction::Inbound => (inner.dst as u32, inner.src as u32),
        };
        let answer = Flow { src, dst, src_port: dst_port, dst_port: src_port, protocol: inner.protocol };
        let Some(t) = self.sessions.peek(&answer, direction) else {
            return Nat64Verdict::Drop(DropReason::UnknownIcmpError);
        };
        let hop_limit = info.hop_limit.saturating_sub(1).max(1);
        let (addresses, quoted_addresses, hairpinned) = match direction {
            Direction::Outbound => {
                let (external, remote) = (u128::from(t.address()), u128::from(answer.dst));
                let to = prefix.extract(info.dst).into();
                // a router inside has no IPv4 address, so the error comes from the external address of the host
                (AddressPair { src: external, dst: to }, AddressPair { src: remote, dst: external }, Direction::Inbound)
            }
            Direction::Inbound => {
                let host = self.hosts.address(t.address());
                let addresses = AddressPair { src: prefix.embed(info.src as u32), dst: host };
                (addresses, AddressPair { src: host, dst: prefix.embed(answer.src) }, Direction::Outbound)
            }
        };
        self.id = self.id.wrapping_add(1);
        let translated = TranslatedError {
            message,
            info,
            hop_limit,
            addresses,
            quoted: &inner,
            bytes: inside,
            quoted_addresses,
            port: t.port(),
            direction: hairpinned,
            id: self.id,
        };
        let datagram = translated.packet();
        if !replace(packet, info, &datagram) {
            return Nat64Verdict::Drop(DropReason::NoBuffer);
        }
        match direction {
            Direction::Outbound => self.hairpin(packet, addresses.dst as u32, now),
            Direction::Inbound => Nat64Verdict::Pass,
        }
    }
}

/// Replaces everything after the link header of a frame. Returns false if the buffer is too small.
fn replace(packet: &mut Packet, info: &PacketInfo, datagram: &[u8]) -> bool {
    packet.truncate(info.ip);
    let min_len = 60usize.saturating_sub(info.ip);
    let Some(place) = packet.append(datagram.len().max(min_len)) else { return false };
    place.fill(0);
    place[..datagram.len()].copy_from_slice(datagram);
    let kind = if info.is_ipv6 { wire::EtherType::IPV4 } else { wire::EtherType::IPV6 };
    packet.data_mut()[info.ip - 2..info.ip].copy_from_slice(&kind.0.to_be_bytes());
    true
}
