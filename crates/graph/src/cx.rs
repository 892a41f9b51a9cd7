//! What a node may do besides changing its batch.

use crate::NodeStats;
use packet::{Batch, Packet, Pool};

/// A node's way to drop, emit and make packets.
pub struct Cx<'a> {
    pub(crate) tally: &'a mut Tally,
    pub(crate) outbox: &'a mut [Vec<Packet>],
    pub(crate) stats: &'a NodeStats,
    pub(crate) pool: &'a dyn Pool,
}

/// What a node did to packets during one batch.
pub(crate) struct Tally {
    pub(crate) gone: Batch,
    pub(crate) dropped: usize,
    pub(crate) emitted: usize,
    pub(crate) created: usize,
}

impl Cx<'_> {
    /// Drops a packet for the node's reason number `reason` (its place in [`crate::Node::drops`]).
    #[inline]
    pub fn drop(&mut self, reason: u8, packet: Packet) {
        match self.stats.drops.get(reason as usize) {
            Some(count) => count.add(1),
            None => self.stats.drop_every(crate::stats::VANISHED, 1),
        }
        self.tally.dropped += 1;
        if let Err(packet) = self.tally.gone.push(packet) {
            self.tally.gone.clear();
            drop(self.tally.gone.push(packet));
        }
    }

    /// Sends a packet out of output number `output` (its place in [`crate::Nf::OUTPUTS`]; 0 is where the batch goes).
    #[inline]
    pub fn emit(&mut self, output: u8, packet: Packet) {
        self.tally.emitted += 1;
        match self.outbox.get_mut(output as usize) {
            Some(out) => out.push(packet),
            None => {
                self.stats.drop_every(crate::stats::NO_EDGE, 1);
                self.tally.gone.push(packet).unwrap_or_else(drop);
            }
        }
    }

    /// An empty packet, or `None` when the pool has no more. The node has to emit it, push it into its batch, or drop it.
    #[inline]
    pub fn alloc(&mut self) -> Option<Packet> {
        let packet = self.pool.alloc()?;
        self.tally.created += 1;
        self.stats.created.add(1);
        Some(packet)
    }

    /// A packet of its own with the same bytes, or `None` when the pool has no more.
    pub fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        let mut copy = self.pool.alloc_from(packet.data())?;
        copy.meta_mut().set_port(packet.meta().port());
        if let Some(stamp) = packet.meta().stamp() {
            copy.meta_mut().set_stamp(stamp);
        }
        self.tally.created += 1;
        self.stats.created.add(1);
        Some(copy)
    }
}
