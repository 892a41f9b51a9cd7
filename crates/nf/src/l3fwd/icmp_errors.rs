//! ICMP errors to the senders of undeliverable packets (RFC 1812 §4.3.3, RFC 4443 §3).

use super::counters::CounterId;
use super::headers::ETHERNET_LEN;
use super::router::Router;
use graph::Context;
use packet::Packet;
use wire::{EtherType, IpProtocol, build, ethernet, icmpv4, icmpv6, ipv4, ipv6};

/// Maximum length of an ICMP error over IPv4 in bytes (RFC 1812 §4.3.2.3).
const ICMPV4_ERROR_MAX: usize = 576;
/// Maximum length of an ICMPv6 error in bytes (RFC 4443 §2.4).
const ICMPV6_ERROR_MAX: usize = 1280;
/// DSCP of internetwork control (RFC 1812 §4.3.2.5).
const CS6: u8 = 48;

/// Error that is reported to a sender.
#[derive(Clone, Copy, Debug)]
pub(super) enum IcmpError {
    /// The time to live has expired.
    TimeExceeded,
    /// The packet is longer than the MTU of the next link.
    TooBig { mtu: usize },
    /// No route matches.
    NoRoute,
    /// The neighbour is not reachable.
    HostUnreachable,
    /// A route prohibits it.
    Prohibited,
}

impl Router {
    /// Sends an error to the sender of a packet, which was received from `interface` and is unchanged, unless the
    /// packet is one about which no errors are sent or the rate limit is reached. The source is an address of the
    /// interface, which a traceroute then shows, or else of another one with the same control plane.
    pub(super) fn send_icmp_error(
        &mut self,
        cx: &mut Context<'_>,
        interface: usize,
        error: IcmpError,
        packet: &Packet,
    ) {
        let Some(message) = self.message(interface, error, packet.data()) else { return };
        if !self.icmp.take(1, cx.now()) {
            return self.counters[CounterId::IcmpRateLimited].add(1);
        }
        if let Some(packet) = self.alloc_frame(cx, &message) {
            self.counters[CounterId::IcmpSent].add(1);
            self.originate(cx, self.fib.vrf_of(interface), packet);
        }
    }

    fn message(&self, interface: usize, error: IcmpError, frame: &[u8]) -> Option<Vec<u8>> {
        let link = ethernet::Frame::new(frame).ok()?;
        if !link.header().dst().is_unicast() {
            return None;
        }
        match link.header().ether_type() {
            EtherType::IPV4 => self.message4(interface, error, frame.get(ETHERNET_LEN..)?),
            EtherType::IPV6 => self.message6(interface, error, frame.get(ETHERNET_LEN..)?),
            _ => None,
        }
    }

    /// Builds an ICMP error, unless RFC 1812 §4.3.2.7 forbids one.
    fn message4(&self, interface: usize, error: IcmpError, packet: &[u8]) -> Option<Vec<u8>> {
        let ip = ipv4::Packet::new(packet).ok()?;
        let h = ip.header();
        let (src, dst) = (h.src(), h.dst());
        let is_error = h.protocol() == IpProtocol::ICMPV4
            && icmpv4::Message::new(ip.payload()).is_ok_and(|m| m.header().is_error());
        let not_a_host = src.is_unspecified() || src.is_loopback() || src.is_multicast() || src.is_broadcast();
        if is_error || h.is_later_fragment() || not_a_host || dst.is_multicast() || dst.is_broadcast() {
            return None;
        }
        let own = &self.config.interfaces[interface];
        let other = || self.config.control_plane_of(interface).find_map(|other| other.v4.first());
        let from = own.source4(src).or_else(|| other().map(|(address, _)| *address))?;
        let repr = match error {
            IcmpError::TimeExceeded => icmpv4::Repr::TimeExceeded { code: 0 },
            IcmpError::TooBig { mtu } => icmpv4::Repr::FragmentationNeeded { mtu: mtu as u16 },
            IcmpError::NoRoute => icmpv4::Repr::DestUnreachable { code: 0 },
            IcmpError::HostUnreachable => icmpv4::Repr::DestUnreachable { code: 1 },
            IcmpError::Prohibited => icmpv4::Repr::DestUnreachable { code: 13 },
        };
        let quoted = ip.bytes();
        let quoted = &quoted[..quoted.len().min(ICMPV4_ERROR_MAX.min(own.mtu.into()) - 28)];
        Some(build::icmp4(from, src, repr).payload(quoted).dscp(CS6).ttl(64).pad_to(60).to_vec())
    }

    /// Builds an ICMPv6 error, unless RFC 4443 §2.4 (e) forbids one.
    fn message6(&self, interface: usize, error: IcmpError, packet: &[u8]) -> Option<Vec<u8>> {
        let ip = ipv6::Packet::new(packet).ok()?;
        let (src, dst) = (ip.header().src(), ip.header().dst());
        let (protocol, is_later_fragment) = ip.upper();
        let is_error = protocol == IpProtocol::ICMPV6
            && !is_later_fragment
            && icmpv6::Message::new(ip.payload()).is_ok_and(|m| m.header().is_error() || m.header().kind() == 137);
        let to_group = dst.is_multicast() && !matches!(error, IcmpError::TooBig { .. });
        if is_error || src.is_unspecified() || src.is_multicast() || to_group {
            return None;
        }
        let own = &self.config.interfaces[interface];
        // a link-local source would not leave the link
        let other = || self.config.control_plane_of(interface).find_map(|other| other.v6.first());
        let other = if own.v6.is_empty() { other() } else { None };
        let from = other.map_or_else(|| own.source6(src), |(address, _)| *address);
        let repr = match error {
            IcmpError::TimeExceeded => icmpv6::Repr::TimeExceeded { code: 0 },
            IcmpError::TooBig { mtu } => icmpv6::Repr::PacketTooBig { mtu: mtu as u32 },
            IcmpError::NoRoute => icmpv6::Repr::DestUnreachable { code: 0 },
            IcmpError::HostUnreachable => icmpv6::Repr::DestUnreachable { code: 3 },
            IcmpError::Prohibited => icmpv6::Repr::DestUnreachable { code: 1 },
        };
        let quoted = ip.bytes();
        let quoted = &quoted[..quoted.len().min(ICMPV6_ERROR_MAX.min(own.mtu.into()) - 48)];
        Some(build::icmp6(from, src, repr).payload(quoted).traffic_class(CS6 << 2).ttl(64).to_vec())
    }
}
