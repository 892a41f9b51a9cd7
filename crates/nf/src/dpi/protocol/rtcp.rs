//! RTCP.

use super::bytes::be16;
use super::{Context, Verdict};

/// Recognises compound packets that start with a report (RFC 3550 §6.1) and whose lengths fill the payload, and feedback
/// (RFC 4585) after another packet.
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    let [_, 200 | 201 | 205 | 206, ..] = payload else { return Verdict::NoMatch };
    let mut rest = payload;
    while let [first, kind, ..] = rest {
        let Some(words) = be16(rest, 2).map(usize::from) else { return Verdict::NoMatch };
        // the encrypted part and the tag of SRTCP
        let encrypted = rest.len() < payload.len();
        let size = (words + 1) * 4;
        if first >> 6 != 2 || !matches!(kind, 192..=223) || size > rest.len() {
            return Verdict::of(encrypted && rest.len() >= 14);
        }
        let reports = usize::from(first & 31);
        let minimum = match kind {
            200 => 28 + 24 * reports,
            201 => 8 + 24 * reports,
            _ => 8.min(size),
        };
        if size < minimum {
            return Verdict::NoMatch;
        }
        rest = rest.get(size..).unwrap_or_default();
    }
    Verdict::of(rest.is_empty() && payload.len() >= 8)
}
