//! MySQL and MariaDB.

use super::bytes::byte;
use super::{Context, Verdict};

/// Recognises the greeting of a server with protocol 10: packet length, sequence number 0 and a version in text.
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    let [a, b, c, 0, 10, version @ ..] = payload else { return Verdict::NoMatch };
    let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
    let Some(end) = version.iter().take(64).position(|byte| *byte == 0) else { return Verdict::NoMatch };
    let text = version.get(..end).unwrap_or_default();
    // a connection number and eight random bytes follow, then a zero
    let filler = byte(version, end + 13);
    Verdict::of(
        (40..512).contains(&length)
            && length + 4 == payload.len()
            && text.first().is_some_and(u8::is_ascii_digit)
            && text.iter().all(u8::is_ascii_graphic)
            && text.contains(&b'.')
            && filler == Some(0),
    )
}
