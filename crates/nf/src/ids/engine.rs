//! Inspection of packets and streams.

mod app;
mod candidates;
pub(super) mod decode;
mod defrag;
mod flow;
mod messages;
mod pattern_set;
mod rule_set;
mod stream;
mod threshold;
mod verify;

use super::app::{AppStatistics, Message};
use super::rule::app::AppProtocol;
use super::rule::header::HeaderCheck;
use super::rule::number::Comparison;
use super::rule::state::{
    BitCommand, BitScope, FlowCheck, FlowOption, FlowQuantity, IntegerCommand, IntegerOperand, IntegerOption,
    StateOption,
};
use super::rule::{Action, Buffer, Protocol, RejectTo, Rule};
use app::AppState;
use candidates::Candidates;
use decode::{ICMP, ICMPV6, IGMP, Packet, SCTP, TCP, UDP};
use defrag::Fragments;
use diagnostics::Diagnostic;
use flow::{Flow, FlowAction, Flows, TcpState};
use multi_pattern::Searcher;
use pattern_set::PatternSet;
use rule_set::Head;
pub(super) use rule_set::RuleSet;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use stream::{CHUNK_LEN, Chunk, Stream};
use streams::window::Overlap;
use threshold::{Permission, Thresholds};

/// Settings of an engine.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) prevent: bool,
    pub(super) checksums: bool,
    pub(super) midstream: bool,
    pub(super) flows: usize,
    /// Largest number of bytes of streams that are kept.
    pub(super) stream_bytes: usize,
    pub(super) overlap: Overlap,
    pub(super) max_alerts: usize,
}

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Forward,
    Drop,
    Reject(RejectTo),
}

/// A match of a rule that is reported.
#[derive(Clone, Debug)]
pub(super) struct Alert {
    /// Index of the rule.
    pub(super) rule: u32,
    pub(super) flow: u64,
    pub(super) src: (IpAddr, u16),
    pub(super) dst: (IpAddr, u16),
    pub(super) protocol: u8,
    pub(super) blocked: bool,
    /// Application protocol of the flow.
    pub(super) app: Option<AppProtocol>,
}

/// Largest number of tunnels in each other.
const MAX_TUNNELS: u8 = 4;
/// Largest number of xbits; while all are in use, further ones are not set.
const MAX_XBITS: usize = 65_536;
/// Time between two searches of the full table of xbits for expired ones.
const XBITS_SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// Calls of [`Engine::age`] in which all flows are visited.
const AGEING_PARTS: usize = 100;
/// Largest number of flowbits, and of numbers of flowint, per flow.
const MAX_FLOWBITS: usize = 1024;

/// Largest number of bytes that wait for the detection of the application protocol.
const MAX_UNDECIDED: usize = 64 << 10;
/// Largest number of rules per direction of a flow whose matches of packets are not repeated for the stream.
const MAX_MATCHED: usize = 64;

type XbitKey = (u32, Option<IpAddr>, Option<IpAddr>);

/// Bytes of a stream that are inspected with a packet.
#[derive(Clone, Copy)]
struct Input<'a> {
    /// False for the rest of a stream, without a packet.
    is_packet: bool,
    /// True if the payload of the packet is part of a stream.
    added: bool,
    chunk: Option<&'a [u8]>,
    /// Number of bytes of the stream up to the end of the chunk.
    chunk_end: u64,
    /// Number of the first bytes of the chunk that have been inspected before.
    repeated: usize,
    /// Identifiers of rules that have matched a packet of the chunk.
    matched: &'a [u32],
    to_client: bool,
    established: bool,
    ip_only: bool,
    /// Message that is inspected in place of the packet.
    message: Option<&'a Message>,
    /// True for the first packet of a direction since the application protocol is known.
    is_first_detected: bool,
}

/// Rules with the state of the flows.
pub(super) struct Engine {
    rule_set: Arc<RuleSet>,
    /// Working memory for each set of patterns.
    searchers: Vec<Searcher>,
    app: AppState,
    options: Options,
    flows: Flows,
    thresholds: Thresholds,
    fragments: Fragments,
    xbits: Xbits,
    candidates: Candidates,
    /// Alerts of the present packet.
    reported: usize,
    /// Streams whose bytes are not reassembled because of the limit of memory.
    pub(super) not_reassembled: u64,
    /// True if every rule is a candidate, for comparison.
    #[cfg(test)]
    without_search: bool,
}

