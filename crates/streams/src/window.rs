//! Reassembly of byte streams from packets.
//!
//! [`window`] creates a node that puts the bytes of each TCP stream, or the datagrams of each UDP flow, in order and
//! passes them with their [`Flow`] to a closure. The closure receives [`Window`]s: the bytes as they arrive, or
//! windows of a fixed [`size`](Settings::size) that advance by an [`increment`](Settings::increment), so that a
//! pattern of up to `size - increment` bytes is never split by a border. It returns a [`Verdict`].
//!
//! Packets are not modified. They are forwarded at once or, with [`hold`](Settings::hold), kept until the closure has
//! inspected their bytes. Segments out of order wait for the missing bytes. A gap that cannot be filled is reported as
//! an [`Event::Gap`] and never joined silently: when the receiver acknowledges bytes behind it, after
//! [`timeout`](Settings::timeout) (if the receiver is not seen, or packets are held), when there is no room for more,
//! or at the end. Retransmissions and keep-alives are skipped, sequence numbers wrap, overlaps follow [`Overlap`].
//! Flows may start in midstream, have one direction only, and end by FIN, RST (both directions) or
//! [`idle`](Settings::idle) time.
//!
//! All memory is bounded, per flow and in total, and the action taken at a bound is counted. Bytes in order are
//! inspected in place and take no memory.
//!
//! Not covered: IP fragments are not reassembled; bytes already inspected are not kept, so retransmissions are not
//! compared with them; urgent data is treated as in line; old timestamps (PAWS) and hop limits are not checked,
//! checksums only on demand ([`checksums`](Settings::checksums)).
//!
//! Both directions of a flow must reach the same instance of the node: an NF built on it has
//! [`Spread::Symmetric`](graph::Spread).
//!
//! ```
//! use streams::window::{Event, Settings, Verdict};
//! use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
//! use packet::{Batch, HeapPool, Pool};
//! use std::sync::Arc;
//! use wire::{Tcp, TcpFlags, build};
//!
//! // drops flows that contain the word, however it is segmented
//! const WORD: &[u8] = b"forbidden";
//! let settings = Settings { size: WORD.len() as u32 - 1, ..Settings::default() };
//! let node = streams::window::<Tcp, _>(&settings, |_flow, event| match event {
//!     Event::Window(window) if window.bytes().windows(WORD.len()).any(|part| part == WORD) => Verdict::Drop,
//!     _ => Verdict::Forward,
//! })?;
//!
//! # let blueprint = Blueprint {
//! #     nodes: vec![NodePlan { name: "guard".into(), edges: vec![Target::Unconnected] }],
//! #     hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
//! # };
//! # struct Count(usize);
//! # impl Sink for Count {
//! #     fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
//! #         self.0 += batch.drain().count();
//! #     }
//! # }
//! let pool = Arc::new(HeapPool::new(8));
//! let mut graph = Graph::new(&blueprint, vec![Box::new(node)], pool.clone());
//! let segment = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 40_000, 80).flags(TcpFlags::ACK);
//! let mut batch = Batch::new();
//! // out of order
//! for (seq, payload) in [(1, &b"it is "[..]), (11, b"idden"), (7, b"forb"), (16, b"no more")] {
//!     let frame = segment.clone().seq(seq).payload(payload).to_vec();
//!     batch.push(pool.alloc_from(&frame).unwrap()).unwrap();
//! }
//! let mut out = Count(0);
//! graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
//! let stats = graph.stats().next().unwrap().1;
//! assert_eq!((out.0, stats.reasons[0], stats.drops[0].get()), (2, "verdict", 2));
//! # Ok::<(), diagnostics::Diagnostic>(())
//! ```

pub(crate) mod block;
mod counts;
mod datagram;
mod event_sink;

mod flows;
pub(crate) mod frame;
pub(crate) mod hold;
pub(crate) mod index;
pub(crate) mod memory;
mod node;
pub(crate) mod order;
mod overlap;
pub(crate) mod piece;
pub(crate) mod pieces;
mod settings;
mod sliding_window;
mod stream;
pub(crate) mod stream_state;
mod stream_table;
mod transport;

pub use node::Windowed;
pub use overlap::Overlap;
pub use settings::{Fail, Settings, WhenFull};
pub use transport::Transport;

use diagnostics::Diagnostic;
use wire::flow::FiveTuple;

/// Creates a node that passes the bytes of every flow of transport `T` to `look`; see the [module](mod@crate::window).
///
/// Drop reasons: `verdict` (of the closure) and, with [`hold`](Settings::hold) and
/// [`Fail::Closed`], `hold_full`, `hold_timeout` and `unseen`.
///
/// # Errors
/// A setting out of range, or more flows than fit in memory.
pub fn window<T: Transport, F: FnMut(&Flow<'_>, Event<'_>) -> Verdict + Send + 'static>(
    settings: &Settings,
    look: F,
) -> Result<Windowed<T, impl Inspect + use<T, F>>, Diagnostic> {
    window_with(settings, Stateless(look))
}

