//! One run at one load.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One trial. Counters are read after the traffic has stopped and what was on its way has drained.
///
/// `intended = sent + unsent` and `sent = received + lost`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Trial {
    /// Load intended, packets a second; that of the first phase, where there are several.
    pub load_pps: f64,
    /// Seconds of traffic, in all phases.
    pub duration_s: f64,
    /// The phases, where there are several.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::PHASES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::PHASES))]
    pub phases: Vec<Phase>,
    /// Packets that the schedule asked for.
    pub intended: u64,
    /// Packets that the port accepted.
    pub sent: u64,
    /// Packets that were not sent in time; they count as lost.
    pub unsent: u64,
    /// Distinct packets that came back.
    pub received: u64,
    /// Packets sent that did not come back.
    pub lost: u64,
    /// Packets that came back once more.
    pub duplicate: u64,
    /// Packets that came back behind a later one of their flow.
    pub reordered: u64,
    /// Frames that came back damaged; none of them is in `received`.
    pub corrupt: u64,
    /// Packets that came back so late that they count as lost, and may be copies.
    #[serde(default)]
    pub late: u64,
    /// Longest time that generator or DUT left their ports alone, nanoseconds.
    pub poll_gap_max_ns: u64,
    /// Whether the loss coincides with such a gap: the machine's doing, and no evidence about the DUT.
    #[serde(default)]
    pub machine: bool,
    /// Latencies, nanoseconds: base64 of an HdrHistogram (second form, compressed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::HDR))]
    pub latency_hdr: Option<String>,
    /// How late packets left, nanoseconds behind the schedule: base64 of an HdrHistogram (second form, compressed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::HDR))]
    pub late_hdr: Option<String>,
}

/// A part of a trial with a load of its own; the next follows without a pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Phase {
    /// Load intended, packets a second.
    pub load_pps: f64,
    /// Seconds.
    pub duration_s: f64,
}

impl Trial {
    /// Packets that the schedule asked for and that did not come back.
    pub fn missing(&self) -> u64 {
        self.lost.saturating_add(self.unsent)
    }

    /// Share of the packets of the schedule that did not come back (RFC 2544 §26.3); 1 for an empty schedule.
    pub fn loss_ratio(&self) -> f64 {
        if self.intended == 0 { 1.0 } else { self.missing() as f64 / self.intended as f64 }
    }

    /// Packets a second that came back.
    pub fn received_pps(&self) -> f64 {
        if self.duration_s > 0.0 { self.received as f64 / self.duration_s } else { 0.0 }
    }
}
