//! Matching of rules with messages of application protocols.

use super::decode::{Packet, TCP};
use super::flow::Flow;
use super::pattern_set::PatternSet;
use super::verify;
use crate::ids::app::{AppOptions, AppStatistics, Message};
use crate::ids::rule::app::{Absence, AppProtocol, BufferOptions, Field, Fields, Transform, transform};
use crate::ids::rule::{Buffer, Rule};
use diagnostics::Diagnostic;
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
    pub(super) options: AppOptions,
}

/// State of the parsers and of the inspection of messages, which does not depend on the rules.
#[derive(Default)]
pub(super) struct AppState {
    pub(super) statistics: Arc<AppStatistics>,
    /// Rules that have matched the message that is inspected.
    pub(super) matched: Vec<u32>,
    /// Number of alerts of the current packet.
    pub(super) reported: usize,
}

impl AppIndex {
    pub(super) fn new(rules: &[Rule], inline: bool) -> Result<Self, Diagnostic> {
        /// Contents of rules that are searched in one buffer.
        type Group<'a> = (Field, &'a [Transform], Vec<(&'a [u8], u32)>);
        let mut groups: Vec<Group<'_>> = vec![];
        let mut without_pattern = [const { vec![] }; AppProtocol::ALL.len()];
        let (mut fields, mut raw) = (Fields::default(), false);
        for (rule, n) in rules.iter().zip(0..).filter(|(rule, _)| rule.app.is_about_messages()) {
            rule.app.buffers.iter().for_each(|buffer| fields.insert(buffer.field));
            raw |= !rule.buffers.is_empty();
            let pattern = rule.app.pattern();
            match pattern.and_then(|(at, pattern)| Some((rule.app.buffers.get(at)?, pattern))) {
                Some((buffer, pattern)) => {
                    let same =
                        |(field, transforms, _): &Group<'_>| *field == buffer.field && *transforms == buffer.transforms;
                    match groups.iter_mut().find(|group| same(group)) {
                        Some((_, _, patterns)) => patterns.push((pattern, n)),
                        None => groups.push((buffer.field, &buffer.transforms, vec![(pattern, n)])),
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
        let sets = groups.into_iter().map(|(field, transforms, patterns)| {
            Ok(FieldPatterns { field, transforms: transforms.to_vec(), set: PatternSet::new(patterns)? })
        });
        Ok(AppIndex {
            sets: sets.collect::<Result<_, Diagnostic>>()?,
            without_pattern,
            used: rules.iter().any(|rule| !rule.app.is_empty()),
            options: AppOptions { fields, inline, raw },
        })
    }

    /// Calls `found` for the rules that may match a message.
    pub(super) fn search(&self, message: &Message, mut found: impl FnMut(u32)) {
        self.without_pattern.get(message.protocol as usize).into_iter().flatten().for_each(|rule| found(*rule));
        for set in self.sets.iter().filter(|set| set.field.protocol() == message.protocol) {
            for value in message.values(set.field) {
                set.set.search(&transform(&set.transforms, value), &mut found);
            }
        }
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
    let only_detection = app.detection
        && !is_message
        && rule.buffers.is_empty()
        && rule.checks.is_empty()
        && rule.states.iter().all(|state| !state.reads());
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
        ttl: 0,
        tos: 0,
        id: 0,
        fragment_bits: 0,
        fragment_offset: 0,
        valid: true,
    }
}
