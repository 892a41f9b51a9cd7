//! Slow path: packets that are checked in full, answered, fragmented, held or dropped.

use super::counters::DropReason;
use super::fib::adjacency::{AdjacencyKind, AdjacencyValue};
use super::fib::{NeighbourKey, interface_of};
use super::fragment;
use super::headers::ETHERNET_LEN;
use super::icmp_errors::IcmpError;
use super::ports::LOCAL;
use super::punt::{PuntTarget, gtsm, is_punted_group};
use super::router::Router;
use graph::Context;
use packet::Packet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::ndp::{self, Neighbor};
use wire::{Arp, EtherType, Ethernet, Icmpv4, Icmpv6, IpProtocol, Ipv4, Ipv6, MacAddr};
use wire::{arp, checksum, ethernet, icmpv4, icmpv6, ipv4, ipv6};

/// Time to live of the router's own packets (RFC 1700).
const TTL: u8 = 64;
/// Source route options (RFC 791 §3.1), whose packets are dropped as RFC 7126 §4.3 advises.
const SOURCE_ROUTE_OPTIONS: [u8; 2] = [131, 137];

/// Decision about a packet.
enum Decision {
    /// Drop it.
    Drop(DropReason),
    /// Drop it and send an ICMP error to its sender.
    DropWithError(DropReason, IcmpError),
    /// Return it to its sender: it has been rewritten into a reply.
    Reply,
    /// Send it to the output for packets to the router itself.
    Local,
    /// Send it to a representor.
    Punt(PuntTarget),
    /// Send it to a neighbour.
    Send(AdjacencyValue),
    /// Send it to a neighbour in fragments.
    SendFragments(AdjacencyValue),
    /// Hold it until the neighbour is resolved.
    Resolve(NeighbourKey),
}

impl Router {
    /// Processes a packet that was received from an interface.
    pub(super) fn slow_path(&mut self, cx: &mut Context<'_>, interface: usize, mut packet: Packet) {
        match self.classify(cx, interface, &mut packet) {
            Decision::Drop(reason) => self.drop(cx, reason, packet),
            Decision::DropWithError(reason, error) => {
                self.send_icmp_error(cx, interface, error, &packet);
                self.drop(cx, reason, packet);
            }
            Decision::Reply => cx.emit(self.config.interfaces[interface].output, packet),
            Decision::Local => cx.emit(LOCAL, packet),
            Decision::Punt(target) => self.punt(cx, target, packet),
            Decision::Resolve(neighbour) => self.resolve_and_hold(cx, neighbour, Some(interface), packet),
            Decision::Send(adjacency) => {
                decrement_ttl(packet.data_mut());
                send(cx, adjacency, packet);
            }
            Decision::SendFragments(adjacency) => {
                decrement_ttl(packet.data_mut());
                let fragments = fragment::fragments(packet.data(), adjacency.mtu());
                let reason = self.send_fragments(cx, adjacency, &fragments);
                self.drop(cx, reason, packet);
            }
        }
    }

    /// Sends the fragments of a packet and returns the reason for dropping the packet itself. Stops at the first
    /// fragment without a buffer, as the receiver could not reassemble the rest.
    fn send_fragments(&mut self, cx: &mut Context<'_>, adjacency: AdjacencyValue, fragments: &[Vec<u8>]) -> DropReason {
        if fragments.is_empty() {
            return DropReason::MalformedIp;
        }
        for fragment in fragments {
            let Some(fragment) = self.alloc_frame(cx, fragment) else { return DropReason::NoFragmentBuffer };
            send(cx, adjacency, fragment);
        }
        DropReason::Fragmented
    }

    fn classify(&mut self, cx: &mut Context<'_>, interface: usize, packet: &mut Packet) -> Decision {
        let Ok(frame) = ethernet::Frame::new(packet.data()) else {
            return Decision::Drop(DropReason::MalformedEthernet);
        };
        let dst = frame.header().dst();
        if dst.is_unicast() && dst != self.config.interfaces[interface].mac {
            return Decision::Drop(DropReason::OtherMac);
        }
        match frame.header().ether_type() {
            EtherType::ARP => self.arp(cx, interface, packet),
            EtherType::IPV4 => self.ipv4(interface, packet, !dst.is_unicast()),
            EtherType::IPV6 => self.ipv6(cx, interface, packet, !dst.is_unicast()),
            _ => Decision::Drop(DropReason::NotIp),
        }
    }

