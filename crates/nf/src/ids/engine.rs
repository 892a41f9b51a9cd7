//! Inspection of packets and streams.

mod app;
pub(super) mod decode;
mod defrag;
mod flow;
mod messages;
mod pattern_set;
mod stream;
mod threshold;
mod verify;

use super::app::{AppStatistics, Message};
use super::rule::app::AppProtocol;
use super::rule::header::HeaderCheck;
use super::rule::state::{BitCommand, BitScope, FlowOption, StateOption};
use super::rule::{Action, Buffer, Protocol, Rule};
use app::{AppIndex, AppState};
use decode::{ICMP, ICMPV6, Packet, SCTP, TCP, UDP};
use defrag::Fragments;
use diagnostics::Diagnostic;
use flow::{Flow, FlowAction, Flows, TcpState};
use pattern_set::{PatternSet, pattern_of, payload_patterns};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use stream::{CHUNK_LEN, Chunk};
use threshold::Thresholds;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) prevent: bool,
    pub(super) checksums: bool,
    pub(super) midstream: bool,
    pub(super) flows: usize,
    pub(super) max_alerts: usize,
    pub(super) action_order: Vec<Action>,
}

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Forward,
    Drop,
    Reject,
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
const MAX_TUNNELS: usize = 4;
/// Largest number of xbits; while all are in use, further ones are not set.
const MAX_XBITS: usize = 65_536;
/// Largest number of flowbits per flow.
const MAX_FLOWBITS: usize = 1024;

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
    /// Number of the first bytes of the chunk that have been inspected before.
    repeated: usize,
    /// Rules that have matched a packet of the chunk.
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
    rules: Vec<Rule>,
    patterns: PatternSet,
    /// Rules without a pattern.
    without_pattern: Vec<u32>,
    app: AppIndex,
    app_state: AppState,
    options: Options,
    flows: Flows,
    thresholds: Thresholds,
    fragments: Fragments,
    xbits: HashMap<XbitKey, Duration>,
    candidates: Vec<u32>,
}

impl Engine {
    pub(super) fn new(mut rules: Vec<Rule>, options: Options) -> Result<Self, Diagnostic> {
        let action = |rule: &Rule| options.action_order.iter().position(|action| *action == rule.action).unwrap_or(4);
        let bits = |rule: &Rule| {
            let flowbits = || rule.states.iter().filter(|state| state.scope == BitScope::Flow);
            match (flowbits().any(|s| !s.reads()), flowbits().any(StateOption::reads)) {
                (true, false) => 0,
                (true, true) => 1,
                (false, true) => 2,
                (false, false) => 3,
            }
        };
        rules.sort_by_key(|rule| (action(rule), bits(rule), rule.priority));
        let is_without = |rule: &Rule| pattern_of(rule).is_none() && !rule.app.is_about_messages();
        let without_pattern = (0..).zip(&rules).filter(|(_, rule)| is_without(rule)).map(|(n, _)| n).collect();
        Ok(Engine {
            patterns: PatternSet::new(payload_patterns(&rules))?,
            without_pattern,
            app: AppIndex::new(&rules, options.prevent)?,
            app_state: AppState::default(),
            flows: Flows::new(options.flows),
            thresholds: Thresholds::default(),
            fragments: Fragments::default(),
            xbits: HashMap::new(),
            candidates: vec![],
            rules,
            options,
        })
    }

    pub(super) fn rule(&self, n: u32) -> Option<&Rule> {
        self.rules.get(n as usize)
    }

    pub(super) fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// Returns the numbers of the parsers of application protocols.
    pub(super) fn app_statistics(&self) -> &AppStatistics {
        &self.app_state.statistics
    }

    /// Inspects a frame and the packets of its tunnels; `None` if it is not IP.
    pub(super) fn inspect(&mut self, now: Duration, frame: &[u8], alerts: &mut Vec<Alert>) -> Option<Verdict> {
        let mut packet = decode::decode_frame(frame, self.options.checksums)?;
        let mut verdict = self.inspect_packet(now, &packet, alerts);
        let whole = if packet.is_fragment() { self.fragments.add(now, &packet) } else { None };
        if let Some(payload) = &whole {
            let unfragmented = Packet { payload, fragment_bits: 0, fragment_offset: 0, ..packet };
            packet = decode::transport(unfragmented, self.options.checksums);
            verdict = worse(verdict, self.inspect_packet(now, &packet, alerts));
        }
        for _ in 0..MAX_TUNNELS {
            let Some(inner) = packet.inner(self.options.checksums).filter(|_| verdict == Verdict::Forward) else {
                break;
            };
            packet = inner;
            verdict = self.inspect_packet(now, &packet, alerts);
        }
        Some(verdict)
    }

