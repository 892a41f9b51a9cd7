//! Fused segments: a graph with them does what the same graph does without.

use diagnostics::Diagnostic;
use graph::{
    Blueprint, BuildContext, Context, Either, Exit, Graph, HoldQueue, Hop, HopPlan, InB, Node, NodePlan, PreparedNode,
    Raw, Segment, Sink, Target, View, Whole, panics,
};
use packet::{Batch, HeapPool, Pool};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The treatment of a packet by a node, selected by the first byte of the packet.
#[derive(Clone, Copy, Debug)]
enum Action {
    Keep,
    Drop,
    Emit(u8),
    Panic,
    /// Only by [`Batchwise`].
    Copy,
    /// Only by [`Batchwise`].
    Hold,
}

/// Processes packet by packet. Writes its number into each packet and counts packets in it.
struct PerPacket {
    number: u8,
    actions: Vec<Action>,
    seen: u8,
}

impl PerPacket {
    fn action(&mut self, frame: &mut [u8]) -> Action {
        self.seen = self.seen.wrapping_add(1);
        frame[1] = frame[1].wrapping_mul(31).wrapping_add(self.number);
        frame[2] ^= self.seen;
        self.actions[usize::from(frame[0]) % self.actions.len()]
    }
}

impl Node for PerPacket {
    fn drops(&self) -> &[&'static str] {
        &["scripted"]
    }
    fn outputs(&self) -> &[&'static str] {
        &["out", "second"]
    }
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        batch.extract_if(
            |packet| match self.action(packet.data_mut()) {
                Action::Drop => Some(None),
                Action::Emit(output) => Some(Some(output)),
                Action::Panic => panic!("on purpose"),
                Action::Keep | Action::Copy | Action::Hold => None,
            },
            |output, packet| match output {
                None => cx.drop(0, packet),
                Some(output) => cx.emit(output, packet),
            },
        );
    }
    fn is_per_packet(&self) -> bool {
        true
    }
    fn process_packet(&mut self, mut frame: View<'_, Raw>) -> Option<Exit> {
        match self.action(frame.bytes_mut()) {
            Action::Drop => Some(Exit::Drop(0)),
            Action::Emit(output) => Some(Exit::Emit(output)),
            Action::Panic => panic!("on purpose"),
            Action::Keep | Action::Copy | Action::Hold => None,
        }
    }
}

/// Processes whole batches; holds packets until the timer runs.
struct Batchwise {
    actions: Vec<Action>,
    held: HoldQueue,
}

impl Node for Batchwise {
    fn drops(&self) -> &[&'static str] {
        &["scripted"]
    }
    fn outputs(&self) -> &[&'static str] {
        &["out", "second"]
    }
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for packet in batch.drain() {
            match self.actions[usize::from(packet.data()[0]) % self.actions.len()] {
                Action::Keep => batch.push(packet).unwrap(),
                Action::Drop => cx.drop(0, packet),
                Action::Emit(output) => cx.emit(output, packet),
                Action::Panic => panic!("on purpose"),
                Action::Copy => {
                    if let Some(copy) = cx.copy(&packet) {
                        cx.emit(1, copy);
                    }
                    batch.push(packet).unwrap();
                }
                Action::Hold => cx.hold(&mut self.held, packet).unwrap_or_else(|packet| cx.drop(0, packet)),
            }
        }
    }
    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
    fn on_timer(&mut self, cx: &mut Context<'_>) {
        while let Some((path, packet)) = cx.release(&mut self.held) {
            cx.emit_on_path(path, 0, packet);
        }
    }
}

#[derive(Clone, Debug)]
struct Spec {
    kind: Kind,
    actions: Vec<Action>,
    /// Number of hops by which the second output skips nodes; 0: to port 1; more than are left: unconnected.
    skips: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    PerPacket,
    /// One of two kinds that its settings choose.
    Chosen,
    Batchwise,
}

fn per_packet(spec: &Spec, number: u8) -> PerPacket {
    PerPacket { number, actions: spec.actions.clone(), seen: 0 }
}

