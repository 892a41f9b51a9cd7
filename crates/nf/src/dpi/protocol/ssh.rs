//! SSH.

use super::bytes::is_start_of;
use super::{Context, Verdict};

/// Recognises the identification string (RFC 4253 §4.2).
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    match payload {
        [b'S', b'S', b'H', b'-', b'1' | b'2', b'.', b'0'..=b'9', ..] => Verdict::Match,
        _ if is_start_of(payload, b"SSH-") => Verdict::NeedMore,
        _ => Verdict::NoMatch,
    }
}
