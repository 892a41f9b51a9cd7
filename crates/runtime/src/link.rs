//! What a worker receives from and sends to.

use graph::Counter;
use packet::Batch;

/// Somewhere packets come from.
pub trait Receive: Send {
    /// Adds what is there to the batch, up to its room; how many packets came.
    fn receive(&mut self, batch: &mut Batch) -> usize;

    /// Bytes received so far, without FCS; 0 where nobody counts them.
    fn bytes(&self) -> u64 {
        0
    }

    /// Names packets received so far and not added to a batch, with the reason.
    fn dropped(&self, _each: &mut dyn FnMut(&'static str, u64)) {}

    /// Whether the last [`receive`](Receive::receive) that brought nothing had nothing else to do either.
    fn idle(&self) -> bool {
        true
    }

    /// Whether nothing will ever come again.
    fn finished(&self) -> bool {
        false
    }

    /// Nothing more will be asked for but its counts.
    fn close(&mut self) {}
}

/// Somewhere packets go to.
pub trait Transmit: Send {
    /// Sends from the front of the batch what is accepted, and takes it out; how many.
    fn send(&mut self, batch: &mut Batch) -> usize;

    /// Bytes sent so far, without FCS; 0 where nobody counts them.
    fn bytes(&self) -> u64 {
        0
    }

    /// Why packets are refused when they are.
    fn refusal(&self) -> &'static str {
        "tx_full"
    }

    /// Nothing more will be sent.
    fn close(&mut self) {}

    /// Takes packets out, up to the batch's room, that were sent and stay on this core.
    fn take_kept(&mut self, _: &mut Batch) {}

    /// Called about once a millisecond, also while nothing is sent.
    fn tend(&mut self) {}
}

/// What one worker has received from, or sent to, one port.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LinkStats {
    /// Packets received, or accepted for sending.
    pub packets: Counter,
    /// Bytes of these, without FCS.
    pub bytes: Counter,
    /// Cycles spent on the batches that were timed.
    pub timed_cycles: Counter,
    /// Packets in the batches that were timed.
    pub timed_packets: Counter,
    /// Packets dropped at the port, for the reasons in `REASONS`.
    pub drops: [Counter; LinkStats::REASONS.len()],
}

impl LinkStats {
    /// Reasons for which packets are dropped at a port: it took no more; what it is written to failed; it came in several
    /// segments with no buffer to join them, or with lengths that contradict each other; it is longer than a buffer; it has another link type than its capture; the
    /// core that it belongs to has no room; the core of the next chain that it goes to has none.
    pub const REASONS: [&'static str; 7] =
        ["tx_full", "write_failed", "rx_unusable", "too_long", "other_link_type", "spread_full", "shuffle_full"];

    /// The count for a reason.
    pub fn count(&self, reason: &str) -> &Counter {
        let at = Self::REASONS.iter().position(|r| *r == reason);
        &self.drops[at.expect("ports drop for the reasons in REASONS")]
    }
}
