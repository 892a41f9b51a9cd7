//! Delay variation: PDV and IPDV (RFC 5481, RFC 8219 §7.3), and RTP interarrival jitter (RFC 3550 §6.4.1).

use super::accumulate::{LatencyAccumulator, percentile, rename};
use super::procedure::{MethodContext, Procedure, format_seconds};
use super::{MethodOutput, Thoroughness};
use crate::trial::{TrialInput, TrialOutput};
use report::Quantity;

/// Loads as shares of the throughput.
const SHARES: [f64; 4] = [0.1, 0.5, 0.8, 0.9];
/// Repetitions and seconds, quick and standard (RFC 8219 §7.3: at least 60 s, 20 times).
const FORMS: ((usize, f64), (usize, f64)) = ((1, 0.5), (20, 60.0));
/// Percentiles and their names.
const PERCENTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];

/// Results at one load, one value per trial.
#[derive(Clone, Default)]
struct AtLoad {
    latencies: LatencyAccumulator,
    /// `D(p) − D(min)` (RFC 5481 §4.2); p99.9 is the PDV of RFC 8219 §7.3.1.
    pdv: [Vec<f64>; 3],
    /// Absolute values of `D(i) − D(i−1)` (RFC 5481 §4.1).
    ipdv: [Vec<f64>; 3],
    ipdv_max: Vec<f64>,
    rising: Vec<f64>,
    jitter: Vec<f64>,
    jitter_max: Vec<f64>,
}

#[derive(Default)]
pub(super) struct DelayVariation {
    started: usize,
    recorded: usize,
    at: [AtLoad; 4],
    without_variation: usize,
}

impl Procedure for DelayVariation {
    const NAME: &'static str = "delay-variation";
    const STANDARD: Option<&'static str> = Some("RFC 5481, RFC 8219 §7.3, RFC 3550 §6.4.1");
    const QUESTION: &'static str = "How much does the latency of packets vary?";
    const DURATION_S: (f64, f64) = (4.0, 5600.0);

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let (times, duration_s) = context.settings.select(FORMS.0, FORMS.1);
        (self.started < times * SHARES.len()).then(|| {
            let share = SHARES[self.started % SHARES.len()];
            self.started += 1;
            TrialInput { delay_variation: true, ..TrialInput::constant(context.load_at_share(share), duration_s) }
        })
    }

    fn record(&mut self, _: &MethodContext, _: &TrialInput, output: TrialOutput) {
        let at = &mut self.at[self.recorded % SHARES.len()];
        self.recorded += 1;
        at.latencies.record(&output);
        let (Some(delays), Some(variation)) = (&output.delays, &output.delay_variation) else {
            self.without_variation += 1;
            return;
        };
        let least = delays.min_ns().unwrap_or(0) as f64;
        for (i, (share, _)) in PERCENTILES.iter().enumerate() {
            at.pdv[i].extend(percentile(delays, *share).map(|ns| ns - least));
            at.ipdv[i].extend(percentile(&variation.ipdv, *share));
        }
        at.ipdv_max.extend(variation.ipdv.max_ns().map(|ns| ns as f64));
        let pairs = variation.ipdv.count();
        at.rising.extend((pairs != 0).then(|| variation.rising as f64 / pairs as f64));
        at.jitter.push(variation.rfc3550_ns);
        at.jitter_max.push(variation.rfc3550_max_ns);
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let mut too_few = false;
        for (at, share) in self.at.iter().zip(SHARES) {
            let percent = (share * 100.0).round();
            let mut add = |what: &str, unit: &str, values: &[f64]| {
                let quantity = Quantity::median("", unit, values);
                output.quantities.extend(rename(format!("{what} at {percent} %"), quantity));
            };
            for (i, (_, name)) in PERCENTILES.iter().enumerate() {
                add(&format!("pdv {name}"), "ns", &at.pdv[i]);
            }
            for (i, (_, name)) in PERCENTILES.iter().enumerate() {
                add(&format!("ipdv {name}"), "ns", &at.ipdv[i]);
            }
            add("ipdv max", "ns", &at.ipdv_max);
            add("ipdv rising", "ratio", &at.rising);
            add("jitter", "ns", &at.jitter);
            add("jitter max", "ns", &at.jitter_max);
            too_few |= at.jitter.len() > at.pdv[2].len();
            output.latency.extend(at.latencies.entry(context.load_at_share(share), context.throughput_pps));
        }
        let ((times, length), (most, long)) = FORMS;
        let deviations = &mut output.deviations;
        if context.settings.thoroughness == Thoroughness::Quick {
            deviations.push(format!(
                "{times} trial of {} at each load where RFC 8219 §7.3 requires {most} of {}",
                format_seconds(length),
                format_seconds(long)
            ));
        }
        if too_few {
            deviations.push("percentiles with fewer than 10 packets beyond them are omitted".to_owned());
        }
        if self.without_variation != 0 {
            deviations.push(format!("{} trials have no delay variation", self.without_variation));
        }
    }
}
