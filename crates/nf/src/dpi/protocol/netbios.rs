//! NetBIOS name, datagram and session services.

use super::bytes::{be16, be32, contains};
use super::{Context, Transport, Verdict};

/// Returns true for a name in first-level encoding (RFC 1001 §14.1).
fn is_name(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x20)
        && bytes.get(1..33).is_some_and(|name| name.iter().all(|byte| matches!(byte, b'A'..=b'P')))
}

/// Recognises messages of the name service (RFC 1002 §4.2), the datagram service (§4.4) and session requests (§4.3.2).
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    match context.transport {
        Transport::Tcp => match payload {
            [0x81, 0, 0, 0x44, name @ ..] => Verdict::of(is_name(name)),
            [0x82, 0, 0, 0] => Verdict::of(context.peer.bytes().first() == Some(&0x81)),
            [0x83, 0, 0, 1, 0x80..=0x83 | 0x8f] => Verdict::Match,
            _ => Verdict::NoMatch,
        },
        Transport::Udp if context.uses_port(&[137]) => {
            let counts = [4, 6, 8, 10].map(|at| be16(payload, at).unwrap_or(u16::MAX));
            Verdict::of(counts.iter().all(|count| *count <= 256) && counts != [0; 4] && payload.len() >= 13)
        }
        Transport::Udp => {
            let [0x10..=0x16, (..=0x0f), ..] = payload else { return Verdict::NoMatch };
            let source = be32(payload, 4).unwrap_or_default();
            let names = payload.get(14..).is_some_and(is_name);
            Verdict::of(context.uses_port(&[138]) && source != 0 && names && !contains(payload, b"\xffSMB"))
        }
    }
}
