//! System recovery: the time after an overload until packets are no longer lost (RFC 2544 §26.5).

use crate::method::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure, format_seconds};
use crate::method::properties::Properties;
use crate::method::{MethodOutput, Thoroughness};
use crate::trial::{Phase, TrialInput, TrialOutput};
use report::{Axis, Quantity, Series};

/// Overload, and the load after it, as shares of the throughput (RFC 2544 §26.5).
const OVERLOAD: f64 = 1.1;
const AFTER: f64 = 0.5;
/// Number of loss bins of a trial.
const BINS: usize = 200;
/// Repetitions and seconds of each half, quick and standard.
const FORMS: ((usize, f64), (usize, f64)) = ((3, 0.5), (5, 60.0));

#[derive(Default)]
pub(in crate::method) struct Recovery {
    started: usize,
    seconds: Vec<f64>,
    /// Trials without loss during the overload, and trials with loss up to the end.
    untouched: usize,
    unrecovered: usize,
    without_loss_times: usize,
    curve: Vec<[f64; 2]>,
    overload_pps: f64,
}

impl Procedure for Recovery {
    const NAME: &'static str = "recovery";
    const STANDARD: Option<&'static str> = Some("RFC 2544 §26.5");
    const QUESTION: &'static str = "How long after an overload are packets still lost?";
    const DURATION_S: (f64, f64) = (5.0, 900.0);
    const PROPERTIES: Properties = Properties { relative_to_line_rate: true, ..DEFAULT_PROPERTIES };

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let (times, duration_s) = context.settings.select(FORMS.0, FORMS.1);
        // 110 % of the throughput or the highest load, whichever is lower
        self.overload_pps = (context.throughput_pps * OVERLOAD).floor().min(context.settings.top_pps());
        (self.started < times && self.overload_pps > context.throughput_pps).then(|| {
            self.started += 1;
            let after = Phase { load_pps: context.load_at_share(AFTER), duration_s };
            let phases = vec![Phase { load_pps: self.overload_pps, duration_s }, after];
            TrialInput { phases, loss_bins: BINS, ..TrialInput::default() }
        })
    }

    fn record(&mut self, _: &MethodContext, input: &TrialInput, output: TrialOutput) {
        let (drop_s, end_s) = (input.phases[0].duration_s, input.duration_s());
        let Some(losses) = &output.losses else {
            self.without_loss_times += 1;
            return;
        };
        let share = |(lost, due): &(u64, u64)| *lost as f64 / (*due).max(1) as f64;
        let middle = |i: usize| (i as f64 + 0.5) * end_s / losses.bins.len() as f64;
        self.curve = losses.bins.iter().enumerate().map(|(i, bin)| [middle(i), share(bin)]).collect();
        let last_s = losses.last_s.unwrap_or(0.0);
        self.untouched += usize::from(losses.first_s.is_none_or(|first_s| first_s >= drop_s));
        // a packet was lost in the last fiftieth of the second phase
        self.unrecovered += usize::from(last_s > end_s - (end_s - drop_s) / 50.0);
        self.seconds.push((last_s - drop_s).max(0.0));
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let ((times, length), (most, long)) = FORMS;
        output.quantities.extend(Quantity::mean("recovery time", "s", &self.seconds));
        let deviations = &mut output.deviations;
        if context.settings.thoroughness == Thoroughness::Quick {
            deviations.push(format!(
                "{times} overloads of {} where RFC 2544 §26.5 requires at least 60 s and the standard form has \
                 {most} of {}",
                format_seconds(length),
                format_seconds(long)
            ));
        }
        if context.throughput_pps > 0.0 && self.overload_pps <= context.throughput_pps && self.overload_pps > 0.0 {
            deviations.push("no overload is possible: the throughput is the highest load".to_owned());
        } else if self.overload_pps > 0.0 && self.overload_pps < (context.throughput_pps * OVERLOAD).floor() {
            let percent = (self.overload_pps / context.throughput_pps * 1e3).round() / 10.0;
            deviations.push(format!("the overload is the highest load, {percent} % of the throughput"));
        }
        for (count, what) in [
            (self.untouched, "overloads caused no loss, so there was nothing to recover from"),
            (self.unrecovered, "trials lost packets up to the end: recovery takes longer than the trial"),
            (self.without_loss_times, "trials have no record of when packets were lost"),
        ] {
            if count != 0 {
                deviations.push(format!("{count} {what}"));
            }
        }
        if !self.curve.is_empty() {
            let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
            output.series.push(Series {
                name: "loss over time, overload first".to_owned(),
                x: axis("time", "s"),
                y: axis("loss ratio of the packets due", "ratio"),
                points: self.curve.clone(),
            });
        }
    }
}
