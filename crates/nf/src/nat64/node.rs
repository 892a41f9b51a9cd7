//! What becomes of packets.

use super::hosts::Hosts;
use super::look::{Body, Datagram, Head, Seen, UDP_LEAST, body, look, pseudo, u16_at};
use super::plain::Keys;
use super::refuse::{Problem, RATE, message};
use super::settings::Config;
use super::translate::{Ends, FRAGMENT, SIX, cut, header4, header6, reshape, upper};
use super::{DROPS, INSIDE, OUTSIDE, Reason};
use crate::fragments::{Fragments, Waited, Waiting};
use crate::l3fwd::icmp::Limiter;
use crate::nat44::each;
use crate::nat44::flow::{self, Flow, Way};
use crate::nat44::ledger::{Ledger, TICK};
use crate::nat44::ports::Ports;
use crate::nat44::sessions::{Refused, Sessions, clock};
use diagnostics::Diagnostic;
use graph::{StatsTable, BuildContext, Counter, Context, Node};
use packet::{BURST, Batch, Packet};
use std::sync::Arc;
use std::time::Duration;
use tables::flow::Tuple4;
use wire::IpProtocol;

/// Counts besides those of the sessions.
#[derive(Default)]
struct Counts {
    cut: Arc<Counter>,
    icmp_sent: Arc<Counter>,
    icmp_limited: Arc<Counter>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It goes on.
    Pass,
    /// It goes on in pieces.
    Cut {
        ip: usize,
        id: u32,
    },
    /// It goes back to where the hosts are.
    Turn,
    /// It waits for another fragment of its datagram.
    Wait(Datagram),
    Drop(Reason),
    /// It is dropped, and its sender is told, from this address.
    Refuse(Reason, Problem, u128),
}

/// What is done to the fragments of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mapped {
    ends: Ends,
    protocol: u8,
}

/// One copy.
pub(super) struct Translating {
    pub(super) config: Arc<Config>,
    pub(super) sessions: Sessions,
    pub(super) hosts: Hosts,
    /// Of the packets of a batch.
    pub(super) keys: Keys,
    fragments: Fragments<Datagram, Mapped>,
    /// Bytes of whole datagrams, of which the last fragment has come: a ping's checksum cannot be known without.
    lengths: Fragments<Datagram, u32>,
    /// Fragments that came before the first of their datagram or, pings, before the last.
    waiting: Waiting<Datagram>,
    ledger: Ledger,
    icmp: Limiter,
    /// An external address of this copy's, which stands for the translation itself.
    first: u32,
    /// Identification of the next IPv4 packet that may be cut.
    pub(super) id: u16,
    counts: Counts,
}

impl Translating {
    /// A copy.
    ///
    /// # Errors
    /// It has no address, no memory, or cannot tell.
    pub(super) fn new(config: Arc<Config>, cx: &BuildContext) -> Result<Self, Diagnostic> {
        let own = config.nat.own(cx)?;
        let ledger = Ledger::new(&config.nat, cx, true)?;
        let seed = std::hash::BuildHasher::hash_one(&foldhash::fast::RandomState::default(), cx.copy.0);
        let first = config.nat.external[own[0]];
        // what ends is always told: hosts without sessions lose their numbers
        let sessions = Sessions::new(&config.nat, Ports::new(config.nat.clone(), own, seed), true)?;
        Ok(Translating {
            keys: [sessions.outwards.prepare(Tuple4::default()); BURST],
            sessions,
            // those of a batch that get no session are forgotten behind it
            hosts: Hosts::new(&config.fixed, config.nat.subscribers + BURST)?,
            fragments: Fragments::new(config.nat.fragments),
            lengths: Fragments::new(config.nat.fragments),
            config,
            waiting: Waiting::new(),
            ledger,
            icmp: Limiter::new(RATE),
            first,
            id: first as u16,
            counts: Counts::default(),
        })
    }

    fn untranslated(&self) -> Verdict {
        self.ledger.counts.untranslated.add(1);
        Verdict::Pass
    }

