//! What of a trial becomes part of the findings.

use crate::bed::Seen;
use report::{Histogram, Latency, Quantity, hdr};
use traffic::Delays;

/// The delay that a share of all does not exceed, nanoseconds, if at least ten lie beyond it: of fewer it says little.
pub(crate) fn percentile(delays: &Delays, share: f64) -> Option<f64> {
    (delays.count() as f64 * (1.0 - share) >= 10.0 - 1e-6)
        .then(|| delays.quantile_ns(share))
        .flatten()
        .map(|ns| ns as f64)
}

/// Latencies of several trials at one load.
#[derive(Clone, Default)]
pub(super) struct Latencies {
    all: Option<Histogram<u64>>,
    lost: u64,
    machine: bool,
}

impl Latencies {
    pub(super) fn take(&mut self, seen: &Seen) {
        self.lost += seen.trial.lost;
        self.machine |= seen.trial.machine;
        let Some(delays) = &seen.delays else { return };
        match &mut self.all {
            // Both have the bounds of `Delays`.
            Some(all) => all.add(delays.histogram()).unwrap_or_default(),
            None => self.all = Some(delays.histogram().clone()),
        }
    }

    /// As a result has it; none if nothing came back.
    pub(super) fn entry(&self, load_pps: f64, throughput_pps: f64) -> Option<Latency> {
        let all = self.all.as_ref().filter(|all| !all.is_empty())?;
        let at = |share: f64| all.value_at_quantile(share) as f64;
        Some(Latency {
            load_pps,
            share_of_throughput: (throughput_pps > 0.0).then(|| load_pps / throughput_pps),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: all.max() as f64,
            samples: all.len(),
            lost: self.lost,
            machine: self.machine,
            latency_hdr: hdr::encode(all).ok(),
        })
    }
}

/// A quantity with another name.
pub(super) fn named(name: String, quantity: Option<Quantity>) -> Option<Quantity> {
    quantity.map(|quantity| Quantity { name, ..quantity })
}
