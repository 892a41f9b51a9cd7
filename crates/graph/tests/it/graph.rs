//! Graphs of several nodes: order, edges, accounting, quarantine.

use graph::{Blueprint, Context, Graph, Hop, HopPlan, Node, NodePlan, NodeStats, Sink, Target};
use packet::{Batch, HeapPool, Packet, Pool};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

struct Out(Vec<Vec<Packet>>);

impl Sink for Out {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0[port as usize].extend(batch.drain());
    }
}

/// Performs the action that the first byte of each packet selects.
struct Scripted(Vec<Action>);

#[derive(Clone, Copy, Debug)]
enum Action {
    Keep,
    Drop,
    Emit(u8),
    Copy(u8),
    /// Frees the packet without counting it.
    Free,
    Panic,
}

impl Node for Scripted {
    fn drops(&self) -> &[&'static str] {
        &["scripted"]
    }
    fn outputs(&self) -> &[&'static str] {
        &["out", "second"]
    }
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for packet in batch.drain() {
            match self.0[packet.data()[0] as usize % self.0.len()] {
                Action::Keep => batch.push(packet).unwrap(),
                Action::Drop => cx.drop(0, packet),
                Action::Emit(output) => cx.emit(output, packet),
                Action::Copy(output) => {
                    if let Some(copy) = cx.copy(&packet) {
                        cx.emit(output, copy);
                    }
                    batch.push(packet).unwrap();
                }
                Action::Free => drop(packet),
                Action::Panic => panic!("on purpose"),
            }
        }
    }
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => Just(Action::Keep),
        1 => Just(Action::Drop),
        1 => (0..3u8).prop_map(Action::Emit),
        1 => (0..2u8).prop_map(Action::Copy),
        1 => Just(Action::Free),
    ]
}

/// Three nodes in sequence. The second output of the first leads to the third, of the second to port 1.
fn sequence(tables: &[Vec<Action>; 3], pool: &Arc<HeapPool>) -> Graph {
    let hop = |n| Target::Hop(Hop(n));
    let edge = |second| vec![Target::Unconnected, second];
    let blueprint = Blueprint {
        nodes: vec![
            NodePlan { name: "a".into(), edges: edge(hop(2)) },
            NodePlan { name: "b".into(), edges: edge(Target::Port(1)) },
            NodePlan { name: "c".into(), edges: edge(Target::Unconnected) },
        ],
        hops: vec![
            HopPlan { node: 0, input: 0, next: hop(1), fail_open: false },
            HopPlan { node: 1, input: 0, next: hop(2), fail_open: false },
            HopPlan { node: 2, input: 0, next: Target::Port(0), fail_open: false },
        ],
    };
    let nodes = tables.iter().map(|t| Box::new(Scripted(t.clone())) as Box<dyn Node>).collect();
    Graph::new(&blueprint, nodes, pool.clone())
}

fn totals(graph: &Graph) -> (u64, u64) {
    graph.stats().fold((0, 0), |(created, dropped), (_, s)| (created + s.created.get(), dropped + s.dropped()))
}

