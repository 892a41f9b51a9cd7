//! Events that are logged.

use crate::nat::flow::Flow;
use std::net::IpAddr;
use std::time::SystemTime;

/// Allocation or release of a port block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockEvent {
    pub(crate) allocated: bool,
    pub(crate) subscriber: u32,
    pub(crate) external: u32,
    /// First and last port.
    pub(crate) ports: (u16, u16),
}

/// Creation or end of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SessionEvent {
    pub(crate) created: bool,
    /// Addresses and ports of outbound packets before translation.
    pub(crate) flow: Flow,
    pub(crate) external: (u32, u16),
}

#[derive(Clone, Copy)]
pub(crate) enum Event {
    Block(BlockEvent),
    Session(SessionEvent),
}

/// An event, its time, and the inside address that it concerns.
pub(crate) struct Record {
    pub(crate) at: SystemTime,
    pub(crate) inside: IpAddr,
    pub(crate) event: Event,
}

/// Kind of the records of one translator: sessions or blocks, of IPv4 or IPv6 subscribers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordKind {
    pub(crate) ipv6: bool,
    pub(crate) blocks: bool,
}
