//! Packets that are not plain: IPv6, tags, options, fragments, ICMP.

use super::Other;
use super::look::{Look, Part, Quoted, look};
use super::node::{Balancer, Connection, Counts, NOBODY, Reason};
use super::rewrite::{Side, mark, redirect, redirect_quoted, tunnel};
use super::target::{How, Target};
use packet::Packet;
use std::net::IpAddr;
use tables::flow::{FlowKey, FlowTable, Found, Tuple4, Tuple6};
use wire::IpProtocol;

/// What `Connection::target` of a fragment is counted from when it is an answer's.
const ANSWER: u32 = 1 << 31;

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// What fragments of a datagram have in common (RFC 791, RFC 8200 §4.5).
pub(super) fn datagram(look: &Look) -> Tuple6 {
    let protocol = if look.src.is_ipv4() { look.protocol } else { IpProtocol::FRAGMENT };
    Tuple6::new(bits(look.src), bits(look.dst), (look.id >> 16) as u16, look.id as u16, protocol.0)
}

/// The target of a connection, and whether it had a backend that is gone; `insert` remembers it.
fn find<K: FlowKey>(
    table: &mut FlowTable<K, Connection>,
    (key, now): (K, u32),
    insert: bool,
    mut each: impl FnMut(Option<Found<'_, Connection>>),
) {
    let prepared = [table.prepare(key)];
    if insert {
        return table.look_up_or_insert(&prepared, now, |_, _| {}, |_, found| each(Some(found)));
    }
    let mut seen = false;
    table.look_up(&prepared, now, |_, connection| {
        seen = true;
        each(Some(Found::Known(connection)));
    });
    if !seen {
        each(None);
    }
}

impl Balancer {
    /// The target of a connection to a virtual address; with `insert` it is remembered.
    fn connection(&mut self, vip: u32, tuple: (IpAddr, IpAddr, u16, u16, IpProtocol), now: u32, insert: bool) -> u32 {
        let (src, dst, sport, dport, protocol) = tuple;
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let key = Tuple4::new(src.to_bits(), dst.to_bits(), sport, dport, protocol.0);
                let chosen = self.chosen(vip, &key);
                let (targets, counts) = (&self.targets, &self.counts);
                let mut target = chosen;
                find(&mut self.v4, (key, now), insert, |found| target = settle(targets, counts, found, chosen));
                target
            }
            _ => {
                let key = Tuple6::new(bits(src), bits(dst), sport, dport, protocol.0);
                let chosen = self.chosen(vip, &key);
                let (targets, counts) = (&self.targets, &self.counts);
                let mut target = chosen;
                find(&mut self.v6, (key, now), insert, |found| target = settle(targets, counts, found, chosen));
                target
            }
        }
    }

    /// Remembers where the fragments of a datagram go, also those that have come before.
    fn remember(&mut self, look: &Look, target: u32, now: u32) {
        self.waiting.come(datagram(look));
        find(&mut self.fragments, (datagram(look), now), true, |found| match found {
            Some(Found::Known(c) | Found::New(c)) => c.target = target,
            // every one of its places had a fragment at this very time: the others of this datagram find nothing
            Some(Found::Refused) | None => {}
        });
    }

    fn remembered(&mut self, look: &Look, now: u32) -> Option<u32> {
        let mut target = None;
        find(&mut self.fragments, (datagram(look), now), false, |found| {
            if let Some(Found::Known(c)) = found {
                target = Some(c.target);
            }
        });
        target
    }

    fn forward(&mut self, packet: &mut Packet, look: &Look, target: u32) -> Result<(), Reason> {
        let Some(t) = self.targets.get_mut(target as usize) else { return Err(Reason::NoBackend) };
        match t.how {
            How::Nat | How::L3dsr => {
                redirect(packet.data_mut(), look, Side::Destination, t.to);
                if t.how == How::L3dsr {
                    mark(packet.data_mut(), look, t.tos);
                }
            }
            How::Gone => return Err(Reason::NoBackend),
            How::Ipip4 | How::Gre4 | How::Tunnel => {
                self.id = self.id.wrapping_add(1);
                tunnel(packet, look, t, self.id, self.mtu)?;
            }
        }
        Ok(())
    }

    /// Sends any packet on, which may have been looked at already, and counts it.
    pub(super) fn send(&mut self, packet: &mut Packet, looked: Option<&Look>, target: u32) -> Result<(), Reason> {
        if !self.is_there(target) {
            return Err(Reason::NoBackend);
        }
        if let Some(t) = self.targets.get_mut(target as usize) {
            t.packets += 1;
        }
        match looked {
            Some(look) => self.forward(packet, look, target),
            None => look(packet.data()).map_or(Ok(()), |look| self.forward(packet, &look, target)),
        }
    }

    fn no_service(&mut self) -> Result<(), Reason> {
        self.counts.other.add(1);
        if self.other == Other::Drop { Err(Reason::NoService) } else { Ok(()) }
    }

    /// Any packet from clients.
    #[cold]
    pub(super) fn any(&mut self, packet: &mut Packet, now: u32) -> Result<(), Reason> {
        let frame = packet.data();
        let Some(look) = look(frame) else {
            self.counts.other.add(1);
            return Ok(());
        };
        let Some(first) = self.known.addresses.get(&look.dst).copied() else { return self.no_service() };
        if look.part == Part::Later {
            self.counts.fragments.add(1);
            let target = self.remembered(&look, now).ok_or(Reason::UnknownFragment)?;
            return self.send(packet, Some(&look), target);
        }
        if let Some(q) = look.quoted(frame) {
            return self.error(packet, &look, &q, now);
        }
        let target = if look.echo(frame) == Some(true) {
            self.counts.echoes.add(1);
            self.connection(first, (look.src, look.dst, 0, 0, look.protocol), now, false)
        } else if matches!(look.protocol, IpProtocol::TCP | IpProtocol::UDP) {
            let (sport, dport) = look.ports(frame).ok_or(Reason::Malformed)?;
            let Some(vip) = self.known.vips.get(&(look.dst, dport, look.protocol)).copied() else {
                return self.no_service();
            };
            self.connection(vip, (look.src, look.dst, sport, dport, look.protocol), now, true)
        } else {
            return self.no_service();
        };
        if look.part == Part::First {
            self.counts.fragments.add(1);
            self.remember(&look, target, now);
        }
        self.send(packet, Some(&look), target)
    }

    /// An ICMP error about what a service has sent: to the backend that sent it.
    fn error(&mut self, packet: &mut Packet, look: &Look, q: &Quoted, now: u32) -> Result<(), Reason> {
        self.counts.errors.add(1);
        let vip = match q.ports {
            (port, _) if port != 0 => self.known.vips.get(&(q.src, port, q.protocol)),
            _ => self.known.addresses.get(&q.src),
        };
        // whoever tells a virtual address has it in the packet
        let vip = vip.copied().filter(|_| q.src == look.dst).ok_or(Reason::UnknownError)?;
        let target = self.connection(vip, (q.dst, q.src, q.ports.1, q.ports.0, q.protocol), now, false);
        let t = self.targets.get(target as usize).ok_or(Reason::NoBackend)?;
        if t.how == How::Nat {
            redirect_quoted(packet.data_mut(), look, q, Side::Source, t.to);
        }
        self.send(packet, Some(look), target)
    }

    /// Any packet from backends: with NAT its source becomes the virtual address.
    #[cold]
    pub(super) fn any_answer(&mut self, packet: &mut Packet, now: u32) -> Result<(), Reason> {
        let frame = packet.data();
        let Some(look) = look(frame) else { return Ok(()) };
        if look.part == Part::Later {
            if let Some(answer) = self.remembered(&look, now).and_then(|target| target.checked_sub(ANSWER)) {
                self.counts.fragments.add(1);
                self.answer(packet, &look, answer);
            }
            return Ok(());
        }
        if let Some(q) = look.quoted(frame) {
            let from = (q.dst, q.ports.1, q.protocol);
            if let Some(r) = self.known.replies.get(&from).and_then(|n| self.known.answers.get(*n as usize)) {
                self.counts.errors.add(1);
                redirect_quoted(packet.data_mut(), &look, &q, Side::Destination, r.to);
                // what a router in between says comes from that router
                if look.src == q.dst {
                    redirect(packet.data_mut(), &look, Side::Source, r.to);
                }
            }
            return Ok(());
        }
        if look.echo(frame) == Some(false) {
            if let Some(Some(vip)) = self.known.sources.get(&look.src) {
                self.counts.echoes.add(1);
                redirect(packet.data_mut(), &look, Side::Source, (*vip, 0));
            }
            return Ok(());
        }
        let Some((port, _)) = look.ports(frame) else { return Ok(()) };
        if let Some(answer) = self.known.replies.get(&(look.src, port, look.protocol)).copied() {
            if look.part == Part::First {
                self.counts.fragments.add(1);
                self.remember(&look, ANSWER + answer, now);
            }
            self.answer(packet, &look, answer);
        }
        Ok(())
    }

    fn answer(&mut self, packet: &mut Packet, look: &Look, answer: u32) {
        if let Some(r) = self.known.answers.get(answer as usize) {
            self.counts.answers.add(1);
            redirect(packet.data_mut(), look, Side::Source, r.to);
        }
    }
}

/// The target of a connection that was found or not, when `chosen` is what the ring says.
fn settle(targets: &[Target], counts: &Counts, found: Option<Found<'_, Connection>>, chosen: u32) -> u32 {
    let there = |n: u32| targets.get(n as usize).is_some_and(|t| t.how != How::Gone);
    match found {
        Some(Found::Known(c)) if there(c.target) => c.target,
        Some(Found::Known(c)) => {
            if c.target != NOBODY {
                counts.moved.add(1);
            }
            c.target = chosen;
            chosen
        }
        Some(Found::New(c)) => {
            counts.new.add(1);
            c.target = chosen;
            chosen
        }
        Some(Found::Refused) => {
            counts.full.add(1);
            chosen
        }
        None => chosen,
    }
}
