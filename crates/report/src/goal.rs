//! What counts as a throughput.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The goal of a search, as MLRsearch (RFC 9971) states it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Goal {
    /// Its name, as `ndr`, `pdr`, `quick`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seconds of a full trial.
    pub trial_s: f64,
    /// Seconds of full trials that decide about a load.
    pub sum_s: f64,
    /// Share of the packets that a good trial may lose, 0 to 1.
    #[schemars(range(max = 1))]
    pub loss_ratio: f64,
    /// Share of `sum_s` that may be spent in trials that lose more, 0 to 1.
    #[schemars(range(max = 1))]
    pub exceed_ratio: f64,
    /// Relative width of the result: `(upper - lower) / upper` at which the search ends, 0 to 1.
    #[schemars(range(max = 1))]
    pub width: f64,
    /// How loads are chosen, as `mlrsearch`, `bisection`, `fixed`.
    pub method: String,
}

impl Goal {
    /// Whether it asks for what RFC 2544 §26.1 with §24 asks for: no loss, trials of at least 60 s.
    pub fn is_rfc2544(&self) -> bool {
        self.loss_ratio == 0.0 && self.exceed_ratio == 0.0 && self.trial_s >= 60.0 && self.sum_s >= 60.0
    }
}
