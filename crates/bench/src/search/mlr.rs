//! Multiple loss ratio search, MLRsearch (RFC 9971).
//!
//! The classification of loads, the relevant bounds and the conditional throughput follow the RFC. It leaves open which
//! loads to measure; this implementation chooses them as follows:
//!
//! * Goals are searched one after the other, in order of their loss ratio, because trials at lower loads can invalidate
//!   a bound that was found above them. Every trial counts for all goals.
//! * A goal is searched in up to four stages, from single initial trials to the goal itself, all to the width of the
//!   goal: many or long trials are only spent on loads that fewer or shorter ones found to be bounds. When they decide
//!   otherwise, the search returns to the first stage whose bounds are too far apart. From the third return in the same
//!   direction on, the width of the earlier stages is doubled with each: a DUT with rare loss or a large buffer meets the
//!   goal in fewer or shorter trials at any load.
//! * The first trial is at the highest load; the next load is the rate that was forwarded. From there bounds are
//!   searched at growing distances, and the interval between them is halved on a logarithmic scale.
//! * A load is measured until it is decided for the stage.
//! * A trial whose loss host interference may have caused does not count and is repeated. A load at which that happens
//!   more often in a row than [`Limits::interference_retries`] is given up and the search continues below it; if it
//!   remains undecided, the result has a remark and is irregular. When it has come down to a quarter of such a load
//!   without a trial that counts, the search ends.
//!
//! Durations are whole nanoseconds, loads are whole packets per second, and a search ends after at most
//! [`Limits::max_trials`].

use std::collections::BTreeMap;

use super::bounds::Bounds;
use super::classify::{Class, Outcome, classify};
use super::goal::Goal;
use super::trial_log::{Request, TrialLog};
use crate::search::{Limits, Next, Search, SearchBounds, SearchError};
use crate::trial::Trial;

/// Maximum number of goals.
const MAX_GOALS: usize = 16;
/// Consecutive returns to earlier stages in the same direction that do not double their width.
const FREE_RETURNS: i32 = 2;
/// Number of stages before the goal itself.
const ROUGH_STAGES: u32 = 3;

/// Multiple loss ratio search.
#[derive(Debug)]
pub struct Mlr {
    log: TrialLog,
    outcomes: BTreeMap<u64, Vec<Outcome>>,
    /// One search per goal, in the order of the goals.
    goal_searches: Vec<GoalSearch>,
    /// Indices of the goals, by loss ratio.
    order: Vec<usize>,
    /// Indices of the goal and its stage that requested the pending trial.
    requested_by: (usize, usize),
    /// Load of the last trial.
    last: Option<u64>,
}

/// The search for one goal.
#[derive(Debug)]
struct GoalSearch {
    /// Stages; the last one is the goal itself.
    stages: Vec<Stage>,
    /// The stage that the search is in.
    at: usize,
    /// Consecutive returns to earlier stages for lower loads (negative) or higher ones.
    returns: i32,
}

impl GoalSearch {
    /// Records that the next trial is for a stage at a load, after one at `last`.
    fn enter(&mut self, stage: usize, load: u64, last: Option<u64>) {
        if stage < self.at {
            let direction = if last.is_some_and(|last| load < last) { -1 } else { 1 };
            self.returns = if self.returns.signum() == direction { self.returns + direction } else { direction };
        }
        self.at = stage;
    }
}

/// A stage of the search for a goal.
#[derive(Debug)]
struct Stage {
    goal: Goal,
    /// Load that is measured until it is decided.
    load: Option<u64>,
    /// Distance of the next load from a bound, as a share of the higher load; doubled by each step.
    distance: f64,
    /// Loads whose forwarding rate was used as the next load.
    hinted: Vec<u64>,
    /// Consecutive trials with host interference, by load.
    interfered: BTreeMap<u64, u32>,
}

impl Stage {
    fn new(goal: Goal) -> Self {
        Self { goal, load: None, distance: goal.width(), hinted: Vec::new(), interfered: BTreeMap::new() }
    }

    fn is_given_up(&self, load: u64, limits: &Limits) -> bool {
        self.interfered.get(&load).is_some_and(|times| *times > limits.interference_retries)
    }
}

/// Returns the stages of a goal. Durations and duration sums grow by equal factors.
fn stages(goal: Goal) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    let between = |from: u64, to: u64, share: f64| (from as f64 * (to as f64 / from as f64).powf(share)).round() as u64;
    for stage in 0..ROUGH_STAGES {
        let share = f64::from(stage) / f64::from(ROUGH_STAGES);
        let final_ns = between(goal.initial_ns, goal.final_ns, share);
        let sum_ns = between(goal.initial_ns, goal.sum_ns, share).max(final_ns);
        stages.push(Stage::new(Goal { final_ns, sum_ns, initial_ns: final_ns, ..goal }));
    }
    // if one trial decides and all are alike, the stages would be equal
    if goal.initial_ns == goal.sum_ns {
        stages.clear();
    }
    stages.push(Stage::new(goal));
    stages
}

