//! WireGuard.

use super::bytes::{be32, be64, byte};
use super::{Context, Verdict};

/// Recognises messages by type and length; data by the receiver and counter of two messages.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let [kind @ 1..=4, 0, 0, 0, ..] = payload else { return Verdict::NoMatch };
    let previous = context.previous.bytes();
    match (kind, payload.len()) {
        (1, 148) => Verdict::Match,
        // the receiver is the sender of the initiation
        (2, 92) => Verdict::of(context.peer.is_empty() || be32(context.peer.bytes(), 4) == be32(payload, 8)),
        (3, 64) => Verdict::NeedMore,
        (4, length) if length >= 32 && length.is_multiple_of(16) => {
            let counter = |bytes: &[u8]| be64(bytes, 8).map(u64::swap_bytes);
            let follows = byte(previous, 0) == Some(4)
                && be32(previous, 4) == be32(payload, 4)
                && counter(payload).zip(counter(previous)).is_some_and(|(now, last)| now.wrapping_sub(last) < 64);
            if follows { Verdict::Match } else { Verdict::NeedMore }
        }
        _ => Verdict::NoMatch,
    }
}
