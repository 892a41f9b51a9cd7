//! Input of a trial.

use serde::{Deserialize, Serialize};

/// Part of a trial with a constant load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Phase {
    /// Offered rate in packets per second and direction.
    pub load_pps: f64,
    /// Duration in seconds.
    pub duration_s: f64,
}

/// Input of a trial (RFC 9971, Trial Input).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TrialInput {
    /// Phases without pauses between them; at least one.
    pub phases: Vec<Phase>,
    /// Number of equal parts of the trial in which loss is counted separately; 0 for its sum only.
    pub loss_bins: usize,
    /// True if delay variation is measured.
    pub delay_variation: bool,
    /// True if the displacement of reordered packets is measured.
    pub displacement: bool,
    /// True if packets are counted by destination MAC address, if the traffic has several.
    pub vnfs: bool,
    /// True if payloads are compared with those sent, where all are synthetic. A packet that differs is corrupt and
    /// lost.
    pub verify_payload: bool,
    /// One probe in this many on average is traced through the DUT, if any.
    pub trace_one_in: Option<u64>,
    /// Time in seconds after the start at which the tagged packet of the first direction is due (RFC 2544 §26.2).
    pub tagged_at_s: Option<f64>,
    /// Time for which TCP connections are held open instead of that of the traffic, seconds.
    pub hold_s: Option<f64>,
    /// MAC addresses of the frames, instead of those of the traffic.
    pub macs: Option<Macs>,
    /// Disturbance of the DUT during the trial.
    pub disturbance: Option<Disturbance>,
    /// True if the streams of the profile are sent, each at its rate for every second; the only phase has the total
    /// duration and the mean rate.
    pub profile: bool,
}

/// MAC addresses that take turns in the frames of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Macs {
    /// Number of the first address.
    pub first: u64,
    /// Number of addresses, from 1.
    pub count: u32,
    /// True if they are source addresses, else destination addresses.
    pub is_source: bool,
}

/// Disturbance of the DUT during a trial.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Disturbance {
    /// A reset (RFC 2544 §26.6, RFC 6201).
    Reset {
        /// Seconds after the start of the trial.
        at_s: f64,
    },
    /// Continuous changes of tables or rules.
    Changes {
        /// Changes per second.
        per_second: f64,
    },
}

impl TrialInput {
    /// Returns a trial with a constant load.
    pub fn constant(load_pps: f64, duration_s: f64) -> TrialInput {
        TrialInput { phases: vec![Phase { load_pps, duration_s }], ..TrialInput::default() }
    }

    /// Returns the total duration in seconds.
    pub fn duration_s(&self) -> f64 {
        self.phases.iter().map(|p| p.duration_s).sum()
    }
}
