//! One NF, packets in, packets out.

use crate::{Frames, Setup};
use diagnostics::Diagnostic;
use graph::{Blueprint, Graph, Hop, HopPlan, Nf, Node, NodePlan, NodeStats, Sink, Target};
use packet::{BURST, Batch, HeapPool, Packet, Pool};
use std::sync::Arc;
use std::time::Duration;

/// Packets that there can be at a time, when nobody says otherwise.
pub(crate) const BUFFERS: usize = 4096;

/// An NF on a bench.
///
/// Frames go in as bursts of 32, as from a port. Each output leads to a port of its own, whose frames are handed back.
/// After every call that moves packets the bench **panics, and so fails the test,** when
///
/// * a packet is missing: the NF has neither sent nor dropped it, and does not hold it through [`graph::Context::hold`],
/// * the NF has let go of one without a word, which a chain counts as `vanished`,
/// * the sum is wrong: `received + created = sent + held + dropped`.
///
/// A panic of the NF itself goes through to the test.
pub struct Bench {
    kind: &'static str,
    inputs: usize,
    outputs: Vec<String>,
    /// Packets that have come out so far.
    sent: u64,
    /// What the graph's clock shows.
    now: Duration,
    pool: Arc<HeapPool>,
    graph: Graph,
}

/// Keeps what leaves, by port.
struct Collect(Vec<Vec<Packet>>);

impl Sink for Collect {
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch) {
        self.0[port as usize].extend(batch.drain());
    }
}

impl Bench {
    /// An NF with settings as they stand in a chain file below `kind`.
    ///
    /// # Panics
    /// When the settings are wrong, with what is wrong. [`try_of`](Bench::try_of) returns it.
    #[track_caller]
    pub fn of<N: Nf>(settings: &str) -> Self {
        Self::try_of::<N>(settings).unwrap_or_else(|fault| panic!("{}: {fault}", N::KIND))
    }

    /// As [`of`](Bench::of), to test what is refused. [`Setup`] can say more.
    ///
    /// # Errors
    /// A setting that is none, or makes no sense.
    pub fn try_of<N: Nf>(settings: &str) -> Result<Self, Diagnostic> {
        Setup::of::<N>(settings).build()
    }

    /// A node without an NF around it: a chain of operators, or one by hand. It has one input, and the outputs that it
    /// names.
    ///
    /// ```
    /// use graph::{Operator, frame};
    /// use testkit::{Bench, wire::build};
    /// use wire::{Ethernet, Ipv4};
    ///
    /// let ipv4 = frame().parse::<Ethernet>().parse_if::<Ipv4>();
    /// let mut near = Bench::node(ipv4.filter("too_far", |ip| ip.header().ttl() > 9).compose());
    /// let packet = |ttl| build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53).ttl(ttl).to_vec();
    /// assert_eq!(near.one(&packet(10)), Ok(packet(10)));
    /// assert_eq!(near.one(&packet(9)), Err("too_far"));
    /// ```
    pub fn node(node: impl Node + 'static) -> Self {
        let outputs = node.outputs().iter().map(|&output| output.to_owned()).collect();
        Self::new("the node", Box::new(node), (1, 1), outputs, BUFFERS)
    }

    pub(crate) fn new(
        kind: &'static str,
        node: Box<dyn Node>,
        (inputs, paths): (usize, usize),
        mut outputs: Vec<String>,
        buffers: usize,
    ) -> Self {
        // the first output of each path, and then the others
        let others = paths as u16..(paths + outputs.len().saturating_sub(1)) as u16;
        let edges = std::iter::once(Target::Nowhere).chain(others.map(Target::Port)).collect();
        let first = outputs.first().cloned();
        let next = |path| if first.is_some() { Target::Port(path) } else { Target::Nowhere };
        let blueprint = Blueprint {
            nodes: vec![NodePlan { name: kind.to_owned(), edges }],
            hops: (0..paths as u16)
                .flat_map(|path| (0..inputs as u8).map(move |input| (path, input)))
                .map(|(path, input)| HopPlan { node: 0, input, next: next(path), open: false })
                .collect(),
        };
        if let Some(first) = first {
            outputs.splice(0..1, std::iter::repeat_n(first, paths));
        }
        let inputs = inputs * paths;
        let pool = Arc::new(HeapPool::new(buffers));
        let graph = Graph::new(&blueprint, vec![node], pool.clone());
        Bench { kind, inputs, outputs, sent: 0, now: Duration::ZERO, pool, graph }
    }

