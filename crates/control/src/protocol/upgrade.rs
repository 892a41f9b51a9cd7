//! Results of upgrades.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of [`Request::Upgrade`](super::Request::Upgrade).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Upgraded {
    /// Process that runs the chains now.
    pub pid: u32,
    /// Version of its program.
    pub version: String,
    /// Milliseconds in which it started and built the NFs, while the other one ran.
    pub prepare_ms: f64,
    /// Milliseconds until its workers ran, in which no packets were forwarded.
    pub pause_ms: f64,
    /// Milliseconds until ports that had a link, and have lost it, had one again; `null` if they have none yet.
    pub links: BTreeMap<String, Option<f64>>,
    /// Packets that arrived meanwhile and for which the ring of a packet socket had no room, by port. Packets that other
    /// ports missed are counted by the other side.
    pub missed: BTreeMap<String, u64>,
    /// Notes, such as about NFs that started without their state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
