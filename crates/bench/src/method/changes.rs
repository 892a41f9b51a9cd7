//! Cost of changes of rules or routes while packets are forwarded.

use super::accumulate::{LatencyAccumulator, rename};
use super::procedure::{MethodContext, Procedure, format_seconds};
use super::{MethodOutput, Thoroughness};
use crate::trial::{Disturbance, TrialInput, TrialOutput};
use report::{Axis, Quantity, Series};

/// Changes per second; each rate is compared with a control trial without changes.
const RATES: [f64; 3] = [1.0, 100.0, 10_000.0];
/// Load as a share of the throughput.
const SHARE: f64 = 0.8;
/// Repetitions and seconds, quick and standard.
const FORMS: ((usize, f64), (usize, f64)) = ((3, 1.0), (10, 60.0));

/// Results at one rate of changes, one value per pair of trials.
#[derive(Clone, Default)]
struct AtRate {
    /// Packets lost over the rate sent, seconds: with changes, and in the control trial.
    lost_s: Vec<f64>,
    control_s: Vec<f64>,
    /// Changes per second that were made.
    made: Vec<f64>,
    done: u64,
    failed: u64,
    latencies: LatencyAccumulator,
    seconds: f64,
}

#[derive(Default)]
pub(super) struct Changes {
    started: usize,
    recorded: usize,
    at: [AtRate; 3],
    control: LatencyAccumulator,
}

impl Procedure for Changes {
    const NAME: &'static str = "changes";
    const STANDARD: Option<&'static str> = None;
    const QUESTION: &'static str = "What do changes of rules or routes cost while packets are forwarded?";
    const DURATION_S: (f64, f64) = (20.0, 4300.0);

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let (times, duration_s) = context.settings.select(FORMS.0, FORMS.1);
        (self.started < times * RATES.len() * 2).then(|| {
            let load = TrialInput::constant(context.load_at_share(SHARE), duration_s);
            let per_second = RATES[self.started / 2 % RATES.len()];
            // each is preceded by a control trial
            let disturbance = (self.started % 2 == 1).then_some(Disturbance::Changes { per_second });
            self.started += 1;
            TrialInput { disturbance, ..load }
        })
    }

    fn record(&mut self, _: &MethodContext, _: &TrialInput, output: TrialOutput) {
        let at = &mut self.at[self.recorded / 2 % RATES.len()];
        let trial = &output.trial;
        let lost_s = trial.lost as f64 / (trial.sent as f64 / trial.duration_s).max(1.0);
        if self.recorded.is_multiple_of(2) {
            at.control_s.push(lost_s);
            self.control.record(&output);
        } else {
            let report = output.disturbance.unwrap_or_default();
            at.lost_s.push(lost_s);
            let active_s = report.to_s - report.from_s;
            let seconds = if active_s > 0.0 { active_s } else { trial.duration_s };
            at.made.push(report.done as f64 / seconds);
            at.done += report.done;
            at.failed += report.failed;
            at.seconds += seconds;
            at.latencies.record(&output);
        }
        self.recorded += 1;
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let load_pps = context.load_at_share(SHARE);
        let mut points = vec![];
        let controls: Vec<f64> = self.at.iter().flat_map(|at| at.control_s.iter().copied()).collect();
        output.quantities.extend(Quantity::mean("lost time in a trial without changes", "s", &controls));
        output.latency.extend(self.control.entry(load_pps, context.throughput_pps));
        for (at, rate) in self.at.iter().zip(RATES) {
            if at.lost_s.is_empty() {
                continue;
            }
            let mut add = |what: &str, unit: &str, values: &[f64]| {
                output
                    .quantities
                    .extend(rename(format!("{what} at {rate} per second"), Quantity::mean("", unit, values)));
            };
            add("changes made", "per second", &at.made);
            add("lost time in a trial", "s", &at.lost_s);
            // lost time minus that of the control trials, per change
            let pairs = at.lost_s.len().min(at.control_s.len());
            let net: f64 = at.lost_s[..pairs].iter().sum::<f64>() - at.control_s[..pairs].iter().sum::<f64>();
            let blocked_s = if at.done == 0 { 0.0 } else { (net / at.done as f64).max(0.0) };
            if at.done != 0 {
                let name = format!("blocked time of a change at {rate} per second");
                output.quantities.push(Quantity::new(&name, "s", blocked_s));
            }
            points.push([at.done as f64 / at.seconds, at.lost_s.iter().sum::<f64>() / at.seconds]);
            output.latency.extend(at.latencies.entry(load_pps, context.throughput_pps));
            if at.failed != 0 {
                output.deviations.push(format!("the DUT rejected {} changes at {rate} per second", at.failed));
            }
            let made = at.done as f64 / at.seconds;
            if made < rate * 0.99 && at.seconds * rate >= 100.0 {
                let made = made.round();
                output.deviations.push(format!("{made} changes per second were made where {rate} were requested"));
            }
        }
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        if !controls.is_empty() {
            let ((_, length), _) = (context.settings.select(FORMS.0, FORMS.1), ());
            points.insert(0, [0.0, controls.iter().sum::<f64>() / (controls.len() as f64 * length)]);
        }
        let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
        let (x, y) = (axis("changes made", "per second"), axis("lost of the time", "ratio"));
        output.series.push(Series { name: "lost time over changes".to_owned(), x, y, points });
        let ((times, length), (most, long)) = FORMS;
        let deviations = &mut output.deviations;
        deviations.push(format!(
            "not defined by a standard: changes at {} % of the throughput, each trial paired with a control trial \
             without changes",
            (SHARE * 100.0).round()
        ));
        if context.settings.thoroughness == Thoroughness::Quick {
            deviations.push(format!(
                "{times} trials of {} at each rate where the standard form has {most} of {}",
                format_seconds(length),
                format_seconds(long)
            ));
        }
    }
}
