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
    pub(super) fn new(rules: &[Rule]) -> Result<Self, Diagnostic> {
        let mut patterns: std::collections::BTreeMap<Vec<u8>, Vec<u32>> = std::collections::BTreeMap::new();
        for (n, rule) in rules.iter().enumerate() {
            if let Some(pattern) = pattern_of(rule) {
                patterns.entry(pattern.to_ascii_lowercase()).or_default().push(n as u32);
            }
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

/// Returns the content of a rule that the set contains: the one with `fast_pattern`, or the longest.
pub(super) fn pattern_of(rule: &Rule) -> Option<&[u8]> {
    let list = rule.buffers.iter().find(|(buffer, _)| *buffer == Buffer::Payload).map(|(_, list)| list)?;
    let contents = list.iter().filter_map(|option| if let Match::Content(c) = option { Some(c) } else { None });
    let best = contents.filter(|c| !c.negated).max_by_key(|c| (c.fast_pattern, c.bytes.len()))?;
    let (at, len) = best.chop.unwrap_or((0, best.bytes.len()));
    best.bytes.get(at..at + len)
}
