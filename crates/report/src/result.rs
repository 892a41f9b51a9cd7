//! The document of one measurement.

use crate::{
    Calibration, Dut, Environment, Goal, Latency, Method, Node, Quantity, Series, Stream, Summary, Tool, Traffic,
    Trial, limit,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One measurement: one device under test (DUT), one traffic, one goal, and every trial that was made.
///
/// Units stand in the names. Frame sizes include the FCS (RFC 2544 §9), so a frame takes 20 bytes more on the wire.
/// Rates are those of one direction. Numbers are finite, none is negative or more than 2^53 - 1.
/// A member that is not known is left out: there are no nulls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Result {
    /// Version of this format.
    pub schema: Version,
    /// SHA-256, hexadecimal, of the document in canonical form (RFC 8785) without this member.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub id: String,
    /// What measured.
    pub tool: Tool,
    /// The study that the measurement belongs to, as `netbricks/fig7`; else the name of the file that was measured.
    pub study: String,
    /// Parameters that tell this measurement from the others of the study, by name, but for the frame size.
    #[serde(
        default,
        deserialize_with = "limit::map::<_, _, { limit::FACTS }>",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(extend("maxProperties" = limit::FACTS))]
    pub cell: BTreeMap<String, String>,
    /// How it was measured.
    #[serde(default)]
    pub method: Method,
    /// What was measured.
    pub dut: Dut,
    /// What it was offered.
    pub traffic: Traffic,
    /// What counts as a throughput.
    pub goal: Goal,
    /// Where and when.
    pub environment: Environment,
    /// What the generator does by itself on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// What kept the throughput from being higher.
    pub limited_by: LimitedBy,
    /// Where the measurement departs from its method.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::DEVIATIONS }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::DEVIATIONS))]
    pub deviations: Vec<String>,
    /// Every trial, in the order made.
    #[serde(deserialize_with = "limit::list::<_, _, { limit::TRIALS }>")]
    #[schemars(length(max = limit::TRIALS))]
    pub trials: Vec<Trial>,
    /// What the trials say of the goal.
    pub summary: Summary,
    /// Latency, at the loads at which it was measured.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::LATENCIES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::LATENCIES))]
    pub latency: Vec<Latency>,
    /// What else the method comes to.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::QUANTITIES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::QUANTITIES))]
    pub quantities: Vec<Quantity>,
    /// Its curves.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::SERIES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::SERIES))]
    pub series: Vec<Series>,
    /// The streams of a profile.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::STREAMS }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::STREAMS))]
    pub streams: Vec<Stream>,
    /// The nodes of the DUT, in the order in which packets visit them, where it can be looked into.
    #[serde(
        default,
        deserialize_with = "limit::list::<_, _, { limit::NODES }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = limit::NODES))]
    pub nodes: Vec<Node>,
}

/// Version of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Version {
    /// The first.
    #[default]
    #[serde(rename = "bondstone.result/1")]
    V1,
}

impl Version {
    /// Its name, as in the document.
    pub const fn name(self) -> &'static str {
        match self {
            Version::V1 => "bondstone.result/1",
        }
    }
}

/// What kept a throughput from being higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// The device under test: at a higher load it lost packets.
    Dut,
    /// The generator: it could not keep its schedule at a higher load.
    Generator,
    /// The medium: no more frames fit on it.
    Wire,
    /// The machine: losses that coincide with a core that was taken away.
    Machine,
    /// The search: its trials or its time ran out before its bounds were near enough.
    Budget,
    /// The load: no higher one was offered.
    Load,
}

impl LimitedBy {
    /// Its name, as in the document.
    pub const fn name(self) -> &'static str {
        match self {
            LimitedBy::Dut => "dut",
            LimitedBy::Generator => "generator",
            LimitedBy::Wire => "wire",
            LimitedBy::Machine => "machine",
            LimitedBy::Budget => "budget",
            LimitedBy::Load => "load",
        }
    }
}

impl Result {
    /// Share of the packets that were lost at the lower bound, over all trials there that the machine did not disturb;
    /// none without such a trial.
    pub fn loss_ratio(&self) -> Option<f64> {
        let at = self.trials.iter().filter(|t| t.load_pps == self.summary.lower_pps && !t.machine);
        let (missing, intended) = at.fold((0.0, 0.0), |(m, i), t| (m + t.missing() as f64, i + t.intended as f64));
        (intended > 0.0).then(|| missing / intended)
    }

    /// A quantity by its name.
    pub fn quantity(&self, name: &str) -> Option<&Quantity> {
        self.quantities.iter().find(|q| q.name == name)
    }

    /// The measurement of latency at the highest load.
    pub fn highest_latency(&self) -> Option<&Latency> {
        self.latency.iter().max_by(|a, b| a.load_pps.total_cmp(&b.load_pps))
    }
}
