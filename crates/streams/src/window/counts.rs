//! Counters of a window node.

use super::stream_state::StreamCounts;
use graph::Counter;
use std::sync::Arc;

/// Events that are not counted by streams.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FlowEvents {
    pub(super) new: u64,
    pub(super) midstream: u64,
    pub(super) forgotten: u64,
    pub(super) evicted: u64,
    pub(super) not_looked_at: u64,
    pub(super) unreadable: u64,
    pub(super) shown_bytes: u64,
}

/// Names of the counters, in the order of [`Counts::show`].
const NAMES: [&str; 22] = [
    "flows",
    "new",
    "midstream",
    "forgotten",
    "evicted",
    "refused",
    "not_looked_at",
    "unreadable",
    "shown_bytes",
    "out_of_order",
    "retransmitted",
    "overlapping",
    "conflicting",
    "keep_alives",
    "gaps",
    "gap_bytes",
    "out_of_window",
    "after_end",
    "resets",
    "over_budget",
    "memory_bytes",
    "waiting_streams",
];

#[derive(Default)]
pub(super) struct Counts {
    all: [Arc<Counter>; NAMES.len()],
}

/// Current values.
#[derive(Clone, Copy, Default)]
pub(super) struct Gauges {
    pub(super) flows: usize,
    pub(super) refused: u64,
    pub(super) memory: usize,
    pub(super) waiting: usize,
}

impl Counts {
    pub(super) fn named(&self) -> Vec<(String, Arc<Counter>)> {
        NAMES.iter().map(|name| (*name).to_owned()).zip(self.all.iter().cloned()).collect()
    }

    pub(super) fn show(&self, met: &FlowEvents, tally: &StreamCounts, now: Gauges) {
        let values = [
            now.flows as u64,
            met.new,
            met.midstream,
            met.forgotten,
            met.evicted,
            now.refused,
            met.not_looked_at,
            met.unreadable,
            met.shown_bytes,
            tally.out_of_order,
            tally.retransmitted,
            tally.overlapping,
            tally.conflicting,
            tally.keep_alives,
            tally.gaps,
            tally.gap_bytes,
            tally.out_of_window,
            tally.after_end,
            tally.resets,
            tally.over_budget,
            now.memory as u64,
            now.waiting as u64,
        ];
        self.all.iter().zip(values).for_each(|(counter, value)| counter.set(value));
    }
}
