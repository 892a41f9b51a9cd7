//! Parts of the latency at one load.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parts of the latency of traced probes at one load: from the time at which a probe was due to its arrival.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LatencyAnatomy {
    /// Load, packets per second.
    pub load_pps: f64,
    /// The load as a share of the throughput (the lower bound), if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_of_throughput: Option<f64>,
    /// Traced probes that arrived with a record of each place on their path; only these are evaluated.
    pub probes: u64,
    /// Traced probes that were not received.
    pub lost: u64,
    /// Traced probes without a record of each place.
    pub incomplete: u64,
    /// Traced probes with records that contradict each other, such as times that decrease.
    pub invalid: u64,
    /// Mean of the latency, nanoseconds.
    pub mean_ns: f64,
    /// Median of the latency, nanoseconds, if there are enough probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// 99th percentile of the latency, nanoseconds, if there are enough probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// Largest difference between the latency of a probe and the sum of its parts, nanoseconds: parts are rounded.
    pub residual_max_ns: f64,
    /// The parts, in the order in which the first probe passed them.
    #[serde(deserialize_with = "limit::list::<_, _, { limit::NODES }>")]
    #[schemars(length(max = limit::NODES))]
    pub parts: Vec<LatencyPart>,
}

/// A part of the latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LatencyPart {
    /// Its kind.
    pub kind: PartKind,
    /// Name of the NF, port, link or sandbox; none for the generator, and for the switch on the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Probes that passed it.
    pub probes: u64,
    /// Time that all probes spent in it divided by the number of all probes, nanoseconds: these values add up to
    /// the mean of the latency.
    pub mean_ns: f64,
    /// Median of the probes that passed it, nanoseconds, if there are enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// 99th percentile of the probes that passed it, nanoseconds, if there are enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
}

/// Kind of a part of the latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// From the time at which the burst of the probe was due until it was offered to the port.
    #[default]
    Generator,
    /// From a port or link on the sender's side until the receiver has taken the packet.
    Queue,
    /// In a worker outside NFs.
    Switch,
    /// Between the host and a sandbox, in either direction, or in a whole sandbox that is not traced.
    Crossing,
    /// In an NF, with the other packets of the batch.
    Nf,
}

impl LatencyAnatomy {
    /// Returns the mean time between NFs, in queues, the switch on the host and crossings, as a share of the mean
    /// latency after probes were sent; `None` without probes.
    pub fn host_share(&self) -> Option<f64> {
        let sum = |of: fn(&&LatencyPart) -> bool| self.parts.iter().filter(of).map(|part| part.mean_ns).sum::<f64>();
        let sent = sum(|part| part.kind != PartKind::Generator);
        let host = sum(|part| match part.kind {
            PartKind::Queue | PartKind::Crossing => true,
            PartKind::Switch => part.name.is_empty(),
            PartKind::Generator | PartKind::Nf => false,
        });
        (sent > 0.0).then(|| host / sent)
    }
}

impl LatencyPart {
    /// Returns the kind and the name.
    pub fn label(&self) -> String {
        let kind = match self.kind {
            PartKind::Generator => "generator",
            PartKind::Queue => "queue",
            PartKind::Switch => "switch",
            PartKind::Crossing => "crossing",
            PartKind::Nf => "NF",
        };
        if self.name.is_empty() { kind.to_owned() } else { format!("{kind} {}", self.name) }
    }
}
