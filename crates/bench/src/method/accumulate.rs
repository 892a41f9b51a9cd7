//! Accumulation of trial outputs into results.

use crate::trial::TrialOutput;
use report::{Histogram, Latency, Quantity, Vnf, hdr};
use traffic::Delays;
use traffic::receiver::Group;

/// Returns a percentile of the delays in nanoseconds, if at least ten samples lie beyond it.
pub(crate) fn percentile(delays: &Delays, share: f64) -> Option<f64> {
    (delays.count() as f64 * (1.0 - share) >= 10.0 - 1e-6)
        .then(|| delays.quantile_ns(share))
        .flatten()
        .map(|ns| ns as f64)
}

/// Latencies of several trials at one load.
#[derive(Clone, Default)]
pub(super) struct LatencyAccumulator {
    histogram: Option<Histogram<u64>>,
    lost: u64,
    host_interference: bool,
    /// Seconds of all trials, once for each direction.
    seconds: f64,
    vnfs: Vec<Group>,
}

impl LatencyAccumulator {
    pub(super) fn record(&mut self, output: &TrialOutput) {
        self.lost += output.trial.lost;
        self.host_interference |= output.trial.host_interference;
        self.seconds += output.trial.duration_s * f64::from(output.trial.directions.max(1));
        self.vnfs.resize(output.vnfs.len().max(self.vnfs.len()), Group::default());
        self.vnfs.iter_mut().zip(&output.vnfs).for_each(|(sum, vnf)| sum.add(vnf));
        let Some(delays) = &output.delays else { return };
        match &mut self.histogram {
            // both have the bounds of `Delays`
            Some(all) => all.add(delays.histogram()).unwrap_or_default(),
            None => self.histogram = Some(delays.histogram().clone()),
        }
    }

    /// Returns the entry of a result document, or `None` without samples.
    pub(super) fn entry(&self, load_pps: f64, throughput_pps: f64) -> Option<Latency> {
        let all = self.histogram.as_ref().filter(|all| !all.is_empty())?;
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
            host_interference: self.host_interference,
            latency_hdr: hdr::encode(all).ok(),
            vnfs: self.vnfs.iter().map(|vnf| self.vnf(vnf)).collect(),
        })
    }

    fn vnf(&self, Group { received, latency, ipdv_sum_ns, ipdv_count, .. }: &Group) -> Vnf {
        Vnf {
            received_pps: *received as f64 / self.seconds,
            p50_ns: latency.quantile_ns(0.5).map(|ns| ns as f64),
            p99_ns: percentile(latency, 0.99),
            p999_ns: percentile(latency, 0.999),
            jitter_ns: (*ipdv_count != 0).then(|| *ipdv_sum_ns as f64 / *ipdv_count as f64),
            cycles_per_packet: None,
        }
    }
}

/// Replaces the name of a quantity.
pub(super) fn rename(name: String, quantity: Option<Quantity>) -> Option<Quantity> {
    quantity.map(|quantity| Quantity { name, ..quantity })
}
