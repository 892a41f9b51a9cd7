//! The test harness: one NF, frames in, frames out.

use crate::Frames;
use graph::{
    Blueprint, Graph, Hop, HopPlan, InvalidState, NewNode, Node, NodePlan, NodeStats, Origin, Replacement, Sink, Target,
};
use packet::{BURST, Batch, HeapPool, Packet, Pool};
use std::sync::Arc;
use std::time::Duration;

/// Default number of buffers.
pub(crate) const BUFFERS: usize = 4096;

/// A harness that runs one NF in a test.
///
/// Frames enter in bursts of 64, as from a port. Each output leads to its own port, and the frames sent to it are
/// returned. After every call that moves packets the harness **panics, and so fails the test,** if
///
/// * a packet is missing: the NF has neither sent nor dropped it, and does not hold it with [`graph::Context::hold`],
/// * the NF has freed a packet without counting it, which a chain would count as `vanished`,
/// * the counts are inconsistent: `received + created = sent + held + dropped` is not true.
///
/// A panic of the NF propagates to the test. [`HarnessBuilder`](crate::HarnessBuilder) sets the directory of files, the
/// number of buffers and the number of paths.
pub struct Harness {
    kind: &'static str,
    inputs: usize,
    outputs: Vec<String>,
    /// Packets sent so far.
    sent: u64,
    /// Time of the graph.
    now: Duration,
    pool: Arc<HeapPool>,
    blueprint: Blueprint,
    graph: Graph,
}

/// Collects sent packets by port.
struct Collect(Vec<Vec<Packet>>);

impl Sink for Collect {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0[port as usize].extend(batch.drain());
    }
}

impl Harness {
    /// Creates a harness for a node without an NF: a chain of operators or a hand-written node. It has one input, and
    /// the outputs of the node.
    ///
    /// ```
    /// use graph::{Operator, frame};
    /// use testkit::{Harness, wire::build};
    /// use wire::{Ethernet, Ipv4};
    ///
    /// let ipv4 = frame().parse::<Ethernet>().parse_if::<Ipv4>();
    /// let mut guard = Harness::from_node(ipv4.filter("ttl_too_small", |ip| ip.header().ttl() > 9).compose());
    /// let packet = |ttl| build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53).ttl(ttl).to_vec();
    /// assert_eq!(guard.feed_one(&packet(10)), Ok(packet(10)));
    /// assert_eq!(guard.feed_one(&packet(9)), Err("ttl_too_small"));
    /// ```
    pub fn from_node(node: impl Node + 'static) -> Self {
        let outputs = node.outputs().iter().map(|&output| output.to_owned()).collect();
        Self::assemble("the node", Box::new(node), (1, 1), outputs, BUFFERS)
    }

    pub(crate) fn assemble(
        kind: &'static str,
        node: Box<dyn Node>,
        (inputs, paths): (usize, usize),
        mut outputs: Vec<String>,
        buffers: usize,
    ) -> Self {
        // the first output of each path, then the others
        let others = paths as u16..(paths + outputs.len().saturating_sub(1)) as u16;
        let edges = std::iter::once(Target::Unconnected).chain(others.map(Target::Port)).collect();
        let first = outputs.first().cloned();
        let next = |path| if first.is_some() { Target::Port(path) } else { Target::Unconnected };
        let blueprint = Blueprint {
            nodes: vec![NodePlan { name: kind.to_owned(), edges }],
            hops: (0..paths as u16)
                .flat_map(|path| (0..inputs as u8).map(move |input| (path, input)))
                .map(|(path, input)| HopPlan { node: 0, input, next: next(path), fail_open: false })
                .collect(),
        };
        if let Some(first) = first {
            outputs.splice(0..1, std::iter::repeat_n(first, paths));
        }
        let inputs = inputs * paths;
        let pool = Arc::new(HeapPool::new(buffers));
        let graph = Graph::new(&blueprint, vec![node], pool.clone());
        Harness { kind, inputs, outputs, sent: 0, now: Duration::ZERO, pool, blueprint, graph }
    }