    /// Feeds frames; those that leave by the first output, in their order.
    ///
    /// # Panics
    /// As said above; also when a frame is longer than a packet, 2048 bytes, or there are more than there are buffers
    /// ([`Setup::buffers`]).
    #[track_caller]
    pub fn feed(&mut self, frames: &[impl AsRef<[u8]>]) -> Frames {
        self.feed_by(0, frames).into_iter().next().unwrap_or_default()
    }

    /// Feeds frames by input number `input`, from 0; those that leave, for each output.
    ///
    /// # Panics
    /// As [`feed`](Bench::feed), and when there is no such input.
    #[track_caller]
    pub fn feed_by(&mut self, input: usize, frames: &[impl AsRef<[u8]>]) -> Vec<Frames> {
        assert!(input < self.inputs, "{} has {} inputs, and no number {input}", self.kind, self.inputs);
        let mut out = self.collect();
        for burst in frames.chunks(BURST) {
            let mut batch = Batch::new();
            burst.iter().for_each(|frame| batch.push(self.packet(frame.as_ref())).expect("a chunk is a burst at most"));
            self.graph.run::<false>(Target::Hop(Hop(input as u16)), &mut batch, &mut out);
        }
        self.settle(out)
    }

    /// Feeds one frame: it as it leaves by the first output, or the reason for which it is dropped.
    ///
    /// # Panics
    /// As [`feed`](Bench::feed), and when neither comes of it: [`feed_by`](Bench::feed_by) shows other outputs, and
    /// [`wake`](Bench::wake) lets out what is held.
    #[track_caller]
    pub fn one(&mut self, frame: &[u8]) -> Result<Vec<u8>, &'static str> {
        let before = self.drops();
        let mut out = self.feed_by(0, &[frame]);
        let reason = self.drops().into_iter().find(|drop| !before.contains(drop));
        match (out.first_mut().and_then(Vec::pop), reason) {
            (Some(frame), _) => Ok(frame),
            (None, Some((reason, _))) => Err(reason),
            (None, None) => {
                let by: Vec<_> = self.outputs.iter().zip(&out).filter(|(_, o)| !o.is_empty()).map(|(n, _)| n).collect();
                panic!("the frame was not dropped and did not leave by the first output; it left by {by:?}, or is held")
            }
        }
    }

    /// Lets the clock show `now`, at once: the NF is woken if it is due by then, and once only, as after a pause of the
    /// worker. What leaves, for each output. Time begins at 0 and does not go back.
    ///
    /// # Panics
    /// As said above.
    #[track_caller]
    pub fn wake(&mut self, now: Duration) -> Vec<Frames> {
        self.now = self.now.max(now);
        let mut out = self.collect();
        self.graph.wake(self.now, &mut out);
        self.settle(out)
    }

    /// Lets time go by in steps of a millisecond, as a worker tells it. What leaves meanwhile, for each output.
    ///
    /// # Panics
    /// As said above.
    #[track_caller]
    pub fn advance(&mut self, by: Duration) -> Vec<Frames> {
        const STEP: Duration = Duration::from_millis(1);
        let until = self.now + by;
        let mut all = vec![vec![]; self.outputs.len()];
        while self.now < until {
            let out = self.wake((self.now + STEP).min(until));
            all.iter_mut().zip(out).for_each(|(all, out)| all.extend(out));
        }
        all
    }

    /// What the clock shows.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// What has been dropped so far: reasons in their order, with counts that are not 0. Reasons of one name count
    /// together.
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

    /// Packets dropped so far for this reason.
    ///
    /// # Panics
    /// When the NF has no such reason.
    #[track_caller]
    pub fn dropped(&self, reason: &str) -> u64 {
        let reasons = &self.stats().reasons;
        assert!(reasons.contains(&reason), "{} has no drop reason {reason:?}, but {reasons:?}", self.kind);
        self.drops().iter().find(|(name, _)| *name == reason).map_or(0, |(_, n)| *n)
    }

    /// The NF's own counters, in their order.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.stats().counters().into_iter().map(|(name, count)| (name, count.get())).collect()
    }

    /// One of the NF's own counters.
    ///
    /// # Panics
    /// When the NF has no such counter.
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        let all = self.counters();
        let found = all.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("{} has no counter {name:?}, but {all:?}", self.kind)).1
    }

    /// Packets that the NF holds for later.
    pub fn held(&self) -> u64 {
        self.stats().held.get()
    }

    /// Packets that the NF has made.
    pub fn created(&self) -> u64 {
        self.stats().created.get()
    }

    /// The rows of the NF's table, after it has brought up to date what it shows, as at the end of a run.
    pub fn table(&mut self) -> Vec<Vec<String>> {
        let panicked = self.graph.finish();
        assert!(panicked.is_empty(), "{} panicked: {panicked:?}", self.kind);
        self.stats().board().iter().flat_map(|board| board.rows()).map(|(_, row)| row).collect()
    }

    /// How many inputs it has.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Names of the outputs; their places are the numbers by which [`feed_by`](Bench::feed_by) orders what leaves.
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

    /// A packet of the bench's.
    #[track_caller]
    pub(crate) fn packet(&self, frame: &[u8]) -> Packet {
        self.pool.alloc_from(frame).unwrap_or_else(|| match self.pool.alloc() {
            Some(_) => panic!("a frame of {} bytes does not fit in a packet", frame.len()),
            None => panic!(
                "all {} buffers are in use: feed fewer frames at once, or see Setup::buffers",
                self.pool.in_use()
            ),
        })
    }

    /// The bytes of what came out, after seeing that nothing is missing.
    #[track_caller]
    fn settle(&mut self, out: Collect) -> Vec<Frames> {
        let sent = out.0.iter().map(Vec::len).sum();
        self.account(sent, sent);
        out.0.iter().map(|packets| packets.iter().map(|p| p.data().to_vec()).collect()).collect()
    }

    /// Sees that nothing is missing after `sent` more packets came out, while `kept` packets are in other hands than
    /// the NF's.
    #[track_caller]
    pub(crate) fn account(&mut self, sent: usize, kept: usize) {
        self.sent += sent as u64;
        let stats = self.stats();
        let held = stats.held.get();
        let (away, known) = (self.pool.in_use() as u64, kept as u64 + held);
        assert_eq!(
            away, known,
            "{} keeps packets that it has neither sent, nor dropped, nor put into graph::Held by Context::hold",
            self.kind
        );
        let vanished = self.dropped("vanished");
        assert_eq!(
            vanished, 0,
            "{} lets go of packets without a word, or for a reason that it does not name: Context::drop them for one of \
             Node::drops",
            self.kind
        );
        let (received, created, dropped) = (stats.packets.get(), stats.created.get(), stats.dropped());
        assert_eq!(
            received + created,
            self.sent + held + dropped,
            "{}: received {received} + created {created} is not sent {} + held {held} + dropped {dropped}",
            self.kind,
            self.sent
        );
    }
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench")
            .field("kind", &self.kind)
            .field("now", &self.now)
            .field("drops", &self.drops())
            .finish_non_exhaustive()
    }
}
