//! HTTP/1.x, and the preface of HTTP/2 without TLS.

use super::bytes::{first_line, is_start_of, starts_with};
use super::{Context, Verdict};
use wire::http::Request;

/// Methods (RFC 9110 §9.3, RFC 5789, RFC 4918, UPnP).
const METHODS: &[&[u8]] = &[
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"CONNECT ",
    b"TRACE ",
    b"PATCH ",
    b"PROPFIND ",
    b"PROPPATCH ",
    b"MKCOL ",
    b"COPY ",
    b"MOVE ",
    b"LOCK ",
    b"UNLOCK ",
    b"REPORT ",
    b"SUBSCRIBE ",
    b"UNSUBSCRIBE ",
    b"NOTIFY ",
];

/// Recognises the first line of a request or response.
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    if is_response(payload) || payload.starts_with(b"PRI * HTTP/2.0\r\n") {
        return Verdict::Match;
    }
    let Some(method) = METHODS.iter().find(|method| payload.starts_with(method)) else {
        let partial =
            METHODS.iter().any(|method| is_start_of(payload, method)) || is_start_of(payload, b"HTTP/1.1 200");
        return if partial { Verdict::NeedMore } else { Verdict::NoMatch };
    };
    let (line, complete) = first_line(payload);
    let target = line.get(method.len()..).unwrap_or_default();
    if !target.iter().all(|byte| matches!(byte, b' '..=b'~' | 0x80..)) {
        return Verdict::NoMatch;
    }
    if complete {
        return Verdict::of(line.windows(8).next_back().is_some_and(|version| version.starts_with(b"HTTP/1.")));
    }
    // a long target continues in the next packet
    match target {
        [b'/', ..] if payload.len() >= 64 => Verdict::Match,
        _ if starts_with(target, b"http://") && payload.len() >= 64 => Verdict::Match,
        _ => Verdict::NeedMore,
    }
}

fn is_response(payload: &[u8]) -> bool {
    matches!(
        payload,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'..=b'9', b' ', b'1'..=b'5', b'0'..=b'9', b'0'..=b'9', ..]
    )
}

/// Returns the host of a request: its field `Host` without a port. An error if the head is not complete.
pub(in crate::dpi) fn host(stream: &[u8]) -> Result<Option<&[u8]>, wire::Malformed> {
    if is_response(stream) {
        return Ok(None);
    }
    let host = Request::new(stream)?.field("host");
    Ok(host.map(|host| host.split(|byte| *byte == b':').next().unwrap_or_default()))
}