    /// Any packet.
    fn any(&mut self, packet: &mut Packet, input: u8, now: Duration) -> Verdict {
        match look(packet.data()) {
            Seen::Ip(head) if head.six && input == INSIDE => self.outwards(packet, &head, now),
            Seen::Ip(head) if !head.six && input == OUTSIDE => {
                // nobody outside has one of our addresses
                if self.config.nat.number(head.src as u32).is_some() {
                    return Verdict::Drop(Reason::Spoofed);
                }
                self.inwards(packet, &head, now, false)
            }
            Seen::Malformed => Verdict::Drop(Reason::Malformed),
            _ => self.untranslated(),
        }
    }

    /// A packet of IPv6 from inside.
    fn outwards(&mut self, packet: &mut Packet, head: &Head, now: Duration) -> Verdict {
        let prefix = self.config.prefix;
        if !prefix.has(head.dst) {
            return self.untranslated();
        }
        let dst = prefix.extract(head.dst);
        // it would go round (RFC 6146 §3.5)
        if prefix.has(head.src) {
            return Verdict::Drop(Reason::Spoofed);
        }
        if !self.config.is_host(dst) {
            return Verdict::Drop(Reason::NoHost);
        }
        let bytes = &packet.data()[head.upper..head.end];
        let kind = body(head, bytes, false);
        // nobody else is told anything; errors come from routers, which need not be inside
        if kind != Body::Error && !self.config.is_inside(head.src) {
            return Verdict::Drop(Reason::NotInside);
        }
        let from = prefix.embed(self.first);
        if let Some(at) = head.routed {
            return Verdict::Refuse(Reason::Routed, Problem::Routing { at }, from);
        }
        if head.hops <= 1 {
            return Verdict::Refuse(Reason::Expired, Problem::TimeExceeded, from);
        }
        if kind == Body::Error {
            return self.error(packet, head, Way::Out, now);
        }
        let (flow, flags) = match kind {
            Body::Later => {
                let datagram = head.datagram();
                self.measure(head, datagram, now);
                return match self.fragments.get(datagram, Way::Out) {
                    Some(t) => self.out(packet, head, t, dst, now),
                    None => Verdict::Wait(datagram),
                };
            }
            // none may be missing over IPv6 (RFC 8200 §8.1)
            Body::Ports { .. } if no_checksum(head, bytes) => return Verdict::Drop(Reason::NoChecksum),
            Body::Ports { src, dst: port, flags } => ((src, port), flags),
            Body::Echo { answer: true, .. } => return Verdict::Drop(Reason::NoSession),
            Body::Echo { id, .. } => ((id, 0), 0),
            other => return Verdict::Drop(unread(other)),
        };
        let Some(total) = self.total(head) else { return Verdict::Wait(head.datagram()) };
        let flow = |host| Flow { src: host, dst, src_port: flow.0, dst_port: flow.1, protocol: head.protocol };
        let clock = clock(now);
        let known = self.hosts.get(head.src).and_then(|host| self.sessions.find(&flow(host), Way::Out, flags, clock));
        let t = match known {
            Some(t) => t,
            None => match self.begin_out(head.src, flow, flags, clock) {
                Ok(t) => t,
                Err(reason) => return Verdict::Drop(reason),
            },
        };
        let ends = Ends { src: t.address().into(), dst: dst.into() };
        upper(&mut packet.data_mut()[head.upper..head.end], head, &ends, t.port(), Way::Out, total);
        let mapped = Mapped { ends, protocol: head.protocol };
        self.learn(head, Way::Out, mapped, now);
        self.out(packet, head, mapped, dst, now)
    }

    #[cold]
    fn begin_out(
        &mut self,
        host: u128,
        flow: impl Fn(u32) -> Flow,
        flags: u8,
        clock: u32,
    ) -> Result<flow::Translation, Reason> {
        let host = self.hosts.enter(host).ok_or(Reason::Subscribers)?;
        let flow = flow(host);
        let turns = self.config.nat.hairpin && self.config.nat.number(flow.dst).is_some();
        let t = self.sessions.begin_out(&flow, flags, turns, clock)?;
        self.hosts.begun(host);
        self.ledger.counts.begun.add(1);
        Ok(t)
    }

