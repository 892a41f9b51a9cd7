//! Observers of a graph: the places and packets that they see.

use graph::{Blueprint, Context, Graph, Hop, HopPlan, Node, NodePlan, NodeStats, Observer, Point, Sink, Target};
use packet::{Batch, HeapPool, Packet, Pool};
use proptest::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Accepts a number of packets of each batch.
struct Out(usize, Vec<u8>);

impl Sink for Out {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        let mut packets: Vec<Packet> = batch.drain().collect();
        let refused = packets.split_off(self.0.min(packets.len()));
        self.1.extend(packets.iter().map(|packet| packet.data()[1]));
        refused.into_iter().for_each(|packet| batch.push(packet).unwrap());
    }
}

/// Does with each packet what its first byte says.
struct Scripted;

impl Node for Scripted {
    fn drops(&self) -> &[&'static str] {
        &["scripted"]
    }
    fn outputs(&self) -> &[&'static str] {
        &["out", "second", "third"]
    }
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        for packet in batch.drain() {
            match packet.data()[0] {
                0 => batch.push(packet).unwrap(),
                1 => cx.drop(0, packet),
                2 => cx.emit(1, packet),
                3 => cx.emit(2, packet),
                4 => {
                    cx.explain(|| "copied".to_owned());
                    let copy = cx.copy(&packet).unwrap();
                    cx.emit(1, copy);
                    batch.push(packet).unwrap();
                }
                _ => panic!("on purpose"),
            }
        }
    }
}

/// Notes what it sees; packets by their second byte.
struct Notes {
    alone: u64,
    notes: Vec<String>,
}

impl Observer for Notes {
    fn received(&mut self, input: usize, packets: &[Packet]) -> u64 {
        self.notes.push(format!("received by {input}: {}", packets.len()));
        self.alone
    }
    fn sees(&mut self, at: Point, packets: &[Packet]) {
        if !packets.is_empty() {
            let numbers: Vec<u8> = packets.iter().map(|packet| packet.data()[1]).collect();
            self.notes.push(format!("{at:?} {numbers:?}"));
        }
    }
    fn processed(&mut self, hop: Hop, _: u64, stats: &NodeStats) {
        self.notes.push(format!("processed at {}: {} packets", hop.0, stats.packets.get()));
    }
    fn wants_explanations(&self) -> bool {
        true
    }
    fn explained(&mut self, _: Hop, text: String) {
        self.notes.push(text);
    }
}

/// Two nodes in front of port 0; the second output of the first leads to port 1, the third nowhere.
fn graph(pool: &Arc<HeapPool>) -> Graph {
    let edges = |second| vec![Target::Unconnected, second, Target::Unconnected];
    let hop = |node, next| HopPlan { node, input: 0, next, fail_open: false };
    let blueprint = Blueprint {
        nodes: vec![
            NodePlan { name: "a".into(), edges: edges(Target::Port(1)) },
            NodePlan { name: "b".into(), edges: edges(Target::Port(1)) },
        ],
        hops: vec![hop(0, Target::Hop(Hop(1))), hop(1, Target::Port(0))],
    };
    Graph::new(&blueprint, vec![Box::new(Scripted), Box::new(Scripted)], pool.clone())
}

fn batch(pool: &HeapPool, actions: &[u8]) -> Batch {
    let mut batch = Batch::new();
    for (n, action) in actions.iter().enumerate() {
        batch.push(pool.alloc_from(&[*action, n as u8, 0, 0]).unwrap()).unwrap();
    }
    batch
}

fn notes(graph: &mut Graph) -> Vec<String> {
    let mut observer = graph.observe(None).unwrap();
    let observer: &mut dyn Any = &mut *observer;
    std::mem::take(&mut observer.downcast_mut::<Notes>().unwrap().notes)
}

