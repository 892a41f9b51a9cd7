//! The graph of one worker, and the loop that runs batches through it.

mod blueprint;
mod fused;
mod observed;
mod placed_segment;
mod replacement;

pub use blueprint::{Blueprint, HopPlan, NodePlan};
pub use replacement::{NewNode, Origin, Replacement};

use crate::context::{BatchState, Context, LostCount};
use crate::hop::{CurrentHop, Hop, PathId, Target};
use crate::named_enum::Named as _;
use crate::node::Node;
use crate::node_slot::NodeSlot;
use crate::observer::Point;
use crate::panics;
use crate::saved_state::{InvalidState, StateReader, StateWriter};
use crate::stats::{CommonDrop, NodeStats, Published};
use core::cell::{Cell, RefCell};
use packet::{BURST, Batch, Packet, Pool, clock};
use placed_segment::PlacedSegment;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// The ports that a graph sends packets to.
pub trait Sink {
    /// Sends the packets of the batch to a port. The sink counts those that cannot be sent as dropped, and leaves them in
    /// the batch. With `TIMED`, it measures the cycles that it takes.
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch);

    /// Returns the reason for which packets of a port are dropped that it does not accept.
    fn drop_reason(&self, _port: u16) -> &'static str {
        "tx_full"
    }
}

/// A caught panic of a node.
pub struct NodePanic {
    /// Index of the node in [`Blueprint::nodes`].
    pub node: u16,
    /// Message of the panic.
    pub message: String,
    /// Packets lost in the panic.
    pub packets: u64,
    /// The node in the state that the panic left. Drop it on another thread, and catch a panic of its destructor.
    pub old: Box<dyn Node>,
}

/// A node with its timer interval, counters and table, queried on the thread that built it.
pub struct PreparedNode {
    node: Box<dyn Node>,
    interval: Option<Duration>,
    published: Published,
}

impl PreparedNode {
    /// Queries the node.
    pub fn new(node: Box<dyn Node>) -> Self {
        PreparedNode { interval: node.interval(), published: published(&*node), node }
    }
}

fn published(node: &dyn Node) -> Published {
    Published {
        counters: node.counters(),
        gauges: node.gauges(),
        bounded_tables: node.bounded_tables(),
        table: node.stats_table(),
        fused: vec![],
    }
}

/// The nodes of one worker and the edges between them.
///
/// A worker calls [`run`](Graph::run) with each batch that it receives and [`run_timers`](Graph::run_timers) about once
/// a millisecond. Packets that nodes emit to other outputs than the first are batched by output and processed after the
/// batch has left. For each node `received + created = left + held + dropped`, which the graph checks after every
/// visit.
///
/// ```
/// use graph::{Blueprint, Graph, Hop, HopPlan, Node, NodePlan, Operator, Sink, Target, frame};
/// use packet::{Batch, HeapPool, Pool};
/// use std::sync::Arc;
/// use wire::{Ethernet, Ipv4};
///
/// /// Counts the packets that are sent.
/// struct CountSent(usize);
/// impl Sink for CountSent {
///     fn send<const TIMED: bool>(&mut self, _port: u16, batch: &mut Batch) {
///         self.0 += batch.len();
///         batch.clear();
///     }
/// }
///
/// let only_ipv4 = frame().parse::<Ethernet>().parse::<Ipv4>().compose();
/// let blueprint = Blueprint {
///     nodes: vec![NodePlan { name: "only-ipv4".into(), edges: vec![Target::Unconnected] }],
///     hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
/// };
/// let pool = Arc::new(HeapPool::new(64));
/// let mut graph = Graph::new(&blueprint, vec![Box::new(only_ipv4)], pool.clone());
///
/// let (mut batch, mut sink) = (Batch::new(), CountSent(0));
/// batch.push(pool.alloc_from(&[0; 60]).unwrap()).unwrap();
/// graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut sink);
/// let (_, stats) = graph.stats().next().unwrap();
/// assert_eq!((sink.0, stats.packets.get(), stats.dropped()), (0, 1, 1));
/// ```
pub struct Graph {
    hops: Box<[HopState]>,
    nodes: Box<[NodeSlot]>,
    segments: Box<[PlacedSegment]>,
    /// Hops and outputs with emitted packets, newest last.
    backlog: Vec<(Hop, u8)>,
    state: BatchState,
    /// Packets that entered the running node.
    entered: usize,
    /// Number of visits so far, in the upper bits of [`CurrentHop`].
    visits: u64,
    /// Packets that were received and have not entered the graph, newest first.
    waiting: Vec<Packet>,
    /// Index in its segment of the node that has panicked.
    panicked: Cell<u8>,
}