    /// Gives a packet from inside its header of IPv4; what is behind it is as it has to be.
    fn out(&mut self, packet: &mut Packet, head: &Head, t: Mapped, dst: u32, now: Duration) -> Verdict {
        self.id = self.id.wrapping_add(1);
        let header = header4(head, t.protocol, &t.ends, head.hops - 1, self.id);
        if !reshape(packet, head, &header) {
            return Verdict::Drop(Reason::NoRoom);
        }
        self.turned(packet, dst, now)
    }

    /// Whether a packet that was translated turns round: to a host inside by an external address.
    pub(super) fn turned(&mut self, packet: &mut Packet, dst: u32, now: Duration) -> Verdict {
        if !self.config.nat.hairpin || self.config.nat.number(dst).is_none() {
            return Verdict::Pass;
        }
        let Seen::Ip(head) = look(packet.data()) else { return Verdict::Drop(Reason::Malformed) };
        match self.inwards(packet, &head, now, true) {
            Verdict::Pass | Verdict::Cut { .. } => {
                self.ledger.counts.hairpinned.add(1);
                Verdict::Turn
            }
            // the one it is for is another copy's, or nobody's
            Verdict::Drop(Reason::NoSession) => Verdict::Drop(Reason::NoHairpin),
            // it is half translated: it cannot be looked at again, and nobody knows it as it is
            Verdict::Wait(_) => Verdict::Drop(Reason::Fragment),
            Verdict::Refuse(reason, ..) => Verdict::Drop(reason),
            other => other,
        }
    }

