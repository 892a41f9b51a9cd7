//! The method of a measurement, the goal of its search, and the bounds that the search found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Method of a measurement, as in `bondstone bench --method`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Method {
    /// Its name: `throughput`, `latency`, `loss`, `back-to-back`, `recovery`, `reset`, `delay-variation`, `soak`,
    /// `flow-scale`, `changes`, `connections`, `concurrent-connections`, `address-table`, `learning-rate`, `profile`.
    pub name: String,
    /// The standard that defines it, such as `RFC 2544 §26.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard: Option<String>,
    /// True for the short form, for daily work; differences from the standard are listed among the deviations.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub quick: bool,
}

impl Default for Method {
    /// Returns the throughput method without a standard.
    fn default() -> Self {
        Method { name: "throughput".to_owned(), standard: None, quick: false }
    }
}

/// Goal of a search (MLRsearch, RFC 9971).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Goal {
    /// Its name, such as `ndr`, `pdr`, `quick`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Duration of a full-length trial, seconds.
    #[serde(alias = "trial_s")]
    pub trial_duration_s: f64,
    /// Sum of the durations of full-length trials that decide about a load, seconds.
    #[serde(alias = "sum_s")]
    pub duration_sum_s: f64,
    /// Largest share of packets that a good trial loses, 0 to 1.
    #[schemars(range(max = 1))]
    pub loss_ratio: f64,
    /// Largest share of `duration_sum_s` in trials that exceed the loss ratio, 0 to 1.
    #[schemars(range(max = 1))]
    pub exceed_ratio: f64,
    /// Relative width `(upper - lower) / upper` of the bounds at which the search ends, 0 to 1.
    #[schemars(range(max = 1))]
    pub width: f64,
    /// Procedure that chooses the loads: `mlrsearch`, `bisection`, `fixed`.
    #[serde(alias = "method")]
    pub search: String,
    /// Duration of the first trials of a search, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_trial_duration_s: Option<f64>,
    /// Lowest load of a search, packets per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_load_pps: Option<f64>,
    /// Highest load of a search, packets per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_load_pps: Option<f64>,
}

impl Goal {
    /// Returns true if the goal satisfies RFC 2544 §24 and §26.1: no loss in trials of at least 60 s.
    pub fn is_rfc2544(&self) -> bool {
        self.loss_ratio == 0.0
            && self.exceed_ratio == 0.0
            && self.trial_duration_s >= 60.0
            && self.duration_sum_s >= 60.0
    }
}

/// Bounds of the throughput, packets per second in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Summary {
    /// Highest load below `upper_pps` that met the goal; 0 if none did.
    pub lower_pps: f64,
    /// Lowest load that did not meet the goal; left out if all did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_pps: Option<f64>,
    /// Conditional throughput at the lower bound (RFC 9971).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditional_pps: Option<f64>,
}
