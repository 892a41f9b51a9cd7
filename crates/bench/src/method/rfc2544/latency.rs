//! Latency at the throughput: of tagged packets (RFC 2544 §26.2), typical and worst-case (RFC 8219 §7.2).

use crate::method::MethodOutput;
use crate::method::Thoroughness;
use crate::method::accumulate::LatencyAccumulator;
use crate::method::procedure::{MethodContext, Procedure, format_seconds};
use crate::trial::{TrialInput, TrialOutput};
use report::Quantity;

/// Trials of the standard form: number, duration and time of the tagged packet, seconds (RFC 2544 §26.2).
const STANDARD: (usize, f64, f64) = (20, 120.0, 60.0);
/// Fewest samples of a trial of which typical and worst-case latency are computed (RFC 8219 §7.2).
const MIN_SAMPLES: u64 = 500;
/// Trials of the quick form.
const QUICK: (usize, f64, f64) = (5, 0.5, 0.25);

#[derive(Default)]
pub(in crate::method) struct LatencyAtThroughput {
    started: usize,
    tags_ns: Vec<f64>,
    lost: u64,
    /// Median and 99.9th percentile of each trial.
    typical_ns: Vec<f64>,
    worst_case_ns: Vec<f64>,
    latencies: LatencyAccumulator,
}

impl Procedure for LatencyAtThroughput {
    const NAME: &'static str = "latency";
    const STANDARD: Option<&'static str> = Some("RFC 2544 §26.2, RFC 8219 §7.2");
    const QUESTION: &'static str = "What is the latency of a packet at the throughput?";
    const DURATION_S: (f64, f64) = (5.0, 2800.0);

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let (times, duration_s, tag_s) = context.settings.select(QUICK, STANDARD);
        (self.started < times).then(|| {
            self.started += 1;
            let load = TrialInput::constant(context.load_at_share(1.0), duration_s);
            TrialInput { tagged_at_s: Some(tag_s), vnfs: true, ..load }
        })
    }

    fn record(&mut self, _: &MethodContext, _: &TrialInput, output: TrialOutput) {
        match output.tagged_latency_ns {
            Some(ns) => self.tags_ns.push(ns),
            None => self.lost += 1,
        }
        if let Some(delays) = output.delays.as_ref().filter(|delays| delays.count() >= MIN_SAMPLES) {
            self.typical_ns.extend(delays.quantile_ns(0.5).map(|ns| ns as f64));
            self.worst_case_ns.extend(delays.quantile_ns(0.999).map(|ns| ns as f64));
        }
        self.latencies.record(&output);
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        output.quantities.extend(Quantity::mean("latency", "ns", &self.tags_ns));
        if self.lost != 0 {
            output.quantities.push(Quantity::new("tagged packets lost", "frames", self.lost as f64));
            output.deviations.push(format!("{} tagged packets were lost; the mean does not include them", self.lost));
        }
        output.quantities.extend(Quantity::median("typical latency", "ns", &self.typical_ns));
        output.quantities.extend(Quantity::median("worst-case latency", "ns", &self.worst_case_ns));
        output.latency.extend(self.latencies.entry(context.load_at_share(1.0), context.throughput_pps));
        if context.settings.thoroughness == Thoroughness::Quick {
            let ((times, length, tag), (most, long, middle)) = (QUICK, STANDARD);
            output.deviations.push(format!(
                "{times} trials of {} with the tagged packet at {} where RFC 2544 §26.2 requires {most} of {} with \
                 it at {}",
                format_seconds(length),
                format_seconds(tag),
                format_seconds(long),
                format_seconds(middle)
            ));
        }
        if !self.typical_ns.is_empty() {
            output.deviations.push(
                "typical and worst-case latency are of packets sampled during whole trials where RFC 8219 §7.2 samples \
                 the second half"
                    .to_owned(),
            );
        }
        output.deviations.push(
            "timestamps are taken in software before the port that sends and after the port that receives, which is \
             neither latency of RFC 1242 §3.8"
                .to_owned(),
        );
    }
}
