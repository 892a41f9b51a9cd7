//! Binary search (RFC 2544 §26.1 and its erratum 422): one trial at the highest load, then always half way between the
//! highest load that held and the lowest that failed.

use std::collections::BTreeMap;

use crate::attempts::{Attempts, Found, Verdict};
use crate::goal::Goal;
use crate::ledger::{Ledger, Request};
use crate::load::Outcome;
use crate::search::{Limits, Method, Next, Search, SearchError};
use crate::trial::Trial;

/// The search. It believes every trial: one lossy trial refuses a load for good, which makes results on noisy machines
/// low and hard to repeat.
#[derive(Debug)]
pub struct Binary {
    goal: Goal,
    ledger: Ledger,
    attempts: Attempts,
    found: Found,
    outcomes: BTreeMap<u64, Vec<Outcome>>,
    /// The load being judged.
    load: Option<u64>,
}

impl Binary {
    /// Searches for the goal's final trial duration, loss ratio and width; one trial decides about a load, so sum,
    /// exceed ratio and first trials of the goal are not used, and the result has a goal without them.
    pub fn new(goal: Goal, limits: Limits) -> Self {
        let goal = Goal { sum_ns: goal.final_ns, initial_ns: goal.final_ns, exceed_ratio: 0.0, ..goal };
        Self {
            goal,
            ledger: Ledger::new(limits),
            attempts: Attempts::new(1, None, limits.machine_repeats),
            found: Found::default(),
            outcomes: BTreeMap::new(),
            load: Some(limits.max_pps),
        }
    }

    /// The load to judge next.
    fn choose(&self) -> Option<u64> {
        let min = self.ledger.limits.min_pps;
        let Some(upper) = self.found.ceiling() else {
            return self.found.lower.is_none().then_some(self.ledger.limits.max_pps);
        };
        let lower = self.found.lower.unwrap_or(min);
        if upper <= lower {
            return None;
        }
        if self.goal.is_narrow(lower, upper) {
            // The lowest load was taken on trust.
            return self.found.lower.is_none().then_some(min);
        }
        Some(lower + (upper - lower) / 2)
    }
}

impl Search for Binary {
    fn next(&mut self) -> Next {
        if let Some(request) = self.ledger.pending {
            return request.next();
        }
        if let Some(load) = self.load
            && let Some(request) = self.ledger.ask(Request { load, duration_ns: self.goal.final_ns })
        {
            return request.next();
        }
        let result = self.found.result(&self.goal, &self.ledger, &self.outcomes);
        Next::Done(self.ledger.summary(Method::Binary, vec![result]))
    }

    fn tell(&mut self, trial: Trial) -> Result<(), SearchError> {
        let (request, trial) = self.ledger.take(trial)?;
        let load = request.load;
        self.outcomes.entry(load).or_default().push(Outcome::of(trial));
        match self.attempts.judge(&self.goal, trial) {
            Verdict::Again => return Ok(()),
            Verdict::Holds => self.found.holds(load),
            Verdict::Fails => self.found.fails(load),
            Verdict::Unclear => self.found.unclear(load),
        }
        self.load = self.choose();
        Ok(())
    }

