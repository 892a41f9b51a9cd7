//! Counters of a rewriting node.

use super::flows::FlowEvents;
use super::half_connection::RewriteCounts;
use graph::Counter;
use std::sync::Arc;

/// Names of the counters, in the order of [`Counts::show`].
const NAMES: [&str; 22] = [
    "connections",
    "flows",
    "memory_bytes",
    "waiting",
    "new",
    "passed",
    "midstream",
    "refused",
    "forgotten",
    "unreadable",
    "input_bytes",
    "output_bytes",
    "out_of_order",
    "retransmitted",
    "resent",
    "resent_late",
    "probes",
    "timed_out",
    "no_buffers",
    "given_up",
    "challenged",
    "evicted",
];

#[derive(Default)]
pub(super) struct Counts {
    all: [Arc<Counter>; NAMES.len()],
}

impl Counts {
    pub(super) fn named(&self) -> Vec<(String, Arc<Counter>)> {
        NAMES.iter().map(|name| (*name).to_owned()).zip(self.all.iter().cloned()).collect()
    }

    pub(super) fn show(
        &self,
        met: &FlowEvents,
        tally: &RewriteCounts,
        [connections, flows, memory, waiting]: [u64; 4],
    ) {
        let values = [
            connections,
            flows,
            memory,
            waiting,
            met.new,
            met.passed,
            met.midstream,
            met.refused,
            met.forgotten,
            met.unreadable,
            tally.input_bytes,
            tally.output_bytes,
            tally.out_of_order,
            tally.retransmitted,
            tally.resent,
            tally.resent_late,
            tally.probes,
            tally.timed_out,
            tally.no_buffers,
            tally.given_up,
            tally.challenged,
            met.made_way,
        ];
        self.all.iter().zip(values).for_each(|(counter, value)| counter.set(value));
    }
}
