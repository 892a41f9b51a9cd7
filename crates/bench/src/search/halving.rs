//! The common part of the binary searches: the interval of loads is halved, and each load is measured until it is
//! decided.

use std::collections::BTreeMap;

use super::bounds::Bounds;
use super::classify::{Class, Outcome, classify};
use super::goal::Goal;
use super::trial_log::{Request, TrialLog};
use crate::search::{Limits, Next, SearchError};
use crate::trial::Trial;

/// Maximum number of loads in a list.
pub(crate) const MAX_LOADS: usize = 1_000_000;

/// State of a binary search.
#[derive(Debug)]
pub(crate) struct Halving {
    pub(crate) log: TrialLog,
    goal: Goal,
    /// A trial that loses more packets fails its load at once.
    max_lost: Option<u64>,
    outcomes: BTreeMap<u64, Vec<Outcome>>,
    /// Loads at which a trial lost more than `max_lost` packets.
    rejected: Vec<u64>,
    /// Consecutive trials with host interference, by load.
    interfered: BTreeMap<u64, u32>,
    candidates: Candidates,
}

/// Loads to choose from.
#[derive(Debug)]
enum Candidates {
    /// Any load, the highest first.
    Any,
    /// Loads of an ascending list; the result has an index from `left` to `right`, both inclusive (TST 009 §12.3.2).
    List { loads: Vec<u64>, left: usize, right: usize },
}

/// Verdict on a load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Meets,
    Fails,
    /// Too many trials had host interference.
    Undecidable,
    /// Not decided yet.
    Open,
}

impl Halving {
    pub(crate) fn new(goal: Goal, limits: Limits, max_lost: Option<u64>) -> Self {
        Self {
            log: TrialLog::new(limits),
            goal,
            max_lost,
            outcomes: BTreeMap::new(),
            rejected: Vec::new(),
            interfered: BTreeMap::new(),
            candidates: Candidates::Any,
        }
    }

    /// Restricts the search to those of `loads` within the limits.
    pub(crate) fn restricted_to(self, mut loads: Vec<u64>) -> Result<Self, SearchError> {
        let Limits { min_pps, max_pps, .. } = self.log.limits;
        loads.retain(|load| (min_pps..=max_pps).contains(load));
        loads.sort_unstable();
        loads.dedup();
        if loads.is_empty() || loads.len() > MAX_LOADS {
            return Err(SearchError::Loads(loads.len() as u64));
        }
        let right = loads.len() - 1;
        Ok(Self { candidates: Candidates::List { loads, left: 0, right }, ..self })
    }

    fn verdict(&self, load: u64) -> Verdict {
        let outcomes = self.outcomes.get(&load).map_or(&[][..], Vec::as_slice);
        let repeats = self.log.limits.interference_retries;
        match classify(&self.goal, outcomes) {
            _ if self.rejected.contains(&load) => Verdict::Fails,
            Class::Lower => Verdict::Meets,
            Class::Upper => Verdict::Fails,
            Class::Undecided if self.interfered.get(&load).is_some_and(|times| *times > repeats) => {
                Verdict::Undecidable
            }
            Class::Undecided => Verdict::Open,
        }
    }

    /// Returns the bounds.
    pub(crate) fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        for load in self.outcomes.keys() {
            match self.verdict(*load) {
                Verdict::Meets if bounds.upper.is_some() => bounds.inversion = Some(*load),
                Verdict::Meets => {
                    bounds.lower = Some(*load);
                    bounds.undecidable = None;
                }
                Verdict::Fails if bounds.upper.is_none() => bounds.upper = Some(*load),
                Verdict::Undecidable if bounds.ceiling().is_none() => bounds.undecidable = Some(*load),
                _ => {}
            }
        }
        bounds
    }

    /// Returns the load to measure next.
    fn pick(&mut self) -> Option<u64> {
        if matches!(self.candidates, Candidates::Any) {
            return self.pick_any();
        }
        loop {
            let Candidates::List { loads, left, right } = &self.candidates else { return None };
            let (left, right) = (*left, *right);
            let middle = (left + right) / 2;
            let load = loads[middle];
            let meets = match self.verdict(load) {
                Verdict::Open => return Some(load),
                verdict => verdict == Verdict::Meets,
            };
            let Candidates::List { loads, left: l, right: r } = &mut self.candidates else { return None };
            // TST 009 §12.3.2 ends where both meet, whether that load was measured or not. Here it is measured; if it
            // fails, the load below it is known to meet the goal.
            if left == right {
                return None;
            }
            if meets {
                *l = (middle + 1).min(loads.len() - 1);
            } else {
                *r = middle.saturating_sub(1).max(left);
            }
        }
    }

    /// Returns the middle between the bounds. Without a lower bound the lowest load replaces it, and is measured last.
    fn pick_any(&self) -> Option<u64> {
        let Limits { min_pps, max_pps, .. } = self.log.limits;
        let bounds = self.bounds();
        let Some(upper) = bounds.ceiling() else {
            return (self.verdict(max_pps) == Verdict::Open).then_some(max_pps);
        };
        // a load that is not decided yet lies between the bounds
        let open = self.outcomes.range(bounds.lower.unwrap_or(0)..upper).map(|(load, _)| *load);
        if let Some(load) = open.rev().find(|load| self.verdict(*load) == Verdict::Open) {
            return Some(load);
        }
        let lower = bounds.lower.unwrap_or(min_pps);
        if upper <= min_pps {
            return None;
        }
        if self.goal.is_narrow(lower, upper) {
            return bounds.lower.is_none().then_some(min_pps);
        }
        Some(lower + (upper - lower) / 2)
    }

    pub(crate) fn next(&mut self) -> Next {
        if let Some(request) = self.log.pending {
            return request.next();
        }
        let duration_ns = self.goal.final_ns;
        let picked = if self.log.host_is_too_busy() { None } else { self.pick() };
        if let Some(request) = picked.and_then(|load| self.log.request(Request { load, duration_ns })) {
            return request.next();
        }
        let bounds = self.bounds();
        let mut result = bounds.goal_result(&self.goal, &self.log, &self.outcomes);
        if let (Candidates::List { loads, .. }, Some(lower), Some(upper), None) =
            (&self.candidates, bounds.lower, bounds.upper, bounds.undecidable)
        {
            // two neighbours of the list have no load between them
            result.regular = loads.binary_search(&lower).ok().and_then(|at| loads.get(at + 1)) == Some(&upper);
            result.goal.width = self.goal.width.max((upper - lower) as f64 / upper as f64);
        }
        Next::Done(self.log.summary(vec![result]))
    }

    pub(crate) fn tell(&mut self, trial: Trial) -> Result<(), SearchError> {
        let (request, trial) = self.log.record(trial)?;
        let outcome = Outcome::of(trial);
        let missing = trial.lost + trial.unsent;
        self.outcomes.entry(request.load).or_default().push(outcome);
        self.log.record_interference(outcome.counts(&self.goal), request.load);
        if !outcome.counts(&self.goal) {
            *self.interfered.entry(request.load).or_default() += 1;
            return Ok(());
        }
        self.interfered.remove(&request.load);
        if outcome.is_high_loss(&self.goal) && self.max_lost.is_some_and(|most| missing > most) {
            self.rejected.push(request.load);
        }
        Ok(())
    }
}
