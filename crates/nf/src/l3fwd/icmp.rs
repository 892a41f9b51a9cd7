//! Telling senders what cannot be delivered (RFC 1812 §4.3.3, RFC 4443 §3).

use super::forward::{LINK, Router};
use graph::Context;
use packet::Packet;
use std::time::Duration;
use wire::{EtherType, Ethernet, IpProtocol, build, ethernet, icmpv4, icmpv6, ipv4, ipv6};

/// Bytes of an ICMP error over IPv4 at most (RFC 1812 §4.3.2.3).
const LARGEST4: usize = 576;
/// Bytes of an ICMPv6 error at most (RFC 4443 §2.4).
const LARGEST6: usize = 1280;
/// Code point of internetwork control (RFC 1812 §4.3.2.5).
const CS6: u8 = 48;

/// What is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Error {
    /// Its time to live has ended.
    TimeExceeded,
    /// It is longer than what the next link takes.
    TooBig { mtu: usize },
    /// There is no route.
    NoRoute,
    /// The neighbour does not answer.
    HostUnreachable,
}

/// How many messages may be sent: so many a second, saved up for one second at most.
pub(crate) struct Limiter {
    rate: u32,
    /// Messages that may be sent now, in billionths.
    saved: u64,
    at: Duration,
}

impl Limiter {
    pub(crate) fn new(rate: u32) -> Self {
        Limiter { rate, saved: u64::from(rate) * 1_000_000_000, at: Duration::ZERO }
    }

    pub(crate) fn allows(&mut self, now: Duration) -> bool {
        const ONE: u64 = 1_000_000_000;
        let most = u64::from(self.rate) * ONE;
        let since = now.saturating_sub(self.at).min(Duration::from_secs(1));
        self.at = now;
        self.saved = (self.saved + since.as_nanos() as u64 * u64::from(self.rate)).min(most);
        let allowed = self.saved >= ONE;
        if allowed {
            self.saved -= ONE;
        }
        allowed
    }
}

impl Router {
    /// Tells the sender of a packet, which came by the interface `face` and is as it came, unless it is one of those of
    /// which nothing is told.
    pub(super) fn tell(&mut self, cx: &mut Context<'_>, face: usize, error: Error, packet: &Packet) {
        let Some(answer) = self.message(face, error, packet.data()) else { return };
        if !self.icmp.allows(cx.now()) {
            return self.counts.icmp_limited.add(1);
        }
        if let Some(answer) = self.make(cx, &answer) {
            self.counts.icmp_sent.add(1);
            self.send_own(cx, answer);
        }
    }

    fn message(&self, face: usize, error: Error, frame: &[u8]) -> Option<Vec<u8>> {
        let link = ethernet::Frame::new(frame).ok()?;
        if !link.header().dst().is_unicast() {
            return None;
        }
        match link.header().ether_type() {
            EtherType::IPV4 => self.message4(face, error, frame.get(LINK..)?),
            EtherType::IPV6 => self.message6(face, error, frame.get(LINK..)?),
            _ => None,
        }
    }

    /// RFC 1812 §4.3.2.7.
    fn message4(&self, face: usize, error: Error, packet: &[u8]) -> Option<Vec<u8>> {
        let ip = ipv4::Packet::new(packet).ok()?;
        let h = ip.header();
        let (src, dst) = (h.src(), h.dst());
        let about_error = h.protocol() == IpProtocol::ICMPV4
            && icmpv4::Message::new(ip.payload()).is_ok_and(|m| m.header().is_error());
        let nobody = src.is_unspecified() || src.is_loopback() || src.is_multicast() || src.is_broadcast();
        if about_error || h.is_later_fragment() || nobody || dst.is_multicast() || dst.is_broadcast() {
            return None;
        }
        let from = self.config.faces[face].source4(src)?;
        let repr = match error {
            Error::TimeExceeded => icmpv4::Repr::TimeExceeded { code: 0 },
            Error::TooBig { mtu } => icmpv4::Repr::FragmentationNeeded { mtu: mtu as u16 },
            Error::NoRoute => icmpv4::Repr::DestUnreachable { code: 0 },
            Error::HostUnreachable => icmpv4::Repr::DestUnreachable { code: 1 },
        };
        let quoted = ip.bytes();
        let quoted = &quoted[..quoted.len().min(LARGEST4 - 28)];
        Some(build::icmp4(from, src, repr).payload(quoted).dscp(CS6).ttl(64).pad_to(60).to_vec())
    }

    /// RFC 4443 §2.4 (e).
    fn message6(&self, face: usize, error: Error, packet: &[u8]) -> Option<Vec<u8>> {
        let ip = ipv6::Packet::new(packet).ok()?;
        let (src, dst) = (ip.header().src(), ip.header().dst());
        let (protocol, later) = ip.upper();
        let about_error = protocol == IpProtocol::ICMPV6
            && !later
            && icmpv6::Message::new(ip.payload()).is_ok_and(|m| m.header().is_error() || m.header().kind() == 137);
        let to_group = dst.is_multicast() && !matches!(error, Error::TooBig { .. });
        if about_error || src.is_unspecified() || src.is_multicast() || to_group {
            return None;
        }
        let from = self.config.faces[face].source6(src);
        let repr = match error {
            Error::TimeExceeded => icmpv6::Repr::TimeExceeded { code: 0 },
            Error::TooBig { mtu } => icmpv6::Repr::PacketTooBig { mtu: mtu as u32 },
            Error::NoRoute => icmpv6::Repr::DestUnreachable { code: 0 },
            Error::HostUnreachable => icmpv6::Repr::DestUnreachable { code: 3 },
        };
        let quoted = ip.bytes();
        let quoted = &quoted[..quoted.len().min(LARGEST6 - 48)];
        Some(build::icmp6(from, src, repr).payload(quoted).traffic_class(CS6 << 2).ttl(64).to_vec())
    }
}

const _: () = assert!(LINK == size_of::<Ethernet>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saves_up_for_one_second() {
        let mut limiter = Limiter::new(10);
        let sent = |l: &mut Limiter, ms: u64| (0..100).filter(|_| l.allows(Duration::from_millis(ms))).count();
        assert_eq!(sent(&mut limiter, 0), 10);
        assert_eq!(sent(&mut limiter, 100), 1);
        assert_eq!(sent(&mut limiter, 600), 5);
        assert_eq!(sent(&mut limiter, 60_000), 10);
        assert_eq!(sent(&mut limiter, 50_000), 0, "time that goes back gives nothing");
    }
}