struct HopState {
    plan: HopPlan,
    path: PathId,
    /// Emitted packets, by output.
    outbox: Box<[Vec<Packet>]>,
    /// Segment that begins with the hop.
    segment: Option<u16>,
}

/// Replacement for a quarantined node: packets pass or are dropped as `nf_panic`, as [`HopPlan::fail_open`] specifies.
struct QuarantinedNode {
    /// By hop.
    fail_open: Box<[bool]>,
}

impl Node for QuarantinedNode {
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        if cx.state.current_hop.hop().is_some_and(|Hop(hop)| self.fail_open.get(hop as usize) == Some(&true)) {
            return;
        }
        let reason = cx.stats.common_index(CommonDrop::NfPanic) as u8;
        batch.drain().for_each(|p| cx.drop(reason, p));
    }
}

fn quarantined(hops: &[HopState]) -> Box<dyn Node> {
    Box::new(QuarantinedNode { fail_open: hops.iter().map(|hop| hop.plan.fail_open).collect() })
}

impl Drop for Graph {
    /// Drops every node, also after one of them panics.
    fn drop(&mut self) {
        self.drop_nodes();
    }
}

impl Graph {
    /// Creates a graph of `nodes`, one for each of [`Blueprint::nodes`] in order. Nodes allocate packets from `pool`.
    ///
    /// # Panics
    /// If the blueprint refers to a node or hop that does not exist, or has a loop (see [`Blueprint::find_loop`]).
    pub fn new(blueprint: &Blueprint, nodes: Vec<Box<dyn Node>>, pool: Arc<dyn Pool + Send + Sync>) -> Self {
        assert_eq!(nodes.len(), blueprint.nodes.len(), "one node for each NodePlan");
        assert_eq!(blueprint.find_loop(), None, "packets would circulate for ever");
        let exists = |t: &Target| !matches!(t, Target::Hop(Hop(h)) if *h as usize >= blueprint.hops.len());
        assert!(
            blueprint.hops.iter().all(|h| (h.node as usize) < nodes.len() && exists(&h.next)),
            "hops refer to existing nodes and hops"
        );
        let path = PathId::allocate(blueprint.hops.len());
        let slots = nodes.into_iter().zip(&blueprint.nodes).enumerate().map(|(index, (node, plan))| {
            assert!(plan.edges.iter().all(exists), "edges lead to existing hops");
            NodeSlot {
                name: plan.name.clone(),
                stats: Arc::new(NodeStats::new(node.drops(), published(&*node))),
                lost: LostCount::default(),
                first_paths: blueprint.first_hops(index as u16).map(|hop| hop.map(&path)).collect(),
                edges: plan.edges.clone().into(),
                interval: node.interval(),
                last_timer: Duration::ZERO,
                node: RefCell::new(node),
            }
        });
        let nodes: Box<[NodeSlot]> = slots.collect();
        let hop_state = |(hop, plan): (usize, &HopPlan)| {
            let edges = nodes[plan.node as usize].edges.iter();
            let outbox = edges.map(|_| Vec::with_capacity(2 * BURST)).collect();
            HopState { plan: *plan, path: path(hop), outbox, segment: None }
        };
        Graph {
            hops: blueprint.hops.iter().enumerate().map(hop_state).collect(),
            nodes,
            segments: Box::default(),
            backlog: Vec::with_capacity(16),
            state: BatchState::new(pool),
            entered: 0,
            visits: 0,
            waiting: vec![],
            panicked: Cell::default(),
        }
    }

    /// Returns the names and statistics of the nodes, in the order of the blueprint.
    pub fn stats(&self) -> impl Iterator<Item = (&str, &Arc<NodeStats>)> {
        self.nodes.iter().map(|s| (s.name.as_str(), &s.stats))
    }

    /// Runs a batch through the graph from `entry` until every packet has left it, is held or was dropped; leaves the
    /// batch empty. With `TIMED`, the cycles of each node are measured.
    #[inline(always)]
    pub fn run<const TIMED: bool>(&mut self, entry: Target, batch: &mut Batch, sink: &mut impl Sink) {
        self.run_batch::<TIMED>(entry, batch, sink);
        if !self.backlog.is_empty() {
            self.run_backlog::<TIMED>(sink);
        }
    }

