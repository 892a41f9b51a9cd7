//! What a node may do besides changing its batch.

use crate::NodeStats;
use packet::{Batch, Packet, Pool};
use std::sync::Arc;

/// A node's way to drop, emit and make packets.
pub struct Cx<'a> {
    pub(crate) desk: &'a mut Desk,
    pub(crate) outbox: &'a mut [Vec<Packet>],
    pub(crate) stats: &'a NodeStats,
}

/// What the nodes of a graph share, and what the one that runs has done to packets during its batch.
pub(crate) struct Desk {
    pub(crate) pool: Arc<dyn Pool + Send + Sync>,
    pub(crate) gone: Batch,
    pub(crate) dropped: usize,
    pub(crate) emitted: usize,
    pub(crate) created: usize,
    /// Whether any of the above is not 0.
    pub(crate) touched: bool,
}

impl Cx<'_> {
    /// Drops a packet for the node's reason number `reason` (its place in [`crate::Node::drops`]).
    #[inline]
    pub fn drop(&mut self, reason: u8, packet: Packet) {
        match self.stats.drops.get(reason as usize) {
            Some(count) => count.add(1),
            None => self.stats.drop_every(crate::stats::VANISHED, 1),
        }
        self.desk.dropped += 1;
        self.desk.touched = true;
        if let Err(packet) = self.desk.gone.push(packet) {
            self.desk.gone.clear();
            drop(self.desk.gone.push(packet));
        }
    }

    /// Sends a packet out of output number `output` (its place in [`crate::Nf::OUTPUTS`]; 0 is where the batch goes).
    #[inline]
    pub fn emit(&mut self, output: u8, packet: Packet) {
        self.desk.emitted += 1;
        self.desk.touched = true;
        match self.outbox.get_mut(output as usize) {
            Some(out) => out.push(packet),
            None => {
                self.stats.drop_every(crate::stats::NO_EDGE, 1);
                self.desk.gone.push(packet).unwrap_or_else(drop);
            }
        }
    }

    /// An empty packet, or `None` when the pool has no more. The node has to emit it, push it into its batch, or drop it.
    #[inline]
    pub fn alloc(&mut self) -> Option<Packet> {
        let packet = self.desk.pool.alloc()?;
        self.desk.created += 1;
        self.desk.touched = true;
        self.stats.created.add(1);
        Some(packet)
    }

    /// A packet of its own with the same bytes, or `None` when the pool has no more.
    pub fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        let mut copy = self.desk.pool.alloc_from(packet.data())?;
        copy.meta_mut().set_port(packet.meta().port());
        if let Some(stamp) = packet.meta().stamp() {
            copy.meta_mut().set_stamp(stamp);
        }
        self.desk.created += 1;
        self.desk.touched = true;
        self.stats.created.add(1);
        Some(copy)
    }
}
