//! Outputs of a worker.

use crate::ports::io::{LinkStats, Transmit, TxPort};
use graph::Target;
use std::sync::Arc;

/// A port that a worker sends to.
pub struct Output {
    /// The port.
    pub tx: TxPort,
    /// Counts of sent packets.
    pub stats: Arc<LinkStats>,
    /// Value of the packet count when the port last accepted nothing for as long as backpressure lasts.
    pub(super) gave_up: Option<u64>,
    /// True if the same worker empties the port, so that waiting for room would never end.
    pub(crate) self_consumed: bool,
    /// True if the worker yields its CPU once before it drops packets: the receiver may be waiting for this CPU.
    pub(crate) yields_when_full: bool,
    /// Entry of packets that stay on this core.
    pub(crate) local: Option<LocalEntry>,
}

/// The part of a link between chains that stays on its core.
pub(crate) struct LocalEntry {
    /// The position in the graph at which packets enter again.
    pub(crate) entry: Target,
    /// Counts of packets that entered.
    pub(crate) stats: Arc<LinkStats>,
}

impl Output {
    /// Creates an output without any counts.
    pub fn new(tx: TxPort) -> Self {
        Output { tx, stats: Arc::default(), gave_up: None, self_consumed: false, yields_when_full: false, local: None }
    }

    /// Returns the counts of packets that stay on this core.
    pub(crate) fn local_stats(&self) -> Option<Arc<LinkStats>> {
        Some(self.local.as_ref()?.stats.clone())
    }

    /// Updates the counts that the port keeps itself.
    pub(super) fn update_counts(&mut self) {
        self.stats.bytes.add(self.tx.bytes() - self.stats.bytes.get());
    }
}
