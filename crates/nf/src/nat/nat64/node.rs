//! The node of `nat64`.

use super::error_reply::{ErrorCause, MAX_ERRORS_PER_SECOND, error_frame};
use super::headers::{
    AddressPair, FRAGMENT_HEADER_LEN, IPV4_HEADER_LEN, IPV6_HEADER_LEN, fragment, ipv4_header, ipv6_header,
    replace_headers, translate_l4,
};
use super::hosts::Hosts;
use super::parse::{DatagramKey, Frame, L4, PacketInfo, UDP_HEADER_LEN, parse, parse_l4, pseudo, u16_at};
use super::settings::Config;
use crate::bits::for_each_bit;
use crate::fragment_queue::{FragmentQueue, HeldFragment};
use crate::nat::drop_reason::DropReason;
use crate::nat::flow::{self, Direction, Flow, INSIDE, OUTSIDE};
use crate::nat::fragments::FragmentTable;
use crate::nat::operations::{LiveSessions, SessionCopy};
use crate::nat::port_allocator::PortAllocator;
use crate::nat::sessions::{SessionError, SessionTable, clock};
use crate::nat::statistics::{SessionCounter, Statistics, Subscribers, TICK};
use crate::visits::Visits;
use diagnostics::Diagnostic;
use graph::{
    BoundedTable, BuildContext, Context, Counter, Counters, InvalidState, Named, Node, StateReader, StateWriter,
    StatsTable, TokenBucket,
};
use packet::{BURST, Batch, Packet};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{Prepared, Tuple4};
use wire::IpProtocol;

graph::named_enum! {
    /// Counters of `nat64` in addition to those of its sessions.
    enum Nat64Counter {
        Fragmented = "fragmented",
        IcmpSent = "icmp_sent",
        IcmpRateLimited = "icmp_rate_limited",
    }
}

/// Treatment of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nat64Verdict {
    /// Forward it.
    Pass,
    /// Fragment and forward it.
    Fragment {
        ip: usize,
        id: u32,
    },
    /// Send it back to the inside.
    Hairpin,
    /// Hold it until another fragment of the datagram arrives.
    Hold(DatagramKey),
    Drop(DropReason),
    /// Drop it and send an ICMP error from this address.
    Reject(DropReason, ErrorCause, u128),
}

/// Translation of the later fragments of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FragmentTranslation {
    addresses: AddressPair,
    protocol: u8,
}

/// The node of one core.
pub(super) struct Nat64Node {
    pub(super) config: Arc<Config>,
    pub(super) sessions: SessionTable,
    pub(super) hosts: Hosts,
    /// Session keys of the packets of a batch.
    pub(super) keys: [Prepared<Tuple4>; BURST],
    fragments: FragmentTable<DatagramKey, FragmentTranslation>,
    /// Lengths of datagrams whose last fragment arrived: the checksum of an ICMPv6 echo covers the length of the whole.
    datagram_lengths: FragmentTable<DatagramKey, u32>,
    /// Fragments that arrived before the first one of their datagram, and first fragments of echoes that arrived before
    /// the last one.
    queue: FragmentQueue<DatagramKey>,
    statistics: Statistics,
    visits: Visits<dyn SessionCopy>,
    icmp: TokenBucket,
    /// An external address of this core, the source of ICMP errors to the inside.
    own_address: u32,
    /// Identification of the next IPv4 packet that may be fragmented.
    pub(super) id: u16,
    counters: Counters<Nat64Counter>,
}

impl Nat64Node {
    /// Creates the node.
    ///
    /// # Errors
    /// The core has no external address, the tables cannot be allocated, or the log cannot be started.
    pub(super) fn new(config: Arc<Config>, cx: &BuildContext) -> Result<Self, Diagnostic> {
        let own = config.nat.own_externals(cx)?;
        let visits = cx.shared(|| Ok(LiveSessions::default()))?.attach(cx.copy.0);
        let statistics = Statistics::new(&config.nat, cx, true)?;
        let seed = std::hash::BuildHasher::hash_one(&foldhash::fast::RandomState::default(), cx.copy.0);
        let own_address = config.nat.external[own[0]];
        // ended sessions are always reported: their hosts may become idle
        let sessions = SessionTable::new(&config.nat, PortAllocator::new(config.nat.clone(), own, seed), true)?;
        Ok(Nat64Node {
            keys: [sessions.outbound.prepare(Tuple4::default()); BURST],
            sessions,
            // the hosts of a batch that get no session are removed only after it
            hosts: Hosts::new(&config.fixed, config.nat.subscribers + BURST)?,
            fragments: FragmentTable::new(config.nat.fragments),
            datagram_lengths: FragmentTable::new(config.nat.fragments),
            config,
            queue: FragmentQueue::new(),
            statistics,
            visits,
            icmp: TokenBucket::new(MAX_ERRORS_PER_SECOND, MAX_ERRORS_PER_SECOND),
            own_address,
            id: own_address as u16,
            counters: Counters::default(),
        })
    }

