//! Loss over load (RFC 2544 §26.3).

use super::course::{Known, Plan, time};
use super::{Findings, Form};
use crate::bed::{Ask, Seen};
use crate::search::LimitedBy;
use report::{Axis, Quantity, Series};

/// Steps down from 100 %; RFC 2544 §26.3 allows at most 10 % a step.
const STEPS: u32 = 10;
/// Length of the trials, quick and standard (RFC 2544 §24), seconds.
const LENGTHS_S: (f64, f64) = (0.5, 60.0);

#[derive(Default)]
pub(super) struct LossCurve {
    asked: u32,
    /// Loads without loss one after the other.
    clean: u32,
    /// Packets a second that were sent, and the share of them lost.
    points: Vec<[f64; 2]>,
    /// Whether the generator left packets unsent at the first load, and whether packets sent were lost.
    top: Option<(bool, bool)>,
    unsent: u32,
}

impl Plan for LossCurve {
    const NAME: &'static str = "loss";
    const STANDARD: Option<&'static str> = Some("RFC 2544 §26.3");
    const NEEDS_THROUGHPUT: bool = false;

    fn next(&mut self, known: &Known) -> Option<Ask> {
        // Until there is no loss at two loads in a row (RFC 2544 §26.3).
        if self.clean == 2 || self.asked == STEPS {
            return None;
        }
        let share = f64::from(STEPS - self.asked) / f64::from(STEPS);
        let load_pps = (known.settings.top_pps() * share).floor();
        let (quick, standard) = LENGTHS_S;
        self.asked += 1;
        (load_pps >= known.settings.limits.min_pps()).then(|| Ask::load(load_pps, known.settings.pick(quick, standard)))
    }

    fn tell(&mut self, _: &Known, _: &Ask, seen: Seen) {
        let trial = &seen.trial;
        let lost = trial.device_loss_ratio();
        self.top = self.top.or(Some((trial.unsent != 0, trial.lost != 0)));
        self.unsent += u32::from(trial.unsent != 0);
        self.clean = if trial.lost == 0 { self.clean + 1 } else { 0 };
        self.points.push([trial.sent_pps(), lost]);
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let settings = &known.settings;
        let mut points = self.points.clone();
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        if let Some([_, lost]) = self.points.first() {
            findings.quantities.push(Quantity::new("loss at the highest load", "ratio", *lost));
        }
        // Where a lower load loses, a higher one that does not is an accident.
        let clean = points.iter().take_while(|[_, lost]| *lost == 0.0).last();
        findings.quantities.extend(clean.map(|[load, _]| Quantity::new("highest load without loss", "pps", *load)));
        findings.summary.lower_pps = clean.map_or(0.0, |[load, _]| *load);
        findings.limited_by = match self.top {
            Some((_, true)) => LimitedBy::Device,
            Some((true, false)) => LimitedBy::Generator,
            _ => LimitedBy::MaxLoad,
        };
        let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
        let (x, y) = (axis("load sent", "pps"), axis("lost of the packets sent", "ratio"));
        findings.series.push(Series { name: "loss over load".to_owned(), x, y, points });
        let says = &mut findings.deviations;
        if settings.form == Form::Quick {
            says.push(format!("trials of {} where RFC 2544 §24 asks for 60 s", time(LENGTHS_S.0)));
        }
        of_top(known, says);
        if self.unsent != 0 {
            says.push(format!(
                "the generator left packets unsent at {} loads; loss is that of packets sent",
                self.unsent
            ));
        }
    }
}

/// What is to be said where the highest load is not what the medium carries.
pub(super) fn of_top(known: &Known, says: &mut Vec<String>) {
    let (top, line) = (known.settings.top_pps(), known.settings.line_pps);
    match line {
        None => says.push(format!("100 % is the highest load, {top} packets/s: what the medium carries is not known")),
        Some(line) if top < line => {
            says.push(format!("100 % is the highest load, {top} packets/s, where the medium carries {line}"));
        }
        Some(_) => {}
    }
}
