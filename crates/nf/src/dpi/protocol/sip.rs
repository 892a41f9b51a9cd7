//! SIP.

use super::bytes::{contains, first_line, starts_with};
use super::{Context, Transport, Verdict};

/// Methods (RFC 3261 §7.1 and its extensions).
const METHODS: &[&[u8]] = &[
    b"INVITE ",
    b"REGISTER ",
    b"OPTIONS ",
    b"ACK ",
    b"BYE ",
    b"CANCEL ",
    b"SUBSCRIBE ",
    b"NOTIFY ",
    b"INFO ",
    b"MESSAGE ",
    b"PRACK ",
    b"UPDATE ",
    b"REFER ",
    b"PUBLISH ",
];

/// Recognises the first line of a request or response.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    if let [b'S', b'I', b'P', b'/', b'2', b'.', b'0', b' ', b'1'..=b'6', ..] = payload {
        return Verdict::Match;
    }
    let Some(method) = METHODS.iter().find(|method| payload.starts_with(method)) else {
        // keep-alives
        let empty = context.uses_port(&[5060]) && payload.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0));
        return if empty { Verdict::NeedMore } else { Verdict::NoMatch };
    };
    let (line, complete) = first_line(payload);
    let target = line.get(method.len()..).unwrap_or_default();
    let uri = [&b"sip:"[..], b"sips:", b"tel:"].iter().any(|scheme| starts_with(target, scheme));
    match () {
        () if complete && contains(line, b" SIP/2.0") => Verdict::Match,
        () if uri => Verdict::Match,
        () if !complete && context.transport == Transport::Tcp => Verdict::NeedMore,
        () => Verdict::NoMatch,
    }
}
