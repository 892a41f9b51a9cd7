//! Packets that need more than a rewrite: checked in full, answered, held, refused.

use super::adjacency::{Kind, Seen};
use super::forward::{LINK, Reason, Router};
use super::fragment;
use super::icmp::Error;
use graph::Context;
use packet::Packet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::ndp::{self, Neighbor};
use wire::{Arp, EtherType, Ethernet, Icmpv4, Icmpv6, IpProtocol, Ipv4, Ipv6, MacAddr};
use wire::{arp, checksum, ethernet, icmpv4, icmpv6, ipv4, ipv6};

/// Time to live of the router's own packets (RFC 1700).
const TTL: u8 = 64;
/// Output of packets to the router itself.
const LOCAL: u8 = 0;
/// Options by which the sender prescribes the way (RFC 791 §3.1), refused as RFC 7126 §4.3 advises.
const SOURCE_ROUTES: [u8; 2] = [131, 137];

/// What the closer look has found.
enum Found {
    /// A reason to drop it.
    Refuse(Reason),
    /// A reason to drop it and to tell the sender.
    Tell(Reason, Error),
    /// It has been turned into an answer to who sent it.
    Answer,
    /// It is for the router itself.
    Local,
    /// It goes to a neighbour, whose adjacency this is.
    Send(Seen),
    /// As `Send`, in pieces.
    SendInPieces(Seen),
    /// It waits for a neighbour.
    Wait((usize, IpAddr)),
}

impl Router {
    /// Does what has to be done with a packet that came by the interface `face`.
    pub(super) fn closer(&mut self, cx: &mut Context<'_>, face: usize, mut packet: Packet) {
        match self.look(cx, face, &mut packet) {
            Found::Refuse(reason) => self.drop(cx, reason, packet),
            Found::Tell(reason, error) => {
                self.tell(cx, face, error, &packet);
                self.drop(cx, reason, packet);
            }
            Found::Answer => cx.emit(face as u8 + 1, packet),
            Found::Local => cx.emit(LOCAL, packet),
            Found::Wait(who) => self.wait(cx, who, Some(face), packet),
            Found::Send(seen) => {
                age(packet.data_mut());
                send(cx, seen, packet);
            }
            Found::SendInPieces(seen) => {
                age(packet.data_mut());
                let reason = self.send_pieces(cx, seen, &fragment::pieces(packet.data(), seen.mtu()));
                self.drop(cx, reason, packet);
            }
        }
    }

    /// Sends the pieces of a packet, and says what has become of it. Behind a piece for which there is no buffer it sends
    /// none: nobody could put them together.
    fn send_pieces(&mut self, cx: &mut Context<'_>, seen: Seen, pieces: &[Vec<u8>]) -> Reason {
        if pieces.is_empty() {
            return Reason::MalformedIp;
        }
        for piece in pieces {
            let Some(piece) = self.make(cx, piece) else { return Reason::NoFragmentBuffer };
            send(cx, seen, piece);
        }
        Reason::Fragmented
    }

    fn look(&mut self, cx: &mut Context<'_>, face: usize, packet: &mut Packet) -> Found {
        let Ok(frame) = ethernet::Frame::new(packet.data()) else { return Found::Refuse(Reason::MalformedEthernet) };
        let dst = frame.header().dst();
        if dst.is_unicast() && dst != self.config.faces[face].mac {
            return Found::Refuse(Reason::OtherMac);
        }
        match frame.header().ether_type() {
            EtherType::ARP => self.arp(cx, face, packet),
            EtherType::IPV4 => self.ipv4(face, packet, !dst.is_unicast()),
            EtherType::IPV6 => self.ipv6(cx, face, packet, !dst.is_unicast()),
            _ => Found::Refuse(Reason::NotIp),
        }
    }

    /// RFC 826.
    fn arp(&mut self, cx: &mut Context<'_>, face: usize, packet: &mut Packet) -> Found {
        let bytes = packet.data().get(LINK..).unwrap_or_default();
        let Ok(heard) = arp::Packet::new(bytes).and_then(|p| arp::Repr::parse(&p)) else {
            return Found::Refuse(Reason::MalformedArp);
        };
        let own = self.config.faces[face].clone();
        let to_us = own.v4.iter().any(|(a, _)| *a == heard.target_ip);
        self.heard(cx, face, heard.sender_ip.into(), heard.sender_mac, to_us);
        if heard.operation != arp::Operation::Request || !to_us {
            return Found::Refuse(Reason::Answered);
        }
        let answer = heard.reply(own.mac);
        let frame = packet.data_mut();
        let Some((link, rest)) = frame.split_first_chunk_mut::<LINK>() else {
            return Found::Refuse(Reason::MalformedEthernet);
        };
        if answer.emit(rest).is_err() {
            return Found::Refuse(Reason::MalformedArp);
        }
        let head = ethernet::Repr { src: own.mac, dst: heard.sender_mac, ether_type: EtherType::ARP };
        if head.emit(link).is_err() {
            return Found::Refuse(Reason::MalformedEthernet);
        }
        packet.truncate((LINK + size_of::<Arp>()).max(60));
        Found::Answer
    }

