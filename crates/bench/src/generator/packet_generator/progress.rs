//! Progress of a trial, read by other threads.

use packet::clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Intervals per second at which the generator publishes its counts.
const PUBLISHED_PER_SECOND: u64 = 8;

/// Progress of the current trial.
#[derive(Debug, Default)]
pub(crate) struct TrialProgress {
    /// True once the first packet is due.
    pub(crate) started: AtomicBool,
    /// True once the last packet was sent.
    pub(crate) ended: AtomicBool,
    /// Starts and ends of trials so far: odd while packets are sent.
    changes: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    latencies: AtomicU64,
    latency_sum_ns: AtomicU64,
    /// Time of the counts, ticks.
    at: AtomicU64,
}

/// Counts of a trial while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LiveCounts {
    /// Packets since the generator was created, with warm-up packets.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Recorded latencies of the trial, and their sum.
    pub(crate) latencies: u64,
    pub(crate) latency_sum_ns: u64,
    /// Time of the counts, ticks.
    pub(crate) at: u64,
}

impl TrialProgress {
    /// Marks the start of a trial.
    pub(super) fn start(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.started.store(true, Ordering::Release);
    }

    /// Marks the time after the last sent packet.
    pub(super) fn end(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.ended.store(true, Ordering::Release);
    }

    /// Stores the counts; returns the time at which to store them again. A reader may see some of an earlier call.
    #[cold]
    pub(super) fn publish(&self, counts: LiveCounts) -> u64 {
        self.sent.store(counts.sent, Ordering::Relaxed);
        self.received.store(counts.received, Ordering::Relaxed);
        self.latencies.store(counts.latencies, Ordering::Relaxed);
        self.latency_sum_ns.store(counts.latency_sum_ns, Ordering::Relaxed);
        self.at.store(counts.at, Ordering::Release);
        counts.at + clock::hz() / PUBLISHED_PER_SECOND
    }

    /// Returns the number of the current trial and its last published counts; none between trials.
    pub(crate) fn counts(&self) -> Option<(u64, LiveCounts)> {
        let trial = self.changes.load(Ordering::Acquire);
        let at = self.at.load(Ordering::Acquire);
        let counts = LiveCounts {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            latencies: self.latencies.load(Ordering::Relaxed),
            latency_sum_ns: self.latency_sum_ns.load(Ordering::Relaxed),
            at,
        };
        (trial % 2 == 1 && trial == self.changes.load(Ordering::Acquire)).then_some((trial, counts))
    }
}
