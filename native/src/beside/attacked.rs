//! What packets cost where half of them are hostile, beside the same without hostile ones.

use super::{Table, What};
use crate::fixture::{Memory, Random};
use crate::rows::{node, worker};
use crate::sample::compare_costs;
use crate::{conntrack, maglev, nat};
use dpdk::Mempool;
use kit::Hostile;
use packet::{BURST, Pool, clock};
use runtime::{Drain, Source, Worker};
use std::sync::Arc;

/// Flows of the good packets, and how many the tables have room for: the hostile ones fill it.
const FLOWS: u32 = 4096;
const ROOM: u32 = 16_384;
/// Frames that go round.
const FRAMES: usize = 65_536;
/// Bursts that are made ready together, and cycles of a sample.
const BURSTS: usize = 8;
const SAMPLE: u64 = 1_000_000;

struct Target {
    kind: &'static str,
    settings: String,
    /// What flow `n` begins with.
    begin: fn(u32) -> Vec<Vec<u8>>,
    /// A packet of it.
    packet: fn(u32) -> Vec<u8>,
}

fn targets() -> [Target; 3] {
    [
        Target {
            kind: nat::NAME,
            settings: format!("external = [\"203.0.113.1\"]\nsessions = {ROOM}"),
            begin: |n| vec![nat::packet(n)],
            packet: nat::packet,
        },
        Target {
            kind: "firewall",
            settings: format!("{}\ntrack = {{ connections = {ROOM} }}", conntrack::RULES),
            begin: |n| conntrack::handshake(n).into(),
            packet: |n| conntrack::established(n, true),
        },
        Target {
            kind: "maglev",
            settings: maglev::How::Nat.settings(ROOM),
            begin: |n| vec![maglev::packet(n)],
            packet: maglev::packet,
        },
    ]
}

/// One NF under way.
struct Side {
    worker: Worker,
    from: Memory,
    to: Memory,
    frames: Vec<Vec<u8>>,
    at: usize,
    pool: Arc<Mempool>,
}

impl Side {
    fn new(target: &Target, frames: Vec<Vec<u8>>, pool: &Arc<Mempool>) -> Self {
        let (from, to) = (Memory::new(BURSTS * BURST), Memory::new(BURSTS * BURST));
        let (source, drain) = (Source::Other(Box::new(from.handle())), Drain::Other(Box::new(to.handle())));
        let worker = worker(vec![node(target.kind, &target.settings)], vec![source], vec![drain], pool);
        let mut side = Side { worker, from, to, frames, at: 0, pool: pool.clone() };
        let begin: Vec<Vec<Vec<u8>>> = (0..FLOWS).map(target.begin).collect();
        for step in 0..begin[0].len() {
            for flows in begin.chunks(BURSTS * BURST) {
                side.feed(flows.iter().map(|frames| &frames[step]));
            }
        }
        side
    }

    /// Puts whole bursts through; cycles that it took.
    fn feed<'a>(&mut self, frames: impl Iterator<Item = &'a Vec<u8>>) -> u64 {
        let mut bursts = 0;
        for (n, frame) in frames.enumerate() {
            self.from.give(self.pool.alloc_from(frame).expect("the pool has as many as the benchmark needs"));
            bursts = n / BURST + 1;
        }
        let from = clock::cycles();
        for _ in 0..bursts {
            self.worker.poll();
        }
        let cycles = clock::cycles() - from;
        drop(self.to.take());
        self.to.empty();
        cycles
    }

    /// Cycles per packet.
    fn sample(&mut self) -> f64 {
        let (mut cycles, mut packets) = (0, 0);
        let frames = core::mem::take(&mut self.frames);
        while cycles < SAMPLE {
            cycles += self.feed(frames[self.at..self.at + BURSTS * BURST].iter());
            packets += BURSTS * BURST;
            self.at = (self.at + BURSTS * BURST) % FRAMES;
        }
        self.frames = frames;
        cycles as f64 / packets as f64
    }
}

pub(super) fn rows(table: &mut Table<'_>, pool: &Arc<Mempool>) {
    for target in targets() {
        let what = format!("{}, half of it hostile", target.kind);
        if !table.wanted(&what) {
            continue;
        }
        let (mut random, mut hostile) = (Random(0x00a7_7ac4), Hostile::new(7));
        let good: Vec<Vec<u8>> = (0..FRAMES).map(|_| (target.packet)(random.next() % FLOWS)).collect();
        let mut mixed = good.clone();
        for frame in &mut mixed {
            if hostile.one_in(2) {
                // of any flow: addresses are spoofed
                *frame = hostile.of(&(target.packet)(random.next() >> 8));
            }
        }
        let (mut among, mut alone) = (Side::new(&target, mixed, pool), Side::new(&target, good, pool));
        let compared = compare_costs(table.pairs, || Some(among.sample()), || Some(alone.sample()));
        table.add(
            &What { what: &what, beside: "the same without", size: FLOWS as usize, unit: "packet" },
            &compared.expect("every sample counts"),
        );
    }
}
