//! SNMP versions 1, 2c and 3.

use super::{Context, Verdict, der};

/// Recognises the version and the start of the PDU or, for version 3, of the header (RFC 3416 §3, RFC 3412 §6).
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    Verdict::of(is_message(payload).unwrap_or(false))
}

fn is_message(payload: &[u8]) -> Option<bool> {
    let outer = der::header(payload).filter(|outer| outer.tag == 0x30 && outer.length <= outer.rest.len())?;
    let (version, rest) = der::integer(outer.rest)?;
    match version {
        0 | 1 => {
            let (_, pdu) = der::value(rest, 4)?;
            Some(matches!(pdu.first()?, 0xa0..=0xa8))
        }
        3 => {
            let (header, security) = der::value(rest, 0x30)?;
            let (_, size) = der::integer(header)?;
            Some(der::integer(size).is_some() && security.first() == Some(&4))
        }
        _ => Some(false),
    }
}
