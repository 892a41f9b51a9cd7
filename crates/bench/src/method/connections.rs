//! Connections per second: the throughput counted in connections.

use super::MethodOutput;
use super::procedure::{DEFAULT_PROPERTIES, MethodContext, Procedure};
use super::properties::{Properties, RequiredTraffic};
use crate::trial::{TrialInput, TrialOutput};
use report::Quantity;

/// The search alone, without further trials.
#[derive(Default)]
pub(super) struct Connections;

impl Procedure for Connections {
    const NAME: &'static str = "connections";
    const STANDARD: Option<&'static str> = None;
    const QUESTION: &'static str = "How many connections per second are forwarded?";
    const DURATION_S: (f64, f64) = (2.0, 150.0);
    const PROPERTIES: Properties =
        Properties { traffic: RequiredTraffic::Connections, reuses_throughput: false, ..DEFAULT_PROPERTIES };

    fn next(&mut self, _: &MethodContext) -> Option<TrialInput> {
        None
    }

    fn record(&mut self, _: &MethodContext, _: &TrialInput, _: TrialOutput) {}

    fn report(&self, context: &MethodContext, output: &mut MethodOutput) {
        let each = context.settings.packets_per_connection;
        if context.throughput_pps > 0.0 {
            let quantities = &mut output.quantities;
            quantities.push(Quantity::new("connections", "per second", context.throughput_pps / each));
            let upper = output.summary.upper_pps.map(|upper| upper / each);
            quantities.extend(upper.map(|upper| Quantity::new("connections, upper bound", "per second", upper)));
            quantities.push(Quantity::new("packets per connection", "frames", each));
        }
        output.deviations.push(format!(
            "connections of {each} packets at the pace of the load: no endpoint waits for replies or retransmits"
        ));
    }
}
