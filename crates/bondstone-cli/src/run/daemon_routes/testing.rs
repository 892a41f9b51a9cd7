//! A writer of netlink messages, for the tests.

pub(in crate::run) const NEW_ROUTE: u16 = 24;
pub(in crate::run) const DELETE_ROUTE: u16 = 25;
pub(in crate::run) const NEW_NEXT_HOP: u16 = 104;
pub(in crate::run) const DELETE_NEXT_HOP: u16 = 105;
/// `NLM_F_REQUEST`, `NLM_F_REPLACE` and `NLM_F_CREATE`, with which zebra sends messages.
const ZEBRA: u16 = 0x501;

/// Returns an attribute with padding.
pub(in crate::run) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [&(4 + value.len() as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns a message of zebra.
pub(in crate::run) fn message(kind: u16, body: &[Vec<u8>]) -> Vec<u8> {
    message_with_flags(kind, ZEBRA, body)
}

/// Returns a message with these flags, `nlmsg_flags`.
pub(in crate::run) fn message_with_flags(kind: u16, flags: u16, body: &[Vec<u8>]) -> Vec<u8> {
    let body = body.concat();
    let len = 16 + body.len() as u32;
    [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8], &body].concat()
}
