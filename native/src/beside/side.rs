//! An NF between a source and a sink in memory, for rows whose frames are all different.

use crate::fixture::Memory;
use crate::rows::{Ports, node, worker};
use dpdk::Mempool;
use packet::{BURST, Pool, clock};
use runtime::{Drain, Source, Worker};
use std::sync::Arc;

/// Frames that go round.
pub(super) const FRAMES: usize = 65_536;
/// Bursts that are made ready together, and cycles of a sample.
const BURSTS: usize = 8;
const SAMPLE: u64 = 1_000_000;

/// One NF under way.
pub(super) struct Side {
    worker: Worker,
    from: Memory,
    to: Memory,
    frames: Vec<Vec<u8>>,
    at: usize,
    pool: Arc<Mempool>,
}

impl Side {
    /// An NF whose flows begin with as many frames each, and the frames that go round: [`FRAMES`].
    pub(super) fn new(
        kind: &'static str,
        settings: &str,
        begin: impl Iterator<Item = Vec<Vec<u8>>>,
        frames: Vec<Vec<u8>>,
        pool: &Arc<Mempool>,
    ) -> Self {
        let (from, to) = (Memory::new(BURSTS * BURST), Memory::new(BURSTS * BURST));
        let (source, drain) = (Source::Other(Box::new(from.handle())), Drain::Other(Box::new(to.handle())));
        let worker = worker(vec![node(kind, settings)], Ports::One, vec![source], vec![drain], pool);
        let mut side = Side { worker, from, to, frames, at: 0, pool: pool.clone() };
        let begin: Vec<Vec<Vec<u8>>> = begin.collect();
        // whole bursts: the last ones begin twice
        let whole = begin.len().next_multiple_of(BURST);
        for step in 0..begin[0].len() {
            let frames: Vec<_> = begin.iter().cycle().take(whole).map(|frames| &frames[step]).collect();
            for some in frames.chunks(BURSTS * BURST) {
                side.feed(some.iter().copied());
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
    pub(super) fn sample(&mut self) -> f64 {
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
