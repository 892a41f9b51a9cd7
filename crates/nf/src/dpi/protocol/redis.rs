//! Redis serialization protocol.

use super::bytes::first_line;
use super::{Context, Verdict};

/// Returns the number behind the type character of a line.
fn number(line: &[u8]) -> Option<usize> {
    let digits = line.get(1..).filter(|digits| (1..=6).contains(&digits.len()))?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// Recognises a request: an array of bulk strings, and a reply to one.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    match payload {
        [b'*', b'0'..=b'9', ..] => {}
        [b'+' | b'-' | b':' | b'$', ..] => return Verdict::of(is_array(context.peer.bytes()) == Some(true)),
        _ => return Verdict::NoMatch,
    }
    match is_array(payload) {
        Some(is) => Verdict::of(is),
        None => Verdict::NeedMore,
    }
}

fn is_array(payload: &[u8]) -> Option<bool> {
    let (line, complete) = first_line(payload);
    if !line.starts_with(b"*") || line.len() > 8 {
        return Some(false);
    }
    if !complete {
        return None;
    }
    let count = number(line);
    let (second, complete) = first_line(payload.get(line.len() + 2..).unwrap_or_default());
    if second.is_empty() && !complete {
        return None;
    }
    Some(count.is_some_and(|count| count > 0) && second.starts_with(b"$") && (!complete || number(second).is_some()))
}
