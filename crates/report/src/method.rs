//! By which method something was measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The method of a measurement, as `bondstone bench --method` names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Method {
    /// Its name: `throughput`, `latency`, `loss`, `back-to-back`, `recovery`, `reset`, `delay-variation`, `soak`,
    /// `flow-scale`, `changes`, `connections`, `profile`.
    pub name: String,
    /// What defines it, as `RFC 2544 §26.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard: Option<String>,
    /// Whether it is the short form, for daily work; what differs from the standard is among the deviations.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub quick: bool,
}

impl Default for Method {
    /// The throughput, without a claim to a standard.
    fn default() -> Self {
        Method { name: "throughput".to_owned(), standard: None, quick: false }
    }
}
