//! Latency at one load.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Time from sending a packet to receiving it, by the clock of one host, at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Latency {
    /// Load, packets a second.
    pub load_pps: f64,
    /// That load as a share of the throughput (the lower bound), where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_of_throughput: Option<f64>,
    /// Median, nanoseconds.
    pub p50_ns: f64,
    /// 99th percentile, nanoseconds.
    pub p99_ns: f64,
    /// 99.9th percentile, nanoseconds.
    pub p999_ns: f64,
    /// Largest, nanoseconds.
    pub max_ns: f64,
    /// Packets measured: all, or a share of them, as above a million a second and of a capture's frames.
    pub samples: u64,
    /// Packets that did not come back, measured or not; in no percentile.
    pub lost: u64,
    /// Whether packets were lost or late because the machine was away, in every try.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub machine: bool,
    /// All of them, nanoseconds: base64 of an HdrHistogram (second form, compressed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limit::HDR))]
    pub latency_hdr: Option<String>,
}

/// Samples that have to lie beyond a percentile, so that it is worth printing.
const BEYOND: f64 = 10.0;

impl Latency {
    /// Whether a percentile, 0 to 1, is told by enough samples: at least ten lie beyond it.
    pub fn tells(&self, percentile: f64) -> bool {
        tells(self.samples, percentile)
    }

    /// The median, if there are samples enough to tell it; nanoseconds.
    pub fn p50(&self) -> Option<f64> {
        self.tells(0.5).then_some(self.p50_ns)
    }

    /// The 99th percentile, if there are samples enough to tell it; nanoseconds.
    pub fn p99(&self) -> Option<f64> {
        self.tells(0.99).then_some(self.p99_ns)
    }

    /// The 99.9th percentile, if there are samples enough to tell it; nanoseconds.
    pub fn p999(&self) -> Option<f64> {
        self.tells(0.999).then_some(self.p999_ns)
    }
}

/// Whether so many samples tell a percentile, 0 to 1.
pub(crate) fn tells(samples: u64, percentile: f64) -> bool {
    // a thousand samples tell the 99th, whatever the rounding of 1 - 0.99
    samples as f64 * (1.0 - percentile) >= BEYOND * (1.0 - 1e-9)
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
