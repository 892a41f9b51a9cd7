//! Levels of log messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of [`Request::LogLevel`](super::Request::LogLevel).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLevels {
    /// The directives in effect, such as `info,nf=debug`.
    pub directives: String,
    /// The least important level that is logged, `off` if none is, of the target of the request or of all targets of
    /// Bondstone.
    pub levels: BTreeMap<String, String>,
}