/// Times until which xbits are set.
#[derive(Default)]
struct Xbits {
    until: HashMap<XbitKey, Duration>,
    next_search: Duration,
    /// Bits for which there was no room.
    refused: u64,
}

impl Xbits {
    fn is_set(&self, key: &XbitKey, now: Duration) -> bool {
        self.until.get(key).is_some_and(|until| now < *until)
    }

    fn set(&mut self, key: XbitKey, now: Duration, expire: u32) {
        if self.until.len() >= MAX_XBITS && now >= self.next_search {
            self.until.retain(|_, until| now < *until);
            self.next_search = now + XBITS_SEARCH_INTERVAL;
        }
        if self.until.len() < MAX_XBITS || self.until.contains_key(&key) {
            self.until.insert(key, now + Duration::from_secs(expire.into()));
        } else {
            self.refused += 1;
        }
    }
}

impl Engine {
    /// Creates the engine of a core.
    ///
    /// # Errors
    /// There is no memory for the search.
    pub(super) fn new(rule_set: Arc<RuleSet>, options: Options) -> Result<Self, Diagnostic> {
        Ok(Engine {
            searchers: rule_set.sets.iter().map(PatternSet::searcher).collect::<Result<_, _>>()?,
            app: AppState::new(&rule_set.app, options.prevent)?,
            flows: Flows::new(options.flows)?,
            thresholds: Thresholds::default(),
            fragments: Fragments::default(),
            xbits: Xbits::default(),
            candidates: Candidates::new(rule_set.rules().len()),
            reported: 0,
            not_reassembled: 0,
            #[cfg(test)]
            without_search: false,
            rule_set,
            options,
        })
    }

    /// Takes over flows, bits, thresholds and fragments of an engine whose rules these replace.
    pub(super) fn take_over(&mut self, old: &mut Engine) {
        if self.rule_set.continues(&old.rule_set) {
            self.flows.take_over(&mut old.flows);
            std::mem::swap(&mut self.thresholds, &mut old.thresholds);
            std::mem::swap(&mut self.fragments, &mut old.fragments);
            std::mem::swap(&mut self.xbits, &mut old.xbits);
            (self.thresholds.refused, self.xbits.refused) = (0, 0);
            // parsers of flows refer to them
            std::mem::swap(&mut self.app.statistics, &mut old.app.statistics);
            self.app.statistics.restart();
        }
    }

    /// Returns the number of counts of thresholds and of bits of hosts for which there was no room.
    pub(super) fn state_refused(&self) -> u64 {
        self.thresholds.refused + self.xbits.refused
    }

    pub(super) fn rule(&self, n: u32) -> Option<&Rule> {
        self.rule_set.rules().get(n as usize)
    }

    /// Returns true if packets can be rejected.
    pub(super) fn rejects(&self) -> bool {
        self.options.prevent && self.rule_set.rules().iter().any(|rule| rule.action == Action::Reject)
    }

    pub(super) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Returns the numbers of the parsers of application protocols.
    pub(super) fn app_statistics(&self) -> &AppStatistics {
        &self.app.statistics
    }

