//! One node of the device under test.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An NF or a port, and what it did in the trials at the lower bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its kind; for ports `receive` or `send`.
    pub kind: String,
    /// Packets that came in.
    pub packets: u64,
    /// Packets that it dropped, by reason.
    #[serde(
        default,
        deserialize_with = "limit::map::<_, _, { limit::REASONS }>",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(extend("maxProperties" = limit::REASONS))]
    pub dropped: BTreeMap<String, u64>,
    /// Cycles of the time-stamp counter per packet that came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_packet: Option<f64>,
    /// Packets that came in together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_batch: Option<f64>,
}
