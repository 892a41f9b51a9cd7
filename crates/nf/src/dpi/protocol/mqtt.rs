//! MQTT 3.1 to 5.

use super::bytes::{be16, byte};
use super::{Context, Verdict};

/// Reads the remaining length (MQTT 5 §1.5.5); returns it and its own length in bytes.
fn remaining_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut length = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((length, at + 1));
        }
    }
    None
}

/// Recognises CONNECT by the name of the protocol; CONNACK, and PUBLISH at the default port, by their lengths.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let [kind, rest @ ..] = payload else { return Verdict::NoMatch };
    let Some((length, size)) = remaining_length(rest) else { return Verdict::NoMatch };
    let body = rest.get(size..).unwrap_or_default();
    let on_port = context.uses_port(&[1883]);
    match kind {
        0x10 => Verdict::of(
            (body.starts_with(b"\0\x04MQTT") && matches!(byte(body, 6), Some(3..=5) | None))
                || body.starts_with(b"\0\x06MQIsdp"),
        ),
        0x20 => Verdict::of(length == 2 && payload.len() == 4 && matches!(body, [0 | 1, 0..=5])),
        0x30..=0x3f if on_port => {
            let topic = be16(body, 0).map(usize::from).unwrap_or_default();
            let text = body.get(2..2 + topic).is_some_and(|text| core::str::from_utf8(text).is_ok());
            Verdict::of(topic != 0 && topic + 2 <= length && text)
        }
        0x40 | 0x50 | 0x62 | 0x70 if on_port => Verdict::of(length == body.len() && length <= 4),
        0x82 | 0x90 if on_port => Verdict::of(length == body.len() && length >= 3),
        0xc0 | 0xd0 | 0xe0 if on_port => Verdict::of(length == 0 && body.is_empty()),
        _ => Verdict::NoMatch,
    }
}