impl Mlr {
    /// Creates a search for 1 to 16 goals.
    ///
    /// # Errors
    /// [`SearchError::Goals`] for any other number.
    pub fn new(goals: Vec<Goal>, limits: Limits) -> Result<Self, SearchError> {
        if goals.is_empty() || goals.len() > MAX_GOALS {
            return Err(SearchError::Goals(goals.len()));
        }
        let mut order: Vec<usize> = (0..goals.len()).collect();
        order.sort_by(|a, b| goals[*a].loss_ratio().total_cmp(&goals[*b].loss_ratio()));
        let goal_searches =
            goals.into_iter().map(|goal| GoalSearch { stages: stages(goal), at: 0, returns: 0 }).collect();
        Ok(Self {
            log: TrialLog::new(limits),
            outcomes: BTreeMap::new(),
            goal_searches,
            order,
            requested_by: (0, 0),
            last: None,
        })
    }

    /// Returns the next trial.
    fn choose(&mut self) -> Option<Request> {
        if self.log.host_is_too_busy() {
            return None;
        }
        // trials for a later goal can invalidate the bounds of an earlier one, so all goals are checked each time
        for goal in self.order.clone() {
            if let Some((load, stage)) = self.load_for(goal) {
                self.requested_by = (goal, stage);
                self.goal_searches[goal].enter(stage, load, self.last);
                let duration_ns = self.goal_searches[goal].stages[stage].goal.final_ns;
                return self.log.request(Request { load, duration_ns });
            }
        }
        None
    }

    /// Returns the next load for a goal and the stage that needs it, unless the search for the goal is complete.
    fn load_for(&mut self, goal: usize) -> Option<(u64, usize)> {
        let GoalSearch { stages, returns, .. } = &mut self.goal_searches[goal];
        let last_stage = stages.len() - 1;
        let mut bounds_before = Bounds::default();
        for (at, stage) in stages.iter_mut().enumerate() {
            let doublings = if at == last_stage { 0 } else { returns.abs() - FREE_RETURNS };
            let width = (stage.goal.width * f64::from(doublings.max(0)).exp2()).min(0.5).max(stage.goal.width);
            let goal = Goal { width, ..stage.goal };
            let view = GoalView { goal, outcomes: &self.outcomes, limits: &self.log.limits };
            if let Some(load) = stage.load
                && view.class(load) == Class::Undecided
                && !stage.is_given_up(load, view.limits)
            {
                return Some((load, at));
            }
            stage.load = view.choose_load(stage, bounds_before, self.last);
            if let Some(load) = stage.load {
                return Some((load, at));
            }
            stage.distance = width;
            bounds_before = view.bounds(|load| stage.is_given_up(load, view.limits));
        }
        None
    }
}

/// All outcomes with respect to one goal.
struct GoalView<'a> {
    goal: Goal,
    outcomes: &'a BTreeMap<u64, Vec<Outcome>>,
    limits: &'a Limits,
}

