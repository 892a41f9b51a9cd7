//! Matching of rules with messages of application protocols.

use super::candidates::Candidates;
use super::decode::{Packet, TCP};
use super::flow::Flow;
use super::pattern_set::{Pattern, PatternSet};
use super::verify;
use crate::ids::app::{AppOptions, AppStatistics, Message};
use crate::ids::rule::app::{Absence, AppProtocol, BufferOptions, Field, Fields};
use crate::ids::rule::transform::{Transform, transform};
use crate::ids::rule::{Buffer, Rule};
use diagnostics::Diagnostic;
use multi_pattern::Searcher;
use std::sync::Arc;

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
    pub(super) used: bool,
    fields: Fields,
    /// True if rules have contents of the payload beside those of messages.
    raw: bool,
    /// True if rules compare the dates of certificates.
    validity: bool,
}

/// State of a core.
pub(super) struct AppState {
    /// Working memory for each set of patterns.
    pub(super) searchers: Vec<Searcher>,
    pub(super) options: AppOptions,
    pub(super) statistics: Arc<AppStatistics>,
    /// Identifiers of rules that have matched the message that is inspected.
    pub(super) matched: Vec<u32>,
}

impl AppState {
    pub(super) fn new(index: &AppIndex, inline: bool) -> Result<Self, Diagnostic> {
        Ok(AppState {
            searchers: index.sets.iter().map(|set| set.set.searcher()).collect::<Result<_, _>>()?,
            options: AppOptions { fields: index.fields, inline, raw: index.raw, validity: index.validity },
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
            validity: rules.iter().flat_map(|rule| &rule.app.numbers).any(|check| check.field.is_of_certificate()),
        })
    }

    /// Adds the rules that may match a message.
    pub(super) fn search(&self, searchers: &mut [Searcher], message: &Message, candidates: &mut Candidates) {
        let without = self.without_pattern.get(message.protocol as usize);
        without.into_iter().flatten().for_each(|rule| candidates.insert(*rule));
        let is_due = |set: &FieldPatterns| {
            set.field.protocol() == message.protocol
                // transformed buffers match when they are whole
                && (set.transforms.is_empty() || message.has_whole(set.field))
        };
        for (set, searcher) in self.sets.iter().zip(searchers).filter(|(set, _)| is_due(set)) {
            for value in message.values(set.field) {
                set.set.search(searcher, &transform(&set.transforms, value), candidates);
            }
        }
    }

    /// Returns the number of compiled patterns and their memory in bytes.
    pub(super) fn patterns(&self) -> (usize, usize) {
        self.sets.iter().fold((0, 0), |(n, bytes), set| (n + set.set.len(), bytes + set.set.memory()))
    }
}

/// Returns true if the conditions of a rule on the application protocol hold for a message, or without one for a packet;
/// `is_first` is true for the first packet of a direction since the protocol is known.
pub(super) fn applies(rule: &Rule, flow: &Flow, is_message: bool, is_first: bool) -> bool {
    let app = &rule.app;
    if is_message != app.is_about_messages() {
        return false;
    }
    if app.is_empty() {
        return true;
    }
    let protocol = flow.app_protocol;
    if protocol.is_none() && (app.protocol.is_some() || !flow.is_app_decided()) {
        return false;
    }
    let only_detection =
        app.detection && !is_message && rule.buffers.is_empty() && rule.checks.is_empty() && !rule.reads_flow();
    app.protocol.is_none_or(|wanted| Some(wanted) == protocol)
        && (app.excluded.is_none() || app.excluded != protocol)
        && (!only_detection || is_first)
}

/// Returns true if all buffers and numbers of a rule match a message; `header` returns a header of the packet.
pub(super) fn matches<'a>(
    rule: &Rule,
    message: &Message,
    header: impl Fn(Buffer) -> Option<&'a [u8]>,
    variables: &mut Vec<u64>,
) -> bool {
    rule.app.numbers.iter().all(|check| message.numbers(check.field).any(|number| check.matches(number)))
        && rule.app.buffers.iter().all(|options| buffer_matches(options, message, variables))
        && rule.buffers.iter().all(|(buffer, list)| match buffer {
            Buffer::Payload => message.raw().iter().any(|bytes| verify::matches(list, bytes, 0, variables)),
            buffer => header(*buffer).is_some_and(|bytes| verify::matches(list, bytes, 0, variables)),
        })
}

fn buffer_matches(options: &BufferOptions, message: &Message, variables: &mut Vec<u64>) -> bool {
    if !options.field.is_in(message.to_client) {
        return false;
    }
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
        len: 0,
        tunnels: 0,
        vlans: 0,
        ttl: 0,
        tos: 0,
        id: 0,
        fragment_bits: 0,
        fragment_offset: 0,
        valid: true,
    }
}
