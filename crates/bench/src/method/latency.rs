//! Latency at the throughput (RFC 2544 §26.2).

use super::Findings;
use super::Form;
use super::course::{Known, Plan, time};
use super::measured::Latencies;
use crate::bed::{Ask, Seen};
use report::Quantity;

/// Trials of the standard form: how many, how long, and when the tagged packet is due, seconds (RFC 2544 §26.2).
const STANDARD: (usize, f64, f64) = (20, 120.0, 60.0);
/// And of the quick form.
const QUICK: (usize, f64, f64) = (5, 0.5, 0.25);

#[derive(Default)]
pub(super) struct AtThroughput {
    asked: usize,
    tags_ns: Vec<f64>,
    lost: u64,
    latencies: Latencies,
}

impl Plan for AtThroughput {
    const NAME: &'static str = "latency";
    const STANDARD: Option<&'static str> = Some("RFC 2544 §26.2");

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let (times, duration_s, tag_s) = known.settings.pick(QUICK, STANDARD);
        (self.asked < times).then(|| {
            self.asked += 1;
            Ask { tag_s: Some(tag_s), ..Ask::load(known.load(1.0), duration_s) }
        })
    }

    fn tell(&mut self, _: &Known, _: &Ask, seen: Seen) {
        match seen.tag_ns {
            Some(ns) => self.tags_ns.push(ns),
            None => self.lost += 1,
        }
        self.latencies.take(&seen);
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        findings.quantities.extend(Quantity::mean("latency", "ns", &self.tags_ns));
        if self.lost != 0 {
            findings.quantities.push(Quantity::new("tagged packets lost", "frames", self.lost as f64));
            findings
                .deviations
                .push(format!("{} tagged packets did not come back; the mean is without them", self.lost));
        }
        findings.latency.extend(self.latencies.entry(known.load(1.0), known.throughput_pps));
        if known.settings.form == Form::Quick {
            let ((times, length, tag), (most, long, middle)) = (QUICK, STANDARD);
            findings.deviations.push(format!(
                "{times} trials of {} with the tagged packet at {} where RFC 2544 §26.2 asks for {most} of {} with it at {}",
                time(length),
                time(tag),
                time(long),
                time(middle)
            ));
        }
        findings.deviations.push(
            "time stamps are taken by software before the generator's port and behind the receiver's, which is neither of \
             the latencies of RFC 1242 §3.8"
                .to_owned(),
        );
    }
}
