//! Rewriting of TCP byte streams.
//!
//! [`packetize`] creates a node that passes the bytes of each TCP stream, in order, to a closure and sends the bytes
//! that the closure returns, which may be more or fewer. Both ends stay consistent: output is segmented to the
//! receiver's maximum segment size and never into longer packets than the sender's own, with sequence and
//! acknowledgment numbers, windows, timestamps and checksums of the rewritten stream; the sender's bytes are
//! acknowledged when the receiver has acknowledged their whole output.
//!
//! The two ends keep one connection, driven by the sender. A retransmission of the sender retransmits the output of
//! the same bytes; no byte passes the closure twice. Segments out of order are kept and the sender gets duplicate
//! acknowledgments; those of the receiver are forwarded. Windows, zero-window probes, keep-alives, half-closed
//! connections, resets, ECN and window scaling work end to end, with one exception: bytes that the closure leaves
//! unused are acknowledged after 40 ms, so that a sender that waits for this can continue; from then on the node
//! retransmits them.
//!
//! Options that carry sequence numbers or change the meaning of a segment are removed from a SYN: SACK, fast open,
//! multipath TCP and all unknown ones. Urgent data is sent in line. Connections whose start was not seen, or that are
//! signed (TCP MD5, TCP-AO), pass unmodified and are counted. While connections are rewritten, fragments, malformed
//! packets and packets with a wrong checksum are dropped: their connection is unknown, and output always has a correct
//! checksum. ICMP passes unmodified; the packets that it quotes have the sequence numbers of the other side, so a host
//! may ignore a "packet too big". This is why output packets are never longer than the sender's.
//!
//! A segment is checked as its receiver would check it, before any state changes: timestamps (RFC 7323 §5.3), sequence
//! number (RFC 9293 §3.10.7.4), an exact sequence number for a reset (RFC 5961 §3.2), acknowledgment (RFC 5961 §5.2).
//! A segment that fails is dropped, and answered where these sections require it. A SYN alone changes no state; a SYN
//! that is answered starts a new connection. A connection that was reset or given up never continues: its packets are
//! answered by a reset.
//!
//! All memory is bounded, per direction and in total, and the action taken at a bound is counted. When less than half
//! is free, all connections advertise the same window; when none is free, the connection whose receiver has made no
//! progress for longest is evicted. Beyond [`Settings::memory`] a connection takes at most 1.5 KiB, as much again for
//! a SYN that may replace it, and 8 bytes for each unacknowledged segment, at most 16 KiB per direction. Each received
//! packet is sent with other bytes, or dropped as `taken` when its bytes or its acknowledgment continue in other
//! packets; it causes at most 200 packets.
//!
//! Limits: a connection that was removed, because it was idle for [`Settings::idle`] or evicted during its handshake,
//! passes unmodified from then on, regardless of [`Settings::full`]. A connection of which only one direction passes
//! the node is not established. An end that knows both sequence numbers can do all that the other can. Timestamps are
//! verified, their echo replies are not. Full memory is freed after half a second at the earliest; until then packets
//! are dropped. Windows announced while memory was free remain valid and may exceed the free memory.
//!
//! Both directions of a connection must reach the same instance of the node: an NF built on it has
//! [`Spread::Symmetric`](graph::Spread). It is on two paths, one per direction, and output follows the path of the
//! last packet of its direction.
//!
//! ```
//! use streams::packetize::Settings;
//! use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
//! use packet::{Batch, HeapPool, Packet, Pool};
//! use std::sync::Arc;
//! use wire::{TcpFlags, build};
//!
//! // spells out one number; waits for the end of a line to see all of it
//! let settings = Settings { growth: 4, ..Settings::default() };
//! let node = streams::packetize(&settings, |_flow, bytes, more, out| {
//!     let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
//!     let used = if more { end } else { bytes.len() };
//!     for line in bytes[..used].split_inclusive(|byte| *byte == b'\n') {
//!         out.extend_from_slice(if line == b"10\n" { b"ten\n" } else { line });
//!     }
//!     used
//! })?;
//!
//! # let blueprint = Blueprint {
//! #     nodes: vec![NodePlan { name: "numbers".into(), edges: vec![Target::Unconnected] }],
//! #     hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
//! # };
//! # struct Out(Vec<Packet>);
//! # impl Sink for Out {
//! #     fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
//! #         self.0.extend(batch.drain());
//! #     }
//! # }
//! let pool = Arc::new(HeapPool::new(16));
//! let mut graph = Graph::new(&blueprint, vec![Box::new(node)], pool.clone());
//! let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
//! let (there, back) = (build::tcp4(a, b, 40_000, 80), build::tcp4(b, a, 80, 40_000));
//! let mut batch = Batch::new();
//! for frame in [
//!     there.clone().flags(TcpFlags::SYN).seq(999).to_vec(),
//!     back.clone().flags(TcpFlags::SYN_ACK).seq(4999).ack(1000).to_vec(),
//!     there.clone().flags(TcpFlags::ACK | TcpFlags::PSH).seq(1000).ack(5000).payload(b"9\n1").to_vec(),
//!     there.clone().flags(TcpFlags::ACK | TcpFlags::PSH).seq(1003).ack(5000).payload(b"0\n").to_vec(),
//!     // the receiver acknowledges everything
//!     back.clone().flags(TcpFlags::ACK).seq(5000).ack(1006).to_vec(),
//! ] {
//!     batch.push(pool.alloc_from(&frame).unwrap()).unwrap();
//! }
//! let mut out = Out(vec![]);
//! graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
//! let payloads: Vec<_> = out.0.iter().map(|packet| &packet.data()[54..]).collect();
//! assert_eq!(payloads[2..], [&b"9\n"[..], b"ten\n", b""]);
//! // the sender sees its five bytes acknowledged
//! assert_eq!(out.0[4].data()[42..46], 1005u32.to_be_bytes());
//! # Ok::<(), diagnostics::Diagnostic>(())
//! ```

