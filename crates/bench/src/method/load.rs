//! One load, as long as the goal's sum of time: does it hold?

use super::course::{Known, Plan};
use super::measured::Latencies;
use super::{Findings, Form};
use crate::bed::{Ask, Seen};
use crate::search::{LimitedBy, Remark};
use report::Summary;

/// Trials at the load of [`Settings::rate_pps`](super::Settings::rate_pps).
#[derive(Default)]
pub(super) struct Load {
    asked_s: f64,
    latencies: Latencies,
    /// Forwarding rates of all trials.
    forwarded: Vec<f64>,
    /// Of the trials in which the machine was not in the way, those with more loss than allowed, and all.
    exceeding: usize,
    judged: usize,
    unsent: u64,
}

impl Plan for Load {
    const NAME: &'static str = "load";
    const STANDARD: Option<&'static str> = None;
    const NEEDS_THROUGHPUT: bool = false;

    fn rest_s(_: Form) -> f64 {
        0.0
    }

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let (goal, rate_pps) = (&known.settings.goal, known.settings.rate_pps?);
        // a sum of tenths is not always what it seems
        (self.asked_s < goal.sum_s() - 1e-9).then(|| {
            self.asked_s += goal.final_s();
            Ask::load(rate_pps, goal.final_s())
        })
    }

    fn tell(&mut self, known: &Known, _: &Ask, seen: Seen) {
        self.latencies.take(&seen);
        let trial = &seen.trial;
        self.forwarded.push(trial.forwarding_pps());
        if !trial.machine {
            self.judged += 1;
            self.exceeding += usize::from(trial.loss_ratio() > known.settings.goal.loss_ratio());
            self.unsent += trial.unsent;
        }
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let (goal, Some(rate_pps)) = (&known.settings.goal, known.settings.rate_pps) else { return };
        let holds = self.judged != 0 && self.exceeding as f64 <= goal.exceed_ratio() * self.judged as f64;
        let forwarded = self.forwarded.iter().sum::<f64>() / self.forwarded.len().max(1) as f64;
        findings.summary = Summary {
            lower_pps: if holds { rate_pps } else { 0.0 },
            upper_pps: (!holds && self.judged != 0).then_some(rate_pps),
            conditional_pps: Some(forwarded),
        };
        findings.limited_by = match () {
            () if self.judged == 0 => LimitedBy::Machine,
            () if self.unsent != 0 => LimitedBy::Generator,
            () if holds => LimitedBy::MaxLoad,
            () => LimitedBy::Device,
        };
        if self.judged == 0 {
            findings.deviations.push(Remark::Machine { load_pps: rate_pps }.to_string());
        }
        if self.unsent != 0 {
            findings.deviations.push("the generator left packets unsent, which count as lost".to_owned());
        }
        findings.latency.extend(self.latencies.entry(rate_pps, rate_pps));
    }
}

#[cfg(test)]
mod tests {
    use crate::Goal;
    use crate::method::{Form, Settings, by_name, carry_out};
    use crate::search::{LimitedBy, Limits};
    use crate::simulated::Simulated;

    #[test]
    fn a_load_holds_or_does_not() {
        let at = |rate_pps: f64, device: &str| {
            let settings = Settings::new(Form::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap());
            let mut method = by_name("load", &Settings { rate_pps: Some(rate_pps), ..settings }).unwrap();
            let mut device: Simulated = device.parse().unwrap();
            carry_out(&mut *method, &mut device, |_| true, |_| ()).unwrap();
            method.findings()
        };
        let good = at(2e6, "capacity=3e6");
        assert_eq!((good.summary.lower_pps, good.trials.len(), good.limited_by), (2e6, 20, LimitedBy::MaxLoad));
        assert_eq!(good.latency.len(), 1);
        let bad = at(4e6, "capacity=3e6");
        assert_eq!((bad.summary.lower_pps, bad.summary.upper_pps), (0.0, Some(4e6)));
        assert!((bad.summary.conditional_pps.unwrap() - 3e6).abs() < 1e3);
        let starved = at(4e6, "capacity=9e6,generator=2e6");
        assert_eq!(starved.limited_by, LimitedBy::Generator);
    }
}
