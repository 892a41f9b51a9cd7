//! Kerberos 5.

use super::bytes::be32;
use super::{Context, Transport, Verdict, der};

/// Recognises messages by their ASN.1 application number, version 5 and message type (RFC 4120 §5), over TCP behind
/// their length.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let message = match context.transport {
        Transport::Udp => payload,
        Transport::Tcp => match be32(payload, 0) {
            Some(length) if (8..1 << 24).contains(&length) && payload.len() == 4 => return Verdict::NeedMore,
            Some(length) if (8..1 << 24).contains(&length) => payload.get(4..).unwrap_or_default(),
            _ => return Verdict::NoMatch,
        },
    };
    Verdict::of(is_message(message).unwrap_or(false))
}

fn is_message(message: &[u8]) -> Option<bool> {
    let outer = der::header(message)?;
    let number = outer.tag.checked_sub(0x60)?;
    // AS and TGS, AP, SAFE, PRIV, CRED, ERROR
    if !matches!(number, 10..=15 | 20..=22 | 30) {
        return Some(false);
    }
    let (sequence, _) = der::value(outer.rest, 0x30)?;
    // the version has number 1 in requests for tickets, 0 in other messages
    let first = if matches!(number, 10 | 12) { 0xa1 } else { 0xa0 };
    let (version, rest) = der::value(sequence, first)?;
    let (kind, _) = der::value(rest, first + 1)?;
    Some(der::integer(version)?.0 == 5 && der::integer(kind)?.0 == u32::from(number))
}
