//! OpenVPN over UDP and TCP.

use super::bytes::{be16, be64, byte};
use super::{Context, Transport, Verdict};

/// Opcodes of the second method of key exchange, in the upper five bits of the first byte.
const RESET_CLIENT: [u8; 2] = [7, 10];
const RESET_SERVER: u8 = 8;

/// Recognises the reset of a client that the reset of a server answers, and a plain reset of a client alone.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let message = match context.transport {
        Transport::Udp => payload,
        Transport::Tcp => match be16(payload, 0) {
            Some(length) if usize::from(length) + 2 == payload.len() => payload.get(2..).unwrap_or_default(),
            _ => return Verdict::NoMatch,
        },
    };
    let Some(first) = byte(message, 0) else { return Verdict::NoMatch };
    let (opcode, session) = (first >> 3, be64(message, 1).unwrap_or_default());
    if first & 7 != 0 || session == 0 || message.len() < 14 {
        return Verdict::NoMatch;
    }
    let skip = if context.transport == Transport::Tcp { 2 } else { 0 };
    let start = |head: &super::Head| head.bytes().get(skip).map(|byte| byte >> 3);
    if RESET_CLIENT.contains(&opcode) {
        // no packets acknowledged and packet number 0
        let plain = message.len() == 14 && message.get(9..) == Some(&[0; 5]);
        let repeated = start(&context.previous) == Some(opcode)
            && context.previous.bytes().get(skip + 1..skip + 9) == message.get(1..9);
        return if plain || repeated { Verdict::Match } else { Verdict::NeedMore };
    }
    let answers = start(&context.peer).is_some_and(|peer| RESET_CLIENT.contains(&peer));
    Verdict::of(opcode == RESET_SERVER && answers)
}
