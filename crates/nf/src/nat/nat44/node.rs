//! The node of `nat44`.

use super::parse::{Ipv4DatagramId, NatPacket, Offsets, OuterAddresses, REPLY, SessionPacket, parse};
use super::rewrite;
use crate::bits::for_each_bit;
use crate::fragment_queue::{FragmentQueue, HeldFragment};
use crate::nat::config::Config;
use crate::nat::drop_reason::DropReason;
use crate::nat::flow::{self, Direction, Flow, INSIDE, OUTSIDE, Translation};
use crate::nat::forward_changes::ForwardChanges;
use crate::nat::fragments::FragmentTable;
use crate::nat::operations::{LiveSessions, SessionCopy};
use crate::nat::port_allocator::PortAllocator;
use crate::nat::sessions::{SessionError, SessionTable, clock};
use crate::nat::settings::Unmatched;
use crate::nat::statistics::{SessionCounter, Statistics, Subscribers, TICK};
use crate::visits::Visits;
use diagnostics::Diagnostic;
use graph::{
    BoundedTable, BuildContext, Context, Counter, InvalidState, Named, Node, StateReader, StateWriter, StatsTable,
};
use packet::{BURST, Batch};
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{Prepared, Tuple4};
use wire::{IpProtocol, checksum};

/// The number of an IPv4 subscriber is its address.
struct Ipv4Subscribers;

impl Subscribers for Ipv4Subscribers {
    fn ip(&self, number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }
}

pub(super) struct Nat44Node {
    config: Arc<Config>,
    sessions: SessionTable,
    /// Session keys of the packets of a batch.
    keys: [Prepared<Tuple4>; BURST],
    fragments: FragmentTable<Ipv4DatagramId, Translation>,
    /// Fragments that arrived before the first one of their datagram.
    queue: FragmentQueue<Ipv4DatagramId>,
    statistics: Statistics,
    visits: Visits<dyn SessionCopy>,
}

/// Treatment of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nat44Verdict {
    /// Forward it.
    Pass,
    /// Send it back to the inside.
    Hairpin,
    /// Hold it until the first fragment of the datagram arrives.
    Hold,
    Drop(DropReason),
    /// No session matches this destination, or it is not an external address.
    NoSession(u32),
}

impl Nat44Node {
    pub(super) fn new(config: Arc<Config>, cx: &BuildContext) -> Result<Self, Diagnostic> {
        let own = config.own_externals(cx)?;
        let visits = cx.shared(|| Ok(LiveSessions::default()))?.attach(cx.copy.0);
        let statistics = Statistics::new(&config, cx, false)?;
        let seed = std::hash::BuildHasher::hash_one(&foldhash::fast::RandomState::default(), cx.copy.0);
        let ports = PortAllocator::new(config.clone(), own, seed);
        let mut sessions = SessionTable::new(&config, ports, statistics.logs_sessions(&config))?;
        sessions.displaced.copy = cx.copy;
        if let Some(before) = cx.before::<Config>() {
            sessions.set_forward_changes(ForwardChanges::between(&before, &config, cx.copy));
        }
        Ok(Nat44Node {
            keys: [sessions.outbound.prepare(Tuple4::default()); BURST],
            fragments: FragmentTable::new(config.fragments),
            sessions,
            config,
            queue: FragmentQueue::new(),
            statistics,
            visits,
        })
    }

    /// Translates a packet from inside.
    fn outbound(
        &mut self,
        (parsed, addresses): &(NatPacket, Option<OuterAddresses>),
        frame: &mut [u8],
        now: Duration,
    ) -> Nat44Verdict {
        match *parsed {
            NatPacket::Session(SessionPacket { flow, flags: REPLY, .. }) if flow.protocol == IpProtocol::ICMPV4.0 => {
                self.pass_untranslated(flow.src).unwrap_or(Nat44Verdict::Drop(DropReason::NoSession))
            }
            NatPacket::Session(packet) => {
                let known = self.sessions.find(&packet.flow, Direction::Outbound, packet.flags, clock(now));
                self.translate_outbound(&packet, known, frame, now)
            }
            NatPacket::LaterFragment(offsets, datagram) => match self.fragments.get(datagram, Direction::Outbound) {
                Some(t) => {
                    rewrite::address(frame, &offsets, &t, Direction::Outbound);
                    self.hairpin(frame, datagram.dst, now)
                }
                None => self.pass_untranslated(datagram.src).unwrap_or(Nat44Verdict::Hold),
            },
            NatPacket::IcmpError(offsets, outer, quoted) => {
                self.translate_icmp_error(frame, &offsets, outer, &quoted, Direction::Outbound, now)
            }
            // packets of other hosts pass, whatever they are
            other => addresses
                .and_then(|addresses| self.pass_untranslated(addresses.src))
                .unwrap_or_else(|| self.without_session(other)),
        }
    }

