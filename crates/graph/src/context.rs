//! Operations that a node performs on packets while it runs.

mod hold_queue;
mod hold_slab;

pub use hold_queue::HoldQueue;
pub(crate) use hold_queue::LostCount;
pub use hold_slab::HoldSlab;

use crate::exit::Exit;
use crate::hop::{CurrentHop, Hop, PathId};
use crate::named_enum::{Named as _, Numbered};
use crate::observer::{Observer, Point};
use crate::operator_trace::OperatorStep;
use crate::stats::{CommonDrop, Counter, NodeStats};
use packet::{Batch, Packet, Pool};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The operations of a running node: drop, emit, hold and create packets, and read the time.
///
/// The graph passes it to [`Node::process`](crate::Node::process) and [`Node::on_timer`](crate::Node::on_timer).
/// Packets that stay in the batch leave by the first output; every other packet goes through one of these methods, so
/// that each is counted exactly once.
///
/// ```
/// use graph::{Context, Named, Node};
/// use packet::Batch;
///
/// graph::named_enum! {
///     enum Drop { Runt = "runt" }
/// }
/// graph::named_enum! {
///     enum Output { Out = "out", Jumbo = "jumbo" }
/// }
///
/// /// Drops runts and separates frames of more than 1514 bytes.
/// struct BySize;
/// impl Node for BySize {
///     fn drops(&self) -> &[&'static str] {
///         Drop::NAMES
///     }
///     fn outputs(&self) -> &[&'static str] {
///         Output::NAMES
///     }
///     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
///         for packet in batch.drain() {
///             match packet.len() {
///                 ..60 => cx.drop(Drop::Runt, packet),
///                 60..=1514 => cx.emit(Output::Out, packet),
///                 _ => cx.emit(Output::Jumbo, packet),
///             }
///         }
///     }
/// }
/// ```
pub struct Context<'a> {
    pub(crate) state: &'a mut BatchState,
    pub(crate) outbox: &'a mut [Vec<Packet>],
    pub(crate) stats: &'a NodeStats,
    pub(crate) lost: &'a LostCount,
    /// First path of the node by each input.
    pub(crate) first_paths: &'a [Option<PathId>],
    /// Path of the batch.
    pub(crate) path: PathId,
}

/// State that the nodes of a graph share, and the effects of the running node on packets outside its batch.
pub(crate) struct BatchState {
    pub(crate) pool: Arc<dyn Pool + Send + Sync>,
    /// Dropped packets, freed together.
    pub(crate) to_free: Batch,
    pub(crate) dropped: usize,
    pub(crate) emitted: usize,
    pub(crate) created: usize,
    pub(crate) held: usize,
    pub(crate) released: usize,
    /// Output by which the batch leaves.
    pub(crate) output: u8,
    /// True if any of the counts above is not 0.
    pub(crate) changed: bool,
    /// Time since the graph was created.
    pub(crate) now: Duration,
    /// Time since the Unix epoch at time 0, if captures give the time.
    pub(crate) capture_start: Option<Duration>,
    pub(crate) current_hop: CurrentHop,
    /// Packets that leave by the first output of another hop of the running node.
    pub(crate) rerouted: Vec<(PathId, Packet)>,
    pub(crate) observer: Option<Box<dyn Observer>>,
}

impl BatchState {
    pub(crate) fn new(pool: Arc<dyn Pool + Send + Sync>) -> Self {
        BatchState {
            pool,
            to_free: Batch::new(),
            dropped: 0,
            emitted: 0,
            created: 0,
            held: 0,
            released: 0,
            output: 0,
            changed: false,
            now: Duration::ZERO,
            capture_start: None,
            current_hop: CurrentHop::default(),
            rerouted: vec![],
            observer: None,
        }
    }

    /// Shows a packet to the observer, if there is one.
    #[inline(always)]
    pub(crate) fn show(&mut self, packet: &Packet, at: impl FnOnce(Hop) -> Point) {
        if self.observer.is_some() {
            self.show_to_observer(packet, at);
        }
    }

    #[cold]
    fn show_to_observer(&mut self, packet: &Packet, at: impl FnOnce(Hop) -> Point) {
        if let (Some(observer), Some(hop)) = (&mut self.observer, self.current_hop.hop()) {
            observer.sees(at(hop), core::slice::from_ref(packet));
        }
    }

    /// Resets the counts.
    #[inline(always)]
    pub(crate) fn reset(&mut self) {
        (self.dropped, self.emitted, self.created, self.held, self.released) = (0, 0, 0, 0, 0);
        self.changed = false;
    }
}

