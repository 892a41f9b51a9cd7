//! The longest burst without loss, and the buffer size that follows from it (RFC 9004, updates RFC 2544 §26.4).

use super::loss::push_top_load_deviation;
use crate::method::MethodOutput;
use crate::method::Thoroughness;
use crate::method::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure, format_seconds};
use crate::method::properties::Properties;
use crate::search::LimitedBy;
use crate::trial::{TrialInput, TrialOutput};
use report::Quantity;

/// Length of the first burst, packets.
const FIRST_BURST: u64 = 64;

/// Parameters by thoroughness.
struct Scale {
    /// Repetitions (RFC 2544 §26.4, RFC 9004 §5.3).
    times: usize,
    /// Largest difference between the longest burst without loss and the shortest with loss, packets.
    step: u64,
    /// Duration of the longest burst, seconds (RFC 9004 §5.2).
    ceiling_s: f64,
    /// Pause before each burst, seconds (RFC 9004 §5.2).
    pause_s: f64,
}

const fn scale(form: Thoroughness) -> Scale {
    match form {
        Thoroughness::Quick => Scale { times: 5, step: 32, ceiling_s: 1.0, pause_s: 0.02 },
        Thoroughness::Standard => Scale { times: 50, step: 8, ceiling_s: 30.0, pause_s: 2.0 },
    }
}

/// Factor by which the burst rate is reduced when the generator cannot send it.
const RATE_REDUCTION: f64 = 0.9;

/// Repeated searches for the longest burst without loss.
#[derive(Default)]
pub(in crate::method) struct BackToBack {
    /// Packets of the longest burst without loss, and of the shortest with loss.
    low: u64,
    high: Option<u64>,
    /// Results of the repetitions, packets.
    lengths: Vec<f64>,
    /// Number of results at the longest burst.
    at_ceiling: usize,
    /// Reduced burst rate, if the generator could not send a higher one.
    slower_pps: Option<f64>,
}

impl BackToBack {
    /// Returns the burst rate in packets per second.
    fn rate(&self, context: &MethodContext) -> f64 {
        self.slower_pps.unwrap_or(context.settings.top_pps())
    }

    /// Returns the packets of the longest burst.
    fn ceiling(&self, context: &MethodContext) -> u64 {
        ((self.rate(context) * scale(context.settings.thoroughness).ceiling_s) as u64).max(FIRST_BURST)
    }

    /// Returns the packets of the next burst, or `None` once the longest burst without loss is known.
    fn burst(&self, ceiling: u64, step: u64) -> Option<u64> {
        match self.high {
            None if self.low >= ceiling => None,
            None => Some((self.low * 2).max(FIRST_BURST).min(ceiling)),
            Some(high) if high - self.low <= step => None,
            Some(high) => Some(self.low + (high - self.low) / 2),
        }
    }
}

impl Procedure for BackToBack {
    const NAME: &'static str = "back-to-back";
    const STANDARD: Option<&'static str> = Some("RFC 9004");
    const QUESTION: &'static str = "How long may a burst at line rate be, and so how large is the buffer?";
    const DURATION_S: (f64, f64) = (4.0, 1700.0);
    const PROPERTIES: Properties = Properties { relative_to_line_rate: true, ..DEFAULT_PROPERTIES };

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let (rate, Scale { times, step, .. }) = (self.rate(context), scale(context.settings.thoroughness));
        // a buffer never fills at a rate that is forwarded (RFC 9004 §4)
        if context.throughput_pps >= rate {
            return None;
        }
        let longest = self.ceiling(context);
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
        burst.map(|packets| TrialInput::constant(rate, packets as f64 / rate))
    }

    fn record(&mut self, context: &MethodContext, input: &TrialInput, output: TrialOutput) {
        let packets = (input.phases[0].load_pps * input.phases[0].duration_s).round() as u64;
        if output.trial.unsent != 0 {
            // starts over: bursts of different rates are not comparable
            let slower_pps = (self.rate(context) * RATE_REDUCTION).floor();
            *self = BackToBack { slower_pps: Some(slower_pps), ..BackToBack::default() };
        } else if output.trial.lost == 0 {
            self.low = self.low.max(packets);
        } else {
            self.high = Some(packets.max(self.low + 1));
        }
    }

    fn pause_s(form: Thoroughness) -> f64 {
        scale(form).pause_s
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let Scale { times, step, ceiling_s, .. } = scale(context.settings.thoroughness);
        let (rate, throughput) = (self.rate(context), context.throughput_pps);
        let deviations = &mut output.deviations;
        if self.slower_pps.is_some() {
            let top = context.settings.top_pps();
            deviations.push(format!(
                "bursts at {rate} packets/s, the highest rate the generator can send, where RFC 9004 §5 requires {top}"
            ));
            output.limited_by = LimitedBy::Generator;
        }
        if throughput >= rate {
            deviations.push(format!(
                "the throughput of {throughput} packets/s is not below the burst rate: no buffer fills, and RFC 9004 \
                 §4 has nothing to measure"
            ));
            return;
        }
        if context.settings.thoroughness == Thoroughness::Quick {
            let full = scale(Thoroughness::Standard);
            deviations.push(format!(
                "{times} repetitions in steps of {step} packets with bursts of up to {} where the standard form has \
                 {} in steps of {} with bursts of up to {} (RFC 2544 §26.4, RFC 9004 §5)",
                format_seconds(ceiling_s),
                full.times,
                full.step,
                format_seconds(full.ceiling_s)
            ));
        }
        if self.slower_pps.is_none() {
            push_top_load_deviation(context, deviations);
        }
        if self.at_ceiling != 0 {
            deviations.push(format!(
                "in {} repetitions the longest burst, {}, was forwarded without loss",
                self.at_ceiling,
                format_seconds(ceiling_s)
            ));
        }
        let Some(length) = Quantity::mean("burst length", "frames", &self.lengths) else { return };
        // RFC 9004 §5.4: subtract the packets that are forwarded during the burst
        let implied_s = length.value / rate;
        let corrected_s = implied_s * (1.0 - throughput / rate);
        output.quantities.push(length);
        output.quantities.push(Quantity::new("implied buffer time", "s", implied_s));
        output.quantities.push(Quantity::new("corrected buffer time", "s", corrected_s));
        output.quantities.push(Quantity::new("corrected buffer", "frames", corrected_s * rate));
    }
}