fn node(spec: &Spec, number: u8) -> Box<dyn Node> {
    match spec.kind {
        Kind::PerPacket => Box::new(per_packet(spec, number)),
        Kind::Chosen => Box::new(Either::<Batchwise, PerPacket>::B(per_packet(spec, number))),
        Kind::Batchwise => Box::new(Batchwise { actions: spec.actions.clone(), held: HoldQueue::new(40) }),
    }
}

fn build_per_packet(_: &(), _: &BuildContext) -> Result<impl Node + 'static + use<>, Diagnostic> {
    Ok(PerPacket { number: 0, actions: vec![], seen: 0 })
}

fn build_chosen(_: &(), _: &BuildContext) -> Result<impl Node + 'static + use<>, Diagnostic> {
    Ok(Either::<Batchwise, PerPacket>::B(PerPacket { number: 0, actions: vec![], seen: 0 }))
}

/// Builds a segment: `p` of [`Kind::PerPacket`], `c` of [`Kind::Chosen`].
macro_rules! segment {
    (@ $builder:expr;) => { $builder.build() };
    (@ $builder:expr; p $($rest:tt)*) => { segment!(@ $builder.node(build_per_packet, Whole); $($rest)*) };
    (@ $builder:expr; c $($rest:tt)*) => { segment!(@ $builder.node(build_chosen, InB(Whole)); $($rest)*) };
    ($($kind:tt)*) => { segment!(@ Segment::builder(); $($kind)*) };
}

fn segments() -> Vec<Segment> {
    vec![segment!(p p), segment!(p c), segment!(c p), segment!(c c), segment!(p c p), segment!(p p p p)]
}

fn graph(specs: &[Spec], pool: &Arc<HeapPool>) -> Graph {
    let n = specs.len();
    let target = |hop: usize| if hop < n { Target::Hop(Hop(hop as u16)) } else { Target::Port(0) };
    let edge = |(at, spec): (usize, &Spec)| match at + 1 + spec.skips {
        _ if spec.skips == 0 => Target::Port(1),
        hop if hop < n => target(hop),
        _ => Target::Unconnected,
    };
    let plan = |(at, spec)| NodePlan { name: format!("{at}"), edges: vec![Target::Unconnected, edge((at, spec))] };
    let blueprint = Blueprint {
        nodes: specs.iter().enumerate().map(plan).collect(),
        hops: (0..n).map(|at| HopPlan { node: at as u16, input: 0, next: target(at + 1), fail_open: false }).collect(),
    };
    let nodes = specs.iter().enumerate().map(|(at, spec)| node(spec, at as u8)).collect();
    Graph::new(&blueprint, nodes, pool.clone())
}

/// Frames that arrived at each port.
#[derive(Debug, Default, PartialEq)]
struct Ports([Vec<Vec<u8>>; 2]);

impl Sink for Ports {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0[usize::from(port)].extend(batch.drain().map(|packet| packet.data().to_vec()));
    }
}

/// A graph with all that it has sent.
struct Side {
    graph: Graph,
    pool: Arc<HeapPool>,
    sent: Ports,
}

impl Side {
    fn new(specs: &[Spec], segments: &[Segment]) -> Side {
        let pool = Arc::new(HeapPool::new(4096));
        let mut graph = graph(specs, &pool);
        graph.fuse(segments);
        Side { graph, pool, sent: Ports::default() }
    }

    /// Runs a batch; returns the index of the node that panicked.
    fn run(&mut self, tags: &[u8], timed: bool) -> Option<u16> {
        let mut batch = Batch::new();
        tags.iter().for_each(|&tag| batch.push(self.pool.alloc_from(&[tag; 60]).unwrap()).unwrap());
        let entry = Target::Hop(Hop(0));
        self.quarantine(&mut batch, |graph, batch, sent| match timed {
            true => graph.run::<true>(entry, batch, sent),
            false => graph.run::<false>(entry, batch, sent),
        })
    }

