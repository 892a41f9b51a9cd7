//! Throughput searches: procedures that choose the load and duration of each trial, and summarise the results.

mod bisect;
mod bounds;
mod classify;
pub mod goal;
mod halving;
mod kind;
mod loss_floor;
mod mlr;
mod trial_log;
mod verified;

pub use bisect::Bisect;
pub use classify::{Class, Outcome, classify, conditional_throughput};
pub use goal::{Goal, GoalError};
pub use kind::SearchKind;
pub use mlr::Mlr;
pub use verified::Verified;

use crate::trial::{InconsistentCounts, Trial};

/// A throughput search. It sends nothing itself.
pub trait Search {
    /// Returns the next step; the same one until its trial is recorded.
    fn next(&mut self) -> Next;

    /// Records the pending trial.
    ///
    /// # Errors
    /// [`SearchError`] if no trial is pending, it is another trial, or its counts are inconsistent; the search is
    /// unchanged.
    fn record(&mut self, trial: Trial) -> Result<(), SearchError>;

    /// Returns all trials so far, in order.
    fn trials(&self) -> &[Trial];

    /// Returns the bounds so far, of the first goal and the stage that is in progress.
    fn bounds(&self) -> SearchBounds;
}

/// Loads between which a search continues, packets per second and direction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SearchBounds {
    /// Highest load that meets the goal.
    pub lower_pps: Option<f64>,
    /// Lowest load that does not.
    pub upper_pps: Option<f64>,
}

/// Next step of a search.
#[derive(Clone, PartialEq, Debug)]
pub enum Next {
    /// Execute a trial.
    Measure {
        /// Packets per second and direction, a whole number.
        load_pps: f64,
        /// Seconds.
        duration_s: f64,
    },
    /// The search is complete.
    Done(Summary),
}

/// Limits of a search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    pub(crate) min_pps: u64,
    pub(crate) max_pps: u64,
    /// Maximum number of trials. A search that needs more ends with bounds too far apart.
    pub max_trials: usize,
    /// Maximum sum of trial durations, seconds.
    pub max_traffic_s: f64,
    /// Maximum number of consecutive retries of a trial whose loss host interference may have caused.
    pub interference_retries: u32,
}

/// Highest load of any search, packets per second.
const MAX_LOAD_PPS: f64 = traffic::pace::MAX_PPS;
/// Range of loads in real time, packets per second; the lowest is 100 packets in a trial of 50 ms.
const DEFAULT_MIN_PPS: f64 = 2e3;
const DEFAULT_MAX_PPS: f64 = 150e6;
/// Time of consecutive trials with host interference in real time, seconds: where half of the trials have it, short
/// ones must be repeated often.
const MAX_INTERFERED_S: f64 = 1.0;

impl Limits {
    /// Returns limits with loads from `min_pps` to `max_pps` in whole packets per second, both inclusive, and with up
    /// to 1000 trials, a day of trial time and 4 retries. `max_pps` is the line rate or the rate of the generator,
    /// whichever is lower.
    ///
    /// # Errors
    /// [`SearchError::Range`] if the range is empty or exceeds 200 million packets per second.
    pub fn new(min_pps: f64, max_pps: f64) -> Result<Self, SearchError> {
        let (low, high) = (min_pps.max(1.0).ceil(), max_pps.floor());
        if !(low <= high && min_pps >= 0.0 && high <= MAX_LOAD_PPS) {
            return Err(SearchError::Range { min_pps, max_pps });
        }
        Ok(Self {
            min_pps: low as u64,
            max_pps: high as u64,
            max_trials: 1000,
            max_traffic_s: 86_400.0,
            interference_retries: 4,
        })
    }

