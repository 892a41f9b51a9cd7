//! STUN and TURN.

use super::bytes::{be16, be32};
use super::{Context, Transport, Verdict};

/// The magic cookie (RFC 8489 §5).
const COOKIE: u32 = 0x2112_a442;
/// Length of the header in bytes.
const HEADER: usize = 20;

/// Recognises messages with the magic cookie, and without it (RFC 3489) by their attributes.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let message = match (context.transport, be16(payload, 0)) {
        // framing of RFC 4571
        (Transport::Tcp, Some(length)) if usize::from(length) + 2 == payload.len() => {
            payload.get(2..).unwrap_or_default()
        }
        _ => payload,
    };
    let (Some(kind), Some(length)) = (be16(message, 0), be16(message, 2).map(usize::from)) else {
        return Verdict::NoMatch;
    };
    if kind >> 14 != 0 || !length.is_multiple_of(4) || message.len() < HEADER || HEADER + length > message.len() {
        return Verdict::NoMatch;
    }
    if be32(message, 4) == Some(COOKIE) {
        let method = kind & 0xf | kind >> 1 & 0x70 | kind >> 2 & 0xf80;
        return Verdict::of((1..0x100).contains(&method));
    }
    let classic = context.transport == Transport::Udp && HEADER + length == message.len();
    let binding = matches!(kind, 1 | 0x101 | 0x111);
    Verdict::of(classic && binding && attributes(message.get(HEADER..).unwrap_or_default()))
}

/// Returns true for attributes that fill the bytes, with types of RFC 3489 or optional ones.
fn attributes(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let (Some(kind), Some(length)) = (be16(bytes, 0), be16(bytes, 2)) else { return false };
        let next = bytes.get(4 + usize::from(length.next_multiple_of(4))..);
        let (true, Some(next)) = (matches!(kind, 1..=0x2f | 0x8000..=0xc0ff) && length < 1024, next) else {
            return false;
        };
        bytes = next;
    }
    true
}
