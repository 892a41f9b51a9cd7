//! Network address and port translation (NAT44 and NAT64).
//!
//! A session has one entry per direction, each in its own flow table and found by the addresses and ports of its
//! packets, so that a packet costs one look-up. Mappings, port allocation and filtering are consulted only when a
//! session is created.

mod config;
mod drop_reason;
mod flow;
mod forward_changes;
mod fragments;
mod listed_session;
mod log;
mod nat44;
mod nat64;
mod operations;
mod port_allocator;
mod reloaded_sessions;
mod session_filter;
mod sessions;
mod settings;
mod statistics;

pub use nat44::Nat44;
pub use nat64::Nat64;
pub use operations::LiveSessions;