    /// Returns the limits for a DUT in real time, whose trials may have host interference. `line_pps` is the line rate,
    /// if known.
    ///
    /// # Errors
    /// [`SearchError::Range`] if the line rate leaves no load.
    pub fn in_real_time(goal: &Goal, line_pps: Option<f64>) -> Result<Self, SearchError> {
        let highest = line_pps.unwrap_or(DEFAULT_MAX_PPS).min(DEFAULT_MAX_PPS);
        let mut limits = Limits::new(DEFAULT_MIN_PPS.min(highest), highest)?;
        limits.interference_retries = limits.interference_retries.max((MAX_INTERFERED_S / goal.final_s()) as u32);
        Ok(limits)
    }

    /// Returns the lowest load, packets per second.
    pub fn min_pps(&self) -> f64 {
        self.min_pps as f64
    }

    /// Returns the highest load, packets per second.
    pub fn max_pps(&self) -> f64 {
        self.max_pps as f64
    }
}

/// Reason why a search cannot start or rejects a trial.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The range of loads is empty.
    #[error("invalid range of loads: {min_pps} to {max_pps} packets/s; use a range within 1 to {MAX_LOAD_PPS}")]
    Range {
        /// Lower end.
        min_pps: f64,
        /// Upper end.
        max_pps: f64,
    },
    /// No goals or too many.
    #[error("invalid number of goals: {0}; a search has 1 to 16")]
    Goals(usize),
    /// No trial is pending.
    #[error("unexpected trial of {0} packets/s: call `next` first")]
    UnexpectedTrial(f64),
    /// Another trial is pending.
    #[error(
        "unexpected trial of {load_pps} packets/s for {duration_s} s: {requested_pps} packets/s for {requested_s} s \
         were requested"
    )]
    DifferentTrial {
        /// Load of the trial.
        load_pps: f64,
        /// Duration of the trial.
        duration_s: f64,
        /// Requested load.
        requested_pps: f64,
        /// Requested duration.
        requested_s: f64,
    },
    /// The list of loads is empty or too long.
    #[error("{0} loads within the limits; a list has 1 to 1000000, use another step or other limits")]
    Loads(u64),
    /// The number of attempts is out of range.
    #[error("{0} attempts per load; use 1 to 100")]
    Attempts(u32),
    /// The text does not name a search.
    #[error("unknown search `{0}`; use `mlr`, `binary`, `binary,step=10000`, `verified` or `verified,r=2,z=5000`")]
    UnknownSearch(String),
    /// The counts of the trial are inconsistent.
    #[error(transparent)]
    Trial(#[from] InconsistentCounts),
}

/// Result of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// One result per goal, in the order of the goals.
    pub results: Vec<GoalResult>,
    /// Number of trials.
    pub trials: usize,
    /// Number of trials with host interference.
    pub interfered_trials: usize,
    /// Sum of the intended durations, seconds.
    pub traffic_s: f64,
}

/// Result for one goal.
#[derive(Clone, PartialEq, Debug)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// Highest load below `upper_pps` that meets the goal (RFC 9971, Relevant Lower Bound); without an upper bound, the
    /// highest load that meets it.
    pub lower_pps: Option<f64>,
    /// Lowest load that fails the goal (Relevant Upper Bound).
    pub upper_pps: Option<f64>,
    /// Expected forwarding rate at `lower_pps` (Conditional Throughput).
    pub conditional_pps: Option<f64>,
    /// `(upper − lower) / upper`, which the width of the goal limits.
    pub width: Option<f64>,
    /// True if both bounds exist and are within the width of the goal (Regular Goal Result).
    pub regular: bool,
    /// Limiting factor.
    pub limited_by: LimitedBy,
    /// Reservations about the result.
    pub remarks: Vec<Remark>,
}

/// Limiting factor of a throughput.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LimitedBy {
    /// The DUT loses packets above it.
    Device,
    /// The generator leaves packets unsent above it.
    Generator,
    /// The highest load meets the goal.
    MaxLoad,
    /// Every trial above it had host interference.
    HostInterference,
    /// The search ran out of trials or time.
    Budget,
}

