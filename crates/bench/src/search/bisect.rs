//! Binary search.

use super::halving::Halving;
use super::{Limits, Next, Search, SearchError};
use crate::goal::Goal;
use crate::trial::Trial;

/// Binary search (RFC 2544 §26.1), of any load or over a list of loads (TST 009 §12.3.2).
///
/// All trials have the goal's final length. With a goal of one trial without loss, as [`Goal::rfc2544`], one trial decides
/// about a load; with another, as many as its duration sum and exceed ratio ask for. Loss that the machine may have caused
/// is not counted, and the trial repeated as [`Limits::machine_repeats`] says.
#[derive(Debug)]
pub struct Bisect(Halving);

impl Bisect {
    /// From the highest load down, until the bounds are within the goal's width.
    pub fn new(goal: Goal, limits: Limits) -> Self {
        Self(Halving::new(goal, limits, None))
    }

    /// Over loads in packets a second, of which those within the limits count, until two neighbours are the bounds.
    ///
    /// # Errors
    /// [`SearchError::Loads`] if there is none, or more than a million.
    pub fn over(goal: Goal, limits: Limits, loads: Vec<u64>) -> Result<Self, SearchError> {
        Halving::new(goal, limits, None).among(loads).map(Self)
    }
}

impl Search for Bisect {
    fn next(&mut self) -> Next {
        self.0.next()
    }

    fn tell(&mut self, trial: Trial) -> Result<(), SearchError> {
        self.0.tell(trial)
    }

    fn trials(&self) -> &[Trial] {
        &self.0.ledger.trials
    }
}