/// Creates a node as [`window`] does, with state for each flow.
///
/// ```
/// use streams::window::{Event, Flow, Inspect, Settings, Verdict};
///
/// /// Forwards the rest of a flow without inspection after 1 MiB.
/// struct Enough;
/// impl Inspect for Enough {
///     type State = u64;
///     fn inspect(&mut self, _: &Flow<'_>, bytes: &mut u64, event: Event<'_>) -> Verdict {
///         if let Event::Window(window) = event {
///             *bytes += window.fresh().len() as u64;
///         }
///         if *bytes < 1 << 20 { Verdict::Forward } else { Verdict::Pass }
///     }
/// }
/// let node = streams::window::window_with::<wire::Tcp, _>(&Settings::default(), Enough)?;
/// # Ok::<(), diagnostics::Diagnostic>(())
/// ```
///
/// # Errors
/// As those of [`window`].
pub fn window_with<T: Transport, L: Inspect>(settings: &Settings, look: L) -> Result<Windowed<T, L>, Diagnostic> {
    Windowed::new(settings, look)
}

/// An inspection of byte streams with state for each flow.
pub trait Inspect: Send + 'static {
    /// State of a flow, both directions together; starts as the default.
    type State: Default + Send;

    /// Inspects the next event in one direction of a flow.
    fn inspect(&mut self, flow: &Flow<'_>, state: &mut Self::State, event: Event<'_>) -> Verdict;
}

/// A closure without state.
struct Stateless<F>(F);

impl<F: FnMut(&Flow<'_>, Event<'_>) -> Verdict + Send + 'static> Inspect for Stateless<F> {
    type State = ();

    #[inline(always)]
    fn inspect(&mut self, flow: &Flow<'_>, (): &mut (), event: Event<'_>) -> Verdict {
        (self.0)(flow, event)
    }
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    pub(crate) tuple: &'a FiveTuple,
    pub(crate) number: u32,
    pub(crate) back: bool,
    pub(crate) direction: Direction,
    pub(crate) midstream: bool,
    pub(crate) offset: u64,
}

impl Flow<'_> {
    /// Returns addresses, ports and protocol as in the packets of this direction.
    pub fn tuple(&self) -> FiveTuple {
        if self.back { self.tuple.reversed() } else { *self.tuple }
    }

    /// Returns the number of the flow, the same for both directions; below twice [`Settings::flows`] plus
    /// [`packet::BURST`]; reused after the flow is removed.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the direction.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns true if the start of this direction was not seen.
    pub fn is_midstream(&self) -> bool {
        self.midstream
    }

    /// Returns the number of bytes before the new ones of the window, the gap or the end, gaps included.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// Direction of bytes.
///
/// The client is the sender of the SYN, or the receiver of the SYN-ACK. If neither was seen, as in a capture that
/// begins in the middle of a connection, and for UDP, the ports decide: the end whose port is in a lower range is the
/// server. The ranges are those of system ports, 0 to 1023 (RFC 6335 §6), other registered ports, 1024 to 32767, and
/// ephemeral ports, 32768 to 65535 (the default of Linux; RFC 6335 begins them at 49152). If both ports are in one
/// range, the sender of the first packet is the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the client.
    ToServer,
    /// To the client.
    ToClient,
}

/// The next event in one direction of a flow.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Bytes.
    Window(Window<'a>),
    /// Missing bytes. No window spans them.
    Gap {
        /// Number of bytes.
        bytes: u32,
        /// Reason for giving them up.
        why: Lost,
    },
    /// End of the direction, reported once. Bytes sent after a reset are still inspected.
    End(End),
}

/// Contiguous bytes of a stream, some of which may have been in an earlier window.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    bytes: &'a [u8],
    old: usize,
}

impl<'a> Window<'a> {
    /// Returns all bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes that were not in an earlier window.
    #[inline(always)]
    pub fn fresh(&self) -> &'a [u8] {
        self.bytes.get(self.old..).unwrap_or_default()
    }

    /// Returns the bytes at the front that were in an earlier window.
    #[inline(always)]
    pub fn repeated(&self) -> &'a [u8] {
        self.bytes.get(..self.old).unwrap_or_default()
    }
}

/// Reason for giving up missing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lost {
    /// The receiver has acknowledged bytes behind them.
    Acknowledged,
    /// Bytes behind them have waited for the timeout.
    TimedOut,
    /// The buffer for bytes behind them is full.
    NoRoom,
    /// The stream ends or is removed.
    Ended,
}

/// Reason for the end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// FIN of its sender.
    Finished,
    /// Reset by either side.
    Reset,
    /// Another connection has the same addresses and ports.
    Replaced,
    /// Idle timeout.
    Idle,
    /// Evicted for other flows. Later packets start a new flow in midstream.
    Evicted,
    /// The node stops.
    Stopped,
}

/// Decision about a flow, for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Forward its packets.
    Forward,
    /// Forward its packets without further inspection.
    Pass,
    /// Drop its packets, including this one and held ones.
    Drop,
}