impl From<LimitedBy> for report::LimitedBy {
    fn from(limited_by: LimitedBy) -> report::LimitedBy {
        match limited_by {
            LimitedBy::Device => report::LimitedBy::Dut,
            LimitedBy::Budget => report::LimitedBy::Budget,
            LimitedBy::Generator => report::LimitedBy::Generator,
            LimitedBy::MaxLoad => report::LimitedBy::MaxLoad,
            LimitedBy::HostInterference => report::LimitedBy::HostInterference,
        }
    }
}

/// Reservation about a result.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Remark {
    /// The highest load meets the goal: the throughput may be higher.
    MaxLoadHolds,
    /// Even the lowest load fails the goal.
    NothingHolds,
    /// Trials or time ran out before the bounds were within the width.
    OutOfBudget,
    /// Every trial at this load had host interference. The search continued as if the load had failed, but it is not a
    /// bound.
    HostInterference {
        /// Load.
        load_pps: f64,
    },
    /// The search was ended because several loads could not be judged: the host is too busy to measure the DUT.
    HostTooBusy {
        /// Trials with host interference.
        interfered: usize,
        /// All trials.
        trials: usize,
    },
    /// Packets are lost at the same ratio at any load up to one: the highest rate without loss depends on chance.
    LossFloor {
        /// Share of the packets lost.
        loss_ratio: f64,
        /// Highest load with no more loss.
        up_to_pps: f64,
    },
    /// A load meets the goal although a lower one fails it (RFC 9971, Loss Inversion): the DUT or the host is not
    /// stable. The lower one counts.
    Inversion {
        /// Highest load that meets the goal.
        holds_pps: f64,
        /// Lowest load that fails the goal.
        fails_pps: f64,
    },
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MaxLoadHolds => f.write_str("the highest load meets the goal; the throughput may be higher"),
            Self::NothingHolds => f.write_str("the lowest load fails the goal"),
            Self::OutOfBudget => {
                f.write_str("trials or time ran out before the bounds were within the width of the goal")
            }
            Self::HostInterference { load_pps } => {
                write!(
                    f,
                    "{load_pps} packets/s could not be judged: every attempt was invalidated by host interference"
                )
            }
            Self::HostTooBusy { interfered, trials } => write!(
                f,
                "the search was ended early: {interfered} of {trials} trials were invalidated by host interference; stop \
                 other programs, or use CPUs of their own"
            ),
            Self::LossFloor { loss_ratio, up_to_pps } => write!(
                f,
                "about {loss_ratio:.0e} of the packets are lost at every load up to {up_to_pps} packets/s: the highest \
                 rate without loss depends on chance; measure with a loss ratio above that, such as --loss {}%",
                loss_floor::goal_percent(*loss_ratio)
            ),
            Self::Inversion { holds_pps, fails_pps } => {
                write!(
                    f,
                    "{holds_pps} packets/s meet the goal although {fails_pps} fail it: the results are not stable"
                )
            }
        }
    }
}

/// Runs a search to its end on a simulated device.
#[cfg(test)]
pub(crate) fn run(search: &mut dyn Search, device: &mut crate::simulated::Simulated) -> Summary {
    for _ in 0..100_000 {
        match search.next() {
            Next::Measure { load_pps, duration_s } => {
                assert_eq!(
                    search.next(),
                    Next::Measure { load_pps, duration_s },
                    "returns the same step until it is recorded"
                );
                assert!(load_pps >= 1.0 && load_pps.fract() == 0.0 && duration_s > 0.0);
                search.record(device.offer(load_pps, duration_s)).unwrap();
            }
            Next::Done(summary) => {
                assert_eq!(search.next(), Next::Done(summary.clone()), "stays done");
                assert_eq!(summary.trials, search.trials().len());
                return summary;
            }
        }
    }
    panic!("no end after 100,000 trials");
}

#[cfg(test)]
mod tests;
