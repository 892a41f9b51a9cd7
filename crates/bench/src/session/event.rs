//! Progress events.

use super::{CellResult, MethodRun, SessionCell};
use crate::environment::HostCheck;
use crate::search::{Goal, SearchBounds};
use crate::traffic_spec::PreparedTraffic;
use crate::trial::Trial;
use std::time::Duration;

/// A step of a session.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The host was checked, once and before the first DUT starts.
    HostChecked(&'a HostCheck),
    /// The goal of the first cell.
    Goal(&'a Goal),
    /// Results of an earlier session are reused.
    Resumed {
        /// Name of the session run.
        session_run: &'a str,
        /// Number of its results.
        results: usize,
    },
    /// No earlier session has the same cells.
    NothingToResume,
    /// A cell starts.
    CellStarted {
        /// Label.
        label: &'a str,
        /// Number of the cell, from 1, counting repetitions.
        number: usize,
        /// Number of cells, counting repetitions.
        count: usize,
        /// Estimated time until the end of the session.
        remaining: Option<Duration>,
    },
    /// All results of a cell are those of an earlier session.
    CellReused,
    /// A DUT runs; without CPUs if it is simulated.
    DutStarted {
        /// True for a chain in this process.
        in_process: bool,
        /// CPUs of the DUT and of the generator.
        cpus: Option<(&'a [usize], &'a [usize])>,
    },
    /// Traffic is prepared.
    TrafficPrepared(&'a PreparedTraffic),
    /// A method starts.
    MethodStarted(&'a str),
    /// A trial starts.
    TrialStarted {
        /// Load of the first phase in packets per second and direction.
        load_pps: f64,
        /// Duration in seconds.
        duration_s: f64,
        /// Bounds of the search so far.
        bounds: SearchBounds,
    },
    /// A second of a trial has passed, unless the trial is about as short. Sent by another thread.
    TrialSecond(&'a TrialSecond),
    /// A trial is over.
    Trial(&'a Trial),
    /// A method or a calibration has no more trials.
    TrialsDone,
    /// A method is complete.
    MethodDone(&'a MethodRun, &'a PreparedTraffic),
    /// A method was not measured.
    MethodSkipped {
        /// Name of the traffic and the method.
        name: &'a str,
        /// Reason.
        reason: &'a str,
    },
    /// A cell was measured, or skipped because of an error.
    CellDone {
        /// The cell.
        cell: &'a SessionCell<'a>,
        /// Results, or why there are none.
        results: Result<&'a [CellResult], &'a str>,
    },
    /// Something that the reader of the results should know.
    Note(&'a str),
    /// Something failed without invalidating results.
    Warning(&'a str),
    /// Something failed.
    Error(&'a str),
    /// The session was cancelled.
    Cancelled {
        /// Number of the current cell, from 1.
        number: usize,
        /// Number of cells.
        count: usize,
    },
}

/// A second of a trial that runs. Rates are sums of all directions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TrialSecond {
    /// Packets sent per second.
    pub sent_pps: f64,
    /// Packets received per second.
    pub received_pps: f64,
    /// Packets sent and not received so far in the trial: inside the DUT, or lost.
    pub missing: i64,
    /// Mean of the latencies recorded in this second, nanoseconds; none if there are none.
    pub latency_mean_ns: Option<f64>,
}

/// Receives the events of a session.
pub trait Observer: Send {
    /// Handles an event.
    fn on_event(&mut self, event: &Event<'_>);
}

impl<F: FnMut(&Event<'_>) + Send> Observer for F {
    fn on_event(&mut self, event: &Event<'_>) {
        self(event);
    }
}