fn count(stats: &NodeStats, reason: &str) -> u64 {
    stats.reasons.iter().zip(&stats.drops).filter(|(r, _)| **r == reason).map(|(_, n)| n.get()).sum()
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for(
        tables in prop::array::uniform3(prop::collection::vec(action(), 1..6)),
        bursts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..=32), 1..6),
        buffers in 40..400usize,
    ) {
        let pool = Arc::new(HeapPool::new(buffers));
        let mut graph = sequence(&tables, &pool);
        let mut received = 0;
        let mut sent = 0;
        for burst in &bursts {
            let mut out = Out(vec![vec![], vec![]]);
            let mut batch = Batch::new();
            for tag in burst {
                batch.push(pool.alloc_from(&[*tag; 60]).unwrap()).unwrap();
            }
            received += burst.len() as u64;
            graph.run::<true>(Target::Hop(Hop(0)), &mut batch, &mut out);
            sent += out.0.iter().map(|p| p.len() as u64).sum::<u64>();
        }
        let (created, dropped) = totals(&graph);
        prop_assert_eq!(received + created, sent + dropped);
        prop_assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_panic_drops_its_batch_and_quarantines_its_node(
        tags in prop::collection::vec(0..8u8, 1..=32),
        before in prop::collection::vec(action(), 8),
    ) {
        let pool = Arc::new(HeapPool::new(200));
        let mut panics = vec![Action::Keep; 8];
        panics[3] = Action::Panic;
        panics[4] = Action::Emit(1);
        let mut graph = sequence(&[before, panics, vec![Action::Keep]], &pool);
        let (mut received, mut sent) = (0, 0);
        for round in 0..3 {
            let mut out = Out(vec![vec![], vec![]]);
            let mut batch = Batch::new();
            for tag in &tags {
                batch.push(pool.alloc_from(&[*tag; 60]).unwrap()).unwrap();
            }
            received += tags.len() as u64;
            let run = || graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
            if let Err(cause) = catch_unwind(AssertUnwindSafe(run)) {
                prop_assert_eq!(round, 0, "a quarantined node does not panic again");
                let panic = graph.quarantine(&mut batch, cause).unwrap_or_else(|_| panic!("no node was running"));
                prop_assert_eq!((panic.node, panic.message.as_str()), (1, "on purpose"));
            }
            sent += out.0.iter().map(|p| p.len() as u64).sum::<u64>();
        }
        let (created, dropped) = totals(&graph);
        prop_assert_eq!(received + created, sent + dropped);
        prop_assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn counts_freed_packets_as_vanished() {
    let pool = Arc::new(HeapPool::new(8));
    let mut graph = sequence(&[vec![Action::Keep, Action::Free], vec![Action::Keep], vec![Action::Keep]], &pool);
    let mut batch = Batch::new();
    (0..4u8).for_each(|n| batch.push(pool.alloc_from(&[n; 60]).unwrap()).unwrap());
    let mut out = Out(vec![vec![], vec![]]);
    graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
    assert_eq!(out.0[0].len(), 2);
    assert_eq!(count(graph.stats().next().unwrap().1, "vanished"), 2);
}

#[test]
fn drops_packets_after_its_nodes_were_dropped() {
    let pool = Arc::new(HeapPool::new(8));
    let keep = || vec![Action::Keep];
    let mut graph = sequence(&[keep(), keep(), keep()], &pool);
    assert!(graph.drop_nodes().is_empty());
    let mut batch = Batch::new();
    batch.push(pool.alloc_from(&[0; 60]).unwrap()).unwrap();
    graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut Out(vec![vec![], vec![]]));
    assert_eq!((count(graph.stats().next().unwrap().1, "nf_panic"), pool.in_use()), (1, 0));
}

#[test]
fn counts_drops_of_unconnected_outputs() {
    let pool = Arc::new(HeapPool::new(8));
    let mut graph = sequence(&[vec![Action::Emit(1)], vec![Action::Keep], vec![Action::Emit(1)]], &pool);
    let mut batch = Batch::new();
    batch.push(pool.alloc_from(&[0; 60]).unwrap()).unwrap();
    graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut Out(vec![vec![], vec![]]));
    let stats: Vec<_> = graph.stats().map(|(_, s)| count(s, "no_edge")).collect();
    assert_eq!((stats, pool.in_use()), (vec![0, 0, 1], 0));
}

#[test]
fn counts_the_paths_of_copies_of_copies() {
    let n = 40;
    let next = |h: u16| if h < n { Target::Hop(Hop(h)) } else { Target::Port(0) };
    let nodes = (0..n).map(|h| NodePlan { name: String::new(), edges: vec![Target::Unconnected, next(h + 1)] });
    let hops = (0..n).map(|h| HopPlan { node: h, input: 0, next: next(h + 1), fail_open: false });
    let blueprint = Blueprint { nodes: nodes.collect(), hops: hops.collect() };
    assert_eq!(blueprint.count_paths(Target::Hop(Hop(0))), 1 << 40);
    assert_eq!(blueprint.count_paths(Target::Hop(Hop(38))), 4);
}

#[test]
fn finds_loops() {
    let hop = |node, next| HopPlan { node, input: 0, next: Target::Hop(Hop(next)), fail_open: false };
    let node = |edges: Vec<Target>| NodePlan { name: String::new(), edges };
    let straight = Blueprint {
        nodes: vec![node(vec![Target::Unconnected]); 2],
        hops: vec![hop(0, 1), HopPlan { next: Target::Port(0), ..hop(1, 0) }],
    };
    assert_eq!(straight.find_loop(), None);
    let two_nodes = Blueprint { hops: vec![hop(0, 1), hop(1, 0)], ..straight.clone() };
    assert_eq!(two_nodes.find_loop(), Some(vec![0, 1]));
    let by_edge = Blueprint {
        nodes: vec![straight.nodes[0].clone(), node(vec![Target::Unconnected, Target::Hop(Hop(1))])],
        ..straight
    };
    assert_eq!(by_edge.find_loop(), Some(vec![1]));
}
