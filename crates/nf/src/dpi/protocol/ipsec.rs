//! IKE and ESP in UDP; ESP and AH without UDP are recognised by the IP protocol.

use super::bytes::{be32, be64, byte};
use super::{Context, Verdict};

/// Recognises IKE messages (RFC 7296 §3.1, RFC 2408 §3.1), and ESP in UDP (RFC 3948) by its sequence numbers.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    if context.uses_port(&[4500]) {
        return match payload {
            [0, 0, 0, 0, ike @ ..] => Verdict::of(is_ike(ike)),
            // keep-alive
            [0xff] => Verdict::NeedMore,
            _ => esp(payload, context),
        };
    }
    Verdict::of(context.uses_port(&[500]) && is_ike(payload))
}

fn is_ike(message: &[u8]) -> bool {
    let (Some(initiator), Some(next), Some(version), Some(exchange), Some(length)) =
        (be64(message, 0), byte(message, 16), byte(message, 17), byte(message, 18), be32(message, 24))
    else {
        return false;
    };
    let is_exchange = match version {
        0x10 => matches!(exchange, 1..=6 | 32..=33),
        0x20 | 0x21 => matches!(exchange, 34..=44),
        _ => false,
    };
    initiator != 0
        && next <= 132
        && is_exchange
        && length >= 28
        && length as usize >= message.len().min(28)
        && (length as usize).abs_diff(message.len()) < 1400
}

fn esp(payload: &[u8], context: &Context) -> Verdict {
    let (Some(spi), Some(sequence)) = (be32(payload, 0), be32(payload, 4)) else { return Verdict::NoMatch };
    if spi < 256 || payload.len() < 20 {
        return Verdict::NoMatch;
    }
    let previous = context.previous.bytes();
    match (be32(previous, 0), be32(previous, 4)) {
        (Some(before), Some(last)) if before == spi => Verdict::of((1..=16).contains(&sequence.wrapping_sub(last))),
        _ => Verdict::NeedMore,
    }
}
