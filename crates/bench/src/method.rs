//! Methods: what is asked of a [`Bed`], and what the answers come to.
//!
//! A method is a state machine: it asks for a trial, is told what came of it, and has [findings](Findings) at any time,
//! also when it is ended early. It sends nothing and knows no clock, so all of them are proved on simulated devices.

use crate::bed::{Ask, Bed, BedError, Seen};
use crate::goal::Goal;
use crate::search::{LimitedBy, Limits, SearchError};
use crate::trial::Trial;
use report::{Latency, Quantity, Series, Summary};

/// What a method wants.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// A trial.
    Trial(Ask),
    /// A pause without traffic, seconds (RFC 2544 §23: the device restabilises).
    Pause(f64),
    /// Nothing: it is over.
    Done,
}

/// How thoroughly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Form {
    /// Seconds, for daily work; says where it deviates.
    #[default]
    Quick,
    /// As the standard has it.
    Standard,
}

/// What methods are told before they begin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// How thoroughly.
    pub form: Form,
    /// What counts as a throughput.
    pub goal: Goal,
    /// Loads to choose from.
    pub limits: Limits,
    /// What the medium carries of these frames, packets a second, where that is known.
    pub line_pps: Option<f64>,
    /// The throughput, packets a second, where that is known; else a method that needs it searches for it first.
    pub throughput_pps: Option<f64>,
}

/// A way to measure.
pub trait Method {
    /// What to do next. Says the same until it is told of the trial, or that the pause is over.
    fn next(&mut self) -> Step;

    /// Takes in what came of the trial that was asked for.
    ///
    /// # Errors
    /// [`SearchError`] if none was asked for, another was, or its counts contradict each other; the method is as before.
    fn tell(&mut self, seen: Seen) -> Result<(), SearchError>;

    /// The pause asked for is over.
    fn paused(&mut self);

    /// What is known so far.
    fn findings(&self) -> Findings;
}

/// What a method has found.
#[derive(Clone, PartialEq, Debug)]
pub struct Findings {
    /// Which method, and which standard.
    pub method: report::Method,
    /// What counted as a throughput.
    pub goal: Goal,
    /// Bounds of the throughput, where one was looked for; the lower one is 0 where none was found.
    pub summary: Summary,
    /// What set them.
    pub limited_by: LimitedBy,
    /// Latency, at the loads at which it was measured.
    pub latency: Vec<Latency>,
    /// What else it comes to.
    pub quantities: Vec<Quantity>,
    /// Its curves.
    pub series: Vec<Series>,
    /// What differs from the standard, and what makes the findings doubtful.
    pub deviations: Vec<String>,
    /// All trials, in order.
    pub trials: Vec<Trial>,
}

/// Why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The bed.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// The search.
    #[error(transparent)]
    Search(#[from] SearchError),
}

/// Carries a method out. `told` sees every trial and ends the measurement by returning false; `pause` waits.
///
/// # Errors
/// [`Stopped`]; the method has its findings up to there.
pub fn carry_out(
    method: &mut dyn Method,
    bed: &mut dyn Bed,
    mut told: impl FnMut(&Seen) -> bool,
    mut pause: impl FnMut(f64),
) -> Result<(), Stopped> {
    loop {
        match method.next() {
            Step::Done => return Ok(()),
            Step::Pause(seconds) => {
                pause(seconds);
                method.paused();
            }
            Step::Trial(ask) => {
                let seen = bed.trial(&ask)?;
                if !told(&seen) {
                    return Err(BedError::Interrupted.into());
                }
                method.tell(seen)?;
            }
        }
    }
}