    /// Processes an ARP message (RFC 826).
    fn arp(&mut self, cx: &mut Context<'_>, interface: usize, packet: &mut Packet) -> Decision {
        let bytes = packet.data().get(ETHERNET_LEN..).unwrap_or_default();
        let Ok(message) = arp::Packet::new(bytes).and_then(|p| arp::Repr::parse(&p)) else {
            return Decision::Drop(DropReason::MalformedArp);
        };
        // a group is not the address of a host (RFC 1812 §3.3.2)
        if !message.sender_mac.is_unicast() {
            return Decision::Drop(DropReason::MalformedArp);
        }
        let own = self.config.interfaces[interface].clone();
        let to_router = own.v4.iter().any(|(a, _)| *a == message.target_ip);
        self.learn_neighbour(cx, interface, message.sender_ip.into(), message.sender_mac, to_router);
        let is_gratuitous = message.sender_ip == message.target_ip;
        if message.operation == arp::Operation::Reply || is_gratuitous {
            self.punt_copy(cx, interface, packet.data());
        }
        if message.operation != arp::Operation::Request || !to_router {
            return Decision::Drop(DropReason::Consumed);
        }
        let reply = message.reply(own.mac);
        let frame = packet.data_mut();
        let Some((link, payload)) = frame.split_first_chunk_mut::<ETHERNET_LEN>() else {
            return Decision::Drop(DropReason::MalformedEthernet);
        };
        if reply.emit(payload).is_err() {
            return Decision::Drop(DropReason::MalformedArp);
        }
        let header = ethernet::Repr { src: own.mac, dst: message.sender_mac, ether_type: EtherType::ARP };
        if header.emit(link).is_err() {
            return Decision::Drop(DropReason::MalformedEthernet);
        }
        packet.truncate((ETHERNET_LEN + size_of::<Arp>()).max(60));
        Decision::Reply
    }

    /// Returns true if another MAC address of a neighbour is known.
    fn is_known_otherwise(&self, interface: usize, neighbour: Ipv6Addr, mac: MacAddr) -> bool {
        let known = self.fib.control().neighbour((interface, neighbour.into()));
        known.and_then(|(_, known)| known).is_some_and(|known| known != mac)
    }

    fn learn_neighbour(
        &mut self,
        cx: &mut Context<'_>,
        interface: usize,
        address: IpAddr,
        mac: MacAddr,
        to_router: bool,
    ) {
        let now = cx.now();
        self.fib.control().learn(&self.fib, &self.config.interfaces, (interface, address), mac, to_router, now);
        self.poll_neighbours(cx);
    }

    /// Processes an IPv4 packet (RFC 1812 §5.2, §5.3).
    fn ipv4(&mut self, interface: usize, packet: &mut Packet, link_broadcast: bool) -> Decision {
        let frame = packet.data();
        let Ok(ip) = ipv4::Packet::new(&frame[ETHERNET_LEN..]) else { return Decision::Drop(DropReason::MalformedIp) };
        if !ip.checksum_ok() {
            return Decision::Drop(DropReason::BadChecksum);
        }
        let (src, dst) = (ip.header().src(), ip.header().dst());
        // a host without an address may send to the router itself
        let first = src.octets()[0];
        if first == 127 || first >= 224 || first == 0 && !src.is_unspecified() {
            return Decision::Drop(DropReason::Martian);
        }
        if dst.is_broadcast() || dst.is_multicast() {
            return self.deliver(interface, dst.into());
        }
        let size = usize::from(ip.header().total_length());
        let (ttl, dont_fragment) = (ip.header().ttl(), ip.header().dont_fragment());
        let source_routed = ip.header_bytes().get(size_of::<Ipv4>()..).is_some_and(has_source_route);
        let value = self.route4(self.fib.vrf_of(interface), dst.to_bits(), frame);
        let adjacency = self.fib.adjacency(value).load();
        match () {
            () if link_broadcast => return Decision::Drop(DropReason::LinkBroadcast),
            () if adjacency.kind() == AdjacencyKind::Local => return self.receive_ipv4(interface, packet),
            () if src.is_unspecified() => return Decision::Drop(DropReason::Martian),
            () if is_dropped_silently(adjacency.kind()) => {}
            () if ttl <= 1 => return Decision::DropWithError(DropReason::TtlExpired, IcmpError::TimeExceeded),
            () if source_routed => return Decision::Drop(DropReason::SourceRoute),
            () => {}
        }
        match adjacency.kind() {
            AdjacencyKind::Resolved if size <= adjacency.mtu() => Decision::Send(adjacency),
            AdjacencyKind::Resolved if dont_fragment => {
                Decision::DropWithError(DropReason::TooBig, IcmpError::TooBig { mtu: adjacency.mtu() })
            }
            AdjacencyKind::Resolved => Decision::SendFragments(adjacency),
            _ => self.decide_unresolved(value, adjacency, dst.into()),
        }
    }

