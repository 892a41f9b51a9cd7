//! Packets that the scheduler holds.

use crate::qos::headers::Headers;
use crate::qos::queue::{DropReason, Host};
use graph::{Context, Counter, HoldQueue, PathId};
use packet::Packet;

/// Queue of held packets. Its length is limited by the scheduler.
pub(super) struct Held(HoldQueue);

impl Default for Held {
    fn default() -> Self {
        Held(HoldQueue::new(usize::MAX))
    }
}

/// Operations of queues on packets of a node.
pub(super) struct HoldHost<'a, 'b> {
    pub(super) cx: &'a mut Context<'b>,
    /// Counter of marked packets.
    pub(super) marked: &'a Counter,
}

impl Host for HoldHost<'_, '_> {
    type Queue = Held;
    /// A packet with the path that it arrived on.
    type Item = (PathId, Packet);

    fn append(&mut self, queue: &mut Held, (path, packet): Self::Item) {
        if let Err(packet) = self.cx.hold_on_path(path, &mut queue.0, packet) {
            self.cx.drop(DropReason::QueueFull, packet);
        }
    }

    fn take(&mut self, queue: &mut Held) -> Option<Self::Item> {
        self.cx.release(&mut queue.0)
    }

    fn drop(&mut self, reason: DropReason, (_, packet): Self::Item) {
        self.cx.drop(reason, packet);
    }

    fn mark(&mut self, (_, packet): &mut Self::Item) -> bool {
        let headers = Headers::of(packet);
        let marked = headers.mark_congestion(packet.data_mut());
        self.marked.add(marked.into());
        marked
    }
}
