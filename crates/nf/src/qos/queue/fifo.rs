//! First-in-first-out queues with the time of arrival of each packet.

use super::DropReason;
use tables::prefetch_value;

/// Operations on packets that queues need.
pub(in crate::qos) trait Host {
    /// A packet.
    type Item;

    /// Stores a packet and returns its number.
    fn store(&mut self, item: Self::Item, stamp: Stamp) -> u32;
    /// Returns the stamp of a stored packet.
    fn stamp(&mut self, number: u32) -> Option<&mut Stamp>;
    /// Removes a stored packet.
    fn take(&mut self, number: u32) -> Option<(Self::Item, Stamp)>;
    /// Drops a packet.
    fn drop(&mut self, reason: DropReason, item: Self::Item);
    /// Marks a packet as having experienced congestion; returns false if its transport is not capable of ECN.
    fn mark(&mut self, item: &mut Self::Item) -> bool;
}

/// Arrival of a packet, and its place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qos) struct Stamp {
    /// Time in nanoseconds.
    pub(in crate::qos) since: u64,
    /// Length of the packet.
    pub(in crate::qos) bytes: u32,
    /// Number of the next packet of the queue; the last one has none.
    next: u32,
}

/// A queue of packets that a [`Host`] stores: a linked list.
#[derive(Default)]
pub(in crate::qos) struct Fifo {
    /// Numbers of the oldest and of the newest packet, if there are any.
    first: u32,
    last: u32,
    len: u32,
    bytes: u64,
}

impl Fifo {
    pub(in crate::qos) fn len(&self) -> usize {
        self.len as usize
    }

    pub(in crate::qos) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of all packets.
    pub(in crate::qos) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Prefetches the oldest and the newest packet.
    #[inline]
    pub(in crate::qos) fn prefetch<H: Host>(&self, host: &mut H) {
        if self.len != 0 {
            for number in [self.first, self.last] {
                host.stamp(number).into_iter().for_each(|stamp| prefetch_value(stamp));
            }
        }
    }

    pub(in crate::qos) fn push<H: Host>(&mut self, host: &mut H, item: H::Item, bytes: u32, now: u64) {
        let number = host.store(item, Stamp { since: now, bytes, next: 0 });
        match host.stamp(self.last) {
            Some(last) if self.len != 0 => last.next = number,
            _ => self.first = number,
        }
        self.last = number;
        self.len += 1;
        self.bytes += u64::from(bytes);
    }

    pub(in crate::qos) fn pop<H: Host>(&mut self, host: &mut H) -> Option<(H::Item, Stamp)> {
        self.len = self.len.checked_sub(1)?;
        let (item, stamp) = host.take(self.first)?;
        self.first = stamp.next;
        self.bytes -= u64::from(stamp.bytes);
        Some((item, stamp))
    }
}
