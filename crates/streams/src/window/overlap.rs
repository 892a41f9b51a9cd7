//! Policies for overlapping segments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Choice of bytes where segments overlap, among those not delivered yet. Delivered bytes stay.
///
/// Hosts differ, and an attacker who knows how can present different content to the host and to the observer (Novak and
/// Sturges, *Target-Based TCP Stream Reassembly*, 2007).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// The bytes that arrived first.
    First,
    /// The bytes that arrived last.
    Last,
    /// As Linux: the segment that starts first; of two that start together the longer; of two equal ones the earlier.
    /// This is the result of `tcp_data_queue_ofo` (`net/ipv4/tcp_input.c`: a segment covered by another one is dropped
    /// or replaced; the rest is read in order of start), and of Suricata's policy `linux`. Linux may also merge two
    /// adjacent segments before it compares; this depends on the driver and is not modelled.
    #[default]
    Linux,
}
