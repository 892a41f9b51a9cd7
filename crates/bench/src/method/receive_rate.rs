//! Forwarding rate at maximum offered load (RFC 2285 §3.6.2; the maximum receive rate of CSIT): the packets that return
//! per second at the highest load of the generator, regardless of loss.

use super::MethodOutput;
use super::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure};
use super::properties::{LoadChoice, Properties};
use crate::search::LimitedBy;
use crate::trial::{TrialInput, TrialOutput};
use report::Quantity;

/// Number of trials, quick and as in CSIT.
const TRIALS: (usize, usize) = (5, 10);
/// Trial duration, quick and as in CSIT, seconds.
const TRIAL_S: (f64, f64) = (0.2, 1.0);

/// Largest share of the packets that may be in flight at the end.
const MAX_IN_FLIGHT_RATIO: f64 = 0.001;

/// Trials at the highest load.
#[derive(Default)]
pub(super) struct ReceiveRate {
    started: usize,
    /// Packets per second accepted by the ports, and received.
    offered: Vec<f64>,
    received: Vec<f64>,
    lost: u64,
    sent: u64,
    interfered_trials: usize,
}

impl Procedure for ReceiveRate {
    const NAME: &'static str = "receive-rate";
    const STANDARD: Option<&'static str> = Some("RFC 2285 §3.6.2");
    const QUESTION: &'static str = "How many packets per second return at the highest load, regardless of loss?";
    const DURATION_S: (f64, f64) = (1.0, 80.0);
    const PROPERTIES: Properties = Properties {
        load: LoadChoice::Highest,
        reuses_throughput: false,
        requires_rate: false,
        counts_only: true,
        ..DEFAULT_PROPERTIES
    };
    const NEEDS_THROUGHPUT: bool = false;

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let settings = &context.settings;
        (self.started < settings.select(TRIALS.0, TRIALS.1)).then(|| {
            self.started += 1;
            TrialInput::constant(settings.limits.max_pps(), settings.select(TRIAL_S.0, TRIAL_S.1))
        })
    }

    fn record(&mut self, _: &MethodContext, _: &TrialInput, output: TrialOutput) {
        let trial = &output.trial;
        self.offered.push(trial.load_pps * trial.sent as f64 / trial.intended.max(1) as f64);
        self.sent += trial.sent;
        self.received.push(trial.forwarding_pps());
        self.lost += trial.lost;
        self.interfered_trials += usize::from(trial.host_interference);
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let settings = &context.settings;
        output.quantities.extend(Quantity::mean("receive rate", "pps", &self.received));
        output.quantities.extend(Quantity::mean("offered", "pps", &self.offered));
        // other programs do not count packets that are in flight when they stop
        let all = self.lost as f64 <= MAX_IN_FLIGHT_RATIO * self.sent as f64;
        output.limited_by = if all { LimitedBy::Generator } else { LimitedBy::Device };
        let deviations = &mut output.deviations;
        deviations.push("loss is not limited: the rate is not a throughput".to_owned());
        let (trials, trial_s) = (settings.select(TRIALS.0, TRIALS.1), settings.select(TRIAL_S.0, TRIAL_S.1));
        if (trials, trial_s) != (TRIALS.1, TRIAL_S.1) {
            deviations.push(format!("{trials} trials of {trial_s} s where CSIT has {} of {} s", TRIALS.1, TRIAL_S.1));
        }
        if all && !self.offered.is_empty() {
            deviations.push("all packets of the generator returned: the DUT may forward more".to_owned());
        }
        if self.interfered_trials != 0 {
            deviations.push(format!("{} trials had host interference", self.interfered_trials));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Goal;
    use crate::method::{MethodSettings, Thoroughness, run, start};
    use crate::search::{LimitedBy, Limits};
    use crate::simulated::Simulated;

    #[test]
    fn measures_the_forwarding_rate_at_the_highest_load() {
        let of = |device: &str, form| {
            let settings = MethodSettings::new(form, Goal::quick(), Limits::new(1e3, 1e7).unwrap());
            let mut method = start("receive-rate", &settings).unwrap();
            let mut device: Simulated = device.parse().unwrap();
            run(&mut *method, &mut device, |_| true, |_| ()).unwrap();
            let output = method.output();
            let of = |name: &str| output.quantities.iter().find(|q| q.name == name).unwrap().value;
            (of("receive rate"), of("offered"), output)
        };
        let (received, offered, output) = of("capacity=3e6", Thoroughness::Quick);
        assert!((received - 3e6).abs() < 1e3 && (offered - 1e7).abs() < 1e3, "{received} of {offered}");
        assert_eq!((output.limited_by, output.trials.len()), (LimitedBy::Device, 5));
        assert_eq!(output.summary.lower_pps, 0.0, "it is no throughput");
        let (received, offered, output) = of("capacity=9e6,generator=2e6", Thoroughness::Standard);
        assert!((received - 2e6).abs() < 2e3 && (offered - 2e6).abs() < 2e3, "{received} of {offered}");
        assert_eq!((output.limited_by, output.trials.len()), (LimitedBy::Generator, 10));
    }
}
