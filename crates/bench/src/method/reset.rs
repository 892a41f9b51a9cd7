//! How long a reset takes (RFC 6201, which updates RFC 2544 §26.6).

use super::course::{Known, Plan, time};
use super::{Findings, Form};
use crate::bed::{Act, Ask, Seen};
use report::Quantity;

/// Repetitions, seconds of a trial, and when it is reset, quick and standard.
const FORMS: ((usize, f64, f64), (usize, f64, f64)) = ((3, 2.0, 0.5), (3, 120.0, 10.0));
/// Parts of a trial in which loss is told apart.
const BINS: usize = 100;

#[derive(Default)]
pub(super) struct Reset {
    asked: usize,
    /// Lost packets over the rate (RFC 6201, frame-loss method).
    by_loss: Vec<f64>,
    /// From the last packet before the gap to the first behind it (RFC 6201, time-stamp method).
    by_stamps: Vec<f64>,
    refused: u64,
    untold: usize,
    early: usize,
    still_away: usize,
}

impl Plan for Reset {
    const NAME: &'static str = "reset";
    const STANDARD: Option<&'static str> = Some("RFC 6201, RFC 2544 §26.6");

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let (times, duration_s, at_s) = known.settings.pick(FORMS.0, FORMS.1);
        (self.asked < times).then(|| {
            self.asked += 1;
            let load = Ask::load(known.load(1.0), duration_s);
            Ask { loss_bins: BINS, act: Some(Act::Reset { at_s }), ..load }
        })
    }

    fn tell(&mut self, _: &Known, ask: &Ask, seen: Seen) {
        let Some(acted) = seen.acted.filter(|acted| acted.done != 0) else {
            self.refused += 1;
            return;
        };
        let trial = &seen.trial;
        let sent_pps = trial.sent as f64 / trial.duration_s;
        self.by_loss.push(trial.lost as f64 / sent_pps.max(1.0));
        let Some(losses) = &seen.losses else {
            self.untold += 1;
            return;
        };
        let (Some(first_s), Some(last_s)) = (losses.first_s, losses.last_s) else {
            self.by_stamps.push(0.0);
            return;
        };
        // The packets before the first and behind the last that were lost lie two intervals further apart.
        self.by_stamps.push(last_s - first_s + 2.0 / sent_pps.max(1.0));
        self.early += usize::from(first_s < acted.from_s - 1e-3);
        self.still_away += usize::from(last_s > ask.duration_s() * 0.99);
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let ((times, length, at), (most, long, later)) = FORMS;
        findings.quantities.extend(Quantity::mean("reset time by frames lost", "s", &self.by_loss));
        findings.quantities.extend(Quantity::mean("reset time by time stamps", "s", &self.by_stamps));
        let says = &mut findings.deviations;
        if known.settings.form == Form::Quick {
            says.push(format!(
                "{times} trials of {} with the reset after {} where the standard form has {most} of {} with it after {}",
                time(length),
                time(at),
                time(long),
                time(later)
            ));
        }
        for (count, what) in [
            (self.refused as usize, "resets were not carried out"),
            (self.untold, "trials were not told when packets were lost"),
            (self.early, "trials lost packets before the reset: the time by stamps counts from there"),
            (self.still_away, "trials ended before the device was back: the reset takes longer"),
        ] {
            if count != 0 {
                says.push(format!("{count} {what}"));
            }
        }
    }
}
