//! NTP.

use super::{Context, Verdict};

/// Recognises packets with a version of 1 to 4 and a mode (RFC 5905 §7.3), and control messages (RFC 9327), at port 123.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let [first, ..] = payload else { return Verdict::NoMatch };
    let (version, mode) = (first >> 3 & 7, first & 7);
    let long_enough = match mode {
        1..=5 => payload.len() >= 48,
        6 => payload.len() >= 12,
        7 => payload.len() >= 8,
        // mode 0 is that of version 1
        _ => payload.len() >= 48 && version == 1,
    };
    Verdict::of(context.uses_port(&[123]) && (1..=4).contains(&version) && long_enough)
}
