//! Measures the window: TCP segments of 1448 bytes in order, forwarded unmodified, beside a plain copy of the same bytes.
//!
//! `cargo run --release -p bondstone-graph --example window`
//!
//! Each row is the median (and the fastest twentieth) of many samples of about 0.3 ms, all rows in turn. What making the
//! segments costs, which is writing a sequence number and a checksum into each, has its own row and is taken off the others.

use core::hint::black_box;
use graph::window::{Event, Settings, Verdict};
use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use packet::{BURST, Batch, HeapPool, Packet, Pool, clock};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{Tcp, TcpFlags, build, checksum};

/// Bytes of payload: what Ethernet leaves with TCP timestamps.
const SEGMENT: usize = 1448;
/// Batches of a sample.
const BATCHES: usize = 64;
/// How long each row is measured.
const TIME: Duration = Duration::from_millis(1500);
/// Where the sequence number and the checksum stand in a frame.
const SEQ: usize = 14 + 20 + 4;
const SUM: usize = 14 + 20 + 16;

/// Takes packets back, to be sent again.
#[derive(Default)]
struct Back(Vec<Packet>);

impl Sink for Back {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        self.0.extend(batch.drain());
    }
}

/// So many flows, each with its next sequence number, and one frame for each packet of a sample.
struct Traffic {
    next: Vec<u32>,
    flow: usize,
    packets: Vec<Packet>,
}

impl Traffic {
    fn new(flows: usize, pool: &HeapPool) -> Self {
        let frame = |n: usize| {
            let [high, low] = (n as u16).to_be_bytes();
            let payload: Vec<u8> = (0..SEGMENT).map(|at| (at * 7 + n) as u8).collect();
            let syn = build::tcp4([10, 1, high, low], [10, 0, 0, 2], 40_000, 80).flags(TcpFlags::ACK);
            syn.ack(1).payload(&payload).to_vec()
        };
        let packets = (0..flows.max(BURST * BATCHES)).map(|n| pool.alloc_from(&frame(n % flows)).expect("a buffer"));
        Traffic { next: vec![0; flows], flow: 0, packets: packets.rev().collect() }
    }

    /// The next batch, each packet with the next bytes of its flow.
    #[inline(always)]
    fn batch(&mut self, batch: &mut Batch) {
        for _ in 0..BURST {
            let Some(mut packet) = self.packets.pop() else { return };
            let next = &mut self.next[self.flow];
            let bytes = packet.data_mut();
            let old = u32::from_be_bytes([bytes[SEQ], bytes[SEQ + 1], bytes[SEQ + 2], bytes[SEQ + 3]]);
            let sum = checksum::update32(u16::from_be_bytes([bytes[SUM], bytes[SUM + 1]]), old, *next);
            bytes[SEQ..SEQ + 4].copy_from_slice(&next.to_be_bytes());
            bytes[SUM..SUM + 2].copy_from_slice(&sum.to_be_bytes());
            *next = next.wrapping_add(SEGMENT as u32);
            self.flow = if self.flow + 1 == self.next.len() { 0 } else { self.flow + 1 };
            let _ = batch.push(packet);
        }
    }

    /// Takes packets back, so that they come again in the same order.
    fn again(&mut self, sent: &mut Vec<Packet>) {
        self.packets.splice(0..0, sent.drain(..).rev());
    }
}

/// What is done with a batch.
trait Does {
    fn batch(&mut self, batch: &mut Batch, back: &mut Back);
}

struct Nothing;

impl Does for Nothing {
    fn batch(&mut self, batch: &mut Batch, back: &mut Back) {
        back.send::<false>(0, batch);
    }
}

/// Copies every payload.
struct Copies(Vec<u8>);

impl Does for Copies {
    fn batch(&mut self, batch: &mut Batch, back: &mut Back) {
        for packet in batch.iter() {
            self.0.copy_from_slice(&packet.data()[54..]);
            black_box(&mut self.0);
        }
        back.send::<false>(0, batch);
    }
}