    /// Processes an IPv6 packet (RFC 8200, RFC 4291).
    fn ipv6(&mut self, cx: &mut Context<'_>, interface: usize, packet: &mut Packet, link_multicast: bool) -> Decision {
        let frame = packet.data();
        let Ok(ip) = ipv6::Packet::new(&frame[ETHERNET_LEN..]) else { return Decision::Drop(DropReason::MalformedIp) };
        let (src, dst) = (ip.header().src(), ip.header().dst());
        if src.is_multicast() || src.is_loopback() {
            return Decision::Drop(DropReason::Martian);
        }
        let size = size_of::<Ipv6>() + usize::from(ip.header().payload_length());
        let hop_limit = ip.header().hop_limit();
        let is_own = self.config.interfaces[interface].has(dst.into());
        if dst.is_multicast() || is_own && !link_multicast {
            return self.receive_ipv6(cx, interface, packet);
        }
        let value = self.route6(self.fib.vrf_of(interface), dst.to_bits(), frame);
        let adjacency = self.fib.adjacency(value).load();
        match () {
            () if link_multicast => return Decision::Drop(DropReason::LinkBroadcast),
            // an address of another link
            () if dst.is_unicast_link_local() => return Decision::Drop(DropReason::Martian),
            () if adjacency.kind() == AdjacencyKind::Local => return self.receive_ipv6(cx, interface, packet),
            // neither may leave its link (RFC 4291 §2.5.2, §2.5.6)
            () if src.is_unspecified() || src.is_unicast_link_local() => return Decision::Drop(DropReason::Martian),
            () if is_dropped_silently(adjacency.kind()) => {}
            () if hop_limit <= 1 => return Decision::DropWithError(DropReason::TtlExpired, IcmpError::TimeExceeded),
            () => {}
        }
        match adjacency.kind() {
            AdjacencyKind::Resolved if size <= adjacency.mtu() => Decision::Send(adjacency),
            AdjacencyKind::Resolved => {
                Decision::DropWithError(DropReason::TooBig, IcmpError::TooBig { mtu: adjacency.mtu() })
            }
            _ => self.decide_unresolved(value, adjacency, dst.into()),
        }
    }

    /// Decides about a packet whose adjacency is not a resolved neighbour.
    fn decide_unresolved(&self, value: u32, adjacency: AdjacencyValue, dst: IpAddr) -> Decision {
        match adjacency.kind() {
            AdjacencyKind::Connected => Decision::Resolve((interface_of(value), dst)),
            AdjacencyKind::Unresolved => match self.fib.control().key_of(value) {
                Some(neighbour) => Decision::Resolve(neighbour),
                None => Decision::DropWithError(DropReason::NeighbourUnresolved, IcmpError::HostUnreachable),
            },
            AdjacencyKind::Unreachable => Decision::DropWithError(DropReason::Unreachable, IcmpError::NoRoute),
            AdjacencyKind::Prohibited => Decision::DropWithError(DropReason::Prohibited, IcmpError::Prohibited),
            AdjacencyKind::Blackhole => Decision::Drop(DropReason::Blackhole),
            AdjacencyKind::Martian => Decision::Drop(DropReason::Martian),
            AdjacencyKind::Broadcast => Decision::Drop(DropReason::DirectedBroadcast),
            AdjacencyKind::NoRoute | AdjacencyKind::Resolved | AdjacencyKind::Group | AdjacencyKind::Local => {
                Decision::DropWithError(DropReason::NoRoute, IcmpError::NoRoute)
            }
        }
    }

