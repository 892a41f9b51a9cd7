//! Network address and port translation (NAT44 and NAT64).
//!
//! A session has one entry per direction, each in its own flow table and found by the addresses and ports of its
//! packets, so that a packet costs one look-up. Mappings, port allocation and filtering are consulted only when a
//! session is created.

mod config;
mod drop_reason;
mod flow;
mod fragments;
mod listed_session;
mod log;
mod nat44;
mod nat64;
mod operations;
mod port_allocator;
mod session_filter;
mod sessions;
mod settings;
mod statistics;

pub use nat44::Nat44;
pub use nat64::Nat64;
pub use operations::LiveSessions;

/// Sessions survive a reload unless it changes which addresses, ports and packets they have.
const SESSIONS: graph::TakeOver = graph::TakeOver {
    state: "sessions",
    unless: &[
        "prefix",
        "external",
        "mapping",
        "filtering",
        "allocation",
        "block_size",
        "max_blocks",
        "first_port",
        "sessions",
        "subscribers",
        "forward",
        "log",
    ],
};
