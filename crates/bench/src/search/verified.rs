//! Binary search with loss verification.

use super::halving::Halving;
use super::{Limits, Next, Search, SearchError};
use crate::goal::Goal;
use crate::trial::Trial;

/// Binary search with loss verification (TST 009 §12.3.3): a trial with loss is repeated, and its load holds as soon as one
/// trial is good; it fails after so many bad ones, or after one that missed more packets than a bound.
///
/// Results have the goal that this comes to (RFC 9971, Compliance): with `tries` trials of length `f` a duration sum of
/// `tries · f` and an exceed ratio of `1 − 1/tries`.
#[derive(Debug)]
pub struct Verified(Halving);

impl Verified {
    /// Up to `tries` trials at a load, 1 to 100 (`max(r)`); one that misses more than `most_lost` packets (`z`) is the last.
    /// Over `loads`, if there are any, else any.
    ///
    /// # Errors
    /// [`SearchError::Tries`], [`SearchError::Loads`].
    pub fn new(
        goal: Goal,
        limits: Limits,
        tries: u32,
        most_lost: Option<u64>,
        loads: Option<Vec<u64>>,
    ) -> Result<Self, SearchError> {
        if !(1..=100).contains(&tries) {
            return Err(SearchError::Tries(tries));
        }
        let sum_ns = goal.final_ns * u64::from(tries);
        let exceed_ratio = 1.0 - 1.0 / f64::from(tries);
        let goal = Goal { sum_ns, exceed_ratio, initial_ns: goal.final_ns, ..goal };
        let halving = Halving::new(goal, limits, most_lost);
        match loads {
            Some(loads) => halving.among(loads).map(Self),
            None => Ok(Self(halving)),
        }
    }
}

impl Search for Verified {
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
