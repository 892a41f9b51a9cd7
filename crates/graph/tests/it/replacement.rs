//! Graphs that replace running ones: state, paths of held packets, accounting.

use graph::{
    Blueprint, Context, Graph, HoldQueue, HoldSlab, Hop, HopPlan, NewNode, Node, NodePlan, Origin, Replacement, Sink,
    Target,
};
use packet::{Batch, HeapPool, Packet, Pool};
use proptest::prelude::*;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Holds every packet until the next timer, every other one in a slab.
struct Hold {
    packets: HoldQueue,
    /// Packets with the values of `seen` at which they arrived.
    slab: HoldSlab<u64>,
    /// These values, and the numbers of the packets.
    numbers: BTreeMap<u64, u32>,
    /// Version of its settings.
    version: u32,
    /// Packets seen by all versions.
    seen: u64,
}

impl Hold {
    fn new(version: u32) -> Box<Hold> {
        let (slab, numbers) = Default::default();
        Box::new(Hold { packets: HoldQueue::new(1000), slab, numbers, version, seen: 0 })
    }
}

impl Node for Hold {
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for mut packet in batch.drain() {
            self.seen += 1;
            if packet.data()[1] == 0xff {
                panic!("on purpose");
            }
            packet.data_mut()[2] = self.version as u8;
            if self.seen.is_multiple_of(2) {
                cx.hold(&mut self.packets, packet).unwrap();
            } else {
                self.numbers.insert(self.seen, cx.hold_in(cx.path(), &mut self.slab, packet, self.seen));
            }
        }
    }
    fn interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
    fn on_timer(&mut self, cx: &mut Context<'_>) {
        while let Some((path, packet)) = cx.release(&mut self.packets) {
            cx.emit_on_path(path, 0, packet);
        }
        assert_eq!(self.slab.len(), self.numbers.len());
        while let Some((seen, number)) = self.numbers.pop_last() {
            assert_eq!(self.slab.value(number), Some(&seen));
            let (path, packet) = cx.release_from(&mut self.slab, number).unwrap();
            assert!(cx.release_from(&mut self.slab, number).is_none());
            cx.emit_on_path(path, 0, packet);
        }
    }
    fn take_over(&mut self, old: &mut dyn Any) {
        let old = old.downcast_mut::<Hold>().unwrap();
        assert_ne!(old.version, 0, "a panic on purpose");
        self.seen = old.seen;
        std::mem::swap(&mut self.packets, &mut old.packets);
        std::mem::swap(&mut self.slab, &mut old.slab);
        std::mem::swap(&mut self.numbers, &mut old.numbers);
    }
}

#[derive(Default)]
struct Out(BTreeMap<u16, Vec<Packet>>);

impl Sink for Out {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0.entry(port).or_default().extend(batch.drain());
    }
}

/// A chain file that the nodes of a graph are of: for each path its number, by which it leaves, and its nodes.
type Paths = Vec<(u16, Vec<usize>)>;

/// Returns the blueprint of paths, with the entry of each.
fn blueprint(paths: &Paths) -> (Blueprint, Vec<usize>, Vec<Target>) {
    let (mut plan, mut nodes, mut entries) = (Blueprint::default(), vec![], vec![]);
    for (port, path) in paths {
        let first = plan.hops.len();
        entries.push(if path.is_empty() { Target::Port(*port) } else { Target::Hop(Hop(first as u16)) });
        for (n, node) in path.iter().enumerate() {
            let index = nodes.iter().position(|other| other == node).unwrap_or_else(|| {
                nodes.push(*node);
                plan.nodes.push(NodePlan { name: node.to_string(), edges: vec![Target::Unconnected] });
                nodes.len() - 1
            });
            let next = if n + 1 < path.len() { Target::Hop(Hop((first + n + 1) as u16)) } else { Target::Port(*port) };
            // each path has an input of its own
            plan.hops.push(HopPlan { node: index as u16, input: *port as u8, next, fail_open: false });
        }
    }
    (plan, nodes, entries)
}

fn paths() -> impl Strategy<Value = Paths> {
    let path = |n| prop::sample::subsequence((0..5usize).collect::<Vec<_>>(), 0..=n).prop_shuffle();
    prop::collection::vec(path(4), 3).prop_map(|all| (0..).zip(all).collect())
}

