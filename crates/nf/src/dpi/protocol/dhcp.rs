//! DHCP and DHCPv6.

use super::bytes::{be16, be32, byte};
use super::{Context, Verdict};

/// Offset and value of the magic cookie (RFC 2131 §3).
const COOKIE: (usize, u32) = (236, 0x6382_5363);

/// Recognises BOOTP messages with options (RFC 2131 §2) and DHCPv6 messages (RFC 8415 §8).
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    if let [1 | 2, 1..=37, (..=16), ..] = payload
        && be32(payload, COOKIE.0) == Some(COOKIE.1)
    {
        return Verdict::Match;
    }
    let [546 | 547, 546 | 547] = context.ports else { return Verdict::NoMatch };
    let options = match byte(payload, 0) {
        Some(1..=11) => 4,
        Some(12 | 13) => 34,
        _ => return Verdict::NoMatch,
    };
    let (Some(code), Some(length)) = (be16(payload, options), be16(payload, options + 2)) else {
        return Verdict::NoMatch;
    };
    Verdict::of((1..=150).contains(&code) && options + 4 + usize::from(length) <= payload.len())
}
