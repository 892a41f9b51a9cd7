//! What the generator does by itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A measurement of the generator against a loopback, on the same frames. It stands beside the result; nothing is
/// subtracted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Calibration {
    /// Throughput of the loopback: the lower bound, packets a second.
    pub loopback_lower_pps: f64,
    /// Load at which its latency was measured, packets a second.
    pub load_pps: f64,
    /// Median latency of the loopback, nanoseconds.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p999_ns: f64,
    /// The document of the calibration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub id: Option<String>,
}
