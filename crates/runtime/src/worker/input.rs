//! Inputs of a worker.

use crate::ports::io::{LinkStats, Receive, RxPort};
use graph::Target;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A port that a worker polls.
pub struct Input {
    /// The port.
    pub rx: RxPort,
    /// The position in the graph at which received packets enter.
    pub entry: Target,
    /// Counts of received packets.
    pub stats: Arc<LinkStats>,
    /// True if the source can wait: the worker then waits for a full output instead of dropping packets as `tx_full`.
    pub backpressure: bool,
    /// Treatment of the input after a stop.
    pub drain: DrainPolicy,
}

/// The end of polling of an input after its worker was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainPolicy {
    /// The input is not polled after the stop; packets arrive as long as it is open.
    Stop,
    /// The input is polled until it is quiet: a ring that stays in the process and in which packets may circulate.
    UntilQuiet,
    /// The input is polled until its sender, such as another core, has finished.
    UntilFinished,
    /// The input is polled until the engine releases the worker.
    UntilReleased {
        /// True if packets arrive as long as the input is open.
        endless: bool,
    },
}

impl DrainPolicy {
    /// Returns true if packets may arrive as long as the input is open.
    pub(super) fn is_endless(self) -> bool {
        matches!(self, DrainPolicy::Stop | DrainPolicy::UntilReleased { endless: true })
    }
}

impl Input {
    pub(super) fn rx_interrupt(&self) -> Option<BorrowedFd<'_>> {
        match &self.rx {
            RxPort::Device(queue) => queue.rx_interrupt(),
            RxPort::Other(source) => source.rx_interrupt(),
        }
    }

    pub(super) fn enable_rx_interrupt(&mut self, on: bool) {
        match &mut self.rx {
            RxPort::Device(queue) => queue.enable_rx_interrupt(on),
            RxPort::Other(source) => source.enable_rx_interrupt(on),
        }
    }

    /// Updates the number of packets that wait in the queue.
    pub(super) fn update_queue(&mut self) {
        if let Some(queue) = self.rx.queue() {
            self.stats.queued.set(queue.used);
            self.stats.queue_size.set(queue.capacity);
        }
    }

    /// Updates the counts that the port keeps itself.
    pub(crate) fn update_counts(&mut self) {
        self.stats.bytes.add(self.rx.bytes() - self.stats.bytes.get());
        let stats = &self.stats;
        self.rx.for_each_drop(&mut |reason, n| {
            // counted as received and as dropped
            let new = n - stats.count(reason).get();
            stats.count(reason).add(new);
            stats.packets.add(new);
        });
    }
}
