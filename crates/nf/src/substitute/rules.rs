//! What is replaced by what.

use graph::Diagnostic;

/// Rules at most, bytes looked for, bytes put in their place.
const MOST: usize = 64;
const FIND: usize = 255;
const REPLACE: usize = 4096;

/// Pairs of what is looked for and what takes its place.
pub(super) struct Rules {
    all: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether something that is looked for begins with a byte.
    begins: Box<[bool; 256]>,
}

impl Rules {
    pub(super) fn new<'a>(all: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<Self, Diagnostic> {
        let all: Vec<_> = all.map(|(find, replace)| (find.to_vec(), replace.to_vec())).collect();
        let wrong = |value: usize, problem: &str, cure: String| {
            Err(Diagnostic::new(problem).key("rules").value(value).cure(cure))
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
                let cure = format!("write {REPLACE} bytes at most as `replace`");
                return wrong(replace.len(), "is too many bytes to put in", cure);
            }
            begins[usize::from(*first)] = true;
        }
        Ok(Rules { all, begins })
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
            let rest = &bytes[at..];
            let open = |find: &[u8]| more && rest.len() < find.len() && find.starts_with(rest);
            match self.all.iter().find(|(find, _)| rest.starts_with(find) || open(find)) {
                Some((find, replace)) if rest.len() >= find.len() => {
                    out.extend_from_slice(&bytes[from..at]);
                    out.extend_from_slice(replace);
                    at += find.len();
                    (from, replaced) = (at, replaced + 1);
                }
                Some(_) => {
                    out.extend_from_slice(&bytes[from..at]);
                    return (at, replaced);
                }
                None => at += 1,
            }
        }
        out.extend_from_slice(&bytes[from..]);
        (bytes.len(), replaced)
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
            rules in prop::collection::vec(("[ab]{1,4}", "[xyab]{0,6}"), 0..4),
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

    #[test]
    fn what_makes_no_sense_is_refused() {
        let long = [7; 256];
        for (find, replace) in [(&b""[..], &b"x"[..]), (&long, b""), (b"x", &[0; 4097])] {
            assert_eq!(Rules::new([(find, replace)].into_iter()).err().unwrap().key, Some("rules"));
        }
        assert!(Rules::new((0..65).map(|_| (&b"a"[..], &b"b"[..]))).is_err());
    }
}
