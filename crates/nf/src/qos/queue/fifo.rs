//! First-in-first-out queues with the time of arrival of each packet.

use super::DropReason;
use std::collections::VecDeque;

/// Operations on packets that queues need.
pub(in crate::qos) trait Host {
    /// Storage of packets, first in, first out.
    type Queue: Default;
    /// A packet.
    type Item;

    /// Appends a packet to a queue.
    fn append(&mut self, queue: &mut Self::Queue, item: Self::Item);
    /// Removes the oldest packet of a queue.
    fn take(&mut self, queue: &mut Self::Queue) -> Option<Self::Item>;
    /// Drops a packet.
    fn drop(&mut self, reason: DropReason, item: Self::Item);
    /// Marks a packet as having experienced congestion; returns false if its transport is not capable of ECN.
    fn mark(&mut self, item: &mut Self::Item) -> bool;
}

/// Arrival of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qos) struct Stamp {
    /// Time in nanoseconds.
    pub(in crate::qos) since: u64,
    /// Length of the packet.
    pub(in crate::qos) bytes: u32,
}

/// A queue of packets.
#[derive(Default)]
pub(in crate::qos) struct Fifo<Q> {
    packets: Q,
    stamps: VecDeque<Stamp>,
    bytes: u64,
}

impl<Q> Fifo<Q> {
    pub(in crate::qos) fn len(&self) -> usize {
        self.stamps.len()
    }

    pub(in crate::qos) fn is_empty(&self) -> bool {
        self.stamps.is_empty()
    }

    /// Returns the bytes of all packets.
    pub(in crate::qos) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the memory of the next packet.
    #[inline]
    pub(in crate::qos) fn touch(&self) -> usize {
        self.stamps.back().map_or(0, |stamp| stamp.bytes as usize)
    }

    pub(in crate::qos) fn push<H: Host<Queue = Q>>(&mut self, host: &mut H, item: H::Item, bytes: u32, now: u64) {
        host.append(&mut self.packets, item);
        self.stamps.push_back(Stamp { since: now, bytes });
        self.bytes += u64::from(bytes);
    }

    pub(in crate::qos) fn pop<H: Host<Queue = Q>>(&mut self, host: &mut H) -> Option<(H::Item, Stamp)> {
        let stamp = self.stamps.pop_front()?;
        self.bytes -= u64::from(stamp.bytes);
        host.take(&mut self.packets).map(|item| (item, stamp))
    }
}
