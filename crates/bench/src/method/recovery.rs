//! How long after an overload packets are still lost (RFC 2544 §26.5).

use super::course::{Known, Plan, time};
use super::{Findings, Form};
use crate::bed::{Ask, Phase, Seen};
use report::{Axis, Quantity, Series};

/// Overload, and what follows it, as shares of the throughput (RFC 2544 §26.5).
const OVERLOAD: f64 = 1.1;
const AFTER: f64 = 0.5;
/// Parts of a trial in which loss is told apart, for the curve.
const BINS: usize = 200;
/// Repetitions and seconds of each half, quick and standard.
const FORMS: ((usize, f64), (usize, f64)) = ((3, 0.5), (5, 60.0));

#[derive(Default)]
pub(super) struct Recovery {
    asked: usize,
    seconds: Vec<f64>,
    /// Trials without loss under overload, and with loss up to the end.
    untouched: usize,
    unrecovered: usize,
    untold: usize,
    curve: Vec<[f64; 2]>,
    overload_pps: f64,
}

impl Plan for Recovery {
    const NAME: &'static str = "recovery";
    const STANDARD: Option<&'static str> = Some("RFC 2544 §26.5");

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let (times, duration_s) = known.settings.pick(FORMS.0, FORMS.1);
        // 110 % or what the medium carries, whichever is less.
        self.overload_pps = (known.throughput_pps * OVERLOAD).floor().min(known.settings.top_pps());
        (self.asked < times && self.overload_pps > known.throughput_pps).then(|| {
            self.asked += 1;
            let after = Phase { load_pps: known.load(AFTER), duration_s };
            let phases = vec![Phase { load_pps: self.overload_pps, duration_s }, after];
            Ask { phases, loss_bins: BINS, ..Ask::default() }
        })
    }

    fn tell(&mut self, _: &Known, ask: &Ask, seen: Seen) {
        let (drop_s, end_s) = (ask.phases[0].duration_s, ask.duration_s());
        let Some(losses) = &seen.losses else {
            self.untold += 1;
            return;
        };
        let share = |(lost, due): &(u64, u64)| *lost as f64 / (*due).max(1) as f64;
        let middle = |i: usize| (i as f64 + 0.5) * end_s / losses.bins.len() as f64;
        self.curve = losses.bins.iter().enumerate().map(|(i, bin)| [middle(i), share(bin)]).collect();
        let last_s = losses.last_s.unwrap_or(0.0);
        self.untouched += usize::from(losses.first_s.is_none_or(|first_s| first_s >= drop_s));
        // One packet in a hundredth of the trial before the end.
        self.unrecovered += usize::from(last_s > end_s - (end_s - drop_s) / 50.0);
        self.seconds.push((last_s - drop_s).max(0.0));
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let ((times, length), (most, long)) = FORMS;
        findings.quantities.extend(Quantity::mean("recovery time", "s", &self.seconds));
        let says = &mut findings.deviations;
        if known.settings.form == Form::Quick {
            says.push(format!(
                "{times} overloads of {} where RFC 2544 §26.5 asks for at least 60 s and the standard form has {most} of {}",
                time(length),
                time(long)
            ));
        }
        if known.throughput_pps > 0.0 && self.overload_pps <= known.throughput_pps && self.overload_pps > 0.0 {
            says.push("there is no overload to recover from: the throughput is all that is offered".to_owned());
        } else if self.overload_pps > 0.0 && self.overload_pps < (known.throughput_pps * OVERLOAD).floor() {
            let percent = (self.overload_pps / known.throughput_pps * 1e3).round() / 10.0;
            says.push(format!("overload is the highest load, {percent} % of the throughput"));
        }
        for (count, what) in [
            (self.untouched, "overloads lost nothing: there was nothing to recover from"),
            (self.unrecovered, "trials lost packets up to the end: recovery takes longer than was waited"),
            (self.untold, "trials were not told when packets were lost"),
        ] {
            if count != 0 {
                says.push(format!("{count} {what}"));
            }
        }
        if !self.curve.is_empty() {
            let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
            findings.series.push(Series {
                name: "loss over time, overload first".to_owned(),
                x: axis("time", "s"),
                y: axis("lost of the packets due", "ratio"),
                points: self.curve.clone(),
            });
        }
    }
}
