//! Binary search with loss verification (ETSI GS NFV-TST 009 §12.3.3): over loads a step apart, a lossy trial is
//! repeated in the hope that the loss was not the device's, unless it is too much for that.
//!
//! The loads and their order are those of §12.3.2, as OPNFV's rapid scripts have them: `S[k] = (k + 1)·step`, the
//! middle of what is left, rounded down. Those stop when one load is left, whether it was tried or not; here it is.

use std::collections::BTreeMap;

use crate::attempts::{Attempts, Found, Verdict};
use crate::goal::Goal;
use crate::ledger::{Ledger, Request};
use crate::load::Outcome;
use crate::search::{Limits, Method, Next, Search, SearchError};
use crate::trial::Trial;

/// Most steps of a search.
const MAX_STEPS: u64 = 1_000_000;

/// How lossy trials are verified.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Verification {
    /// Distance of loads, packets a second, a whole number.
    pub step_pps: f64,
    /// `max(r)`: most trials at a load, 1 or more.
    pub tries: u32,
    /// `z`: with more packets lost than this, the load has failed at once; `None` for no such bound.
    pub hopeless_lost: Option<u64>,
}

impl Default for Verification {
    /// Steps of 10,000 packets/s, three tries, 5000 packets: what OPNFV uses.
    fn default() -> Self {
        Self { step_pps: 10_000.0, tries: 3, hopeless_lost: Some(5000) }
    }
}

/// The search.
#[derive(Debug)]
pub struct LossVerify {
    goal: Goal,
    step: u64,
    ledger: Ledger,
    attempts: Attempts,
    found: Found,
    outcomes: BTreeMap<u64, Vec<Outcome>>,
    /// Numbers of the steps left, `low..high`.
    low: u64,
    high: u64,
}

impl LossVerify {
    /// Searches for the goal's final trial duration and loss ratio. In the result the goal's sum and exceed ratio are
    /// those that the tries amount to, its width is one step of the highest load, and lower loads are a step apart.
    ///
    /// # Errors
    /// [`SearchError::Step`] unless the step is a whole number, not above the highest load, and they are at most a
    /// million; [`SearchError::Range`] if no step lies within the limits.
    pub fn new(goal: Goal, verification: Verification, limits: Limits) -> Result<Self, SearchError> {
        let Verification { step_pps, tries, hopeless_lost } = verification;
        let max_pps = limits.max_pps();
        let step = step_pps as u64;
        if step == 0 || step as f64 != step_pps || step > limits.max_pps || limits.max_pps / step >= MAX_STEPS {
            return Err(SearchError::Step { step_pps, max_pps });
        }
        let (high, low) = (limits.max_pps.div_ceil(step), limits.min_pps.div_ceil(step) - 1);
        if low >= high {
            return Err(SearchError::Range { min_pps: limits.min_pps(), max_pps });
        }
        let limits = Limits { min_pps: ((low + 1) * step).min(limits.max_pps), ..limits };
        let tries = tries.max(1);
        let goal = Goal {
            sum_ns: goal.final_ns.saturating_mul(tries.into()),
            initial_ns: goal.final_ns,
            exceed_ratio: f64::from(tries - 1) / f64::from(tries),
            width: step_pps / max_pps,
            ..goal
        };
        Ok(Self {
            goal,
            step,
            ledger: Ledger::new(limits),
            attempts: Attempts::new(tries, hopeless_lost, limits.machine_repeats),
            found: Found::default(),
            outcomes: BTreeMap::new(),
            low,
            high,
        })
    }

    fn load(&self, step: u64) -> u64 {
        ((step + 1) * self.step).min(self.ledger.limits.max_pps)
    }

    fn middle(&self) -> u64 {
        // Of the steps low..=high-1.
        (self.low + self.high - 1) / 2
    }
}

impl Search for LossVerify {
    fn next(&mut self) -> Next {
        if let Some(request) = self.ledger.pending {
            return request.next();
        }
        if self.low < self.high {
            let load = self.load(self.middle());
            if let Some(request) = self.ledger.ask(Request { load, duration_ns: self.goal.final_ns }) {
                return request.next();
            }
        }
        let mut result = self.found.result(&self.goal, &self.ledger, &self.outcomes);
        // Neighbouring steps cannot come nearer, whatever share of a load a step is.
        let neighbours = self.found.lower.zip(self.found.upper).is_some_and(|(low, high)| high - low <= self.step);
        result.regular = neighbours && self.found.unclear.is_none();
        Next::Done(self.ledger.summary(Method::LossVerify, vec![result]))
    }