    fn untranslated(&self) -> Nat64Verdict {
        self.statistics.counters[SessionCounter::Untranslated].add(1);
        Nat64Verdict::Pass
    }

    /// Translates a packet.
    fn translate(&mut self, packet: &mut Packet, input: u8, now: Duration) -> Nat64Verdict {
        match parse(packet.data()) {
            Frame::Ip(info) if info.is_ipv6 && input == INSIDE => self.outbound(packet, &info, now),
            Frame::Ip(info) if !info.is_ipv6 && input == OUTSIDE => {
                // external sources do not occur outside
                if self.config.nat.external_index(info.src as u32).is_some() {
                    return Nat64Verdict::Drop(DropReason::Spoofed);
                }
                self.inbound(packet, &info, now, false)
            }
            Frame::Malformed => Nat64Verdict::Drop(DropReason::MalformedIp),
            _ => self.untranslated(),
        }
    }

    /// Translates an IPv6 packet from inside.
    fn outbound(&mut self, packet: &mut Packet, info: &PacketInfo, now: Duration) -> Nat64Verdict {
        let prefix = self.config.prefix;
        if !prefix.contains(info.dst) {
            return self.untranslated();
        }
        let dst = prefix.extract(info.dst);
        // the packet would loop (RFC 6146 §3.5)
        if prefix.contains(info.src) {
            return Nat64Verdict::Drop(DropReason::Spoofed);
        }
        if !self.config.is_unicast_host(dst) {
            return Nat64Verdict::Drop(DropReason::InvalidAddress);
        }
        let bytes = &packet.data()[info.l4..info.end];
        let kind = parse_l4(info, bytes, false);
        // no ICMP error is sent to other hosts; errors themselves come from routers, which need not be inside
        if kind != L4::IcmpError && !self.config.is_inside(info.src) {
            return Nat64Verdict::Drop(DropReason::NotInside);
        }
        let from = prefix.embed(self.own_address);
        if let Some(at) = info.source_route {
            return Nat64Verdict::Reject(DropReason::SourceRouted, ErrorCause::Routing { at }, from);
        }
        if info.hop_limit <= 1 {
            return Nat64Verdict::Reject(DropReason::TtlExpired, ErrorCause::TimeExceeded, from);
        }
        if kind == L4::IcmpError {
            return self.translate_icmp_error(packet, info, Direction::Outbound, now);
        }
        let (flow, flags) = match kind {
            L4::LaterFragment => {
                let datagram = info.datagram();
                self.record_length(info, datagram, now);
                return match self.fragments.get(datagram, Direction::Outbound) {
                    Some(t) => self.translate_to_ipv4(packet, info, t, dst, now),
                    None => Nat64Verdict::Hold(datagram),
                };
            }
            // UDP over IPv6 requires a checksum (RFC 8200 §8.1)
            L4::Ports { .. } if no_checksum(info, bytes) => return Nat64Verdict::Drop(DropReason::NoChecksum),
            L4::Ports { src, dst: port, flags } => ((src, port), flags),
            L4::Echo { reply: true, .. } => return Nat64Verdict::Drop(DropReason::NoSession),
            L4::Echo { id, .. } => ((id, 0), 0),
            other => return Nat64Verdict::Drop(unsupported_reason(other)),
        };
        let Some(datagram_len) = self.datagram_len(info) else { return Nat64Verdict::Hold(info.datagram()) };
        let flow = |host| Flow { src: host, dst, src_port: flow.0, dst_port: flow.1, protocol: info.protocol };
        let clock = clock(now);
        let known = self
            .hosts
            .get(info.src)
            .and_then(|host| self.sessions.find(&flow(host), Direction::Outbound, flags, clock));
        let t = match known {
            Some(t) => t,
            None => match self.create_outbound(info.src, flow, flags, clock) {
                Ok(t) => t,
                Err(reason) => return Nat64Verdict::Drop(reason),
            },
        };
        let addresses = AddressPair { src: t.address().into(), dst: dst.into() };
        translate_l4(
            &mut packet.data_mut()[info.l4..info.end],
            info,
            &addresses,
            t.port(),
            Direction::Outbound,
            datagram_len,
        );
        let translation = FragmentTranslation { addresses, protocol: info.protocol };
        self.remember_fragments(info, Direction::Outbound, translation, now);
        self.translate_to_ipv4(packet, info, translation, dst, now)
    }