    /// Returns the packet of a frame; `None` if it is not IP.
    pub(super) fn decode<'a>(&self, frame: &'a [u8]) -> Option<Packet<'a>> {
        decode::decode_frame(frame, self.options.checksums)
    }

    /// Inspects a packet and those of its tunnels.
    pub(super) fn inspect(&mut self, now: Duration, packet: &Packet<'_>, alerts: &mut Vec<Alert>) -> Verdict {
        self.reported = 0;
        self.inspect_layers(now, packet, alerts)
    }

    /// Inspects a packet, the datagram that it completes, and the packets of its tunnels.
    fn inspect_layers(&mut self, now: Duration, packet: &Packet<'_>, alerts: &mut Vec<Alert>) -> Verdict {
        let checksums = self.options.checksums;
        let verdict = self.inspect_packet(now, packet, alerts);
        if packet.is_fragment() {
            let whole = self.fragments.add(now, packet);
            let whole = whole.as_ref().and_then(|payload| decode::reassembled(packet, payload, checksums));
            return whole.map_or(verdict, |whole| worse(verdict, self.inspect_layers(now, &whole, alerts)));
        }
        match packet.inner(checksums) {
            Some(inner) if verdict == Verdict::Forward && inner.tunnels <= MAX_TUNNELS => {
                self.inspect_layers(now, &inner, alerts)
            }
            _ => verdict,
        }
    }

    /// Removes flows that have been idle too long from part of the table, and inspects the rest of their streams.
    pub(super) fn age(&mut self, now: Duration, alerts: &mut Vec<Alert>) {
        self.flows.age(now, AGEING_PARTS);
        self.inspect_evicted(now, alerts);
    }

    /// Inspects the rest of all streams.
    pub(super) fn finish(&mut self, now: Duration, alerts: &mut Vec<Alert>) {
        self.flows.drain();
        self.inspect_evicted(now, alerts);
    }

    /// Inspects the rest of the streams of flows that are no longer in the table.
    fn inspect_evicted(&mut self, now: Duration, alerts: &mut Vec<Alert>) {
        let mut evicted = std::mem::take(&mut self.flows.evicted);
        evicted.sort_by_key(|flow| flow.number);
        for mut flow in evicted {
            self.reported = 0;
            for direction in 0..2 {
                self.inspect_rest(now, &mut flow, direction, alerts);
            }
            if flow.action == FlowAction::Inspect {
                self.finish_app(now, &mut flow, alerts);
            }
        }
    }

    fn inspect_packet(&mut self, now: Duration, packet: &Packet<'_>, alerts: &mut Vec<Alert>) -> Verdict {
        if !packet.has_flow() {
            let mut flow = self.flows.create(packet, now);
            return self.inspect_in_flow(now, packet, &mut flow, alerts);
        }
        let (slot, mut flow) = self.flows.take(packet, now);
        let verdict = match flow.action {
            FlowAction::Inspect => self.inspect_in_flow(now, packet, &mut flow, alerts),
            action => {
                let direction = flow.direction(packet);
                if self.track_end(packet, &mut flow, direction) {
                    flow.tcp = TcpState::Closed;
                }
                if action == FlowAction::Pass { Verdict::Forward } else { Verdict::Drop }
            }
        };
        self.flows.put(&slot, flow);
        if !self.flows.evicted.is_empty() {
            let reported = self.reported;
            self.inspect_evicted(now, alerts);
            self.reported = reported;
        }
        verdict
    }

    fn inspect_in_flow(
        &mut self,
        now: Duration,
        packet: &Packet<'_>,
        flow: &mut Flow,
        alerts: &mut Vec<Alert>,
    ) -> Verdict {
        let direction = flow.direction(packet);
        let was_established = flow.is_established(packet.is_tcp());
        flow.seen[direction] = true;
        flow.packets[direction] += 1;
        flow.bytes[direction] += packet.len as u64;
        let mut added = false;
        let mut verdict = Verdict::Forward;
        if !self.options.prevent {
            self.parse_app(packet, flow, direction);
        }
        if packet.is_tcp() {
            if packet.valid {
                self.track_tcp(packet, flow, direction);
                if !packet.payload.is_empty() && packet.tcp_flags() & 4 == 0 {
                    // the direction of the data changes: the other side has sent all that it had to send
                    verdict = self.inspect_rest(now, flow, 1 - direction, alerts);
                    let syn = packet.tcp_flags() & 2 != 0;
                    let fast_open = packet.tcp_option(34).is_some();
                    if flow.tcp >= TcpState::Established
                        || syn && fast_open
                        || flow.tcp == TcpState::SynAck && direction == 1
                    {
                        let seq = packet.field32(4).wrapping_add(u32::from(syn));
                        if self.flows.stream_bytes() >= self.options.stream_bytes {
                            self.not_reassembled += u64::from(flow.streams[direction].give_up());
                        }
                        flow.streams[direction].tap.open = self.parses_app(flow);
                        added = flow.streams[direction].add(seq, packet.payload, self.options.overlap);
                        verdict = worse(self.inspect_before_gap(now, flow, direction, alerts), verdict);
                    }
                }
            }
            if packet.valid && packet.tcp_flags() & 4 != 0 {
                verdict = worse(self.inspect_rest(now, flow, 1 - direction, alerts), verdict);
            }
        }
        let closes = self.track_end(packet, flow, direction);
        if flow.action == FlowAction::Pass {
            // by the bytes of the other direction
            if closes {
                flow.tcp = TcpState::Closed;
            }
            return verdict;
        }
        if self.options.prevent {
            self.parse_app(packet, flow, direction);
        }
        let closing = packet.tcp_flags() & 5 != 0;
        // rules about an application protocol without a buffer are matched with the first chunk as well
        let decided = !self.parses_app(flow) || flow.is_app_decided();
        let stream = &mut flow.streams[direction];
        let pending = stream.pending.len();
        let due = packet.is_tcp() && packet.valid;
        let due =
            due && (pending >= CHUNK_LEN && (decided || pending > MAX_UNDECIDED) || closing || self.options.prevent);
        let chunk = if due { stream.take() } else { None };
        let matched = if chunk.is_some() { std::mem::take(&mut stream.matched) } else { vec![] };
        let ip_only = !std::mem::replace(&mut flow.ip_only_done[direction], true);
        let is_first_detected = flow.is_app_decided() && !std::mem::replace(&mut flow.app_announced[direction], true);
        let input = Input {
            is_packet: true,
            added,
            chunk: chunk.as_ref().map(|chunk| &chunk.bytes[..]),
            chunk_end: chunk.as_ref().map_or(0, |chunk| chunk.end),
            repeated: chunk.as_ref().map_or(0, |chunk| chunk.repeated),
            matched: &matched,
            to_client: direction == 1,
            // a segment without data that completes the handshake is still part of it
            established: if packet.is_tcp() && packet.payload.is_empty() {
                was_established
            } else {
                flow.is_established(packet.is_tcp())
            },
            ip_only,
            message: None,
            is_first_detected,
        };
        let verdict = worse(self.evaluate(now, packet, flow, input, alerts), verdict);
        let verdict = worse(verdict, self.inspect_messages(now, packet, flow, direction, alerts));
        if let Some(chunk) = chunk {
            flow.streams[direction].keep(chunk);
        }
        if closes {
            flow.tcp = TcpState::Closed;
        }
        verdict
    }

    /// Marks a direction that a FIN ends, and returns true if the packet closes the connection.
    fn track_end(&self, packet: &Packet<'_>, flow: &mut Flow, direction: usize) -> bool {
        if !packet.is_tcp() || !packet.valid {
            return false;
        }
        let (fin, reset) = (packet.tcp_flags() & 1 != 0, packet.tcp_flags() & 4 != 0);
        let (seq, stream) = (packet.field32(4), &flow.streams[direction]);
        let accepts = |seq| stream.accepts_end(seq, self.options.prevent);
        let is_reset = reset && accepts(seq);
        flow.ended[direction] |= fin && accepts(seq.wrapping_add(packet.payload.len() as u32));
        is_reset || flow.ended == [true; 2]
    }

    fn track_tcp(&self, packet: &Packet<'_>, flow: &mut Flow, direction: usize) {
        let (syn, ack) = (packet.tcp_flags() & 2 != 0, packet.tcp_flags() & 16 != 0);
        let next = packet.field32(4).wrapping_add(u32::from(syn));
        match (flow.tcp, syn, ack) {
            (TcpState::None, true, false) => {
                flow.tcp = TcpState::Syn;
                flow.streams[direction].start(next);
            }
            (TcpState::Syn, true, true) if direction == 1 => {
                flow.tcp = TcpState::SynAck;
                flow.streams[1].start(next);
                // of several SYNs
                flow.streams[0].restart(packet.field32(8));
            }
            (TcpState::SynAck, false, true) if direction == 0 => flow.tcp = TcpState::Established,
            (TcpState::None, ..) if self.options.midstream => {
                flow.tcp = TcpState::Established;
                flow.streams[direction].start(next);
            }
            (TcpState::Established, ..) if self.options.midstream => flow.streams[direction].start(next),
            _ => {}
        }
    }

    /// Inspects the bytes of a direction that have not been inspected.
    fn inspect_rest(&mut self, now: Duration, flow: &mut Flow, direction: usize, alerts: &mut Vec<Alert>) -> Verdict {
        if flow.action != FlowAction::Inspect {
            return Verdict::Forward;
        }
        let before = self.inspect_before_gap(now, flow, direction, alerts);
        let Some(chunk) = flow.streams[direction].take() else { return before };
        let verdict = self.inspect_chunk(now, flow, direction, &chunk, alerts);
        flow.streams[direction].keep(chunk);
        worse(before, verdict)
    }

    /// Inspects the bytes in front of a gap that is skipped.
    fn inspect_before_gap(
        &mut self,
        now: Duration,
        flow: &mut Flow,
        direction: usize,
        alerts: &mut Vec<Alert>,
    ) -> Verdict {
        match flow.streams[direction].before_gap.take() {
            Some(chunk) => self.inspect_chunk(now, flow, direction, &chunk, alerts),
            None => Verdict::Forward,
        }
    }

    /// Inspects bytes of a stream without a packet.
    fn inspect_chunk(
        &mut self,
        now: Duration,
        flow: &mut Flow,
        direction: usize,
        chunk: &Chunk,
        alerts: &mut Vec<Alert>,
    ) -> Verdict {
        let matched = std::mem::take(&mut flow.streams[direction].matched);
        let packet = app::rest_packet(flow, direction);
        let input = Input {
            is_packet: false,
            added: true,
            chunk: Some(&chunk.bytes),
            chunk_end: chunk.end,
            repeated: chunk.repeated,
            matched: &matched,
            to_client: direction == 1,
            established: flow.is_established(true),
            ip_only: false,
            message: None,
            is_first_detected: false,
        };
        self.evaluate(now, &packet, flow, input, alerts)
    }

    /// Collects the rules that may match.
    fn collect(&mut self, packet: &Packet<'_>, stream: &mut Stream, input: &Input<'_>, candidates: &mut Candidates) {
        candidates.clear();
        let rule_set = &self.rule_set;
        if let Some(chunk) = input.chunk {
            let n = rule_set.stream_set(input.to_client);
            let (set, searcher) = (rule_set.sets.get(n), self.searchers.get_mut(n));
            if let Some((set, searcher)) = set.zip(searcher) {
                // patterns in the bytes that were inspected before were found then
                let known = stream.hits.start(rule_set.id());
                let is_known = known && !input.is_first_detected;
                let from = if is_known { (input.repeated + 1).saturating_sub(set.longest().max(1)) } else { 0 };
                set.search(searcher, chunk.get(from..).unwrap_or_default(), candidates);
                let stays = |rule| rule_set.head(rule).is_some_and(|head| head.has_later_options);
                stream.hits.update(input.chunk_end, chunk.len(), candidates, stays);
            }
        }
        if input.is_packet {
            if !packet.payload.is_empty() && !packet.is_fragment() {
                for n in rule_set.packet_sets(packet, input.added, input.to_client).into_iter().flatten() {
                    if let Some((set, searcher)) = rule_set.sets.get(n).zip(self.searchers.get_mut(n)) {
                        set.search(searcher, packet.payload, candidates);
                    }
                }
            }
            rule_set.without_pattern(packet).iter().for_each(|rule| candidates.insert(*rule));
            if input.ip_only {
                rule_set.ip_only(packet).iter().for_each(|rule| candidates.insert(*rule));
            }
        } else {
            rule_set.stream_without_pattern().iter().for_each(|rule| candidates.insert(*rule));
        }
        #[cfg(test)]
        if self.without_search {
            (0..rule_set.rules().len() as u32).for_each(|rule| candidates.insert(rule));
        }
    }

    /// Evaluates all rules that may match.
    fn evaluate(
        &mut self,
        now: Duration,
        packet: &Packet<'_>,
        flow: &mut Flow,
        input: Input<'_>,
        alerts: &mut Vec<Alert>,
    ) -> Verdict {
        let mut candidates = std::mem::take(&mut self.candidates);
        match input.message {
            Some(message) => {
                candidates.clear();
                self.rule_set.app.search(&mut self.app.searchers, message, &mut candidates);
            }
            None => self.collect(packet, &mut flow.streams[usize::from(input.to_client)], &input, &mut candidates),
        }
        let rule_set = &*self.rule_set;
        let mut verdict = Verdict::Forward;
        for n in candidates.sorted() {
            let (Some(rule), Some(head)) = (rule_set.rules().get(*n as usize), rule_set.head(*n)) else { continue };
            if !head.may_match(packet, input.to_client, input.established) {
                continue;
            }
            if input.message.is_some() && input.matched.contains(&rule.id) {
                continue;
            }
            let Some(by_stream) = match_rule(rule, head, packet, flow, &self.xbits, &input, now) else { continue };
            if by_stream && input.matched.contains(&rule.id) {
                continue;
            }
            if input.message.is_some() {
                self.app.matched.push(rule.id);
            }
            let matched = &mut flow.streams[usize::from(input.to_client)].matched;
            if !by_stream
                && input.added
                && input.chunk.is_none()
                && head.uses_stream
                && matched.len() < MAX_MATCHED
                && !matched.contains(&rule.id)
            {
                matched.push(rule.id);
            }
            apply_states(rule, packet, flow, &mut self.xbits, now);
            let permission = match &rule.threshold {
                Some(threshold) => self.thresholds.count(rule.id, threshold, packet, flow.id, now),
                None => Permission::Alert,
            };
            if permission == Permission::Nothing {
                continue;
            }
            let whole_flow = rule.has_only_addresses() || by_stream;
            let blocks = self.options.prevent && matches!(rule.action, Action::Drop | Action::Reject);
            if rule.action == Action::Pass {
                if whole_flow {
                    flow.action = FlowAction::Pass;
                }
                break;
            }
            if blocks {
                verdict = worse(
                    verdict,
                    match rule.action {
                        Action::Reject => Verdict::Reject(rule.reject_to),
                        _ => Verdict::Drop,
                    },
                );
                if whole_flow {
                    flow.action = FlowAction::Drop;
                }
            }
            if permission == Permission::Alert && !rule.noalert && self.reported < self.options.max_alerts {
                self.reported += 1;
                alerts.push(Alert {
                    rule: *n,
                    flow: flow.id,
                    src: (packet.src, packet.src_port),
                    dst: (packet.dst, packet.dst_port),
                    protocol: packet.protocol,
                    blocked: blocks,
                    app: flow.app_protocol,
                });
            }
        }
        self.candidates = candidates;
        verdict
    }
}

