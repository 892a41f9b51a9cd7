//! Loss over load (RFC 2544 §26.3).

use crate::method::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure, format_seconds};
use crate::method::properties::Properties;
use crate::method::{MethodOutput, Thoroughness};
use crate::search::LimitedBy;
use crate::trial::{TrialInput, TrialOutput};
use report::{Axis, Quantity, Series};

/// Steps down from 100 %; RFC 2544 §26.3 allows at most 10 % a step.
const STEPS: u32 = 10;
/// Trial duration, quick and standard (RFC 2544 §24), seconds.
const TRIAL_S: (f64, f64) = (0.5, 60.0);

#[derive(Default)]
pub(in crate::method) struct LossCurve {
    started: u32,
    /// Consecutive loads without loss.
    clean: u32,
    /// Rate sent in packets per second, and the loss ratio of the packets sent.
    points: Vec<[f64; 2]>,
    /// At the first load: true if the generator left packets unsent, and true if packets sent were lost.
    top: Option<(bool, bool)>,
    unsent: u32,
}

impl Procedure for LossCurve {
    const NAME: &'static str = "loss";
    const STANDARD: Option<&'static str> = Some("RFC 2544 §26.3");
    const QUESTION: &'static str = "Which share of the packets is lost at each load?";
    const DURATION_S: (f64, f64) = (2.5, 350.0);
    const PROPERTIES: Properties =
        Properties { relative_to_line_rate: true, requires_rate: false, counts_only: true, ..DEFAULT_PROPERTIES };
    const NEEDS_THROUGHPUT: bool = false;

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        // ends after two consecutive loads without loss (RFC 2544 §26.3)
        if self.clean == 2 || self.started == STEPS {
            return None;
        }
        let share = f64::from(STEPS - self.started) / f64::from(STEPS);
        let load_pps = (context.settings.top_pps() * share).floor();
        let (quick, standard) = TRIAL_S;
        self.started += 1;
        (load_pps >= context.settings.limits.min_pps())
            .then(|| TrialInput::constant(load_pps, context.settings.select(quick, standard)))
    }

    fn record(&mut self, _: &MethodContext, _: &TrialInput, output: TrialOutput) {
        let trial = &output.trial;
        let lost = trial.device_loss_ratio();
        self.top = self.top.or(Some((trial.unsent != 0, trial.lost != 0)));
        self.unsent += u32::from(trial.unsent != 0);
        self.clean = if trial.lost == 0 { self.clean + 1 } else { 0 };
        self.points.push([trial.sent_pps(), lost]);
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let settings = &context.settings;
        let mut points = self.points.clone();
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        if let Some([_, lost]) = self.points.first() {
            output.quantities.push(Quantity::new("loss at the highest load", "ratio", *lost));
        }
        // a load without loss above a load with loss is an accident
        let clean = points.iter().take_while(|[_, lost]| *lost == 0.0).last();
        output.quantities.extend(clean.map(|[load, _]| Quantity::new("highest load without loss", "pps", *load)));
        output.summary.lower_pps = clean.map_or(0.0, |[load, _]| *load);
        output.limited_by = match self.top {
            Some((_, true)) => LimitedBy::Device,
            Some((true, false)) => LimitedBy::Generator,
            _ => LimitedBy::MaxLoad,
        };
        let axis = |name: &str, unit: &str| Axis { name: name.to_owned(), unit: unit.to_owned() };
        let (x, y) = (axis("load sent", "pps"), axis("lost of the packets sent", "ratio"));
        output.series.push(Series { name: "loss over load".to_owned(), x, y, points });
        let deviations = &mut output.deviations;
        if settings.thoroughness == Thoroughness::Quick {
            deviations.push(format!("trials of {} where RFC 2544 §24 requires 60 s", format_seconds(TRIAL_S.0)));
        }
        push_top_load_deviation(context, deviations);
        if self.unsent != 0 {
            deviations.push(format!(
                "the generator left packets unsent at {} loads; the loss ratio is that of the packets sent",
                self.unsent
            ));
        }
    }
}

/// Adds a deviation if the highest load is not the line rate of the medium.
pub(in crate::method) fn push_top_load_deviation(context: &MethodContext, deviations: &mut Vec<String>) {
    let (top, line) = (context.settings.top_pps(), context.settings.line_pps);
    match line {
        None => deviations.push(format!("100 % is the highest load, {top} packets/s: the line rate is unknown")),
        Some(line) if top < line => {
            deviations
                .push(format!("100 % is the highest load, {top} packets/s, below the line rate of {line} packets/s"));
        }
        Some(_) => {}
    }
}
