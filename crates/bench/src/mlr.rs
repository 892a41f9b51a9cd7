//! Multiple loss ratio search, MLRsearch (RFC 9971).
//!
//! The classification of loads, the relevant bounds and the conditional throughput are those of the RFC; which loads to
//! measure is left open there. Here:
//!
//! * Goals are worked on one after the other, those with the smallest loss ratio first, since what was measured at
//!   small loads can no longer spoil a bound found above. Every trial serves all goals.
//! * A goal is approached in up to three stages, from single first trials and a width four times as large to the goal
//!   itself: a rough interval is found quickly, and the many or long trials are spent near its ends only.
//! * The first trial is at the highest load; what came through is where to look next. From there bounds are looked for
//!   at growing distance, and the interval between them is halved in logarithms.
//! * A load in question is measured until it is decided for the stage.
//! * Loss that the machine may have caused is not counted, and the trial repeated. A load at which that happens more
//!   often in a row than [`Limits::machine_repeats`] is left alone and the search goes on below it; if nothing decides
//!   about it, the result says so and is irregular.
//!
//! Trials last whole multiples of nanoseconds, loads are whole packets a second, and a search ends after
//! [`Limits::max_trials`] at the latest.

use std::collections::BTreeMap;

use crate::found::Found;
use crate::goal::Goal;
use crate::ledger::{Ledger, Request};
use crate::load::{Class, Outcome, classify};
use crate::search::{Limits, Next, Search, SearchError};
use crate::trial::Trial;

/// Most goals of a search.
const MAX_GOALS: usize = 16;
/// Stages before the goal itself.
const STAGES: u32 = 2;

/// The search.
#[derive(Debug)]
pub struct Mlr {
    ledger: Ledger,
    outcomes: BTreeMap<u64, Vec<Outcome>>,
    /// In the order given.
    quests: Vec<Quest>,
    /// Which quest to work on when, smallest loss ratio first.
    order: Vec<usize>,
    /// The quest whose trial was asked for.
    asked_by: usize,
}

/// The search for one goal.
#[derive(Debug)]
struct Quest {
    /// The last is the goal itself.
    stages: Vec<Stage>,
    /// The one worked on.
    at: usize,
}

/// A goal on the way to the goal.
#[derive(Debug)]
struct Stage {
    goal: Goal,
    /// The load that is being measured until it is decided.
    load: Option<u64>,
    /// Bounds of the stage before, still to be confirmed.
    seeds: Vec<u64>,
    /// Distance of the next load from a bound, as a share of the higher one.
    reach: f64,
    /// Loads from whose forwarding rate the next one was taken.
    hinted: Vec<u64>,
    /// How often in a row the machine was in the way of a trial at a load.
    spoilt: BTreeMap<u64, u32>,
}

impl Stage {
    fn new(goal: Goal) -> Self {
        Self { goal, load: None, seeds: Vec::new(), reach: goal.width(), hinted: Vec::new(), spoilt: BTreeMap::new() }
    }

    fn is_given_up(&self, load: u64, limits: &Limits) -> bool {
        self.spoilt.get(&load).is_some_and(|times| *times > limits.machine_repeats)
    }
}

/// The stages of a goal. Durations and sums grow by equal factors, widths halve.
fn stages(goal: Goal) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    let between = |from: u64, to: u64, share: f64| (from as f64 * (to as f64 / from as f64).powf(share)).round() as u64;
    for stage in 0..STAGES {
        let share = f64::from(stage) / f64::from(STAGES);
        let final_ns = between(goal.initial_ns, goal.final_ns, share);
        let sum_ns = between(goal.initial_ns, goal.sum_ns, share).max(final_ns);
        let width = (goal.width * f64::from(1 << (STAGES - stage))).min(0.5).max(goal.width);
        stages.push(Stage::new(Goal { final_ns, sum_ns, initial_ns: final_ns, width, ..goal }));
    }
    // Where all trials are alike and one decides, a rough search would only come before the same search.
    if goal.initial_ns == goal.sum_ns {
        stages.clear();
    }
    stages.push(Stage::new(goal));
    stages
}

