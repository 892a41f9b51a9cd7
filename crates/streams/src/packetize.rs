//! Byte streams changed, and made packets again.
//!
//! [`packetize`] makes a node that gives the bytes of each TCP stream, in order, to a closure, and sends what the closure makes
//! of them, which may be longer or shorter. Both ends stay in step: what is made is cut to what the receiver takes and to no
//! longer packets than the sender's own, with sequence and acknowledgment numbers, windows, timestamps and checksums of its
//! own; who sends is told that its bytes have arrived when the receiver has acknowledged all that was made of them.
//!
//! The two ends keep their one connection, and the sender drives it. When it sends something again, what was made of that is
//! sent again; no byte goes through the closure twice. What comes before its turn is kept, and the sender is told by
//! duplicate acknowledgments; those of the receiver are passed on. Windows, zero windows and questions about them, keep-alives,
//! half-closed connections, resets, ECN and windows scaled work from end to end. There is one exception: bytes that the closure
//! leaves for later are acknowledged after 40 ms, so that a sender may go on that waits for it; from then on they are sent
//! again from here, if need be.
//!
//! A SYN loses the options that would speak of other numbers, or change what a segment is: SACK, fast open, multipath and all
//! that are not known. Urgent data is sent in line. Connections whose beginning was not seen, or that are signed (TCP MD5,
//! TCP-AO), pass unmodified and are counted. While connections are rewritten, fragments, malformed packets and those with a
//! wrong checksum are dropped: nobody knows whose they are, and what is made anew has a right checksum. ICMP passes as it is;
//! what it quotes of a rewritten stream has the numbers of the other side, so a host may disregard a "packet too big"; that is
//! why no packet is made that is longer than the sender's own.
//!
//! A segment is looked at as its receiver would, before anything of it is taken over: timestamps (RFC 7323 §5.3), sequence
//! number (RFC 9293 §3.10.7.4), a reset only where it is exact (RFC 5961 §3.2), acknowledgment (RFC 5961 §5.2). What fails is
//! dropped, and answered where these say so. A SYN alone changes nothing; one that is answered begins anew. A connection that
//! was reset or given up never goes on: what comes of it is answered by a reset.
//!
//! All memory is bounded, for each direction and in total, and what happens at a bound is counted. Where less than half is
//! free all connections are promised the same; where all is taken, the one makes way whose receiver has taken nothing for
//! longest. Besides [`Settings::memory`] a connection takes at most 1.5 KiB, as much again for a SYN that may take its place,
//! and 8 bytes for each segment that is not acknowledged, 16 KiB for each direction at most. Every packet that comes is sent
//! on with other bytes, or dropped as `taken` when its bytes, or what it acknowledges, go on in other packets; it leads to 200
//! packets at most.
//!
//! Limits: a connection that is forgotten, since it was idle for [`Settings::idle`] or made way during its handshake, passes
//! unmodified from then on, whatever [`Settings::full`] says. One of which only one direction comes by does not come about.
//! An end that knows both numbers can do all that the other can. Timestamps are verified, but what they echo is not. Memory
//! that is full is freed after half a second at the earliest; until then what comes is dropped. Windows that were promised
//! while memory was free stay, and may be more than there is.
//!
//! Both directions of a connection have to come to one copy of the node: an NF made of it is
//! [`Spread::Symmetric`](graph::Spread). It stands in two paths, one for each direction, and what it makes for a direction
//! goes on along the path by which that came last.
//!
//! ```
//! use streams::packetize::Settings;
//! use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
//! use packet::{Batch, HeapPool, Packet, Pool};
//! use std::sync::Arc;
//! use wire::{TcpFlags, build};
//!
//! // writes one number out; it waits for the end of a line to see it whole
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
//! #     nodes: vec![NodePlan { name: "numbers".into(), edges: vec![Target::Nowhere] }],
//! #     hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), open: false }],
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
//!     // the receiver has it all
//!     back.clone().flags(TcpFlags::ACK).seq(5000).ack(1006).to_vec(),
//! ] {
//!     batch.push(pool.alloc_from(&frame).unwrap()).unwrap();
//! }
//! let mut out = Out(vec![]);
//! graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
//! let payloads: Vec<_> = out.0.iter().map(|packet| &packet.data()[54..]).collect();
//! assert_eq!(payloads[2..], [&b"9\n"[..], b"ten\n", b""]);
//! // six bytes are five to who sent them
//! assert_eq!(out.0[4].data()[42..46], 1005u32.to_be_bytes());
//! # Ok::<(), diagnostics::Diagnostic>(())
//! ```

mod buffer;
mod conn;
mod counts;
mod flows;
mod head;
mod hello;
mod lane;
mod node;
mod out;
mod send;
mod settings;
mod trail;

pub use crate::window::{Direction, Flow};
pub use node::Packetized;
pub use settings::{Settings, WhenFull};

use diagnostics::Diagnostic;

/// Drop reasons, in the order of [`DROPS`].
const TAKEN: u8 = 0;
const STALE: u8 = 1;
const BEYOND: u8 = 2;
const UNREADABLE: u8 = 3;
const MALFORMED: u8 = 4;
const NO_MEMORY: u8 = 5;
const NOT_TAKEN: u8 = 6;
const OTHER_VLAN: u8 = 7;
const NO_TIMESTAMP: u8 = 8;
const GIVEN_UP: u8 = 9;
const DROPS: [&str; 10] = [
    "taken",
    "stale",
    "out_of_window",
    "unreadable",
    "malformed",
    "no_memory",
    "not_taken",
    "other_vlan",
    "no_timestamp",
    "given_up",
];

/// A node that rewrites the byte streams of TCP connections; see the [module](mod@crate::packetize), and
/// [`Rewrite::rewrite`] for what the closure has to do.
///
/// It drops packets for the reasons `taken` (what it held goes on in others), `stale` (its timestamp is of long ago, or it
/// acknowledges what was never sent, or what was long ago), `out_of_window` (also what comes before the handshake is over, and
/// a reset that is not exact), `unreadable` (a fragment, or a wrong checksum), `malformed`, `no_memory`, `other_vlan` (other
/// tags than those of the SYN), `no_timestamp` (where both ends use them), `given_up` (of a connection that was reset) and,
/// with [`WhenFull::Drop`], `not_taken`.
///
/// # Errors
/// A setting that makes no sense, or more connections than there is memory for.
pub fn packetize<F>(settings: &Settings, rewrite: F) -> Result<Packetized<impl Rewrite + use<F>>, Diagnostic>
where
    F: FnMut(&Flow<'_>, &[u8], bool, &mut Vec<u8>) -> usize + Send + 'static,
{
    packetize_with(settings, Stateless(rewrite))
}

/// As [`packetize`], for what keeps a state for each connection.
///
/// ```
/// use streams::packetize::{Direction, Flow, Rewrite, Settings, packetize_with};
///
/// /// Greets in the name of the client, once.
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

/// What makes a stream of another.
pub trait Rewrite: Send + 'static {
    /// What is kept for each connection, both directions together; a new one begins with the default.
    type State: Default + Send;

    /// Takes the next bytes of a direction and adds to `out` what is to be sent for them. Returns how many it has used, from
    /// the first on; the others are shown again, with what comes behind them. No byte is used twice, whatever is sent again.
    ///
    /// `more` is false when nothing more is waited for: at the end of the stream, also when `bytes` is empty then, when the
    /// rest has waited for [`Settings::timeout`], or is longer than [`Settings::withheld`]. Bytes that are left then pass as
    /// they are. [`Flow::offset`] counts bytes that were used before.
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
