//! An entry of a list of results.

use serde::Serialize;
use std::collections::BTreeMap;

/// The columns of a result; [`Store::get`](crate::Store::get) returns the whole result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Id of the document.
    pub id: String,
    /// Study.
    pub study: String,
    /// Parameters that distinguish it from the others of the study.
    pub cell: BTreeMap<String, String>,
    /// Label of the device under test.
    pub dut: String,
    /// Frames: bytes with the FCS, or the name of a mix.
    pub frame: String,
    /// Mean frame size in bytes, with the FCS.
    pub frame_bytes: f64,
    /// Start of the measurement (RFC 3339).
    pub date: String,
    /// Name of the goal.
    pub goal: Option<String>,
    /// Highest load that met the goal, packets per second; 0 if none did.
    pub lower_pps: f64,
    /// Lowest load that did not meet the goal, packets per second.
    pub upper_pps: Option<f64>,
    /// Conditional throughput, packets per second.
    pub conditional_pps: Option<f64>,
    /// Limiting factor of the throughput: `dut`, `generator`, `line_rate`, `host_interference`, `budget`, `max_load`.
    pub limited_by: String,
    /// Number of trials.
    pub trials: u64,
    /// Method, such as `throughput`.
    pub method: String,
    /// Version of the device under test.
    pub version: Option<String>,
    /// Name and version of the program that measured.
    pub tool: String,
    /// Tags, sorted.
    pub tags: Vec<String>,
}