fn worse(one: Verdict, other: Verdict) -> Verdict {
    if one == Verdict::Forward { other } else { one }
}

/// Returns `None` if a rule does not match, otherwise true if it matches the stream.
fn match_rule(
    rule: &Rule,
    head: &Head,
    packet: &Packet<'_>,
    flow: &Flow,
    xbits: &Xbits,
    input: &Input<'_>,
    now: Duration,
) -> Option<bool> {
    if rule.is_ip_only() && !input.ip_only || input.is_packet && !packet.has_flow() && rule.tests_flow() {
        return None;
    }
    let protocol = match rule.protocol {
        Protocol::Ip => true,
        Protocol::Ipv4 => packet.src.is_ipv4(),
        Protocol::Ipv6 => packet.src.is_ipv6(),
        Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => packet.protocol == TCP,
        Protocol::Udp => packet.protocol == UDP,
        Protocol::Icmp => matches!(packet.protocol, ICMP | ICMPV6),
        Protocol::Icmpv4 => packet.protocol == ICMP,
        Protocol::Icmpv6 => packet.protocol == ICMPV6,
        Protocol::Igmp => packet.protocol == IGMP,
        Protocol::Sctp => packet.protocol == SCTP,
    };
    let matches = protocol
        && app::applies(rule, flow, input.message.is_some(), input.is_first_detected)
        && addresses_match(rule, packet)
        && rule.flow.iter().all(|option| flow_matches(*option, packet, input))
        && rule.checks.iter().all(|check| header_matches(check, packet))
        && rule.flow_checks.iter().all(|check| flow_check_matches(check, packet, flow, now))
        && rule.integers.iter().all(|option| integer_holds(option, flow))
        && rule.states.iter().filter(|s| s.reads()).all(|s| state_holds(s, packet, flow, xbits, now));
    if !matches {
        return None;
    }
    let mut variables = vec![0; rule.variables];
    if let Some(message) = input.message {
        return app::matches(rule, message, |buffer| buffer_of(buffer, packet), &mut variables).then_some(true);
    }
    if rule.buffers.is_empty() {
        // a match of the application protocol alone is one of the flow
        return (input.is_packet && rule.protocol != Protocol::TcpStream).then_some(!rule.app.is_empty());
    }
    if head.uses_stream
        && let Some(chunk) = input.chunk
        // bytes that were inspected before the application protocol was known count for its rules
        && let before = if input.is_first_detected && !rule.app.is_empty() { 0 } else { input.repeated }
        && let (text, repeated) = if head.spans_chunks {
            (chunk, before)
        } else {
            (chunk.get(before..).unwrap_or_default(), 0)
        }
        && rule.buffers.iter().all(|(_, list)| verify::matches(list, text, repeated, &mut variables))
    {
        return Some(true);
    }
    let packets =
        input.is_packet && (head.uses_packets || !input.added && !rule.flow.contains(&FlowOption::OnlyStream));
    let matches = packets
        && rule.buffers.iter().all(|(buffer, list)| {
            buffer_of(*buffer, packet).is_some_and(|bytes| verify::matches(list, bytes, 0, &mut variables))
        });
    matches.then_some(false)
}

