//! Result of one method with one traffic.

use crate::method::{MeasurementError, MethodInfo, MethodOutput};
use crate::search::Limits;
use crate::trial::DirectionCounts;
use std::collections::BTreeMap;

/// A method that ran, to its end or not.
#[derive(Debug)]
pub struct MethodRun {
    /// Name of the traffic, and of the method if there are several.
    pub name: String,
    /// The method.
    pub method: &'static MethodInfo,
    /// Result of the method.
    pub output: MethodOutput,
    /// Counts of each node in the last trial.
    pub nodes: Vec<report::Node>,
    /// Packets dropped by the DUT in all trials, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Packets of each direction in all trials, if there are several directions.
    pub directions: Vec<DirectionCounts>,
    /// Environment of the measurement.
    pub environment: report::Environment,
    /// Line rate that counts as 100 %, packets per second.
    pub line_pps: Option<f64>,
    /// Limits of a search.
    pub limits: Limits,
    /// Cause of an early end.
    pub error: Option<MeasurementError>,
}
