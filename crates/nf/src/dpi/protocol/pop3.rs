//! POP3.

use super::bytes::{first_line, is_command, is_text};
use super::{Context, Verdict};

/// Commands of clients (RFC 1939, RFC 2449, RFC 2595).
const COMMANDS: &[&[u8]] =
    &[b"USER", b"PASS", b"CAPA", b"STLS", b"AUTH", b"APOP", b"STAT", b"LIST", b"UIDL", b"RETR", b"QUIT", b"NOOP"];

/// Recognises replies, unless they answer another protocol, and commands after a greeting.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let (line, _) = first_line(payload);
    if !is_text(line) {
        return Verdict::NoMatch;
    }
    let (on_port, peer) = (context.uses_port(&[110]), context.peer);
    if is_command(line, &[b"+OK", b"-ERR"]) {
        let answers = peer.is_empty() || is_command(peer.bytes(), COMMANDS);
        return Verdict::of(on_port || (answers && line.len() > 3));
    }
    Verdict::of(is_command(line, COMMANDS) && (on_port || peer.bytes().starts_with(b"+OK")))
}
