//! Bounds of a search, and the result for one goal.

use std::collections::BTreeMap;

use super::classify::{self, Outcome};
use super::goal::Goal;
use super::loss_floor;
use super::trial_log::{TrialLog, UNJUDGED_FRACTION};
use crate::search::{GoalResult, LimitedBy, Remark, SearchBounds};

/// Loads that bound the throughput.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Bounds {
    pub(crate) lower: Option<u64>,
    pub(crate) upper: Option<u64>,
    /// Load that could not be judged, below all loads that fail the goal.
    pub(crate) undecidable: Option<u64>,
    /// Highest load that meets the goal, if it is above `upper`.
    pub(crate) inversion: Option<u64>,
}

impl From<Bounds> for SearchBounds {
    fn from(bounds: Bounds) -> SearchBounds {
        let pps = |load: Option<u64>| load.map(|load| load as f64);
        SearchBounds { lower_pps: pps(bounds.lower), upper_pps: pps(bounds.upper) }
    }
}

impl Bounds {
    /// Returns the load above which the search does not continue.
    pub(crate) fn ceiling(&self) -> Option<u64> {
        match (self.upper, self.undecidable) {
            (Some(upper), Some(unclear)) => Some(upper.min(unclear)),
            (upper, unclear) => upper.or(unclear),
        }
    }

    /// Returns the result for a goal.
    pub(crate) fn goal_result(
        &self,
        goal: &Goal,
        log: &TrialLog,
        outcomes: &BTreeMap<u64, Vec<Outcome>>,
    ) -> GoalResult {
        let at = |load: u64| outcomes.get(&load).map_or(&[][..], Vec::as_slice);
        let limits = log.limits;
        let narrow = matches!((self.lower, self.upper), (Some(lower), Some(upper)) if goal.is_narrow(lower, upper));
        let mut remarks = Vec::new();
        if self.lower == Some(limits.max_pps) {
            remarks.push(Remark::MaxLoadHolds);
        }
        if self.lower.is_none() && self.upper == Some(limits.min_pps) {
            remarks.push(Remark::NothingHolds);
        }
        if let Some(load) = self.undecidable {
            remarks.push(Remark::HostInterference { load_pps: load as f64 });
        }
        let regular = narrow && self.undecidable.is_none();
        let too_busy = log.host_is_too_busy() && !regular;
        if too_busy {
            remarks.push(Remark::HostTooBusy { interfered: log.interfered_trials(), trials: log.trials.len() });
        }
        let settled = regular || !remarks.is_empty();
        if log.exhausted && !settled {
            remarks.push(Remark::OutOfBudget);
        }
        if let (Some(holds), Some(fails)) = (self.inversion, self.upper) {
            remarks.push(Remark::Inversion { holds_pps: holds as f64, fails_pps: fails as f64 });
        }
        let limited_by = match self.upper {
            _ if self.undecidable.is_some() || too_busy => LimitedBy::HostInterference,
            _ if log.exhausted && !settled => LimitedBy::Budget,
            None => LimitedBy::MaxLoad,
            Some(upper) if classify::is_limited_by_generator(goal, at(upper)) => LimitedBy::Generator,
            Some(_) => LimitedBy::Device,
        };
        if let (Some(upper), LimitedBy::Device) = (self.upper, limited_by) {
            remarks.extend(loss_floor::find(goal, upper, &log.trials));
        }
        // far below a load that could not be judged, any DUT would meet the goal
        let is_unjudged = |outcomes: &Vec<Outcome>| outcomes.iter().all(|outcome| !outcome.counts(goal));
        let unjudged = outcomes
            .iter()
            .rev()
            .find(|(load, outcomes)| self.upper.is_none_or(|upper| **load < upper) && is_unjudged(outcomes));
        let lower = self.lower.filter(|lower| unjudged.is_none_or(|(load, _)| *lower >= load / UNJUDGED_FRACTION));
        GoalResult {
            goal: *goal,
            lower_pps: lower.map(|load| load as f64),
            upper_pps: self.upper.map(|load| load as f64),
            conditional_pps: lower.map(|load| classify::conditional_throughput(goal, load as f64, at(load))),
            width: lower.zip(self.upper).map(|(lower, upper)| (upper - lower) as f64 / upper as f64),
            regular,
            limited_by,
            remarks,
        }
    }
}