impl Mlr {
    /// Searches for `goals`, 1 to 16, at the same time.
    ///
    /// # Errors
    /// [`SearchError::Goals`] for none or more.
    pub fn new(goals: Vec<Goal>, limits: Limits) -> Result<Self, SearchError> {
        if goals.is_empty() || goals.len() > MAX_GOALS {
            return Err(SearchError::Goals(goals.len()));
        }
        let mut order: Vec<usize> = (0..goals.len()).collect();
        order.sort_by(|a, b| goals[*a].loss_ratio().total_cmp(&goals[*b].loss_ratio()));
        let quests = goals.into_iter().map(|goal| Quest { stages: stages(goal), at: 0 }).collect();
        Ok(Self { ledger: Ledger::new(limits), outcomes: BTreeMap::new(), quests, order, asked_by: 0 })
    }

    /// The trial to make next.
    fn choose(&mut self) -> Option<Request> {
        // A goal that was reached can be undone by trials for one that comes after it, so all are looked at each time.
        for quest in self.order.clone() {
            if let Some(load) = self.load_for(quest) {
                self.asked_by = quest;
                let Quest { stages, at } = &self.quests[quest];
                return self.ledger.ask(Request { load, duration_ns: stages[*at].goal.final_ns });
            }
        }
        None
    }

    /// The load that a quest wants measured, if it is not at its end.
    fn load_for(&mut self, quest: usize) -> Option<u64> {
        loop {
            let Quest { stages, at } = &mut self.quests[quest];
            let last = *at + 1 == stages.len();
            let stage = &mut stages[*at];
            let view = View { goal: stage.goal, outcomes: &self.outcomes, limits: &self.ledger.limits };
            if let Some(load) = stage.load
                && view.class(load) == Class::Undecided
                && !stage.is_given_up(load, view.limits)
            {
                return Some(load);
            }
            stage.load = view.pick(stage.state());
            if stage.load.is_some() {
                return stage.load;
            }
            if last {
                return None;
            }
            let found = view.found(|load| stage.is_given_up(load, view.limits));
            *at += 1;
            // Small loads first: a bound found later cannot be spoilt by them. (Taken from the back.)
            stages[*at].seeds = found.ceiling().into_iter().chain(found.lower).collect();
        }
    }
}

/// What picking a load needs of a stage, and changes in it.
struct State<'a> {
    seeds: &'a mut Vec<u64>,
    reach: &'a mut f64,
    hinted: &'a mut Vec<u64>,
    last: Option<u64>,
    spoilt: &'a BTreeMap<u64, u32>,
}

impl Stage {
    fn state(&mut self) -> State<'_> {
        State {
            seeds: &mut self.seeds,
            reach: &mut self.reach,
            hinted: &mut self.hinted,
            last: self.load,
            spoilt: &self.spoilt,
        }
    }
}

/// All outcomes in the light of one goal.
struct View<'a> {
    goal: Goal,
    outcomes: &'a BTreeMap<u64, Vec<Outcome>>,
    limits: &'a Limits,
}

