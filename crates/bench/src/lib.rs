//! Measurement of network functions: traffic, trials, searches, methods, DUTs, scenarios and sessions.
//!
//! A [`Session`](session::Session) measures a chain or a scenario. Underneath, a [`Method`] chooses trials, a
//! [`Measurer`] (a generator with a DUT between its ports) executes them, and a [`Search`] finds a throughput from
//! their outputs. Neither methods nor searches send packets or read a clock, so all are tested on [simulated] devices.
//! [`Mlr`] is the multiple loss ratio search of RFC 9971: several goals at once, short trials first, tolerant of noise.
//!
//! ```
//! use bench::{Goal, Limits, Mlr, Next, Search, Trial};
//!
//! // a device that forwards at most 3.3 Mpps
//! let device = |load_pps: f64, duration_s: f64| {
//!     let intended = (load_pps * duration_s) as u64;
//!     let received = intended.min((3.3e6 * duration_s) as u64);
//!     Trial { load_pps, duration_s, intended, sent: intended, received, lost: intended - received, ..Trial::default() }
//! };
//! let mut search = Mlr::new(vec![Goal::quick()], Limits::new(1e3, 14.88e6)?)?;
//! let summary = loop {
//!     match search.next() {
//!         Next::Measure { load_pps, duration_s } => search.record(device(load_pps, duration_s))?,
//!         Next::Done(summary) => break summary,
//!     }
//! };
//! let result = &summary.results[0];
//! assert!(result.regular && result.lower_pps <= Some(3.3e6) && result.lower_pps > Some(3.2e6));
//! # Ok::<(), bench::SearchError>(())
//! ```
#![forbid(unsafe_code)]

pub mod anatomy;
mod calibration;
pub mod capacity;
pub mod dut;
pub mod environment;
pub mod generator;
pub mod method;
pub mod scenario;
pub mod search;
pub mod session;
pub mod simulated;
pub mod traffic_spec;
pub mod trial;

pub use calibration::{calibrate, loopback};
pub use dut::{DutMeasurer, ExternalDut, ExternalDutError, InProcessDut, QUEUE_SIZE, RunningDut};
pub use environment::{FixedFrequency, FrequencyError, HostCheck, Steal, environment};
pub use generator::{ExternalGenerator, Generator, PacketSource};
pub use method::{Method, MethodOutput, Step};
pub use scenario::Scenario;
pub use search::{
    Bisect, Goal, GoalError, GoalResult, LimitedBy, Limits, Mlr, Next, Remark, Search, SearchBounds, SearchError,
    SearchKind, Summary, Verified,
};
pub use traffic_spec::{
    CaptureFile, CaptureSpec, PrepareError, PreparedTraffic, Profile, SyntheticOptions, TrafficSpec, flow_settings,
    parse_frame_sizes,
};
pub use trial::{
    DirectionCounts, InconsistentCounts, Measurer, MeasurerError, SecondCounts, StreamOutput, Trial, TrialInput,
    TrialOutput,
};
