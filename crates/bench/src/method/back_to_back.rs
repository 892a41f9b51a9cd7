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

/// By what the rate of bursts is lowered that the generator cannot send.
const SLOWER: f64 = 0.9;

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
    /// The rate of bursts, where the generator could not send at a higher one.
    slower_pps: Option<f64>,
}

impl BackToBack {
    /// The rate of bursts, packets a second.
    fn rate(&self, known: &Known) -> f64 {
        self.slower_pps.unwrap_or(known.settings.top_pps())
    }

    /// Packets of the longest burst.
    fn ceiling(&self, known: &Known) -> u64 {
        ((self.rate(known) * scale(known.settings.form).ceiling_s) as u64).max(FIRST)
    }

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

impl Plan for BackToBack {
    const NAME: &'static str = "back-to-back";
    const STANDARD: Option<&'static str> = Some("RFC 9004");

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let (rate, Scale { times, step, .. }) = (self.rate(known), scale(known.settings.form));
        // A buffer never fills at a rate that is forwarded (RFC 9004 §4).
        if known.throughput_pps >= rate {
            return None;
        }
        let longest = self.ceiling(known);
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
        burst.map(|packets| Ask::load(rate, packets as f64 / rate))
    }

    fn tell(&mut self, known: &Known, ask: &Ask, seen: Seen) {
        let packets = (ask.phases[0].load_pps * ask.phases[0].duration_s).round() as u64;
        if seen.trial.unsent != 0 {
            // All begins anew: bursts of different rates do not compare.
            let slower_pps = (self.rate(known) * SLOWER).floor();
            *self = BackToBack { slower_pps: Some(slower_pps), ..BackToBack::default() };
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
        let (rate, throughput) = (self.rate(known), known.throughput_pps);
        let says = &mut findings.deviations;
        if self.slower_pps.is_some() {
            let top = known.settings.top_pps();
            says.push(format!(
                "bursts at {rate} packets/s, which is what the generator can send, where RFC 9004 §5 asks for {top}"
            ));
            findings.limited_by = LimitedBy::Generator;
        }
        if throughput >= rate {
            says.push(format!(
                "{throughput} packets/s are forwarded and no burst comes faster: no buffer fills, and RFC 9004 §4 has \
                 nothing to measure"
            ));
            return;
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
        if self.slower_pps.is_none() {
            of_top(known, says);
        }
        if self.at_ceiling != 0 {
            says.push(format!(
                "in {} repetitions the longest burst tried, {} of them, was not lost",
                self.at_ceiling,
                time(ceiling_s)
            ));
        }
        let Some(length) = Quantity::mean("burst length", "frames", &self.lengths) else { return };
        // RFC 9004 §5.4: what is worked off while the burst comes is not in the buffer.
        let implied_s = length.value / rate;
        let corrected_s = implied_s * (1.0 - throughput / rate);
        findings.quantities.push(length);
        findings.quantities.push(Quantity::new("implied buffer time", "s", implied_s));
        findings.quantities.push(Quantity::new("corrected buffer time", "s", corrected_s));
        findings.quantities.push(Quantity::new("corrected buffer", "frames", corrected_s * rate));
    }
}
