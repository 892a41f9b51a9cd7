//! What is replaced by what.

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchKind};
use diagnostics::Diagnostic;
use std::collections::HashMap;

/// Rules at most, bytes looked for, bytes put in their place.
const MOST: usize = 64;
const FIND: usize = 255;
const REPLACE: usize = 4096;

/// Pairs of what is looked for and what takes its place. All are looked for at once, by the automaton of Aho and Corasick
/// (1975): the cost of a byte does not grow with the number of rules. It grows with their length in one case: where a rule
/// begins as a shorter one that stands behind it in the list, the bytes behind each of the shorter are looked at again.
pub(super) struct Rules {
    all: Vec<(Vec<u8>, Vec<u8>)>,
    /// Of what begins first; of what begins at the same place, the first rule.
    automaton: NFA,
    start: StateID,
    /// Bytes of the beginning that each state stands for, where something may come behind it.
    open: HashMap<StateID, usize>,
    /// Whether something that is looked for begins with a byte.
    begins: Box<[bool; 256]>,
}

impl Rules {
    pub(super) fn new<'a>(all: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, Diagnostic> {
        let all: Vec<_> = all.map(|(find, replace)| (find.to_vec(), replace.to_vec())).collect();
        let wrong = |value: usize, problem: &str, remedy: String| {
            Err(Diagnostic::new(problem).key("rules").value(value).remedy(remedy))
        };
        if all.len() > MOST {
            return wrong(all.len(), "are more rules than there may be", format!("write {MOST} at most"));
        }
        let mut begins = Box::new([false; 256]);
        for (find, replace) in &all {
            let Some(first) = find.first().filter(|_| find.len() <= FIND) else {
                return wrong(
                    find.len(),
                    "is no number of bytes to look for",
                    format!("write 1 to {FIND} bytes as `find`"),
                );
            };
            if replace.len() > REPLACE {
                let remedy = format!("write {REPLACE} bytes at most as `replace`");
                return wrong(replace.len(), "is too many bytes to put in", remedy);
            }
            begins[usize::from(*first)] = true;
        }
        let refused = |e: &dyn std::fmt::Display| {
            Diagnostic::new(e.to_string()).key("rules").value(all.len()).remedy("write fewer or shorter rules")
        };
        let automaton = NFA::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .build(all.iter().map(|(find, _)| find))
            .map_err(|e| refused(&e))?;
        let start = automaton.start_state(Anchored::No).map_err(|e| refused(&e))?;
        let mut open = HashMap::new();
        for (find, _) in &all {
            let mut state = start;
            for (at, byte) in find.iter().enumerate() {
                state = automaton.next_state(Anchored::No, state, *byte);
                // behind what another rule is found by first
                if automaton.is_dead(state) {
                    break;
                }
                let goes_on = |byte| !automaton.is_dead(automaton.next_state(Anchored::No, state, byte));
                if !automaton.is_match(state) || (0..=255).any(goes_on) {
                    open.insert(state, at + 1);
                }
            }
        }
        Ok(Rules { all, automaton, start, open, begins })
    }

    /// Bytes that one byte becomes at most, rounded up.
    pub(super) fn growth(&self) -> u32 {
        self.all.iter().map(|(find, replace)| replace.len().div_ceil(find.len()) as u32).fold(1, u32::max)
    }

    /// Bytes of the longest that is looked for.
    pub(super) fn longest(&self) -> u32 {
        self.all.iter().map(|(find, _)| find.len() as u32).max().unwrap_or(1)
    }

    /// Adds `bytes` to `out`, with what is to be replaced replaced. `more`: whether what ends with a beginning waits for the
    /// rest. How many bytes were used, and how often something was replaced.
    pub(super) fn apply(&self, bytes: &[u8], more: bool, out: &mut Vec<u8>) -> (usize, u64) {
        let (mut from, mut at, mut replaced) = (0, 0, 0);
        while let Some(skip) = bytes[at..].iter().position(|byte| self.begins[usize::from(*byte)]) {
            at += skip;
            let (found, open) = self.find(bytes, at);
            match (found, open) {
                // what is open begins before what was found, or comes before it in the list
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

    /// The first from `at` on that is found, and where it ends; where something begins that may be found instead, with what
    /// comes behind the bytes.
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
        (found, self.open.get(&state).map(|depth| bytes.len() - depth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Byte for byte, of the whole.
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
        /// The borders between parts make no difference.
        #[test]
        fn replaces_as_if_all_came_at_once(
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

    /// Rules that have nearly all in common with what comes, and with each other.
    #[test]
    fn crafted_bytes_are_replaced_as_others() {
        let finds: Vec<_> = (0..64u8).map(|n| [&[b'c'; 254][..], &[b'A' + n % 30]].concat()).collect();
        let pairs: Vec<_> = finds.iter().map(|find| (find.clone(), b"x".to_vec())).collect();
        let rules = Rules::new(pairs.iter().map(|(f, r)| (&f[..], &r[..]))).unwrap();
        let bytes = [&[b'c'; 1460][..], b"B", &[b'c'; 300], b"?", &[b'c'; 254]].concat();
        let mut out = vec![];
        assert_eq!(rules.apply(&bytes, true, &mut out), (bytes.len() - 254, 1));
        assert_eq!(out, model(&pairs, &bytes[..bytes.len() - 254]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let long = [7; 256];
        for (find, replace) in [(&b""[..], &b"x"[..]), (&long, b""), (b"x", &[0; 4097])] {
            assert_eq!(Rules::new([(find, replace)].into_iter()).err().unwrap().key, Some("rules"));
        }
        assert!(Rules::new((0..65).map(|_| (&b"a"[..], &b"b"[..]))).is_err());
    }
}
