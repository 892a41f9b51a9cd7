//! Graphs of several nodes: order, edges, accounting, and nodes that misbehave.

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

/// Looks at the first byte of each packet and does what the table says.
struct Obeys(Vec<Does>);

#[derive(Clone, Copy, Debug)]
enum Does {
    Keeps,
    Drops,
    Emits(u8),
    Copies(u8),
    LetsGo,
    Panics,
}

impl Node for Obeys {
    fn drops(&self) -> &[&'static str] {
        &["told_to"]
    }
    fn outputs(&self) -> &[&'static str] {
        &["out", "second"]
    }
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for packet in batch.drain() {
            match self.0[packet.data()[0] as usize % self.0.len()] {
                Does::Keeps => batch.push(packet).unwrap(),
                Does::Drops => cx.drop(0, packet),
                Does::Emits(output) => cx.emit(output, packet),
                Does::Copies(output) => {
                    if let Some(copy) = cx.copy(&packet) {
                        cx.emit(output, copy);
                    }
                    batch.push(packet).unwrap();
                }
                Does::LetsGo => drop(packet),
                Does::Panics => panic!("told to"),
            }
        }
    }
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        4 => Just(Does::Keeps),
        1 => Just(Does::Drops),
        1 => (0..3u8).prop_map(Does::Emits),
        1 => (0..2u8).prop_map(Does::Copies),
        1 => Just(Does::LetsGo),
    ]
}

/// Three nodes in a row; the second output of each leads to the next but one, or to port 1.
fn row(tables: &[Vec<Does>; 3], pool: &Arc<HeapPool>) -> Graph {
    let hop = |n| Target::Hop(Hop(n));
    let edge = |second| vec![Target::Nowhere, second];
    let blueprint = Blueprint {
        nodes: vec![
            NodePlan { name: "a".into(), edges: edge(hop(2)) },
            NodePlan { name: "b".into(), edges: edge(Target::Port(1)) },
            NodePlan { name: "c".into(), edges: edge(Target::Nowhere) },
        ],
        hops: vec![
            HopPlan { node: 0, input: 0, next: hop(1), open: false },
            HopPlan { node: 1, input: 0, next: hop(2), open: false },
            HopPlan { node: 2, input: 0, next: Target::Port(0), open: false },
        ],
    };
    let nodes = tables.iter().map(|t| Box::new(Obeys(t.clone())) as Box<dyn Node>).collect();
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
        tables in [prop::collection::vec(does(), 1..6), prop::collection::vec(does(), 1..6), prop::collection::vec(does(), 1..6)],
        bursts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..=32), 1..6),
        buffers in 40..400usize,
    ) {
        let pool = Arc::new(HeapPool::new(buffers));
        let mut graph = row(&tables, &pool);
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
    fn a_panic_costs_its_batch_and_closes_its_node(
        tags in prop::collection::vec(0..8u8, 1..=32),
        before in prop::collection::vec(does(), 8),
    ) {
        let pool = Arc::new(HeapPool::new(200));
        let mut bomb = vec![Does::Keeps; 8];
        bomb[3] = Does::Panics;
        bomb[4] = Does::Emits(1);
        let mut graph = row(&[before, bomb, vec![Does::Keeps]], &pool);
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
                prop_assert_eq!(round, 0, "a closed node does not panic again");
                let told = graph.contain(&mut batch, cause).unwrap_or_else(|_| panic!("a node did it"));
                prop_assert_eq!((told.node, told.message.as_str()), (1, "told to"));
            }
            sent += out.0.iter().map(|p| p.len() as u64).sum::<u64>();
        }
        let (created, dropped) = totals(&graph);
        prop_assert_eq!(received + created, sent + dropped);
        prop_assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn a_packet_let_go_in_silence_is_counted_as_vanished() {
    let pool = Arc::new(HeapPool::new(8));
    let mut graph = row(&[vec![Does::Keeps, Does::LetsGo], vec![Does::Keeps], vec![Does::Keeps]], &pool);
    let mut batch = Batch::new();
    (0..4u8).for_each(|n| batch.push(pool.alloc_from(&[n; 60]).unwrap()).unwrap());
    let mut out = Out(vec![vec![], vec![]]);
    graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
    assert_eq!(out.0[0].len(), 2);
    assert_eq!(count(graph.stats().next().unwrap().1, "vanished"), 2);
}

#[test]
fn an_output_that_leads_nowhere_is_a_counted_drop() {
    let pool = Arc::new(HeapPool::new(8));
    let mut graph = row(&[vec![Does::Emits(1)], vec![Does::Keeps], vec![Does::Emits(1)]], &pool);
    let mut batch = Batch::new();
    batch.push(pool.alloc_from(&[0; 60]).unwrap()).unwrap();
    graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut Out(vec![vec![], vec![]]));
    let stats: Vec<_> = graph.stats().map(|(_, s)| count(s, "no_edge")).collect();
    assert_eq!((stats, pool.in_use()), (vec![0, 0, 1], 0));
}

#[test]
fn copies_of_copies_are_counted_as_ways() {
    let n = 40;
    let next = |h: u16| if h < n { Target::Hop(Hop(h)) } else { Target::Port(0) };
    let nodes = (0..n).map(|h| NodePlan { name: String::new(), edges: vec![Target::Nowhere, next(h + 1)] });
    let hops = (0..n).map(|h| HopPlan { node: h, input: 0, next: next(h + 1), open: false });
    let blueprint = Blueprint { nodes: nodes.collect(), hops: hops.collect() };
    assert_eq!(blueprint.ways(Target::Hop(Hop(0))), 1 << 40);
    assert_eq!(blueprint.ways(Target::Hop(Hop(38))), 4);
}

#[test]
fn a_loop_is_found_and_named() {
    let hop = |node, next| HopPlan { node, input: 0, next: Target::Hop(Hop(next)), open: false };
    let node = |edges: Vec<Target>| NodePlan { name: String::new(), edges };
    let straight = Blueprint {
        nodes: vec![node(vec![Target::Nowhere]); 2],
        hops: vec![hop(0, 1), HopPlan { next: Target::Port(0), ..hop(1, 0) }],
    };
    assert_eq!(straight.find_loop(), None);
    let round = Blueprint { hops: vec![hop(0, 1), hop(1, 0)], ..straight.clone() };
    assert_eq!(round.find_loop(), Some(vec![0, 1]));
    let by_edge = Blueprint {
        nodes: vec![straight.nodes[0].clone(), node(vec![Target::Nowhere, Target::Hop(Hop(1))])],
        ..straight
    };
    assert_eq!(by_edge.find_loop(), Some(vec![1]));
}
