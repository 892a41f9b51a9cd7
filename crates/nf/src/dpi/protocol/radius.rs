//! RADIUS.

use super::bytes::{be16, byte};
use super::{Context, Verdict};

/// Length of the header in bytes (RFC 2865 §3).
const HEADER: usize = 20;

/// Recognises packets whose attributes fill their length, at ports of RADIUS.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let (Some(code), Some(length)) = (byte(payload, 0), be16(payload, 2).map(usize::from)) else {
        return Verdict::NoMatch;
    };
    let is_code = matches!(code, 1..=5 | 11..=13 | 40..=45);
    let on_port = context.uses_port(&[1812, 1813, 1645, 1646, 3799]);
    if !is_code || !(HEADER..=4096).contains(&length) || length > payload.len() {
        return Verdict::NoMatch;
    }
    let mut attributes = payload.get(HEADER..length).unwrap_or_default();
    let mut count = 0;
    while let [kind, size, ..] = attributes {
        let rest = attributes.get(usize::from(*size)..).filter(|_| *size >= 2 && *kind != 0);
        let Some(rest) = rest else { return Verdict::NoMatch };
        attributes = rest;
        count += 1;
    }
    Verdict::of(attributes.is_empty() && (on_port || (count >= 3 && length == payload.len())))
}
