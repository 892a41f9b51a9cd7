//! ICMP errors to the senders of packets that cannot be translated (RFC 7915 §4.1, §5.1).

use super::icmp::{MAX_ICMPV4_ERROR_LEN, MAX_ICMPV6_ERROR_LEN};
use super::parse::{L4, PacketInfo, parse_l4};
use wire::{IpProtocol, build, icmpv4, icmpv6};

/// Largest rate of errors, messages per second and core.
pub(super) const MAX_ERRORS_PER_SECOND: u64 = 100;

/// Cause of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ErrorCause {
    /// The hop limit is exhausted.
    TimeExceeded,
    /// The packet is longer than the MTU of the inside link; `mtu` is the largest IPv4 packet that fits.
    TooBig { mtu: usize },
    /// A routing header has segments left, at this offset in bytes.
    Routing { at: u32 },
    /// The options contain an unfinished source route.
    SourceRoute,
}

/// Builds the frame with the error, or `None` if none may be sent. `from` is the translator's address.
pub(super) fn error_frame(frame: &[u8], info: &PacketInfo, problem: ErrorCause, from: u128) -> Option<Vec<u8>> {
    let l4 = frame.get(info.l4..info.end)?;
    let about_error = info.protocol == IpProtocol::ICMPV4.0 && !matches!(parse_l4(info, l4, true), L4::Echo { .. });
    // ICMP messages other than echoes count as errors, too
    if about_error || info.offset != 0 || frame.first().is_none_or(|first| first & 1 != 0) {
        return None;
    }
    let quoted = &frame[info.ip..info.end];
    let packet = if info.is_ipv6 {
        let repr = match problem {
            ErrorCause::TimeExceeded => icmpv6::Repr::TimeExceeded { code: 0 },
            ErrorCause::Routing { at } => icmpv6::Repr::ParameterProblem { code: 0, pointer: at },
            ErrorCause::TooBig { .. } | ErrorCause::SourceRoute => return None,
        };
        let quoted = &quoted[..quoted.len().min(MAX_ICMPV6_ERROR_LEN - 48)];
        build::icmp6(from.to_be_bytes(), info.src.to_be_bytes(), repr).payload(quoted).ttl(64).to_vec()
    } else {
        let repr = match problem {
            ErrorCause::TimeExceeded => icmpv4::Repr::TimeExceeded { code: 0 },
            ErrorCause::TooBig { mtu } => icmpv4::Repr::FragmentationNeeded { mtu: mtu as u16 },
            ErrorCause::SourceRoute => icmpv4::Repr::DestUnreachable { code: 5 },
            ErrorCause::Routing { .. } => return None,
        };
        let quoted = &quoted[..quoted.len().min(MAX_ICMPV4_ERROR_LEN - 28)];
        let (from, to) = ((from as u32).to_be_bytes(), (info.src as u32).to_be_bytes());
        build::icmp4(from, to, repr).payload(quoted).ttl(64).pad_to(60).to_vec()
    };
    // return it over the same link with the same VLAN tags
    let mut reply = frame[..info.ip].to_vec();
    reply[..6].copy_from_slice(&frame[6..12]);
    reply[6..12].copy_from_slice(&frame[..6]);
    reply.extend(&packet[14..]);
    Some(reply)
}
