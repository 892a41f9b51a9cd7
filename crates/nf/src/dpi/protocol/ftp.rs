//! FTP control connections.

use super::bytes::{contains, first_line, is_command, is_text};
use super::{Context, Verdict};

/// Commands of clients (RFC 959 §4.1, RFC 2228, RFC 2389, RFC 2428, RFC 4217).
const COMMANDS: &[&[u8]] = &[
    b"USER", b"PASS", b"FEAT", b"AUTH", b"SYST", b"PASV", b"EPSV", b"PORT", b"EPRT", b"OPTS", b"CWD", b"PWD", b"TYPE",
    b"LIST", b"RETR", b"STOR", b"PBSZ", b"PROT", b"NLST", b"QUIT", b"HOST",
];

/// Recognises the greeting of a server, or a command after a greeting with code 220.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let (line, _) = first_line(payload);
    if !is_text(line) || payload.len() < 4 {
        return Verdict::NoMatch;
    }
    let on_port = context.uses_port(&[21]);
    if let [b'2', b'2', b'0', b' ' | b'-', ..] = payload {
        return match contains(payload, b"FTP") && !contains(payload, b"SMTP") {
            _ if on_port => Verdict::Match,
            true => Verdict::Match,
            false => Verdict::NeedMore,
        };
    }
    if let [b'2' | b'3' | b'5', b'0'..=b'5', b'0'..=b'9', b' ' | b'-', ..] = payload {
        return if on_port { Verdict::Match } else { Verdict::NeedMore };
    }
    if !is_command(line, COMMANDS) {
        return Verdict::NoMatch;
    }
    Verdict::of(on_port || context.peer.bytes().starts_with(b"220"))
}
