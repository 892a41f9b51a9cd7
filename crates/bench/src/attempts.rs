//! A verdict about one load from one or a few trials, for the binary searches.

use std::collections::BTreeMap;

use crate::goal::Goal;
use crate::ledger::Ledger;
use crate::load::{self, Outcome};
use crate::search::{GoalResult, LimitedBy, Remark};
use crate::trial::Trial;

/// What a trial means for its load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Holds,
    Fails,
    /// Another trial is needed.
    Again,
    /// The machine was in the way of every try.
    Unclear,
}

/// Tries at one load.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// Most tries that count.
    tries: u32,
    /// Packets lost from which on a second try is hopeless.
    hopeless: Option<u64>,
    /// Most repeats in a row because of the machine.
    repeats: u32,
    made: u32,
    spoilt: u32,
}

impl Attempts {
    pub(crate) fn new(tries: u32, hopeless: Option<u64>, repeats: u32) -> Self {
        Self { tries, hopeless, repeats, made: 0, spoilt: 0 }
    }

    /// Takes in a trial; begins anew after a final verdict.
    pub(crate) fn judge(&mut self, goal: &Goal, trial: &Trial) -> Verdict {
        let outcome = Outcome::of(trial);
        let verdict = if !outcome.is_high_loss(goal) {
            Verdict::Holds
        } else if !outcome.counts(goal) {
            self.spoilt += 1;
            if self.spoilt > self.repeats { Verdict::Unclear } else { Verdict::Again }
        } else {
            self.spoilt = 0;
            self.made += 1;
            let hopeless = self.hopeless.is_some_and(|most| trial.lost + trial.unsent > most);
            if hopeless || self.made >= self.tries { Verdict::Fails } else { Verdict::Again }
        };
        if verdict != Verdict::Again {
            (self.made, self.spoilt) = (0, 0);
        }
        verdict
    }
}

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
    pub(crate) fn holds(&mut self, load: u64) {
        self.lower = Some(load);
    }

    pub(crate) fn fails(&mut self, load: u64) {
        self.upper = Some(load);
        self.unclear = None;
    }

    pub(crate) fn unclear(&mut self, load: u64) {
        self.unclear = Some(load);
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(lost: u64, machine: bool) -> Trial {
        Trial {
            load_pps: 1e4,
            duration_s: 1.0,
            intended: 10_000,
            sent: 10_000,
            received: 10_000 - lost,
            lost,
            machine,
            ..Trial::default()
        }
    }

    #[test]
    fn one_try() {
        let mut attempts = Attempts::new(1, None, 2);
        let mut judge = |lost, machine| attempts.judge(&Goal::ndr(), &trial(lost, machine));
        assert_eq!(
            [judge(0, false), judge(1, false), judge(0, true)],
            [Verdict::Holds, Verdict::Fails, Verdict::Holds]
        );
        // Two repeats, then it is unclear; and all begins anew.
        let spoilt = [judge(1, true), judge(1, true), judge(1, true)];
        assert_eq!(spoilt, [Verdict::Again, Verdict::Again, Verdict::Unclear]);
        assert_eq!([judge(9, true), judge(9, false)], [Verdict::Again, Verdict::Fails]);
    }

    #[test]
    fn three_tries_unless_hopeless() {
        let mut attempts = Attempts::new(3, Some(5000), 2);
        let mut judge = |lost, machine| attempts.judge(&Goal::ndr(), &trial(lost, machine));
        assert_eq!(
            [judge(1, false), judge(5000, false), judge(0, false)],
            [Verdict::Again, Verdict::Again, Verdict::Holds]
        );
        assert_eq!(
            [judge(1, false), judge(1, false), judge(1, false)],
            [Verdict::Again, Verdict::Again, Verdict::Fails]
        );
        assert_eq!(judge(5001, false), Verdict::Fails);
        // Loss in which the machine had a part is not a try, however much it is.
        assert_eq!([judge(9999, true), judge(1, false), judge(1, false)], [Verdict::Again; 3]);
        assert_eq!([judge(1, true), judge(1, true), judge(1, false)], [Verdict::Again, Verdict::Again, Verdict::Fails]);
    }

    #[test]
    fn unsent_packets_are_lost() {
        let mut attempts = Attempts::new(1, None, 0);
        let unsent = Trial { sent: 9_000, unsent: 1_000, received: 9_000, ..trial(0, false) };
        assert_eq!(attempts.judge(&Goal::ndr(), &unsent), Verdict::Fails);
    }
}
