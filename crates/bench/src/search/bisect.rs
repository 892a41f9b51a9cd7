//! Binary search.

use super::goal::Goal;
use super::halving::Halving;
use super::{Limits, Next, Search, SearchBounds, SearchError};
use crate::trial::Trial;

/// Binary search (RFC 2544 §26.1), of any load or over a list of loads (TST 009 §12.3.2).
///
/// All trials have the final duration of the goal. One trial decides a load if the goal is a single trial, such as
/// [`Goal::rfc2544`]; otherwise as many as the duration sum and the exceed ratio require. Trials whose loss host
/// interference may have caused are repeated up to [`Limits::interference_retries`] times.
#[derive(Debug)]
pub struct Bisect(Halving);

impl Bisect {
    /// Creates a search that starts at the highest load and ends when the bounds are within the width of the goal.
    pub fn new(goal: Goal, limits: Limits) -> Self {
        Self(Halving::new(goal, limits, None))
    }

    /// Creates a search over those of `loads` within the limits, in packets per second; it ends when the bounds are
    /// neighbours.
    ///
    /// # Errors
    /// [`SearchError::Loads`] without loads, or with more than a million.
    pub fn over(goal: Goal, limits: Limits, loads: Vec<u64>) -> Result<Self, SearchError> {
        Halving::new(goal, limits, None).restricted_to(loads).map(Self)
    }
}

impl Search for Bisect {
    fn next(&mut self) -> Next {
        self.0.next()
    }

    fn record(&mut self, trial: Trial) -> Result<(), SearchError> {
        self.0.tell(trial)
    }

    fn trials(&self) -> &[Trial] {
        &self.0.log.trials
    }

    fn bounds(&self) -> SearchBounds {
        self.0.bounds().into()
    }
}
