//! The way out of a node for packets that it makes.

use crate::window::hold::Door;
use packet::Packet;

/// Where packets leave, and one whose bytes have been taken, which the next packet may be written into.
pub(super) struct Out<'a, 'c> {
    pub(super) door: Door<'a, 'c>,
    spare: Option<Packet>,
    /// Which way the spare one went: what is known of it besides its bytes is of that direction.
    way: usize,
    /// Output that the batch goes out by, and its number where it is written down.
    pub(super) batch_output: Option<u8>,
}

impl<'a, 'c> Out<'a, 'c> {
    pub(super) fn new(door: Door<'a, 'c>, batch_output: Option<u8>) -> Self {
        Out { door, spare: None, way: 0, batch_output }
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

    /// Sends a packet by an output.
    pub(super) fn send(&mut self, packet: Packet, output: u8) {
        // the batch goes on along its path, which is where that output leads
        if output == 0 || self.batch_output == Some(output) {
            self.door.send(self.door.cx.way(), packet);
        } else {
            self.door.cx.emit(output, packet);
        }
    }

    /// Drops the packet that nothing was written into.
    pub(super) fn close(&mut self, reason: u8) {
        if let Some(packet) = self.spare.take() {
            self.door.cx.drop(reason, packet);
        }
    }
}
