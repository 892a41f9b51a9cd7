//! An NF between a source and a sink in memory, for rows with many different frames.

use crate::fixture::Memory;
use crate::pair::{Ports, node, worker};
use dpdk::Mempool;
use packet::{BURST, Pool, clock};
use runtime::{RxPort, TxPort, Worker};
use std::sync::Arc;

/// Length of the cyclic list of frames.
pub(super) const FRAMES: usize = 65_536;
/// Bursts that are prepared together.
const BURSTS: usize = 4;
/// Minimum number of cycles of a sample.
const SAMPLE_CYCLES: u64 = 1_000_000;

/// An NF with its worker and frames.
pub(super) struct NfLoop {
    worker: Worker,
    from: Memory,
    to: Memory,
    frames: Vec<Vec<u8>>,
    at: usize,
    pool: Arc<Mempool>,
}

impl NfLoop {
    /// Returns an NF that has processed the first frames of its flows, equally many for each, and its [`FRAMES`]
    /// frames.
    pub(super) fn new(
        kind: &'static str,
        settings: &str,
        begin: impl Iterator<Item = Vec<Vec<u8>>>,
        frames: Vec<Vec<u8>>,
        pool: &Arc<Mempool>,
    ) -> Self {
        let (from, to) = (Memory::new(BURSTS * BURST), Memory::new(BURSTS * BURST));
        let (source, sink) = (RxPort::Other(Box::new(from.handle())), TxPort::Other(Box::new(to.handle())));
        let worker = worker((vec![node(kind, settings)], &[]), Ports::One, vec![source], vec![sink], pool);
        let mut nf = NfLoop { worker, from, to, frames, at: 0, pool: pool.clone() };
        let begin: Vec<Vec<Vec<u8>>> = begin.collect();
        // whole bursts: the first flows are opened twice
        let whole = begin.len().next_multiple_of(BURST);
        for step in 0..begin[0].len() {
            let frames: Vec<_> = begin.iter().cycle().take(whole).map(|frames| &frames[step]).collect();
            for chunk in frames.chunks(BURSTS * BURST) {
                nf.feed(chunk.iter().copied());
            }
        }
        nf
    }

    /// Processes whole bursts and returns the number of cycles.
    fn feed<'a>(&mut self, frames: impl Iterator<Item = &'a Vec<u8>>) -> u64 {
        let mut bursts = 0;
        for (n, frame) in frames.enumerate() {
            self.from.push(self.pool.alloc_from(frame).expect("the pool has enough buffers"));
            bursts = n / BURST + 1;
        }
        let start = clock::cycles();
        for _ in 0..bursts {
            self.worker.poll();
        }
        let cycles = clock::cycles() - start;
        drop(self.to.take());
        self.to.reset();
        cycles
    }

    /// Returns the cycles per packet of a sample.
    pub(super) fn sample(&mut self) -> f64 {
        let (mut cycles, mut packets) = (0, 0);
        let frames = core::mem::take(&mut self.frames);
        while cycles < SAMPLE_CYCLES {
            cycles += self.feed(frames[self.at..self.at + BURSTS * BURST].iter());
            packets += BURSTS * BURST;
            self.at = (self.at + BURSTS * BURST) % FRAMES;
        }
        self.frames = frames;
        cycles as f64 / packets as f64
    }
}