    fn heard(&mut self, cx: &mut Context<'_>, face: usize, address: IpAddr, mac: MacAddr, to_us: bool) {
        let now = cx.now();
        self.fib.control().heard(&self.fib, &self.config.faces, (face, address), mac, to_us, now);
        self.look_after(cx);
    }

    /// RFC 1812 §5.2, §5.3.
    fn ipv4(&mut self, face: usize, packet: &mut Packet, link_broadcast: bool) -> Found {
        let frame = packet.data();
        let Ok(ip) = ipv4::Packet::new(&frame[LINK..]) else { return Found::Refuse(Reason::MalformedIp) };
        if !ip.checksum_ok() {
            return Found::Refuse(Reason::BadChecksum);
        }
        let (src, dst) = (ip.header().src(), ip.header().dst());
        // a host without an address yet may ask the router itself
        let first = src.octets()[0];
        if first == 127 || first >= 224 || first == 0 && !src.is_unspecified() {
            return Found::Refuse(Reason::Martian);
        }
        if dst.is_broadcast() || dst.is_multicast() {
            return Found::Refuse(Reason::Multicast);
        }
        let size = usize::from(ip.header().total_length());
        let (ttl, keep) = (ip.header().ttl(), ip.header().dont_fragment());
        let routed = ip.header_bytes().get(size_of::<Ipv4>()..).is_some_and(has_source_route);
        let value = self.route4(dst.to_bits(), frame);
        let seen = self.fib.adjacency(value).load();
        if seen.kind() == Kind::Local {
            return self.echo4(face, packet);
        }
        match () {
            () if link_broadcast => return Found::Refuse(Reason::LinkBroadcast),
            () if src.is_unspecified() => return Found::Refuse(Reason::Martian),
            () if ttl <= 1 => return Found::Tell(Reason::TtlExpired, Error::TimeExceeded),
            () if routed => return Found::Refuse(Reason::SourceRoute),
            () => {}
        }
        match seen.kind() {
            Kind::Resolved if size <= seen.mtu() => Found::Send(seen),
            Kind::Resolved if keep => Found::Tell(Reason::TooBig, Error::TooBig { mtu: seen.mtu() }),
            Kind::Resolved => Found::SendInPieces(seen),
            _ => self.nowhere(value, seen, dst.into()),
        }
    }

    /// RFC 8200, RFC 4291.
    fn ipv6(&mut self, cx: &mut Context<'_>, face: usize, packet: &mut Packet, link_multicast: bool) -> Found {
        let frame = packet.data();
        let Ok(ip) = ipv6::Packet::new(&frame[LINK..]) else { return Found::Refuse(Reason::MalformedIp) };
        let (src, dst) = (ip.header().src(), ip.header().dst());
        if src.is_multicast() || src.is_loopback() {
            return Found::Refuse(Reason::Martian);
        }
        let size = size_of::<Ipv6>() + usize::from(ip.header().payload_length());
        let hops = ip.header().hop_limit();
        if dst.is_multicast() || self.config.faces[face].has(dst.into()) {
            return self.local6(cx, face, packet);
        }
        let value = self.route6(dst.to_bits(), frame);
        let seen = self.fib.adjacency(value).load();
        match () {
            () if seen.kind() == Kind::Local => return self.local6(cx, face, packet),
            () if link_multicast => return Found::Refuse(Reason::LinkBroadcast),
            // neither may leave its link (RFC 4291 §2.5.2, §2.5.6)
            () if src.is_unspecified() || src.is_unicast_link_local() => return Found::Refuse(Reason::Martian),
            () if hops <= 1 => return Found::Tell(Reason::TtlExpired, Error::TimeExceeded),
            () => {}
        }
        match seen.kind() {
            Kind::Resolved if size <= seen.mtu() => Found::Send(seen),
            Kind::Resolved => Found::Tell(Reason::TooBig, Error::TooBig { mtu: seen.mtu() }),
            _ => self.nowhere(value, seen, dst.into()),
        }
    }

