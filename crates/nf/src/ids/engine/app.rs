//! Matching of rules with messages of application protocols.

use super::candidates::Candidates;
use super::decode::{Packet, TCP, UDP};
use super::flow::{Flow, FlowAction};
use super::pattern_set::{Pattern, PatternSet};
use super::stream::Tap;
use super::{Alert, Engine, Input, TcpState, Verdict, buffer_of, verify, worse};
use crate::ids::app::{AppFlow, AppOptions, AppStatistics, Message};
use crate::ids::rule::app::{Absence, AppProtocol, BufferOptions, Field, Fields, Transform, transform};
use crate::ids::rule::{Buffer, Rule};
use diagnostics::Diagnostic;
use multi_pattern::Searcher;
use std::sync::Arc;
use std::time::Duration;

/// Largest number of bytes that wait for an acknowledgement.
const MAX_UNACKNOWLEDGED: usize = 64 << 10;

/// The contents that are searched in one buffer.
struct FieldPatterns {
    field: Field,
    transforms: Vec<Transform>,
    set: PatternSet,
}

/// Rules about application protocols, by the buffers in which their contents are searched.
pub(super) struct AppIndex {
    sets: Vec<FieldPatterns>,
    /// Rules without a content, by protocol.
    without_pattern: [Vec<u32>; AppProtocol::ALL.len()],
    /// True if rules have conditions on application protocols.
    used: bool,
    fields: Fields,
    /// True if rules have contents of the payload beside those of messages.
    raw: bool,
}

/// State of a core.
pub(super) struct AppState {
    /// Working memory for each set of patterns.
    searchers: Vec<Searcher>,
    used: bool,
    options: AppOptions,
    pub(super) statistics: Arc<AppStatistics>,
    /// Identifiers of rules that have matched the message that is inspected.
    pub(super) matched: Vec<u32>,
}

impl AppState {
    pub(super) fn new(index: &AppIndex, inline: bool) -> Result<Self, Diagnostic> {
        Ok(AppState {
            searchers: index.sets.iter().map(|set| set.set.searcher()).collect::<Result<_, _>>()?,
            used: index.used,
            options: AppOptions { fields: index.fields, inline, raw: index.raw },
            statistics: Arc::default(),
            matched: vec![],
        })
    }
}

impl AppIndex {
    /// Groups and compiles contents. Without an engine they are not compiled.
    pub(super) fn new(rules: &[Rule], engine: Option<multi_pattern::Engine>) -> Result<Self, Diagnostic> {
        /// Contents of rules that are searched in one buffer.
        type Group<'a> = (Field, &'a [Transform], Vec<Pattern<'a>>);
        let mut groups: Vec<Group<'_>> = vec![];
        let mut without_pattern = [const { vec![] }; AppProtocol::ALL.len()];
        let (mut fields, mut raw) = (Fields::default(), false);
        for (rule, n) in rules.iter().zip(0..).filter(|(rule, _)| rule.app.is_about_messages()) {
            rule.app.buffers.iter().for_each(|buffer| fields.insert(buffer.field));
            raw |= !rule.buffers.is_empty();
            let pattern = rule.app.pattern();
            match pattern.and_then(|(at, content)| Some((rule.app.buffers.get(at)?, content))) {
                Some((buffer, (bytes, nocase))) => {
                    let pattern = Pattern { rule: n, bytes, nocase };
                    let same =
                        |(field, transforms, _): &Group<'_>| *field == buffer.field && *transforms == buffer.transforms;
                    match groups.iter_mut().find(|group| same(group)) {
                        Some((_, _, patterns)) => patterns.push(pattern),
                        None => groups.push((buffer.field, &buffer.transforms, vec![pattern])),
                    }
                }
                None => {
                    if let Some(list) =
                        rule.app.protocol.and_then(|protocol| without_pattern.get_mut(protocol as usize))
                    {
                        list.push(n);
                    }
                }
            }
        }
        let sets = groups.into_iter().filter_map(|(field, transforms, patterns)| {
            let set = PatternSet::new(engine?, patterns.into_iter());
            Some(set.map(|set| FieldPatterns { field, transforms: transforms.to_vec(), set }))
        });
        Ok(AppIndex {
            sets: sets.collect::<Result<_, Diagnostic>>()?,
            without_pattern,
            used: rules.iter().any(|rule| !rule.app.is_empty()),
            fields,
            raw,
        })
    }

