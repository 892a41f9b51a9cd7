//! Slow path: packets that are not plain, with IPv6, VLAN tags, options, fragments or ICMP.

use super::balancer::Balancer;
use super::connection::{Connection, FIRST_REPLY};
use super::counters::{CounterId, DropReason};
use super::destination::{Destination, ForwardAction};
use super::headers::{FragmentPosition, ParsedPacket, QuotedPacket, parse};
use super::rewrite::{AddressField, redirect, redirect_quoted, set_dscp, tunnel};
use super::settings::Unmatched;
use graph::Counters;
use packet::Packet;
use std::net::IpAddr;
use tables::flow::{FlowKey, FlowTable, Lookup, Tuple4, Tuple6};
use wire::IpProtocol;

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Returns the key of a fragmented datagram (RFC 791, RFC 8200 §4.5).
pub(super) fn datagram_key(parsed: &ParsedPacket) -> Tuple6 {
    let protocol = if parsed.src.is_ipv4() { parsed.protocol } else { IpProtocol::FRAGMENT };
    Tuple6::new(bits(parsed.src), bits(parsed.dst), (parsed.id >> 16) as u16, parsed.id as u16, protocol.0)
}

/// Calls `each` with the entry of a connection, or with `None` if it is not in the table and `insert` is false.
fn look_up<K: FlowKey>(
    table: &mut FlowTable<K, Connection>,
    (key, now): (K, u32),
    insert: bool,
    mut each: impl FnMut(Option<Lookup<'_, Connection>>),
) {
    let prepared = [table.prepare(key)];
    if insert {
        return table.look_up_or_insert(&prepared, now, |_, _| {}, |_, found| each(Some(found)));
    }
    let mut found = false;
    table.look_up(&prepared, now, |_, connection| {
        found = true;
        each(Some(Lookup::Known(connection)));
    });
    if !found {
        each(None);
    }
}

impl Balancer {
    /// Returns the destination of a connection to a virtual address; with `insert` it is added to the table.
    fn connection(
        &mut self,
        vip: u32,
        tuple: (IpAddr, IpAddr, u16, u16, IpProtocol),
        now: u32,
        insert: bool,
    ) -> Connection {
        let (src, dst, sport, dport, protocol) = tuple;
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let key = Tuple4::new(src.to_bits(), dst.to_bits(), sport, dport, protocol.0);
                let chosen = self.choose_now(vip, &key);
                let (destinations, counters) = (&self.destinations, &self.counters);
                let mut destination = chosen;
                look_up(&mut self.v4, (key, now), insert, |found| {
                    destination = destination_of(destinations, counters, found, chosen)
                });
                destination
            }
            _ => {
                let key = Tuple6::new(bits(src), bits(dst), sport, dport, protocol.0);
                let chosen = self.choose_now(vip, &key);
                let (destinations, counters) = (&self.destinations, &self.counters);
                let mut destination = chosen;
                look_up(&mut self.v6, (key, now), insert, |found| {
                    destination = destination_of(destinations, counters, found, chosen)
                });
                destination
            }
        }
    }

    /// Stores the destination of a datagram's fragments, also for those that are held.
    fn store_fragment_destination(&mut self, parsed: &ParsedPacket, destination: Connection, now: u32) {
        self.fragment_queue.mark_arrived(datagram_key(parsed));
        look_up(&mut self.fragments, (datagram_key(parsed), now), true, |found| match found {
            Some(Lookup::Known(c) | Lookup::New(c)) => *c = destination,
            // all slots of the key were written at this time: the other fragments of the datagram are dropped
            Some(Lookup::Refused) | None => {}
        });
    }

    fn fragment_destination(&mut self, parsed: &ParsedPacket, now: u32) -> Option<Connection> {
        let mut destination = None;
        look_up(&mut self.fragments, (datagram_key(parsed), now), false, |found| {
            if let Some(Lookup::Known(c)) = found {
                destination = Some(*c);
            }
        });
        destination
    }

    fn forward(
        &mut self,
        packet: &mut Packet,
        parsed: &ParsedPacket,
        destination: Connection,
    ) -> Result<(), DropReason> {
        let Some(to) = destination.find_mut(&mut self.destinations) else { return Err(DropReason::NoBackend) };
        match to.action {
            ForwardAction::Nat | ForwardAction::L3dsr => {
                redirect(packet.data_mut(), parsed, AddressField::Destination, to.to);
                if to.action == ForwardAction::L3dsr {
                    set_dscp(packet.data_mut(), parsed, to.tos);
                }
            }
            ForwardAction::Down => return Err(DropReason::NoBackend),
            ForwardAction::Ipip4 | ForwardAction::Gre4 | ForwardAction::Tunnel => {
                self.id = self.id.wrapping_add(1);
                tunnel(packet, parsed, to, self.id, self.mtu)?;
            }
        }
        Ok(())
    }

    /// Forwards any packet, which may have been parsed already, and counts it.
    pub(super) fn send(
        &mut self,
        packet: &mut Packet,
        parsed: Option<&ParsedPacket>,
        destination: Connection,
    ) -> Result<(), DropReason> {
        if !self.is_available(destination) {
            return Err(DropReason::NoBackend);
        }
        if let Some(to) = destination.find_mut(&mut self.destinations) {
            to.packets += 1;
        }
        match parsed {
            Some(parsed) => self.forward(packet, parsed, destination),
            None => parse(packet.data()).map_or(Ok(()), |parsed| self.forward(packet, &parsed, destination)),
        }
    }

    fn no_service(&mut self) -> Result<(), DropReason> {
        self.counters[CounterId::Unmatched].add(1);
        if self.unmatched == Unmatched::Drop { Err(DropReason::NoService) } else { Ok(()) }
    }

    /// Processes any packet from clients.
    #[cold]
    pub(super) fn process_request(&mut self, packet: &mut Packet, now: u32) -> Result<(), DropReason> {
        let frame = packet.data();
        let Some(parsed) = parse(frame) else {
            self.counters[CounterId::Unmatched].add(1);
            return Ok(());
        };
        let Some(first) = self.services.addresses.get(&parsed.dst).copied() else { return self.no_service() };
        if parsed.position == FragmentPosition::Later {
            self.counters[CounterId::Fragments].add(1);
            let destination = self.fragment_destination(&parsed, now).ok_or(DropReason::UnknownFragment)?;
            return self.send(packet, Some(&parsed), destination);
        }
        if let Some(q) = parsed.quoted(frame) {
            return self.forward_icmp_error(packet, &parsed, &q, now);
        }
        let destination = if parsed.is_echo_request(frame) == Some(true) {
            self.counters[CounterId::Echoes].add(1);
            self.connection(first, (parsed.src, parsed.dst, 0, 0, parsed.protocol), now, false)
        } else if matches!(parsed.protocol, IpProtocol::TCP | IpProtocol::UDP) {
            let (sport, dport) = parsed.ports(frame).ok_or(DropReason::Malformed)?;
            let Some(vip) = self.services.vips.get(&(parsed.dst, dport, parsed.protocol)).copied() else {
                return self.no_service();
            };
            self.connection(vip, (parsed.src, parsed.dst, sport, dport, parsed.protocol), now, true)
        } else {
            return self.no_service();
        };
        if parsed.position == FragmentPosition::First {
            self.counters[CounterId::Fragments].add(1);
            self.store_fragment_destination(&parsed, destination, now);
        }
        self.send(packet, Some(&parsed), destination)
    }

    /// Forwards an ICMP error about a packet of a service to the backend that sent the packet.
    fn forward_icmp_error(
        &mut self,
        packet: &mut Packet,
        parsed: &ParsedPacket,
        q: &QuotedPacket,
        now: u32,
    ) -> Result<(), DropReason> {
        self.counters[CounterId::IcmpErrors].add(1);
        let vip = match q.ports {
            (port, _) if port != 0 => self.services.vips.get(&(q.src, port, q.protocol)),
            _ => self.services.addresses.get(&q.src),
        };
        // the error is sent to the virtual address that it quotes
        let vip = vip.copied().filter(|_| q.src == parsed.dst).ok_or(DropReason::UnknownIcmpError)?;
        let destination = self.connection(vip, (q.dst, q.src, q.ports.1, q.ports.0, q.protocol), now, false);
        let to = destination.find(&self.destinations).ok_or(DropReason::NoBackend)?;
        if to.action == ForwardAction::Nat {
            redirect_quoted(packet.data_mut(), parsed, q, AddressField::Source, to.to);
        }
        self.send(packet, Some(parsed), destination)
    }

    /// Processes any packet from backends: with NAT the source is rewritten to the virtual address.
    #[cold]
    pub(super) fn process_reply(&mut self, packet: &mut Packet, now: u32) -> Result<(), DropReason> {
        let frame = packet.data();
        let Some(parsed) = parse(frame) else { return Ok(()) };
        if parsed.position == FragmentPosition::Later {
            let destination = self.fragment_destination(&parsed, now);
            if let Some(reply) = destination.and_then(|c| c.destination.checked_sub(FIRST_REPLY)) {
                self.counters[CounterId::Fragments].add(1);
                self.rewrite_reply(packet, &parsed, reply);
            }
            return Ok(());
        }
        if let Some(q) = parsed.quoted(frame) {
            let from = (q.dst, q.ports.1, q.protocol);
            if let Some(r) =
                self.services.replies.get(&from).and_then(|n| self.services.reply_rewrites.get(*n as usize))
            {
                self.counters[CounterId::IcmpErrors].add(1);
                redirect_quoted(packet.data_mut(), &parsed, &q, AddressField::Destination, r.to);
                // an error of a router in between keeps its source
                if parsed.src == q.dst {
                    redirect(packet.data_mut(), &parsed, AddressField::Source, r.to);
                }
            }
            return Ok(());
        }
        if parsed.is_echo_request(frame) == Some(false) {
            if let Some(Some(vip)) = self.services.sources.get(&parsed.src) {
                self.counters[CounterId::Echoes].add(1);
                redirect(packet.data_mut(), &parsed, AddressField::Source, (*vip, 0));
            }
            return Ok(());
        }
        let Some((port, _)) = parsed.ports(frame) else { return Ok(()) };
        if let Some(reply) = self.services.replies.get(&(parsed.src, port, parsed.protocol)).copied() {
            if parsed.position == FragmentPosition::First {
                self.counters[CounterId::Fragments].add(1);
                let destination = Connection { destination: FIRST_REPLY + reply, generation: 0 };
                self.store_fragment_destination(&parsed, destination, now);
            }
            self.rewrite_reply(packet, &parsed, reply);
        }
        Ok(())
    }

    fn rewrite_reply(&mut self, packet: &mut Packet, parsed: &ParsedPacket, reply: u32) {
        if let Some(r) = self.services.reply_rewrites.get(reply as usize) {
            self.counters[CounterId::Replies].add(1);
            redirect(packet.data_mut(), parsed, AddressField::Source, r.to);
        }
    }
}

/// Returns the destination of a connection: that of its entry, or `chosen` of the ring if it is new or its backend is
/// down or has been removed.
fn destination_of(
    destinations: &[Destination],
    counters: &Counters<CounterId>,
    found: Option<Lookup<'_, Connection>>,
    chosen: Connection,
) -> Connection {
    let is_available = |c: &Connection| c.find(destinations).is_some_and(|d| d.action != ForwardAction::Down);
    match found {
        Some(Lookup::Known(c)) if is_available(c) => *c,
        Some(Lookup::Known(c)) => {
            if *c != Connection::NONE {
                counters[CounterId::Moved].add(1);
            }
            *c = chosen;
            chosen
        }
        Some(Lookup::New(c)) => {
            counters[CounterId::New].add(1);
            *c = chosen;
            chosen
        }
        Some(Lookup::Refused) => {
            counters[CounterId::TableFull].add(1);
            chosen
        }
        None => chosen,
    }
}
