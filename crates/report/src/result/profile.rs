//! The script of a profile, whose streams change from second to second, and the counters of its streams.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A script that defines the traffic of each second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Profile {
    /// Name of its file, without the folder.
    pub name: String,
    /// SHA-256 of the script, hexadecimal.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: String,
    /// The script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::SCRIPT))]
    pub script: Option<String>,
    /// Duration, seconds.
    #[serde(alias = "seconds")]
    #[schemars(range(min = 1))]
    pub duration_s: u32,
    /// Line rate, bits per second, of a script with rates in percent of it.
    #[serde(default, alias = "line_bps", skip_serializing_if = "Option::is_none")]
    pub line_rate_bps: Option<f64>,
}

/// Counters of one stream of a profile.
///
/// `intended = sent + unsent` and `sent = received + lost`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// Frame sizes, as in the script.
    pub frames: String,
    /// Largest number of flows.
    pub flows: u32,
    /// Index of the port into which it was sent, from 0.
    pub port: u32,
    /// Packets in the schedule.
    pub intended: u64,
    /// Packets that the port accepted.
    pub sent: u64,
    /// Packets that were not sent in time; they count as lost.
    pub unsent: u64,
    /// Distinct packets received.
    pub received: u64,
    /// Packets sent and not received.
    pub lost: u64,
    /// Its latency, if packets were received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<StreamLatency>,
    /// Packets intended, sent and received in each second, if they were counted by second. A packet counts in the
    /// second of its departure.
    #[serde(
        default,
        alias = "seconds",
        deserialize_with = "limit::list::<_, _, { limit::POINTS }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::POINTS))]
    pub per_second: Vec<[u64; 3]>,
}

/// Latency of a stream, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct StreamLatency {
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile, if at least ten samples lie beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// Maximum.
    pub max_ns: f64,
    /// Packets measured.
    pub samples: u64,
}

impl Stream {
    /// Returns the share of scheduled packets that were not received; 0 for an empty schedule.
    pub fn loss_ratio(&self) -> f64 {
        let missing = self.lost.saturating_add(self.unsent);
        if self.intended == 0 { 0.0 } else { missing as f64 / self.intended as f64 }
    }
}
