//! One given load for the duration sum of the goal.

use super::accumulate::LatencyAccumulator;
use super::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure};
use super::properties::{LoadChoice, Properties};
use super::tcp_connections::TcpConnections;
use super::{MethodOutput, Thoroughness};
use crate::anatomy::{Anatomy, trace_interval};
use crate::search::{LimitedBy, Outcome, Remark};
use crate::trial::{Trial, TrialInput, TrialOutput};
use report::{Quantity, Summary};

/// Trials at the load of [`MethodSettings::rate_pps`](super::MethodSettings::rate_pps).
#[derive(Default)]
pub(super) struct GivenLoad {
    asked_s: f64,
    latencies: LatencyAccumulator,
    anatomy: Anatomy,
    connections: TcpConnections,
    /// Forwarding rates of all trials.
    forwarded: Vec<f64>,
    /// Trials that count and exceed the loss ratio.
    exceeding: usize,
    /// Trials that count: those whose loss host interference may not have caused.
    judged: usize,
    unsent: u64,
    /// Counts of all trials, and of those that do not count.
    all: Counts,
    excused: Counts,
}

/// Packets of trials.
#[derive(Default)]
struct Counts {
    seconds: f64,
    intended: u64,
    sent: u64,
    received: u64,
}

impl Counts {
    fn add(&mut self, trial: &Trial) {
        self.seconds += trial.duration_s * f64::from(trial.directions.max(1));
        self.intended += trial.intended;
        self.sent += trial.sent;
        self.received += trial.received;
    }

    fn loss_ratio(&self) -> f64 {
        self.intended.saturating_sub(self.received) as f64 / self.intended.max(1) as f64
    }
}

impl Procedure for GivenLoad {
    const NAME: &'static str = "load";
    const STANDARD: Option<&'static str> = None;
    const QUESTION: &'static str = "Does one given load meet the goal?";
    const DURATION_S: (f64, f64) = (1.0, 60.0);
    const PROPERTIES: Properties =
        Properties { load: LoadChoice::Given, reuses_throughput: false, counts_only: true, ..DEFAULT_PROPERTIES };
    const NEEDS_THROUGHPUT: bool = false;

    fn pause_s(_: Thoroughness) -> f64 {
        0.0
    }

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let (goal, rate_pps) = (&context.settings.goal, context.settings.rate_pps?);
        // allows for rounding of the sum
        (self.asked_s < goal.sum_s() - 1e-9).then(|| {
            self.asked_s += goal.final_s();
            let trace_one_in = context.settings.anatomy.then(|| trace_interval(rate_pps, goal.sum_s()));
            TrialInput { vnfs: true, trace_one_in, ..TrialInput::constant(rate_pps, goal.final_s()) }
        })
    }

    fn record(&mut self, context: &MethodContext, _: &TrialInput, output: TrialOutput) {
        self.latencies.record(&output);
        self.connections.record(&output);
        output.anatomy.iter().for_each(|anatomy| self.anatomy.add(anatomy));
        let trial = &output.trial;
        self.forwarded.push(trial.forwarding_pps());
        let (outcome, goal) = (Outcome::of(trial), &context.settings.goal);
        self.all.add(trial);
        if outcome.counts(goal) {
            self.judged += 1;
            self.exceeding += usize::from(outcome.is_high_loss(goal));
            self.unsent += trial.unsent - trial.unsent_no_buffer;
        } else {
            self.excused.add(trial);
        }
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let (goal, Some(rate_pps)) = (&context.settings.goal, context.settings.rate_pps) else { return };
        let holds = self.judged != 0 && self.exceeding as f64 <= goal.exceed_ratio() * self.judged as f64;
        let forwarded = self.forwarded.iter().sum::<f64>() / self.forwarded.len().max(1) as f64;
        output.summary = Summary {
            lower_pps: if holds { rate_pps } else { 0.0 },
            upper_pps: (!holds && self.judged != 0).then_some(rate_pps),
            conditional_pps: Some(forwarded),
        };
        output.limited_by = match () {
            () if self.judged == 0 => LimitedBy::HostInterference,
            () if self.unsent != 0 => LimitedBy::Generator,
            () if holds => LimitedBy::MaxLoad,
            () => LimitedBy::Device,
        };
        if self.judged == 0 {
            output.deviations.push(Remark::HostInterference { load_pps: rate_pps }.to_string());
        }
        if self.unsent != 0 {
            output.deviations.push("the generator left packets unsent; they count as lost".to_owned());
        }
        if self.all.seconds > 0.0 {
            let rate = |name: &str, packets: u64| Quantity::new(name, "pps", packets as f64 / self.all.seconds);
            output.quantities = vec![
                rate("offered", self.all.intended),
                rate("sent", self.all.sent),
                rate("received", self.all.received),
                Quantity::new("loss", "ratio", self.all.loss_ratio()),
            ];
        }
        self.connections.report(output);
        if self.excused.intended != 0 {
            let excused = self.forwarded.len() - self.judged;
            output.deviations.push(format!(
                "{excused} of {} trials were invalidated by host interference; {:.4} % of their packets were lost, and \
                 are included in the rates",
                self.forwarded.len(),
                100.0 * self.excused.loss_ratio()
            ));
        }
        output.latency.extend(self.latencies.entry(rate_pps, rate_pps));
        if context.settings.anatomy {
            output.anatomy.push(self.anatomy.document(rate_pps, 0.0));
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
    fn judges_a_load() {
        let at = |rate_pps: f64, device: &str| {
            let settings = MethodSettings::new(Thoroughness::Quick, Goal::quick(), Limits::new(1e3, 1e7).unwrap());
            let mut method = start("load", &MethodSettings { rate_pps: Some(rate_pps), ..settings }).unwrap();
            let mut device: Simulated = device.parse().unwrap();
            run(&mut *method, &mut device, |_| true, |_| ()).unwrap();
            method.output()
        };
        let good = at(2e6, "capacity=3e6");
        assert_eq!((good.summary.lower_pps, good.trials.len(), good.limited_by), (2e6, 20, LimitedBy::MaxLoad));
        assert_eq!(good.latency.len(), 1);
        let bad = at(4e6, "capacity=3e6");
        assert_eq!((bad.summary.lower_pps, bad.summary.upper_pps), (0.0, Some(4e6)));
        assert!((bad.summary.conditional_pps.unwrap() - 3e6).abs() < 1e3);
        let starved = at(4e6, "capacity=9e6,generator=2e6");
        assert_eq!(starved.limited_by, LimitedBy::Generator);
        for (output, expected) in [(good, [2e6, 2e6, 2e6]), (bad, [4e6, 4e6, 3e6]), (starved, [4e6, 2e6, 2e6])] {
            let value = |name: &str| output.quantities.iter().find(|q| q.name == name).unwrap().value;
            for (name, expected) in ["offered", "sent", "received"].into_iter().zip(expected) {
                assert!((value(name) - expected).abs() < 1e3, "{name}: {} and not {expected}", value(name));
            }
            assert!((value("loss") - (1.0 - expected[2] / expected[0])).abs() < 1e-3);
        }
    }
}
