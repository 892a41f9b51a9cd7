//! Measurement methods: procedures that choose trials for a [`Measurer`] and evaluate their outputs.
//!
//! A method is a state machine without I/O and without a clock: it returns the next trial, records the output, and
//! reports its [output](MethodOutput) at any time, also after an early end. All methods are therefore tested on
//! simulated devices. [`METHODS`] lists them; [`start`] starts one by its name. A new method is a file that implements
//! `Procedure`, and one line in `registry.rs`.
//!
//! ```
//! use bench::method::{self, MethodSettings, Thoroughness};
//! use bench::{Goal, Limits, simulated::Simulated};
//!
//! let mut device: Simulated = "capacity=3e6,buffer=900,jitter=300".parse()?;
//! let settings = MethodSettings {
//!     line_pps: Some(4e6),
//!     ..MethodSettings::new(Thoroughness::Quick, Goal::quick(), Limits::new(1e3, 4e6)?)
//! };
//! let mut method = method::start("back-to-back", &settings)?;
//! method::run(&mut *method, &mut device, |_| true, |_seconds| ())?;
//! let output = method.output();
//! let time = output.quantities.iter().find(|q| q.name == "corrected buffer time").unwrap();
//! assert!((time.value - 900.0 / 4e6).abs() < 2e-5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accumulate;
mod changes;
mod concurrent_connections;
mod connections;
mod delay_variation;
mod displacement;
mod given_load;
mod procedure;
mod profile;
mod properties;
mod receive_rate;
mod registry;
mod rfc2544;
mod rfc2889;
mod soak;
mod tcp_connections;

pub(crate) use accumulate::percentile;
pub use profile::ProfileSummary;
pub use properties::{LoadChoice, Properties, RequiredTraffic};
pub use registry::{GIVEN_LOAD, METHODS, MethodError, MethodInfo, PROFILE, RFC2544, THROUGHPUT, find, start};
pub(crate) use rfc2544::throughput::TRACED_SHARES;

use crate::search::{Goal, LimitedBy, Limits, SearchBounds, SearchError, SearchKind};
use crate::trial::{Measurer, MeasurerError, StreamOutput, Trial, TrialInput, TrialOutput};
use report::{Latency, LatencyAnatomy, Quantity, Series, Summary};

/// Next step of a method.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Execute a trial.
    Trial(TrialInput),
    /// Send nothing for this many seconds (RFC 2544 §23: the DUT restabilises).
    Pause(f64),
    /// The method is complete.
    Done,
}

/// Length and number of the trials of a method.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Thoroughness {
    /// A few seconds, for daily work. Differences from the standard are reported as deviations.
    #[default]
    Quick,
    /// As the standard specifies.
    Standard,
}

/// Settings of a method.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MethodSettings {
    /// Length and number of trials.
    pub thoroughness: Thoroughness,
    /// Goal of the throughput search.
    pub goal: Goal,
    /// Range of loads.
    pub limits: Limits,
    /// Line rate of the medium for the frames sent, packets per second, if known.
    pub line_pps: Option<f64>,
    /// Throughput in packets per second, if known; otherwise a method that needs it starts with a search.
    pub throughput_pps: Option<f64>,
    /// Load of the method `load`, packets per second.
    pub rate_pps: Option<f64>,
    /// Mean rate and length of the profile, for the method `profile`.
    pub profile: Option<ProfileSummary>,
    /// Search procedure for the throughput.
    pub search: SearchKind,
    /// Packets per connection in both directions, for the method `connections`.
    pub packets_per_connection: f64,
    /// Number of flows: of addresses for `address-table` and `learning-rate`, of pairs of client address and port for
    /// `concurrent-connections`.
    pub flows: u64,
    /// Duration of the method `soak`, seconds; by default 10 s, or 2 h if standard.
    pub soak_s: Option<f64>,
    /// Load of the method `soak` as a share of the throughput.
    pub soak_share: f64,
    /// True if the methods `throughput` and `load` trace probes through the DUT.
    pub anatomy: bool,
}

