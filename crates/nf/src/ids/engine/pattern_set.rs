//! Simultaneous search for one content of each rule.

use super::candidates::Candidates;
use crate::ids::rule::bytes::Match;
use crate::ids::rule::{Buffer, Rule};
use diagnostics::Diagnostic;
use multi_pattern::{Engine, Literal, Patterns, Searcher};
use std::collections::BTreeMap;

/// A content of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern<'a> {
    /// Number of the rule.
    pub(super) rule: u32,
    pub(super) bytes: &'a [u8],
    pub(super) nocase: bool,
}

/// Contents of rules, compiled. All cores share them.
pub(super) struct PatternSet {
    patterns: Patterns,
    /// Rules of all patterns, those of pattern `n` from `first[n]` to `first[n + 1]`.
    rules: Vec<u32>,
    first: Vec<u32>,
    /// Length of the longest pattern.
    longest: usize,
}

impl PatternSet {
    pub(super) fn new<'a>(engine: Engine, all: impl Iterator<Item = Pattern<'a>>) -> Result<Self, Diagnostic> {
        let mut by_literal: BTreeMap<(Vec<u8>, bool), Vec<u32>> = BTreeMap::new();
        for pattern in all {
            // one automaton is faster than two; the rules are verified anyway
            let nocase = pattern.nocase || engine == Engine::AhoCorasick;
            let bytes = if nocase { pattern.bytes.to_ascii_lowercase() } else { pattern.bytes.to_vec() };
            by_literal.entry((bytes, nocase)).or_default().push(pattern.rule);
        }
        let literals: Vec<_> = by_literal.keys().map(|(bytes, nocase)| Literal { bytes, nocase: *nocase }).collect();
        let patterns = Patterns::compile(engine, &literals).map_err(|e| invalid(&e))?;
        let longest = literals.iter().map(|literal| literal.bytes.len()).max().unwrap_or(0);
        let (mut rules, mut first) = (vec![], vec![0]);
        for of_pattern in by_literal.into_values() {
            rules.extend(of_pattern);
            first.push(rules.len() as u32);
        }
        Ok(PatternSet { patterns, rules, first, longest })
    }

    /// Returns the number of different patterns.
    pub(super) fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Returns the memory of the compiled patterns in bytes.
    pub(super) fn memory(&self) -> usize {
        self.patterns.memory()
    }

    /// Returns the length of the longest pattern in bytes, 0 if there is none.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Creates the working memory of a core.
    pub(super) fn searcher(&self) -> Result<Searcher, Diagnostic> {
        self.patterns.searcher().map_err(|e| invalid(&e))
    }

    /// Adds the rules whose pattern is in the text. `searcher` is one of this set.
    pub(super) fn search(&self, searcher: &mut Searcher, text: &[u8], candidates: &mut Candidates) {
        match searcher.search(text) {
            Ok(found) => {
                for pattern in found {
                    let at = *pattern as usize;
                    if let (Some(from), Some(to)) = (self.first.get(at), self.first.get(at + 1)) {
                        let rules = self.rules.get(*from as usize..*to as usize);
                        rules.into_iter().flatten().for_each(|rule| candidates.insert(*rule));
                    }
                }
            }
            // without a search every rule may match
            Err(_) => self.rules.iter().for_each(|rule| candidates.insert(*rule)),
        }
    }
}

fn invalid(error: &multi_pattern::Error) -> Diagnostic {
    let d = Diagnostic::new(format!("the contents of rules cannot be compiled: {error}"));
    d.key("matcher").remedy("write matcher = \"aho_corasick\", or load fewer rules")
}

/// Returns the content of a rule by which it is found: the one with `fast_pattern`, or the longest.
pub(super) fn pattern_of(number: u32, rule: &Rule) -> Option<Pattern<'_>> {
    if rule.app.is_about_messages() {
        return None;
    }
    let list = rule.buffers.iter().find(|(buffer, _)| *buffer == Buffer::Payload).map(|(_, list)| list)?;
    let contents = list.iter().filter_map(|option| if let Match::Content(c) = option { Some(c) } else { None });
    let best = contents.filter(|c| !c.negated).max_by_key(|c| (c.fast_pattern, c.bytes.len()))?;
    let (at, len) = best.chop.unwrap_or((0, best.bytes.len()));
    Some(Pattern { rule: number, bytes: best.bytes.get(at..at + len)?, nocase: best.nocase })
}
