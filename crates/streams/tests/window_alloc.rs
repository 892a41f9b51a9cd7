//! Once it runs, the window takes no memory from the system, whether segments come in order or not.

use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use packet::{BURST, Batch, HeapPool, Packet, Pool};
use std::sync::Arc;
use streams::window::{Settings, Verdict};
use wire::{Tcp, TcpFlags, build};

struct Back(Vec<Packet>);

impl Sink for Back {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        self.0.extend(batch.drain());
    }
}

const FLOWS: usize = 50;
const SEGMENT: u32 = 1000;
const SEQ: usize = 14 + 20 + 4;

/// Sends rounds of eight segments of each flow, in the order of `order`, and says how often memory was asked for while it
/// warmed up, and from then on.
fn allocations(settings: &Settings, order: [u32; 8]) -> (u64, u64) {
    let node = streams::window::<Tcp, _>(settings, |_, _| Verdict::Forward).unwrap();
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "window".into(), edges: vec![Target::Unconnected] }],
        hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
    };
    let pool = Arc::new(HeapPool::new(1000));
    let mut graph = Graph::new(&blueprint, vec![Box::new(node)], pool.clone());
    // packets and what they carry are made once, and sent again and again
    let frame = |flow: usize, flags| {
        let frame = build::tcp4([10, 0, 0, flow as u8], [10, 0, 1, 1], 40_000, 80).flags(flags);
        pool.alloc_from(
            &frame.seq(0).payload(&[7; SEGMENT as usize][..if flags == TcpFlags::SYN { 0 } else { 1000 }]).to_vec(),
        )
    };
    let mut back = Back(Vec::with_capacity(1000));
    let mut batch = Batch::new();
    for flow in 0..FLOWS {
        batch.push(frame(flow, TcpFlags::SYN).unwrap()).unwrap();
        graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut back);
    }
    back.0.clear();
    let mut flows: Vec<Vec<Packet>> =
        (0..FLOWS).map(|flow| (0..8).map(|_| frame(flow, TcpFlags::ACK).unwrap()).collect()).collect();
    let mut next = 1u32;
    let mut round = || {
        for packets in &mut flows {
            for at in order {
                let mut packet = packets.pop().unwrap();
                let seq = next.wrapping_add(at * SEGMENT);
                packet.data_mut()[SEQ..SEQ + 4].copy_from_slice(&seq.to_be_bytes());
                batch.push(packet).unwrap();
                if batch.len() == BURST / 4 - 1 {
                    graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut back);
                }
            }
            graph.run::<false>(Target::Hop(Hop(0)), &mut batch, &mut back);
            packets.append(&mut back.0);
        }
        next = next.wrapping_add(8 * SEGMENT);
    };
    let warm = allocation_counter::measure(|| (0..10).for_each(|_| round()));
    let counted = allocation_counter::measure(|| (0..10).for_each(|_| round()));
    assert!(flows.iter().all(|packets| packets.len() == 8), "all packets came back");
    (warm.count_total, counted.count_total)
}

#[test]
#[cfg_attr(miri, ignore = "its flow table is another")]
fn no_memory_is_taken_from_the_system() {
    let orders = [[0, 1, 2, 3, 4, 5, 6, 7], [1, 0, 3, 2, 5, 4, 7, 6], [7, 2, 3, 1, 0, 6, 4, 5]];
    for (size, increment) in [(0, 0), (100, 0), (2000, 2000), (700, 300)] {
        for hold in [false, true] {
            // bytes that fill no window may wait beyond the round in which their packet is wanted back
            if hold && increment != 0 {
                continue;
            }
            let settings = Settings { size, increment, hold, ..Settings::default() };
            for order in orders {
                let (warm, counted) = allocations(&settings, order);
                assert_eq!(counted, 0, "{size} {increment} {hold} {order:?}");
                // what has to be kept was asked for
                assert_eq!(warm > 0, size != 0 || order != orders[0], "{size} {increment} {hold} {order:?}");
            }
        }
    }
}