impl Context<'_> {
    /// Drops a packet and counts it under `reason`, an index into [`Node::drops`](crate::Node::drops).
    #[inline]
    pub fn drop(&mut self, reason: impl Numbered, packet: Packet) {
        let reason = reason.number();
        let stats = self.stats;
        self.state.show(&packet, |hop| Point::Drop(hop, stats.reason(reason)));
        match self.stats.drops.get(reason as usize) {
            Some(count) => count.add(1),
            None => self.stats.count_common_drops(CommonDrop::Vanished, 1),
        }
        self.state.dropped += 1;
        self.state.changed = true;
        if let Err(packet) = self.state.to_free.push(packet) {
            self.state.to_free.clear();
            drop(self.state.to_free.push(packet));
        }
    }

    /// Sends a packet to `output`, an index into [`Nf::OUTPUTS`](crate::Nf::OUTPUTS). Output 0 is the one that the
    /// batch leaves by.
    #[inline]
    pub fn emit(&mut self, output: impl Numbered, packet: Packet) {
        let output = output.number();
        self.state.emitted += 1;
        self.state.changed = true;
        match self.outbox.get_mut(output as usize) {
            Some(out) => out.push(packet),
            None => {
                self.state.show(&packet, |hop| Point::Drop(hop, CommonDrop::NoEdge.name()));
                self.stats.count_common_drops(CommonDrop::NoEdge, 1);
                self.state.to_free.push(packet).unwrap_or_else(drop);
            }
        }
    }

    /// Drops or emits a packet that leaves a chain of operators.
    #[inline(always)]
    pub(crate) fn exit(&mut self, exit: Exit, packet: Packet) {
        match exit {
            Exit::Drop(reason) => self.drop(reason, packet),
            Exit::Emit(output) => self.emit(output, packet),
            Exit::Pass => drop(packet),
        }
    }

    /// Sends a packet that arrived on `path` to `output`. The first output of a node that is on several paths continues
    /// along each of them, so a released packet has to be sent along the path that [`release`](Context::release)
    /// returns.
    pub fn emit_on_path(&mut self, path: PathId, output: impl Numbered, packet: Packet) {
        let output = output.number();
        if output != 0 || self.path() == path {
            return self.emit(output, packet);
        }
        self.state.emitted += 1;
        self.state.changed = true;
        self.state.rerouted.push((path, packet));
    }

    /// Returns the path that the batch arrived on; in [`Node::on_timer`](crate::Node::on_timer) the first path of the
    /// node.
    pub fn path(&self) -> PathId {
        self.path
    }

    /// Returns the first path that enters the node by `input`, or `None` if there is none. For packets that a node
    /// sends back in the other direction.
    pub fn path_from_input(&self, input: u8) -> Option<PathId> {
        self.first_paths.get(usize::from(input)).copied().flatten()
    }

    /// Appends a packet to a queue of the node.
    ///
    /// # Errors
    /// Returns the packet if the queue is full.
    pub fn hold(&mut self, queue: &mut HoldQueue, packet: Packet) -> Result<(), Packet> {
        self.hold_on_path(self.path(), queue, packet)
    }

    /// Appends a packet that arrived on `path` to a queue of the node, such as one that was released too early.
    ///
    /// # Errors
    /// Returns the packet if the queue is full.
    pub fn hold_on_path(&mut self, path: PathId, queue: &mut HoldQueue, packet: Packet) -> Result<(), Packet> {
        if queue.packets.len() >= queue.capacity {
            return Err(packet);
        }
        self.count_hold(&mut queue.owner, queue.packets.len(), &packet);
        queue.packets.push_back((path, packet));
        Ok(())
    }

    /// Stores a packet that arrived on `path` in a slab of the node, and returns its number.
    pub fn hold_in<T>(&mut self, path: PathId, slab: &mut HoldSlab<T>, packet: Packet, value: T) -> u32 {
        let held = slab.len();
        self.count_hold(&mut slab.owner, held, &packet);
        slab.insert(path, packet, value)
    }

    /// Counts a packet that is added to `held` others.
    #[inline]
    fn count_hold(&mut self, owner: &mut Option<LostCount>, held: usize, packet: &Packet) {
        if !owner.as_ref().is_some_and(|owner| owner.is_same(self.lost)) {
            // the others were held by another node, or by this one before it was rebuilt
            let before = owner.replace(self.lost.clone());
            before.iter().for_each(|owner| owner.add(held));
            self.state.created += held;
            self.stats.created.add(held as u64);
            self.state.held += held;
            self.stats.held.add(held as u64);
        }
        self.state.show(packet, Point::Hold);
        self.state.held += 1;
        self.state.changed = true;
        self.stats.held.add(1);
    }

    /// Removes the oldest packet from a queue of the node and returns it with the path that it arrived on, for
    /// [`emit_on_path`](Context::emit_on_path).
    pub fn release(&mut self, queue: &mut HoldQueue) -> Option<(PathId, Packet)> {
        let packet = queue.packets.pop_front()?;
        self.count_release(queue.owner.as_ref());
        Some(packet)
    }

    /// Removes the packet with this number from a slab of the node and returns it with the path that it arrived on.
    pub fn release_from<T>(&mut self, slab: &mut HoldSlab<T>, number: u32) -> Option<(PathId, Packet)> {
        let packet = slab.remove(number)?;
        self.count_release(slab.owner.as_ref());
        Some(packet)
    }

    #[inline]
    fn count_release(&mut self, owner: Option<&LostCount>) {
        self.state.changed = true;
        if owner.is_some_and(|owner| owner.is_same(self.lost)) {
            self.state.released += 1;
            self.stats.held.set(self.stats.held.get() - 1);
        } else {
            // held by another node, or by this one before it was rebuilt: lost there and created here
            owner.iter().for_each(|owner| owner.add(1));
            self.state.created += 1;
            self.stats.created.add(1);
        }
    }

    /// Tells a trace what the node does with the packet, such as the rule or route that it applies; `text` is called only
    /// while a packet is traced, which is then the only one in the batch.
    ///
    /// ```
    /// # use graph::{Context, Node};
    /// # use packet::Batch;
    /// # struct Router;
    /// # impl Node for Router {
    /// #     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
    /// # let (prefix, next_hop) = ("10.0.0.0/8", "192.0.2.1");
    /// cx.explain(|| format!("route {prefix} via {next_hop}"));
    /// #     }
    /// # }
    /// ```
    #[inline(always)]
    pub fn explain(&mut self, text: impl FnOnce() -> String) {
        if self.state.observer.is_some() {
            self.explain_to_observer(text);
        }
    }

    /// Returns true while a packet is traced, which is then the only one in the batch.
    #[inline(always)]
    pub(crate) fn wants_explanations(&self) -> bool {
        self.state.observer.is_some() && self.observer_wants_explanations()
    }

    #[cold]
    fn observer_wants_explanations(&self) -> bool {
        self.state.observer.as_ref().is_some_and(|observer| observer.wants_explanations())
    }

    /// Shows to the observer what the operators of the node do.
    pub(crate) fn show_operators(&mut self, steps: Vec<OperatorStep>) {
        if let (Some(observer), Some(hop)) = (&mut self.state.observer, self.state.current_hop.hop()) {
            steps.into_iter().for_each(|step| observer.operator(hop, step));
        }
    }

    #[cold]
    fn explain_to_observer(&mut self, text: impl FnOnce() -> String) {
        if let (Some(observer), Some(hop)) = (&mut self.state.observer, self.state.current_hop.hop())
            && observer.wants_explanations()
        {
            observer.explained(hop, text());
        }
    }

    /// Makes the whole batch leave by `output` instead of the first one. Applies to the current batch only.
    #[inline]
    pub fn set_output(&mut self, output: impl Numbered) {
        self.state.output = output.number();
    }

    /// Replaces the counters that [`Node::counters`](crate::Node::counters) reported, for instance after rules were
    /// reloaded, and returns the previous ones. Takes a lock: do not call it for every batch.
    pub fn replace_counters(&self, counters: Vec<(String, Arc<Counter>)>) -> Vec<(String, Arc<Counter>)> {
        self.stats.replace_counters(counters)
    }

    /// Returns the time since the graph was created, with a resolution of about a millisecond, or of the shortest
    /// [interval](crate::Node::interval) of a node.
    #[inline]
    pub fn now(&self) -> Duration {
        self.state.now
    }

    /// Returns the time since the Unix epoch, of the host or, where captures give the time, of the captures. Reads the
    /// clock of the host: do not call it for every packet.
    pub fn unix_time(&self) -> Duration {
        let of_host = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.state.capture_start.map_or_else(of_host, |start| start + self.state.now)
    }

    /// Allocates an empty packet; returns `None` if the buffer pool is exhausted. The node has to emit it, hold it,
    /// drop it or push it into its batch.
    #[inline]
    pub fn alloc(&mut self) -> Option<Packet> {
        let packet = self.state.pool.alloc()?;
        self.count_created(&packet);
        Some(packet)
    }

    /// Allocates a packet with a copy of `bytes`; returns `None` if the buffer pool is exhausted or `bytes` does not
    /// fit in a buffer. The node has to emit it, hold it, drop it or push it into its batch.
    pub fn alloc_from(&mut self, bytes: &[u8]) -> Option<Packet> {
        let packet = self.state.pool.alloc_from(bytes)?;
        self.count_created(&packet);
        Some(packet)
    }

    #[inline]
    fn count_created(&mut self, packet: &Packet) {
        self.state.show(packet, Point::Create);
        self.state.created += 1;
        self.state.changed = true;
        self.stats.created.add(1);
    }

    /// Allocates a packet with the bytes and metadata of another; returns `None` if the buffer pool is exhausted.
    pub fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        let mut copy = self.alloc_from(packet.data())?;
        copy.meta_mut().set_port(packet.meta().port());
        if let Some(info) = packet.meta().capture_info() {
            copy.meta_mut().set_capture_info(info);
        }
        copy.meta_mut().copy_metadata(packet.meta());
        Some(copy)
    }
}
