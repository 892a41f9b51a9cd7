//! Segments of paths that are compiled into one loop.

use crate::exit::Exit;
use crate::headers::{Raw, View};
use crate::nf::BuildContext;
use crate::node::{Node, Sides, Visitor};
use crate::node_slot::NodeSlot;
use core::cell::Cell;
use core::hint::cold_path;
use core::marker::PhantomData;
use core::time::Duration;
use diagnostics::Diagnostic;
use packet::{Batch, Packet};
use std::any::Any;
use std::sync::Arc;

/// A segment of a path: consecutive nodes that [process packet by packet](Node::is_per_packet), compiled into one loop
/// over the batch.
///
/// The graph calls the loop instead of the nodes where a path has nodes of these types ([`Graph::fuse`]), so that each
/// packet passes all of them while its headers are in registers. Nodes, counters, drop reasons and timers remain those
/// of each NF. `bondstone compile` writes the segments of a chain file; a program adds them to its
/// [`Registry`](crate::Registry):
///
/// ```
/// use graph::{BuildContext, Nf, Node, NoSettings, Operator, Registry, Segment, Whole, frame};
/// use wire::{Ethernet, Ipv4};
///
/// struct OnlyIpv4;
/// impl Nf for OnlyIpv4 {
///     type Settings = NoSettings;
///     const KIND: &'static str = "only-ipv4";
///     const ABOUT: &'static str = "Drops other packets than IPv4.";
///     fn build(_: &NoSettings, _: &BuildContext) -> Result<impl Node + 'static, diagnostics::Diagnostic> {
///         Ok(frame().parse::<Ethernet>().parse::<Ipv4>().compose())
///     }
/// }
///
/// let twice = Segment::builder().node(OnlyIpv4::build, Whole).node(OnlyIpv4::build, Whole).build();
/// let registry = Registry::new().with::<OnlyIpv4>().with_segment(twice);
/// assert_eq!(registry.segments()[0].len(), 2);
/// ```
///
/// [`Graph::fuse`]: crate::Graph::fuse
#[derive(Clone)]
pub struct Segment(Arc<dyn Compiled>);

/// Builds a [`Segment`] of nodes of the types `T`.
pub struct SegmentBuilder<T>(PhantomData<fn(T)>);

impl Segment {
    /// Maximum number of nodes.
    pub const MAX_LEN: usize = 64;

    /// Returns a builder of a segment without nodes.
    pub fn builder() -> SegmentBuilder<()> {
        SegmentBuilder(PhantomData)
    }

    /// Returns the number of nodes.
    #[allow(clippy::len_without_is_empty, reason = "a segment has nodes")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the nodes have the types of the segment.
    pub(crate) fn matches(&self, nodes: Slots<'_>) -> bool {
        self.0.matches(nodes)
    }

    /// Passes each packet of the batch through all nodes, and calls `exit` for those that leave with the index of the
    /// node that they leave by. Returns false and does nothing if the nodes do not have the types of the segment.
    #[inline(always)]
    pub(crate) fn run(&self, nodes: Slots<'_>, batch: &mut Batch, now: Duration, exit: ExitFn<'_>) -> bool {
        self.0.run(nodes, batch, now, exit)
    }
}

#[allow(private_bounds, reason = "only this module makes types of nodes")]
impl<T: Types> SegmentBuilder<T> {
    /// Appends the nodes that `build` builds ([`Nf::build`](crate::Nf::build)); `sides` selects one of them if they are
    /// an [`Either`](crate::Either): [`Whole`] for none, `InB(InA(Whole))` for `Either::B(Either::A(_))`.
    ///
    /// # Panics
    /// If the segment has [`Segment::MAX_LEN`] nodes.
    pub fn node<C, S: Sides, N: Node>(self, _build: BuildFn<C, N>, _sides: S) -> SegmentBuilder<(T, S, N)> {
        assert!(T::LEN < Segment::MAX_LEN, "a segment has at most {} nodes", Segment::MAX_LEN);
        SegmentBuilder(PhantomData)
    }

    /// Builds the segment.
    pub fn build(self) -> Segment {
        Segment(Arc::new(self))
    }
}

/// A function that builds nodes of type `N` from settings of type `C`.
type BuildFn<C, N> = fn(&'static C, &'static BuildContext) -> Result<N, Diagnostic>;

/// The node itself, in no [`Either`](crate::Either).
pub struct Whole;
/// The first side of an [`Either`](crate::Either), and the sides in it.
pub struct InA<S>(pub S);
/// The second side of an [`Either`](crate::Either), and the sides in it.
pub struct InB<S>(pub S);

impl Sides for Whole {
    const IN_A: bool = false;
    const IN_B: bool = false;
    type Inner = Whole;
}
impl<S: Sides> Sides for InA<S> {
    const IN_A: bool = true;
    const IN_B: bool = false;
    type Inner = S;
}
impl<S: Sides> Sides for InB<S> {
    const IN_A: bool = false;
    const IN_B: bool = true;
    type Inner = S;
}

/// Function called with a packet that leaves, and the index in the segment of the node that it leaves by.
pub(crate) type ExitFn<'a> = &'a mut dyn FnMut(u8, Exit, Packet);

/// The nodes of a segment in a graph.
#[derive(Clone, Copy)]
pub(crate) struct Slots<'g> {
    /// All nodes of the graph.
    pub(crate) nodes: &'g [NodeSlot],
    /// Index of each node of the segment.
    pub(crate) members: &'g [u16],
    /// Set to the index in the segment of a node that panics.
    pub(crate) panicked: &'g Cell<u8>,
}

