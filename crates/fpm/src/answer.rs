//! Answers to routes.

use crate::attribute::{aligned, u16_at, u32_at};
use crate::frame::{self, NETLINK, VERSION};
use crate::route::Route;

/// zebra skips messages without it.
const NLM_F_REQUEST: u16 = 1;

/// Result of a route in the dataplane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The dataplane forwards packets of the route.
    Offloaded,
    /// The dataplane passes packets of the route to the kernel.
    Trapped,
    /// The route is not installed.
    Failed,
}

impl Verdict {
    const ALL: u32 = Verdict::Offloaded.flag() | Verdict::Trapped.flag() | Verdict::Failed.flag();

    /// Returns the flag of `rtm_flags` (`RTM_F_*`, linux/rtnetlink.h).
    const fn flag(self) -> u32 {
        match self {
            Verdict::Offloaded => 0x4000,
            Verdict::Trapped => 0x8000,
            Verdict::Failed => 0x2000_0000,
        }
    }
}

/// Appends the answer to a route: one frame with the received message and the flag of the verdict. Nothing is appended for
/// a route that is removed, as zebra would take the answer as an installation.
pub fn answer(route: &Route<'_>, verdict: Verdict, out: &mut Vec<u8>) {
    if route.removes {
        return;
    }
    // zebra reads only the first message of a frame
    let len = frame::HEADER + aligned(route.bytes.len());
    let [.., high, low] = len.to_be_bytes();
    let start = out.len();
    out.extend_from_slice(&[VERSION, NETLINK, high, low]);
    out.extend_from_slice(route.bytes);
    out.resize(start + len, 0);
    let message = &mut out[start + frame::HEADER..];
    let flags = u16_at(message, 6) | NLM_F_REQUEST;
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    let flags = u32_at(message, 24) & !Verdict::ALL | verdict.flag();
    message[24..28].copy_from_slice(&flags.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{RTM_DELROUTE, RTM_NEWROUTE, attribute, message, rtmsg};
    use crate::{Message, messages};

    #[test]
    fn an_answer_is_the_message_with_a_flag() {
        let destination = attribute(1, &[10, 0, 0, 0]);
        // an answer that is sent again: the flags of the earlier one are removed, RTNH_F_ONLINK remains
        let mut rtmsg = rtmsg(true, 8, 254, 11, 6);
        rtmsg[8..].copy_from_slice(&0x2000_8004u32.to_ne_bytes());
        for (verdict, flags) in
            [(Verdict::Offloaded, 0x4004u32), (Verdict::Trapped, 0x8004), (Verdict::Failed, 0x2000_0004)]
        {
            let received = message(RTM_NEWROUTE, 0x500, &[&rtmsg, &destination]);
            let Some(Ok(Message::Route(route))) = messages(&received).next() else { panic!() };
            let mut out = vec![9];
            answer(&route, verdict, &mut out);
            rtmsg[8..].copy_from_slice(&flags.to_ne_bytes());
            let expected = message(RTM_NEWROUTE, 0x501, &[&rtmsg, &destination]);
            assert_eq!(out, [&[9, 1, 1, 0, 40][..], &expected].concat());
        }
    }

    #[test]
    fn a_route_that_is_removed_has_no_answer() {
        let received = message(RTM_DELROUTE, 1, &[&rtmsg(true, 0, 254, 11, 0)]);
        let Some(Ok(Message::Route(route))) = messages(&received).next() else { panic!() };
        let mut out = vec![];
        answer(&route, Verdict::Offloaded, &mut out);
        assert_eq!(out, []);
    }
}