    #[inline(always)]
    fn run_batch<const TIMED: bool>(&mut self, mut target: Target, batch: &mut Batch, sink: &mut impl Sink) {
        let mut from = if TIMED { clock::cycles() } else { 0 };
        while let Target::Hop(at) = target {
            if let Some(segment) = self.hops[at.0 as usize].segment
                && !(TIMED && self.state.observer.is_some())
                && let Some(next) = self.run_segment::<TIMED>(segment, batch, &mut from)
            {
                target = next;
                if batch.is_empty() {
                    break;
                }
                continue;
            }
            let HopState { plan, path, outbox, .. } = &mut self.hops[at.0 as usize];
            let (plan, path) = (*plan, *path);
            let slot = &mut self.nodes[plan.node as usize];
            let n = batch.len();
            slot.stats.packets.add(n as u64);
            self.entered = n;
            self.state.current_hop.set(at, &mut self.visits);
            let NodeSlot { stats, lost, first_paths, node, .. } = slot;
            if TIMED && let Some(observer) = &mut self.state.observer {
                observer.sees(Point::Enter(at), batch.as_slice());
                observer.starts(at, stats);
                from = clock::cycles();
            }
            let mut cx = Context { state: &mut self.state, outbox, stats, lost, first_paths, path };
            node.get_mut().process(&mut cx, plan.input, batch);
            if TIMED {
                let now = clock::cycles();
                if let Some(observer) = &mut self.state.observer {
                    observer.processed(at, now - from, stats);
                }
                slot.stats.timed_cycles.add(now - from);
                slot.stats.timed_packets.add(n as u64);
                slot.stats.timed_batches.add(1);
                from = now;
            }
            target = plan.next;
            let output = core::mem::take(&mut self.state.output);
            if output != 0 {
                target = slot.edges.get(output as usize).copied().unwrap_or(Target::Unconnected);
            }
            if TIMED && let Some(observer) = &mut self.state.observer {
                observer.sees(Point::Leave(at, output), batch.as_slice());
                from = clock::cycles();
            }
            if batch.len() != n || self.state.changed {
                self.reconcile(at, n, batch);
                if batch.is_empty() {
                    break;
                }
            }
        }
        match target {
            Target::Port(port) if !batch.is_empty() => {
                self.state.current_hop.clear();
                if TIMED && let Some(observer) = &mut self.state.observer {
                    observer.sees(Point::Send(port), batch.as_slice());
                }
                sink.send::<TIMED>(port, batch);
                if !batch.is_empty() {
                    self.drop_refused(port, batch, sink);
                }
            }
            Target::Unconnected => self.drop_unconnected(batch),
            _ => self.state.current_hop.clear(),
        }
    }

    /// Frees what a port did not accept and has counted.
    #[cold]
    #[inline(never)]
    fn drop_refused(&mut self, port: u16, batch: &mut Batch, sink: &impl Sink) {
        if let Some(observer) = &mut self.state.observer {
            observer.sees(Point::Refuse(port, sink.drop_reason(port)), batch.as_slice());
        }
        batch.clear();
    }

    /// Drops a batch that left by an unconnected output.
    #[cold]
    fn drop_unconnected(&mut self, batch: &mut Batch) {
        let hop = self.state.current_hop.hop();
        batch.iter().for_each(|packet| self.state.show(packet, |hop| Point::Drop(hop, CommonDrop::NoEdge.name())));
        self.state.current_hop.clear();
        if let Some(Hop(hop)) = hop {
            let slot = &self.nodes[self.hops[hop as usize].plan.node as usize];
            slot.stats.count_common_drops(CommonDrop::NoEdge, batch.len() as u64);
        }
        batch.clear();
    }

    /// Accounts for the effects of a node on packets outside its batch.
    #[inline(never)]
    fn reconcile(&mut self, at: Hop, n: usize, batch: &Batch) {
        let BatchState { to_free, dropped, emitted, created, held, released, rerouted, observer, .. } = &mut self.state;
        to_free.clear();
        let node = self.hops[at.0 as usize].plan.node;
        let mut no_path = 0;
        for (path, packet) in rerouted.drain(..) {
            let hop = self.hops.iter().position(|h| h.path == path && h.plan.node == node);
            // the path of another node, or one that a replaced graph had
            let Some(hop) = hop.map(|hop| Hop(hop as u16)) else {
                if let Some(observer) = observer {
                    observer.sees(Point::Drop(at, CommonDrop::NoEdge.name()), core::slice::from_ref(&packet));
                }
                no_path += 1;
                continue;
            };
            let out = &mut self.hops[hop.0 as usize].outbox[0];
            if out.is_empty() {
                self.backlog.push((hop, 0));
            }
            out.push(packet);
        }
        let (entered, left) = (n + *created + *released, batch.len() + *dropped + *emitted + *held);
        let NodeSlot { stats, lost, .. } = &self.nodes[node as usize];
        stats.count_common_drops(CommonDrop::NoEdge, no_path);
        match entered.cmp(&left) {
            core::cmp::Ordering::Greater => stats.count_common_drops(CommonDrop::Vanished, (entered - left) as u64),
            // packets that it had kept outside a hold queue and that were counted as vanished
            core::cmp::Ordering::Less => stats.created.add((left - entered) as u64),
            core::cmp::Ordering::Equal => {}
        }
        stats.count_lost_held(lost.take());
        if *emitted != 0 {
            let pending = self.hops[at.0 as usize].outbox.iter().enumerate().filter(|(_, packets)| !packets.is_empty());
            self.backlog.extend(pending.map(|(output, _)| (at, output as u8)));
        }
        self.state.reset();
    }