    /// Runs timers; returns the index of the node that panicked.
    fn run_timers(&mut self, now: Duration) -> Option<u16> {
        self.quarantine(&mut Batch::new(), |graph, _, sent| graph.run_timers(now, sent))
    }

    /// Calls `f` and quarantines the node that panics.
    fn quarantine(&mut self, batch: &mut Batch, f: impl FnOnce(&mut Graph, &mut Batch, &mut Ports)) -> Option<u16> {
        panics::suppress_output();
        let payload = catch_unwind(AssertUnwindSafe(|| f(&mut self.graph, batch, &mut self.sent))).err()?;
        Some(self.graph.quarantine(batch, payload).unwrap_or_else(|_| panic!("no node was running")).node)
    }

    fn counts(&self) -> Vec<[u64; 6]> {
        let of = |(_, s): (&str, &Arc<graph::NodeStats>)| {
            let drops = s.drops.iter().map(graph::Counter::get);
            let weighted = drops.enumerate().map(|(n, drops)| drops << (16 * n)).sum();
            [s.packets.get(), s.created.get(), s.held.get(), s.restarts.get(), weighted, s.vanished()]
        };
        self.graph.stats().map(of).collect()
    }

    fn check_balance(&self, received: u64) {
        let stats = || self.graph.stats().map(|(_, s)| s);
        let dropped: u64 = stats().map(|s| s.dropped()).sum();
        let (created, held): (u64, u64) = stats().fold((0, 0), |(c, h), s| (c + s.created.get(), h + s.held.get()));
        let sent = self.sent.0.iter().map(|frames| frames.len() as u64).sum::<u64>();
        assert_eq!(received + created, sent + held + dropped);
        assert_eq!(self.pool.in_use() as u64, held);
    }
}

fn specs(panics: bool) -> impl Strategy<Value = Vec<Spec>> {
    let action = prop_oneof![
        12 => Just(Action::Keep),
        1 => Just(Action::Drop),
        1 => (0..3u8).prop_map(Action::Emit),
        1 => Just(Action::Copy),
        1 => Just(Action::Hold),
        u32::from(panics) => Just(Action::Panic),
    ];
    let kind = prop_oneof![4 => Just(Kind::PerPacket), 2 => Just(Kind::Chosen), 1 => Just(Kind::Batchwise)];
    let spec = (kind, prop::collection::vec(action, 1..9), 0..4usize);
    prop::collection::vec(spec.prop_map(|(kind, actions, skips)| Spec { kind, actions, skips }), 1..9)
}

fn bursts() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
    prop::collection::vec((prop::collection::vec(any::<u8>(), 1..=32), any::<bool>()), 1..6)
}

proptest! {
    #[test]
    fn fused_and_dynamic_nodes_send_and_count_the_same(specs in specs(false), bursts in bursts()) {
        let (mut dynamic, mut fused) = (Side::new(&specs, &[]), Side::new(&specs, &segments()));
        for (n, (tags, timed)) in bursts.iter().enumerate() {
            for side in [&mut dynamic, &mut fused] {
                prop_assert_eq!(side.run(tags, *timed), None);
                prop_assert_eq!(side.run_timers(Duration::from_millis(n as u64 + 1)), None);
            }
            prop_assert_eq!(&dynamic.sent, &fused.sent);
            prop_assert_eq!(dynamic.counts(), fused.counts());
        }
        fused.check_balance(bursts.iter().map(|(tags, _)| tags.len() as u64).sum());
    }

    #[test]
    fn a_panic_quarantines_only_the_node_that_panicked(specs in specs(true), bursts in bursts()) {
        let mut fused = Side::new(&specs, &segments());
        let mut received = 0;
        for (n, (tags, timed)) in bursts.iter().enumerate() {
            received += tags.len() as u64;
            let now = Duration::from_millis(n as u64 + 1);
            let panicked = fused.run(tags, *timed).or_else(|| fused.run_timers(now));
            fused.check_balance(received);
            let Some(panicked) = panicked else { continue };
            let spec = &specs[usize::from(panicked)];
            prop_assert!(spec.actions.iter().any(|action| matches!(action, Action::Panic)), "{panicked}");
            // its packets are dropped, and those before it pass
            received += tags.len() as u64;
            prop_assert_ne!(fused.run(tags, *timed), Some(panicked));
            fused.graph.rebuild(panicked, PreparedNode::new(node(spec, panicked as u8)));
            fused.check_balance(received);
        }
    }
}