    /// Translates a packet from inside by the translation of its session; without one, creates the session.
    fn translate_outbound(
        &mut self,
        packet: &SessionPacket,
        known: Option<Translation>,
        frame: &mut [u8],
        now: Duration,
    ) -> Nat44Verdict {
        let SessionPacket { offsets, flow, flags, first } = packet;
        let t = match known {
            Some(t) => t,
            None => {
                if let Some(verdict) = self.pass_untranslated(flow.src) {
                    return verdict;
                }
                let hairpins = self.config.hairpin && self.config.external_index(flow.dst).is_some();
                match self.sessions.create_outbound(flow, *flags, hairpins, clock(now)) {
                    Ok(t) => self.count_created(t),
                    Err(error) => return Nat44Verdict::Drop(error.into()),
                }
            }
        };
        self.remember_fragments(*first, Direction::Outbound, t, now);
        rewrite::packet(frame, offsets, &t, Direction::Outbound);
        self.hairpin(frame, flow.dst, now)
    }

    /// Translates a packet from outside by the translation of its session; without one, creates the session.
    fn translate_inbound(
        &mut self,
        packet: &SessionPacket,
        known: Option<Translation>,
        frame: &mut [u8],
        now: Duration,
    ) -> Nat44Verdict {
        let SessionPacket { offsets, flow, flags, first } = packet;
        let t = match known {
            Some(t) => t,
            None => match self.sessions.create_inbound(flow, *flags, clock(now)) {
                Ok(t) => self.count_created(t),
                Err(SessionError::NoSession) => return Nat44Verdict::NoSession(flow.dst),
                Err(error) => return Nat44Verdict::Drop(error.into()),
            },
        };
        self.remember_fragments(*first, Direction::Inbound, t, now);
        rewrite::packet(frame, offsets, &t, Direction::Inbound);
        Nat44Verdict::Pass
    }

    /// Counts a session that was created, and returns its translation.
    fn count_created(&self, t: Translation) -> Translation {
        self.statistics.counters[SessionCounter::Created].add(1);
        t
    }

    /// Returns `Pass` if the source is not a subscriber.
    fn pass_untranslated(&self, src: u32) -> Option<Nat44Verdict> {
        let is_external = self.config.external_index(src).is_some();
        if !is_external && self.config.is_inside(src) {
            return None;
        }
        self.statistics.counters[SessionCounter::Untranslated].add(1);
        Some(Nat44Verdict::Pass)
    }

    /// Translates a packet again if its destination is the external address of a subscriber.
    fn hairpin(&mut self, frame: &mut [u8], dst: u32, now: Duration) -> Nat44Verdict {
        if !self.config.hairpin || self.config.external_index(dst).is_none() {
            return Nat44Verdict::Pass;
        }
        match self.inbound(&parse(frame), frame, now) {
            Nat44Verdict::Pass => {
                self.statistics.counters[SessionCounter::Hairpinned].add(1);
                Nat44Verdict::Hairpin
            }
            // the destination belongs to another copy, or there is no session
            Nat44Verdict::NoSession(_) => Nat44Verdict::Drop(DropReason::NoHairpin),
            // the packet is half translated, so it cannot be parsed again later
            Nat44Verdict::Hold => Nat44Verdict::Drop(DropReason::UnknownFragment),
            other => other,
        }
    }