    /// Sets the time, counted from the creation of the graph, and calls [`Node::on_timer`] of the nodes whose interval
    /// has passed.
    pub fn run_timers(&mut self, now: Duration, sink: &mut impl Sink) {
        self.state.now = now;
        for node in 0..self.nodes.len() {
            let slot = &mut self.nodes[node];
            if slot.interval.is_none_or(|interval| now < slot.last_timer + interval) {
                continue;
            }
            slot.last_timer = now;
            let Some(at) = self.hops.iter().position(|h| h.plan.node as usize == node) else { continue };
            self.entered = 0;
            self.state.current_hop.set(Hop(at as u16), &mut self.visits);
            let HopState { outbox, path, .. } = &mut self.hops[at];
            let NodeSlot { stats, lost, first_paths, node, .. } = slot;
            let mut cx = Context { state: &mut self.state, outbox, stats, lost, first_paths, path: *path };
            node.get_mut().on_timer(&mut cx);
            self.state.current_hop.clear();
            self.state.output = 0;
            self.reconcile(Hop(at as u16), 0, &Batch::new());
            if self.is_observed() { self.run_backlog::<true>(sink) } else { self.run_backlog::<false>(sink) }
        }
    }

    /// Returns the shortest [interval](Node::interval) of the nodes, or `None` if no node has one.
    pub fn timer_interval(&self) -> Option<Duration> {
        self.nodes.iter().filter_map(|slot| slot.interval).min()
    }

    /// Calls [`Node::finish`] of every node; returns the names of nodes that panicked, with the messages.
    pub fn finish(&mut self) -> Vec<(String, String)> {
        let panics = self.for_each_node(|slot| slot.node.get_mut().finish());
        self.nodes.iter().for_each(|slot| slot.stats.count_lost_held(slot.lost.take()));
        panics
    }

    /// Returns what each node [saves](Node::save), in the order of the blueprint; nothing of nodes that panic.
    pub fn save(&mut self) -> Vec<Option<Vec<u8>>> {
        let save = |slot: &mut NodeSlot| {
            let mut state = StateWriter::default();
            slot.node.get_mut().save(&mut state);
            state.into_bytes()
        };
        self.nodes.iter_mut().map(|slot| panics::catch(|| save(slot)).ok()).collect()
    }

    /// Sets the time before the first packet, as it goes on from that of another process.
    pub fn set_time(&mut self, now: Duration) {
        self.state.now = now;
    }

    /// Sets the time since the Unix epoch at time 0, where captures give the time.
    pub fn set_capture_start(&mut self, start: Duration) {
        self.state.capture_start = Some(start);
    }

    /// Has a node [restore](Node::restore) what another has saved.
    ///
    /// # Errors
    /// The state cannot be read, or the node panics.
    pub fn restore(&mut self, node: u16, state: &[u8]) -> Result<(), InvalidState> {
        let node = self.nodes[usize::from(node)].node.get_mut();
        panics::catch(|| node.restore(&mut StateReader::new(state))).unwrap_or(Err(InvalidState))
    }

    /// Drops every node; returns the names of nodes that panicked, with the messages. Held packets stay counted as
    /// held. Packets that enter the graph afterwards are dropped.
    pub fn drop_nodes(&mut self) -> Vec<(String, String)> {
        self.for_each_node(|slot| {
            let replacement = QuarantinedNode { fail_open: Box::default() };
            drop(slot.node.replace(Box::new(replacement)));
        })
    }