fn buffer_of<'a>(buffer: Buffer, packet: &Packet<'a>) -> Option<&'a [u8]> {
    let header = |protocol| (packet.protocol == protocol && !packet.header.is_empty()).then_some(packet.header);
    match buffer {
        // fragments are not inspected by content
        Buffer::Payload => (!packet.is_fragment() && !packet.payload.is_empty()).then_some(packet.payload),
        Buffer::Ipv4Header => packet.src.is_ipv4().then_some(packet.ip_header),
        Buffer::Ipv6Header => packet.src.is_ipv6().then_some(packet.ip_header),
        Buffer::TcpHeader => header(TCP),
        Buffer::UdpHeader => header(UDP),
        Buffer::Icmpv4Header => header(ICMP),
        Buffer::Icmpv6Header => header(ICMPV6),
    }
}

fn addresses_match(rule: &Rule, packet: &Packet<'_>) -> bool {
    let one_way = |src, src_port, dst, dst_port| {
        rule.src.contains(src)
            && rule.dst.contains(dst)
            && (rule.src_ports.is_any() || rule.src_ports.contains(src_port))
            && (rule.dst_ports.is_any() || rule.dst_ports.contains(dst_port))
    };
    one_way(packet.src, packet.src_port, packet.dst, packet.dst_port)
        || rule.both_directions && one_way(packet.dst, packet.dst_port, packet.src, packet.src_port)
}