    /// Replaces the node by one with other settings, which takes over its state ([`Node::take_over`]), as a reload does
    /// between two batches.
    ///
    /// # Panics
    /// If a check of the [harness](Harness) fails, as when packets that the node holds are lost.
    ///
    /// ```
    /// use graph::{Context, Node};
    /// use packet::Batch;
    /// use std::any::Any;
    /// use testkit::Harness;
    ///
    /// /// Drops all but the first packets.
    /// struct First { limit: u64, seen: u64 }
    /// impl Node for First {
    ///     fn drops(&self) -> &[&'static str] {
    ///         &["limit"]
    ///     }
    ///     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
    ///         let First { limit, seen } = self;
    ///         let mut is_over = || { *seen += 1; *seen > *limit };
    ///         batch.extract_if(|_| is_over().then_some(()), |(), packet| cx.drop(0, packet));
    ///     }
    ///     fn take_over(&mut self, old: &mut dyn Any) {
    ///         self.seen = old.downcast_ref::<First>().map_or(0, |old| old.seen);
    ///     }
    /// }
    /// let mut nf = Harness::from_node(First { limit: 1, seen: 0 });
    /// assert!(nf.feed_one(&[0; 60]).is_ok());
    /// nf.reload(First { limit: 2, seen: 0 });
    /// assert_eq!((nf.feed_one(&[0; 60]).is_ok(), nf.feed_one(&[0; 60])), (true, Err("limit")));
    /// ```
    #[track_caller]
    pub fn reload(&mut self, node: impl Node + 'static) {
        self.replace_node(Box::new(node));
    }

    /// Returns what the node [saves](Node::save) for the process that replaces this one.
    ///
    /// # Panics
    /// If the node panics.
    #[track_caller]
    pub fn save(&mut self) -> Vec<u8> {
        self.graph.save().remove(0).unwrap_or_else(|| panic!("{} panicked", self.kind))
    }

    /// Has the node [restore](Node::restore) what a node of another harness has saved at the time `now`, from which the
    /// time of this harness goes on. Call it before frames are fed.
    ///
    /// ```
    /// # use graph::{Context, InvalidState, Node, StateReader, StateWriter};
    /// # use packet::Batch;
    /// # use std::time::Duration;
    /// # use testkit::Harness;
    /// /// Drops all but the first packets.
    /// struct First { limit: u64, seen: u64 }
    /// impl Node for First {
    ///     fn drops(&self) -> &[&'static str] {
    ///         &["limit"]
    ///     }
    ///     fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
    ///         let First { limit, seen } = self;
    ///         let mut is_over = || { *seen += 1; *seen > *limit };
    ///         batch.extract_if(|_| is_over().then_some(()), |(), packet| cx.drop(0, packet));
    ///     }
    ///     fn save(&mut self, state: &mut StateWriter) {
    ///         state.push(&self.seen);
    ///     }
    ///     fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
    ///         self.seen = state.read()?.unwrap_or_default();
    ///         Ok(())
    ///     }
    /// }
    /// let mut old = Harness::from_node(First { limit: 2, seen: 0 });
    /// assert!(old.feed_one(&[0; 60]).is_ok());
    /// let mut new = Harness::from_node(First { limit: 2, seen: 0 });
    /// new.restore(&old.save(), old.now())?;
    /// assert_eq!((new.feed_one(&[0; 60]).is_ok(), new.feed_one(&[0; 60])), (true, Err("limit")));
    /// # Ok::<(), InvalidState>(())
    /// ```
    ///
    /// # Errors
    /// The node cannot read the state.
    pub fn restore(&mut self, state: &[u8], now: Duration) -> Result<(), InvalidState> {
        self.now = now;
        self.graph.set_time(now);
        self.graph.restore(0, state)
    }

    #[track_caller]
    pub(crate) fn replace_node(&mut self, node: Box<dyn Node>) {
        let only = Origin { graph: 0, node: 0 };
        let (blueprint, nodes) = (&self.blueprint, vec![NewNode::Successor(only, node, true)]);
        let new = Replacement::new(&[(blueprint, &[self.stats()])], blueprint, nodes, self.pool.clone());
        let (new, panics) = new.install(std::slice::from_mut(&mut self.graph), 0);
        let old = std::mem::replace(&mut self.graph, new);
        let panics = [panics, old.retire(|_, retire| retire())].concat();
        assert!(panics.is_empty(), "{} panicked: {panics:?}", self.kind);
        self.check_accounting(0, 0);
    }

