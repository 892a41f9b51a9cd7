//! What binary searches have in common: loads are halved, and each is measured until it is judged.

use std::collections::BTreeMap;

use crate::found::Found;
use crate::goal::Goal;
use crate::ledger::{Ledger, Request};
use crate::load::{Class, Outcome, classify};
use crate::search::{Limits, Next, SearchError};
use crate::trial::Trial;

/// Most loads of a list.
pub(crate) const MAX_LOADS: usize = 1_000_000;

/// The search.
#[derive(Debug)]
pub(crate) struct Halving {
    pub(crate) ledger: Ledger,
    goal: Goal,
    /// A trial that misses more packets than this decides.
    most_lost: Option<u64>,
    outcomes: BTreeMap<u64, Vec<Outcome>>,
    /// Loads at which a trial missed too many.
    hopeless: Vec<u64>,
    /// How often in a row the machine was in the way of a trial at a load.
    spoilt: BTreeMap<u64, u32>,
    path: Path,
}

/// From which loads to choose.
#[derive(Debug)]
enum Path {
    /// Any, first the highest.
    Any,
    /// Those of a list, ascending; what is looked for has an index from `left` to `right` (TST 009 §12.3.2).
    List { loads: Vec<u64>, left: usize, right: usize },
}

/// What became of a load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Holds,
    Fails,
    /// The machine was in the way too often.
    Unclear,
    /// Not yet known.
    Open,
}

impl Halving {
    pub(crate) fn new(goal: Goal, limits: Limits, most_lost: Option<u64>) -> Self {
        Self {
            ledger: Ledger::new(limits),
            goal,
            most_lost,
            outcomes: BTreeMap::new(),
            hopeless: Vec::new(),
            spoilt: BTreeMap::new(),
            path: Path::Any,
        }
    }

    /// Only loads of a list, of which those within the limits count.
    pub(crate) fn among(self, mut loads: Vec<u64>) -> Result<Self, SearchError> {
        let Limits { min_pps, max_pps, .. } = self.ledger.limits;
        loads.retain(|load| (min_pps..=max_pps).contains(load));
        loads.sort_unstable();
        loads.dedup();
        if loads.is_empty() || loads.len() > MAX_LOADS {
            return Err(SearchError::Loads(loads.len() as u64));
        }
        let right = loads.len() - 1;
        Ok(Self { path: Path::List { loads, left: 0, right }, ..self })
    }

    fn verdict(&self, load: u64) -> Verdict {
        let outcomes = self.outcomes.get(&load).map_or(&[][..], Vec::as_slice);
        let repeats = self.ledger.limits.machine_repeats;
        match classify(&self.goal, outcomes) {
            _ if self.hopeless.contains(&load) => Verdict::Fails,
            Class::Lower => Verdict::Holds,
            Class::Upper => Verdict::Fails,
            Class::Undecided if self.spoilt.get(&load).is_some_and(|times| *times > repeats) => Verdict::Unclear,
            Class::Undecided => Verdict::Open,
        }
    }

    /// The bounds: all loads measured lie between them or are one.
    fn found(&self) -> Found {
        let mut found = Found::default();
        for load in self.outcomes.keys() {
            match self.verdict(*load) {
                Verdict::Holds if found.upper.is_some() => found.inversion = Some(*load),
                Verdict::Holds => {
                    found.lower = Some(*load);
                    found.unclear = None;
                }
                Verdict::Fails if found.upper.is_none() => found.upper = Some(*load),
                Verdict::Unclear if found.ceiling().is_none() => found.unclear = Some(*load),
                _ => {}
            }
        }
        found
    }

    /// The load to measure next.
    fn pick(&mut self) -> Option<u64> {
        if matches!(self.path, Path::Any) {
            return self.pick_any();
        }
        loop {
            let Path::List { loads, left, right } = &self.path else { return None };
            let (left, right) = (*left, *right);
            let middle = (left + right) / 2;
            let load = loads[middle];
            let holds = match self.verdict(load) {
                Verdict::Open => return Some(load),
                verdict => verdict == Verdict::Holds,
            };
            let Path::List { loads, left: l, right: r } = &mut self.path else { return None };
            // TST 009 §12.3.2 ends where both meet, whether that load was measured or not; here it is measured, and where
            // it fails the one below it, if any, is known to hold.
            if left == right {
                return None;
            }
            if holds {
                *l = (middle + 1).min(loads.len() - 1);
            } else {
                *r = middle.saturating_sub(1).max(left);
            }
        }
    }

    /// The middle between the bounds. Before there is a lower one, the lowest load stands in for it, and is measured last.
    fn pick_any(&self) -> Option<u64> {
        let Limits { min_pps, max_pps, .. } = self.ledger.limits;
        let found = self.found();
        let Some(upper) = found.ceiling() else {
            return (self.verdict(max_pps) == Verdict::Open).then_some(max_pps);
        };
        // A load that is being measured lies inside.
        let open = self.outcomes.range(found.lower.unwrap_or(0)..upper).map(|(load, _)| *load);
        if let Some(load) = open.rev().find(|load| self.verdict(*load) == Verdict::Open) {
            return Some(load);
        }
        let lower = found.lower.unwrap_or(min_pps);
        if upper <= min_pps {
            return None;
        }
        if self.goal.is_narrow(lower, upper) {
            return found.lower.is_none().then_some(min_pps);
        }
        Some(lower + (upper - lower) / 2)
    }

    pub(crate) fn next(&mut self) -> Next {
        if let Some(request) = self.ledger.pending {
            return request.next();
        }
        let duration_ns = self.goal.final_ns;
        let picked = self.pick();
        if let Some(request) = picked.and_then(|load| self.ledger.ask(Request { load, duration_ns })) {
            return request.next();
        }
        let found = self.found();
        let mut result = found.result(&self.goal, &self.ledger, &self.outcomes);
        if let (Path::List { loads, .. }, Some(lower), Some(upper), None) =
            (&self.path, found.lower, found.upper, found.unclear)
        {
            // Nothing lies between two loads of the list that are neighbours.
            result.regular = loads.binary_search(&lower).ok().and_then(|at| loads.get(at + 1)) == Some(&upper);
            result.goal.width = self.goal.width.max((upper - lower) as f64 / upper as f64);
        }
        Next::Done(self.ledger.summary(vec![result]))
    }

    pub(crate) fn tell(&mut self, trial: Trial) -> Result<(), SearchError> {
        let (request, trial) = self.ledger.take(trial)?;
        let outcome = Outcome::of(trial);
        let missing = trial.lost + trial.unsent;
        self.outcomes.entry(request.load).or_default().push(outcome);
        if !outcome.counts(&self.goal) {
            *self.spoilt.entry(request.load).or_default() += 1;
            return Ok(());
        }
        self.spoilt.remove(&request.load);
        if outcome.is_high_loss(&self.goal) && self.most_lost.is_some_and(|most| missing > most) {
            self.hopeless.push(request.load);
        }
        Ok(())
    }
}