    /// A packet whose adjacency is not that of a known neighbour.
    fn nowhere(&self, value: u32, seen: Seen, dst: IpAddr) -> Found {
        match seen.kind() {
            Kind::Connected => Found::Wait((usize::from(seen.output()) - 1, dst)),
            Kind::Unresolved => match self.fib.control().who(value) {
                Some(who) => Found::Wait(who),
                None => Found::Tell(Reason::NeighbourSilent, Error::HostUnreachable),
            },
            Kind::Unreachable => Found::Tell(Reason::Unreachable, Error::NoRoute),
            Kind::Blackhole => Found::Refuse(Reason::Blackhole),
            Kind::Martian => Found::Refuse(Reason::Martian),
            Kind::Broadcast => Found::Refuse(Reason::DirectedBroadcast),
            Kind::NoRoute | Kind::Resolved | Kind::Group | Kind::Local => Found::Tell(Reason::NoRoute, Error::NoRoute),
        }
    }

    /// Turns a packet that asks whether the router is there into the answer (RFC 1812 §4.3.3.6).
    fn echo4(&self, face: usize, packet: &mut Packet) -> Found {
        let frame = packet.data_mut();
        let Some((link, rest)) = frame.split_first_chunk_mut::<LINK>() else { return Found::Local };
        let Ok(ip) = ipv4::Packet::new(rest) else { return Found::Refuse(Reason::MalformedIp) };
        let (len, extent) = (ip.header_bytes().len(), ip.bytes().len());
        let asks = ip.header().protocol() == IpProtocol::ICMPV4
            && !ip.header().is_fragment()
            && icmpv4::Message::new(ip.payload())
                .is_ok_and(|m| m.header().kind() == Icmpv4::ECHO_REQUEST && m.checksum_ok());
        // to ask without saying who one is, or all at once, is no question
        if !asks || ip.header().src().is_unspecified() {
            return Found::Local;
        }
        let (head, message) = rest[..extent].split_at_mut(len);
        message[0] = Icmpv4::ECHO_REPLY;
        let sum = u16::from_be_bytes([message[2], message[3]]);
        let old = u16::from_be_bytes([Icmpv4::ECHO_REQUEST, 0]);
        message[2..4].copy_from_slice(&checksum::update16(sum, old, 0).to_be_bytes());
        if let Ok((ip, _)) = <Ipv4 as zerocopy::FromBytes>::mut_from_prefix(head) {
            ip.swap_addrs();
            ip.set_ttl(TTL);
            ip.set_checksum(0);
        }
        let sum = checksum::of(head);
        head[10..12].copy_from_slice(&sum.to_be_bytes());
        self.turn(face, link);
        Found::Answer
    }

    /// The router's own IPv6 packets: neighbor discovery (RFC 4861 §7.2) and echo (RFC 4443 §4.1).
    fn local6(&mut self, cx: &mut Context<'_>, face: usize, packet: &mut Packet) -> Found {
        let own = self.config.faces[face].clone();
        let frame = packet.data();
        let Ok(ip) = ipv6::Packet::new(&frame[LINK..]) else { return Found::Refuse(Reason::MalformedIp) };
        let (src, dst) = (ip.header().src(), ip.header().dst());
        let to_all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let to_group = dst.is_multicast();
        let other = if to_group { Found::Refuse(Reason::Multicast) } else { Found::Local };
        let Ok(message) = icmpv6::Message::new(ip.payload()) else { return other };
        if ip.header().next_header() != IpProtocol::ICMPV6 {
            return other;
        }
        if !message.checksum_ok(ip.pseudo()) {
            return Found::Refuse(Reason::BadChecksum);
        }
        if ndp::is_neighbor(message.header()) {
            let Ok(neighbor) = Neighbor::parse(&message) else { return Found::Refuse(Reason::MalformedIp) };
            if ip.header().hop_limit() != 255 {
                return Found::Refuse(Reason::Martian);
            }
            return match neighbor {
                Neighbor::Solicitation { target, source_mac } => {
                    if !own.has(target.into()) {
                        return Found::Refuse(Reason::Answered);
                    }
                    let back = ethernet::Frame::new(frame).map_or(MacAddr::BROADCAST, |f| f.header().src());
                    let mac = source_mac.unwrap_or(back);
                    if !src.is_unspecified() {
                        self.heard(cx, face, src.into(), mac, true);
                    }
                    let (to, mac, flags) = match src.is_unspecified() {
                        true => (to_all, ndp::multicast_mac(to_all), ndp::ROUTER | ndp::OVERRIDE),
                        false => (src, mac, ndp::ROUTER | ndp::SOLICITED | ndp::OVERRIDE),
                    };
                    let told = Neighbor::Advertisement { target, flags, target_mac: Some(own.mac) };
                    if let Some(answer) = self.make(cx, &told.frame((own.mac, mac), target, to)) {
                        cx.emit(face as u8 + 1, answer);
                    }
                    Found::Refuse(Reason::Answered)
                }
                Neighbor::Advertisement { target, flags, target_mac } => {
                    match target_mac {
                        Some(mac) => self.heard(cx, face, target.into(), mac, false),
                        // who is asked at its own address need not name it (RFC 4861 §7.2.4)
                        None if flags & ndp::SOLICITED != 0 => {
                            self.fib.control().confirmed((face, target.into()), cx.now());
                        }
                        None => {}
                    }
                    Found::Refuse(Reason::Answered)
                }
            };
        }
        if message.header().kind() != Icmpv6::ECHO_REQUEST || to_group || src.is_unspecified() {
            return other;
        }
        let (len, extent) = (ip.header_bytes().len(), ip.bytes().len());
        let Some((link, rest)) = packet.data_mut().split_first_chunk_mut::<LINK>() else { return Found::Local };
        let (head, message) = rest[..extent].split_at_mut(len);
        let sum = u16::from_be_bytes([message[2], message[3]]);
        let (old, new) = ([Icmpv6::ECHO_REQUEST, 0], [Icmpv6::ECHO_REPLY, 0]);
        let sum = checksum::update16(sum, u16::from_be_bytes(old), u16::from_be_bytes(new));
        message[0] = Icmpv6::ECHO_REPLY;
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        if let Ok((ip, _)) = <Ipv6 as zerocopy::FromBytes>::mut_from_prefix(head) {
            ip.swap_addrs();
            ip.set_hop_limit(TTL);
        }
        self.turn(face, link);
        Found::Answer
    }

