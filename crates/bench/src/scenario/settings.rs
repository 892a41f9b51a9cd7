//! Settings of a measurement.

use crate::method::Thoroughness;
use crate::search::{Goal, SearchKind};

/// Settings of the measurements of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurementSettings {
    /// Names of the methods, in order.
    pub methods: Vec<String>,
    /// Number and length of trials.
    pub thoroughness: Thoroughness,
    /// Goal of a throughput search.
    pub goal: Goal,
    /// Search algorithm.
    pub search: SearchKind,
    /// Load of the method `load`, packets per second.
    pub rate_pps: Option<f64>,
    /// Line rate of the medium, bits per second.
    pub line_rate_bps: Option<f64>,
    /// Duration of a soak, seconds.
    pub soak_s: Option<f64>,
    /// True if probes are traced through the DUT, for the parts of their latency.
    pub anatomy: bool,
    /// Number of times that everything is measured.
    pub repeat: u32,
}

impl Default for MeasurementSettings {
    /// One quick throughput search.
    fn default() -> MeasurementSettings {
        MeasurementSettings {
            methods: vec![crate::method::THROUGHPUT.to_owned()],
            thoroughness: Thoroughness::Quick,
            goal: Goal::quick(),
            search: SearchKind::default(),
            rate_pps: None,
            line_rate_bps: None,
            soak_s: None,
            anatomy: false,
            repeat: 1,
        }
    }
}
