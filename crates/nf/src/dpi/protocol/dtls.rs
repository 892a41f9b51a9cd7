//! DTLS 1.0 to 1.3.

use super::bytes::{be16, be24, byte};
use super::{Context, Verdict};

/// Length of a record header in bytes (RFC 6347 §4.1).
const RECORD_HEADER: usize = 13;

/// Recognises records with their version, epoch and length; handshake records also by the header of their message.
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    let [kind @ 20..=26, high, low, ..] = payload else { return Verdict::NoMatch };
    // DTLS 1.0, 1.2, and the version of OpenSSL before the standard
    if !matches!((high, low), (0xfe, 0xff | 0xfd) | (1, 0)) {
        return Verdict::NoMatch;
    }
    let (Some(epoch), Some(length)) = (be16(payload, 3), be16(payload, 11)) else { return Verdict::NoMatch };
    if length == 0 || RECORD_HEADER + usize::from(length) > payload.len() {
        return Verdict::NoMatch;
    }
    if *kind != 22 || epoch != 0 {
        return Verdict::of(epoch < 64);
    }
    let body = payload.get(RECORD_HEADER..).unwrap_or_default();
    let (Some(message), Some(whole), Some(offset), Some(part)) =
        (byte(body, 0), be24(body, 1), be24(body, 6), be24(body, 9))
    else {
        return Verdict::NoMatch;
    };
    Verdict::of(matches!(message, 0..=4 | 8 | 11..=16 | 20..=25) && offset.saturating_add(part) <= whole)
}
