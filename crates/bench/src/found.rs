//! What all trials of a search say of one goal.

use std::collections::BTreeMap;

use crate::goal::Goal;
use crate::ledger::Ledger;
use crate::load::{self, Outcome};
use crate::search::{GoalResult, LimitedBy, Remark};

/// What is known of the loads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Found {
    pub(crate) lower: Option<u64>,
    pub(crate) upper: Option<u64>,
    /// The load that stood in for an upper bound but could not be judged.
    pub(crate) unclear: Option<u64>,
    /// The highest load that meets the goal, if above `upper`.
    pub(crate) inversion: Option<u64>,
}

impl Found {
    /// The load that nothing is looked for above.
    pub(crate) fn ceiling(&self) -> Option<u64> {
        match (self.upper, self.unclear) {
            (Some(upper), Some(unclear)) => Some(upper.min(unclear)),
            (upper, unclear) => upper.or(unclear),
        }
    }

    /// Says it for one goal.
    pub(crate) fn result(&self, goal: &Goal, ledger: &Ledger, outcomes: &BTreeMap<u64, Vec<Outcome>>) -> GoalResult {
        let at = |load: u64| outcomes.get(&load).map_or(&[][..], Vec::as_slice);
        let limits = ledger.limits;
        let narrow = matches!((self.lower, self.upper), (Some(lower), Some(upper)) if goal.is_narrow(lower, upper));
        let mut remarks = Vec::new();
        if self.lower == Some(limits.max_pps) {
            remarks.push(Remark::MaxLoadHolds);
        }
        if self.lower.is_none() && self.upper == Some(limits.min_pps) {
            remarks.push(Remark::NothingHolds);
        }
        if let Some(load) = self.unclear {
            remarks.push(Remark::Machine { load_pps: load as f64 });
        }
        let regular = narrow && self.unclear.is_none();
        let settled = regular || !remarks.is_empty();
        if ledger.exhausted && !settled {
            remarks.push(Remark::OutOfBudget);
        }
        if let (Some(holds), Some(fails)) = (self.inversion, self.upper) {
            remarks.push(Remark::Inversion { holds_pps: holds as f64, fails_pps: fails as f64 });
        }
        let limited_by = match self.upper {
            _ if self.unclear.is_some() => LimitedBy::Machine,
            _ if ledger.exhausted && !settled => LimitedBy::Budget,
            None => LimitedBy::MaxLoad,
            Some(upper) if load::generator_at_fault(goal, at(upper)) => LimitedBy::Generator,
            Some(_) => LimitedBy::Device,
        };
        GoalResult {
            goal: *goal,
            lower_pps: self.lower.map(|load| load as f64),
            upper_pps: self.upper.map(|load| load as f64),
            conditional_pps: self.lower.map(|load| load::conditional_throughput(goal, load as f64, at(load))),
            width: self.lower.zip(self.upper).map(|(lower, upper)| (upper - lower) as f64 / upper as f64),
            regular,
            limited_by,
            remarks,
        }
    }
}
