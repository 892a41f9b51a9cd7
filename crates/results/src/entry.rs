//! What is listed of a result.

use serde::Serialize;
use std::collections::BTreeMap;

/// A result as it is listed; [`Store::get`](crate::Store::get) gives all of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Id of the document.
    pub id: String,
    /// Study it belongs to.
    pub study: String,
    /// Parameters that tell it from the others of the study.
    pub cell: BTreeMap<String, String>,
    /// Label of the device under test.
    pub dut: String,
    /// Frames: bytes with the FCS, or the name of a mix.
    pub frame: String,
    /// Mean bytes of a frame, with the FCS.
    pub frame_bytes: f64,
    /// Start of the measurement (RFC 3339).
    pub date: String,
    /// Name of the goal.
    pub goal: Option<String>,
    /// Highest load that met the goal, packets a second; 0 when none did.
    pub lower_pps: f64,
    /// Lowest load that did not.
    pub upper_pps: Option<f64>,
    /// Conditional throughput, packets a second.
    pub conditional_pps: Option<f64>,
    /// What kept the throughput from being higher: `dut`, `generator`, `wire`, `machine`.
    pub limited_by: String,
    /// Trials made.
    pub trials: u64,
    /// Method, as `throughput`.
    pub method: String,
    /// Version of the device under test.
    pub version: Option<String>,
    /// Name and version of the program that measured.
    pub tool: String,
    /// Tags, in order.
    pub tags: Vec<String>,
}