    /// Translates a packet from outside.
    fn inbound(
        &mut self,
        (parsed, addresses): &(NatPacket, Option<OuterAddresses>),
        frame: &mut [u8],
        now: Duration,
    ) -> Nat44Verdict {
        match *parsed {
            // only replies are accepted (RFC 5508 §3)
            NatPacket::Session(SessionPacket { flow, flags, .. })
                if flow.protocol == IpProtocol::ICMPV4.0 && flags != REPLY =>
            {
                Nat44Verdict::NoSession(flow.dst)
            }
            NatPacket::Session(packet) => {
                let known = self.sessions.find(&packet.flow, Direction::Inbound, packet.flags, clock(now));
                self.translate_inbound(&packet, known, frame, now)
            }
            NatPacket::LaterFragment(offsets, datagram) => match self.fragments.get(datagram, Direction::Inbound) {
                Some(t) => {
                    rewrite::address(frame, &offsets, &t, Direction::Inbound);
                    Nat44Verdict::Pass
                }
                None if self.config.external_index(datagram.dst).is_none() => Nat44Verdict::NoSession(datagram.dst),
                None => Nat44Verdict::Hold,
            },
            NatPacket::IcmpError(offsets, outer, quoted) => {
                self.translate_icmp_error(frame, &offsets, outer, &quoted, Direction::Inbound, now)
            }
            other => match (addresses, self.without_session(other)) {
                (Some(addresses), Nat44Verdict::Drop(reason)) => match self.unmatched(addresses.dst) {
                    Nat44Verdict::Pass => Nat44Verdict::NoSession(addresses.dst),
                    _ => Nat44Verdict::Drop(reason),
                },
                (_, verdict) => verdict,
            },
        }
    }

    /// Decides on a packet from outside without a session.
    fn unmatched(&self, dst: u32) -> Nat44Verdict {
        // packets to other addresses pass
        if self.config.external_index(dst).is_none() || self.config.unmatched == Unmatched::Pass {
            return Nat44Verdict::Pass;
        }
        Nat44Verdict::Drop(DropReason::NoSession)
    }

    fn remember_fragments(
        &mut self,
        first: Option<Ipv4DatagramId>,
        direction: Direction,
        t: Translation,
        now: Duration,
    ) {
        if let Some(datagram) = first {
            self.fragments.insert(datagram, direction, t, now);
            self.queue.mark_arrived(datagram);
            self.statistics.counters[SessionCounter::Fragments].set(self.fragments.len() as u64);
        }
    }

    /// Translates an ICMP error and the packet that it quotes (RFC 5508 §4.2, §4.3).
    fn translate_icmp_error(
        &mut self,
        frame: &mut [u8],
        offsets: &Offsets,
        outer: OuterAddresses,
        quoted: &Flow,
        direction: Direction,
        now: Duration,
    ) -> Nat44Verdict {
        // replies to the quoted packet have the direction of the error
        let Some(t) = self.sessions.peek(&quoted.reversed(), direction) else {
            return match direction {
                Direction::Inbound => match self.unmatched(outer.dst) {
                    Nat44Verdict::Drop(_) => Nat44Verdict::Drop(DropReason::UnknownIcmpError),
                    _ => Nat44Verdict::NoSession(outer.dst),
                },
                Direction::Outbound => {
                    self.pass_untranslated(outer.src).unwrap_or(Nat44Verdict::Drop(DropReason::UnknownIcmpError))
                }
            };
        };
        // the checksum is recomputed after the translation, so it has to be verified first (RFC 5508 REQ-3)
        if !frame.get(offsets.l4..offsets.end).is_some_and(checksum::verify) {
            return Nat44Verdict::Drop(DropReason::BadIcmpError);
        }
        rewrite::icmp_error(frame, offsets, &t, direction, t.address());
        match direction {
            Direction::Outbound => self.hairpin(frame, outer.dst, now),
            Direction::Inbound => Nat44Verdict::Pass,
        }
    }

    /// Decides on a packet that cannot belong to a session.
    fn without_session(&self, packet: NatPacket) -> Nat44Verdict {
        match packet {
            NatPacket::Malformed => Nat44Verdict::Drop(DropReason::MalformedIp),
            NatPacket::TinyFragment => Nat44Verdict::Drop(DropReason::TinyFragment),
            NatPacket::UnsupportedProtocol => Nat44Verdict::Drop(DropReason::UnsupportedProtocol),
            NatPacket::BadIcmpError => Nat44Verdict::Drop(DropReason::BadIcmpError),
            _ => {
                self.statistics.counters[SessionCounter::Untranslated].add(1);
                Nat44Verdict::Pass
            }
        }
    }

