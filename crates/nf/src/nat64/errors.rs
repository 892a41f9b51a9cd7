//! ICMP errors about packets of sessions.

use super::Reason;
use super::icmp::{self, Translated, quote};
use super::look::{Body, Head, body, quoted, sums_up};
use super::node::{Translating, Verdict};
use super::translate::Ends;
use crate::nat44::flow::{Flow, Way};
use packet::Packet;
use std::time::Duration;

impl Translating {
    /// An ICMP error about a packet of a session: both are translated (RFC 7915 §4.2, §5.2).
    #[cold]
    pub(super) fn error(&mut self, packet: &mut Packet, head: &Head, way: Way, now: Duration) -> Verdict {
        let bytes = &packet.data()[head.upper..head.end];
        // its checksum is made anew, so it has to be right before
        if head.is_part() || !sums_up(head, bytes) {
            return Verdict::Drop(Reason::BadError);
        }
        let Some(inside) = quote(head.six, bytes) else { return Verdict::Drop(Reason::BadError) };
        let Some(inner) = quoted(head.six, inside) else { return Verdict::Drop(Reason::BadError) };
        let about = &inside[inner.upper..inside.len().min(inner.end).max(inner.upper)];
        let (src_port, dst_port) = match body(&inner, about, true) {
            Body::Ports { src, dst, .. } => (src, dst),
            Body::Echo { id, answer: false } => (id, 0),
            Body::Echo { id, answer: true } => (0, id),
            _ => return Verdict::Drop(Reason::BadError),
        };
        let rest = u32::from_be_bytes(*bytes[4..].first_chunk().unwrap_or(&[0; 4]));
        let old = (bytes[0], bytes[1], rest);
        let new = match way {
            Way::Out => icmp::to4(old, self.config.mtu),
            Way::In => icmp::to6(old, self.config.mtu, (inner.end - inner.ip) as u16),
        };
        let Some(message) = new else { return Verdict::Drop(Reason::Protocol) };
        let prefix = self.config.prefix;
        // packets that answer the quoted one go the way of the error
        let (src, dst) = match way {
            Way::Out => match self.hosts.get(inner.dst).filter(|_| prefix.has(inner.src)) {
                Some(host) => (host, prefix.extract(inner.src)),
                None => return Verdict::Drop(Reason::UnknownError),
            },
            Way::In => (inner.dst as u32, inner.src as u32),
        };
        let answer = Flow { src, dst, src_port: dst_port, dst_port: src_port, protocol: inner.protocol };
        let Some(t) = self.sessions.peek(&answer, way) else { return Verdict::Drop(Reason::UnknownError) };
        let hops = head.hops.saturating_sub(1).max(1);
        let (ends, quoted_ends, turned) = match way {
            Way::Out => {
                let (ours, far) = (u128::from(t.address()), u128::from(answer.dst));
                let to = prefix.extract(head.dst).into();
                // a router inside has no address outside: it speaks by that of the host
                (Ends { src: ours, dst: to }, Ends { src: far, dst: ours }, Way::In)
            }
            Way::In => {
                let host = self.hosts.address(t.address());
                let ends = Ends { src: prefix.embed(head.src as u32), dst: host };
                (ends, Ends { src: host, dst: prefix.embed(answer.src) }, Way::Out)
            }
        };
        self.id = self.id.wrapping_add(1);
        let translated = Translated {
            message,
            head,
            hops,
            ends,
            quoted: &inner,
            bytes: inside,
            quoted_ends,
            port: t.port(),
            way: turned,
            id: self.id,
        };
        let whole = translated.packet();
        if !replace(packet, head, &whole) {
            return Verdict::Drop(Reason::NoRoom);
        }
        match way {
            Way::Out => self.turned(packet, ends.dst as u32, now),
            Way::In => Verdict::Pass,
        }
    }
}

/// Puts another packet behind the link header of a frame; false where there is no room.
fn replace(packet: &mut Packet, head: &Head, whole: &[u8]) -> bool {
    packet.truncate(head.ip);
    let least = 60usize.saturating_sub(head.ip);
    let Some(place) = packet.append(whole.len().max(least)) else { return false };
    place.fill(0);
    place[..whole.len()].copy_from_slice(whole);
    let kind = if head.six { wire::EtherType::IPV4 } else { wire::EtherType::IPV6 };
    packet.data_mut()[head.ip - 2..head.ip].copy_from_slice(&kind.0.to_be_bytes());
    true
}