fn flow_matches(option: FlowOption, packet: &Packet<'_>, input: &Input<'_>) -> bool {
    match option {
        FlowOption::Established => input.established,
        FlowOption::NotEstablished => !input.established,
        FlowOption::ToServer => !input.to_client && (!input.is_packet || packet.has_flow()),
        FlowOption::ToClient => input.to_client,
        FlowOption::OnlyFragments => packet.is_fragment(),
        FlowOption::NoFragments => !packet.is_fragment(),
        FlowOption::Stateless | FlowOption::OnlyStream | FlowOption::NoStream => true,
    }
}

fn flow_check_matches(check: &FlowCheck, packet: &Packet<'_>, flow: &Flow, now: Duration) -> bool {
    match check.quantity {
        FlowQuantity::Age => check.matches([now.as_secs().saturating_sub(flow.created.as_secs()); 2]),
        FlowQuantity::Packets => check.matches(flow.packets),
        FlowQuantity::Bytes => check.matches(flow.bytes),
        FlowQuantity::StreamSize => {
            let sizes = flow.streams.each_ref().map(|stream| u64::from(stream.size()));
            packet.protocol == TCP && sizes != [0; 2] && check.matches(sizes)
        }
    }
}

fn header_matches(check: &HeaderCheck, packet: &Packet<'_>) -> bool {
    let icmp = |at: usize| packet.header.get(at).copied().filter(|_| packet.is_icmp());
    let has_id = match packet.protocol {
        ICMP => matches!(icmp(0), Some(0 | 8 | 13..=18)),
        _ => matches!(icmp(0), Some(128 | 129)),
    };
    let field16_matches = |at, n: Comparison| packet.field16(at).is_some_and(|value| n.matches(value.into()));
    match *check {
        HeaderCheck::TcpFlags { test, bits, ignored } => {
            packet.is_tcp() && test.matches(bits, packet.tcp_flags() & !ignored)
        }
        HeaderCheck::Seq(n) => packet.is_tcp() && n.matches(packet.field32(4).into()),
        HeaderCheck::Ack(n) => packet.is_tcp() && n.matches(packet.field32(8).into()),
        HeaderCheck::Window(n) => packet.is_tcp() && field16_matches(14, n),
        HeaderCheck::Mss(n) => match packet.tcp_option(2).filter(|_| packet.is_tcp()) {
            Some([high, low]) => n.matches(u16::from_be_bytes([*high, *low]).into()),
            _ => false,
        },
        HeaderCheck::WindowScale(n) => match packet.tcp_option(3).filter(|_| packet.is_tcp()) {
            Some([shift]) => n.matches((*shift).into()),
            _ => false,
        },
        HeaderCheck::Ttl(n) => n.matches(packet.ttl.into()),
        HeaderCheck::Tos(n) => packet.src.is_ipv4() && n.matches(packet.tos.into()),
        HeaderCheck::Id(n) => packet.src.is_ipv4() && n.matches(packet.id.into()),
        HeaderCheck::IpOption(kind) => packet.has_ip_option(Some(kind)),
        HeaderCheck::AnyIpOption => packet.has_ip_option(None),
        HeaderCheck::FragmentBits { test, bits } => packet.src.is_ipv4() && test.matches(bits, packet.fragment_bits),
        HeaderCheck::FragmentOffset(n) => {
            // IPv6 packets have the field in fragments only
            (packet.src.is_ipv4() || packet.is_fragment()) && n.matches(packet.fragment_offset.into())
        }
        HeaderCheck::IpProtocol(n) => n.matches(packet.protocol.into()),
        HeaderCheck::SameIp => packet.src == packet.dst,
        HeaderCheck::PayloadSize(n) => n.matches(packet.payload.len() as u64),
        HeaderCheck::IcmpType(n) => icmp(0).is_some_and(|value| n.matches(value.into())),
        HeaderCheck::IcmpCode(n) => icmp(1).is_some_and(|value| n.matches(value.into())),
        HeaderCheck::IcmpId(n) => has_id && field16_matches(4, n),
        HeaderCheck::IcmpSeq(n) => has_id && field16_matches(6, n),
        // packet too big (RFC 4443 §3.2)
        HeaderCheck::Icmpv6Mtu(n) => {
            packet.protocol == ICMPV6
                && icmp(0) == Some(2)
                && packet.header.len() >= 8
                && n.matches(packet.field32(4).into())
        }
    }
}