    /// Calls `f` for every node, with its first hop as the current one, and catches panics.
    fn for_each_node(&mut self, f: impl Fn(&mut NodeSlot)) -> Vec<(String, String)> {
        let mut panics = vec![];
        for node in 0..self.nodes.len() as u16 {
            if let Some(at) = self.hops.iter().position(|h| h.plan.node == node) {
                self.state.current_hop.set(Hop(at as u16), &mut self.visits);
            }
            let slot = &mut self.nodes[node as usize];
            panics.extend(panics::catch(|| f(slot)).err().map(|message| (slot.name.clone(), message)));
            self.state.current_hop.clear();
        }
        panics
    }

    /// Runs emitted packets through the rest of the graph.
    #[inline(never)]
    fn run_backlog<const TIMED: bool>(&mut self, sink: &mut impl Sink) {
        while let Some((at, output)) = self.backlog.pop() {
            let hop = self.hops[at.0 as usize].plan;
            let target = match output {
                0 => hop.next,
                _ => self.nodes[hop.node as usize].edges[output as usize],
            };
            loop {
                let pending = &mut self.hops[at.0 as usize].outbox[output as usize];
                let mut batch = Batch::new();
                batch.fill_from(pending);
                if batch.is_empty() {
                    break;
                }
                if TIMED && let Some(observer) = &mut self.state.observer {
                    observer.sees(Point::Leave(at, output), batch.as_slice());
                    if target == Target::Unconnected {
                        observer.sees(Point::Drop(at, CommonDrop::NoEdge.name()), batch.as_slice());
                    }
                }
                if target == Target::Unconnected {
                    let n = batch.len() as u64;
                    self.nodes[hop.node as usize].stats.count_common_drops(CommonDrop::NoEdge, n);
                }
                self.run_batch::<TIMED>(target, &mut batch, sink);
            }
        }
    }

    /// Returns a handle to the hop that is running, for the watchdog.
    pub fn current_hop(&self) -> &CurrentHop {
        &self.state.current_hop
    }

    /// Returns the name of the node of a hop.
    pub fn node_name(&self, Hop(hop): Hop) -> &str {
        &self.nodes[self.hops[hop as usize].plan.node as usize].name
    }

    /// Quarantines the node that panicked in [`run`](Graph::run) or [`run_timers`](Graph::run_timers): counts all
    /// packets in the graph as `nf_panic` and removes the node. Until [`rebuild`](Graph::rebuild) replaces it, its
    /// packets pass or are dropped, as [`HopPlan::fail_open`] specifies.
    ///
    /// # Errors
    /// Returns the panic payload and changes nothing if no node was running.
    pub fn quarantine(
        &mut self,
        batch: &mut Batch,
        payload: Box<dyn Any + Send>,
    ) -> Result<NodePanic, Box<dyn Any + Send>> {
        let Some(hop) = self.state.current_hop.hop() else { return Err(payload) };
        let Hop(hop) = self.panicked_hop(hop);
        // the payload is the node's as well: a panic of its destructor is attributed to the node
        let message = panics::message(payload);
        self.state.current_hop.clear();
        let (node, n) = (self.hops[hop as usize].plan.node, core::mem::take(&mut self.entered));
        let BatchState { to_free, dropped, emitted, created, held, released, rerouted, .. } = &mut self.state;
        to_free.clear();
        // packets owned by the node were freed while the stack unwound
        let unwound = (n + *created + *released).saturating_sub(batch.len() + *dropped + *emitted + *held);
        let pending: usize = self.hops.iter_mut().flat_map(|h| &mut h.outbox).map(|o| o.drain(..).count()).sum();
        let pending = pending + rerouted.drain(..).count();
        self.state.reset();
        self.state.output = 0;
        let waiting = self.waiting.drain(..).count();
        let in_graph = (batch.len() + unwound + pending + waiting) as u64;
        batch.clear();
        self.backlog.clear();
        let slot = &mut self.nodes[node as usize];
        // held packets are freed with the node
        slot.stats.count_lost_held(core::mem::take(&mut slot.lost).take());
        let held = slot.stats.held.get();
        slot.stats.held.set(0);
        slot.interval = None;
        let packets = in_graph + held;
        slot.stats.count_common_drops(CommonDrop::NfPanic, packets);
        let old = slot.node.replace(quarantined(&self.hops));
        Ok(NodePanic { node, message, packets, old })
    }

    /// Replaces a quarantined node with a new copy, which starts without state and with its own counters at 0.
    ///
    /// # Panics
    /// If there is no node of this index.
    pub fn rebuild(&mut self, node: u16, new: PreparedNode) {
        let slot = &mut self.nodes[node as usize];
        slot.interval = new.interval;
        slot.stats.publish(new.published);
        slot.stats.restarts.add(1);
        *slot.node.get_mut() = new.node;
    }
}
