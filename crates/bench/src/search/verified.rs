//! Binary search with loss verification.

use super::goal::Goal;
use super::halving::Halving;
use super::{Limits, Next, Search, SearchBounds, SearchError};
use crate::trial::Trial;

/// Binary search with loss verification (TST 009 §12.3.3): a trial with loss is repeated. The load meets the goal as
/// soon as one trial does; it fails after a number of failed trials, or after one that lost more packets than a bound.
///
/// Results contain the equivalent goal (RFC 9971, Compliance): `attempts` trials of duration `f` are a duration sum of
/// `attempts · f` and an exceed ratio of `1 − 1/attempts`.
#[derive(Debug)]
pub struct Verified(Halving);

impl Verified {
    /// Creates a search with up to `attempts` trials per load, 1 to 100 (`max(r)`). A trial that loses more than
    /// `max_lost` packets (`z`) fails its load at once. Loads are those of `loads`, or any.
    ///
    /// # Errors
    /// [`SearchError::Attempts`], [`SearchError::Loads`].
    pub fn new(
        goal: Goal,
        limits: Limits,
        attempts: u32,
        max_lost: Option<u64>,
        loads: Option<Vec<u64>>,
    ) -> Result<Self, SearchError> {
        if !(1..=100).contains(&attempts) {
            return Err(SearchError::Attempts(attempts));
        }
        let sum_ns = goal.final_ns * u64::from(attempts);
        let exceed_ratio = 1.0 - 1.0 / f64::from(attempts);
        let goal = Goal { sum_ns, exceed_ratio, initial_ns: goal.final_ns, ..goal };
        let halving = Halving::new(goal, limits, max_lost);
        match loads {
            Some(loads) => halving.restricted_to(loads).map(Self),
            None => Ok(Self(halving)),
        }
    }
}

impl Search for Verified {
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