/// A segment without its type parameter.
trait Compiled: Send + Sync {
    fn len(&self) -> usize;
    fn matches(&self, nodes: Slots<'_>) -> bool;
    fn run(&self, nodes: Slots<'_>, batch: &mut Batch, now: Duration, exit: ExitFn<'_>) -> bool;
}

impl<T: Types> Compiled for SegmentBuilder<T> {
    fn len(&self) -> usize {
        T::LEN
    }

    fn matches(&self, nodes: Slots<'_>) -> bool {
        T::with_nodes(nodes, Found)
    }

    fn run(&self, nodes: Slots<'_>, batch: &mut Batch, now: Duration, exit: ExitFn<'_>) -> bool {
        T::with_nodes(nodes, Loop { panicked: nodes.panicked, batch, now, exit })
    }
}

/// The types of the nodes of a segment: `()`, or those before the last one, its sides and its type.
trait Types: 'static {
    /// Number of nodes.
    const LEN: usize;

    /// Calls `f` with references to the nodes; returns its result, or false if a node has another type.
    fn with_nodes<F: WithMembers>(nodes: Slots<'_>, f: F) -> bool;
}

impl Types for () {
    const LEN: usize = 0;

    #[inline(always)]
    fn with_nodes<F: WithMembers>(_: Slots<'_>, f: F) -> bool {
        f.call(())
    }
}

impl<T: Types, S: Sides, N: Node> Types for (T, S, N) {
    const LEN: usize = T::LEN + 1;

    #[inline(always)]
    fn with_nodes<F: WithMembers>(nodes: Slots<'_>, f: F) -> bool {
        T::with_nodes(nodes, WithNext::<S, N, F> { nodes, f, types: PhantomData })
    }
}

/// A function that is generic over the types of the members that it is called with.
trait WithMembers {
    fn call<M: Members>(self, members: M) -> bool;
}

/// Calls `f` with one more node, of type `N` and in the sides `S`.
struct WithNext<'g, S, N, F> {
    nodes: Slots<'g>,
    f: F,
    types: PhantomData<fn(S, N)>,
}

impl<S: Sides, N: Node, F: WithMembers> WithMembers for WithNext<'_, S, N, F> {
    #[inline(always)]
    fn call<M: Members>(self, members: M) -> bool {
        let Slots { nodes, members: indices, .. } = self.nodes;
        let mut node = nodes[usize::from(indices[usize::from(M::LEN)])].node.borrow_mut();
        let node: &mut dyn Any = &mut **node;
        node.downcast_mut::<N>().is_some_and(|node| node.visit::<S, _>(Append { members, f: self.f }))
    }
}

/// Calls `f` with the node that is visited as the last of the members.
struct Append<M, F> {
    members: M,
    f: F,
}

impl<M: Members, F: WithMembers> Visitor for Append<M, F> {
    #[inline(always)]
    fn visit<N: Node>(self, node: &mut N) -> bool {
        self.f.call((self.members, node))
    }
}

/// References to the nodes of a segment: `()`, or those before the last one, and the last one.
trait Members {
    /// Number of nodes.
    const LEN: u8;

    /// Passes a packet through the nodes; returns how it leaves, and the index of the node.
    fn process_packet(&mut self, frame: &mut View<'_, Raw>, panicked: &Cell<u8>) -> Option<(u8, Exit)>;
}

impl Members for () {
    const LEN: u8 = 0;

    #[inline(always)]
    fn process_packet(&mut self, _: &mut View<'_, Raw>, _: &Cell<u8>) -> Option<(u8, Exit)> {
        None
    }
}

impl<M: Members, N: Node> Members for (M, &mut N) {
    const LEN: u8 = M::LEN + 1;

    #[inline(always)]
    fn process_packet(&mut self, frame: &mut View<'_, Raw>, panicked: &Cell<u8>) -> Option<(u8, Exit)> {
        if let Some(exit) = self.0.process_packet(frame, panicked) {
            // otherwise the nodes behind count as cold, and their closures are not inlined
            cold_path();
            return Some(exit);
        }
        let on_panic = SetOnDrop { cell: panicked, value: M::LEN };
        let exit = self.1.process_packet(frame.reborrow());
        core::mem::forget(on_panic);
        match exit {
            None | Some(Exit::Pass) => None,
            Some(exit) => Some((M::LEN, exit)),
        }
    }
}

/// Sets a cell if it is dropped, which only a panic does.
struct SetOnDrop<'a> {
    cell: &'a Cell<u8>,
    value: u8,
}

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.cell.set(self.value);
    }
}

/// The loop over the packets of a batch.
struct Loop<'a> {
    panicked: &'a Cell<u8>,
    batch: &'a mut Batch,
    now: Duration,
    exit: ExitFn<'a>,
}

impl WithMembers for Loop<'_> {
    #[inline(always)]
    fn call<M: Members>(self, members: M) -> bool {
        self.run(members);
        true
    }
}

impl Loop<'_> {
    /// In a function of its own: behind the comparisons of all types it would count as cold, and the closures of nodes
    /// would not be inlined.
    #[inline(never)]
    fn run<M: Members>(self, mut members: M) {
        let Loop { panicked, batch, now, exit } = self;
        batch.extract_if(
            #[inline(always)]
            |packet| {
                let (meta, bytes) = packet.split_mut();
                members.process_packet(&mut View { meta, bytes, stack: Raw, now }, panicked)
            },
            #[inline(always)]
            |(member, how), packet| exit(member, how, packet),
        );
    }
}

/// Returns true.
struct Found;

impl WithMembers for Found {
    fn call<M: Members>(self, _: M) -> bool {
        true
    }
}
