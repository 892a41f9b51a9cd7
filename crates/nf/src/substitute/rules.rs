//! Compiled replacements.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};
use diagnostics::Diagnostic;
use std::collections::HashMap;

/// Largest number of rules, longest pattern and longest replacement in bytes.
const MAX_RULES: usize = 64;
const MAX_FIND_LEN: usize = 255;
const MAX_REPLACE_LEN: usize = 4096;

/// Replacements, matched simultaneously by an Aho-Corasick automaton (1975), so that the cost per byte does not depend
/// on their number. It depends on their length in one case: if a pattern has a later, shorter pattern of the list as a
/// prefix, the bytes after each match of the shorter one are scanned again.
pub(super) struct Rules {
    all: Vec<(Vec<u8>, Vec<u8>)>,
    /// Finds the leftmost match and, of matches at the same position, the first rule.
    automaton: NFA,
    start: StateID,
    /// For each state in which a longer match is possible, the number of bytes matched so far.
    incomplete: HashMap<StateID, usize>,
    /// True for bytes that a pattern begins with.
    first_bytes: Box<[bool; 256]>,
}

impl Rules {
    pub(super) fn new<'a>(all: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, Diagnostic> {
        let all: Vec<_> = all.map(|(find, replace)| (find.to_vec(), replace.to_vec())).collect();
        let invalid = |value: usize, problem: &str, remedy: String| {
            Err(Diagnostic::new(problem).key("rules").value(value).remedy(remedy))
        };
        if all.len() > MAX_RULES {
            return invalid(
                all.len(),
                "exceeds the largest number of rules",
                format!("write at most {MAX_RULES} rules"),
            );
        }
        let mut first_bytes = Box::new([false; 256]);
        for (find, replace) in &all {
            let Some(first) = find.first().filter(|_| find.len() <= MAX_FIND_LEN) else {
                return invalid(
                    find.len(),
                    "is not a valid length of `find`",
                    format!("write 1 to {MAX_FIND_LEN} bytes as `find`"),
                );
            };
            if replace.len() > MAX_REPLACE_LEN {
                let remedy = format!("write at most {MAX_REPLACE_LEN} bytes as `replace`");
                return invalid(replace.len(), "exceeds the largest length of `replace`", remedy);
            }
            first_bytes[usize::from(*first)] = true;
        }
        let error = |e: &dyn std::fmt::Display| {
            Diagnostic::new(e.to_string()).key("rules").value(all.len()).remedy("write fewer or shorter rules")
        };
        let automaton = NFA::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .build(all.iter().map(|(find, _)| find))
            .map_err(|e| error(&e))?;
        let start = automaton.start_state(Anchored::No).map_err(|e| error(&e))?;
        let mut incomplete = HashMap::new();
        for (find, _) in &all {
            let mut state = start;
            for (at, byte) in find.iter().enumerate() {
                state = automaton.next_state(Anchored::No, state, *byte);
                // after a match of a preceding rule
                if automaton.is_dead(state) {
                    break;
                }
                let continues = |byte| !automaton.is_dead(automaton.next_state(Anchored::No, state, byte));
                if !automaton.is_match(state) || (0..=255).any(continues) {
                    incomplete.insert(state, at + 1);
                }
            }
        }
        Ok(Rules { all, automaton, start, incomplete, first_bytes })
    }

    /// Returns the largest number of output bytes per input byte, rounded up.
    pub(super) fn growth(&self) -> u32 {
        self.all.iter().map(|(find, replace)| replace.len().div_ceil(find.len()) as u32).fold(1, u32::max)
    }

    /// Returns the length of the longest pattern.
    pub(super) fn longest(&self) -> u32 {
        self.all.iter().map(|(find, _)| find.len() as u32).max().unwrap_or(1)
    }

    /// Appends `bytes` with replacements to `out`. With `more` an incomplete match at the end is not consumed. Returns
    /// the number of bytes consumed and of replacements.
    pub(super) fn apply(&self, bytes: &[u8], more: bool, out: &mut Vec<u8>) -> (usize, u64) {
        let (mut from, mut at, mut replaced) = (0, 0, 0);
        while let Some(skip) = bytes[at..].iter().position(|byte| self.first_bytes[usize::from(*byte)]) {
            at += skip;
            let (found, incomplete) = self.find(bytes, at);
            match (found, incomplete) {
                // the incomplete match begins before the complete one or has precedence
                (_, Some(begins)) if more => {
                    out.extend_from_slice(&bytes[from..begins]);
                    return (begins, replaced);
                }
                (Some((rule, end)), _) => {
                    let (find, replace) = &self.all[rule];
                    out.extend_from_slice(&bytes[from..end - find.len()]);
                    out.extend_from_slice(replace);
                    (at, from, replaced) = (end, end, replaced + 1);
                }
                (None, _) => break,
            }
        }
        out.extend_from_slice(&bytes[from..]);
        (bytes.len(), replaced)
    }

    /// Returns the first match from `at` on, as rule and end, and the start of an incomplete match that would have
    /// precedence.
    fn find(&self, bytes: &[u8], at: usize) -> (Option<(usize, usize)>, Option<usize>) {
        let (mut state, mut found) = (self.start, None);
        for (n, byte) in bytes.iter().enumerate().skip(at) {
            state = self.automaton.next_state(Anchored::No, state, *byte);
            if !self.automaton.is_special(state) {
                continue;
            }
            if self.automaton.is_dead(state) {
                return (found, None);
            }
            if self.automaton.is_match(state) {
                found = Some((self.automaton.match_pattern(state, 0).as_usize(), n + 1));
            }
        }
        (found, self.incomplete.get(&state).map(|depth| bytes.len() - depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference implementation: the whole input, byte by byte.
    fn model(rules: &[(Vec<u8>, Vec<u8>)], mut bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![];
        while let Some(first) = bytes.first() {
            if let Some((find, replace)) = rules.iter().find(|(find, _)| bytes.starts_with(find)) {
                out.extend(replace);
                bytes = &bytes[find.len()..];
            } else {
                out.push(*first);
                bytes = &bytes[1..];
            }
        }
        out
    }

    proptest! {
        /// Chunk boundaries make no difference.
        #[test]
        fn chunked_input_is_replaced_like_the_whole(
            rules in prop::collection::vec(("[ab]{1,5}", "[xyab]{0,6}"), 0..7),
            text in "[abc]{0,200}",
            parts in prop::collection::vec(1..7usize, 1..60),
        ) {
            let pairs: Vec<_> = rules.iter().map(|(f, r)| (f.clone().into_bytes(), r.clone().into_bytes())).collect();
            let rules = Rules::new(pairs.iter().map(|(f, r)| (&f[..], &r[..]))).unwrap();
            let (mut out, mut shown, mut used) = (vec![], 0, 0);
            for part in parts.iter().cycle() {
                shown = (shown + part).min(text.len());
                let more = shown < text.len();
                let before = out.len();
                let (n, _) = rules.apply(&text.as_bytes()[used..shown], more, &mut out);
                prop_assert!(out.len() - before <= n * rules.growth() as usize);
                used += n;
                prop_assert!(shown - used < rules.longest() as usize);
                if !more {
                    break;
                }
            }
            prop_assert_eq!(used, text.len());
            prop_assert_eq!(out, model(&pairs, text.as_bytes()));
        }
    }

    /// Patterns that share nearly all bytes with the input and with each other.
    #[test]
    fn adversarial_input_is_replaced_correctly() {
        let finds: Vec<_> = (0..64u8).map(|n| [&[b'c'; 254][..], &[b'A' + n % 30]].concat()).collect();
        let pairs: Vec<_> = finds.iter().map(|find| (find.clone(), b"x".to_vec())).collect();
        let rules = Rules::new(pairs.iter().map(|(f, r)| (&f[..], &r[..]))).unwrap();
        let bytes = [&[b'c'; 1460][..], b"B", &[b'c'; 300], b"?", &[b'c'; 254]].concat();
        let mut out = vec![];
        assert_eq!(rules.apply(&bytes, true, &mut out), (bytes.len() - 254, 1));
        assert_eq!(out, model(&pairs, &bytes[..bytes.len() - 254]));
    }

    #[test]
    fn rejects_invalid_rules() {
        let long = [7; 256];
        for (find, replace) in [(&b""[..], &b"x"[..]), (&long, b""), (b"x", &[0; 4097])] {
            assert_eq!(Rules::new([(find, replace)].into_iter()).err().unwrap().key, Some("rules"));
        }
        assert!(Rules::new((0..65).map(|_| (&b"a"[..], &b"b"[..]))).is_err());
    }
}