    /// Feeds frames to the first input and returns those sent to the first output, in order.
    ///
    /// # Panics
    /// If a check of the [harness](Harness) fails, a frame is longer than 2048 bytes, or there are more frames than
    /// buffers ([`HarnessBuilder::buffers`](crate::HarnessBuilder::buffers)).
    #[track_caller]
    pub fn feed(&mut self, frames: &[impl AsRef<[u8]>]) -> Frames {
        self.feed_input(0, frames).into_iter().next().unwrap_or_default()
    }

    /// Feeds frames to input number `input`, from 0, and returns the frames sent to each output.
    ///
    /// # Panics
    /// Like [`feed`](Harness::feed), and if there is no such input.
    #[track_caller]
    pub fn feed_input(&mut self, input: usize, frames: &[impl AsRef<[u8]>]) -> Vec<Frames> {
        assert!(input < self.inputs, "{} has {} inputs: no input {input}", self.kind, self.inputs);
        let mut out = self.collect();
        for burst in frames.chunks(BURST) {
            let mut batch = Batch::new();
            burst.iter().for_each(|frame| batch.push(self.packet(frame.as_ref())).expect("a chunk is at most a burst"));
            self.graph.run::<false>(Target::Hop(Hop(input as u16)), &mut batch, &mut out);
        }
        self.finish_call(out)
    }

