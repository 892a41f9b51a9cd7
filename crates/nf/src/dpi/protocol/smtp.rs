//! SMTP.

use super::bytes::{contains, first_line, is_command, is_text};
use super::{Context, Verdict};

/// Recognises EHLO and HELO, and the greeting of a server.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let (line, _) = first_line(payload);
    if !is_text(line) {
        return Verdict::NoMatch;
    }
    if is_command(line, &[b"EHLO", b"HELO", b"LHLO"]) || line.get(..10).is_some_and(|start| start == b"MAIL FROM:") {
        return Verdict::Match;
    }
    let on_port = context.uses_port(&[25, 587]);
    match payload {
        [b'2', b'2', b'0', b' ' | b'-', ..] if on_port || contains(payload, b"SMTP") => Verdict::Match,
        [b'2', b'2', b'0', b' ' | b'-', ..] if !contains(payload, b"FTP") => Verdict::NeedMore,
        [b'5' | b'4', b'2' | b'5', b'0'..=b'9', b' ' | b'-', ..] if on_port => Verdict::Match,
        _ => Verdict::NoMatch,
    }
}