    /// Returns the number of compiled patterns and their memory in bytes.
    pub(super) fn patterns(&self) -> (usize, usize) {
        self.sets.iter().fold((0, 0), |(n, bytes), set| (n + set.set.len(), bytes + set.set.memory()))
    }
}

/// Returns true if the conditions of a rule on the application protocol hold for a packet or the message of the input.
pub(super) fn applies(rule: &Rule, flow: &Flow, input: &Input<'_>) -> bool {
    let app = &rule.app;
    if input.message.is_some() != app.is_about_messages() {
        return false;
    }
    if app.is_empty() {
        return true;
    }
    let protocol = flow.app_protocol;
    if protocol.is_none() && (app.protocol.is_some() || !flow.is_app_decided()) {
        return false;
    }
    let only_detection = app.detection
        && input.message.is_none()
        && rule.buffers.is_empty()
        && rule.checks.is_empty()
        && rule.states.iter().all(|state| !state.reads());
    app.protocol.is_none_or(|wanted| Some(wanted) == protocol)
        && (app.excluded.is_none() || app.excluded != protocol)
        && (!only_detection || input.is_first_detected)
}

/// Returns true if all buffers and numbers of a rule match a message.
pub(super) fn matches(rule: &Rule, packet: &Packet<'_>, message: &Message, variables: &mut Vec<u64>) -> bool {
    rule.app.numbers.iter().all(|check| message.numbers(check.field).any(|number| check.matches(number)))
        && rule.app.buffers.iter().all(|options| buffer_matches(options, message, variables))
        && rule.buffers.iter().all(|(buffer, list)| match buffer {
            Buffer::Payload => message.raw().iter().any(|bytes| verify::matches(list, bytes, 0, variables)),
            buffer => buffer_of(*buffer, packet).is_some_and(|bytes| verify::matches(list, bytes, 0, variables)),
        })
}

fn buffer_matches(options: &BufferOptions, message: &Message, variables: &mut Vec<u64>) -> bool {
    let is_whole = message.has_whole(options.field);
    if !is_whole && options.depends_on_end() {
        return false;
    }
    let mut values = message.values(options.field).peekable();
    if values.peek().is_none() {
        return is_whole && options.absence != Absence::Fails;
    }
    options.absence != Absence::Required
        && values.any(|value| verify::matches(&options.options, &transform(&options.transforms, value), 0, variables))
}

/// Returns a packet without headers for the rest of a stream.
pub(super) fn rest_packet(flow: &Flow, direction: usize) -> Packet<'static> {
    let (src, dst) = (flow.ends[direction], flow.ends[1 - direction]);
    Packet {
        src: src.0,
        dst: dst.0,
        src_port: src.1,
        dst_port: dst.1,
        protocol: TCP,
        ip_header: &[],
        header: &[],
        payload: &[],
        vlans: 0,
        ttl: 0,
        tos: 0,
        id: 0,
        fragment_bits: 0,
        fragment_offset: 0,
        valid: true,
    }
}

impl Engine {
    /// Collects the rules that may match a message.
    pub(super) fn search_message(&mut self, message: &Message, candidates: &mut Candidates) {
        candidates.clear();
        let index = &self.rule_set.app;
        let without = index.without_pattern.get(message.protocol as usize);
        without.into_iter().flatten().for_each(|rule| candidates.insert(*rule));
        let sets = index.sets.iter().zip(&mut self.app.searchers);
        for (set, searcher) in sets.filter(|(set, _)| set.field.protocol() == message.protocol) {
            for value in message.values(set.field) {
                set.set.search(searcher, &transform(&set.transforms, value), candidates);
            }
        }
    }

    /// Returns true if bytes of a flow are parsed.
    pub(super) fn parses_app(&self, flow: &Flow) -> bool {
        self.app.used && flow.app.as_ref().is_none_or(|app| app.is_active())
    }

