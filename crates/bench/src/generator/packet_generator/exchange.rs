//! Probes that a core of the generator received for streams of another one.
//!
//! Each stream is tracked by the core that sends it, as duplicates and reordering can only be counted in one place. A
//! core that receives a packet of another core's stream puts its probe into that core's inbox.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use traffic::{Probe, Receiver};

/// A probe and its arrival time in ticks.
type Entry = (Probe, u64);

/// Probes for one core.
#[derive(Default)]
struct Inbox {
    entries: Mutex<Vec<Entry>>,
    /// True if there are entries.
    is_filled: AtomicBool,
}

/// State of a trial that the cores of the generator share.
#[derive(Default)]
pub(super) struct SharedTrial {
    /// Number of streams of each core.
    streams: usize,
    inboxes: Vec<Inbox>,
    /// Packets sent and received by each core since it was created.
    counts: Vec<(AtomicU64, AtomicU64)>,
    /// Tick of the start; 0 before it is set.
    pub(super) start: AtomicU64,
    /// Number of further cores that are ready to send.
    pub(super) ready: AtomicUsize,
    /// Number of further cores that have sent all their packets.
    pub(super) done: AtomicUsize,
    /// True once the device is drained.
    pub(super) drained: AtomicBool,
    /// Number of cores that have forwarded all probes.
    pub(super) forwarded: AtomicUsize,
}

impl SharedTrial {
    /// Creates the state of a trial on `cores` cores with `streams` streams each.
    pub(super) fn new(cores: usize, streams: usize) -> SharedTrial {
        SharedTrial {
            streams,
            inboxes: (0..cores).map(|_| Inbox::default()).collect(),
            counts: (0..cores).map(|_| Default::default()).collect(),
            ..SharedTrial::default()
        }
    }

    /// Publishes the packets that a core has sent and received.
    pub(super) fn set_counts(&self, core: usize, sent: u64, received: u64) {
        self.counts[core].0.store(sent, Ordering::Relaxed);
        self.counts[core].1.store(received, Ordering::Relaxed);
    }

    /// Returns the packets that the further cores have sent and received.
    pub(super) fn further_counts(&self) -> (u64, u64) {
        let add = |(sent, received): (u64, u64), (s, r): &(AtomicU64, AtomicU64)| {
            (sent + s.load(Ordering::Relaxed), received + r.load(Ordering::Relaxed))
        };
        self.counts.iter().skip(1).fold((0, 0), add)
    }
}

/// One core's side of the exchange.
pub(super) struct Exchange {
    pub(super) core: usize,
    pub(super) shared: Arc<SharedTrial>,
    /// Probes for each core that are not in its inbox yet.
    outboxes: Vec<Vec<Entry>>,
    /// Entries taken from the inbox, kept for its memory.
    taken: Vec<Entry>,
}

impl Exchange {
    pub(super) fn new(core: usize, shared: Arc<SharedTrial>) -> Exchange {
        let outboxes = shared.inboxes.iter().map(|_| vec![]).collect();
        Exchange { core, shared, outboxes, taken: vec![] }
    }

    /// Keeps a probe for the core that tracks its stream; returns false if there is none.
    #[inline]
    pub(super) fn forward(&mut self, probe: Probe, at: u64) -> bool {
        let core = usize::from(probe.stream) / self.shared.streams;
        match self.outboxes.get_mut(core) {
            Some(outbox) if core != self.core => {
                outbox.push((probe, at));
                true
            }
            _ => false,
        }
    }

    /// Moves probes into the inboxes of other cores and takes those of its own; does not wait for another core, which
    /// may be preempted.
    pub(super) fn poll(&mut self, receiver: &mut Receiver) {
        for (inbox, outbox) in self.shared.inboxes.iter().zip(&mut self.outboxes) {
            if !outbox.is_empty()
                && let Ok(mut entries) = inbox.entries.try_lock()
            {
                entries.append(outbox);
                inbox.is_filled.store(true, Ordering::Relaxed);
            }
        }
        let inbox = &self.shared.inboxes[self.core];
        if inbox.is_filled.load(Ordering::Relaxed)
            && let Ok(mut entries) = inbox.entries.try_lock()
        {
            std::mem::swap(&mut *entries, &mut self.taken);
            inbox.is_filled.store(false, Ordering::Relaxed);
        }
        for (probe, at) in self.taken.drain(..) {
            receiver.take_probe(probe, at);
        }
    }

    /// Moves the last probes into inboxes, waits until all cores have done so, and takes those of its own.
    pub(super) fn finish(&mut self, receiver: &mut Receiver) {
        for (inbox, outbox) in self.shared.inboxes.iter().zip(&mut self.outboxes) {
            inbox.entries.lock().unwrap_or_else(PoisonError::into_inner).append(outbox);
        }
        self.shared.forwarded.fetch_add(1, Ordering::AcqRel);
        while self.shared.forwarded.load(Ordering::Acquire) < self.shared.inboxes.len() {
            std::thread::yield_now();
        }
        let mut entries = self.shared.inboxes[self.core].entries.lock().unwrap_or_else(PoisonError::into_inner);
        for (probe, at) in entries.drain(..) {
            receiver.take_probe(probe, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traffic::Sequence;

    #[test]
    fn a_probe_is_tracked_by_the_core_of_its_stream() {
        let shared = Arc::new(SharedTrial::new(2, 2));
        let mut cores = [0, 1].map(|core| Exchange::new(core, shared.clone()));
        let probe = |stream, sequence| Probe { stream, sequence, stamp: 0 };
        // streams 0 and 1 are those of core 0, and 2 and 3 those of core 1
        assert!(!cores[0].forward(probe(1, 0), 5) && cores[0].forward(probe(2, 0), 5));
        assert!(cores[0].forward(probe(2, 1), 5) && cores[1].forward(probe(0, 0), 5));
        assert!(!cores[0].forward(probe(4, 0), 5) && !cores[0].forward(probe(255, 0), 5), "no such core");
        let mut receivers = [0, 2].map(|stream| {
            let mut receiver = Receiver::without_streams(usize::MAX, 1_000_000_000);
            receiver.set_stream(stream, Sequence::new(0, 10));
            receiver
        });
        cores[0].poll(&mut receivers[0]);
        cores[1].poll(&mut receivers[1]);
        assert_eq!([&receivers[0], &receivers[1]].map(|r| r.totals(2).received), [0, 2]);
        assert!(cores[0].forward(probe(2, 1), 7), "a copy");
        let [first, second] = &mut cores;
        let [of_first, of_second] = &mut receivers;
        std::thread::scope(|scope| {
            scope.spawn(|| first.finish(of_first));
            second.finish(of_second);
        });
        assert_eq!((of_first.totals(1).received, of_second.totals(2).received), (1, 2));
        assert_eq!((of_second.totals(2).duplicate, of_first.totals(1).frames), (1, 0));
    }
}