    fn translate(
        &mut self,
        parsed: &(NatPacket, Option<OuterAddresses>),
        frame: &mut [u8],
        input: u8,
        now: Duration,
    ) -> Nat44Verdict {
        if input == INSIDE {
            return self.outbound(parsed, frame, now);
        }
        // inside and external sources, and inside destinations, do not occur outside
        if parsed.1.is_some_and(|addresses| self.config.is_spoofed(addresses.src, addresses.dst)) {
            return Nat44Verdict::Drop(DropReason::Spoofed);
        }
        let verdict = self.inbound(parsed, frame, now);
        self.settle_inbound(verdict)
    }

    /// Decides on a packet from outside that is not a hairpin.
    fn settle_inbound(&self, verdict: Nat44Verdict) -> Nat44Verdict {
        let Nat44Verdict::NoSession(dst) = verdict else { return verdict };
        let verdict = self.unmatched(dst);
        self.statistics.counters[SessionCounter::Untranslated].add(u64::from(verdict == Nat44Verdict::Pass));
        verdict
    }

    /// Translates a plain packet that had no session when its batch was looked up. `may_have` is true if sessions were
    /// created since.
    fn translate_first(
        &mut self,
        key: &Tuple4,
        frame: &mut [u8],
        input: u8,
        may_have: bool,
        now: Duration,
    ) -> Nat44Verdict {
        let packet = SessionPacket::of_plain(key, frame);
        let direction = if input == INSIDE { Direction::Outbound } else { Direction::Inbound };
        if input != INSIDE && self.config.is_spoofed(packet.flow.src, packet.flow.dst) {
            return Nat44Verdict::Drop(DropReason::Spoofed);
        }
        let find = || self.sessions.find(&packet.flow, direction, packet.flags, clock(now));
        let known = may_have.then(find).flatten();
        match direction {
            Direction::Outbound => self.translate_outbound(&packet, known, frame, now),
            Direction::Inbound => {
                let verdict = self.translate_inbound(&packet, known, frame, now);
                self.settle_inbound(verdict)
            }
        }
    }

    /// Translates the packets `others` that the fast path left: not plain, without a session, or changing its state.
    /// Those in `absent` have no session.
    #[inline(never)]
    fn translate_others(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch, others: u64, absent: u64) {
        let now = cx.now();
        let mut verdicts = [Nat44Verdict::Pass; BURST];
        let mut diverted = 0u64;
        let created = self.statistics.counters[SessionCounter::Created].get();
        let mut rest = others;
        for_each_bit(absent, |i| {
            let (key, frame) = (self.keys[i].key(), batch.as_mut_slice()[i].data_mut());
            if key == Tuple4::default() {
                return;
            }
            rest &= !(1 << i);
            let may_have = self.statistics.counters[SessionCounter::Created].get() != created;
            let verdict = self.translate_first(&key, frame, input, may_have, now);
            diverted |= u64::from(verdict != Nat44Verdict::Pass) << i;
            verdicts[i] = verdict;
        });
        for_each_bit(rest, |i| {
            let frame = batch.as_mut_slice()[i].data_mut();
            let verdict = self.translate(&parse(frame), frame, input, now);
            diverted |= u64::from(verdict != Nat44Verdict::Pass) << i;
            verdicts[i] = verdict;
        });
        if diverted != 0 {
            let (path, since) = (cx.path(), cx.now());
            batch.extract_mask(diverted, |i, packet| {
                self.apply(cx, verdicts[i & (BURST - 1)], HeldFragment { path, input, since, packet });
            });
        }
        for mut held in self.queue.take_ready(cx) {
            let verdict = self.translate(&parse(held.packet.data()), held.packet.data_mut(), held.input, now);
            self.apply(cx, verdict, held);
        }
        self.statistics.report(&mut self.sessions, &mut Ipv4Subscribers);
    }