fn xbit_key(scope: BitScope, bit: u32, packet: &Packet<'_>) -> XbitKey {
    match scope {
        BitScope::Source => (bit, Some(packet.src), None),
        BitScope::Destination => (bit, Some(packet.dst), None),
        BitScope::Flow | BitScope::Pair => (bit, Some(packet.src.min(packet.dst)), Some(packet.src.max(packet.dst))),
    }
}

fn state_holds(state: &StateOption, packet: &Packet<'_>, flow: &Flow, xbits: &Xbits, now: Duration) -> bool {
    let is_set = |bit: &u32| match state.scope {
        BitScope::Flow => flow.bits.contains(bit),
        scope => xbits.is_set(&xbit_key(scope, *bit, packet), now),
    };
    match state.command {
        BitCommand::IsSet => state.bits.iter().any(is_set),
        _ => state.bits.iter().any(|bit| !is_set(bit)),
    }
}

fn integer_operand(operand: IntegerOperand, flow: &Flow) -> u32 {
    match operand {
        IntegerOperand::Value(value) => value,
        IntegerOperand::Variable(variable) => flow.integer(variable).unwrap_or(0),
    }
}

fn integer_holds(option: &IntegerOption, flow: &Flow) -> bool {
    let value = flow.integer(option.variable);
    match option.command {
        IntegerCommand::IsSet => value.is_some(),
        IntegerCommand::IsNotSet => value.is_none(),
        IntegerCommand::Compare { operator, negated, with } => {
            value.is_some_and(|value| operator.holds(value.into(), integer_operand(with, flow).into()) != negated)
        }
        IntegerCommand::Set(_) | IntegerCommand::Add(_) | IntegerCommand::Subtract(_) => true,
    }
}