impl View<'_> {
    fn at(&self, load: u64) -> &[Outcome] {
        self.outcomes.get(&load).map_or(&[], Vec::as_slice)
    }

    fn class(&self, load: u64) -> Class {
        classify(&self.goal, self.at(load))
    }

    /// The relevant bounds; among them a load that was given up, if it lies below all that failed.
    fn found(&self, given_up: impl Fn(u64) -> bool) -> Found {
        let mut found = Found::default();
        for (load, outcomes) in self.outcomes {
            match classify(&self.goal, outcomes) {
                Class::Lower if found.upper.is_some() => found.inversion = Some(*load),
                Class::Lower => {
                    found.lower = Some(*load);
                    // What could not be judged below a load that holds does not matter.
                    found.unclear = None;
                }
                Class::Upper if found.upper.is_none() => found.upper = Some(*load),
                Class::Undecided if found.ceiling().is_none() && given_up(*load) => found.unclear = Some(*load),
                _ => {}
            }
        }
        found
    }

    /// A load whose measurement brings the bounds nearer; `None` if they are near enough or cannot come nearer.
    fn pick(&self, state: State<'_>) -> Option<u64> {
        let State { seeds, reach, hinted, last, spoilt } = state;
        let given_up = |load: u64| spoilt.get(&load).is_some_and(|times| *times > self.limits.machine_repeats);
        let found = self.found(given_up);
        let (min, max) = (self.limits.min_pps, self.limits.max_pps);
        let (lower, upper) = (found.lower, found.ceiling());
        while let Some(seed) = seeds.pop() {
            let inside = lower.is_none_or(|lower| seed > lower) && upper.is_none_or(|upper| seed < upper);
            if inside && self.class(seed) == Class::Undecided && !given_up(seed) {
                return Some(seed);
            }
        }
        match (lower, upper) {
            (None, None) => Some(max),
            (Some(lower), None) if lower >= max => None,
            (Some(lower), None) => Some(beyond(lower, reach).min(max)),
            (None, Some(upper)) if upper <= min => None,
            (None, Some(upper)) => {
                if let Some(hint) = self.forwarded(upper, hinted)
                    && !self.goal.is_narrow(hint.min(upper), upper)
                {
                    return Some(hint.max(min));
                }
                Some(short_of(upper, reach).max(min))
            }
            (Some(lower), Some(upper)) if self.goal.is_narrow(lower, upper) => None,
            (Some(lower), Some(upper)) => {
                // While the interval is much wider than what was reached for, the bound found last is likely the
                // nearer one to what is looked for.
                if (upper - lower) as f64 > 4.0 * *reach * upper as f64 {
                    let outward = if last == Some(lower) { beyond(lower, reach) } else { short_of(upper, reach) };
                    if outward > lower && outward < upper {
                        return Some(outward);
                    }
                }
                let middle = ((lower as f64).sqrt() * (upper as f64).sqrt()).round() as u64;
                Some(middle.clamp(lower + 1, upper - 1))
            }
        }
    }

    /// What came through at a load that failed or was given up, if that was not asked before: the load at which a
    /// device with a hard limit has just the loss allowed.
    fn forwarded(&self, load: u64, hinted: &mut Vec<u64>) -> Option<u64> {
        if hinted.contains(&load) {
            return None;
        }
        hinted.push(load);
        let outcomes = self.at(load).iter();
        let counted = outcomes.clone().filter(|outcome| outcome.counts(&self.goal));
        // Trials that the machine spoilt decide nothing, but where there are no others they show where to look.
        let worst = counted.map(|outcome| outcome.loss_ratio).max_by(f64::total_cmp);
        let loss = worst.or_else(|| outcomes.map(|outcome| outcome.loss_ratio).min_by(f64::total_cmp))?;
        Some((load as f64 * (1.0 - loss) / (1.0 - self.goal.loss_ratio())).floor() as u64)
    }
}

/// A load above `load` by `reach`, which doubles.
fn beyond(load: u64, reach: &mut f64) -> u64 {
    let next = (load as f64 / (1.0 - *reach)).ceil() as u64;
    *reach = (*reach * 2.0).min(0.5);
    next.max(load + 1)
}

/// A load below `load` by `reach`, which doubles.
fn short_of(load: u64, reach: &mut f64) -> u64 {
    let next = (load as f64 * (1.0 - *reach)).floor() as u64;
    *reach = (*reach * 2.0).min(0.5);
    next.min(load.saturating_sub(1))
}

impl Search for Mlr {
    fn next(&mut self) -> Next {
        if let Some(request) = self.ledger.pending {
            return request.next();
        }
        if let Some(request) = self.choose() {
            return request.next();
        }
        let results = self.quests.iter().filter_map(|quest| {
            let stage = quest.stages.last()?;
            let limits = &self.ledger.limits;
            let view = View { goal: stage.goal, outcomes: &self.outcomes, limits };
            let found = view.found(|load| stage.is_given_up(load, limits));
            Some(found.result(&stage.goal, &self.ledger, &self.outcomes))
        });
        Next::Done(self.ledger.summary(results.collect()))
    }

    fn tell(&mut self, trial: Trial) -> Result<(), SearchError> {
        let (request, trial) = self.ledger.take(trial)?;
        let outcome = Outcome::of(trial);
        self.outcomes.entry(request.load).or_default().push(outcome);
        let Quest { stages, at } = &mut self.quests[self.asked_by];
        let Stage { goal, spoilt, .. } = &mut stages[*at];
        if outcome.counts(goal) {
            spoilt.remove(&request.load);
        } else {
            *spoilt.entry(request.load).or_default() += 1;
        }
        Ok(())
    }

    fn trials(&self) -> &[Trial] {
        &self.ledger.trials
    }
}

#[cfg(test)]
mod tests;
