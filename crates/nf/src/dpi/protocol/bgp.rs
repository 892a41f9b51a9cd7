//! BGP-4.

use super::bytes::{be16, byte};
use super::{Context, Verdict};

const MARKER: [u8; 16] = [0xff; 16];

/// Recognises the header of a message (RFC 4271 §4.1).
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    if !payload.starts_with(&MARKER) {
        return Verdict::NoMatch;
    }
    let (Some(length), Some(kind)) = (be16(payload, 16), byte(payload, 18)) else { return Verdict::NeedMore };
    Verdict::of(match kind {
        1 => length >= 29 && matches!(byte(payload, 19), Some(4) | None),
        2 => (23..=4096).contains(&length),
        3 => (21..=4096).contains(&length),
        4 => length == 19,
        5 => (23..=4096).contains(&length),
        _ => false,
    })
}
