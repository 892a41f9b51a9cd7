//! What the trials say of the goal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of the throughput, packets a second in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Summary {
    /// Highest load below `upper_pps` that met the goal; 0 when none did.
    pub lower_pps: f64,
    /// Lowest load that did not meet the goal; left out when all did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_pps: Option<f64>,
    /// Conditional throughput at the lower bound (RFC 9971).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditional_pps: Option<f64>,
}
