//! LDAP, and CLDAP over UDP.

use super::{Context, Verdict, der};

/// Recognises the envelope of a message and the tag of its operation (RFC 4511 §4.1.1).
pub(super) fn recognise(payload: &[u8], _: &Context) -> Verdict {
    Verdict::of(is_message(payload).unwrap_or(false))
}

fn is_message(payload: &[u8]) -> Option<bool> {
    let outer = der::header(payload).filter(|outer| outer.tag == 0x30 && outer.length >= 5)?;
    let (_, operation) = der::integer(outer.rest)?;
    let operation = der::header(operation)?;
    Some(match operation.tag {
        // a request to bind states version 2 or 3
        0x60 => matches!(der::integer(operation.rest)?.0, 2 | 3),
        // an unbind request is empty
        0x42 => operation.length == 0,
        // results start with an enumerated code
        0x61 | 0x65 | 0x67 | 0x69 | 0x6b | 0x6d | 0x6f | 0x78 => operation.rest.first() == Some(&0x0a),
        // searches start with a name and the scope
        0x63 => {
            let (_, scope) = der::value(operation.rest, 4)?;
            scope.first().is_none_or(|tag| *tag == 0x0a)
        }
        0x64 | 0x66 | 0x68 | 0x6c => operation.rest.first() == Some(&4),
        0x77 => operation.rest.first() == Some(&0x80),
        _ => false,
    })
}
