//! Counts of a rewriting node.

use super::flows::FlowEvents;
use super::half_connection::RewriteCounts;

/// Returns the published counts with their names; `gauges` are connections, flows, bytes of memory and waiting directions.
pub(super) fn counts(met: &FlowEvents, tally: &RewriteCounts, gauges: [u64; 4]) -> [(&'static str, u64); 22] {
    let [connections, flows, memory, waiting] = gauges;
    [
        ("connections", connections),
        ("flows", flows),
        ("memory_bytes", memory),
        ("waiting", waiting),
        ("new", met.new),
        ("passed", met.passed),
        ("midstream", met.midstream),
        ("refused", met.refused),
        ("forgotten", met.forgotten),
        ("unreadable", met.unreadable),
        ("input_bytes", tally.input_bytes),
        ("output_bytes", tally.output_bytes),
        ("out_of_order", tally.out_of_order),
        ("retransmitted", tally.retransmitted),
        ("resent", tally.resent),
        ("resent_late", tally.resent_late),
        ("probes", tally.probes),
        ("timed_out", tally.timed_out),
        ("no_buffers", tally.no_buffers),
        ("given_up", tally.given_up),
        ("challenged", tally.challenged),
        ("evicted", met.made_way),
    ]
}