    /// A packet of IPv4 from outside, or one that has turned round and been counted for its hop.
    fn inwards(&mut self, packet: &mut Packet, head: &Head, now: Duration, turned: bool) -> Verdict {
        let dst = head.dst as u32;
        if self.config.nat.number(dst).is_none() {
            return self.untranslated();
        }
        let bytes = &packet.data()[head.upper..head.end];
        let kind = body(head, bytes, false);
        // nobody else is told anything
        if !turned && kind != Body::Error && !self.config.is_host(head.src as u32) {
            return Verdict::Drop(Reason::NoHost);
        }
        if head.routed.is_some() {
            return Verdict::Refuse(Reason::Routed, Problem::SourceRoute, head.dst);
        }
        if head.hops <= 1 && !turned {
            return Verdict::Refuse(Reason::Expired, Problem::TimeExceeded, head.dst);
        }
        if kind == Body::Error {
            // also from a router whose address means nothing inside
            return self.error(packet, head, Way::In, now);
        }
        let (flow, flags) = match kind {
            Body::Later => {
                let datagram = head.datagram();
                self.measure(head, datagram, now);
                return match self.fragments.get(datagram, Way::In) {
                    Some(t) => self.inn(packet, head, t, turned),
                    None => Verdict::Wait(datagram),
                };
            }
            Body::Ports { src, dst, flags } => ((src, dst), flags),
            // only answers come in
            Body::Echo { answer: false, .. } => return Verdict::Drop(Reason::NoSession),
            Body::Echo { id, .. } => ((0, id), 0),
            other => return Verdict::Drop(unread(other)),
        };
        let missing = no_checksum(head, bytes);
        if missing && head.is_part() {
            // nobody knows all of what it would be over (RFC 7915 §4.5)
            return Verdict::Drop(Reason::NoChecksum);
        }
        let long = SIX + head.len() + if head.is_part() { FRAGMENT } else { 0 };
        if head.whole && long > self.config.mtu {
            let less = SIX - super::translate::FOUR + if head.is_part() { FRAGMENT } else { 0 };
            return Verdict::Refuse(Reason::TooBig, Problem::TooBig { mtu: self.config.mtu - less }, head.dst);
        }
        let src = head.src as u32;
        let flow = Flow { src, dst, src_port: flow.0, dst_port: flow.1, protocol: head.protocol };
        let Some(total) = self.total(head) else {
            // only what somebody waits for is kept
            let known = self.sessions.peek(&flow, Way::In).is_some();
            return if known { Verdict::Wait(head.datagram()) } else { Verdict::Drop(Reason::NoSession) };
        };
        let clock = clock(now);
        let t = match self.sessions.find(&flow, Way::In, flags, clock) {
            Some(t) => t,
            None => match self.begin_in(&flow, flags, clock) {
                Ok(t) => t,
                Err(refused) => return Verdict::Drop(refused.into()),
            },
        };
        let ends = Ends { src: self.config.prefix.embed(src), dst: self.hosts.address(t.address()) };
        let bytes = &mut packet.data_mut()[head.upper..head.end];
        upper(bytes, head, &ends, t.port(), Way::In, total);
        if missing {
            let len = usize::from(u16_at(bytes, 4)).clamp(UDP_LEAST, bytes.len());
            let new = Head { src: ends.src, dst: ends.dst, ..*head };
            let sum = pseudo(&new).sum(&bytes[..len]).finish_udp();
            bytes[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        let mapped = Mapped { ends, protocol: head.protocol };
        self.learn(head, Way::In, mapped, now);
        self.inn(packet, head, mapped, turned)
    }

    #[cold]
    fn begin_in(&mut self, flow: &Flow, flags: u8, clock: u32) -> Result<flow::Translation, Refused> {
        let t = self.sessions.begin_in(flow, flags, clock)?;
        self.hosts.begun(t.address());
        self.ledger.counts.begun.add(1);
        Ok(t)
    }

    /// Gives a packet from outside its header of IPv6; what is behind it is as it has to be.
    fn inn(&mut self, packet: &mut Packet, head: &Head, t: Mapped, turned: bool) -> Verdict {
        let header = header6(head, &t.ends, head.hops - u8::from(!turned));
        if !reshape(packet, head, &header) {
            return Verdict::Drop(Reason::NoRoom);
        }
        // what turns round is as long as its sender has made it
        let most = if head.whole || turned { self.config.mtu } else { self.config.fragment };
        match header.bytes().len() + head.len() > most {
            true => Verdict::Cut { ip: head.ip, id: head.id },
            false => Verdict::Pass,
        }
    }

    /// The bytes of all of a packet's datagram behind the headers; `None` for a ping of which they are not known yet.
    fn total(&self, head: &Head) -> Option<usize> {
        if !head.more || head.protocol != IpProtocol::ICMPV4.0 {
            return Some(head.len());
        }
        let way = if head.six { Way::Out } else { Way::In };
        self.lengths.get(head.datagram(), way).map(|total| total as usize)
    }

    /// Remembers how long a datagram is when its last fragment comes.
    fn measure(&mut self, head: &Head, datagram: Datagram, now: Duration) {
        let way = if head.six { Way::Out } else { Way::In };
        if head.more || head.protocol != IpProtocol::ICMPV4.0 || self.lengths.get(datagram, way).is_some() {
            return;
        }
        self.lengths.learn(datagram, way, u32::from(head.offset) + head.len() as u32, now);
        self.waiting.come(datagram);
    }

    /// A first fragment has passed.
    fn learn(&mut self, head: &Head, way: Way, t: Mapped, now: Duration) {
        if head.is_part() {
            self.fragments.learn(head.datagram(), way, t, now);
            self.waiting.come(head.datagram());
            self.ledger.counts.fragments.set(self.fragments.len() as u64);
        }
    }

    /// Does with a packet that does not simply go on what its verdict says.
    fn dispose(&mut self, cx: &mut Context<'_>, verdict: Verdict, it: Waited) {
        let Waited { way, input, since, mut packet } = it;
        match verdict {
            Verdict::Pass => cx.emit_from(way, 0, packet),
            Verdict::Cut { ip, id } => {
                let rest = cut(&mut packet, ip, self.config.fragment, id);
                let made: Vec<_> = rest.iter().map_while(|piece| cx.make(piece)).collect();
                let all = made.len() == rest.len();
                self.counts.cut.add(all.into());
                // without one of its pieces a datagram is nothing
                for piece in core::iter::once(packet).chain(made) {
                    if all { cx.emit_from(way, 0, piece) } else { cx.drop(Reason::NoRoom as u8, piece) }
                }
            }
            Verdict::Turn => {
                if let Some(macs) = packet.data_mut().first_chunk_mut::<12>() {
                    macs.rotate_left(6);
                }
                self.back(cx, INSIDE, packet);
            }
            Verdict::Wait(datagram) => {
                if let Err(packet) = self.waiting.keep(cx, Waited { way, input, since, packet }, datagram) {
                    cx.drop(Reason::Fragment as u8, packet);
                }
            }
            Verdict::Drop(reason) => cx.drop(reason as u8, packet),
            Verdict::Refuse(reason, problem, from) => {
                self.refuse(cx, input, problem, from, &packet);
                cx.drop(reason as u8, packet);
            }
        }
    }

    /// Sends a packet back over the link by which what came by an input comes.
    fn back(&mut self, cx: &mut Context<'_>, to: u8, packet: Packet) {
        match cx.path_by_input(if to == INSIDE { OUTSIDE } else { INSIDE }) {
            Some(way) => cx.emit_from(way, 0, packet),
            None => cx.drop(Reason::NoHairpin as u8, packet),
        }
    }

    #[cold]
    fn refuse(&mut self, cx: &mut Context<'_>, input: u8, problem: Problem, from: u128, packet: &Packet) {
        let Seen::Ip(head) = look(packet.data()) else { return };
        let Some(answer) = message(packet.data(), &head, problem, from) else { return };
        if !self.icmp.allows(cx.now()) {
            return self.counts.icmp_limited.add(1);
        }
        if let Some(answer) = cx.make(&answer) {
            self.counts.icmp_sent.add(1);
            self.back(cx, input, answer);
        }
    }

    fn tell(&mut self) {
        self.ledger.tell(&mut self.sessions, &mut self.hosts);
        self.hosts.settle();
    }
}

/// Whether a UDP packet has none.
fn no_checksum(head: &Head, bytes: &[u8]) -> bool {
    head.protocol == IpProtocol::UDP.0 && u16_at(bytes, 6) == 0
}

/// Why a packet is dropped before its session is asked for.
fn unread(body: Body) -> Reason {
    match body {
        Body::Tiny => Reason::Tiny,
        Body::Malformed => Reason::Malformed,
        _ => Reason::Protocol,
    }
}

impl Node for Translating {
    fn drops(&self) -> &[&'static str] {
        &DROPS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let c = &self.counts;
        let own = [("cut", &c.cut), ("icmp_sent", &c.icmp_sent), ("icmp_limited", &c.icmp_limited)];
        self.ledger.counters().into_iter().chain(Counter::named(own)).collect()
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let now = cx.now();
        let all = ((1u64 << batch.len()) - 1) as u32;
        let rest = all & !self.plain(input, batch, clock(now));
        let mut verdicts = [Verdict::Pass; BURST];
        let mut part = 0;
        each(rest, |at| {
            if let Some(packet) = batch.as_mut_slice().get_mut(at) {
                verdicts[at] = self.any(packet, input, now);
                part |= u32::from(verdicts[at] != Verdict::Pass) << at;
            }
        });
        if part != 0 {
            let (way, since) = (cx.path(), now);
            batch.extract_mask(part, |at, packet| {
                self.dispose(cx, verdicts[at & (BURST - 1)], Waited { way, input, since, packet });
            });
        }
        // what waited may be what others wait for
        for _ in 0..3 {
            for mut waited in self.waiting.ready(cx) {
                let verdict = self.any(&mut waited.packet, waited.input, now);
                self.dispose(cx, verdict, waited);
            }
        }
        self.tell();
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        self.ledger.age(&mut self.sessions, now);
        self.fragments.age(now);
        self.lengths.age(now);
        self.ledger.counts.fragments.set(self.fragments.len() as u64);
        self.waiting.give_up(cx, Reason::Fragment as u8);
        self.ledger.show_by_and_by(&self.sessions, &self.hosts, now);
        self.tell();
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.ledger.board())
    }

    fn finish(&mut self) {
        self.tell();
        self.ledger.show(&self.sessions, &self.hosts);
    }
}
