//! Queues of held packets.

use crate::hop::PathId;
use packet::Packet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bounded FIFO queue of packets that a node keeps for later.
///
/// Packets in it are counted as held. [`Context::hold`](crate::Context::hold) appends,
/// [`Context::release`](crate::Context::release) removes the oldest. When the queue is dropped, the packets in it are
/// freed and counted as `vanished`.
///
/// ```
/// use graph::{Context, HoldQueue, Node};
/// use packet::Batch;
/// use std::time::Duration;
///
/// graph::named_enum! {
///     enum Drop { QueueFull = "queue_full" }
/// }
///
/// /// Delays packets by up to 10 ms.
/// struct Delay(HoldQueue);
/// impl Node for Delay {
///     fn drops(&self) -> &[&'static str] {
///         <Drop as graph::Named>::NAMES
///     }
///     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
///         for packet in batch.drain() {
///             if let Err(packet) = cx.hold(&mut self.0, packet) {
///                 cx.drop(Drop::QueueFull, packet);
///             }
///         }
///     }
///     fn interval(&self) -> Option<Duration> {
///         Some(Duration::from_millis(10))
///     }
///     fn on_timer(&mut self, cx: &mut Context<'_>) {
///         while let Some((path, packet)) = cx.release(&mut self.0) {
///             cx.emit_on_path(path, 0, packet);
///         }
///     }
/// }
/// ```
pub struct HoldQueue {
    pub(super) packets: VecDeque<(PathId, Packet)>,
    pub(super) capacity: usize,
    /// Counter of the node copy that holds the packets; set when the first one is held.
    pub(super) owner: Option<LostCount>,
}

/// Number of held packets that a copy of a node lost because their queue was dropped.
#[derive(Clone, Default)]
pub(crate) struct LostCount(Arc<AtomicUsize>);

impl LostCount {
    pub(super) fn add(&self, packets: usize) {
        self.0.fetch_add(packets, Ordering::Relaxed);
    }

    pub(super) fn is_same(&self, other: &LostCount) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn take(&self) -> u64 {
        if self.0.load(Ordering::Relaxed) == 0 { 0 } else { self.0.swap(0, Ordering::Relaxed) as u64 }
    }
}

impl Drop for HoldQueue {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owner.add(self.packets.len());
        }
    }
}

impl HoldQueue {
    /// Creates a queue for at most `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        HoldQueue { packets: VecDeque::with_capacity(capacity.min(64)), capacity, owner: None }
    }

    /// Returns the number of packets in the queue.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns true if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns an iterator over the packets, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Packet> {
        self.packets.iter().map(|(_, packet)| packet)
    }
}
