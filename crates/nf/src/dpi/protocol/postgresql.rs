//! PostgreSQL.

use super::bytes::{be32, byte, contains};
use super::{Context, Verdict};

/// Recognises startup messages, requests for encryption and the first messages of a server.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let (first, second) = (be32(payload, 0), be32(payload, 4));
    if let (Some(length), Some(code)) = (first, second)
        && length as usize == payload.len()
    {
        return Verdict::of(match code {
            // version 2 or 3, with the name of the user
            0x0002_0000 => length == 296,
            0x0003_0000..=0x0003_0002 => contains(payload, b"user\0"),
            // cancel, TLS, GSSAPI
            0x04d2_162e => length == 16,
            0x04d2_162f | 0x04d2_1630 => length == 8,
            _ => false,
        });
    }
    match payload {
        [b'S' | b'N'] => Verdict::of(be32(context.peer.bytes(), 4) == Some(0x04d2_162f)),
        [b'R', ..] => {
            let (length, code) = (be32(payload, 1).unwrap_or_default(), be32(payload, 5).unwrap_or(u32::MAX));
            let next = byte(payload, 1 + length as usize);
            let follows = next.is_none_or(|kind| kind.is_ascii_alphabetic());
            Verdict::of((8..2048).contains(&length) && code <= 12 && payload.len() > length as usize && follows)
        }
        _ => Verdict::NoMatch,
    }
}
