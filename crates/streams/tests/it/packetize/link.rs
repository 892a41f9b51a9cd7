//! A wire that loses, doubles and reorders what it carries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Random numbers (xorshift64*).
#[derive(Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n.max(1)
    }

    /// Returns true with a probability in thousandths.
    pub(crate) fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

/// How bad a wire is: events in a thousand frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Badness {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) late: u64,
    /// Delay in ms, and more at most for those that are late.
    pub(crate) delay: u64,
    pub(crate) jitter: u64,
}

pub(crate) struct Link {
    random: Random,
    badness: Badness,
    number: u64,
    on_the_way: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
}

impl Link {
    pub(crate) fn new(seed: u64, badness: Badness) -> Self {
        Link { random: Random::new(seed), badness, number: 0, on_the_way: BinaryHeap::new() }
    }

    pub(crate) fn send(&mut self, now: u64, frame: Vec<u8>) {
        let Badness { lost, doubled, late, delay, jitter } = self.badness;
        if self.random.happens(lost) {
            return;
        }
        let copies = if self.random.happens(doubled) { 2 } else { 1 };
        for _ in 0..copies {
            let more = if self.random.happens(late) { 1 + self.random.below(jitter) } else { 0 };
            self.number += 1;
            self.on_the_way.push(Reverse((now + delay + more, self.number, frame.clone())));
        }
    }

    /// Frames that have arrived by now.
    pub(crate) fn arrived(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut all = vec![];
        while self.on_the_way.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            all.extend(self.on_the_way.pop().map(|Reverse((.., frame))| frame));
        }
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.on_the_way.is_empty()
    }
}