    /// Sends a frame back to where it came from.
    fn turn(&self, face: usize, link: &mut [u8; LINK]) {
        if let Ok((link, _)) = <Ethernet as zerocopy::FromBytes>::mut_from_prefix(link) {
            link.set_dst(link.src());
            link.set_src(self.config.faces[face].mac);
        }
    }

    /// Sends a packet of the router's own wherever its destination is.
    pub(super) fn send_own(&mut self, cx: &mut Context<'_>, packet: Packet) {
        let frame = packet.data();
        let (value, dst): (u32, IpAddr) = if let Ok(ip) = ipv4::Packet::new(&frame[LINK..]) {
            let dst: Ipv4Addr = ip.header().dst();
            (self.route4(dst.to_bits(), frame), dst.into())
        } else if let Ok(ip) = ipv6::Packet::new(&frame[LINK..]) {
            let dst: Ipv6Addr = ip.header().dst();
            (self.route6(dst.to_bits(), frame), dst.into())
        } else {
            return self.drop(cx, Reason::MalformedIp, packet);
        };
        let seen = self.fib.adjacency(value).load();
        if seen.is_resolved() {
            return send(cx, seen, packet);
        }
        match self.nowhere(value, seen, dst) {
            Found::Wait(who) => self.wait(cx, who, None, packet),
            _ => self.drop(cx, Reason::NoRoute, packet),
        }
    }

    /// A packet has waited in vain.
    pub(super) fn give_up(&mut self, cx: &mut Context<'_>, from: Option<usize>, packet: Packet) {
        if let Some(face) = from {
            self.tell(cx, face, Error::HostUnreachable, &packet);
        }
        self.drop(cx, Reason::NeighbourSilent, packet);
    }
}

/// Whether a list of options holds one that prescribes the way.
fn has_source_route(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return false,
            1 => options = rest,
            kind if SOURCE_ROUTES.contains(kind) => return true,
            _ => match rest.first() {
                Some(len) if *len >= 2 => options = options.get(usize::from(*len)..).unwrap_or_default(),
                _ => return false,
            },
        }
    }
    false
}

/// Takes one off the time to live.
fn age(frame: &mut [u8]) {
    let Some((link, rest)) = frame.split_first_chunk_mut::<LINK>() else { return };
    let four = link.ends_with(&EtherType::IPV4.0.to_be_bytes());
    if four {
        if let Ok((ip, _)) = <Ipv4 as zerocopy::FromBytes>::mut_from_prefix(rest) {
            ip.decrement_ttl();
        }
    } else if let Ok((ip, _)) = <Ipv6 as zerocopy::FromBytes>::mut_from_prefix(rest) {
        ip.decrement_hop_limit();
    }
}

fn send(cx: &mut Context<'_>, seen: Seen, mut packet: Packet) {
    if let Some(front) = packet.data_mut().first_chunk_mut() {
        seen.rewrite(front);
    }
    cx.emit(seen.output(), packet);
}
