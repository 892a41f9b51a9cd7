//! Simultaneous search for one content of each rule.

use crate::ids::rule::Buffer;
use crate::ids::rule::Rule;
use crate::ids::rule::bytes::Match;
use aho_corasick::AhoCorasick;
use diagnostics::Diagnostic;

/// One content of each rule that has any, without regard to case.
pub(super) struct PatternSet {
    automaton: AhoCorasick,
    /// Rules of each pattern.
    rules: Vec<Vec<u32>>,
}

impl PatternSet {
    /// Creates a set from contents and the numbers of their rules.
    pub(super) fn new<'a>(contents: impl IntoIterator<Item = (&'a [u8], u32)>) -> Result<Self, Diagnostic> {
        let mut patterns: std::collections::BTreeMap<Vec<u8>, Vec<u32>> = std::collections::BTreeMap::new();
        for (content, rule) in contents {
            patterns.entry(content.to_ascii_lowercase()).or_default().push(rule);
        }
        let automaton = AhoCorasick::builder().ascii_case_insensitive(true).build(patterns.keys()).map_err(|e| {
            Diagnostic::new(format!("the contents cannot be compiled: {e}")).key("rules").remedy("load fewer rules")
        })?;
        Ok(PatternSet { automaton, rules: patterns.into_values().collect() })
    }

    /// Calls `found` for the rules whose content is in the text.
    pub(super) fn search(&self, text: &[u8], mut found: impl FnMut(u32)) {
        for hit in self.automaton.find_overlapping_iter(text) {
            self.rules.get(hit.pattern().as_usize()).into_iter().flatten().for_each(|rule| found(*rule));
        }
    }
}

/// Returns the contents of the payload that a set contains, with the numbers of their rules.
pub(super) fn payload_patterns(rules: &[Rule]) -> impl Iterator<Item = (&[u8], u32)> {
    rules.iter().zip(0..).filter_map(|(rule, n)| Some((pattern_of(rule)?, n)))
}

/// Returns the content of a rule that is searched in the payload: the one with `fast_pattern`, or the longest.
pub(super) fn pattern_of(rule: &Rule) -> Option<&[u8]> {
    if rule.app.is_about_messages() {
        return None;
    }
    let list = rule.buffers.iter().find(|(buffer, _)| *buffer == Buffer::Payload).map(|(_, list)| list)?;
    let contents = list.iter().filter_map(|option| if let Match::Content(c) = option { Some(c) } else { None });
    let best = contents.filter(|c| !c.negated).max_by_key(|c| (c.fast_pattern, c.bytes.len()))?;
    let (at, len) = best.chop.unwrap_or((0, best.bytes.len()));
    best.bytes.get(at..at + len)
}
