//! Byte streams from packets.
//!
//! [`window`] makes a node that puts the bytes of each TCP stream, or the datagrams of each UDP flow, in order, and shows
//! them to a closure with the [`Flow`] they are of. The closure sees [`Window`]s: as the bytes come, or of a fixed
//! [`size`](Settings::size) that slides on by an [`increment`](Settings::increment), so that nothing that is shorter than
//! `size - increment` escapes it across a border. It answers with a [`Verdict`].
//!
//! Packets are not changed. They pass at once, or, with [`hold`](Settings::hold), are kept until the closure has seen their
//! bytes. What comes out of order waits for what is missing; a gap that cannot be filled is shown as an [`Event::Gap`],
//! never joined over in silence: when the receiver acknowledges bytes behind it, when it has waited for
//! [`timeout`](Settings::timeout) (where the receiver is not heard, or packets are held), when there is no room for more,
//! or at the end. Retransmissions and keep-alives are left out, sequence numbers wrap, overlaps are decided as
//! [`Overlap`] says. Flows may begin in the middle, have one direction only, end by FIN or RST (both directions), or by
//! [`idle`](Settings::idle) time.
//!
//! All memory is bounded, for each flow and in total, and what happens at a bound is counted. Bytes in order are shown where
//! they lie in the packet, and cost no memory.
//!
//! What one who looks on cannot know, or is left to others: fragments of IP are not put together; bytes that were shown are
//! gone, so a retransmission is not compared with them; urgent data is taken in line; old timestamps (PAWS) and hop limits
//! are not looked at, checksums only on demand ([`checksums`](Settings::checksums)).
//!
//! Both directions of a flow have to come to one copy of the node: an NF made of it is [`Spread::Symmetric`](graph::Spread).
//!
//! ```
//! use streams::window::{Event, Settings, Verdict};
//! use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
//! use packet::{Batch, HeapPool, Pool};
//! use std::sync::Arc;
//! use wire::{Tcp, TcpFlags, build};
//!
//! // drops flows in which the word comes, however it is cut into segments
//! const WORD: &[u8] = b"forbidden";
//! let settings = Settings { size: WORD.len() as u32 - 1, ..Settings::default() };
//! let node = streams::window::<Tcp, _>(&settings, |_flow, event| match event {
//!     Event::Window(window) if window.bytes().windows(WORD.len()).any(|part| part == WORD) => Verdict::Drop,
//!     _ => Verdict::Forward,
//! })?;
//!
//! # let blueprint = Blueprint {
//! #     nodes: vec![NodePlan { name: "guard".into(), edges: vec![Target::Nowhere] }],
//! #     hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), open: false }],
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
//! // the second comes before the first
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

mod counts;
mod datagram;
mod flows;
pub(crate) mod frame;
pub(crate) mod hold;
pub(crate) mod index;
pub(crate) mod memory;
mod node;
pub(crate) mod order;
pub(crate) mod pieces;
mod settings;
mod slide;
pub(crate) mod stream;
mod tell;
mod transport;

pub use node::Windowed;
pub use settings::{Fail, Overlap, Settings, WhenFull};
pub use transport::Transport;

use diagnostics::Diagnostic;
use wire::flow::FiveTuple;

/// A node that shows the bytes of every flow of the transport `T` to `look`; see the [module](mod@crate::window).
///
/// It drops packets for the reasons `verdict` (the closure said so) and, with [`hold`](Settings::hold) and
/// [`Fail::Closed`], `hold_full`, `hold_timeout` and `unseen`.
///
/// # Errors
/// A setting that makes no sense, or more flows than there is memory for.
pub fn window<T: Transport, F: FnMut(&Flow<'_>, Event<'_>) -> Verdict + Send + 'static>(
    settings: &Settings,
    look: F,
) -> Result<Windowed<T, impl Look + use<T, F>>, Diagnostic> {
    window_with(settings, Stateless(look))
}

/// As [`window`], for what keeps a state for each flow.
///
/// ```
/// use streams::window::{Event, Flow, Look, Settings, Verdict};
///
/// /// Forwards the rest of a flow unseen once it has sent enough.
/// struct Enough;
/// impl Look for Enough {
///     type State = u64;
///     fn look(&mut self, _: &Flow<'_>, bytes: &mut u64, event: Event<'_>) -> Verdict {
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
pub fn window_with<T: Transport, L: Look>(settings: &Settings, look: L) -> Result<Windowed<T, L>, Diagnostic> {
    Windowed::new(settings, look)
}

/// What looks at streams.
pub trait Look: Send + 'static {
    /// What is kept for each flow, both directions together; a new flow begins with the default.
    type State: Default + Send;

    /// Looks at what comes next in one direction of a flow.
    fn look(&mut self, flow: &Flow<'_>, state: &mut Self::State, event: Event<'_>) -> Verdict;
}

/// A closure without state.
struct Stateless<F>(F);

impl<F: FnMut(&Flow<'_>, Event<'_>) -> Verdict + Send + 'static> Look for Stateless<F> {
    type State = ();

    #[inline(always)]
    fn look(&mut self, flow: &Flow<'_>, (): &mut (), event: Event<'_>) -> Verdict {
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
    /// Addresses, ports and protocol, as in the packets of this direction.
    pub fn tuple(&self) -> FiveTuple {
        if self.back { self.tuple.reversed() } else { *self.tuple }
    }

    /// Number of the flow, the same for both directions; below twice [`Settings::flows`] plus [`packet::BURST`], and given
    /// anew when the flow is forgotten.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Which of the two directions.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether the beginning of this direction was not seen.
    pub fn is_midstream(&self) -> bool {
        self.midstream
    }

    /// Bytes of this direction before the new ones of the window, before the gap or before the end; those of gaps count.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From who began the flow: who sent the SYN or, where none was seen, the first packet.
    ToServer,
    /// To who began it.
    ToClient,
}

/// What comes next in one direction of a flow.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Bytes.
    Window(Window<'a>),
    /// Bytes that are missing. What comes behind is not shown together with what came before.
    Gap {
        /// How many.
        bytes: u32,
        /// Why they are given up.
        why: Lost,
    },
    /// Nothing more should come; it is told once. What a sender sends after a reset is shown all the same.
    End(End),
}

/// Bytes of a stream without a gap, some of which may have been shown before.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    bytes: &'a [u8],
    old: usize,
}

impl<'a> Window<'a> {
    /// All of them.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Those that were not shown before.
    #[inline(always)]
    pub fn fresh(&self) -> &'a [u8] {
        self.bytes.get(self.old..).unwrap_or_default()
    }

    /// Those at the front that were shown before.
    #[inline(always)]
    pub fn seen(&self) -> &'a [u8] {
        self.bytes.get(..self.old).unwrap_or_default()
    }
}

/// Why missing bytes are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lost {
    /// The receiver has acknowledged bytes behind them.
    Acknowledged,
    /// Bytes behind them have waited for long enough.
    TimedOut,
    /// There is no room for more bytes behind them.
    NoRoom,
    /// The stream ends, or is forgotten.
    Ended,
}

/// Why a direction of a flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Its sender said so (FIN).
    Finished,
    /// It was reset, by either side.
    Reset,
    /// Another connection has the same addresses and ports.
    Replaced,
    /// Nothing came for long.
    Idle,
    /// It made way for others. What comes after that begins as a new one, in the middle.
    Evicted,
    /// The node ends.
    Stopped,
}

/// What is to happen to a flow, both directions of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It goes on.
    Forward,
    /// It goes on, and the closure sees no more of it.
    Pass,
    /// Its packets are dropped, this one and what is held first.
    Drop,
}
