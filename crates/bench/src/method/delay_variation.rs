//! How latency varies: PDV and IPDV (RFC 5481, RFC 8219 §7.3), and the jitter of RTP (RFC 3550 §6.4.1).

use super::course::{Known, Plan, time};
use super::measured::{Latencies, named, percentile};
use super::{Findings, Form};
use crate::bed::{Ask, Seen};
use report::Quantity;

/// Shares of the throughput.
const SHARES: [f64; 4] = [0.1, 0.5, 0.8, 0.9];
/// Repetitions and seconds, quick and standard (RFC 8219 §7.3: at least 60 s, 20 times).
const FORMS: ((usize, f64), (usize, f64)) = ((1, 0.5), (20, 60.0));
/// Percentiles and their names.
const PERCENTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];

/// What was seen at a load, a value for each trial.
#[derive(Clone, Default)]
struct At {
    latencies: Latencies,
    /// `D(p) − D(min)` (RFC 5481 §4.2); that of p99.9 is the PDV of RFC 8219 §7.3.1.
    pdv: [Vec<f64>; 3],
    /// Amounts of `D(i) − D(i−1)` (RFC 5481 §4.1).
    ipdv: [Vec<f64>; 3],
    ipdv_max: Vec<f64>,
    rising: Vec<f64>,
    jitter: Vec<f64>,
    jitter_max: Vec<f64>,
}

#[derive(Default)]
pub(super) struct DelayVariation {
    asked: usize,
    told: usize,
    at: [At; 4],
    untold: usize,
}

impl Plan for DelayVariation {
    const NAME: &'static str = "delay-variation";
    const STANDARD: Option<&'static str> = Some("RFC 5481, RFC 8219 §7.3, RFC 3550 §6.4.1");

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let (times, duration_s) = known.settings.pick(FORMS.0, FORMS.1);
        (self.asked < times * SHARES.len()).then(|| {
            let share = SHARES[self.asked % SHARES.len()];
            self.asked += 1;
            Ask { variation: true, ..Ask::load(known.load(share), duration_s) }
        })
    }

    fn tell(&mut self, _: &Known, _: &Ask, seen: Seen) {
        let at = &mut self.at[self.told % SHARES.len()];
        self.told += 1;
        at.latencies.take(&seen);
        let (Some(delays), Some(variation)) = (&seen.delays, &seen.variation) else {
            self.untold += 1;
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

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let mut scarce = false;
        for (at, share) in self.at.iter().zip(SHARES) {
            let percent = (share * 100.0).round();
            let mut say = |what: &str, unit: &str, values: &[f64]| {
                let quantity = Quantity::median("", unit, values);
                findings.quantities.extend(named(format!("{what} at {percent} %"), quantity));
            };
            for (i, (_, name)) in PERCENTILES.iter().enumerate() {
                say(&format!("pdv {name}"), "ns", &at.pdv[i]);
            }
            for (i, (_, name)) in PERCENTILES.iter().enumerate() {
                say(&format!("ipdv {name}"), "ns", &at.ipdv[i]);
            }
            say("ipdv max", "ns", &at.ipdv_max);
            say("ipdv rising", "ratio", &at.rising);
            say("jitter", "ns", &at.jitter);
            say("jitter max", "ns", &at.jitter_max);
            scarce |= at.jitter.len() > at.pdv[2].len();
            findings.latency.extend(at.latencies.entry(known.load(share), known.throughput_pps));
        }
        let ((times, length), (most, long)) = FORMS;
        let says = &mut findings.deviations;
        if known.settings.form == Form::Quick {
            says.push(format!(
                "{times} trial of {} at each load where RFC 8219 §7.3 asks for {most} of {}",
                time(length),
                time(long)
            ));
        }
        if scarce {
            says.push("percentiles with fewer than 10 packets beyond them are left out".to_owned());
        }
        if self.untold != 0 {
            says.push(format!("{} trials did not tell how delays varied", self.untold));
        }
    }
}
