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
