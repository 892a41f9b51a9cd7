//! Drop reasons of `nat44` and `nat64`.

use super::port_allocator::AllocationError;
use super::sessions::SessionError;

graph::named_enum! {
    /// Drop reasons. `nat44` uses those up to [`Spoofed`](DropReason::Spoofed), `nat64` uses all.
    pub(super) enum DropReason {
        NoSession = "no_session",
        Filtered = "filtered",
        NotSyn = "not_syn",
        NoPort = "no_port",
        TooManySessions = "too_many_sessions",
        TooManySubscribers = "too_many_subscribers",
        TableFull = "table_full",
        NoHairpin = "no_hairpin",
        MalformedIp = "malformed_ip",
        TinyFragment = "tiny_fragment",
        UnknownFragment = "unknown_fragment",
        UnsupportedProtocol = "unsupported_protocol",
        BadIcmpError = "bad_icmp_error",
        UnknownIcmpError = "unknown_icmp_error",
        Spoofed = "spoofed",
        NotInside = "not_inside",
        InvalidAddress = "invalid_address",
        TtlExpired = "ttl_expired",
        TooBig = "too_big",
        NoChecksum = "no_checksum",
        SourceRouted = "source_routed",
        NoBuffer = "no_buffer",
    }
}

impl From<SessionError> for DropReason {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::NoSession => DropReason::NoSession,
            SessionError::Filtered => DropReason::Filtered,
            SessionError::NotSyn => DropReason::NotSyn,
            SessionError::TableFull => DropReason::TableFull,
            SessionError::Allocation(AllocationError::NoPort) => DropReason::NoPort,
            SessionError::Allocation(AllocationError::SessionLimit) => DropReason::TooManySessions,
            SessionError::Allocation(AllocationError::SubscriberLimit) => DropReason::TooManySubscribers,
        }
    }
}