impl GoalView<'_> {
    fn outcomes_at(&self, load: u64) -> &[Outcome] {
        self.outcomes.get(&load).map_or(&[], Vec::as_slice)
    }

    fn class(&self, load: u64) -> Class {
        classify(&self.goal, self.outcomes_at(load))
    }

    /// Returns the relevant bounds, including a load that was given up if it is below all loads that fail.
    fn bounds(&self, given_up: impl Fn(u64) -> bool) -> Bounds {
        let mut bounds = Bounds::default();
        for (load, outcomes) in self.outcomes {
            match classify(&self.goal, outcomes) {
                Class::Lower if bounds.upper.is_some() => bounds.inversion = Some(*load),
                Class::Lower => {
                    bounds.lower = Some(*load);
                    // an undecidable load below one that meets the goal does not matter
                    bounds.undecidable = None;
                }
                Class::Upper if bounds.upper.is_none() => bounds.upper = Some(*load),
                Class::Undecided if bounds.ceiling().is_none() && given_up(*load) => bounds.undecidable = Some(*load),
                _ => {}
            }
        }
        bounds
    }

    /// Returns a load that confirms the bounds of the stage before or narrows those of this one; `None` if they are within
    /// the width or cannot be narrowed. `last` is the load of the last trial.
    fn choose_load(&self, stage: &mut Stage, before: Bounds, last: Option<u64>) -> Option<u64> {
        let bounds = self.bounds(|load| stage.is_given_up(load, self.limits));
        let (min, max) = (self.limits.min_pps, self.limits.max_pps);
        let (lower, upper) = (bounds.lower, bounds.ceiling());
        let is_open = |load: &u64| {
            let inside = lower.is_none_or(|lower| *load > lower) && upper.is_none_or(|upper| *load < upper);
            inside && self.class(*load) == Class::Undecided && !stage.is_given_up(*load, self.limits)
        };
        // low loads first: trials at them could invalidate a bound found above
        if let Some(load) = before.lower.into_iter().chain(before.ceiling()).find(is_open) {
            return Some(load);
        }
        let Stage { distance, hinted, .. } = stage;
        match (lower, upper) {
            (None, None) => Some(max),
            (Some(lower), None) if lower >= max => None,
            (Some(lower), None) => Some(step_up(lower, distance).min(max)),
            (None, Some(upper)) if upper <= min => None,
            (None, Some(upper)) => {
                if let Some(hint) = self.hint(upper, hinted)
                    && !self.goal.is_narrow(hint.min(upper), upper)
                {
                    return Some(hint.max(min));
                }
                Some(step_down(upper, distance).max(min))
            }
            (Some(lower), Some(upper)) if self.goal.is_narrow(lower, upper) => None,
            (Some(lower), Some(upper)) => {
                // while the interval is much wider than the distance, the throughput is likely near the last bound
                if (upper - lower) as f64 > 4.0 * *distance * upper as f64 {
                    let outside = if last.is_some_and(|last| last <= lower) {
                        step_up(lower, distance)
                    } else {
                        step_down(upper, distance)
                    };
                    if outside > lower && outside < upper {
                        return Some(outside);
                    }
                }
                let middle = ((lower as f64).sqrt() * (upper as f64).sqrt()).round() as u64;
                Some(middle.clamp(lower + 1, upper - 1))
            }
        }
    }

    /// Returns the forwarding rate at a load that failed or was given up, unless it was used before: the load at which
    /// a device with a hard limit has exactly the allowed loss.
    fn hint(&self, load: u64, hinted: &mut Vec<u64>) -> Option<u64> {
        if hinted.contains(&load) {
            return None;
        }
        hinted.push(load);
        let outcomes = self.outcomes_at(load).iter();
        let counted = outcomes.clone().filter(|outcome| outcome.counts(&self.goal));
        // without other trials, those with host interference hint at the next load
        let worst = counted.map(|outcome| outcome.loss_ratio).max_by(f64::total_cmp);
        let loss = worst.or_else(|| outcomes.map(|outcome| outcome.loss_ratio).min_by(f64::total_cmp))?;
        Some((load as f64 * (1.0 - loss) / (1.0 - self.goal.loss_ratio())).floor() as u64)
    }
}

/// Returns a load above `load` by `distance`, and doubles the distance.
fn step_up(load: u64, distance: &mut f64) -> u64 {
    // rounded towards the load, so that the step is within the width
    let next = (load as f64 / (1.0 - *distance)).floor() as u64;
    *distance = (*distance * 2.0).min(0.5);
    next.max(load + 1)
}

/// Returns a load below `load` by `distance`, and doubles the distance.
fn step_down(load: u64, distance: &mut f64) -> u64 {
    let next = (load as f64 * (1.0 - *distance)).ceil() as u64;
    *distance = (*distance * 2.0).min(0.5);
    next.min(load.saturating_sub(1))
}

impl Search for Mlr {
    fn next(&mut self) -> Next {
        if let Some(request) = self.log.pending {
            return request.next();
        }
        if let Some(request) = self.choose() {
            return request.next();
        }
        let results = self.goal_searches.iter().filter_map(|search| {
            let stage = search.stages.last()?;
            let limits = &self.log.limits;
            let view = GoalView { goal: stage.goal, outcomes: &self.outcomes, limits };
            let bounds = view.bounds(|load| stage.is_given_up(load, limits));
            Some(bounds.goal_result(&stage.goal, &self.log, &self.outcomes))
        });
        Next::Done(self.log.summary(results.collect()))
    }

    fn record(&mut self, trial: Trial) -> Result<(), SearchError> {
        let (request, trial) = self.log.record(trial)?;
        let outcome = Outcome::of(trial);
        self.last = Some(request.load);
        self.outcomes.entry(request.load).or_default().push(outcome);
        let (goal, stage) = self.requested_by;
        let Stage { goal, interfered, .. } = &mut self.goal_searches[goal].stages[stage];
        self.log.record_interference(outcome.counts(goal), request.load);
        if outcome.counts(goal) {
            interfered.remove(&request.load);
        } else {
            *interfered.entry(request.load).or_default() += 1;
        }
        Ok(())
    }

    fn trials(&self) -> &[Trial] {
        &self.log.trials
    }

    fn bounds(&self) -> SearchBounds {
        let search = &self.goal_searches[0];
        let stage = &search.stages[search.at];
        let view = GoalView { goal: stage.goal, outcomes: &self.outcomes, limits: &self.log.limits };
        view.bounds(|load| stage.is_given_up(load, view.limits)).into()
    }
}

#[cfg(test)]
mod tests;
