//! What a search is: it asks for trials, and sums up what it found.

mod bisect;
mod halving;
mod kind;
mod verified;

pub use bisect::Bisect;
pub use kind::SearchKind;
pub use verified::Verified;

use crate::goal::Goal;
use crate::trial::{BadTrial, Trial};

/// A method that finds a throughput by trials it does not run itself.
pub trait Search {
    /// What to do next. Asks for the same trial until it is told its outcome.
    fn next(&mut self) -> Next;

    /// Takes in the trial that was asked for.
    ///
    /// # Errors
    /// [`SearchError`] if none was asked for, another was, or its counts contradict each other; the search is as
    /// before.
    fn tell(&mut self, trial: Trial) -> Result<(), SearchError>;

    /// All trials so far, in order.
    fn trials(&self) -> &[Trial];
}

/// What a search wants.
#[derive(Clone, PartialEq, Debug)]
pub enum Next {
    /// A trial.
    Measure {
        /// Packets a second, one direction; a whole number.
        load_pps: f64,
        /// Seconds.
        duration_s: f64,
    },
    /// Nothing: it is over.
    Done(Summary),
}

/// Within what a search moves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    pub(crate) min_pps: u64,
    pub(crate) max_pps: u64,
    /// Most trials. A search that needs more ends with bounds too far apart.
    pub max_trials: usize,
    /// Most trial time, seconds. No trial begins that would end behind it.
    pub max_traffic_s: f64,
    /// How often in a row a trial is repeated whose loss the machine may have caused.
    pub machine_repeats: u32,
}

/// Highest load, packets a second.
const MAX_PPS: f64 = traffic::pace::MAX_PPS;

impl Limits {
    /// Loads from `min_pps` to `max_pps`, the latter what the link carries or the generator manages, whichever is
    /// less; whole packets a second between them are used. Up to 1000 trials in a day, 4 repeats.
    ///
    /// # Errors
    /// [`SearchError::Range`] if no such load is from 1 to 200 million.
    pub fn new(min_pps: f64, max_pps: f64) -> Result<Self, SearchError> {
        let (low, high) = (min_pps.max(1.0).ceil(), max_pps.floor());
        if !(low <= high && min_pps >= 0.0 && high <= MAX_PPS) {
            return Err(SearchError::Range { min_pps, max_pps });
        }
        Ok(Self {
            min_pps: low as u64,
            max_pps: high as u64,
            max_trials: 1000,
            max_traffic_s: 86_400.0,
            machine_repeats: 4,
        })
    }

    /// Lowest load, packets a second.
    pub fn min_pps(&self) -> f64 {
        self.min_pps as f64
    }

    /// Highest load, packets a second.
    pub fn max_pps(&self) -> f64 {
        self.max_pps as f64
    }
}

/// Why a search cannot begin, or does not take a trial.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// There are no loads to choose from.
    #[error("no load from {min_pps} to {max_pps} packets/s; give a range within 1 to {MAX_PPS}")]
    Range {
        /// Its lower end.
        min_pps: f64,
        /// Its upper end.
        max_pps: f64,
    },
    /// There is nothing to search for, or too much.
    #[error("{0} goals; a search has 1 to 16")]
    Goals(usize),
    /// No trial was asked for.
    #[error("a trial of {0} packets/s that nobody asked for; call `next` first")]
    Unasked(f64),
    /// Another trial was asked for.
    #[error("a trial of {load_pps} packets/s for {duration_s} s, but {wanted_pps} for {wanted_s} s was asked for")]
    Other {
        /// Its load.
        load_pps: f64,
        /// Its length.
        duration_s: f64,
        /// The load asked for.
        wanted_pps: f64,
        /// The length asked for.
        wanted_s: f64,
    },
    /// There are no loads to choose from, or too many.
    #[error("{0} loads within the limits; a list has 1 to 1000000, give another step or other limits")]
    Loads(u64),
    /// A load cannot be tried so often.
    #[error("{0} tries at a load; give 1 to 100")]
    Tries(u32),
    /// Not a search.
    #[error("`{0}` is no search; give `mlr`, `binary`, `binary,step=10000`, `verified` or `verified,r=2,z=5000`")]
    Kind(String),
    /// The trial contradicts itself.
    #[error(transparent)]
    Trial(#[from] BadTrial),
}

/// What a search found.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// One result for each goal, in the order the goals were given.
    pub results: Vec<GoalResult>,
    /// Trials made.
    pub trials: usize,
    /// Of these, with loss that the machine may have caused.
    pub machine_trials: usize,
    /// Sum of their intended durations, seconds.
    pub traffic_s: f64,
}

/// What was found for one goal.
#[derive(Clone, PartialEq, Debug)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// The largest load found to meet the goal among those below `upper_pps` (RFC 9971, Relevant Lower Bound); without
    /// an upper bound, the largest at all.
    pub lower_pps: Option<f64>,
    /// The smallest load found to fail the goal (Relevant Upper Bound).
    pub upper_pps: Option<f64>,
    /// The forwarding rate to be expected at `lower_pps` (Conditional Throughput).
    pub conditional_pps: Option<f64>,
    /// `(upper − lower) / upper`, which is what the goal's width bounds.
    pub width: Option<f64>,
    /// Whether both bounds exist and are as near as the goal wants (Regular Goal Result).
    pub regular: bool,
    /// What set the limit.
    pub limited_by: LimitedBy,
    /// What a reader must know.
    pub remarks: Vec<Remark>,
}

/// What set a throughput.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LimitedBy {
    /// The device lost packets above it.
    Device,
    /// The generator left packets unsent above it.
    Generator,
    /// The highest load was reached without failing.
    MaxLoad,
    /// The machine was in the way of every trial above it.
    Machine,
    /// The search ran out of trials or time.
    Budget,
}

/// What makes a result irregular or doubtful.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Remark {
    /// The highest load meets the goal: the throughput may be higher.
    MaxLoadHolds,
    /// Even the lowest load fails the goal.
    NothingHolds,
    /// Trials or time ran out before the bounds were near enough.
    OutOfBudget,
    /// The machine was in the way of every try at this load. The search went on as if it had failed, which is no bound.
    Machine {
        /// The load.
        load_pps: f64,
    },
    /// A load meets the goal though a lower one fails it (RFC 9971, Loss Inversion): the device, or the machine, is
    /// not steady. The lower one counts.
    Inversion {
        /// The highest that meets the goal.
        holds_pps: f64,
        /// The lowest that fails it.
        fails_pps: f64,
    },
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MaxLoadHolds => f.write_str("the highest load holds; the throughput may be higher"),
            Self::NothingHolds => f.write_str("not even the lowest load holds"),
            Self::OutOfBudget => f.write_str("trials or time ran out before the bounds were near enough"),
            Self::Machine { load_pps } => {
                write!(f, "{load_pps} packets/s could not be judged: the machine was in the way of every try")
            }
            Self::Inversion { holds_pps, fails_pps } => {
                write!(f, "{holds_pps} packets/s hold though {fails_pps} fail: not steady")
            }
        }
    }
}

/// Runs a search to its end.
#[cfg(test)]
pub(crate) fn run(search: &mut dyn Search, device: &mut crate::simulated::Simulated) -> Summary {
    for _ in 0..100_000 {
        match search.next() {
            Next::Measure { load_pps, duration_s } => {
                assert_eq!(search.next(), Next::Measure { load_pps, duration_s }, "asks for the same until told");
                assert!(load_pps >= 1.0 && load_pps.fract() == 0.0 && duration_s > 0.0);
                search.tell(device.offer(load_pps, duration_s)).unwrap();
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
