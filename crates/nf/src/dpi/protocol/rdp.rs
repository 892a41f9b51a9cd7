//! RDP.

use super::bytes::{be16, byte, contains};
use super::{Context, Verdict};

/// Recognises connection requests and confirmations with a negotiation (MS-RDPBCGR §2.2.1.1, §2.2.1.2) in X.224 TPDUs.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let [3, 0, ..] = payload else { return Verdict::NoMatch };
    let (Some(length), Some(indicator), Some(kind)) = (be16(payload, 2), byte(payload, 4), byte(payload, 5)) else {
        return Verdict::NeedMore;
    };
    let consistent = usize::from(length) == payload.len() && usize::from(indicator) + 5 == usize::from(length);
    let variable = payload.get(11..).unwrap_or_default();
    let negotiates = |types: &[u8]| {
        variable.iter().rev().nth(7).is_some_and(|kind| types.contains(kind))
            && variable.len() >= 8
            && variable.get(variable.len() - 6..variable.len() - 4) == Some(&[8, 0])
    };
    Verdict::of(
        consistent
            && match kind {
                0xe0 => {
                    contains(variable, b"mstshash=")
                        || contains(variable, b"msts=")
                        || negotiates(&[1])
                        || (variable.is_empty() && context.uses_port(&[3389]))
                }
                0xd0 => negotiates(&[2, 3]),
                _ => false,
            },
    )
}
