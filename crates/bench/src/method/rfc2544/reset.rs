//! Reset: the time for which a reset interrupts forwarding (RFC 6201, updates RFC 2544 §26.6).

use crate::method::procedure::{MethodContext, Procedure, format_seconds};
use crate::method::{MethodOutput, Thoroughness};
use crate::trial::{Disturbance, TrialInput, TrialOutput};
use report::Quantity;

/// Repetitions, trial duration and time of the reset in seconds, quick and standard.
const FORMS: ((usize, f64, f64), (usize, f64, f64)) = ((3, 2.0, 0.5), (3, 120.0, 10.0));
/// Number of loss bins of a trial.
const BINS: usize = 100;

#[derive(Default)]
pub(in crate::method) struct Reset {
    started: usize,
    /// Packets lost over the rate sent (RFC 6201, frame-loss method).
    by_loss: Vec<f64>,
    /// Time from the last packet before the gap to the first after it (RFC 6201, time-stamp method).
    by_stamps: Vec<f64>,
    not_performed: u64,
    without_loss_times: usize,
    early: usize,
    unfinished: usize,
}

impl Procedure for Reset {
    const NAME: &'static str = "reset";
    const STANDARD: Option<&'static str> = Some("RFC 6201, RFC 2544 §26.6");
    const QUESTION: &'static str = "How long does a reset interrupt forwarding?";
    const DURATION_S: (f64, f64) = (8.0, 650.0);

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let (times, duration_s, at_s) = context.settings.select(FORMS.0, FORMS.1);
        (self.started < times).then(|| {
            self.started += 1;
            let load = TrialInput::constant(context.load_at_share(1.0), duration_s);
            TrialInput { loss_bins: BINS, disturbance: Some(Disturbance::Reset { at_s }), ..load }
        })
    }

    fn record(&mut self, _: &MethodContext, input: &TrialInput, output: TrialOutput) {
        let Some(reset) = output.disturbance.filter(|report| report.done != 0) else {
            self.not_performed += 1;
            return;
        };
        let trial = &output.trial;
        let sent_pps = trial.sent as f64 / trial.duration_s;
        self.by_loss.push(trial.lost as f64 / sent_pps.max(1.0));
        let Some(losses) = &output.losses else {
            self.without_loss_times += 1;
            return;
        };
        let (Some(first_s), Some(last_s)) = (losses.first_s, losses.last_s) else {
            self.by_stamps.push(0.0);
            return;
        };
        // the packets around the gap are two intervals further apart than the first and the last lost one
        self.by_stamps.push(last_s - first_s + 2.0 / sent_pps.max(1.0));
        self.early += usize::from(first_s < reset.from_s - 1e-3);
        self.unfinished += usize::from(last_s > input.duration_s() * 0.99);
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let ((times, length, at), (most, long, later)) = FORMS;
        output.quantities.extend(Quantity::mean("reset time by frames lost", "s", &self.by_loss));
        output.quantities.extend(Quantity::mean("reset time by time stamps", "s", &self.by_stamps));
        let deviations = &mut output.deviations;
        if context.settings.thoroughness == Thoroughness::Quick {
            deviations.push(format!(
                "{times} trials of {} with the reset after {} where the standard form has {most} of {} with the \
                 reset after {}",
                format_seconds(length),
                format_seconds(at),
                format_seconds(long),
                format_seconds(later)
            ));
        }
        for (count, what) in [
            (self.not_performed as usize, "resets were not performed"),
            (self.without_loss_times, "trials have no record of when packets were lost"),
            (self.early, "trials lost packets before the reset: the time by time stamps starts there"),
            (self.unfinished, "trials ended before the DUT forwarded again: the reset takes longer"),
        ] {
            if count != 0 {
                deviations.push(format!("{count} {what}"));
            }
        }
    }
}
