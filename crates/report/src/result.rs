//! The document of one measurement.

mod anatomy;
mod dut;
mod environment;
mod goal;
mod latency;
mod node;
mod profile;
mod quantity;
mod traffic;
mod trial;
mod vnf;

pub use anatomy::{LatencyAnatomy, LatencyPart, PartKind};
pub use dut::{Dut, NfInstance, Port};
pub use environment::{Calibration, Environment, Tool, now, rfc3339, unix_seconds};
pub use goal::{Goal, Method, Summary};
pub use latency::Latency;
pub use node::Node;
pub use profile::{Profile, Stream, StreamLatency};
pub use quantity::{Axis, Quantity, Series, Spread};
pub use traffic::{Frames, Mix, MixPart, Trace, Traffic};
pub use trial::{Connections, FailedConnections, Phase, PollTimes, Trial};
pub use vnf::Vnf;

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One measurement: one device under test (DUT), one traffic, one goal, and all trials.
///
/// Units stand in the names. Frame sizes include the FCS (RFC 2544 §9), so a frame takes 20 bytes more on the wire.
/// Rates are those of one direction. Numbers are finite and between 0 and 2^53 - 1, both included.
/// Unknown members are left out; a document contains no nulls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Result {
    /// Version of this format.
    pub schema: Version,
    /// SHA-256, hexadecimal, of the document in canonical form (RFC 8785) without this member.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub id: String,
    /// Program that made the measurement.
    pub tool: Tool,
    /// The study that the measurement belongs to, such as `netbricks/fig7`; else the name of the measured file.
    pub study: String,
    /// Parameters that distinguish this measurement from the others of the study, by name, without the frame size.
    #[serde(
        default,
        deserialize_with = "limit::map::<_, _, { limit::FACTS }>",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(extend("maxProperties" = limit::FACTS))]
    pub cell: BTreeMap<String, String>,
    /// Method of the measurement.
    #[serde(default)]
    pub method: Method,
    /// Device under test.
    pub dut: Dut,
    /// Traffic offered to the DUT.
    pub traffic: Traffic,
    /// Goal of the search.
    pub goal: Goal,
    /// Host, and time of the measurement.
    pub environment: Environment,
    /// Measurement of the generator alone on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Limiting factor of the throughput.
    pub limited_by: LimitedBy,
    /// Deviations from the method.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::DEVIATIONS }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::DEVIATIONS))]
    pub deviations: Vec<String>,
    /// All trials, in the order in which they were made.
    #[serde(deserialize_with = "limit::list::<_, _, { limit::TRIALS }>")]
    #[schemars(length(max = limit::TRIALS))]
    pub trials: Vec<Trial>,
    /// Bounds of the throughput.
    pub summary: Summary,
    /// Latency, at each load at which it was measured.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::LATENCIES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::LATENCIES))]
    pub latency: Vec<Latency>,
    /// Parts of the latency, at each load at which probes were traced.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::LATENCIES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::LATENCIES))]
    pub anatomy: Vec<LatencyAnatomy>,
    /// Other numbers that the method produces.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::QUANTITIES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::QUANTITIES))]
    pub quantities: Vec<Quantity>,
    /// Curves that the method produces.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::SERIES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::SERIES))]
    pub series: Vec<Series>,
    /// Streams of a profile.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::STREAMS }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::STREAMS))]
    pub streams: Vec<Stream>,
    /// Nodes of the DUT, in the order in which packets visit them; empty for a DUT that cannot be inspected.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::NODES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::NODES))]
    pub nodes: Vec<Node>,
}

/// Version of the format.
///
/// Version 2 renames members and values of version 1. Documents of version 1 are read: each renamed member carries its
/// old name as a serde alias. Their text and their id do not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Version {
    /// The current version.
    #[default]
    #[serde(rename = "bondstone.result/2", alias = "bondstone.result/1")]
    V2,
}

impl Version {
    /// Names of the versions that can be read.
    pub const READABLE: [&str; 2] = ["bondstone.result/1", "bondstone.result/2"];

    /// Returns its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Version::V2 => "bondstone.result/2",
        }
    }
}

/// Limiting factor of a throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// The device under test: it lost packets at a higher load.
    Dut,
    /// The generator: it could not keep its schedule at a higher load.
    Generator,
    /// The line rate of the medium.
    #[serde(alias = "wire")]
    LineRate,
    /// Host interference: losses that coincide with CPU preemption.
    #[serde(alias = "machine")]
    HostInterference,
    /// The budget of the search: its trials or its time ran out before its bounds were close enough.
    Budget,
    /// The highest load that was offered.
    #[serde(alias = "load")]
    MaxLoad,
}

impl LimitedBy {
    /// Returns its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            LimitedBy::Dut => "dut",
            LimitedBy::Generator => "generator",
            LimitedBy::LineRate => "line_rate",
            LimitedBy::HostInterference => "host_interference",
            LimitedBy::Budget => "budget",
            LimitedBy::MaxLoad => "max_load",
        }
    }
}

impl Result {
    /// Returns the share of packets lost at the lower bound over all trials there without host interference, or at the
    /// upper bound if no load meets the goal; `None` without such a trial.
    pub fn loss_ratio(&self) -> Option<f64> {
        let summary = self.summary;
        let load = if summary.lower_pps > 0.0 { Some(summary.lower_pps) } else { summary.upper_pps };
        let at_lower = self.trials.iter().filter(|t| Some(t.load_pps) == load && !t.host_interference);
        loss_ratio(at_lower)
    }

    /// Returns the trials with host interference and the share of their packets that was lost; `None` without any.
    pub fn excluded(&self) -> Option<(usize, f64)> {
        let excluded = || self.trials.iter().filter(|t| t.host_interference);
        loss_ratio(excluded()).map(|loss| (excluded().count(), loss))
    }

    /// Returns the quantity with this name.
    pub fn quantity(&self, name: &str) -> Option<&Quantity> {
        self.quantities.iter().find(|q| q.name == name)
    }

    /// Returns the latency at the highest load at which it was measured.
    pub fn highest_latency(&self) -> Option<&Latency> {
        self.latency.iter().max_by(|a, b| a.load_pps.total_cmp(&b.load_pps))
    }
}

/// Returns the share of the scheduled packets of trials that was lost; `None` without any packet.
fn loss_ratio<'a>(trials: impl Iterator<Item = &'a Trial>) -> Option<f64> {
    let (missing, intended) = trials.fold((0.0, 0.0), |(m, i), t| (m + t.missing() as f64, i + t.intended as f64));
    (intended > 0.0).then(|| missing / intended)
}
