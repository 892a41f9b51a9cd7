//! TCP connections of several trials at one load, as quantities of a result.

use super::MethodOutput;
use super::accumulate::percentile;
use crate::trial::{ConnectionsOutput, TrialOutput};
use report::Quantity;
use traffic::Delays;

/// Sums over trials.
#[derive(Default)]
pub(super) struct TcpConnections {
    seconds: f64,
    sum: Option<ConnectionsOutput>,
}

impl TcpConnections {
    pub(super) fn record(&mut self, output: &TrialOutput) {
        let Some(new) = &output.connections else { return };
        self.seconds += output.trial.duration_s;
        match &mut self.sum {
            Some(sum) => sum.add(new),
            None => self.sum = Some(new.clone()),
        }
    }

    /// Returns true if no trial had TCP connections.
    pub(super) fn is_empty(&self) -> bool {
        self.sum.is_none()
    }

    /// Adds rates, delays and failures to `output`.
    pub(super) fn report(&self, output: &mut MethodOutput) {
        let Some(sum) = self.sum.as_ref().filter(|_| self.seconds > 0.0) else { return };
        let counts = sum.document();
        let per_second = |name: &str, n: u64| Quantity::new(name, "per second", n as f64 / self.seconds);
        let quantities = &mut output.quantities;
        quantities.push(per_second("connections opened", counts.opened));
        quantities.push(per_second("connections completed", counts.completed));
        if counts.transactions != 0 {
            quantities.push(per_second("transactions", counts.transactions));
            let goodput_bps = 8.0 * counts.bytes_received as f64 / self.seconds;
            quantities.push(Quantity::new("goodput", "bps", goodput_bps));
        }
        quantities.push(Quantity::new("most concurrent connections", "connections", counts.most_open as f64));
        let delays: [(&str, &Delays); 3] = [
            ("connection setup time", &sum.setup),
            ("time to first byte", &sum.first_byte),
            ("transaction time", &sum.transaction),
        ];
        for (name, delays) in delays {
            for (suffix, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
                let value = percentile(delays, share);
                quantities.extend(value.map(|ns| Quantity::new(&format!("{name} {suffix}"), "ns", ns)));
            }
        }
        for (cause, n) in counts.failed.causes().into_iter().filter(|(_, n)| *n != 0) {
            quantities.push(Quantity::new(&format!("failed, {cause}"), "connections", n as f64));
        }
        if counts.retransmitted != 0 {
            quantities.push(Quantity::new("retransmitted", "segments", counts.retransmitted as f64));
        }
        if sum.exhausted {
            output.deviations.push(
                "connections were not opened because all pairs of client address and port were in use; raise --flows, or \
                 widen the addresses of [traffic]"
                    .to_owned(),
            );
        }
        if counts.no_buffer != 0 {
            let frames = counts.no_buffer;
            output.deviations.push(format!("{frames} frames were not sent for lack of a packet buffer"));
        }
    }
}