impl Does for Graph {
    fn batch(&mut self, batch: &mut Batch, back: &mut Back) {
        self.run::<false>(Target::Hop(Hop(0)), batch, back);
    }
}

fn windowed(settings: &Settings, read: bool, pool: &Arc<HeapPool>) -> Graph {
    let node = graph::window::<Tcp>(settings, move |_, event| {
        if let Event::Window(window) = event {
            if read {
                // every byte is looked at
                black_box(window.bytes().iter().fold(0u8, |sum, byte| sum ^ byte));
            } else {
                black_box(window.bytes().len());
            }
        }
        Verdict::Forward
    });
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "window".into(), edges: vec![Target::Nowhere] }],
        hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), open: false }],
    };
    Graph::new(&blueprint, vec![Box::new(node.expect("settings make sense"))], pool.clone())
}

struct Row {
    name: &'static str,
    flows: usize,
    traffic: Traffic,
    does: Box<dyn Does>,
    /// Cycles for each packet.
    samples: Vec<f64>,
}

impl Row {
    fn sample(&mut self) {
        let mut back = Back(Vec::with_capacity(BURST * BATCHES));
        let from = clock::cycles();
        for _ in 0..BATCHES {
            let mut batch = Batch::new();
            self.traffic.batch(&mut batch);
            self.does.batch(&mut batch, &mut back);
        }
        let cycles = clock::cycles() - from;
        assert_eq!(back.0.len(), BURST * BATCHES, "all packets pass");
        self.samples.push(cycles as f64 / back.0.len() as f64);
        self.traffic.again(&mut back.0);
    }

    /// The share `at` of the samples is below that.
    fn quantile(&self, at: f64) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(sorted.len() as f64 * at) as usize]
    }
}

fn main() {
    let pool = Arc::new(HeapPool::new(1 << 20));
    let plain = Settings::default();
    let overlap = Settings { size: 63, ..plain.clone() };
    let fixed = Settings { size: 4096, increment: 4096, ..plain.clone() };
    let held = Settings { hold: true, ..plain.clone() };
    let mut rows: Vec<Row> = vec![];
    for flows in [1, 10_000] {
        let copies = || Box::new(Copies(vec![0; SEGMENT])) as Box<dyn Does>;
        let window = |settings: &Settings, read| Box::new(windowed(settings, read, &pool)) as Box<dyn Does>;
        let all: [(&str, Box<dyn Does>); 8] = [
            ("making the segments", Box::new(Nothing)),
            ("plain copy", copies()),
            ("window, as bytes come", window(&plain, false)),
            ("  and each byte read", window(&plain, true)),
            ("  and 63 bytes again", window(&overlap, false)),
            ("  in windows of 4096", window(&fixed, false)),
            ("  with checksums", window(&Settings { checksums: true, ..plain.clone() }, false)),
            ("  held back", window(&held, false)),
        ];
        rows.extend(all.into_iter().map(|(name, does)| Row {
            name,
            flows,
            traffic: Traffic::new(flows, &pool),
            does,
            samples: vec![],
        }));
    }
    let began = Instant::now();
    while began.elapsed() < TIME * rows.len() as u32 {
        rows.iter_mut().for_each(Row::sample);
    }
    let ghz = clock::hz() as f64 / 1e9;
    println!("median (fastest twentieth)");
    println!("{:24} {:>6}  {:>18}  {:>18}", "", "flows", "cycles a segment", "Gbit/s of payload");
    let mut making = [0.0; 2];
    for row in &rows {
        let quantiles = [0.5, 0.05].map(|at| row.quantile(at));
        if row.name == "making the segments" {
            making = quantiles;
            println!("{:24} {:>6}  {:>8.1} ({:>7.1})", row.name, row.flows, making[0], making[1]);
            continue;
        }
        let [median, low] = [quantiles[0] - making[0], quantiles[1] - making[1]];
        let rate = |cycles: f64| (SEGMENT * 8) as f64 * ghz / cycles;
        let name = row.name;
        println!("{name:24} {:>6}  {median:>8.1} ({low:>7.1})  {:>8.0} ({:>7.0})", row.flows, rate(median), rate(low));
    }
}
