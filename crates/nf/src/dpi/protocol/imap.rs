//! IMAP.

use super::bytes::{first_line, is_command, is_text, starts_with};
use super::{Context, Verdict};

/// Commands of clients before and after authentication (RFC 9051 §6).
const COMMANDS: &[&[u8]] = &[
    b"CAPABILITY",
    b"LOGIN",
    b"AUTHENTICATE",
    b"STARTTLS",
    b"ID",
    b"NOOP",
    b"LOGOUT",
    b"SELECT",
    b"EXAMINE",
    b"LIST",
    b"LSUB",
    b"NAMESPACE",
    b"FETCH",
    b"UID",
    b"STATUS",
    b"ENABLE",
    b"IDLE",
];

/// Recognises the greeting of a server and commands with a tag.
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    if is_command(payload, &[b"* OK", b"* PREAUTH", b"* BYE", b"* CAPABILITY"]) {
        return Verdict::of(starts_with(payload, b"* ") && payload.len() > 6);
    }
    let (line, _) = first_line(payload);
    let space = line.iter().position(|byte| *byte == b' ').filter(|at| (1..=16).contains(at));
    let Some((tag, command)) = space.and_then(|at| line.split_at_checked(at)) else { return Verdict::NoMatch };
    let command = command.get(1..).unwrap_or_default();
    let has_tag =
        tag.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'.') && tag.iter().any(u8::is_ascii_digit);
    Verdict::of(has_tag && is_text(line) && is_command(command, COMMANDS))
}
