//! Counters with one writer and any number of readers.

use crate::{StatsTable, Node};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A monotone count. One thread adds, any thread reads; neither waits.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only ever called from the one thread that owns the count.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// Puts `n` in its place, for what also goes down. Only from the thread that owns it.
    #[inline(always)]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The count so far.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts by their names, as [`Node::counters`] gives them.
    #[must_use]
    pub fn named<'a>(all: impl IntoIterator<Item = (&'a str, &'a Arc<Counter>)>) -> Vec<(String, Arc<Counter>)> {
        all.into_iter().map(|(name, count)| (name.to_owned(), count.clone())).collect()
    }
}

/// What one node on one core has done. Packets are always counted; cycles are measured on a sample of the batches.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct NodeStats {
    /// Packets that came in.
    pub packets: Counter,
    /// Packets that the node made.
    pub created: Counter,
    /// Packets that the node keeps for later, now.
    pub held: Counter,
    /// Cycles spent on the batches that were timed.
    pub timed_cycles: Counter,
    /// Packets in the batches that were timed.
    pub timed_packets: Counter,
    /// Batches that were timed.
    pub timed_batches: Counter,
    /// Times that the node was built anew, after a panic.
    pub restarts: Counter,
    /// Names of the reasons for which packets are dropped: the node's own, then those of [`NodeStats::EVERY`].
    pub reasons: Box<[&'static str]>,
    /// Packets dropped, by reason.
    pub drops: Box<[Counter]>,
    shown: Mutex<Shown>,
}

/// What a node shows besides. Another after it was built anew.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    counters: Vec<(String, Arc<Counter>)>,
    board: Option<Arc<StatsTable>>,
}

impl Shown {
    pub(crate) fn of(node: &dyn Node) -> Self {
        Shown { counters: node.counters(), board: node.stats_table() }
    }
}

impl NodeStats {
    /// Reasons that every node has behind its own: lost in a panic, let go by the node without a word, left by an output
    /// that leads nowhere.
    pub const EVERY: [&'static str; 3] = ["nf_panic", "vanished", "no_edge"];

    /// Zeroed counts for a node.
    pub fn new(node: &dyn Node) -> Self {
        let reasons = node.drops();
        let reasons: Box<[_]> = reasons.iter().copied().chain(Self::EVERY).collect();
        let drops = reasons.iter().map(|_| Counter::default()).collect();
        let stats = NodeStats { reasons, drops, ..Default::default() };
        stats.show(Shown::of(node));
        stats
    }

    /// Books packets that were held, and are gone with the queue they were in.
    pub(crate) fn lose_held(&self, packets: u64) {
        if packets != 0 {
            self.held.set(self.held.get().saturating_sub(packets));
            self.drop_every(VANISHED, packets);
        }
    }

    /// Shows what a node shows.
    pub(crate) fn show(&self, shown: Shown) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    /// Shows other counts of the node's own.
    pub(crate) fn show_counters(&self, counters: Vec<(String, Arc<Counter>)>) -> Vec<(String, Arc<Counter>)> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        core::mem::replace(&mut shown.counters, counters)
    }

    /// The node's own counts.
    pub fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).counters.clone()
    }

    /// The node's table.
    pub fn board(&self) -> Option<Arc<StatsTable>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).board.clone()
    }

    /// Counts packets dropped for one of the reasons in [`NodeStats::EVERY`].
    pub(crate) fn drop_every(&self, every: usize, n: u64) {
        self.drops[self.drops.len() - Self::EVERY.len() + every].add(n);
    }

    /// Packets that the node has let go of without a word: neither sent, nor dropped, nor held.
    pub fn vanished(&self) -> u64 {
        self.drops[self.drops.len() - Self::EVERY.len() + VANISHED].get()
    }

    /// Packets dropped for all reasons.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(Counter::get).sum()
    }
}

/// Index in [`NodeStats::EVERY`].
pub(crate) const NF_PANIC: usize = 0;
/// Index in [`NodeStats::EVERY`].
pub(crate) const VANISHED: usize = 1;
/// Index in [`NodeStats::EVERY`].
pub(crate) const NO_EDGE: usize = 2;
