//! What changes of rules or routes cost while packets are forwarded.

use super::course::{Known, Plan, time};
use super::measured::{Latencies, named};
use super::{Findings, Form};
use crate::bed::{Act, Ask, Seen};
use report::{Axis, Quantity, Series};

/// Changes a second; each against a control without.
const RATES: [f64; 3] = [1.0, 100.0, 10_000.0];
/// Share of the throughput at which they are made.
const SHARE: f64 = 0.8;
/// Repetitions and seconds, quick and standard.
const FORMS: ((usize, f64), (usize, f64)) = ((3, 1.0), (10, 60.0));

/// What was seen at a rate, a value for each pair of trials.
#[derive(Clone, Default)]
struct At {
    /// Time in which what was lost would have come, seconds: with changes, and in the control.
    lost_s: Vec<f64>,
    control_s: Vec<f64>,
    /// Changes made a second.
    made: Vec<f64>,
    done: u64,
    failed: u64,
    latencies: Latencies,
    seconds: f64,
}

#[derive(Default)]
pub(super) struct Changes {
    asked: usize,
    told: usize,
    at: [At; 3],
    control: Latencies,
}

impl Plan for Changes {
    const NAME: &'static str = "changes";
    const STANDARD: Option<&'static str> = None;

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let (times, duration_s) = known.settings.pick(FORMS.0, FORMS.1);
        (self.asked < times * RATES.len() * 2).then(|| {
            let load = Ask::load(known.load(SHARE), duration_s);
            let per_second = RATES[self.asked / 2 % RATES.len()];
            // A control before each.
            let act = (self.asked % 2 == 1).then_some(Act::Changes { per_second });
            self.asked += 1;
            Ask { act, ..load }
        })
    }

    fn tell(&mut self, _: &Known, _: &Ask, seen: Seen) {
        let at = &mut self.at[self.told / 2 % RATES.len()];
        let trial = &seen.trial;
        let lost_s = trial.lost as f64 / (trial.sent as f64 / trial.duration_s).max(1.0);
        if self.told.is_multiple_of(2) {
            at.control_s.push(lost_s);
            self.control.take(&seen);
        } else {
            let acted = seen.acted.unwrap_or_default();
            at.lost_s.push(lost_s);
            let acted_s = acted.to_s - acted.from_s;
            let seconds = if acted_s > 0.0 { acted_s } else { trial.duration_s };
            at.made.push(acted.done as f64 / seconds);
            at.done += acted.done;
            at.failed += acted.failed;
            at.seconds += seconds;
            at.latencies.take(&seen);
        }
        self.told += 1;
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let load_pps = known.load(SHARE);
        let mut points = vec![];
        let controls: Vec<f64> = self.at.iter().flat_map(|at| at.control_s.iter().copied()).collect();
        findings.quantities.extend(Quantity::mean("lost time in a trial without changes", "s", &controls));
        findings.latency.extend(self.control.entry(load_pps, known.throughput_pps));
        for (at, rate) in self.at.iter().zip(RATES) {
            if at.lost_s.is_empty() {
                continue;
            }
            let mut say = |what: &str, unit: &str, values: &[f64]| {
                findings
                    .quantities
                    .extend(named(format!("{what} at {rate} a second"), Quantity::mean("", unit, values)));
            };
            say("changes made", "per second", &at.made);
            say("lost time in a trial", "s", &at.lost_s);
            // Lost packets over the rate, less what is lost without changes, for each change.
            let pairs = at.lost_s.len().min(at.control_s.len());
            let net: f64 = at.lost_s[..pairs].iter().sum::<f64>() - at.control_s[..pairs].iter().sum::<f64>();
            let blocked_s = if at.done == 0 { 0.0 } else { (net / at.done as f64).max(0.0) };
            if at.done != 0 {
                let name = format!("blocked time of a change at {rate} a second");
                findings.quantities.push(Quantity::new(&name, "s", blocked_s));
            }
            points.push([at.done as f64 / at.seconds, at.lost_s.iter().sum::<f64>() / at.seconds]);
            findings.latency.extend(at.latencies.entry(load_pps, known.throughput_pps));
            if at.failed != 0 {
                findings.deviations.push(format!("the device refused {} changes at {rate} a second", at.failed));
            }
            let made = at.done as f64 / at.seconds;
            if made < rate * 0.99 && at.seconds * rate >= 100.0 {
                let made = made.round();
                findings.deviations.push(format!("{made} changes a second were made where {rate} were asked for"));
            }
        }
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        if !controls.is_empty() {
            let ((_, length), _) = (known.settings.pick(FORMS.0, FORMS.1), ());
            points.insert(0, [0.0, controls.iter().sum::<f64>() / (controls.len() as f64 * length)]);
        }
        let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
        let (x, y) = (axis("changes made", "per second"), axis("lost of the time", "ratio"));
        findings.series.push(Series { name: "lost time over changes".to_owned(), x, y, points });
        let ((times, length), (most, long)) = FORMS;
        let says = &mut findings.deviations;
        says.push(format!(
            "no standard defines it: changes at {} % of the throughput, each trial against a control without",
            (SHARE * 100.0).round()
        ));
        if known.settings.form == Form::Quick {
            says.push(format!(
                "{times} trials of {} at each rate where the standard form has {most} of {}",
                time(length),
                time(long)
            ));
        }
    }
}