/// Changes the bits and numbers that a matching rule changes.
fn apply_states(rule: &Rule, packet: &Packet<'_>, flow: &mut Flow, xbits: &mut Xbits, now: Duration) {
    for option in &rule.integers {
        let before = flow.integer(option.variable);
        let value = match option.command {
            IntegerCommand::Set(with) => integer_operand(with, flow),
            IntegerCommand::Add(with) => before.unwrap_or(0).wrapping_add(integer_operand(with, flow)),
            IntegerCommand::Subtract(with) if before.is_some() => {
                before.unwrap_or(0).wrapping_sub(integer_operand(with, flow))
            }
            _ => continue,
        };
        if let Some((_, known)) = flow.integers.iter_mut().find(|(variable, _)| *variable == option.variable) {
            *known = value;
        } else if flow.integers.len() < MAX_FLOWBITS {
            flow.integers.push((option.variable, value));
        }
    }
    for state in rule.states.iter().filter(|state| !state.reads()) {
        for bit in &state.bits {
            let key = xbit_key(state.scope, *bit, packet);
            let is_set = match state.scope {
                BitScope::Flow => flow.bits.contains(bit),
                _ => xbits.is_set(&key, now),
            };
            let set = match state.command {
                BitCommand::Set => true,
                BitCommand::Toggle => !is_set,
                _ => false,
            };
            match (state.scope, set) {
                (BitScope::Flow, true) if !is_set && flow.bits.len() < MAX_FLOWBITS => flow.bits.push(*bit),
                (BitScope::Flow, true) => {}
                (BitScope::Flow, false) => flow.bits.retain(|other| other != bit),
                (_, true) => xbits.set(key, now, state.expire),
                (_, false) => {
                    xbits.until.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