    fn trials(&self) -> &[Trial] {
        &self.ledger.trials
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::search::{LimitedBy, Remark};
    use crate::simulated::{Device, run};

    fn search(device: &mut Device, goal: Goal) -> crate::GoalResult {
        let mut search = Binary::new(goal, Limits::new(1000.0, 14_880_952.38).unwrap());
        run(&mut search, device).results.remove(0)
    }

    #[test]
    fn a_device_with_a_limit() {
        let found = search(&mut Device::hard(3.3e6), Goal::rfc2544());
        assert!(found.regular && found.remarks.is_empty(), "{found:?}");
        assert!(found.lower_pps.is_some_and(|lower| (3.3e6 * 0.995..=3.3e6).contains(&lower)));
        assert_eq!(found.conditional_pps, found.lower_pps);
        assert_eq!(found.limited_by, LimitedBy::Device);
        assert_eq!((found.goal.sum_s(), found.goal.exceed_ratio()), (60.0, 0.0));
    }

    #[test]
    fn more_than_the_link_carries() {
        let found = search(&mut Device::hard(20e6), Goal::ndr());
        assert_eq!((found.lower_pps, found.upper_pps), (Some(14_880_952.0), None));
        assert_eq!((found.limited_by, found.regular), (LimitedBy::MaxLoad, false));
        assert_eq!(found.remarks, [Remark::MaxLoadHolds]);
    }

    #[test]
    fn nothing_at_all() {
        let found = search(&mut Device::hard(0.0), Goal::ndr());
        assert_eq!((found.lower_pps, found.upper_pps, found.conditional_pps), (None, Some(1000.0), None));
        assert_eq!((found.limited_by, found.remarks), (LimitedBy::Device, vec![Remark::NothingHolds]));
    }

    #[test]
    fn a_generator_that_cannot() {
        let mut device = Device { generator_pps: 5e6, ..Device::hard(9e6) };
        let found = search(&mut device, Goal::ndr());
        assert!(found.lower_pps.is_some_and(|lower| lower <= 5e6 && lower > 4.9e6));
        assert_eq!(found.limited_by, LimitedBy::Generator);
    }

    #[test]
    fn gaps_do_not_decide() {
        let mut device = Device { gap_share: 0.3, ..Device::hard(3.3e6) };
        let found = search(&mut device, Goal::ndr());
        assert!(found.regular && found.lower_pps.is_some_and(|lower| lower > 3.28e6), "{found:?}");
        // With a gap in each trial no load with loss is judged; those that fit into the ring hold.
        let mut device = Device { gap_share: 1.0, ..Device::hard(3.3e6) };
        let mut search = Binary::new(Goal::ndr(), Limits::new(1000.0, 10e6).unwrap());
        let summary = run(&mut search, &mut device);
        let lossy = search.trials().iter().filter(|trial| trial.lost > 0).count();
        assert!(summary.machine_trials == lossy && lossy > 5);
        let found = &summary.results[0];
        assert_eq!((found.regular, found.limited_by), (false, LimitedBy::Machine));
        assert_eq!(found.upper_pps, None);
        assert!(found.lower_pps.is_some_and(|lower| lower < 512_500.0 && lower > 505_000.0), "{found:?}");
        assert!(matches!(found.remarks[0], Remark::Machine { .. }));
    }

    #[test]
    fn out_of_trials() {
        let mut limits = Limits::new(1000.0, 10e6).unwrap();
        limits.max_trials = 4;
        let mut search = Binary::new(Goal::ndr(), limits);
        let found = run(&mut search, &mut Device::hard(3.3e6)).results.remove(0);
        assert_eq!((found.regular, found.limited_by), (false, LimitedBy::Budget));
        assert_eq!(found.remarks, [Remark::OutOfBudget]);
        assert_eq!(search.trials().len(), 4);
        assert!(found.lower_pps < Some(3.3e6) && found.upper_pps > Some(3.3e6));
    }

    #[test]
    fn only_what_was_asked_for() {
        let mut search = Binary::new(Goal::quick(), Limits::new(1000.0, 1e6).unwrap());
        let mut device = Device::hard(1e5);
        assert!(matches!(search.tell(device.trial(1e6, 0.05)), Err(SearchError::Unasked(_))));
        assert_eq!(search.next(), Next::Measure { load_pps: 1e6, duration_s: 0.05 });
        assert!(matches!(search.tell(device.trial(1e6, 1.0)), Err(SearchError::Other { .. })));
        assert!(matches!(search.tell(device.trial(2e6, 0.05)), Err(SearchError::Other { .. })));
        let bad = Trial { lost: 0, ..device.trial(1e6, 0.05) };
        assert!(matches!(search.tell(bad), Err(SearchError::Trial(_))));
        assert_eq!(search.next(), Next::Measure { load_pps: 1e6, duration_s: 0.05 });
        assert!(search.tell(device.trial(1e6, 0.05)).is_ok());
        assert_eq!(search.trials().len(), 1);
    }

    proptest! {
        #[test]
        fn never_above_the_limit(capacity in 0.0..20e6_f64, width in 0.001..0.2_f64) {
            let goal = Goal::ndr().with_width(width).unwrap();
            let mut search = Binary::new(goal, Limits::new(1.0, 14.88e6).unwrap());
            let found = run(&mut search, &mut Device::hard(capacity)).results.remove(0);
            prop_assert!(found.lower_pps.unwrap_or(0.0) <= capacity);
            prop_assert!(found.upper_pps.is_none_or(|upper| upper > capacity));
            prop_assert!(search.trials().len() <= 2 + 24 + 10);
            if found.lower_pps.is_some() && found.upper_pps.is_some() {
                prop_assert!(found.regular);
            }
        }
    }
}
