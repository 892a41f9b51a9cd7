//! AMQP 0-9-1 and 1.0.

use super::bytes::{be32, byte, is_start_of};
use super::{Context, Verdict};

/// Recognises the protocol header (AMQP 0-9-1 §4.2.2, 1.0 §2.2) and frames with their end (0-9-1 §4.2.3).
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    match payload {
        [b'A', b'M', b'Q', b'P', protocol, _, minor, _, ..] => return Verdict::of(*protocol <= 3 && *minor <= 10),
        _ if is_start_of(payload, b"AMQP") => return Verdict::NeedMore,
        _ => {}
    }
    let (Some(kind), Some(size)) = (byte(payload, 0), be32(payload, 3)) else { return Verdict::NoMatch };
    let end = (size as usize).checked_add(7).and_then(|at| byte(payload, at));
    Verdict::of(matches!(kind, 1..=3 | 8) && end == Some(0xce))
}
