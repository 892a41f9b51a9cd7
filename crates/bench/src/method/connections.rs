//! Connections per second: the throughput counted in connections.

use super::accumulate::LatencyAccumulator;
use super::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure, format_seconds};
use super::properties::{Properties, RequiredTraffic};
use super::tcp_connections::TcpConnections;
use super::{MethodOutput, Thoroughness};
use crate::search::Outcome;
use crate::trial::{TrialInput, TrialOutput};
use report::Quantity;

/// Duration of the trial at the throughput in the quick and the standard form, seconds (sustain phase, RFC 9411 §4.3.4).
const DURATION_S: (f64, f64) = (1.0, 300.0);

/// A search, and a trial at the throughput that it finds.
#[derive(Default)]
pub(super) struct Connections {
    is_started: bool,
    latencies: LatencyAccumulator,
    connections: TcpConnections,
    /// Loss ratio of the trial at the throughput, if it does not meet the goal.
    excess_loss: Option<f64>,
}

impl Procedure for Connections {
    const NAME: &'static str = "connections";
    const STANDARD: Option<&'static str> = Some("RFC 9411 §7.2");
    const QUESTION: &'static str = "How many connections per second are forwarded?";
    const DURATION_S: (f64, f64) = (3.0, 450.0);
    const PROPERTIES: Properties =
        Properties { traffic: RequiredTraffic::Connections, reuses_throughput: false, ..DEFAULT_PROPERTIES };

    fn next(&mut self, context: &MethodContext) -> Option<TrialInput> {
        let duration_s = context.settings.select(DURATION_S.0, DURATION_S.1);
        let is_first = !std::mem::replace(&mut self.is_started, true);
        is_first.then(|| TrialInput::constant(context.load_at_share(1.0), duration_s))
    }

    fn record(&mut self, context: &MethodContext, _: &TrialInput, output: TrialOutput) {
        let (outcome, goal) = (Outcome::of(&output.trial), &context.settings.goal);
        let exceeds = outcome.counts(goal) && outcome.is_high_loss(goal);
        self.excess_loss = exceeds.then(|| output.trial.loss_ratio());
        self.latencies.record(&output);
        self.connections.record(&output);
    }

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let each = context.settings.packets_per_connection;
        if context.throughput_pps > 0.0 {
            let quantities = &mut output.quantities;
            quantities.push(Quantity::new("connections", "per second", context.throughput_pps / each));
            let upper = output.summary.upper_pps.map(|upper| upper / each);
            quantities.extend(upper.map(|upper| Quantity::new("connections, upper bound", "per second", upper)));
            quantities.push(Quantity::new("packets per connection", "frames", each));
        }
        self.connections.report(output);
        if let Some(ratio) = self.excess_loss {
            output.deviations.push(format!(
                "{:.4} % of the connections of the longer trial at the throughput failed or were not opened; tables of the DUT \
                 that fill up show only then",
                100.0 * ratio
            ));
        }
        output.latency.extend(self.latencies.entry(context.load_at_share(1.0), context.throughput_pps));
        if self.connections.is_empty() {
            output.deviations.push(format!(
                "connections of {each} packets at the pace of the load: no endpoint waits for replies or retransmits"
            ));
        }
        output.deviations.push("the load starts at once where RFC 9411 §4.3.4 ramps it up".to_owned());
        if context.settings.thoroughness == Thoroughness::Quick {
            let (quick, standard) = (format_seconds(DURATION_S.0), format_seconds(DURATION_S.1));
            output.deviations.push(format!("a load of {quick} where RFC 9411 §4.3.4 sustains it for {standard}"));
        }
    }
}
