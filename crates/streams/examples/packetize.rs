//! Measures packetize: a bulk transfer, segments of 1448 bytes and an acknowledgment for every second, rewritten by a closure
//! that changes nothing, beside the same packets passed unmodified.
//!
//! `cargo run --release -p bondstone-graph --example packetize`
//!
//! Each row is the median (and the fastest twentieth) of many samples of about 0.3 ms, all rows in turn. What making the packets
//! costs, which is writing a number and a checksum into each, has its own row and is taken off the others. A segment's cost is
//! that of its half of an acknowledgment too.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use packet::{BURST, Batch, HeapPool, Packet, Pool, clock};
use std::sync::Arc;
use std::time::{Duration, Instant};
use streams::packetize::{Packetized, Rewrite, Settings};
use wire::tcp::{TcpOption, options};
use wire::{TcpFlags, build, checksum};

/// Bytes of payload.
const SEGMENT: usize = 1448;
/// Batches of segments in a sample; half as many acknowledgments follow each.
const BATCHES: usize = 64;
/// How long each row is measured.
const TIME: Duration = Duration::from_millis(1500);
const SEQ: usize = 14 + 20 + 4;
const ACK: usize = SEQ + 4;
const SUM: usize = 14 + 20 + 16;
const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

/// Takes packets back, by port.
#[derive(Default)]
struct Back([Vec<Packet>; 2]);

impl Sink for Back {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0[usize::from(port)].extend(batch.drain());
    }
}

/// One connection: packets of both directions, and the next number of the stream.
struct Row {
    name: &'static str,
    graph: Option<Graph>,
    packets: [Vec<Packet>; 2],
    next: u32,
    /// Cycles for each segment.
    samples: Vec<f64>,
}

/// Writes a number into a packet.
fn number(packet: &mut Packet, at: usize, number: u32) {
    let bytes = packet.data_mut();
    let old = u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let sum = checksum::update32(u16::from_be_bytes([bytes[SUM], bytes[SUM + 1]]), old, number);
    bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
    bytes[SUM..SUM + 2].copy_from_slice(&sum.to_be_bytes());
}

impl Row {
    fn new<R: Rewrite>(name: &'static str, node: Option<Packetized<R>>, pool: &Arc<HeapPool>) -> Self {
        let list = options(&[TcpOption::Mss(SEGMENT as u16), TcpOption::WindowScale(7)]).expect("they fit");
        let there = build::tcp4(A, B, 40_000, 80).window(60_000);
        let back = build::tcp4(B, A, 80, 40_000).window(60_000);
        let graph = node.map(|node| {
            let blueprint = Blueprint {
                nodes: vec![NodePlan { name: "between".into(), edges: vec![Target::Unconnected] }],
                hops: (0..2)
                    .map(|n| HopPlan { node: 0, input: n, next: Target::Port(n.into()), fail_open: false })
                    .collect(),
            };
            let mut graph = Graph::new(&blueprint, vec![Box::new(node)], pool.clone());
            let syn = there.clone().flags(TcpFlags::SYN).seq(0).tcp_options(list);
            let answer = back.clone().flags(TcpFlags::SYN_ACK).seq(0).ack(1).tcp_options(list);
            for (input, frame) in [(0, syn.to_vec()), (1, answer.to_vec())] {
                let mut batch = Batch::new();
                let _ = batch.push(pool.alloc_from(&frame).expect("a buffer"));
                graph.run::<false>(Target::Hop(Hop(input)), &mut batch, &mut Back::default());
            }
            graph
        });
        let payload: Vec<u8> = (0..SEGMENT).map(|at| at as u8).collect();
        let segment = there.flags(TcpFlags::ACK).seq(0).ack(1).payload(&payload).to_vec();
        let acknowledgment = back.flags(TcpFlags::ACK).seq(1).ack(0).to_vec();
        let many = |frame: &[u8], n: usize| (0..n).map(|_| pool.alloc_from(frame).expect("a buffer")).collect();
        let packets = [many(&segment, BURST * BATCHES), many(&acknowledgment, BURST * BATCHES / 2)];
        Row { name, graph, packets, next: 1, samples: vec![] }
    }

    fn sample(&mut self) {
        let mut back = Back([Vec::with_capacity(BURST * BATCHES), Vec::with_capacity(BURST * BATCHES)]);
        let from = clock::cycles();
        for _ in 0..BATCHES {
            for (input, n, at, each) in [(0u16, BURST, SEQ, SEGMENT), (1, BURST / 2, ACK, 2 * SEGMENT)] {
                let mut batch = Batch::new();
                let mut place = self.next;
                for _ in 0..n {
                    let Some(mut packet) = self.packets[usize::from(input)].pop() else { break };
                    // a segment has the number of its first byte, an acknowledgment that behind its last
                    place = if input == 1 { place.wrapping_add(each as u32) } else { place };
                    number(&mut packet, at, place);
                    place = if input == 0 { place.wrapping_add(each as u32) } else { place };
                    let _ = batch.push(packet);
                }
                match &mut self.graph {
                    Some(graph) => graph.run::<false>(Target::Hop(Hop(input)), &mut batch, &mut back),
                    None => back.send::<false>(input, &mut batch),
                }
                if input == 1 {
                    self.next = place;
                }
            }
        }
        let cycles = clock::cycles() - from;
        let came = back.0.each_ref().map(Vec::len);
        assert_eq!(came, [BURST * BATCHES, BURST * BATCHES / 2], "{}: all packets go on", self.name);
        self.samples.push(cycles as f64 / came[0] as f64);
        self.packets = back.0;
    }

    /// The share `at` of the samples is below that.
    fn quantile(&self, at: f64) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(sorted.len() as f64 * at) as usize]
    }
}

fn node(settings: &Settings) -> Option<Packetized<impl Rewrite>> {
    let node = streams::packetize(settings, |_, bytes, _, out| {
        out.extend_from_slice(bytes);
        bytes.len()
    });
    Some(node.expect("settings make sense"))
}

fn main() {
    let pool = Arc::new(HeapPool::new(1 << 16));
    let all = Settings { growth: 1, ..Settings::default() };
    let mut rows = [
        Row::new("making the packets", node(&all).filter(|_| false), &pool),
        Row::new("other ports", node(&Settings { ports: vec![1], ..all.clone() }), &pool),
        Row::new("rewritten", node(&all), &pool),
        Row::new("  without checking sums", node(&Settings { checksums: false, ..all.clone() }), &pool),
    ];
    let began = Instant::now();
    while began.elapsed() < TIME * rows.len() as u32 {
        rows.iter_mut().for_each(Row::sample);
    }
    let ghz = clock::hz() as f64 / 1e9;
    println!("median (fastest twentieth)");
    println!("{:24} {:>18}  {:>18}", "", "cycles a segment", "Gbit/s of payload");
    let mut making = [0.0; 2];
    for row in &rows {
        let quantiles = [0.5, 0.05].map(|at| row.quantile(at));
        if row.graph.is_none() {
            making = quantiles;
            println!("{:24} {:>8.1} ({:>7.1})", row.name, making[0], making[1]);
            continue;
        }
        let [median, low] = [quantiles[0] - making[0], quantiles[1] - making[1]];
        let rate = |cycles: f64| (SEGMENT * 8) as f64 * ghz / cycles;
        println!("{:24} {median:>8.1} ({low:>7.1})  {:>8.0} ({:>7.0})", row.name, rate(median), rate(low));
    }
}
