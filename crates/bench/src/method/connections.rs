//! Connections a second: the throughput, counted in connections.

use super::Findings;
use super::course::{Known, Plan};
use crate::bed::{Ask, Seen};
use report::Quantity;

/// Nothing after the search.
#[derive(Default)]
pub(super) struct Connections;

impl Plan for Connections {
    const NAME: &'static str = "connections";
    const STANDARD: Option<&'static str> = None;

    fn next(&mut self, _: &Known) -> Option<Ask> {
        None
    }

    fn tell(&mut self, _: &Known, _: &Ask, _: Seen) {}

    fn sum_up(&self, known: &Known, findings: &mut Findings) {
        let each = known.settings.packets_per_connection;
        if known.throughput_pps > 0.0 {
            let quantities = &mut findings.quantities;
            quantities.push(Quantity::new("connections", "per second", known.throughput_pps / each));
            let upper = findings.summary.upper_pps.map(|upper| upper / each);
            quantities.extend(upper.map(|upper| Quantity::new("connections, upper bound", "per second", upper)));
            quantities.push(Quantity::new("packets of a connection", "frames", each));
        }
        findings.deviations.push(format!(
            "connections of {each} packets at the load's pace whatever comes back: no host waits for an answer or sends \
             again what is lost"
        ));
    }
}
