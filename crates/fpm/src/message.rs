//! Netlink messages of a frame.

use crate::attribute::{Malformed, aligned, u16_at, u32_at};
use crate::frame::{self, MAX_FRAME};
use crate::next_hop::NextHop;
use crate::route::Route;

/// Length of `struct nlmsghdr` (linux/netlink.h): u32 length with this header, u16 type, u16 flags, u32 sequence number,
/// u32 port.
const HEADER: usize = 16;
/// Longest message, bytes: an answer with padding fits into a frame.
const MAX_MESSAGE: usize = (MAX_FRAME - frame::HEADER) / 4 * 4;

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

/// A netlink message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// A route of IPv4 or IPv6.
    Route(Route<'a>),
    /// A next-hop object.
    NextHop(NextHop),
    /// A message that needs no treatment: of another type or family (MPLS, EVPN), or the removal of a route that is always
    /// [`Target::Unsupported`](crate::Target::Unsupported), as it depends on the source address or the TOS.
    Other {
        /// Type, `nlmsg_type`.
        kind: u16,
    },
}

/// Error of one message. The messages after it are still read, unless its own length is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("netlink message of type {kind} at byte {offset} of the frame: {cause}; it was skipped")]
pub struct MessageError {
    /// Byte of the payload at which the message starts.
    pub offset: usize,
    /// Type, `nlmsg_type`; 0 if it is cut off.
    pub kind: u16,
    /// The fault.
    pub cause: Malformed,
}

/// Iterator of [`messages`].
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    payload: &'a [u8],
    offset: usize,
}

/// Parses the messages of a frame, whose payload [`FrameReader::next_frame`](crate::FrameReader::next_frame) returns.
pub fn messages(payload: &[u8]) -> Messages<'_> {
    Messages { payload, offset: 0 }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (bytes, offset) = (std::mem::take(&mut self.payload), self.offset);
        if bytes.is_empty() {
            return None;
        }
        let len = if bytes.len() < HEADER { bytes.len() } else { u32_at(bytes, 0) as usize };
        let kind = u16_at(bytes, 4);
        let max = bytes.len().min(MAX_MESSAGE);
        if len < HEADER || len > max {
            let cause = Malformed::Length { what: "message", at: 0, len, min: HEADER, max };
            return Some(Err(MessageError { offset, kind, cause }));
        }
        self.payload = bytes.get(aligned(len)..).unwrap_or_default();
        self.offset += aligned(len);
        Some(parse(&bytes[..len], kind).map_err(|cause| MessageError { offset, kind, cause }))
    }
}

/// Parses a message of at least [`HEADER`] bytes.
fn parse(bytes: &[u8], kind: u16) -> Result<Message<'_>, Malformed> {
    let other = Message::Other { kind };
    let at_least = |min| match bytes.len() {
        len if len < min => Err(Malformed::Length { what: "message", at: 0, len, min, max: MAX_MESSAGE }),
        _ => Ok(()),
    };
    Ok(match kind {
        RTM_NEWROUTE | RTM_DELROUTE => {
            at_least(Route::HEADERS)?;
            Route::parse(bytes, kind == RTM_DELROUTE, u16_at(bytes, 6))?.map_or(other, Message::Route)
        }
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
            at_least(NextHop::HEADERS)?;
            Message::NextHop(NextHop::parse(bytes, kind == RTM_DELNEXTHOP)?)
        }
        _ => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attribute, message, rtmsg};

    #[test]
    fn messages_after_an_invalid_one_are_read() {
        let invalid = message(RTM_NEWROUTE, 1, &[&rtmsg(true, 8, 254, 11, 6), &attribute(1, &[10, 0])]);
        let short = message(RTM_DELNEXTHOP, 1, &[&[0; 4]]);
        // 17 bytes and 3 of padding
        let other = [&17u32.to_ne_bytes()[..], &3u16.to_ne_bytes(), &[0; 14]].concat();
        let payload = [invalid, short, other.clone(), other].concat();
        let parsed: Vec<_> = messages(&payload).collect();
        let errors: Vec<_> = parsed.iter().filter_map(|m| m.as_ref().err()).map(|e| e.to_string()).collect();
        assert_eq!(
            errors,
            [
                "netlink message of type 24 at byte 0 of the frame: attribute 1 at byte 28: value of 2 bytes: expected an \
             IPv4 address; it was skipped",
                "netlink message of type 105 at byte 36 of the frame: message at byte 0: length 20: expected 24 to 65528 \
             bytes; it was skipped",
            ]
        );
        assert_eq!(parsed[2..], [Ok(Message::Other { kind: 3 }), Ok(Message::Other { kind: 3 })]);
    }

    #[test]
    fn an_invalid_length_ends_the_frame() {
        let whole = message(3, 0, &[]);
        for (len, max) in [(15, 32), (33, 32), (u32::MAX, 32)] {
            let payload = [&whole, &len.to_ne_bytes()[..], &[0; 12], &whole].concat();
            let parsed: Vec<_> = messages(&payload).collect();
            let cause = Malformed::Length { what: "message", at: 0, len: len as usize, min: 16, max };
            let error = MessageError { offset: 16, kind: 0, cause };
            assert_eq!(parsed, [Ok(Message::Other { kind: 3 }), Err(error)]);
        }
        let cut = Malformed::Length { what: "message", at: 0, len: 15, min: 16, max: 15 };
        assert_eq!(messages(&whole[..15]).next(), Some(Err(MessageError { offset: 0, kind: 3, cause: cut })));
        // longer than a frame
        let long = message(3, 0, &[&[0; MAX_FRAME]]);
        assert!(matches!(messages(&long).next(), Some(Err(_))));
    }
}