mod buffer;
mod connection;
mod counts;
mod flows;
mod half_connection;
mod header_template;
mod node;
mod output;
mod send;
mod sequence_map;
mod settings;
mod syn;

pub use crate::window::{Direction, Flow};
pub use node::Packetized;
pub use settings::{Settings, WhenFull};

use diagnostics::Diagnostic;

graph::named_enum! {
    /// Drop reasons of a rewriting node.
    enum Drop {
        /// Bytes or acknowledgment continue in other packets.
        Taken = "taken",
        /// Old timestamp, or acknowledgment of bytes that were never sent or are long acknowledged.
        Stale = "stale",
        /// Outside the window, before the end of the handshake, or an inexact reset.
        OutOfWindow = "out_of_window",
        /// A fragment, or a wrong checksum.
        Unreadable = "unreadable",
        /// Malformed headers.
        Malformed = "malformed",
        /// Out of memory.
        NoMemory = "no_memory",
        /// No room for another connection, with [`WhenFull::Drop`].
        TableFull = "table_full",
        /// VLAN tags differ from those of the SYN.
        OtherVlan = "other_vlan",
        /// No timestamp although both ends use them.
        NoTimestamp = "no_timestamp",
        /// The connection was reset.
        GivenUp = "given_up",
    }
}

/// Creates a node that rewrites the byte streams of TCP connections; see the [module](mod@crate::packetize) and
/// [`Rewrite::rewrite`], which the closure implements.
///
/// Drop reasons: `taken` (bytes or acknowledgment continue in other packets), `stale` (old timestamp, or acknowledgment of
/// bytes that were never sent or are long acknowledged), `out_of_window` (also before the end of the handshake, and an inexact
/// reset), `unreadable` (a fragment, or a wrong checksum), `malformed`, `no_memory`, `other_vlan` (tags differ from those of the
/// SYN), `no_timestamp` (although both ends use them), `given_up` (the connection was reset) and, with [`WhenFull::Drop`],
/// `table_full`.
///
/// # Errors
/// A setting out of range, or more connections than fit in memory.
pub fn packetize<F>(settings: &Settings, rewrite: F) -> Result<Packetized<impl Rewrite + use<F>>, Diagnostic>
where
    F: FnMut(&Flow<'_>, &[u8], bool, &mut Vec<u8>) -> usize + Send + 'static,
{
    packetize_with(settings, Stateless(rewrite))
}

/// Creates a node as [`packetize`] does, with state for each connection.
///
/// ```
/// use streams::packetize::{Direction, Flow, Rewrite, Settings, packetize_with};
///
/// /// Inserts a greeting at the start of the client's stream.
/// struct Greeting;
/// impl Rewrite for Greeting {
///     type State = bool;
///     fn rewrite(&mut self, flow: &Flow<'_>, greeted: &mut bool, bytes: &[u8], _: bool, out: &mut Vec<u8>) -> usize {
///         if flow.direction() == Direction::ToServer && !core::mem::replace(greeted, true) {
///             out.extend_from_slice(b"good morning\n");
///         }
///         out.extend_from_slice(bytes);
///         bytes.len()
///     }
/// }
/// let node = packetize_with(&Settings::default(), Greeting)?;
/// # Ok::<(), diagnostics::Diagnostic>(())
/// ```
///
/// # Errors
/// As those of [`packetize`].
pub fn packetize_with<R: Rewrite>(settings: &Settings, rewrite: R) -> Result<Packetized<R>, Diagnostic> {
    Packetized::new(settings, rewrite)
}

/// A rewriting of byte streams with state for each connection.
pub trait Rewrite: Send + 'static {
    /// State of a connection, both directions together; starts as the default.
    type State: Default + Send;

    /// Appends to `out` the output of the next bytes of a direction and returns the number of bytes used, from the first on; the
    /// others are passed again with the bytes that follow. No byte is used twice, whatever is retransmitted.
    ///
    /// `more` is false when nothing more is waited for: at the end of the stream (also with empty `bytes`), when unused bytes
    /// have waited for [`Settings::timeout`], or exceed [`Settings::withheld`]. Bytes left unused then pass unmodified.
    /// [`Flow::offset`] counts bytes used before.
    fn rewrite(
        &mut self,
        flow: &Flow<'_>,
        state: &mut Self::State,
        bytes: &[u8],
        more: bool,
        out: &mut Vec<u8>,
    ) -> usize;
}

/// A closure without state.
struct Stateless<F>(F);

impl<F: FnMut(&Flow<'_>, &[u8], bool, &mut Vec<u8>) -> usize + Send + 'static> Rewrite for Stateless<F> {
    type State = ();

    fn rewrite(&mut self, flow: &Flow<'_>, (): &mut (), bytes: &[u8], more: bool, out: &mut Vec<u8>) -> usize {
        (self.0)(flow, bytes, more, out)
    }
}
