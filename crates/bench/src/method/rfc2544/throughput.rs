//! The throughput (RFC 2544 §26.1, RFC 9971, TST 009 §12.3), and latency below it.

use crate::anatomy::trace_interval;
use crate::method::accumulate::LatencyAccumulator;
use crate::method::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure, format_seconds};
use crate::method::properties::Properties;
use crate::method::{MethodOutput, Thoroughness};
use crate::search::SearchKind;
use crate::trial::{TrialInput, TrialOutput};
use report::{Latency, LatencyAnatomy};

/// Shares of the throughput at which latency is measured; the first stands for an idle DUT.
const SHARES: [f64; 5] = [0.0, 0.1, 0.5, 0.8, 0.9];
/// Shares of the quick form, as in NSDI'16 and OSDI'16.
const QUICK: [f64; 1] = [0.8];
/// Shares of the throughput at which probes are traced.
pub(crate) const TRACED_SHARES: [f64; 3] = [0.25, 0.5, 0.8];
/// Load of an idle DUT, packets per second.
const IDLE_PPS: f64 = 1000.0;
/// Duration of a trial of the quick form, seconds.
const QUICK_S: f64 = 0.5;

/// Latency trials after the search.
#[derive(Default)]
pub(in crate::method) struct Throughput {
    started: usize,
    latency: Vec<Latency>,
    anatomy: Vec<LatencyAnatomy>,
}

impl Procedure for Throughput {
    const NAME: &'static str = "throughput";
    const STANDARD: Option<&'static str> = Some("RFC 2544 §26.1");
    const QUESTION: &'static str =
        "How many packets per second does the DUT forward, and with which latency below that rate?";
    const DURATION_S: (f64, f64) = (2.0, 600.0);
    const PROPERTIES: Properties =
        Properties { is_throughput: true, reuses_throughput: false, counts_only: true, ..DEFAULT_PROPERTIES };

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let anatomy = context.settings.anatomy;
        let shares = if anatomy { &TRACED_SHARES[..] } else { context.settings.select(&QUICK[..], &SHARES[..]) };
        let share = *shares.get(self.started)?;
        self.started += 1;
        let idle = IDLE_PPS.min(context.load_at_share(0.1));
        let load_pps =
            if share == 0.0 { context.settings.limits.min_pps().max(idle) } else { context.load_at_share(share) };
        // the duration of final trials, unless it is too short for percentiles
        let duration_s = context.settings.select(QUICK_S, context.settings.goal.final_s().max(QUICK_S));
        let trace_one_in = anatomy.then(|| trace_interval(load_pps, duration_s));
        Some(TrialInput { vnfs: true, trace_one_in, ..TrialInput::constant(load_pps, duration_s) })
    }

    fn record(&mut self, context: &MethodContext, input: &TrialInput, output: TrialOutput) {
        let mut latencies = LatencyAccumulator::default();
        latencies.record(&output);
        let load_pps = input.phases[0].load_pps;
        self.latency.extend(latencies.entry(load_pps, context.throughput_pps));
        self.anatomy.extend(output.anatomy.map(|anatomy| anatomy.document(load_pps, context.throughput_pps)));
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let settings = &context.settings;
        let strict = output.goal.loss_ratio() == 0.0 && output.goal.exceed_ratio() == 0.0;
        output.method.standard = Some(match settings.search {
            SearchKind::Mlr if strict && output.goal.final_s() >= 60.0 => "RFC 2544 §26.1, RFC 9971".to_owned(),
            kind => kind.standard().to_owned(),
        });
        output.latency.clone_from(&self.latency);
        output.anatomy.clone_from(&self.anatomy);
        if settings.anatomy {
            output.deviations.push(
                "latency at 25, 50 and 80 % of the throughput while probes are traced where the standard form measures \
                 at 0, 10, 50, 80 and 90 % without"
                    .to_owned(),
            );
        } else if settings.thoroughness == Thoroughness::Quick {
            output.deviations.push(format!(
                "latency in one trial of {} at 80 % of the throughput where the standard form measures at 0, 10, 50, \
                 80 and 90 %",
                format_seconds(QUICK_S)
            ));
        }
    }
}
