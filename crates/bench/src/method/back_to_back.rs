//! The longest burst without loss, and the buffer that it tells of (RFC 9004, which updates RFC 2544 §26.4).

use super::Findings;
use super::Form;
use super::course::{Known, Plan, time};
use super::loss::of_top;
use crate::bed::{Ask, Seen};
use crate::search::LimitedBy;
use report::Quantity;

/// What a burst of so many packets began with.
const FIRST: u64 = 64;

/// Numbers of a form.
struct Scale {
    /// Repetitions (RFC 2544 §26.4, RFC 9004 §5.3).
    times: usize,
    /// How near the longest burst without loss and the shortest with are brought, packets.
    step: u64,
    /// Longest burst, seconds (RFC 9004 §5.2).
    ceiling_s: f64,
    /// Without traffic before each, seconds (RFC 9004 §5.2).
    rest_s: f64,
}

const fn scale(form: Form) -> Scale {
    match form {
        Form::Quick => Scale { times: 5, step: 32, ceiling_s: 1.0, rest_s: 0.02 },
        Form::Standard => Scale { times: 50, step: 8, ceiling_s: 30.0, rest_s: 2.0 },
    }
}

/// A search for the longest burst after the other.
#[derive(Default)]
pub(super) struct BackToBack {
    /// Packets of the longest burst without loss, and of the shortest with.
    low: u64,
    high: Option<u64>,
    /// The results.
    lengths: Vec<f64>,
    /// How many were as long as is tried.
    at_ceiling: usize,
    /// Packets that the generator left unsent, and of how many, which ends it.
    starved: Option<(u64, u64)>,
}

impl BackToBack {
    /// Packets of the next burst; none where the longest without loss is known.
    fn burst(&self, ceiling: u64, step: u64) -> Option<u64> {
        match self.high {
            None if self.low >= ceiling => None,
            None => Some((self.low * 2).max(FIRST).min(ceiling)),
            Some(high) if high - self.low <= step => None,
            Some(high) => Some(self.low + (high - self.low) / 2),
        }
    }
}

/// Packets of the longest burst.
fn ceiling(known: &Known) -> u64 {
    ((known.settings.top_pps() * scale(known.settings.form).ceiling_s) as u64).max(FIRST)
}

impl Plan for BackToBack {
    const NAME: &'static str = "back-to-back";
    const STANDARD: Option<&'static str> = Some("RFC 9004");

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let (top, Scale { times, step, .. }) = (known.settings.top_pps(), scale(known.settings.form));
        // A buffer never fills where the highest load is forwarded (RFC 9004 §4).
        if known.throughput_pps >= top || self.starved.is_some() {
            return None;
        }
        let longest = ceiling(known);
        let mut burst = self.burst(longest, step);
        if burst.is_none() {
            self.lengths.push(self.low as f64);
            self.at_ceiling += usize::from(self.high.is_none());
            (self.low, self.high) = (0, None);
            burst = self.burst(longest, step);
        }
        if self.lengths.len() >= times {
            return None;
        }
        burst.map(|packets| Ask::load(top, packets as f64 / top))
    }

    fn tell(&mut self, _: &Known, _: &Ask, seen: Seen) {
        let packets = seen.trial.intended;
        if seen.trial.unsent != 0 {
            self.starved = Some((seen.trial.unsent, packets));
        } else if seen.trial.lost == 0 {
            self.low = self.low.max(packets);
        } else {
            self.high = Some(packets.max(self.low + 1));
        }
    }

    fn rest_s(form: Form) -> f64 {
        scale(form).rest_s
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let Scale { times, step, ceiling_s, .. } = scale(known.settings.form);
        let (top, throughput) = (known.settings.top_pps(), known.throughput_pps);
        let says = &mut findings.deviations;
        if throughput >= top {
            says.push(format!(
                "{throughput} packets/s, all that is offered, are forwarded without loss: no burst fills a buffer, and \
                 RFC 9004 §4 has nothing to measure"
            ));
            return;
        }
        if let Some((unsent, packets)) = self.starved {
            says.push(format!(
                "the generator left {unsent} packets of a burst of {packets} at {top} packets/s unsent: longer ones tell \
                 nothing about the device"
            ));
            findings.limited_by = LimitedBy::Generator;
        }
        if known.settings.form == Form::Quick {
            let full = scale(Form::Standard);
            says.push(format!(
                "{times} repetitions in steps of {step} packets with bursts of up to {} where the standard form has {} in \
                 steps of {} with up to {} (RFC 2544 §26.4, RFC 9004 §5)",
                time(ceiling_s),
                full.times,
                full.step,
                time(full.ceiling_s)
            ));
        }
        of_top(known, says);
        if self.at_ceiling != 0 {
            says.push(format!(
                "in {} repetitions the longest burst tried, {} of them, was not lost",
                self.at_ceiling,
                time(ceiling_s)
            ));
        }
        let Some(length) = Quantity::mean("burst length", "frames", &self.lengths) else { return };
        // RFC 9004 §5.4: what is worked off while the burst comes is not in the buffer.
        let implied_s = length.value / top;
        let corrected_s = implied_s * (1.0 - throughput / top);
        findings.quantities.push(length);
        findings.quantities.push(Quantity::new("implied buffer time", "s", implied_s));
        findings.quantities.push(Quantity::new("corrected buffer time", "s", corrected_s));
        findings.quantities.push(Quantity::new("corrected buffer", "frames", corrected_s * top));
    }
}
