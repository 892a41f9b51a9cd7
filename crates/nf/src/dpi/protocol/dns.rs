//! DNS, mDNS and LLMNR.

use super::bytes::be16;
use super::{Context, Transport, Verdict};
use wire::dns::Message;

/// Most records of a plausible message.
const RECORDS_MAX: usize = 1024;

/// Properties of a message.
struct Plausible {
    response: bool,
    /// True for a standard query or its response with all questions and records correct.
    complete: bool,
}

/// Returns true if the first label has only characters of host names and services, and its question is in class IN.
fn is_host_name(payload: &[u8]) -> bool {
    let name = payload.get(12..).unwrap_or_default();
    let length = name.first().map_or(0, |length| usize::from(*length));
    let label = name.get(1..1 + length).unwrap_or_default();
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let class = be16(name, end + 3).unwrap_or_default() & 0x7fff;
    let is_character = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !label.is_empty() && label.iter().all(is_character) && matches!(class, 1 | 255)
}

/// Checks the header and the first question.
fn plausible(payload: &[u8]) -> Option<Plausible> {
    let message = Message::new(payload).ok()?;
    let header = message.header();
    let [questions, answers, authorities, additionals] = header.counts();
    let records = usize::from(answers) + usize::from(authorities) + usize::from(additionals);
    if header.opcode() > 6 || questions > 64 || records > RECORDS_MAX || (questions == 0 && records == 0) {
        return None;
    }
    if !header.is_response() && header.response_code() != 0 {
        return None;
    }
    let first_is_correct = match questions {
        0 => message.records().next().is_some_and(|record| record.is_ok()),
        _ => message.questions().next().is_some_and(|question| question.is_ok()),
    };
    let complete = (1..=4).contains(&questions)
        && header.opcode() == 0
        && is_host_name(payload)
        && message.questions().all(|question| question.is_ok())
        && message.records().all(|record| record.is_ok());
    first_is_correct.then_some(Plausible { response: header.is_response(), complete })
}

/// Recognises messages (RFC 1035 §4), over TCP behind their length.
pub(super) fn recognise(payload: &[u8], context: &Context) -> Verdict {
    let on_port = context.uses_port(&[53]);
    match context.transport {
        Transport::Udp if context.uses_port(&[137, 138, 5353, 5355]) => Verdict::NoMatch,
        Transport::Udp => match plausible(payload) {
            Some(message) => Verdict::of(on_port || (message.complete && payload.len() > 16)),
            // damaged messages, and those that tunnels write
            None if on_port => Verdict::of(payload.len() >= 12 && is_header(payload)),
            None => Verdict::NoMatch,
        },
        Transport::Tcp => {
            let Some(length) = be16(payload, 0).map(usize::from) else { return Verdict::NoMatch };
            let message = payload.get(2..).unwrap_or_default();
            match message.get(..length) {
                Some(message) => Verdict::of(plausible(message).is_some_and(|it| on_port || it.complete)),
                None if on_port && length >= 12 && is_header(message) => Verdict::Match,
                None if on_port && length >= 12 && message.is_empty() => Verdict::NeedMore,
                None => Verdict::NoMatch,
            }
        }
    }
}

/// Returns true if the header has an opcode that is in use and few questions.
fn is_header(message: &[u8]) -> bool {
    let (Some(flags), Some(questions)) = (be16(message, 2), be16(message, 4)) else { return false };
    (flags >> 11 & 15) <= 6 && questions <= 16
}

/// Recognises multicast DNS (RFC 6762), which differs from DNS by its port.
pub(super) fn recognise_mdns(payload: &[u8], context: &Context) -> Verdict {
    Verdict::of(context.uses_port(&[5353]) && plausible(payload).is_some())
}

/// Recognises LLMNR (RFC 4795), which differs from DNS by its port.
pub(super) fn recognise_llmnr(payload: &[u8], context: &Context) -> Verdict {
    let one_question = be16(payload, 4) == Some(1);
    Verdict::of(
        context.uses_port(&[5355])
            && one_question
            && plausible(payload).is_some_and(|message| message.response || be16(payload, 6) == Some(0)),
    )
}