fn spec(kind: Kind, actions: &[Action]) -> Spec {
    Spec { kind, actions: actions.to_vec(), skips: 0 }
}

/// Returns the nodes of each segment.
fn placed(graph: &Graph) -> Vec<Vec<u16>> {
    graph.segments().map(|(_, nodes)| nodes.to_vec()).collect()
}

#[test]
fn prefers_long_segments_and_leaves_out_batchwise_nodes() {
    let keep = |kind| spec(kind, &[Action::Keep]);
    let (p, c, b) = (Kind::PerPacket, Kind::Chosen, Kind::Batchwise);
    let placed_in = |kinds: &[Kind]| {
        let specs: Vec<Spec> = kinds.iter().map(|&kind| keep(kind)).collect();
        placed(&Side::new(&specs, &segments()).graph)
    };
    assert_eq!(placed_in(&[p, p, p, p, p, p]), [vec![0, 1, 2, 3], vec![4, 5]]);
    assert_eq!(placed_in(&[c, p, b, p, c, p]), [vec![0, 1], vec![3, 4, 5]]);
    assert_eq!(placed_in(&[p, b, c, b]), [[0; 0]; 0]);
}

#[test]
fn a_node_that_is_twice_on_a_path_is_not_fused_with_itself() {
    let pool = Arc::new(HeapPool::new(8));
    let hop = |next| HopPlan { node: 0, input: 0, next, fail_open: false };
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "twice".into(), edges: vec![Target::Unconnected; 2] }],
        hops: vec![hop(Target::Hop(Hop(1))), hop(Target::Port(0))],
    };
    let mut graph = Graph::new(&blueprint, vec![node(&spec(Kind::PerPacket, &[Action::Keep]), 0)], pool);
    graph.fuse(&segments());
    assert_eq!(placed(&graph), [[0; 0]; 0]);
}

#[test]
fn attributes_a_panic_to_the_last_node_that_a_packet_reached() {
    let keep = spec(Kind::PerPacket, &[Action::Keep]);
    let panics = spec(Kind::PerPacket, &[Action::Keep, Action::Panic]);
    let mut fused = Side::new(&[keep.clone(), keep.clone(), panics.clone(), keep], &segments());
    assert_eq!(placed(&fused.graph), [[0, 1, 2, 3]]);
    assert_eq!(fused.run(&[0, 0, 1, 0], false), Some(2));
    let packets: Vec<u64> = fused.graph.stats().map(|(_, s)| s.packets.get()).collect();
    let dropped: Vec<u64> = fused.graph.stats().map(|(_, s)| s.dropped()).collect();
    assert_eq!((packets, dropped), (vec![4, 4, 4, 0], vec![0, 0, 4, 0]));
    fused.graph.rebuild(2, PreparedNode::new(node(&panics, 2)));
    assert_eq!(fused.run(&[0, 0], false), None);
    assert_eq!(fused.sent.0[0].len(), 2);
    fused.check_balance(6);
}

#[test]
fn cycles_of_a_segment_are_counted_by_its_first_node() {
    let keep = spec(Kind::PerPacket, &[Action::Keep]);
    let mut fused = Side::new(&vec![keep; 2], &segments());
    fused.run(&[0; 32], true);
    let timed: Vec<_> = fused.graph.stats().map(|(_, s)| (s.timed_batches.get(), s.timed_packets.get())).collect();
    assert_eq!(timed, [(1, 32), (0, 0)]);
}
