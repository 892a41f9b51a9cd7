//! Telling senders what cannot be translated (RFC 7915 §4.1, §5.1).

use super::icmp::{LARGEST4, LARGEST6};
use super::look::{Body, Head, body};
use wire::{IpProtocol, build, icmpv4, icmpv6};

/// Messages a second at most, for each core.
pub(super) const RATE: u32 = 100;

/// What is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Problem {
    /// The packet would have to go further than it may.
    TimeExceeded,
    /// It is longer than the next link inside carries; so long an IPv4 packet may be.
    TooBig { mtu: usize },
    /// It has a routing header with segments left, at this byte.
    Routing { at: u32 },
    /// It has a source route.
    SourceRoute,
}

/// The frame that tells the sender of one; none where nothing may be told. `from` is the translation's own address.
pub(super) fn message(frame: &[u8], head: &Head, problem: Problem, from: u128) -> Option<Vec<u8>> {
    let upper = frame.get(head.upper..head.end)?;
    let about_error = head.protocol == IpProtocol::ICMPV4.0 && !matches!(body(head, upper, true), Body::Echo { .. });
    // also of those about which nothing is known
    if about_error || head.offset != 0 || frame.first().is_none_or(|first| first & 1 != 0) {
        return None;
    }
    let quoted = &frame[head.ip..head.end];
    let packet = if head.six {
        let repr = match problem {
            Problem::TimeExceeded => icmpv6::Repr::TimeExceeded { code: 0 },
            Problem::Routing { at } => icmpv6::Repr::ParameterProblem { code: 0, pointer: at },
            Problem::TooBig { .. } | Problem::SourceRoute => return None,
        };
        let quoted = &quoted[..quoted.len().min(LARGEST6 - 48)];
        build::icmp6(from.to_be_bytes(), head.src.to_be_bytes(), repr).payload(quoted).ttl(64).to_vec()
    } else {
        let repr = match problem {
            Problem::TimeExceeded => icmpv4::Repr::TimeExceeded { code: 0 },
            Problem::TooBig { mtu } => icmpv4::Repr::FragmentationNeeded { mtu: mtu as u16 },
            Problem::SourceRoute => icmpv4::Repr::DestUnreachable { code: 5 },
            Problem::Routing { .. } => return None,
        };
        let quoted = &quoted[..quoted.len().min(LARGEST4 - 28)];
        let (from, to) = ((from as u32).to_be_bytes(), (head.src as u32).to_be_bytes());
        build::icmp4(from, to, repr).payload(quoted).ttl(64).pad_to(60).to_vec()
    };
    // back over the link by which it came, with its tags
    let mut whole = frame[..head.ip].to_vec();
    whole[..6].copy_from_slice(&frame[6..12]);
    whole[6..12].copy_from_slice(&frame[..6]);
    whole.extend(&packet[14..]);
    Some(whole)
}