    /// Parses the bytes that a packet acknowledges; in prevent mode those that it contains.
    pub(super) fn parse_app(&mut self, packet: &Packet<'_>, flow: &mut Flow, direction: usize) {
        if !self.parses_app(flow) || !packet.has_flow() || !packet.valid {
            return;
        }
        let options = self.app.options;
        let ports = [packet.src_port, packet.dst_port];
        let statistics = &self.app.statistics;
        let mut new = || Box::new(AppFlow::new(ports, statistics.clone()));
        match packet.protocol {
            UDP if !packet.payload.is_empty() => {
                let app = flow.app.get_or_insert_with(&mut new);
                app.datagram(direction, packet.payload, options);
                flow.app_protocol = app.protocol();
            }
            TCP => {
                let (flags, ack) = (packet.tcp_flags(), packet.tcp_number(8));
                for side in [direction, 1 - direction] {
                    let own = side == direction;
                    let all = own && self.options.prevent || flags & 4 != 0;
                    let acknowledged = !own && flags & 16 != 0;
                    let stream = &mut flow.streams[side];
                    let nothing = stream.tap.bytes.is_empty() && !stream.tap.gap;
                    if nothing && (!flow.ended[side] || flow.app.is_none()) {
                        continue;
                    }
                    let due = all || acknowledged || stream.tap.gap || stream.tap.bytes.len() > MAX_UNACKNOWLEDGED;
                    if !due {
                        continue;
                    }
                    let up_to = (acknowledged && !all && !stream.tap.gap).then_some(ack);
                    let bytes = stream.take_tapped(up_to);
                    let ended = flow.ended[side] && stream.tap.bytes.is_empty() && !stream.is_waiting();
                    let gap = stream.tap.gap;
                    let app = flow.app.get_or_insert_with(&mut new);
                    if !bytes.is_empty() {
                        app.feed(side, &bytes, options);
                    }
                    if gap {
                        app.abandon();
                    } else if ended {
                        app.end(side, options);
                    }
                    flow.app_protocol = app.protocol();
                }
            }
            _ => {}
        }
    }

    /// Inspects the messages that have changed: those of the packet's direction, at a reset those of both.
    pub(super) fn inspect_messages(
        &mut self,
        now: Duration,
        packet: &Packet<'_>,
        flow: &mut Flow,
        direction: usize,
        alerts: &mut Vec<Alert>,
    ) -> Verdict {
        let verdict = self.inspect_side(now, packet, true, flow, direction, alerts);
        if packet.is_tcp() && packet.valid && packet.tcp_flags() & 4 != 0 {
            let other = rest_packet(flow, 1 - direction);
            return worse(verdict, self.inspect_side(now, &other, false, flow, 1 - direction, alerts));
        }
        verdict
    }

    fn inspect_side(
        &mut self,
        now: Duration,
        packet: &Packet<'_>,
        is_packet: bool,
        flow: &mut Flow,
        direction: usize,
        alerts: &mut Vec<Alert>,
    ) -> Verdict {
        let Some(mut app) = flow.app.take() else { return Verdict::Forward };
        let (mut verdict, mut inspected) = (Verdict::Forward, false);
        while flow.action == FlowAction::Inspect
            && let Some(mut message) = app.next(direction, self.app.options)
        {
            inspected = true;
            message.prepare();
            let mut matched = std::mem::take(&mut message.matched);
            let input = Input {
                is_packet,
                added: true,
                chunk: None,
                repeated: 0,
                chunk_end: 0,
                matched: &matched,
                to_client: message.to_client,
                established: match packet.protocol {
                    TCP => flow.tcp >= TcpState::Established,
                    _ => flow.seen == [true; 2],
                },
                ip_only: false,
                message: Some(&message),
                is_first_detected: false,
            };
            verdict = worse(verdict, self.evaluate(now, packet, flow, input, alerts));
            matched.append(&mut self.app.matched);
            message.matched = matched;
            app.put_back(direction, message);
        }
        if inspected {
            app.inspected();
        }
        if !app.is_active() && app.is_idle() {
            flow.streams.iter_mut().for_each(|stream| stream.tap = Tap::default());
        }
        flow.app = Some(app);
        verdict
    }

    /// Parses and inspects the rest of both directions.
    pub(super) fn finish_app(&mut self, now: Duration, flow: &mut Flow, alerts: &mut Vec<Alert>) {
        if !self.app.used || flow.streams.iter().all(|stream| stream.tap.bytes.is_empty()) && flow.app.is_none() {
            return;
        }
        let (options, statistics) = (self.app.options, &self.app.statistics);
        let ports = flow.ends.map(|(_, port)| port);
        let app = flow.app.get_or_insert_with(|| Box::new(AppFlow::new(ports, statistics.clone())));
        for side in 0..2 {
            let bytes = flow.streams[side].take_tapped(None);
            app.feed(side, &bytes, options);
        }
        (0..2).for_each(|side| app.end(side, options));
        flow.app_protocol = app.protocol();
        for side in 0..2 {
            let packet = rest_packet(flow, side);
            self.inspect_side(now, &packet, false, flow, side, alerts);
        }
    }
}

#[cfg(test)]
mod tests;