    /// Decides about a packet to the router that the router does not process itself.
    fn deliver(&self, interface: usize, dst: IpAddr) -> Decision {
        let is_group = dst.is_multicast() || matches!(dst, IpAddr::V4(dst) if dst.is_broadcast());
        match self.config.punt_target(interface, dst) {
            Some(target) if !is_group || is_punted_group(dst) => Decision::Punt(target),
            None if !is_group => Decision::Local,
            _ => Decision::Drop(DropReason::Multicast),
        }
    }

    /// Processes an IPv4 packet to the router.
    fn receive_ipv4(&self, interface: usize, packet: &mut Packet) -> Decision {
        let frame = packet.data();
        let Ok(ip) = ipv4::Packet::new(&frame[ETHERNET_LEN..]) else { return Decision::Drop(DropReason::MalformedIp) };
        if gtsm::is_forwarded(frame) {
            return Decision::Drop(DropReason::Gtsm);
        }
        match self.deliver(interface, ip.header().dst().into()) {
            Decision::Local => self.reply_to_echo4(interface, packet),
            decision => decision,
        }
    }

    /// Rewrites an echo request into the reply (RFC 1812 §4.3.3.6).
    fn reply_to_echo4(&self, interface: usize, packet: &mut Packet) -> Decision {
        let frame = packet.data_mut();
        let Some((link, packet)) = frame.split_first_chunk_mut::<ETHERNET_LEN>() else { return Decision::Local };
        let Ok(ip) = ipv4::Packet::new(packet) else { return Decision::Drop(DropReason::MalformedIp) };
        let (header_len, total_len) = (ip.header_bytes().len(), ip.bytes().len());
        let is_echo_request = ip.header().protocol() == IpProtocol::ICMPV4
            && !ip.header().is_fragment()
            && icmpv4::Message::new(ip.payload())
                .is_ok_and(|m| m.header().kind() == Icmpv4::ECHO_REQUEST && m.checksum_ok());
        if !is_echo_request || ip.header().src().is_unspecified() {
            return Decision::Local;
        }
        let (header, message) = packet[..total_len].split_at_mut(header_len);
        message[0] = Icmpv4::ECHO_REPLY;
        let sum = u16::from_be_bytes([message[2], message[3]]);
        let old = u16::from_be_bytes([Icmpv4::ECHO_REQUEST, 0]);
        message[2..4].copy_from_slice(&checksum::update16(sum, old, 0).to_be_bytes());
        if let Ok((ip, _)) = <Ipv4 as zerocopy::FromBytes>::mut_from_prefix(header) {
            ip.swap_addrs();
            ip.set_ttl(TTL);
            ip.set_checksum(0);
        }
        let sum = checksum::of(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        self.return_to_sender(interface, link);
        Decision::Reply
    }

    /// Processes an IPv6 packet to the router: neighbor discovery (RFC 4861 §7.2) and echo (RFC 4443 §4.1).
    fn receive_ipv6(&mut self, cx: &mut Context<'_>, interface: usize, packet: &mut Packet) -> Decision {
        let own = self.config.interfaces[interface].clone();
        let frame = packet.data();
        let Ok(ip) = ipv6::Packet::new(&frame[ETHERNET_LEN..]) else { return Decision::Drop(DropReason::MalformedIp) };
        let (src, dst) = (ip.header().src(), ip.header().dst());
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        if gtsm::is_forwarded(frame) {
            return Decision::Drop(DropReason::Gtsm);
        }
        let other = self.deliver(interface, dst.into());
        let Ok(message) = icmpv6::Message::new(ip.payload()) else { return other };
        if ip.header().next_header() != IpProtocol::ICMPV6 {
            return other;
        }
        if !message.checksum_ok(ip.pseudo()) {
            return Decision::Drop(DropReason::BadChecksum);
        }
        if ndp::is_neighbor(message.header()) {
            let Some(neighbor) = Neighbor::parse(&message).ok().filter(|neighbor| is_valid(neighbor, src, dst)) else {
                return Decision::Drop(DropReason::MalformedIp);
            };
            return match neighbor {
                Neighbor::Solicitation { target, source_mac } => {
                    if !own.has(target.into()) {
                        return Decision::Drop(DropReason::Consumed);
                    }
                    let frame_src = ethernet::Frame::new(frame).map_or(MacAddr::BROADCAST, |f| f.header().src());
                    let mac = source_mac.unwrap_or(frame_src);
                    if !src.is_unspecified() {
                        self.learn_neighbour(cx, interface, src.into(), mac, true);
                    }
                    let (to, mac, flags) = match src.is_unspecified() {
                        true => (all_nodes, ndp::multicast_mac(all_nodes), ndp::ROUTER | ndp::OVERRIDE),
                        false => (src, mac, ndp::ROUTER | ndp::SOLICITED | ndp::OVERRIDE),
                    };
                    let advertisement = Neighbor::Advertisement { target, flags, target_mac: Some(own.mac) };
                    let reply = advertisement.frame((own.mac, mac), target, to);
                    if let Some(reply) = self.alloc_frame(cx, &reply) {
                        cx.emit(own.output, reply);
                    }
                    Decision::Drop(DropReason::Consumed)
                }
                Neighbor::Advertisement { target, flags, target_mac } => {
                    match target_mac {
                        Some(mac) if flags & ndp::OVERRIDE != 0 || !self.is_known_otherwise(interface, target, mac) => {
                            self.learn_neighbour(cx, interface, target.into(), mac, false);
                        }
                        // such as that of a proxy (RFC 4861 §7.2.5)
                        Some(_) => {}
                        // the answer to a unicast solicitation may omit the MAC address (RFC 4861 §7.2.4)
                        None if flags & ndp::SOLICITED != 0 => {
                            self.fib.control().confirm_reachable((interface, target.into()), cx.now());
                        }
                        None => {}
                    }
                    self.punt_copy(cx, interface, frame);
                    Decision::Drop(DropReason::Consumed)
                }
            };
        }
        let is_echo_request = message.header().kind() == Icmpv6::ECHO_REQUEST;
        if !is_echo_request || src.is_unspecified() || !matches!(other, Decision::Local) {
            return other;
        }
        let (header_len, total_len) = (ip.header_bytes().len(), ip.bytes().len());
        let Some((link, packet)) = packet.data_mut().split_first_chunk_mut::<ETHERNET_LEN>() else {
            return Decision::Local;
        };
        let (header, message) = packet[..total_len].split_at_mut(header_len);
        let sum = u16::from_be_bytes([message[2], message[3]]);
        let (old, new) = ([Icmpv6::ECHO_REQUEST, 0], [Icmpv6::ECHO_REPLY, 0]);
        let sum = checksum::update16(sum, u16::from_be_bytes(old), u16::from_be_bytes(new));
        message[0] = Icmpv6::ECHO_REPLY;
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        if let Ok((ip, _)) = <Ipv6 as zerocopy::FromBytes>::mut_from_prefix(header) {
            ip.swap_addrs();
            ip.set_hop_limit(TTL);
        }
        self.return_to_sender(interface, link);
        Decision::Reply
    }

    /// Addresses a frame to its sender.
    fn return_to_sender(&self, interface: usize, link: &mut [u8; ETHERNET_LEN]) {
        if let Ok((link, _)) = <Ethernet as zerocopy::FromBytes>::mut_from_prefix(link) {
            link.set_dst(link.src());
            link.set_src(self.config.interfaces[interface].mac);
        }
    }

    /// Sends a packet of the router itself by the route to its destination.
    pub(super) fn originate(&mut self, cx: &mut Context<'_>, vrf: usize, packet: Packet) {
        let frame = packet.data();
        let (value, dst): (u32, IpAddr) = if let Ok(ip) = ipv4::Packet::new(&frame[ETHERNET_LEN..]) {
            let dst: Ipv4Addr = ip.header().dst();
            (self.route4(vrf, dst.to_bits(), frame), dst.into())
        } else if let Ok(ip) = ipv6::Packet::new(&frame[ETHERNET_LEN..]) {
            let dst: Ipv6Addr = ip.header().dst();
            (self.route6(vrf, dst.to_bits(), frame), dst.into())
        } else {
            return self.drop(cx, DropReason::MalformedIp, packet);
        };
        let adjacency = self.fib.adjacency(value).load();
        if adjacency.is_resolved() {
            return match packet.len() - ETHERNET_LEN > adjacency.mtu() {
                true => self.drop(cx, DropReason::TooBig, packet),
                false => send(cx, adjacency, packet),
            };
        }
        match self.decide_unresolved(value, adjacency, dst) {
            Decision::Resolve(neighbour) => self.resolve_and_hold(cx, neighbour, None, packet),
            _ => self.drop(cx, DropReason::NoRoute, packet),
        }
    }

    /// Drops a packet whose neighbour was not resolved, with an ICMP error if it was received from an interface.
    pub(super) fn fail_resolution(&mut self, cx: &mut Context<'_>, received_from: Option<usize>, packet: Packet) {
        if let Some(interface) = received_from {
            self.send_icmp_error(cx, interface, IcmpError::HostUnreachable, &packet);
        }
        self.drop(cx, DropReason::NeighbourUnresolved, packet);
    }
}

/// Returns true if a message is valid apart from its format (RFC 4861 §7.1.1, §7.1.2).
fn is_valid(neighbor: &Neighbor, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
    match *neighbor {
        Neighbor::Solicitation { target, source_mac } if src.is_unspecified() => {
            source_mac.is_none() && dst == ndp::solicited_node(target)
        }
        Neighbor::Solicitation { source_mac, .. } => source_mac.is_none_or(MacAddr::is_unicast),
        Neighbor::Advertisement { flags, target_mac, .. } => {
            (!dst.is_multicast() || flags & ndp::SOLICITED == 0) && target_mac.is_none_or(MacAddr::is_unicast)
        }
    }
}

/// Returns true if packets with an adjacency are dropped without an ICMP error, also with an expired time to live: the
/// destination is a broadcast address or not to be forwarded to (RFC 1812 §4.3.2.7), or the route says so.
fn is_dropped_silently(kind: AdjacencyKind) -> bool {
    matches!(kind, AdjacencyKind::Blackhole | AdjacencyKind::Martian | AdjacencyKind::Broadcast)
}

/// Returns true if a list of options contains a source route.
fn has_source_route(mut options: &[u8]) -> bool {
    while let [option_type, after @ ..] = options {
        match option_type {
            0 => return false,
            1 => options = after,
            option_type if SOURCE_ROUTE_OPTIONS.contains(option_type) => return true,
            _ => match after.first() {
                Some(len) if *len >= 2 => options = options.get(usize::from(*len)..).unwrap_or_default(),
                _ => return false,
            },
        }
    }
    false
}

/// Decrements the time to live or hop limit.
fn decrement_ttl(frame: &mut [u8]) {
    let Some((link, packet)) = frame.split_first_chunk_mut::<ETHERNET_LEN>() else { return };
    if link.ends_with(&EtherType::IPV4.0.to_be_bytes()) {
        if let Ok((ip, _)) = <Ipv4 as zerocopy::FromBytes>::mut_from_prefix(packet) {
            ip.decrement_ttl();
        }
    } else if let Ok((ip, _)) = <Ipv6 as zerocopy::FromBytes>::mut_from_prefix(packet) {
        ip.decrement_hop_limit();
    }
}

/// Sends a packet to a resolved neighbour.
fn send(cx: &mut Context<'_>, adjacency: AdjacencyValue, mut packet: Packet) {
    if let Some(addresses) = packet.data_mut().first_chunk_mut() {
        adjacency.rewrite(addresses);
    }
    cx.emit(adjacency.output(), packet);
}
