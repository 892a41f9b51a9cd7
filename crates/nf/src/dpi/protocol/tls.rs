//! TLS and SSL.

use super::bytes::{be16, be24, byte};
use super::{Context, Verdict};
use wire::Malformed;
use wire::tls::{self, ClientHello, MAX_RECORD};

/// Length of a record header in bytes.
const RECORD_HEADER: usize = 5;

/// Recognises handshakes by the headers of the record and of its message, and other records by their lengths.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let [kind, rest @ ..] = payload else { return Verdict::NoMatch };
    if is_ssl2_hello(payload) {
        return Verdict::Match;
    }
    let plausible = match rest {
        [] => matches!(kind, 22),
        [3] => matches!(kind, 20..=23),
        [3, 0..=4, ..] => matches!(kind, 20..=24),
        _ => false,
    };
    let length = be16(payload, 3).map(usize::from);
    if !plausible || length.is_some_and(|length| length == 0 || length > MAX_RECORD) {
        return Verdict::NoMatch;
    }
    let Some(length) = length else { return Verdict::NeedMore };
    match kind {
        22 => handshake(payload.get(RECORD_HEADER..).unwrap_or_default(), length),
        20 if length != 1 => Verdict::NoMatch,
        21 if !matches!(length, 2 | 18..=64) => Verdict::NoMatch,
        _ => records(payload, context),
    }
}

/// Returns true for a ClientHello of SSL 2 that offers a later version (RFC 5246 appendix E.2).
fn is_ssl2_hello(payload: &[u8]) -> bool {
    let [high @ 0x80..=0x8f, low, 1, 3, 0..=3, ..] = payload else { return false };
    let length = usize::from(u16::from_be_bytes([high & 0x7f, *low]));
    let parts = [5, 7, 9].map(|at| be16(payload, at).map(usize::from).unwrap_or_default());
    length + 2 == payload.len()
        && parts[0] != 0
        && parts[0].is_multiple_of(3)
        && parts.iter().sum::<usize>() + 9 == length
}

/// Recognises the header of a handshake message. Encrypted messages have any type and length.
fn handshake(message: &[u8], record: usize) -> Verdict {
    let Some(kind) = byte(message, 0) else { return Verdict::NeedMore };
    let length = be24(message, 1).map(|length| length as usize);
    let fits = length.is_none_or(|length| length <= 1 << 17);
    Verdict::of(
        match kind {
            1 | 2 => fits && matches!(byte(message, 4), Some(3) | None) && record > 38,
            0 => length == Some(0) || length.is_none(),
            4 | 8 | 11..=16 | 20 | 22 => fits,
            _ => false,
        } || (40..128).contains(&record),
    )
}

/// Walks through records: one that is complete or two headers decide.
fn records(payload: &[u8], context: &Context) -> Verdict {
    let (mut rest, mut headers) = (payload, 0);
    while let [20..=24, 3, 0..=4, _, _, ..] = rest {
        let length = be16(rest, 3).map(usize::from).unwrap_or_default();
        if length == 0 || length > MAX_RECORD {
            return Verdict::NoMatch;
        }
        headers += 1;
        rest = rest.get(RECORD_HEADER + length..).unwrap_or_default();
    }
    let whole = rest.is_empty();
    let continued = !context.previous.is_empty() && matches!(context.previous.bytes(), [20..=23, 3, ..]);
    match headers {
        _ if !whole => Verdict::NoMatch,
        2.. => Verdict::Match,
        _ if continued || context.uses_port(&[443, 993, 995, 465, 853]) => Verdict::Match,
        _ => Verdict::NeedMore,
    }
}

/// Returns the host name in the ClientHello at the start of a stream. An error if the message is not complete or not
/// correct.
pub(in crate::dpi) fn server_name<'a>(stream: &'a [u8], buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    match ClientHello::of_stream(stream) {
        Ok(hello) => return Ok(hello.server_name()),
        Err(Malformed::Short) => {}
        Err(error) => return Err(error),
    }
    let length = tls::join(stream, buffer)?;
    let hello = ClientHello::new(buffer.get(..length).unwrap_or_default())?;
    Ok(hello.server_name())
}

/// Returns the host name in a ClientHello without record headers, as QUIC carries it.
pub(in crate::dpi) fn client_hello_name(message: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    Ok(ClientHello::new(message)?.server_name())
}