    #[cold]
    fn create_outbound(
        &mut self,
        host: u128,
        flow: impl Fn(u32) -> Flow,
        flags: u8,
        clock: u32,
    ) -> Result<flow::Translation, DropReason> {
        let host = self.hosts.get_or_add(host).ok_or(DropReason::TooManySubscribers)?;
        let flow = flow(host);
        let hairpin = self.config.nat.hairpin && self.config.nat.external_index(flow.dst).is_some();
        let t = self.sessions.create_outbound(&flow, flags, hairpin, clock)?;
        self.hosts.session_created(host);
        self.statistics.counters[SessionCounter::Created].add(1);
        Ok(t)
    }

    /// Replaces the headers of a packet from inside by an IPv4 header; the rest is already translated.
    fn translate_to_ipv4(
        &mut self,
        packet: &mut Packet,
        info: &PacketInfo,
        t: FragmentTranslation,
        dst: u32,
        now: Duration,
    ) -> Nat64Verdict {
        self.id = self.id.wrapping_add(1);
        let header = ipv4_header(info, t.protocol, &t.addresses, info.hop_limit - 1, self.id);
        if !replace_headers(packet, info, &header) {
            return Nat64Verdict::Drop(DropReason::NoBuffer);
        }
        self.hairpin(packet, dst, now)
    }

    /// Translates a packet again if its destination is the external address of an inside host.
    pub(super) fn hairpin(&mut self, packet: &mut Packet, dst: u32, now: Duration) -> Nat64Verdict {
        if !self.config.nat.hairpin || self.config.nat.external_index(dst).is_none() {
            return Nat64Verdict::Pass;
        }
        let Frame::Ip(info) = parse(packet.data()) else { return Nat64Verdict::Drop(DropReason::MalformedIp) };
        match self.inbound(packet, &info, now, true) {
            Nat64Verdict::Pass | Nat64Verdict::Fragment { .. } => {
                self.statistics.counters[SessionCounter::Hairpinned].add(1);
                Nat64Verdict::Hairpin
            }
            // the destination belongs to another copy, or there is no session
            Nat64Verdict::Drop(DropReason::NoSession) => Nat64Verdict::Drop(DropReason::NoHairpin),
            // the packet is half translated, so it cannot be parsed again later
            Nat64Verdict::Hold(_) => Nat64Verdict::Drop(DropReason::UnknownFragment),
            Nat64Verdict::Reject(reason, ..) => Nat64Verdict::Drop(reason),
            other => other,
        }
    }