#[test]
fn every_place_of_a_packet_is_seen() {
    let pool = Arc::new(HeapPool::new(64));
    let mut graph = graph(&pool);
    graph.observe(Some(Box::new(Notes { alone: 0b100, notes: vec![] })));
    let mut out = Out(1, vec![]);
    graph.run_observed(7, Target::Hop(Hop(0)), &mut batch(&pool, &[0, 1, 4, 2, 3, 0]), &mut out);
    assert_eq!(
        notes(&mut graph),
        [
            "received by 7: 6",
            // those before the one that is processed alone
            "Enter(Hop(0)) [0, 1]",
            "Drop(Hop(0), \"scripted\") [1]",
            "processed at 0: 2 packets",
            "Leave(Hop(0), 0) [0]",
            "Enter(Hop(1)) [0]",
            "processed at 1: 1 packets",
            "Leave(Hop(1), 0) [0]",
            "Send(0) [0]",
            // that one, which is copied twice
            "Enter(Hop(0)) [2]",
            "copied",
            "Create(Hop(0)) [2]",
            "processed at 0: 3 packets",
            "Leave(Hop(0), 0) [2]",
            "Enter(Hop(1)) [2]",
            "copied",
            "Create(Hop(1)) [2]",
            "processed at 1: 2 packets",
            "Leave(Hop(1), 0) [2]",
            "Send(0) [2]",
            "Leave(Hop(1), 1) [2]",
            "Send(1) [2]",
            "Leave(Hop(0), 1) [2]",
            "Send(1) [2]",
            // the others
            "Enter(Hop(0)) [3, 4, 5]",
            "processed at 0: 6 packets",
            "Leave(Hop(0), 0) [5]",
            "Enter(Hop(1)) [5]",
            "processed at 1: 3 packets",
            "Leave(Hop(1), 0) [5]",
            "Send(0) [5]",
            "Leave(Hop(0), 2) [4]",
            "Drop(Hop(0), \"no_edge\") [4]",
            "Leave(Hop(0), 1) [3]",
            "Send(1) [3]",
        ]
    );
    assert_eq!(out.1, [0, 2, 2, 2, 5, 3]);
}

#[test]
fn refused_packets_are_seen() {
    let pool = Arc::new(HeapPool::new(64));
    let mut graph = graph(&pool);
    graph.observe(Some(Box::new(Notes { alone: 0, notes: vec![] })));
    graph.run_observed(0, Target::Port(3), &mut batch(&pool, &[0, 0, 0]), &mut Out(1, vec![]));
    assert_eq!(notes(&mut graph), ["received by 0: 3", "Send(3) [0, 1, 2]", "Refuse(3, \"tx_full\") [1, 2]"]);
}

proptest! {
    #[test]
    fn an_observed_graph_does_what_another_does(
        actions in prop::collection::vec(0..6_u8, 1..64), alone: u64,
    ) {
        let run = |observed: bool| {
            let pool = Arc::new(HeapPool::new(512));
            let mut graph = graph(&pool);
            let (mut out, mut batch) = (Out(64, vec![]), batch(&pool, &actions));
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                if observed {
                    graph.observe(Some(Box::new(Notes { alone, notes: vec![] })));
                    graph.run_observed(0, Target::Hop(Hop(0)), &mut batch, &mut out);
                } else {
                    graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut out);
                }
            }));
            if let Err(payload) = panicked {
                assert!(graph.quarantine(&mut batch, payload).is_ok());
            }
            let stats: Vec<_> = graph.stats().map(|(_, stats)| (stats.created.get(), stats.dropped())).collect();
            (out.1, stats)
        };
        let ((observed, stats), (plain, plain_stats)) = (run(true), run(false));
        let balance = |sent: &[u8], stats: &[(u64, u64)]| {
            let (created, dropped) = stats.iter().fold((0, 0), |sum, node| (sum.0 + node.0, sum.1 + node.1));
            actions.len() as u64 + created == sent.len() as u64 + dropped
        };
        prop_assert!(balance(&observed, &stats) && balance(&plain, &plain_stats), "{:?} {:?}", observed, stats);
        if !actions.contains(&5) {
            let sorted = |mut all: Vec<u8>| {
                all.sort_unstable();
                all
            };
            prop_assert_eq!(sorted(observed), sorted(plain));
            prop_assert_eq!(stats, plain_stats);
        }
    }
}
