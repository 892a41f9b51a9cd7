//! Counts of a window node.

use super::stream_state::StreamCounts;

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

/// Current values.
#[derive(Clone, Copy, Default)]
pub(super) struct Gauges {
    pub(super) flows: usize,
    pub(super) flows_limit: u64,
    pub(super) memory_limit: u64,
    pub(super) refused: u64,
    pub(super) memory: usize,
    pub(super) waiting: usize,
}

/// Returns the published counts with their names.
pub(super) fn counts(met: &FlowEvents, tally: &StreamCounts, now: Gauges) -> [(&'static str, u64); 24] {
    [
        ("flows", now.flows as u64),
        ("flows_limit", now.flows_limit),
        ("new", met.new),
        ("midstream", met.midstream),
        ("forgotten", met.forgotten),
        ("evicted", met.evicted),
        ("refused", now.refused),
        ("not_looked_at", met.not_looked_at),
        ("unreadable", met.unreadable),
        ("shown_bytes", met.shown_bytes),
        ("out_of_order", tally.out_of_order),
        ("retransmitted", tally.retransmitted),
        ("overlapping", tally.overlapping),
        ("conflicting", tally.conflicting),
        ("keep_alives", tally.keep_alives),
        ("gaps", tally.gaps),
        ("gap_bytes", tally.gap_bytes),
        ("out_of_window", tally.out_of_window),
        ("after_end", tally.after_end),
        ("resets", tally.resets),
        ("over_budget", tally.over_budget),
        ("memory_bytes", now.memory as u64),
        ("memory_limit_bytes", now.memory_limit),
        ("waiting_streams", now.waiting as u64),
    ]
}
