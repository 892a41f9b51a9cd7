//! Output of a rewriting node.

use super::Drop;
use crate::window::hold::PathOutput;
use graph::PathId;
use packet::Packet;

/// Output of packets, with a spare packet whose bytes were consumed and that the next packet may reuse.
pub(super) struct Output<'a, 'c> {
    pub(super) door: PathOutput<'a, 'c>,
    spare: Option<Packet>,
    /// Direction of the spare packet, to which its metadata belongs.
    way: usize,
}

impl<'a, 'c> Output<'a, 'c> {
    pub(super) fn new(door: PathOutput<'a, 'c>) -> Self {
        Output { door, spare: None, way: 0 }
    }

    /// Keeps a packet of direction `way` for reuse.
    pub(super) fn spare(&mut self, packet: Packet, way: usize) {
        (self.spare, self.way) = (Some(packet), way);
    }

    /// Returns a packet to write into, for direction `way`.
    pub(super) fn packet(&mut self, way: usize) -> Option<Packet> {
        if self.way == way && self.spare.is_some() {
            return self.spare.take();
        }
        self.door.cx.alloc()
    }

    /// Forwards a packet of the batch.
    pub(super) fn pass(&mut self, packet: Packet) {
        self.send(packet, None);
    }

    /// Sends a packet along a path, by default that of the batch.
    pub(super) fn send(&mut self, packet: Packet, path: Option<PathId>) {
        let way = path.unwrap_or_else(|| self.door.cx.path());
        self.door.send(way, packet);
    }

    /// Drops the spare packet if it was not reused.
    pub(super) fn close(&mut self, reason: Drop) {
        if let Some(packet) = self.spare.take() {
            self.door.cx.drop(reason, packet);
        }
    }
}