    /// Inspects the rest of all streams.
    pub(super) fn finish(&mut self, now: Duration, alerts: &mut Vec<Alert>) {
        for mut flow in self.flows.drain() {
            if flow.action == FlowAction::Inspect {
                (0..2).for_each(|direction| {
                    self.inspect_rest(now, &mut flow, direction, alerts);
                });
                self.finish_app(now, &mut flow, alerts);
            }
        }
    }

    fn inspect_packet(&mut self, now: Duration, packet: &Packet<'_>, alerts: &mut Vec<Alert>) -> Verdict {
        if !packet.has_flow() {
            let mut flow = self.flows.create(packet, now);
            return self.inspect_in_flow(now, packet, &mut flow, alerts);
        }
        let (key, mut flow) = self.flows.take(packet, now);
        let verdict = match flow.action {
            FlowAction::Pass => Verdict::Forward,
            FlowAction::Drop => Verdict::Drop,
            FlowAction::Inspect => self.inspect_in_flow(now, packet, &mut flow, alerts),
        };
        self.flows.put(key, flow);
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
        flow.seen[direction] = true;
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
                        let seq = packet.tcp_number(4).wrapping_add(u32::from(syn));
                        flow.streams[direction].tap.open = self.parses_app(flow);
                        added = flow.streams[direction].add(seq, packet.payload);
                        verdict = worse(self.inspect_before_gap(now, flow, direction, alerts), verdict);
                    }
                }
            }
            if packet.valid && packet.tcp_flags() & 4 != 0 {
                verdict = worse(self.inspect_rest(now, flow, 1 - direction, alerts), verdict);
            }
        }
        flow.fin[direction] |= packet.is_tcp() && packet.valid && packet.tcp_flags() & 1 != 0;
        if self.options.prevent {
            self.parse_app(packet, flow, direction);
        }
        let closing = packet.tcp_flags() & 5 != 0;
        let stream = &mut flow.streams[direction];
        let due = packet.is_tcp() && packet.valid;
        let due = due && (stream.pending.len() >= CHUNK_LEN || closing || self.options.prevent);
        let chunk = if due { stream.take() } else { None };
        let matched = if chunk.is_some() { std::mem::take(&mut stream.matched) } else { vec![] };
        let ip_only = !std::mem::replace(&mut flow.ip_only_done[direction], true);
        let established = if packet.is_tcp() { flow.tcp >= TcpState::Established } else { flow.seen == [true; 2] };
        let is_first_detected = flow.is_app_decided() && !std::mem::replace(&mut flow.app_announced[direction], true);
        let input = Input {
            is_packet: true,
            added,
            chunk: chunk.as_ref().map(|chunk| &chunk.bytes[..]),
            repeated: chunk.as_ref().map_or(0, |chunk| chunk.repeated),
            matched: &matched,
            to_client: direction == 1,
            established,
            ip_only,
            message: None,
            is_first_detected,
        };
        let verdict = worse(self.evaluate(now, packet, flow, input, alerts), verdict);
        let verdict = worse(verdict, self.inspect_messages(now, packet, flow, direction, alerts));
        if let Some(chunk) = chunk {
            flow.streams[direction].keep(chunk);
        }
        if packet.is_tcp() && packet.valid && packet.tcp_flags() & 4 != 0 {
            flow.tcp = TcpState::Closed;
        }
        verdict
    }

    fn track_tcp(&self, packet: &Packet<'_>, flow: &mut Flow, direction: usize) {
        let (syn, ack) = (packet.tcp_flags() & 2 != 0, packet.tcp_flags() & 16 != 0);
        let next = packet.tcp_number(4).wrapping_add(u32::from(syn));
        match (flow.tcp, syn, ack) {
            (TcpState::None, true, false) => {
                flow.tcp = TcpState::Syn;
                flow.streams[direction].start(next);
            }
            (TcpState::Syn, true, true) if direction == 1 => {
                flow.tcp = TcpState::SynAck;
                flow.streams[1].start(next);
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
            repeated: chunk.repeated,
            matched: &matched,
            to_client: direction == 1,
            established: flow.tcp >= TcpState::Established,
            ip_only: false,
            message: None,
            is_first_detected: false,
        };
        self.evaluate(now, &packet, flow, input, alerts)
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
        candidates.clear();
        if let Some(message) = input.message {
            self.app.search(message, |rule| candidates.push(rule));
        } else if input.is_packet {
            candidates.extend_from_slice(&self.without_pattern);
            self.patterns.search(packet.payload, |rule| candidates.push(rule));
        } else {
            candidates.extend(self.without_pattern.iter().filter(|n| self.rule(**n).is_some_and(Rule::uses_stream)));
        }
        if let Some(chunk) = input.chunk {
            self.patterns.search(chunk, |rule| candidates.push(rule));
        }
        candidates.sort_unstable();
        candidates.dedup();
        // the limit is one of a packet and the messages that are inspected with it
        let mut reported = if input.message.is_some() { self.app_state.reported } else { 0 };
        let mut verdict = Verdict::Forward;
        for n in &candidates {
            let Some(rule) = self.rules.get(*n as usize) else { continue };
            let Some(by_stream) = match_rule(rule, packet, flow, &self.xbits, &input, now) else { continue };
            if by_stream && input.matched.contains(n) {
                continue;
            }
            if input.message.is_some() {
                self.app_state.matched.push(*n);
            }
            let matched = &mut flow.streams[usize::from(input.to_client)].matched;
            if !by_stream && input.added && input.chunk.is_none() && rule.uses_stream() && matched.len() < MAX_MATCHED {
                matched.push(*n);
            }
            apply_states(rule, packet, flow, &mut self.xbits, now);
            let permitted = match &rule.threshold {
                Some(threshold) => self.thresholds.permits(*n, threshold, packet, flow.id, now),
                None => true,
            };
            let filtered = rule.threshold.is_some_and(|t| t.kind == super::rule::state::ThresholdKind::DetectionFilter);
            if !permitted && filtered {
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
                verdict = worse(verdict, if rule.action == Action::Drop { Verdict::Drop } else { Verdict::Reject });
                if whole_flow {
                    flow.action = FlowAction::Drop;
                }
            }
            if permitted && !rule.noalert && reported < self.options.max_alerts {
                reported += 1;
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
        self.app_state.reported = reported;
        verdict
    }
}

fn worse(one: Verdict, other: Verdict) -> Verdict {
    if one == Verdict::Forward { other } else { one }
}

/// Returns `None` if a rule does not match, otherwise true if it matches the stream.
fn match_rule(
    rule: &Rule,
    packet: &Packet<'_>,
    flow: &Flow,
    xbits: &HashMap<XbitKey, Duration>,
    input: &Input<'_>,
    now: Duration,
) -> Option<bool> {
    if rule.is_ip_only() && !input.ip_only {
        return None;
    }
    let protocol = match rule.protocol {
        Protocol::Ip => true,
        Protocol::Ipv4 => packet.src.is_ipv4(),
        Protocol::Ipv6 => packet.src.is_ipv6(),
        Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream => packet.protocol == TCP,
        Protocol::Udp => packet.protocol == UDP,
        Protocol::Icmp => matches!(packet.protocol, ICMP | ICMPV6),
        Protocol::Sctp => packet.protocol == SCTP,
    };
    let matches = protocol
        && app::applies(rule, flow, input.message.is_some(), input.is_first_detected)
        && addresses_match(rule, packet)
        && rule.flow.iter().all(|option| flow_matches(*option, packet, input))
        && rule.checks.iter().all(|check| header_matches(check, packet))
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
    if rule.uses_stream()
        && let Some(chunk) = input.chunk
        && let (text, repeated) = if rule.spans_chunks() {
            (chunk, input.repeated)
        } else {
            (chunk.get(input.repeated..).unwrap_or_default(), 0)
        }
        && rule.buffers.iter().all(|(_, list)| verify::matches(list, text, repeated, &mut variables))
    {
        return Some(true);
    }
    let packets = input.is_packet && (rule.uses_packets() || !input.added && !stream_only(rule));
    let matches = packets
        && rule.buffers.iter().all(|(buffer, list)| {
            buffer_of(*buffer, packet).is_some_and(|bytes| verify::matches(list, bytes, 0, &mut variables))
        });
    matches.then_some(false)
}

fn stream_only(rule: &Rule) -> bool {
    rule.protocol == Protocol::TcpStream || rule.flow.contains(&FlowOption::OnlyStream)
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

fn header_matches(check: &HeaderCheck, packet: &Packet<'_>) -> bool {
    let icmp = |at: usize| packet.header.get(at).copied().filter(|_| packet.is_icmp());
    let has_id = match packet.protocol {
        ICMP => matches!(icmp(0), Some(0 | 8 | 13..=18)),
        _ => matches!(icmp(0), Some(128 | 129)),
    };
    match *check {
        HeaderCheck::TcpFlags { test, bits, ignored } => {
            packet.is_tcp() && test.matches(bits, packet.tcp_flags() & !ignored)
        }
        HeaderCheck::Seq(n) => packet.is_tcp() && packet.tcp_number(4) == n,
        HeaderCheck::Ack(n) => packet.is_tcp() && packet.tcp_number(8) == n,
        HeaderCheck::Window { value, negated } => packet.is_tcp() && (packet.field16(14) == Some(value)) != negated,
        HeaderCheck::Mss(n) => match packet.tcp_option(2).filter(|_| packet.is_tcp()) {
            Some([high, low]) => n.matches(u16::from_be_bytes([*high, *low]).into()),
            _ => false,
        },
        HeaderCheck::Ttl(n) => n.matches(packet.ttl.into()),
        HeaderCheck::Tos(n) => packet.src.is_ipv4() && n.matches(packet.tos.into()),
        HeaderCheck::Id(n) => packet.src.is_ipv4() && packet.id == u32::from(n),
        HeaderCheck::IpOption(kind) => packet.has_ip_option(Some(kind)),
        HeaderCheck::AnyIpOption => packet.has_ip_option(None),
        HeaderCheck::FragmentBits { test, bits } => packet.src.is_ipv4() && test.matches(bits, packet.fragment_bits),
        HeaderCheck::FragmentOffset(n) => n.matches(packet.fragment_offset.into()),
        HeaderCheck::IpProtocol(n) => n.matches(packet.protocol.into()),
        HeaderCheck::SameIp => packet.src == packet.dst,
        HeaderCheck::PayloadSize(n) => n.matches(packet.payload.len() as u64),
        HeaderCheck::IcmpType(n) => icmp(0).is_some_and(|value| n.matches(value.into())),
        HeaderCheck::IcmpCode(n) => icmp(1).is_some_and(|value| n.matches(value.into())),
        HeaderCheck::IcmpId(n) => has_id && packet.field16(4) == Some(n),
        HeaderCheck::IcmpSeq(n) => has_id && packet.field16(6) == Some(n),
    }
}

fn xbit_key(scope: BitScope, bit: u32, packet: &Packet<'_>) -> XbitKey {
    match scope {
        BitScope::Source => (bit, Some(packet.src), None),
        BitScope::Destination => (bit, Some(packet.dst), None),
        BitScope::Flow | BitScope::Pair => (bit, Some(packet.src.min(packet.dst)), Some(packet.src.max(packet.dst))),
    }
}

fn state_holds(
    state: &StateOption,
    packet: &Packet<'_>,
    flow: &Flow,
    xbits: &HashMap<XbitKey, Duration>,
    now: Duration,
) -> bool {
    let is_set = |bit: &u32| match state.scope {
        BitScope::Flow => flow.bits.contains(bit),
        scope => xbits.get(&xbit_key(scope, *bit, packet)).is_some_and(|until| now < *until),
    };
    match state.command {
        BitCommand::IsSet => state.bits.iter().any(is_set),
        _ => state.bits.iter().any(|bit| !is_set(bit)),
    }
}

/// Changes the bits that a matching rule changes.
fn apply_states(
    rule: &Rule,
    packet: &Packet<'_>,
    flow: &mut Flow,
    xbits: &mut HashMap<XbitKey, Duration>,
    now: Duration,
) {
    for state in rule.states.iter().filter(|state| !state.reads()) {
        for bit in &state.bits {
            let key = xbit_key(state.scope, *bit, packet);
            let is_set = match state.scope {
                BitScope::Flow => flow.bits.contains(bit),
                _ => xbits.get(&key).is_some_and(|until| now < *until),
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
                (_, true) => {
                    if xbits.len() >= MAX_XBITS {
                        xbits.retain(|_, until| now < *until);
                    }
                    if xbits.len() < MAX_XBITS || xbits.contains_key(&key) {
                        xbits.insert(key, now + Duration::from_secs(state.expire.into()));
                    }
                }
                (_, false) => {
                    xbits.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
