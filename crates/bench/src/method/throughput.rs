//! The throughput (RFC 2544 §26.1, RFC 9971, TST 009 §12.3), and latency below it.

use super::course::{Known, Plan, time};
use super::measured::Latencies;
use super::{Findings, Form};
use crate::bed::{Ask, Seen};
use crate::search::SearchKind;
use report::Latency;

/// Shares of the throughput at which latency is measured; the first stands for next to nothing.
const SHARES: [f64; 5] = [0.0, 0.1, 0.5, 0.8, 0.9];
/// That of the quick form, as in NSDI'16 and OSDI'16.
const QUICK: [f64; 1] = [0.8];
/// Load of an idle device, packets a second.
const IDLE_PPS: f64 = 1000.0;
/// Length of a trial of the quick form, seconds.
const QUICK_S: f64 = 0.5;

/// Latency after the search.
#[derive(Default)]
pub(super) struct Throughput {
    asked: usize,
    latency: Vec<Latency>,
}

impl Plan for Throughput {
    const NAME: &'static str = "throughput";
    const STANDARD: Option<&'static str> = Some("RFC 2544 §26.1");

    fn next(&mut self, known: &Known) -> Option<Ask> {
        let shares = known.settings.pick(&QUICK[..], &SHARES[..]);
        let share = *shares.get(self.asked)?;
        self.asked += 1;
        let idle = IDLE_PPS.min(known.load(0.1));
        let load_pps = if share == 0.0 { known.settings.limits.min_pps().max(idle) } else { known.load(share) };
        // Final trials of the goal, unless they are so short that percentiles say nothing.
        let duration_s = known.settings.pick(QUICK_S, known.settings.goal.final_s().max(QUICK_S));
        Some(Ask::load(load_pps, duration_s))
    }

    fn tell(&mut self, known: &Known, ask: &Ask, seen: Seen) {
        let mut latencies = Latencies::default();
        latencies.take(&seen);
        self.latency.extend(latencies.entry(ask.phases[0].load_pps, known.throughput_pps));
    }

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let settings = &known.settings;
        let strict = findings.goal.loss_ratio() == 0.0 && findings.goal.exceed_ratio() == 0.0;
        findings.method.standard = Some(match settings.search {
            SearchKind::Mlr if strict && findings.goal.final_s() >= 60.0 => "RFC 2544 §26.1, RFC 9971".to_owned(),
            kind => kind.standard().to_owned(),
        });
        findings.latency.clone_from(&self.latency);
        if settings.form == Form::Quick {
            findings.deviations.push(format!(
                "latency in one trial of {} at 80 % of the throughput where the standard form has 0, 10, 50, 80 and 90 %",
                time(QUICK_S)
            ));
        }
    }
}
