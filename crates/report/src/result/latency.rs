//! Latency at one load.

use super::Vnf;
use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Time from sending a packet to receiving it, by the clock of one host, at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Latency {
    /// Load, packets per second.
    pub load_pps: f64,
    /// The load as a share of the throughput (the lower bound), if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_of_throughput: Option<f64>,
    /// Median, nanoseconds.
    pub p50_ns: f64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: f64,
    /// 99.9th percentile, nanoseconds.
    pub p999_ns: f64,
    /// Maximum, nanoseconds.
    pub max_ns: f64,
    /// Packets measured: all, or a sample of them above a million packets per second and in replays.
    pub samples: u64,
    /// Packets not received, measured or not; they are in no percentile.
    pub lost: u64,
    /// True if host interference made packets late or lost in every attempt.
    #[serde(default, alias = "machine", skip_serializing_if = "core::ops::Not::not")]
    pub host_interference: bool,
    /// All latencies, nanoseconds: base64 of an HdrHistogram (V2, compressed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::HDR))]
    pub latency_hdr: Option<String>,
    /// VNFs that packets are for by destination MAC address, in the order of the addresses; empty for a single address.
    #[serde(default, deserialize_with = "limit::list::<_, _, { limit::VNFS }>", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limit::VNFS))]
    pub vnfs: Vec<Vnf>,
}

/// Samples that must lie beyond a percentile for it to be printed.
const MIN_SAMPLES_BEYOND: f64 = 10.0;

impl Latency {
    /// Returns true if at least ten samples lie beyond a percentile, 0 to 1.
    pub fn has_percentile(&self, percentile: f64) -> bool {
        enough_samples(self.samples, percentile)
    }

    /// Returns the median, nanoseconds, if there are enough samples.
    pub fn p50(&self) -> Option<f64> {
        self.has_percentile(0.5).then_some(self.p50_ns)
    }

    /// Returns the 99th percentile, nanoseconds, if there are enough samples.
    pub fn p99(&self) -> Option<f64> {
        self.has_percentile(0.99).then_some(self.p99_ns)
    }

    /// Returns the 99.9th percentile, nanoseconds, if there are enough samples.
    pub fn p999(&self) -> Option<f64> {
        self.has_percentile(0.999).then_some(self.p999_ns)
    }
}

/// Returns true if so many samples determine a percentile, 0 to 1.
fn enough_samples(samples: u64, percentile: f64) -> bool {
    // 1 - 0.99 is rounded: a thousand samples have to be enough for the 99th percentile
    samples as f64 * (1.0 - percentile) >= MIN_SAMPLES_BEYOND * (1.0 - 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        let of = |samples| {
            let l = Latency { samples, p50_ns: 1.0, p99_ns: 2.0, p999_ns: 3.0, ..Latency::default() };
            (l.p50(), l.p99(), l.p999())
        };
        assert_eq!(of(19), (None, None, None));
        assert_eq!(of(20), (Some(1.0), None, None));
        assert_eq!(of(999), (Some(1.0), None, None));
        assert_eq!(of(1000), (Some(1.0), Some(2.0), None));
        assert_eq!(of(9_999), (Some(1.0), Some(2.0), None));
        assert_eq!(of(10_000), (Some(1.0), Some(2.0), Some(3.0)));
    }
}