    /// Translates an IPv4 packet from outside, or a hairpinned one, whose hop limit is already decremented.
    fn inbound(&mut self, packet: &mut Packet, info: &PacketInfo, now: Duration, hairpinned: bool) -> Nat64Verdict {
        let dst = info.dst as u32;
        if self.config.nat.external_index(dst).is_none() {
            return self.untranslated();
        }
        let bytes = &packet.data()[info.l4..info.end];
        let kind = parse_l4(info, bytes, false);
        // no ICMP error is sent to other addresses
        if !hairpinned && kind != L4::IcmpError && !self.config.is_unicast_host(info.src as u32) {
            return Nat64Verdict::Drop(DropReason::InvalidAddress);
        }
        if info.source_route.is_some() {
            return Nat64Verdict::Reject(DropReason::SourceRouted, ErrorCause::SourceRoute, info.dst);
        }
        if info.hop_limit <= 1 && !hairpinned {
            return Nat64Verdict::Reject(DropReason::TtlExpired, ErrorCause::TimeExceeded, info.dst);
        }
        if kind == L4::IcmpError {
            // the router's address may be of any kind
            return self.translate_icmp_error(packet, info, Direction::Inbound, now);
        }
        let (flow, flags) = match kind {
            L4::LaterFragment => {
                let datagram = info.datagram();
                self.record_length(info, datagram, now);
                return match self.fragments.get(datagram, Direction::Inbound) {
                    Some(t) => self.translate_to_ipv6(packet, info, t, hairpinned),
                    None => Nat64Verdict::Hold(datagram),
                };
            }
            L4::Ports { src, dst, flags } => ((src, dst), flags),
            // only replies are accepted
            L4::Echo { reply: false, .. } => return Nat64Verdict::Drop(DropReason::NoSession),
            L4::Echo { id, .. } => ((0, id), 0),
            other => return Nat64Verdict::Drop(unsupported_reason(other)),
        };
        let lacks_checksum = no_checksum(info, bytes);
        if lacks_checksum && info.is_fragment() {
            // the checksum cannot be computed from a fragment (RFC 7915 §4.5)
            return Nat64Verdict::Drop(DropReason::NoChecksum);
        }
        let translated_len = IPV6_HEADER_LEN + info.len() + if info.is_fragment() { FRAGMENT_HEADER_LEN } else { 0 };
        if info.dont_fragment && translated_len > self.config.mtu {
            let header_growth =
                IPV6_HEADER_LEN - IPV4_HEADER_LEN + if info.is_fragment() { FRAGMENT_HEADER_LEN } else { 0 };
            return Nat64Verdict::Reject(
                DropReason::TooBig,
                ErrorCause::TooBig { mtu: self.config.mtu - header_growth },
                info.dst,
            );
        }
        let src = info.src as u32;
        let flow = Flow { src, dst, src_port: flow.0, dst_port: flow.1, protocol: info.protocol };
        let Some(datagram_len) = self.datagram_len(info) else {
            // hold only packets of existing sessions
            let known = self.sessions.peek(&flow, Direction::Inbound).is_some();
            return if known { Nat64Verdict::Hold(info.datagram()) } else { Nat64Verdict::Drop(DropReason::NoSession) };
        };
        let clock = clock(now);
        let t = match self.sessions.find(&flow, Direction::Inbound, flags, clock) {
            Some(t) => t,
            None => match self.create_inbound(&flow, flags, clock) {
                Ok(t) => t,
                Err(error) => return Nat64Verdict::Drop(error.into()),
            },
        };
        let addresses = AddressPair { src: self.config.prefix.embed(src), dst: self.hosts.address(t.address()) };
        let bytes = &mut packet.data_mut()[info.l4..info.end];
        translate_l4(bytes, info, &addresses, t.port(), Direction::Inbound, datagram_len);
        if lacks_checksum {
            let len = usize::from(u16_at(bytes, 4)).clamp(UDP_HEADER_LEN, bytes.len());
            let new = PacketInfo { src: addresses.src, dst: addresses.dst, ..*info };
            let sum = pseudo(&new).sum(&bytes[..len]).finish_udp();
            bytes[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        let translation = FragmentTranslation { addresses, protocol: info.protocol };
        self.remember_fragments(info, Direction::Inbound, translation, now);
        self.translate_to_ipv6(packet, info, translation, hairpinned)
    }

    #[cold]
    fn create_inbound(&mut self, flow: &Flow, flags: u8, clock: u32) -> Result<flow::Translation, SessionError> {
        let t = self.sessions.create_inbound(flow, flags, clock)?;
        self.hosts.session_created(t.address());
        self.statistics.counters[SessionCounter::Created].add(1);
        Ok(t)
    }

    /// Replaces the headers of a packet from outside by an IPv6 header; the rest is already translated.
    fn translate_to_ipv6(
        &mut self,
        packet: &mut Packet,
        info: &PacketInfo,
        t: FragmentTranslation,
        hairpinned: bool,
    ) -> Nat64Verdict {
        let header = ipv6_header(info, &t.addresses, info.hop_limit - u8::from(!hairpinned));
        if !replace_headers(packet, info, &header) {
            return Nat64Verdict::Drop(DropReason::NoBuffer);
        }
        // hairpinned packets keep the size that their IPv6 sender chose
        let mtu = if info.dont_fragment || hairpinned { self.config.mtu } else { self.config.fragment_size };
        match header.bytes().len() + info.len() > mtu {
            true => Nat64Verdict::Fragment { ip: info.ip, id: info.id },
            false => Nat64Verdict::Pass,
        }
    }

    /// Returns the payload length of the whole datagram, or `None` if that of an ICMP echo is not known yet.
    fn datagram_len(&self, info: &PacketInfo) -> Option<usize> {
        if !info.more_fragments || info.protocol != IpProtocol::ICMPV4.0 {
            return Some(info.len());
        }
        let direction = if info.is_ipv6 { Direction::Outbound } else { Direction::Inbound };
        self.datagram_lengths.get(info.datagram(), direction).map(|datagram_len| datagram_len as usize)
    }

    /// Stores the length of a datagram if this is its last fragment.
    fn record_length(&mut self, info: &PacketInfo, datagram: DatagramKey, now: Duration) {
        let direction = if info.is_ipv6 { Direction::Outbound } else { Direction::Inbound };
        if info.more_fragments
            || info.protocol != IpProtocol::ICMPV4.0
            || self.datagram_lengths.get(datagram, direction).is_some()
        {
            return;
        }
        self.datagram_lengths.insert(datagram, direction, u32::from(info.offset) + info.len() as u32, now);
        self.queue.mark_arrived(datagram);
    }

    /// Stores the translation for the later fragments of a datagram.
    fn remember_fragments(&mut self, info: &PacketInfo, direction: Direction, t: FragmentTranslation, now: Duration) {
        if info.is_fragment() {
            self.fragments.insert(info.datagram(), direction, t, now);
            self.queue.mark_arrived(info.datagram());
            self.statistics.counters[SessionCounter::Fragments].set(self.fragments.len() as u64);
        }
    }

    /// Carries out the verdict on a packet that the batch loop does not simply forward.
    fn apply(&mut self, cx: &mut Context<'_>, verdict: Nat64Verdict, it: HeldFragment) {
        let HeldFragment { path, input, since, mut packet } = it;
        match verdict {
            Nat64Verdict::Pass => cx.emit_on_path(path, 0, packet),
            Nat64Verdict::Fragment { ip, id } => {
                let rest = fragment(&mut packet, ip, self.config.fragment_size, id);
                let buffers: Vec<_> = rest.iter().map_while(|fragment| cx.alloc_from(fragment)).collect();
                let all = buffers.len() == rest.len();
                self.counters[Nat64Counter::Fragmented].add(all.into());
                // a datagram without one of its fragments is useless
                for fragment in core::iter::once(packet).chain(buffers) {
                    if all { cx.emit_on_path(path, 0, fragment) } else { cx.drop(DropReason::NoBuffer, fragment) }
                }
            }
            Nat64Verdict::Hairpin => {
                if let Some(macs) = packet.data_mut().first_chunk_mut::<12>() {
                    macs.rotate_left(6);
                }
                self.emit_to_side(cx, INSIDE, packet);
            }
            Nat64Verdict::Hold(datagram) => {
                if let Err(packet) = self.queue.hold(cx, HeldFragment { path, input, since, packet }, datagram) {
                    cx.drop(DropReason::UnknownFragment, packet);
                }
            }
            Nat64Verdict::Drop(reason) => cx.drop(reason, packet),
            Nat64Verdict::Reject(reason, problem, from) => {
                self.send_error(cx, input, problem, from, &packet);
                cx.drop(reason, packet);
            }
        }
    }

    /// Emits a packet on the path that leads to one side.
    fn emit_to_side(&mut self, cx: &mut Context<'_>, to: u8, packet: Packet) {
        match cx.path_from_input(if to == INSIDE { OUTSIDE } else { INSIDE }) {
            Some(path) => cx.emit_on_path(path, 0, packet),
            None => cx.drop(DropReason::NoHairpin, packet),
        }
    }

    #[cold]
    fn send_error(&mut self, cx: &mut Context<'_>, input: u8, problem: ErrorCause, from: u128, packet: &Packet) {
        let Frame::Ip(info) = parse(packet.data()) else { return };
        let Some(answer) = error_frame(packet.data(), &info, problem, from) else { return };
        if !self.icmp.take(1, cx.now()) {
            return self.counters[Nat64Counter::IcmpRateLimited].add(1);
        }
        if let Some(answer) = cx.alloc_from(&answer) {
            self.counters[Nat64Counter::IcmpSent].add(1);
            self.emit_to_side(cx, input, answer);
        }
    }

    fn report(&mut self) {
        self.statistics.report(&mut self.sessions, &mut self.hosts);
        self.hosts.remove_idle();
    }
}

/// Returns true for a UDP packet without a checksum.
fn no_checksum(info: &PacketInfo, bytes: &[u8]) -> bool {
    info.protocol == IpProtocol::UDP.0 && u16_at(bytes, 6) == 0
}

/// Returns the drop reason of a packet that belongs to no session.
fn unsupported_reason(l4: L4) -> DropReason {
    match l4 {
        L4::TinyFragment => DropReason::TinyFragment,
        L4::Malformed => DropReason::MalformedIp,
        _ => DropReason::UnsupportedProtocol,
    }
}

impl SessionCopy for Nat64Node {
    fn sessions(&mut self) -> (&mut SessionTable, &dyn Subscribers) {
        (&mut self.sessions, &self.hosts)
    }

    fn count_closed(&self, sessions: usize) {
        self.statistics.counters[SessionCounter::Closed].add(sessions as u64);
    }
}

impl Node for Nat64Node {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.statistics.counters().into_iter().chain(self.counters.named()).collect()
    }

    fn gauges(&self) -> Vec<&'static str> {
        self.statistics.gauges()
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.statistics.bounded_tables()
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        let now = cx.now();
        let all = batch.mask();
        let rest = all & !self.translate_fast(input, batch, clock(now));
        let mut verdicts = [Nat64Verdict::Pass; BURST];
        let mut diverted = 0;
        for_each_bit(rest, |at| {
            if let Some(packet) = batch.as_mut_slice().get_mut(at) {
                verdicts[at] = self.translate(packet, input, now);
                diverted |= u64::from(verdicts[at] != Nat64Verdict::Pass) << at;
            }
        });
        if diverted != 0 {
            let (path, since) = (cx.path(), now);
            batch.extract_mask(diverted, |at, packet| {
                self.apply(cx, verdicts[at & (BURST - 1)], HeldFragment { path, input, since, packet });
            });
        }
        // a released fragment may be the one that others wait for
        for _ in 0..3 {
            for mut held in self.queue.take_ready(cx) {
                let verdict = self.translate(&mut held.packet, held.input, now);
                self.apply(cx, verdict, held);
            }
        }
        self.report();
    }

