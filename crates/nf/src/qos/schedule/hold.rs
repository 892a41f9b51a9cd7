//! Packets that the scheduler holds.

use crate::qos::headers::Headers;
use crate::qos::queue::{DropReason, Host, Stamp};
use graph::{Context, Counter, HoldSlab, PathId};
use packet::Packet;

/// Operations of queues on packets of a node.
pub(super) struct HoldHost<'a, 'b> {
    pub(super) cx: &'a mut Context<'b>,
    /// Packets in the queues.
    pub(super) held: &'a mut HoldSlab<Stamp>,
    /// Counter of marked packets.
    pub(super) marked: &'a Counter,
}

impl Host for HoldHost<'_, '_> {
    /// A packet with the path that it arrived on.
    type Item = (PathId, Packet);

    fn store(&mut self, (path, packet): Self::Item, stamp: Stamp) -> u32 {
        self.cx.hold_in(path, self.held, packet, stamp)
    }

    fn stamp(&mut self, number: u32) -> Option<&mut Stamp> {
        self.held.value_mut(number)
    }

    fn take(&mut self, number: u32) -> Option<(Self::Item, Stamp)> {
        let stamp = *self.held.value(number)?;
        self.cx.release_from(self.held, number).map(|item| (item, stamp))
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