    /// Forwards, holds or drops a packet.
    fn apply(&mut self, cx: &mut Context<'_>, verdict: Nat44Verdict, held: HeldFragment) {
        match verdict {
            Nat44Verdict::Pass => cx.emit_on_path(held.path, 0, held.packet),
            Nat44Verdict::Hairpin => match cx.path_from_input(OUTSIDE) {
                Some(path) => cx.emit_on_path(path, 0, held.packet),
                None => cx.drop(DropReason::NoHairpin, held.packet),
            },
            Nat44Verdict::Hold => {
                let packet = match parse(held.packet.data()).0 {
                    NatPacket::LaterFragment(_, datagram) => self.queue.hold(cx, held, datagram).err(),
                    _ => Some(held.packet),
                };
                if let Some(packet) = packet {
                    cx.drop(DropReason::UnknownFragment, packet);
                }
            }
            Nat44Verdict::Drop(reason) => cx.drop(reason, held.packet),
            Nat44Verdict::NoSession(_) => cx.drop(DropReason::NoSession, held.packet),
        }
    }
}

impl SessionCopy for Nat44Node {
    fn sessions(&mut self) -> (&mut SessionTable, &dyn Subscribers) {
        (&mut self.sessions, &Ipv4Subscribers)
    }

    fn count_closed(&self, sessions: usize) {
        self.statistics.counters[SessionCounter::Closed].add(sessions as u64);
    }
}

impl Node for Nat44Node {
    fn drops(&self) -> &[&'static str] {
        &DropReason::NAMES[..=DropReason::Spoofed as usize]
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.statistics.counters()
    }

    fn gauges(&self) -> Vec<&'static str> {
        self.statistics.gauges()
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.statistics.bounded_tables()
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let direction = if input == INSIDE { Direction::Outbound } else { Direction::Inbound };
        let now = clock(cx.now());
        let Nat44Node { sessions, keys, .. } = self;
        let table = if direction == Direction::Outbound { &mut sessions.outbound } else { &mut sessions.inbound };
        let mut n = 0usize;
        batch.for_each(
            #[inline(always)]
            |packet| {
                // packets that are not plain get a key that no session has
                let key = flow::plain_ipv4_key(packet.data()).unwrap_or_default();
                keys[n & (BURST - 1)] = table.prepare(key);
                n += 1;
            },
        );
        let n = n.min(BURST);
        let packets = &mut batch.as_mut_slice()[..n];
        // rarely written, unlike a mask of translated packets
        let mut others = 0u64;
        let mut translate = |i: usize, t: &Translation, direction| {
            if !flow::rewrite_plain(packets[i].data_mut(), t, direction) {
                others |= 1 << i;
            }
        };
        let keys = &keys[..n];
        let absent = match direction {
            Direction::Outbound => table.look_up(
                keys,
                now,
                #[inline(always)]
                |i, t| translate(i, t, Direction::Outbound),
            ),
            Direction::Inbound => table.look_up(
                keys,
                now,
                #[inline(always)]
                |i, t| translate(i, t, Direction::Inbound),
            ),
        };
        let others = others | absent;
        if others != 0 {
            self.translate_others(cx, input, batch, others, absent);
        }
    }

    fn take_over(&mut self, old: &mut dyn Any) {
        let Some(old) = old.downcast_mut::<Nat44Node>() else { return };
        self.sessions.take_over(&mut old.sessions);
        core::mem::swap(&mut self.fragments, &mut old.fragments);
        self.fragments.set_capacity(self.config.fragments);
        core::mem::swap(&mut self.queue, &mut old.queue);
    }

    fn save(&mut self, state: &mut StateWriter) {
        self.statistics.save_sessions(&mut self.sessions, &mut Ipv4Subscribers, state);
    }

    fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        self.statistics.restore_sessions(&mut self.sessions, &mut Ipv4Subscribers, state)
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        if let Ok(visit) = self.visits.try_recv() {
            visit(self, now);
        }
        self.statistics.expire_sessions(&mut self.sessions, now);
        self.fragments.expire(now);
        self.statistics.counters[SessionCounter::Fragments].set(self.fragments.len() as u64);
        self.queue.drop_expired(cx, DropReason::UnknownFragment);
        self.statistics.rank_subscribers_periodically(&self.sessions, &Ipv4Subscribers, now);
        self.statistics.report(&mut self.sessions, &mut Ipv4Subscribers);
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.statistics.stats_table())
    }

    fn finish(&mut self) {
        self.statistics.report(&mut self.sessions, &mut Ipv4Subscribers);
        self.statistics.rank_subscribers(&self.sessions, &Ipv4Subscribers);
    }
}