    fn take_over(&mut self, old: &mut dyn Any) {
        let Some(old) = old.downcast_mut::<Nat64Node>() else { return };
        self.sessions.take_over(&mut old.sessions);
        core::mem::swap(&mut self.hosts, &mut old.hosts);
        core::mem::swap(&mut self.fragments, &mut old.fragments);
        core::mem::swap(&mut self.datagram_lengths, &mut old.datagram_lengths);
        self.fragments.set_capacity(self.config.nat.fragments);
        self.datagram_lengths.set_capacity(self.config.nat.fragments);
        core::mem::swap(&mut self.queue, &mut old.queue);
        self.id = old.id;
    }

    fn save(&mut self, state: &mut StateWriter) {
        state.push(&self.id);
        // removes hosts whose sessions have ended
        self.report();
        self.hosts.save(state);
        self.statistics.save_sessions(&mut self.sessions, &mut self.hosts, state);
    }

    fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        self.id = state.read()?.ok_or(InvalidState)?;
        self.hosts.restore(state)?;
        self.statistics.restore_sessions(&mut self.sessions, &mut self.hosts, state)
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
        self.datagram_lengths.expire(now);
        self.statistics.counters[SessionCounter::Fragments].set(self.fragments.len() as u64);
        self.queue.drop_expired(cx, DropReason::UnknownFragment);
        self.statistics.rank_subscribers_periodically(&self.sessions, &self.hosts, now);
        self.report();
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.statistics.stats_table())
    }

    fn finish(&mut self) {
        self.report();
        self.statistics.rank_subscribers(&self.sessions, &self.hosts);
    }
}
