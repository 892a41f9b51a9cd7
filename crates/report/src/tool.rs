//! What measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The program that made the measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The command line that makes the measurement again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}
