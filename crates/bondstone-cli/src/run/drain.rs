//! The end of a run that forwards queued and held packets first.

use control::{DRAIN_MAX, Refusal, Reply};
use runtime::{Summary, Totals};
use sandbox::SandboxedEngine;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// A run that receives no more packets from ports.
pub(super) struct Drain {
    deadline: Instant,
    /// Counts at the last check.
    last: Option<Totals>,
    /// Receives the final summary.
    result: Sender<Result<Reply, Refusal>>,
}

impl Drain {
    /// Closes the ports; packets that are queued or held are forwarded for at most `seconds`.
    pub(super) fn start(chains: &SandboxedEngine, seconds: u64, result: Sender<Result<Reply, Refusal>>) -> Drain {
        chains.engine().close_inputs();
        Drain { deadline: Instant::now() + Duration::from_secs(seconds).min(DRAIN_MAX), last: None, result }
    }

    /// Returns true if no packet is left, in this check and in the one before, or the time is over.
    pub(super) fn is_over(&mut self, chains: &SandboxedEngine) -> bool {
        let now = chains.request_snapshot().totals;
        let left = (now.received + now.created).saturating_sub(now.sent + now.dropped);
        let before = self.last.replace(now);
        left == 0 && before == Some(now) || Instant::now() >= self.deadline
    }

    /// Sends the final summary.
    pub(super) fn end(self, summary: &Summary) {
        let result = serde_json::to_value(summary).map(Reply::from).map_err(|e| Refusal::new(e.to_string()));
        // ignore errors: the client is gone
        let _ = self.result.send(result);
    }
}
