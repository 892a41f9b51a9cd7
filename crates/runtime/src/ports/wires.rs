//! Wires: pairs of in-memory rings in place of ports, for a generator in this process.

use super::io::{PortDrop, Receive};
use dpdk::RxQueue;
use packet::Batch;

/// Wires in place of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wires {
    /// Packets of each wire in each direction.
    pub depth: u32,
    /// Wires per port, 1 or more, one for each generator core. Workers receive from all wires of a port; the n-th
    /// worker that sends to it sends into the n-th wire, and if there are more workers, all send into the first.
    pub per_port: usize,
}

/// The near ends of several wires in place of one port: packets are received from each in turn.
pub(crate) struct JoinedWires {
    queues: Vec<RxQueue>,
    /// Index of the queue that is polled first next time.
    first: usize,
}

impl JoinedWires {
    pub(crate) fn new(queues: Vec<RxQueue>) -> Self {
        JoinedWires { queues, first: 0 }
    }
}

impl Receive for JoinedWires {
    fn receive(&mut self, batch: &mut Batch) -> usize {
        let (mut received, count) = (0, self.queues.len());
        for _ in 0..count {
            if batch.is_full() {
                break;
            }
            received += self.queues[self.first].receive(batch);
            self.first = (self.first + 1) % count;
        }
        received
    }
    fn bytes(&self) -> u64 {
        self.queues.iter().map(RxQueue::bytes).sum()
    }
    fn for_each_drop(&self, each: &mut dyn FnMut(PortDrop, u64)) {
        each(PortDrop::TooLong, self.queues.iter().map(RxQueue::too_long).sum());
        each(PortDrop::RxUnusable, self.queues.iter().map(RxQueue::unusable).sum());
    }
}