    fn tell(&mut self, trial: Trial) -> Result<(), SearchError> {
        let (request, trial) = self.ledger.take(trial)?;
        let (load, step) = (request.load, (self.low + self.high - 1) / 2);
        self.outcomes.entry(load).or_default().push(Outcome::of(trial));
        match self.attempts.judge(&self.goal, trial) {
            Verdict::Again => return Ok(()),
            Verdict::Holds => {
                self.found.holds(load);
                self.low = step + 1;
                return Ok(());
            }
            Verdict::Fails => self.found.fails(load),
            Verdict::Unclear => self.found.unclear(load),
        }
        self.high = step;
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

    fn verification(step_pps: f64, tries: u32) -> Verification {
        Verification { step_pps, tries, hopeless_lost: None }
    }

    fn search(device: &mut Device, verification: Verification) -> (crate::GoalResult, usize) {
        let mut search = LossVerify::new(Goal::tst009(), verification, Limits::new(1.0, 1e6).unwrap()).unwrap();
        let found = run(&mut search, device).results.remove(0);
        (found, search.trials().len())
    }

    #[test]
    fn neighbouring_steps() {
        for (capacity, lower, upper) in [
            (345_678.0, Some(340_000.0), Some(350_000.0)),
            (10_000.0, Some(10_000.0), Some(20_000.0)),
            (999_999.0, Some(990_000.0), Some(1e6)),
            (0.0, None, Some(10_000.0)),
            (2e6, Some(1e6), None),
        ] {
            let (found, trials) = search(&mut Device::hard(capacity), verification(10_000.0, 1));
            assert_eq!((found.lower_pps, found.upper_pps), (lower, upper), "{capacity}");
            assert_eq!(found.regular, lower.is_some() && upper.is_some());
            assert!(trials <= 7, "{trials} trials for 100 steps");
        }
    }

    #[test]
    fn lossy_trials_get_another_chance() {
        // Every second trial loses a packet somewhere else.
        let mut device = Device { flaw_share: 0.5, ..Device::hard(500_000.0) };
        let (once, _) = search(&mut device, verification(10_000.0, 1));
        let mut device = Device { flaw_share: 0.5, ..Device::hard(500_000.0) };
        let (often, _) = search(&mut device, verification(10_000.0, 12));
        assert!(once.lower_pps < Some(500_000.0));
        assert_eq!((often.lower_pps, often.upper_pps), (Some(500_000.0), Some(510_000.0)));
        assert_eq!(often.conditional_pps, often.lower_pps, "the good trial counts");
        assert_eq!(often.goal.sum_s(), 720.0);
        // Where the loss is too much, they do not.
        let mut device = Device::hard(500_000.0);
        let verification = Verification { hopeless_lost: Some(5000), ..verification(10_000.0, 12) };
        let (found, trials) = search(&mut device, verification);
        assert!(found.lower_pps == Some(500_000.0) && trials <= 7, "{trials} trials");
    }

    #[test]
    fn steps_that_make_no_sense() {
        let new = |step_pps, min, max| {
            LossVerify::new(Goal::tst009(), verification(step_pps, 1), Limits::new(min, max).unwrap()).map(|_| ())
        };
        for step in [0.0, -1.0, 0.5, f64::NAN, 1e7] {
            assert!(matches!(new(step, 1.0, 1e6), Err(SearchError::Step { .. })), "{step}");
        }
        assert!(matches!(new(1.0, 1.0, 14e6), Err(SearchError::Step { .. })));
        assert!(new(10.0, 1e6, 1e6).is_ok());
    }

    #[test]
    fn the_machine_and_the_generator() {
        let mut device = Device { gap_share: 1.0, ..Device::hard(500_000.0) };
        let (found, _) = search(&mut device, verification(10_000.0, 2));
        assert_eq!((found.limited_by, found.regular), (LimitedBy::Machine, false));
        assert!(matches!(found.remarks[0], Remark::Machine { .. }));
        let mut device = Device { generator_pps: 300_000.0, ..Device::hard(500_000.0) };
        let (found, _) = search(&mut device, verification(10_000.0, 2));
        assert_eq!((found.limited_by, found.lower_pps), (LimitedBy::Generator, Some(300_000.0)));
    }

    proptest! {
        #[test]
        fn brackets_the_limit(capacity in 0.0..1.2e6_f64, step in 1_000_u32..200_000, tries in 1_u32..4) {
            let (found, trials) = search(&mut Device::hard(capacity), verification(step.into(), tries));
            prop_assert!(found.lower_pps.unwrap_or(0.0) <= capacity);
            prop_assert!(found.upper_pps.is_none_or(|upper| upper > capacity));
            prop_assert!(found.lower_pps.unwrap_or(0.0) + f64::from(step) >= found.upper_pps.unwrap_or(0.0));
            prop_assert!(trials <= 10 * tries as usize + 1);
        }
    }
}
