//! As many packets as the generator can send: how many come back a second, whatever is lost (RFC 2285 §3.6.2, the forwarding
//! rate at maximum offered load; the maximum receive rate of CSIT).

use super::Findings;
use super::course::{Known, Plan};
use crate::bed::{Ask, Seen};
use crate::search::LimitedBy;
use report::Quantity;

/// Trials, quick and as CSIT makes them.
const TRIALS: (usize, usize) = (5, 10);
/// Length of each, quick and as CSIT has it, seconds.
const TRIAL_S: (f64, f64) = (0.2, 1.0);

/// Share of the packets that may be under way at the end.
const UNDER_WAY: f64 = 0.001;

/// Trials at the highest load there is.
#[derive(Default)]
pub(super) struct ReceiveRate {
    asked: usize,
    /// Packets a second handed to the ports, and received.
    offered: Vec<f64>,
    received: Vec<f64>,
    lost: u64,
    sent: u64,
    spoilt: usize,
}

impl Plan for ReceiveRate {
    const NAME: &'static str = "receive-rate";
    const STANDARD: Option<&'static str> = Some("RFC 2285 §3.6.2");
    const NEEDS_THROUGHPUT: bool = false;

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let settings = &known.settings;
        (self.asked < settings.pick(TRIALS.0, TRIALS.1)).then(|| {
            self.asked += 1;
            Ask::load(settings.limits.max_pps(), settings.pick(TRIAL_S.0, TRIAL_S.1))
        })
    }

    fn tell(&mut self, _: &Known, _: &Ask, seen: Seen) {
        let trial = &seen.trial;
        self.offered.push(trial.load_pps * trial.sent as f64 / trial.intended.max(1) as f64);
        self.sent += trial.sent;
        self.received.push(trial.forwarding_pps());
        self.lost += trial.lost;
        self.spoilt += usize::from(trial.machine);
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let settings = &known.settings;
        findings.quantities.extend(Quantity::mean("receive rate", "pps", &self.received));
        findings.quantities.extend(Quantity::mean("offered", "pps", &self.offered));
        // of other programs, what is under way when they stop counting is missing
        let all = self.lost as f64 <= UNDER_WAY * self.sent as f64;
        findings.limited_by = if all { LimitedBy::Generator } else { LimitedBy::Device };
        let says = &mut findings.deviations;
        says.push("what was lost does not matter: it is no throughput".to_owned());
        let (trials, trial_s) = (settings.pick(TRIALS.0, TRIALS.1), settings.pick(TRIAL_S.0, TRIAL_S.1));
        if (trials, trial_s) != (TRIALS.1, TRIAL_S.1) {
            says.push(format!("{trials} trials of {trial_s} s where CSIT has {} of {} s", TRIALS.1, TRIAL_S.1));
        }
        if all && !self.offered.is_empty() {
            says.push("all that the generator could send came back: the device may do more".to_owned());
        }
        if self.spoilt != 0 {
            says.push(format!("in {} trials the machine was in the way", self.spoilt));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Goal;
    use crate::method::{Form, Settings, by_name, carry_out};
    use crate::search::{LimitedBy, Limits};
    use crate::simulated::Simulated;

    #[test]
    fn what_comes_back_of_all_that_can_be_sent() {
        let of = |device: &str, form| {
            let settings = Settings::new(form, Goal::quick(), Limits::new(1e3, 1e7).unwrap());
            let mut method = by_name("receive-rate", &settings).unwrap();
            let mut device: Simulated = device.parse().unwrap();
            carry_out(&mut *method, &mut device, |_| true, |_| ()).unwrap();
            let findings = method.findings();
            let of = |name: &str| findings.quantities.iter().find(|q| q.name == name).unwrap().value;
            (of("receive rate"), of("offered"), findings)
        };
        let (received, offered, findings) = of("capacity=3e6", Form::Quick);
        assert!((received - 3e6).abs() < 1e3 && (offered - 1e7).abs() < 1e3, "{received} of {offered}");
        assert_eq!((findings.limited_by, findings.trials.len()), (LimitedBy::Device, 5));
        assert_eq!(findings.summary.lower_pps, 0.0, "it is no throughput");
        let (received, offered, findings) = of("capacity=9e6,generator=2e6", Form::Standard);
        assert!((received - 2e6).abs() < 2e3 && (offered - 2e6).abs() < 2e3, "{received} of {offered}");
        assert_eq!((findings.limited_by, findings.trials.len()), (LimitedBy::Generator, 10));
    }
}
