//! TCP connections between a client and a server, sans I/O: time is passed in, and frames are taken from and written to
//! buffers of the caller.
//!
//! - The [`Client`] opens connections when told to (open loop), sends a request, reads the response, repeats both as often
//!   as set, holds the connection and closes it. It keeps some 100 bytes per connection, retransmits what is not answered,
//!   and counts failures by cause.
//! - The [`Server`] answers without state, as with SYN cookies (RFC 4987 §3.6): its initial sequence number is a hash of
//!   addresses and ports, so each segment of the client determines its answer, and the number of connections is not limited.
//!   Lost data of the server is sent again when the client retransmits its request. There is no congestion control.
//!
//! Segments have no options but MSS. A client's connection is found by its own address and port, which are also those of
//! the answers behind a NAT.

mod client;
mod segment;
mod server;
mod settings;
mod timers;

pub use client::{Client, ClientSettings, ConnectionCounts, Failures, MAX_CONNECTIONS, MAX_REQUEST};
pub use segment::{NotSegment, Segment};
pub use server::{MAX_RESPONSE, Server, ServerCounts, ServerSettings};
pub use settings::{TcpSettings, TcpSettingsError};

/// Buffers for frames to be sent.
pub trait Transmit {
    /// Returns a buffer of `len` bytes for a frame, which is sent after it is written; `None` if no buffer is free, and
    /// the frame is lost.
    fn frame(&mut self, len: usize) -> Option<&mut [u8]>;
}

#[cfg(test)]
mod tests;
