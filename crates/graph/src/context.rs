//! What a node may do besides changing its batch.

use crate::graph::Lost;
use crate::{Counter, Hop, NodeStats, Running};
use packet::{Batch, Packet, Pool};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A node's way to drop, emit and make packets.
pub struct Context<'a> {
    pub(crate) desk: &'a mut BatchState,
    pub(crate) outbox: &'a mut [Vec<Packet>],
    pub(crate) stats: &'a NodeStats,
    pub(crate) lost: &'a Lost,
    /// The node's first hop by each input.
    pub(crate) ways: &'a [Option<Hop>],
}

/// One of the paths in which a node stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathId(pub(crate) Hop);

/// What the nodes of a graph share, and what the one that runs has done to packets during its batch.
pub(crate) struct BatchState {
    pub(crate) pool: Arc<dyn Pool + Send + Sync>,
    pub(crate) gone: Batch,
    pub(crate) dropped: usize,
    pub(crate) emitted: usize,
    pub(crate) created: usize,
    pub(crate) held: usize,
    pub(crate) released: usize,
    /// Output by which the batch goes on.
    pub(crate) leave: u8,
    /// Whether any of the above is not 0.
    pub(crate) touched: bool,
    /// Time since the graph was made.
    pub(crate) now: Duration,
    /// The hop that runs.
    pub(crate) running: Running,
    /// Packets that leave by the first output of another hop of the node that runs.
    pub(crate) strays: Vec<(PathId, Packet)>,
}

/// Packets that a node keeps for later: a bounded queue, first in, first out. They count as held as long as they are in
/// it; [`Cx::hold`] puts them in, [`Cx::release`] takes them out. Those that are in it when it is dropped count as
/// `vanished`.
pub struct HoldQueue {
    packets: VecDeque<(PathId, Packet)>,
    most: usize,
    /// The copy of the node whose packets they are, as soon as there are some.
    of: Option<Lost>,
}

impl Drop for HoldQueue {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            of.add(self.packets.len());
        }
    }
}

impl HoldQueue {
    /// A queue for `most` packets.
    pub fn new(most: usize) -> Self {
        HoldQueue { packets: VecDeque::with_capacity(most.min(64)), most, of: None }
    }

    /// Packets in it.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The packets, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Packet> {
        self.packets.iter().map(|(_, packet)| packet)
    }
}

impl Context<'_> {
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

    /// Sends a packet that was held out of output number `output`, on the path by which it had come: the first output of a
    /// node that stands in several paths leads on along each of them.
    pub fn emit_from(&mut self, way: PathId, output: u8, packet: Packet) {
        if output != 0 || self.path() == way {
            return self.emit(output, packet);
        }
        self.desk.emitted += 1;
        self.desk.touched = true;
        self.desk.strays.push((way, packet));
    }

    /// The path by which the batch has come. In [`Node::wake`](crate::Node::wake) the node's first.
    pub fn path(&self) -> PathId {
        PathId(self.desk.running.hop().unwrap_or(Hop(0)))
    }

    /// Keeps a packet in a queue of the node's; gives it back when that is full.
    ///
    /// # Errors
    /// The packet.
    pub fn hold(&mut self, queue: &mut HoldQueue, packet: Packet) -> Result<(), Packet> {
        self.hold_from(self.path(), queue, packet)
    }

    /// As [`hold`](Cx::hold), a packet that had come by this path, such as one that was released and has to wait longer.
    ///
    /// # Errors
    /// The packet.
    pub fn hold_from(&mut self, way: PathId, queue: &mut HoldQueue, packet: Packet) -> Result<(), Packet> {
        if queue.packets.len() >= queue.most {
            return Err(packet);
        }
        if !queue.of.as_ref().is_some_and(|of| of.is(self.lost)) {
            // what is in it already is another node's, or one's that was built anew
            let before = queue.of.replace(self.lost.clone());
            before.iter().for_each(|of| of.add(queue.packets.len()));
            self.desk.created += queue.packets.len();
            self.stats.created.add(queue.packets.len() as u64);
            self.desk.held += queue.packets.len();
            self.stats.held.add(queue.packets.len() as u64);
        }
        queue.packets.push_back((way, packet));
        self.desk.held += 1;
        self.desk.touched = true;
        self.stats.held.add(1);
        Ok(())
    }

    /// The first path that comes by an input, for a packet that turns round; `None` if no path does.
    pub fn path_by_input(&self, input: u8) -> Option<PathId> {
        self.ways.get(usize::from(input)).copied().flatten().map(PathId)
    }

    /// Takes out the packet that has waited longest, with the path by which it had come, for [`emit_from`](Cx::emit_from).
    pub fn release(&mut self, queue: &mut HoldQueue) -> Option<(PathId, Packet)> {
        let packet = queue.packets.pop_front()?;
        self.desk.touched = true;
        if queue.of.as_ref().is_some_and(|of| of.is(self.lost)) {
            self.desk.released += 1;
            self.stats.held.set(self.stats.held.get() - 1);
        } else {
            // held by another node, or by one that was built anew: it is lost there, and new here
            queue.of.iter().for_each(|of| of.add(1));
            self.desk.created += 1;
            self.stats.created.add(1);
        }
        Some(packet)
    }

    /// Says by which output the batch goes on, this time, instead of the first.
    #[inline]
    pub fn leave_by(&mut self, output: u8) {
        self.desk.leave = output;
    }

    /// Shows other counts than [`Node::counters`](crate::Node::counters) has named, from now on:
    /// after rules have changed, say. Gives back those that were shown. Takes a lock; not for every batch.
    pub fn show_counters(&self, counters: Vec<(String, Arc<Counter>)>) -> Vec<(String, Arc<Counter>)> {
        self.stats.show_counters(counters)
    }

    /// Time since the graph was made, to about a millisecond.
    #[inline]
    pub fn now(&self) -> Duration {
        self.desk.now
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

    /// A packet with these bytes, or `None` when the pool has no more or they do not fit in a buffer. As for
    /// [`alloc`](Cx::alloc), the node has to do something with it.
    pub fn make(&mut self, bytes: &[u8]) -> Option<Packet> {
        let packet = self.desk.pool.alloc_from(bytes)?;
        self.desk.created += 1;
        self.desk.touched = true;
        self.stats.created.add(1);
        Some(packet)
    }

    /// A packet of its own with the same bytes, or `None` when the pool has no more.
    pub fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        let mut copy = self.make(packet.data())?;
        copy.meta_mut().set_port(packet.meta().port());
        if let Some(stamp) = packet.meta().stamp() {
            copy.meta_mut().set_stamp(stamp);
        }
        copy.meta_mut().copy_note(packet.meta());
        Some(copy)
    }
}
