//! One node of the device under test.

use crate::limit;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counters of an NF or a port in the trials at the lower bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Kind of the NF; `receive` or `send` for a port.
    pub kind: String,
    /// Packets received.
    pub packets: u64,
    /// Packets dropped, by reason.
    #[serde(
        default,
        deserialize_with = "limit::map::<_, _, { limit::REASONS }>",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(extend("maxProperties" = limit::REASONS))]
    pub dropped: BTreeMap<String, u64>,
    /// Cycles of the time-stamp counter per received packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles_per_packet: Option<f64>,
    /// Mean number of packets in a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_batch: Option<f64>,
}
