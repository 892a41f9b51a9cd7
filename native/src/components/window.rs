//! The stream window, whose user copies the bytes that it receives, compared with a plain copy of the same bytes: TCP
//! segments of 1448 bytes, in order, forwarded unmodified.
//!
//! Each burst is timed separately; writing sequence numbers and checksums into the segments is not included.

use super::table::{ComponentTable, Measurement};
use crate::sample::compare_costs;
use anyhow::ensure;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};
use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use packet::{BURST, Batch, HeapPool, Packet, Pool, clock};
use std::sync::Arc;
use streams::window::{Event, Settings, Verdict};
use wire::{Tcp, TcpFlags, build, checksum};

/// Payload bytes of a segment with TCP timestamps on Ethernet.
const SEGMENT: usize = 1448;
/// Bytes of the longest window.
const WINDOW_MAX: usize = 8192;
/// Bursts of a sample.
const BURSTS: usize = 64;
/// Offsets of the sequence number, the checksum and the payload in a frame.
const SEQ: usize = 14 + 20 + 4;
const SUM: usize = 14 + 20 + 16;
const PAYLOAD: usize = 14 + 20 + 20;

/// Sink that collects packets, which are sent again.
#[derive(Default)]
struct Collector(Vec<Packet>);

impl Sink for Collector {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        self.0.extend(batch.drain());
    }
}

/// Flows with their next sequence numbers, and the packets of a sample. The number of flows divides that of packets or
/// is greater, so that a packet always belongs to the same flow.
struct Traffic {
    next: Vec<u32>,
    flow: usize,
    packets: Vec<Packet>,
    sent: Collector,
}

impl Traffic {
    fn new(flows: usize, pool: &HeapPool) -> Self {
        let frame = |n: usize| {
            let [high, low] = (n as u16).to_be_bytes();
            let payload: Vec<u8> = (0..SEGMENT).map(|at| (at * 7 + n) as u8).collect();
            let segment = build::tcp4([10, 1, high, low], [10, 0, 0, 2], 40_000, 80).flags(TcpFlags::ACK);
            segment.ack(1).payload(&payload).to_vec()
        };
        let packets = (0..flows.max(BURST * BURSTS)).map(|n| pool.alloc_from(&frame(n % flows)).expect("a buffer"));
        Traffic { next: vec![0; flows], flow: 0, packets: packets.rev().collect(), sent: Collector::default() }
    }

    /// Fills a batch with packets, each with the next bytes of its flow.
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

    /// Returns the cost of a segment with `work`, which sends every packet to the collector.
    fn cost(&mut self, mut work: impl FnMut(&mut Batch, &mut Collector)) -> f64 {
        let mut cycles = 0;
        for _ in 0..BURSTS {
            let mut batch = Batch::new();
            self.batch(&mut batch);
            let from = clock::cycles();
            work(&mut batch, &mut self.sent);
            cycles += clock::cycles() - from;
        }
        assert_eq!(self.sent.0.len(), BURSTS * BURST, "all packets pass");
        // packets are reused in the same order
        self.packets.splice(0..0, self.sent.0.drain(..).rev());
        cycles as f64 / (BURSTS * BURST) as f64
    }
}

/// Copies every payload.
fn copy(to: &mut [u8; SEGMENT], batch: &mut Batch, sent: &mut Collector) {
    for packet in batch.iter() {
        to.copy_from_slice(&packet.data()[PAYLOAD..]);
        black_box(&mut *to);
    }
    sent.send::<false>(0, batch);
}

/// Returns the sum of bytes.
fn total(bytes: &[u8]) -> u64 {
    bytes.iter().map(|b| u64::from(*b)).sum()
}

/// Returns a graph of a window whose user processes the bytes by `action`.
fn window_graph(settings: &Settings, mut action: Action, pool: &Arc<HeapPool>) -> anyhow::Result<Graph> {
    let node = streams::window::<Tcp, _>(settings, move |_, event| {
        if let Event::Window(window) = event {
            match &mut action {
                Action::Copy(to) => {
                    let bytes = window.bytes();
                    to[..bytes.len()].copy_from_slice(bytes);
                    black_box(&mut **to);
                }
                Action::Sum(sum) => _ = sum.fetch_add(total(window.bytes()), Ordering::Relaxed),
            }
        }
        Verdict::Forward
    });
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "window".into(), edges: vec![Target::Unconnected] }],
        hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), fail_open: false }],
    };
    Ok(Graph::new(&blueprint, vec![Box::new(node?)], pool.clone()))
}

/// Processing of the bytes by the user of the window.
enum Action {
    /// Copies them, as the baseline does.
    Copy(Box<[u8; WINDOW_MAX]>),
    /// Adds them up.
    Sum(Arc<AtomicU64>),
}

fn run(graph: &mut Graph, batch: &mut Batch, sent: &mut Collector) {
    graph.run::<false>(Target::Hop(Hop(0)), batch, sent);
}

pub(super) fn rows(table: &mut ComponentTable<'_>) -> anyhow::Result<()> {
    let pool = Arc::new(HeapPool::new(1 << 20));
    let plain = Settings::default();
    let rows: [(&str, Settings); 5] = [
        ("window, default", plain.clone()),
        ("window, 63 bytes repeated", Settings { size: 63, ..plain.clone() }),
        ("window, 4096 bytes", Settings { size: 4096, increment: 4096, ..plain.clone() }),
        ("window, with checksums", Settings { checksums: true, ..plain.clone() }),
        ("window, hold", Settings { hold: true, ..plain.clone() }),
    ];
    let selected: Vec<_> = rows.into_iter().filter(|(name, _)| table.is_selected(name)).collect();
    if selected.is_empty() {
        return Ok(());
    }
    // verifies that the window receives the bytes of the packets
    let (received, mut copied) = (Arc::new(AtomicU64::new(0)), 0);
    let mut graph = window_graph(&plain, Action::Sum(received.clone()), &pool)?;
    for _ in 0..4 {
        Traffic::cost(&mut Traffic::new(16, &pool), |batch, sent| {
            copied += batch.iter().map(|p| total(&p.data()[PAYLOAD..])).sum::<u64>();
            sent.send::<false>(0, batch);
        });
    }
    let mut traffic = Traffic::new(16, &pool);
    for _ in 0..4 {
        traffic.cost(|batch, sent| run(&mut graph, batch, sent));
    }
    let received = received.load(Ordering::Relaxed);
    ensure!(received == copied, "window: its bytes add up to {received}, those of the packets to {copied}");
    drop((graph, traffic));
    for flows in [1, 10_000] {
        for (name, settings) in &selected {
            let mut graph = window_graph(settings, Action::Copy(Box::new([0; WINDOW_MAX])), &pool)?;
            let (mut ours, mut baseline) = (Traffic::new(flows, &pool), Traffic::new(flows, &pool));
            let mut to = [0; SEGMENT];
            let compared = compare_costs(
                table.pairs,
                || Some(ours.cost(|batch, sent| run(&mut graph, batch, sent))),
                || Some(baseline.cost(|batch, sent| copy(&mut to, batch, sent))),
            );
            let measurement = Measurement { name, baseline: "memcpy", size: flows, unit: "segment" };
            table.add(&measurement, &compared.expect("every sample is valid"));
            table.set_bytes(SEGMENT);
        }
    }
    Ok(())
}