impl MethodSettings {
    /// Returns settings with MLRsearch, an unknown line rate and throughput, 10 packets per connection, and a soak at
    /// 90 % of the throughput.
    pub fn new(thoroughness: Thoroughness, goal: Goal, limits: Limits) -> MethodSettings {
        MethodSettings {
            thoroughness,
            goal,
            limits,
            line_pps: None,
            throughput_pps: None,
            rate_pps: None,
            profile: None,
            search: SearchKind::Mlr,
            packets_per_connection: 10.0,
            flows: 1024,
            soak_s: None,
            soak_share: 0.9,
            anatomy: false,
        }
    }

    /// Returns the load that counts as 100 %: the line rate or the highest allowed load, whichever is lower.
    pub fn top_pps(&self) -> f64 {
        self.line_pps.unwrap_or(f64::INFINITY).min(self.limits.max_pps())
    }

    /// Selects a value by thoroughness.
    pub(crate) fn select<T>(&self, quick: T, standard: T) -> T {
        match self.thoroughness {
            Thoroughness::Quick => quick,
            Thoroughness::Standard => standard,
        }
    }
}

/// A measurement procedure in progress.
pub trait Method {
    /// Returns the next step; the same one until its trial is recorded or its pause is over.
    fn next(&mut self) -> Step;

    /// Records the output of the trial that [`next`](Method::next) returned.
    ///
    /// # Errors
    /// [`SearchError`] if no trial is pending, the output belongs to another trial, or its counts are inconsistent; the
    /// method is unchanged.
    fn record(&mut self, output: TrialOutput) -> Result<(), SearchError>;

    /// Marks the pending pause as over.
    fn paused(&mut self);

    /// Returns the bounds of the throughput search so far.
    fn bounds(&self) -> SearchBounds;

    /// Returns the result so far.
    fn output(&self) -> MethodOutput;
}

/// A step of a measurement, for its observer.
#[derive(Clone, Copy, Debug)]
pub enum RunStep<'a> {
    /// A trial starts.
    Started(&'a TrialInput, SearchBounds),
    /// A trial is over.
    Done(&'a TrialOutput),
}

/// Result of a method.
#[derive(Clone, PartialEq, Debug)]
pub struct MethodOutput {
    /// Name and standard of the method.
    pub method: report::Method,
    /// Goal of the throughput search.
    pub goal: Goal,
    /// Bounds of the throughput, if it was searched for; the lower bound is 0 if no load meets the goal.
    pub summary: Summary,
    /// Limiting factor of the bounds.
    pub limited_by: LimitedBy,
    /// Latency at each load at which it was measured.
    pub latency: Vec<Latency>,
    /// Parts of the latency at each load at which probes were traced.
    pub anatomy: Vec<LatencyAnatomy>,
    /// Other measured quantities.
    pub quantities: Vec<Quantity>,
    /// Measured curves.
    pub series: Vec<Series>,
    /// Counts of the streams of a profile, per second, or one entry per stream with the sum of all seconds.
    pub streams: Vec<StreamOutput>,
    /// Deviations from the standard, and reservations about the result.
    pub deviations: Vec<String>,
    /// All trials in order.
    pub trials: Vec<Trial>,
}

/// Cause of a measurement's early end.
#[derive(Debug, thiserror::Error)]
pub enum MeasurementError {
    /// The measurer failed or was interrupted.
    #[error(transparent)]
    Measurer(#[from] MeasurerError),
    /// The search rejected a trial.
    #[error(transparent)]
    Search(#[from] SearchError),
}

/// Runs a method to its end. `on_step` receives the start and the output of every trial and ends the measurement by
/// returning false; `pause` waits for the given number of seconds.
///
/// # Errors
/// [`MeasurementError`]; the method keeps its output up to that point.
pub fn run(
    method: &mut dyn Method,
    measurer: &mut dyn Measurer,
    mut on_step: impl FnMut(RunStep<'_>) -> bool,
    mut pause: impl FnMut(f64),
) -> Result<(), MeasurementError> {
    loop {
        match method.next() {
            Step::Done => return Ok(()),
            Step::Pause(seconds) => {
                pause(seconds);
                method.paused();
            }
            Step::Trial(input) => {
                if !on_step(RunStep::Started(&input, method.bounds())) {
                    return Err(MeasurerError::Interrupted.into());
                }
                let output = measurer.trial(&input)?;
                if !on_step(RunStep::Done(&output)) {
                    return Err(MeasurerError::Interrupted.into());
                }
                method.record(output)?;
            }
        }
    }
}

#[cfg(test)]
mod tests;
