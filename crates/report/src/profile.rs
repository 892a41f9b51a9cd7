//! The script by which a trial's streams changed from second to second.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A script that says what is sent in each second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Profile {
    /// Its file's name, without its folder.
    pub name: String,
    /// SHA-256 of the script, hexadecimal.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: String,
    /// The script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::SCRIPT))]
    pub script: Option<String>,
    /// Seconds that it was asked for.
    #[schemars(range(min = 1))]
    pub seconds: u32,
    /// What 100 % of the line is to it, bits a second, where it gives shares of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_bps: Option<f64>,
}

/// What became of one stream of a profile.
///
/// `intended = sent + unsent` and `sent = received + lost`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// Its frames, as the script has them.
    pub frames: String,
    /// The most flows that it had.
    pub flows: u32,
    /// Into which port it was sent, from 0.
    pub port: u32,
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
    /// Its latency, where packets came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<StreamLatency>,
    /// Packets intended, sent and received of each second, where these are told apart; those of a second are counted in it
    /// whenever they came back.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::POINTS }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::POINTS))]
    pub seconds: Vec<[u64; 3]>,
}

/// Latency of a stream, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct StreamLatency {
    /// The median.
    pub p50_ns: f64,
    /// The 99th percentile, where at least ten samples lie beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// The longest.
    pub max_ns: f64,
    /// Packets whose latency was taken.
    pub samples: u64,
}

impl Stream {
    /// Share of the packets of the schedule that did not come back; 0 for an empty schedule.
    pub fn loss_ratio(&self) -> f64 {
        let missing = self.lost.saturating_add(self.unsent);
        if self.intended == 0 { 0.0 } else { missing as f64 / self.intended as f64 }
    }
}
