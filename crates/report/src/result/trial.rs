//! One run at one load.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One trial. Counters are read after the traffic has stopped and the packets in flight have drained.
///
/// `intended = sent + unsent` and `sent = received + lost`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Trial {
    /// Intended load, packets per second; of a trial with phases, that of the first.
    pub load_pps: f64,
    /// Duration of the traffic, all phases together, seconds.
    pub duration_s: f64,
    /// Phases, of a trial with more than one.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::PHASES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::PHASES))]
    pub phases: Vec<Phase>,
    /// Packets in the schedule.
    pub intended: u64,
    /// Packets that the port accepted.
    pub sent: u64,
    /// Packets that were not sent in time; they count as lost.
    pub unsent: u64,
    /// Those of them that were late because all packet buffers were held by the DUT.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsent_no_buffer: u64,
    /// Distinct packets received.
    pub received: u64,
    /// Packets sent and not received.
    pub lost: u64,
    /// Packets received again.
    pub duplicate: u64,
    /// Packets received after a later packet of their flow.
    pub reordered: u64,
    /// Damaged frames received; not included in `received`.
    pub corrupt: u64,
    /// Packets received too late to be distinguished from copies; they count as lost.
    #[serde(default)]
    pub late: u64,
    /// Packets that NFs of the DUT dropped; included in `lost`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_by_nfs: u64,
    /// Packets that did not fit into the queue of the generator's port, as the DUT had not taken earlier ones; included in
    /// `lost`, or with TCP connections frames of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tx_full: u64,
    /// Longest time between two polls of a port by generator or DUT, nanoseconds.
    pub poll_gap_max_ns: u64,
    /// Poll gaps and preemption of the generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<PollTimes>,
    /// Those of the DUT, the longest of its threads, as far as they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dut: Option<PollTimes>,
    /// True if packets were lost and generator or DUT was preempted for longer than buffers last: the loss is no evidence
    /// about the DUT. In documents without `generator`, true also if the gap was a long batch of the DUT.
    #[serde(default, alias = "machine")]
    pub host_interference: bool,
    /// Latencies, nanoseconds: base64 of an HdrHistogram (V2, compressed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::HDR))]
    pub latency_hdr: Option<String>,
    /// Delay of departures behind the schedule, nanoseconds: base64 of an HdrHistogram (V2, compressed).
    #[serde(default, alias = "late_hdr", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::HDR))]
    pub lateness_hdr: Option<String>,
    /// TCP connections, of traffic that consists of them. The packets above are then those of whole connections: all frames
    /// that the client of a connection sends if nothing is lost, which count as lost with a connection that fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
}

/// Failed TCP connections by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct FailedConnections {
    /// No answer to the SYN.
    pub no_syn_ack: u64,
    /// The SYN was answered with a reset.
    pub refused: u64,
    /// No response, or not all of it.
    pub no_response: u64,
    /// Reset after it was established.
    pub reset: u64,
    /// The server closed it before the last response.
    pub closed_early: u64,
    /// No answer to the FIN.
    pub not_closed: u64,
}

impl FailedConnections {
    /// Returns the causes with their counts.
    pub fn causes(&self) -> [(&'static str, u64); 6] {
        [
            ("no SYN-ACK", self.no_syn_ack),
            ("refused", self.refused),
            ("no response", self.no_response),
            ("reset", self.reset),
            ("closed early", self.closed_early),
            ("not closed", self.not_closed),
        ]
    }

    /// Returns the sum.
    pub fn sum(&self) -> u64 {
        self.causes().iter().map(|(_, n)| n).sum()
    }
}

/// TCP connections of a trial. `opened = completed` + the sum of `failed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Connections {
    /// Connections whose SYN was sent.
    pub opened: u64,
    /// Connections whose SYN was answered.
    pub established: u64,
    /// Connections closed by both sides after all responses.
    pub completed: u64,
    /// Failed connections by cause.
    pub failed: FailedConnections,
    /// Most connections that were open at a time.
    pub most_open: u64,
    /// Responses received whole.
    pub transactions: u64,
    /// Segments that the clients sent again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retransmitted: u64,
    /// Segments of no open connection, out of order or sent again, that the clients received.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unexpected: u64,
    /// Segments that the clients sent.
    pub segments_sent: u64,
    /// Segments that the clients received.
    pub segments_received: u64,
    /// Payload that the clients sent, bytes.
    pub bytes_sent: u64,
    /// Payload that the clients received in order, bytes.
    pub bytes_received: u64,
    /// Frames that were not sent for lack of a packet buffer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub no_buffer: u64,
}

/// Times of a thread that polls a port, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PollTimes {
    /// Longest time between two polls, caused by a long batch or by preemption; 0 if unknown.
    pub gap_max_ns: u64,
    /// Sum of the gaps that are longer than a batch takes: 50 µs for the generator, 100 µs for the DUT.
    pub gap_sum_ns: u64,
    /// Time during which the thread was preempted, by the kernel or the hypervisor.
    pub off_cpu_ns: u64,
    /// Longest such time within one gap.
    pub off_cpu_max_ns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A part of a trial with its own load; phases follow each other without a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Phase {
    /// Intended load, packets per second.
    pub load_pps: f64,
    /// Duration, seconds.
    pub duration_s: f64,
}

impl Trial {
    /// Returns the number of scheduled packets that were not received.
    pub fn missing(&self) -> u64 {
        self.lost.saturating_add(self.unsent)
    }

    /// Returns the share of scheduled packets that were not received (RFC 2544 §26.3); 1 for an empty schedule.
    pub fn loss_ratio(&self) -> f64 {
        if self.intended == 0 { 1.0 } else { self.missing() as f64 / self.intended as f64 }
    }

    /// Returns the rate of received packets, packets per second.
    pub fn received_pps(&self) -> f64 {
        if self.duration_s > 0.0 { self.received as f64 / self.duration_s } else { 0.0 }
    }
}