    /// Feeds one frame to the first input and returns the frame sent to the first output.
    ///
    /// # Errors
    /// The drop reason, if the frame was dropped.
    ///
    /// # Panics
    /// Like [`feed`](Harness::feed), and if the frame was held or sent to another output: use
    /// [`feed_input`](Harness::feed_input), or [`jump_to`](Harness::jump_to) to release it.
    #[track_caller]
    pub fn feed_one(&mut self, frame: &[u8]) -> Result<Vec<u8>, &'static str> {
        let before = self.drops();
        let mut out = self.feed_input(0, &[frame]);
        let reason = self.drops().into_iter().find(|drop| !before.contains(drop));
        match (out.first_mut().and_then(Vec::pop), reason) {
            (Some(frame), _) => Ok(frame),
            (None, Some((reason, _))) => Err(reason),
            (None, None) => {
                let outputs: Vec<_> =
                    self.outputs.iter().zip(&out).filter(|(_, o)| !o.is_empty()).map(|(n, _)| n).collect();
                panic!(
                    "the frame was neither dropped nor sent to the first output: it was sent to {outputs:?} or is held"
                )
            }
        }
    }

    /// Sets the time to `now` in one step and runs the timer of the NF, once if it is due, as after a pause of the
    /// worker. Returns the frames sent to each output. Time starts at 0; an earlier time is ignored.
    ///
    /// # Panics
    /// If a check of the [harness](Harness) fails.
    #[track_caller]
    pub fn jump_to(&mut self, now: Duration) -> Vec<Frames> {
        self.now = self.now.max(now);
        let mut out = self.collect();
        self.graph.run_timers(self.now, &mut out);
        self.finish_call(out)
    }

    /// Advances the time in steps of a millisecond, like a worker. Returns the frames sent to each output.
    ///
    /// # Panics
    /// If a check of the [harness](Harness) fails.
    #[track_caller]
    pub fn advance(&mut self, by: Duration) -> Vec<Frames> {
        const STEP: Duration = Duration::from_millis(1);
        let until = self.now + by;
        let mut all = vec![vec![]; self.outputs.len()];
        while self.now < until {
            let out = self.jump_to((self.now + STEP).min(until));
            all.iter_mut().zip(out).for_each(|(all, out)| all.extend(out));
        }
        all
    }

    /// Returns the current time.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Returns the drop reasons with counts above 0, in the order of declaration. Reasons of the same name are added
    /// up.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        let mut all: Vec<(&'static str, u64)> = vec![];
        let stats = self.stats();
        for (&reason, n) in stats.reasons.iter().zip(stats.drops.iter().map(|count| count.get())) {
            match all.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, sum)) => *sum += n,
                None => all.push((reason, n)),
            }
        }
        all.retain(|(_, n)| *n != 0);
        all
    }

    /// Returns the number of packets dropped for this reason.
    ///
    /// # Panics
    /// If the NF has no such reason.
    #[track_caller]
    pub fn dropped(&self, reason: &str) -> u64 {
        let reasons = &self.stats().reasons;
        assert!(reasons.contains(&reason), "{} has no drop reason {reason:?}: it has {reasons:?}", self.kind);
        self.drops().iter().find(|(name, _)| *name == reason).map_or(0, |(_, n)| *n)
    }

    /// Returns the counters of the NF, in order.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.stats().counters().into_iter().map(|(name, count)| (name, count.get())).collect()
    }

    /// Returns a counter of the NF.
    ///
    /// # Panics
    /// If the NF has no such counter.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        let all = self.counters();
        let counter = all.iter().find(|(known, _)| known == name);
        counter.unwrap_or_else(|| panic!("{} has no counter {name:?}: it has {all:?}", self.kind)).1
    }

    /// Returns the entries and the capacity of a bounded table of the NF.
    ///
    /// # Panics
    /// If the NF has no such table.
    #[track_caller]
    pub fn occupancy(&self, table: &str) -> (u64, u64) {
        let all = self.stats().bounded_tables();
        let found = all.iter().find(|known| known.name == table);
        let found = found.unwrap_or_else(|| panic!("{} has no table {table:?}: it has {all:?}", self.kind));
        (found.entries.get(), found.capacity)
    }

    /// Returns the number of packets that the NF holds.
    pub fn held(&self) -> u64 {
        self.stats().held.get()
    }

    /// Returns the number of packets that the NF has created.
    pub fn created(&self) -> u64 {
        self.stats().created.get()
    }

    /// Returns the rows of the table of the NF, after a call of [`Node::finish`] as at the end of a run.
    pub fn table(&mut self) -> Vec<Vec<String>> {
        let panicked = self.graph.finish();
        assert!(panicked.is_empty(), "{} panicked: {panicked:?}", self.kind);
        self.stats().table().iter().flat_map(|table| table.rows()).map(|(_, row)| row).collect()
    }

    /// Returns the number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the names of the outputs, in the order of the frames that [`feed_input`](Harness::feed_input) returns.
    pub fn outputs(&self) -> &[String] {
        &self.outputs
    }

    pub(crate) fn graph(&mut self) -> &mut Graph {
        &mut self.graph
    }

    fn stats(&self) -> Arc<NodeStats> {
        self.graph.stats().next().expect("there is one node").1.clone()
    }

    fn collect(&self) -> Collect {
        let mut out = vec![];
        out.resize_with(self.outputs.len(), Vec::new);
        Collect(out)
    }

    /// Allocates a packet.
    #[track_caller]
    pub(crate) fn packet(&self, frame: &[u8]) -> Packet {
        self.pool.alloc_from(frame).unwrap_or_else(|| match self.pool.alloc() {
            Some(_) => panic!("a frame of {} bytes does not fit in a packet", frame.len()),
            None => panic!(
                "all {} buffers are in use: feed fewer frames at once, or set HarnessBuilder::buffers",
                self.pool.in_use()
            ),
        })
    }

    /// Returns the bytes of the sent packets after checking that none is missing.
    #[track_caller]
    fn finish_call(&mut self, out: Collect) -> Vec<Frames> {
        let sent = out.0.iter().map(Vec::len).sum();
        self.check_accounting(sent, sent);
        out.0.iter().map(|packets| packets.iter().map(|p| p.data().to_vec()).collect()).collect()
    }

    /// Checks that no packet is missing after `sent` more packets were sent, while `external` packets exist outside the
    /// NF.
    #[track_caller]
    pub(crate) fn check_accounting(&mut self, sent: usize, external: usize) {
        self.sent += sent as u64;
        let stats = self.stats();
        let held = stats.held.get();
        let (in_use, accounted) = (self.pool.in_use() as u64, external as u64 + held);
        assert_eq!(
            in_use, accounted,
            "{} keeps packets that it has neither sent nor dropped nor held: use a HoldQueue and Context::hold",
            self.kind
        );
        let vanished = self.dropped("vanished");
        assert_eq!(
            vanished, 0,
            "{} frees packets without counting them, or for a reason that Node::drops does not list: use Context::drop",
            self.kind
        );
        let (received, created, dropped) = (stats.packets.get(), stats.created.get(), stats.dropped());
        assert_eq!(
            received + created,
            self.sent + held + dropped,
            "{}: received {received} + created {created} != sent {} + held {held} + dropped {dropped}",
            self.kind,
            self.sent
        );
    }
}

impl std::fmt::Debug for Harness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Harness")
            .field("kind", &self.kind)
            .field("now", &self.now)
            .field("drops", &self.drops())
            .finish_non_exhaustive()
    }
}
