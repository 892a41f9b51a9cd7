//! RTSP.

use super::bytes::{contains, first_line, starts_with};
use super::{Context, Verdict};

/// Methods (RFC 2326 §10, RFC 7826 §13).
const METHODS: &[&[u8]] = &[
    b"OPTIONS ",
    b"DESCRIBE ",
    b"SETUP ",
    b"PLAY ",
    b"PAUSE ",
    b"TEARDOWN ",
    b"ANNOUNCE ",
    b"RECORD ",
    b"GET_PARAMETER ",
    b"SET_PARAMETER ",
    b"REDIRECT ",
    b"PLAY_NOTIFY ",
];

/// Recognises the first line of a request or response.
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    if starts_with(payload, b"RTSP/1.0 ") || starts_with(payload, b"RTSP/2.0 ") {
        return Verdict::Match;
    }
    if !METHODS.iter().any(|method| payload.starts_with(method)) {
        return Verdict::NoMatch;
    }
    let (line, complete) = first_line(payload);
    if contains(line, b" RTSP/") || contains(line, b" rtsp://") {
        return Verdict::Match;
    }
    if complete { Verdict::NoMatch } else { Verdict::NeedMore }
}