/// Number of packets that the graph holds, dropped.
fn totals(all: &[Arc<graph::NodeStats>]) -> (u64, u64) {
    all.iter().fold((0, 0), |(held, dropped), s| (held + s.held.get(), dropped + s.dropped()))
}

/// The graph of a worker, with what is needed to replace it.
struct Running {
    graph: Graph,
    plan: Blueprint,
    names: Vec<usize>,
    entries: Vec<Target>,
    stats: Vec<Arc<graph::NodeStats>>,
}

impl Running {
    fn start(paths: &Paths, pool: &Arc<HeapPool>) -> Running {
        let (plan, names, entries) = blueprint(paths);
        let nodes = names.iter().map(|_| Hold::new(1) as Box<dyn Node>).collect();
        let graph = Graph::new(&plan, nodes, pool.clone());
        let stats = graph.stats().map(|(_, stats)| stats.clone()).collect();
        Running { graph, plan, names, entries, stats }
    }
}

/// Returns the paths that the first of two workers has, and those of the second: those with this bit in `on_second`.
/// Paths that share a node are on one worker, that of the first of them.
fn split(paths: &Paths, on_second: u8) -> [Paths; 2] {
    let mut workers = [vec![], vec![]];
    for (port, path) in paths {
        let shares = |other: &Paths| other.iter().any(|(_, nodes)| nodes.iter().any(|node| path.contains(node)));
        let both = shares(&workers[0]) && shares(&workers[1]);
        let worker = match () {
            // it would connect them
            () if both => continue,
            () if shares(&workers[0]) => 0,
            () if shares(&workers[1]) => 1,
            () => usize::from(on_second >> port & 1),
        };
        workers[worker].push((*port, path.clone()));
    }
    workers
}

proptest! {
    #[test]
    fn packets_leave_by_their_path_whatever_replaces_the_graphs(
        first in paths(),
        steps in prop::collection::vec(
            (paths(), prop::collection::vec(0..3u8, 5), any::<bool>(), any::<bool>(), 0..8u8),
            1..12,
        ),
    ) {
        let pool = Arc::new(HeapPool::new(4000));
        let mut workers = split(&first, 0).map(|paths| Running::start(&paths, &pool));
        let mut all: Vec<_> = workers.iter().flat_map(|worker| worker.stats.clone()).collect();
        let (mut out, mut received, mut now) = (Out::default(), 0, Duration::ZERO);
        for (version, (paths, choices, hands_over, timer, on_second)) in (2..).zip(&steps) {
            for Running { graph, plan, entries, .. } in &mut workers {
                for entry in entries {
                    let port = match entry {
                        Target::Hop(Hop(hop)) => u16::from(plan.hops[usize::from(*hop)].input),
                        Target::Port(port) => *port,
                        Target::Unconnected => unreachable!(),
                    };
                    let mut batch = Batch::new();
                    for _ in 0..3 {
                        batch.push(pool.alloc_from(&[port as u8; 60]).unwrap()).unwrap();
                    }
                    received += 3;
                    graph.run::<false>(*entry, &mut batch, &mut out);
                }
                if *timer {
                    graph.run_timers(now + Duration::from_millis(1), &mut out);
                }
            }
            now += Duration::from_millis(u64::from(*timer));
            let running: Vec<_> = workers.iter().map(|worker| (&worker.plan, &worker.stats[..])).collect();
            let replacements = split(paths, *on_second).map(|paths| {
                let (plan, names, entries) = blueprint(&paths);
                let nodes = names.iter().map(|name| {
                    let of = workers.iter().enumerate().find_map(|(graph, worker)| {
                        let node = worker.names.iter().position(|other| other == name)? as u16;
                        Some(Origin { graph, node })
                    });
                    match (of, choices[*name]) {
                        (Some(of), 0) => NewNode::Kept(of),
                        (Some(of), 1) => NewNode::Successor(of, Hold::new(version), *hands_over),
                        _ => NewNode::Added(Hold::new(version)),
                    }
                });
                let new = Replacement::new(&running, &plan, nodes.collect(), pool.clone());
                let stats: Vec<_> = new.stats().cloned().collect();
                (new, plan, names, entries, stats)
            });
            let mut old: Vec<Graph> = workers.into_iter().map(|worker| worker.graph).collect();
            let mut own = 0;
            workers = replacements.map(|(new, plan, names, entries, stats)| {
                let (graph, panics) = new.install(&mut old, own);
                assert!(panics.is_empty());
                own += 1;
                let is_new = |new: &&Arc<_>| !all.iter().any(|old| Arc::ptr_eq(old, new));
                all.extend(stats.iter().filter(is_new).cloned().collect::<Vec<_>>());
                Running { graph, plan, names, entries, stats }
            });
            let retire = |old: Graph| std::thread::scope(|s| s.spawn(|| old.retire(|_, drop| drop())).join().unwrap());
            prop_assert!(old.into_iter().all(|old| retire(old).is_empty()));
        }
        // six nodes in sequence
        for _ in 0..8 {
            now += Duration::from_millis(1);
            workers.iter_mut().for_each(|worker| worker.graph.run_timers(now, &mut out));
        }
        prop_assert!(workers.iter_mut().all(|worker| worker.graph.finish().is_empty()));
        for (port, packets) in &out.0 {
            prop_assert!(packets.iter().all(|packet| u16::from(packet.data()[0]) == *port));
        }
        let sent: u64 = out.0.values().map(|packets| packets.len() as u64).sum();
        let created: u64 = all.iter().map(|stats| stats.created.get()).sum();
        let (held, dropped) = totals(&all);
        prop_assert_eq!((received + created, held), (sent + dropped, 0));
        drop(out);
        prop_assert_eq!(pool.in_use(), 0);
    }
}

