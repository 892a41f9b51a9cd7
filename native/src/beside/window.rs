//! The window, whose user copies the bytes that it is shown, beside a plain copy of the same bytes: TCP segments of 1448
//! bytes, in order, forwarded unmodified.
//!
//! Each burst is timed alone. Writing a sequence number and a checksum into each segment comes before, and does not count.

use super::{Table, What};
use crate::sample::compare_costs;
use anyhow::ensure;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};
use graph::{Blueprint, Graph, Hop, HopPlan, NodePlan, Sink, Target};
use packet::{BURST, Batch, HeapPool, Packet, Pool, clock};
use std::sync::Arc;
use streams::window::{Event, Settings, Verdict};
use wire::{Tcp, TcpFlags, build, checksum};

/// Bytes of payload: what Ethernet leaves with TCP timestamps.
const SEGMENT: usize = 1448;
/// The longest window.
const LONGEST: usize = 8192;
/// Bursts in a sample.
const BURSTS: usize = 64;
/// Where the sequence number, the checksum and the payload stand in a frame.
const SEQ: usize = 14 + 20 + 4;
const SUM: usize = 14 + 20 + 16;
const PAYLOAD: usize = 14 + 20 + 20;

/// Takes packets back, to be sent again.
#[derive(Default)]
struct Back(Vec<Packet>);

impl Sink for Back {
    fn send<const TIMED: bool>(&mut self, _: u16, batch: &mut Batch) {
        self.0.extend(batch.drain());
    }
}

/// So many flows, each with its next sequence number, and one frame for each packet of a sample. A number of flows that
/// divides that of packets, or is greater: then a packet is always of the same flow.
struct Traffic {
    next: Vec<u32>,
    flow: usize,
    packets: Vec<Packet>,
    back: Back,
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
        Traffic { next: vec![0; flows], flow: 0, packets: packets.rev().collect(), back: Back::default() }
    }

    /// The next batch, each packet with the next bytes of its flow.
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

    /// What a segment of a sample costs with `work`, which hands every packet back.
    fn cost(&mut self, mut work: impl FnMut(&mut Batch, &mut Back)) -> f64 {
        let mut spent = 0;
        for _ in 0..BURSTS {
            let mut batch = Batch::new();
            self.batch(&mut batch);
            let from = clock::cycles();
            work(&mut batch, &mut self.back);
            spent += clock::cycles() - from;
        }
        assert_eq!(self.back.0.len(), BURSTS * BURST, "all packets pass");
        // they come again in the same order
        self.packets.splice(0..0, self.back.0.drain(..).rev());
        spent as f64 / (BURSTS * BURST) as f64
    }
}

/// Copies every payload.
fn copy(to: &mut [u8; SEGMENT], batch: &mut Batch, back: &mut Back) {
    for packet in batch.iter() {
        to.copy_from_slice(&packet.data()[PAYLOAD..]);
        black_box(&mut *to);
    }
    back.send::<false>(0, batch);
}

/// Sum of bytes, as a checksum of what was seen.
fn total(bytes: &[u8]) -> u64 {
    bytes.iter().map(|b| u64::from(*b)).sum()
}

/// A window whose user does with the bytes what `reads` says.
fn windowed(settings: &Settings, mut reads: Reads, pool: &Arc<HeapPool>) -> anyhow::Result<Graph> {
    let node = streams::window::<Tcp, _>(settings, move |_, event| {
        if let Event::Window(window) = event {
            match &mut reads {
                Reads::Copy(to) => {
                    let bytes = window.bytes();
                    to[..bytes.len()].copy_from_slice(bytes);
                    black_box(&mut **to);
                }
                Reads::Sum(sum) => _ = sum.fetch_add(total(window.bytes()), Ordering::Relaxed),
            }
        }
        Verdict::Forward
    });
    let blueprint = Blueprint {
        nodes: vec![NodePlan { name: "window".into(), edges: vec![Target::Nowhere] }],
        hops: vec![HopPlan { node: 0, input: 0, next: Target::Port(0), open: false }],
    };
    Ok(Graph::new(&blueprint, vec![Box::new(node?)], pool.clone()))
}

/// What the window's user does with the bytes.
enum Reads {
    /// Copies them, as the other side does.
    Copy(Box<[u8; LONGEST]>),
    /// Adds them up.
    Sum(Arc<AtomicU64>),
}

fn run(graph: &mut Graph, batch: &mut Batch, back: &mut Back) {
    graph.run::<false>(Target::Hop(Hop(0)), batch, back);
}

pub(super) fn rows(table: &mut Table<'_>) -> anyhow::Result<()> {
    let pool = Arc::new(HeapPool::new(1 << 20));
    let plain = Settings::default();
    let rows: [(&str, Settings); 5] = [
        ("window, as bytes come", plain.clone()),
        ("window, and 63 bytes again", Settings { size: 63, ..plain.clone() }),
        ("window, 4096 at a time", Settings { size: 4096, increment: 4096, ..plain.clone() }),
        ("window, with checksums", Settings { checksums: true, ..plain.clone() }),
        ("window, held back", Settings { hold: true, ..plain.clone() }),
    ];
    let wanted: Vec<_> = rows.into_iter().filter(|(what, _)| table.wanted(what)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    // the window sees the bytes that a copy has
    let (seen, mut copied) = (Arc::new(AtomicU64::new(0)), 0);
    let mut graph = windowed(&plain, Reads::Sum(seen.clone()), &pool)?;
    for _ in 0..4 {
        Traffic::cost(&mut Traffic::new(16, &pool), |batch, back| {
            copied += batch.iter().map(|p| total(&p.data()[PAYLOAD..])).sum::<u64>();
            back.send::<false>(0, batch);
        });
    }
    let mut traffic = Traffic::new(16, &pool);
    for _ in 0..4 {
        traffic.cost(|batch, back| run(&mut graph, batch, back));
    }
    let seen = seen.load(Ordering::Relaxed);
    ensure!(seen == copied, "window: the bytes add up to {seen}, those of the packets to {copied}");
    drop((graph, traffic));
    for flows in [1, 10_000] {
        for (what, settings) in &wanted {
            let mut graph = windowed(settings, Reads::Copy(Box::new([0; LONGEST])), &pool)?;
            let (mut ours, mut theirs) = (Traffic::new(flows, &pool), Traffic::new(flows, &pool));
            let mut to = [0; SEGMENT];
            let compared = compare_costs(
                table.pairs,
                || Some(ours.cost(|batch, back| run(&mut graph, batch, back))),
                || Some(theirs.cost(|batch, back| copy(&mut to, batch, back))),
            );
            let what = What { what, beside: "memcpy", size: flows, unit: "segment" };
            table.add(&what, &compared.expect("every sample counts"));
            table.rate(SEGMENT);
        }
    }
    Ok(())
}
