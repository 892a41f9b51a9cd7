//! The way out of a node for packets that it makes.

use crate::window::hold::Door;
use graph::PathId;
use packet::Packet;

/// Where packets leave, and one whose bytes have been taken, which the next packet may be written into.
pub(super) struct Out<'a, 'c> {
    pub(super) door: Door<'a, 'c>,
    spare: Option<Packet>,
    /// Which way the spare one went: what is known of it besides its bytes is of that direction.
    way: usize,
}

impl<'a, 'c> Out<'a, 'c> {
    pub(super) fn new(door: Door<'a, 'c>) -> Self {
        Out { door, spare: None, way: 0 }
    }

    /// Gives a packet away that came in direction `way`, to be written into.
    pub(super) fn spare(&mut self, packet: Packet, way: usize) {
        (self.spare, self.way) = (Some(packet), way);
    }

    /// A packet to write into, for direction `way`.
    pub(super) fn packet(&mut self, way: usize) -> Option<Packet> {
        if self.way == way && self.spare.is_some() {
            return self.spare.take();
        }
        self.door.cx.alloc()
    }

    /// Lets a packet of the batch go on.
    pub(super) fn pass(&mut self, packet: Packet) {
        self.send(packet, None);
    }

    /// Sends a packet along a path; along that of the batch, if no other is known.
    pub(super) fn send(&mut self, packet: Packet, path: Option<PathId>) {
        let way = path.unwrap_or_else(|| self.door.cx.path());
        self.door.send(way, packet);
    }

    /// Drops the packet that nothing was written into.
    pub(super) fn close(&mut self, reason: u8) {
        if let Some(packet) = self.spare.take() {
            self.door.cx.drop(reason, packet);
        }
    }
}