/// Replaces the graph of the only worker; returns the panics of nodes that took over state.
fn replace(graph: &mut Graph, new: Replacement) -> Vec<(String, String)> {
    let (new, panics) = new.install(std::slice::from_mut(graph), 0);
    let old = std::mem::replace(graph, new);
    assert!(old.retire(|_, drop| drop()).is_empty());
    panics
}

const ONLY: Origin = Origin { graph: 0, node: 0 };

/// A graph of one node from port 0 on, its statistics and blueprint.
fn one(node: Box<Hold>, pool: &Arc<HeapPool>) -> (Graph, Vec<Arc<graph::NodeStats>>, Blueprint) {
    let (plan, ..) = blueprint(&vec![(0, vec![0])]);
    let graph = Graph::new(&plan, vec![node], pool.clone());
    let stats = graph.stats().map(|(_, stats)| stats.clone()).collect();
    (graph, stats, plan)
}

#[test]
fn a_panic_while_state_is_taken_over_is_reported() {
    let pool = Arc::new(HeapPool::new(8));
    let (mut graph, stats, plan) = one(Hold::new(0), &pool);
    let successor = vec![NewNode::Successor(ONLY, Hold::new(1), true)];
    let panics = replace(&mut graph, Replacement::new(&[(&plan, &stats)], &plan, successor, pool.clone()));
    assert!(panics.len() == 1 && panics[0].0 == "0" && panics[0].1.contains("on purpose"), "{panics:?}");
}

#[test]
fn a_quarantined_node_stays_so_until_it_is_rebuilt() {
    let pool = Arc::new(HeapPool::new(8));
    let (mut graph, stats, plan) = one(Hold::new(1), &pool);
    let run = |graph: &mut Graph, tag: u8| {
        let mut batch = Batch::new();
        batch.push(pool.alloc_from(&[0, tag, 0]).unwrap()).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut Out::default());
        }));
        panic.err().map(|cause| graph.quarantine(&mut batch, cause).map_err(drop).unwrap().packets)
    };
    assert_eq!(run(&mut graph, 0xff), Some(1));
    let kept = Replacement::new(&[(&plan, &stats)], &plan, vec![NewNode::Kept(ONLY)], pool.clone());
    assert!(replace(&mut graph, kept).is_empty());
    assert_eq!((run(&mut graph, 0), stats[0].dropped(), stats[0].held.get()), (None, 2, 0));
    graph.rebuild(0, graph::PreparedNode::new(Hold::new(1)));
    assert_eq!((run(&mut graph, 0), stats[0].dropped(), stats[0].held.get()), (None, 2, 1));
}
