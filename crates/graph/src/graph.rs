//! Nodes joined into a graph, and the loop that takes batches through it.

use crate::context::BatchState;
use crate::context::PathId;
use crate::stats::Shown;
use crate::stats::{NF_PANIC, NO_EDGE, VANISHED};
use crate::{Context, Node, NodeStats, caught};
use packet::{BURST, Batch, Packet, Pool, clock};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Where packets go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a hop.
    Hop(Hop),
    /// To the port of this number.
    Port(u16),
    /// Nowhere: they are dropped as `no_edge`.
    Nowhere,
}

/// A visit to a node by one of its inputs; number in [`Blueprint::hops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop(pub u16);

/// A graph to be built: which nodes there are and how packets go from one to the next.
#[derive(Clone, Debug, Default)]
pub struct Blueprint {
    /// The nodes, each one NF of the file.
    pub nodes: Vec<NodePlan>,
    /// The visits to them. A node that stands in several paths has several.
    pub hops: Vec<HopPlan>,
}

/// A node to be built.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// Name of the NF.
    pub name: String,
    /// Where each output but the first leads; index 0 is not used, the first output leads where the hop says.
    pub edges: Vec<Target>,
}

/// A visit to a node.
#[derive(Clone, Copy, Debug)]
pub struct HopPlan {
    /// Number of the node.
    pub node: u16,
    /// Number of the input.
    pub input: u8,
    /// Where the first output leads.
    pub next: Target,
    /// Whether packets pass while the node has panicked and there is no new one yet; else they are dropped as `nf_panic`.
    pub open: bool,
}

impl Blueprint {
    /// The nodes of a loop in which packets could go round for ever, if there is one.
    pub fn find_loop(&self) -> Option<Vec<u16>> {
        // depth first: 0 unseen, 1 on the current way, 2 done
        fn visit(b: &Blueprint, hop: u16, state: &mut [u8], way: &mut Vec<u16>) -> bool {
            match state[hop as usize] {
                1 => {
                    let from = way.iter().position(|&h| h == hop).unwrap_or(0);
                    way.drain(..from);
                    return true;
                }
                2 => return false,
                _ => state[hop as usize] = 1,
            }
            way.push(hop);
            let plan = b.hops[hop as usize];
            let edges = b.nodes[plan.node as usize].edges.iter().skip(1);
            for target in std::iter::once(&plan.next).chain(edges) {
                if let Target::Hop(Hop(next)) = *target
                    && visit(b, next, state, way)
                {
                    return true;
                }
            }
            way.pop();
            state[hop as usize] = 2;
            false
        }
        let mut state = vec![0; self.hops.len()];
        let mut way = vec![];
        (0..self.hops.len() as u16)
            .any(|hop| visit(self, hop, &mut state, &mut way))
            .then(|| way.iter().map(|&h| self.hops[h as usize].node).collect())
    }
}

impl Blueprint {
    /// Ways that a packet and its copies can take from `entry` to the end, for a graph without loops: what one packet can
    /// cost at the most.
    pub fn ways(&self, entry: Target) -> u64 {
        fn ways(b: &Blueprint, target: Target, known: &mut [u64]) -> u64 {
            let Target::Hop(Hop(hop)) = target else { return 1 };
            if known[hop as usize] == 0 {
                let plan = b.hops[hop as usize];
                let edges = b.nodes[plan.node as usize].edges.iter().skip(1);
                let all = std::iter::once(&plan.next).chain(edges);
                let sum = all.map(|t| ways(b, *t, known)).fold(0, u64::saturating_add);
                known[hop as usize] = sum;
            }
            known[hop as usize]
        }
        ways(self, entry, &mut vec![0; self.hops.len()])
    }
}

/// Where a graph's packets leave it.
pub trait Sink {
    /// Takes all packets of the batch and leaves it empty. What cannot be sent is dropped there, and counted there.
    fn send<const TIMED: bool>(&mut self, port: u16, batch: &mut Batch);
}

/// A panic in a node, caught.
pub struct Panicked {
    /// Number of the node in the blueprint.
    pub node: u16,
    /// What it said.
    pub message: String,
    /// Packets lost with it.
    pub packets: u64,
    /// The node as the panic has left it: to be dropped, which may panic as well, where nothing waits.
    pub old: Box<dyn Node>,
}

/// The hop that runs, for whoever watches from another thread: it, and behind it a number that is another each time.
#[derive(Clone, Debug, Default)]
pub struct Running(Arc<AtomicU64>);

impl Running {
    /// No hop is running.
    const NONE: u64 = 0;
    /// Bits of a hop.
    const HOP: u32 = 17;

    #[inline(always)]
    fn set(&self, hop: Hop, turn: &mut u64) {
        *turn = turn.wrapping_add(1 << Self::HOP);
        self.0.store(*turn | (u64::from(hop.0) + 1), Ordering::Relaxed);
    }

    #[inline(always)]
    fn clear(&self) {
        self.0.store(Self::NONE, Ordering::Relaxed);
    }

    /// The hop that runs now, if any.
    #[inline(always)]
    pub fn hop(&self) -> Option<Hop> {
        let hop = self.0.load(Ordering::Relaxed) & ((1 << Self::HOP) - 1);
        hop.checked_sub(1).map(|hop| Hop(hop as u16))
    }

    /// A number that is another for every batch, and for every hop that it visits.
    pub fn turn(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Packets that a copy of a node has held and lost with the queue they were in.
#[derive(Clone, Default)]
pub(crate) struct Lost(Arc<AtomicUsize>);

impl Lost {
    pub(crate) fn add(&self, packets: usize) {
        self.0.fetch_add(packets, Ordering::Relaxed);
    }

    pub(crate) fn is(&self, other: &Lost) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn take(&self) -> u64 {
        if self.0.load(Ordering::Relaxed) == 0 { 0 } else { self.0.swap(0, Ordering::Relaxed) as u64 }
    }
}

/// A new copy of a node, with what it says of itself; asked where it was built.
pub struct Ready {
    node: Box<dyn Node>,
    every: Option<Duration>,
    shown: Shown,
}

impl Ready {
    /// Asks the node.
    pub fn new(node: Box<dyn Node>) -> Self {
        Ready { every: node.interval(), shown: Shown::of(&*node), node }
    }
}

/// Nodes on one core, joined.
pub struct Graph {
    hops: Box<[Visit]>,
    slots: Box<[Slot]>,
    /// Hops and outputs with packets waiting, newest last.
    backlog: Vec<(Hop, u8)>,
    desk: BatchState,
    /// Packets that went into the node that is running.
    entered: usize,
    /// Counts the visits, in the upper bits of [`Running`].
    turn: u64,
}

struct Visit {
    plan: HopPlan,
    /// What was emitted and waits, for each output.
    outbox: Box<[Vec<Packet>]>,
}

struct Slot {
    name: String,
    node: Box<dyn Node>,
    stats: Arc<NodeStats>,
    lost: Lost,
    edges: Box<[Target]>,
    /// The first hop by each input.
    ways: Box<[Option<Hop>]>,
    every: Option<Duration>,
    woken: Duration,
}

/// Takes the place of a node that has panicked: what comes passes, or is dropped as `nf_panic`, as each hop says.
struct StandIn {
    open: Box<[bool]>,
}

impl Node for StandIn {
    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        if cx.desk.running.hop().is_some_and(|Hop(hop)| self.open[hop as usize]) {
            return;
        }
        let reason = cx.stats.drops.len() - NodeStats::EVERY.len() + NF_PANIC;
        batch.drain().for_each(|p| cx.drop(reason as u8, p));
    }
}

impl Drop for Graph {
    /// Drops every node, whatever another does then.
    fn drop(&mut self) {
        self.retire();
    }
}

impl Graph {
    /// Joins `nodes`, one for each of the blueprint's, in order. Packets that nodes create come from `pool`.
    ///
    /// # Panics
    /// When the blueprint names what is not there, or has a loop ([`Blueprint::find_loop`] tells).
    pub fn new(blueprint: &Blueprint, nodes: Vec<Box<dyn Node>>, pool: Arc<dyn Pool + Send + Sync>) -> Self {
        assert_eq!(nodes.len(), blueprint.nodes.len(), "one node for each planned");
        assert_eq!(blueprint.find_loop(), None, "packets would go round for ever");
        let real = |t: &Target| !matches!(t, Target::Hop(Hop(h)) if *h as usize >= blueprint.hops.len());
        assert!(
            blueprint.hops.iter().all(|h| (h.node as usize) < nodes.len() && real(&h.next)),
            "hops lead to what is there"
        );
        let ways = |node: usize| {
            let inputs = blueprint.hops.iter().filter(|h| h.node as usize == node).map(|h| h.input);
            let first = |input| blueprint.hops.iter().position(|h| h.node as usize == node && h.input == input);
            (0..=inputs.max().unwrap_or(0)).map(|input| first(input).map(|hop| Hop(hop as u16))).collect()
        };
        let slots = nodes.into_iter().zip(&blueprint.nodes).enumerate().map(|(number, (node, plan))| {
            assert!(plan.edges.iter().all(real), "edges lead to what is there");
            Slot {
                name: plan.name.clone(),
                stats: Arc::new(NodeStats::new(&*node)),
                lost: Lost::default(),
                ways: ways(number),
                edges: plan.edges.clone().into(),
                every: node.interval(),
                woken: Duration::ZERO,
                node,
            }
        });
        let slots: Box<[Slot]> = slots.collect();
        let visit = |plan: &HopPlan| {
            let edges = slots[plan.node as usize].edges.iter();
            Visit { plan: *plan, outbox: edges.map(|_| Vec::with_capacity(2 * BURST)).collect() }
        };
        Graph {
            hops: blueprint.hops.iter().map(visit).collect(),
            slots,
            backlog: Vec::with_capacity(16),
            desk: BatchState {
                pool,
                gone: Batch::new(),
                dropped: 0,
                emitted: 0,
                created: 0,
                held: 0,
                released: 0,
                leave: 0,
                touched: false,
                now: Duration::ZERO,
                running: Running::default(),
                strays: vec![],
            },
            entered: 0,
            turn: 0,
        }
    }

    /// The nodes' names and counts, in the blueprint's order.
    pub fn stats(&self) -> impl Iterator<Item = (&str, &Arc<NodeStats>)> {
        self.slots.iter().map(|s| (s.name.as_str(), &s.stats))
    }

    /// Takes a batch through the graph from `entry` until every packet has left it or was dropped; the batch is empty
    /// then. When `TIMED`, cycles are measured.
    #[inline(always)]
    pub fn run<const TIMED: bool>(&mut self, entry: Target, batch: &mut Batch, sink: &mut impl Sink) {
        self.walk::<TIMED>(entry, batch, sink);
        if !self.backlog.is_empty() {
            self.catch_up::<TIMED>(sink);
        }
    }

    #[inline(always)]
    fn walk<const TIMED: bool>(&mut self, mut target: Target, batch: &mut Batch, sink: &mut impl Sink) {
        let mut from = if TIMED { clock::cycles() } else { 0 };
        while let Target::Hop(at) = target {
            let Visit { plan, outbox } = &mut self.hops[at.0 as usize];
            let plan = *plan;
            let slot = &mut self.slots[plan.node as usize];
            let n = batch.len();
            slot.stats.packets.add(n as u64);
            self.entered = n;
            self.desk.running.set(at, &mut self.turn);
            let mut cx = Context { desk: &mut self.desk, outbox, stats: &slot.stats, lost: &slot.lost, ways: &slot.ways };
            slot.node.process(&mut cx, plan.input, batch);
            if TIMED {
                let now = clock::cycles();
                slot.stats.timed_cycles.add(now - from);
                slot.stats.timed_packets.add(n as u64);
                slot.stats.timed_batches.add(1);
                from = now;
            }
            target = plan.next;
            if self.desk.leave != 0 {
                let output = core::mem::take(&mut self.desk.leave);
                target = slot.edges.get(output as usize).copied().unwrap_or(Target::Nowhere);
            }
            if batch.len() != n || self.desk.touched {
                self.settle(at, n, batch);
                if batch.is_empty() {
                    break;
                }
            }
        }
        match target {
            Target::Port(port) if !batch.is_empty() => {
                self.desk.running.clear();
                sink.send::<TIMED>(port, batch);
            }
            Target::Nowhere => self.lose(batch),
            _ => self.desk.running.clear(),
        }
    }

    /// Drops what a node has sent where nothing is.
    #[cold]
    fn lose(&mut self, batch: &mut Batch) {
        let hop = self.desk.running.hop();
        self.desk.running.clear();
        if let Some(Hop(hop)) = hop {
            let slot = &self.slots[self.hops[hop as usize].plan.node as usize];
            slot.stats.drop_every(NO_EDGE, batch.len() as u64);
        }
        batch.clear();
    }

    /// Books what a node did besides changing its batch in place.
    #[inline(never)]
    fn settle(&mut self, at: Hop, n: usize, batch: &Batch) {
        let BatchState { gone, dropped, emitted, created, held, released, touched, strays, .. } = &mut self.desk;
        gone.clear();
        let node = self.hops[at.0 as usize].plan.node;
        for (PathId(hop), packet) in strays.drain(..) {
            // a way out of another node is none
            let own = self.hops.get(hop.0 as usize).is_some_and(|h| h.plan.node == node);
            let hop = if own { hop } else { at };
            let out = &mut self.hops[hop.0 as usize].outbox[0];
            if out.is_empty() {
                self.backlog.push((hop, 0));
            }
            out.push(packet);
        }
        let (came, went) = (n + *created + *released, batch.len() + *dropped + *emitted + *held);
        let Slot { stats, lost, .. } = &self.slots[node as usize];
        match came.cmp(&went) {
            core::cmp::Ordering::Greater => stats.drop_every(VANISHED, (came - went) as u64),
            // it had kept them without a word, and they were counted as vanished
            core::cmp::Ordering::Less => stats.created.add((went - came) as u64),
            core::cmp::Ordering::Equal => {}
        }
        stats.lose_held(lost.take());
        if *emitted != 0 {
            let waiting = self.hops[at.0 as usize].outbox.iter().enumerate().filter(|(_, packets)| !packets.is_empty());
            self.backlog.extend(waiting.map(|(output, _)| (at, output as u8)));
        }
        (*dropped, *emitted, *created, *held, *released, *touched) = (0, 0, 0, 0, 0, false);
    }

    /// Tells the time, which is that since the graph was made, and wakes the nodes that wait for it.
    pub fn wake(&mut self, now: Duration, sink: &mut impl Sink) {
        self.desk.now = now;
        for node in 0..self.slots.len() {
            let slot = &mut self.slots[node];
            if slot.every.is_none_or(|every| now < slot.woken + every) {
                continue;
            }
            slot.woken = now;
            let Some(at) = self.hops.iter().position(|h| h.plan.node as usize == node) else { continue };
            self.entered = 0;
            self.desk.running.set(Hop(at as u16), &mut self.turn);
            let outbox = &mut self.hops[at].outbox;
            let mut cx = Context { desk: &mut self.desk, outbox, stats: &slot.stats, lost: &slot.lost, ways: &slot.ways };
            slot.node.on_timer(&mut cx);
            self.desk.running.clear();
            self.desk.leave = 0;
            self.settle(Hop(at as u16), 0, &Batch::new());
            self.catch_up::<false>(sink);
        }
    }

    /// Has every node bring up to date what it shows; the names of those that panicked at that, and what they said.
    pub fn finish(&mut self) -> Vec<(String, String)> {
        let told = self.each(|slot| slot.node.finish());
        self.slots.iter().for_each(|slot| slot.stats.lose_held(slot.lost.take()));
        told
    }

    /// Drops every node; the names of those that panicked at that, and what they said. What they held stays counted as
    /// held. Whatever comes from now on is dropped.
    pub fn retire(&mut self) -> Vec<(String, String)> {
        self.each(|slot| {
            let gone = StandIn { open: Box::default() };
            drop(core::mem::replace(&mut slot.node, Box::new(gone)));
        })
    }

    /// Does something to every node, as the hop that runs, whatever others do then.
    fn each(&mut self, does: impl Fn(&mut Slot)) -> Vec<(String, String)> {
        let mut told = vec![];
        for node in 0..self.slots.len() as u16 {
            if let Some(at) = self.hops.iter().position(|h| h.plan.node == node) {
                self.desk.running.set(Hop(at as u16), &mut self.turn);
            }
            let slot = &mut self.slots[node as usize];
            told.extend(caught::caught(|| does(slot)).err().map(|message| (slot.name.clone(), message)));
            self.desk.running.clear();
        }
        told
    }

    /// Takes what nodes emitted through the rest of the graph.
    #[inline(never)]
    fn catch_up<const TIMED: bool>(&mut self, sink: &mut impl Sink) {
        while let Some((at, output)) = self.backlog.pop() {
            let hop = self.hops[at.0 as usize].plan;
            let target = match output {
                0 => hop.next,
                _ => self.slots[hop.node as usize].edges[output as usize],
            };
            loop {
                let waiting = &mut self.hops[at.0 as usize].outbox[output as usize];
                let mut batch = Batch::new();
                batch.fill_from(waiting);
                if batch.is_empty() {
                    break;
                }
                if target == Target::Nowhere {
                    self.slots[hop.node as usize].stats.drop_every(NO_EDGE, batch.len() as u64);
                }
                self.walk::<TIMED>(target, &mut batch, sink);
            }
        }
    }

    /// The hop that runs, to be watched.
    pub fn running(&self) -> &Running {
        &self.desk.running
    }

    /// Name of the node of a hop.
    pub fn name(&self, Hop(hop): Hop) -> &str {
        &self.slots[self.hops[hop as usize].plan.node as usize].name
    }

    /// After a panic in [`Graph::run`]: counts every packet on its way as `nf_panic`, and takes the node out, until
    /// [`Graph::renew`] puts another in its place; till then what comes passes or is dropped for that reason, as
    /// [`HopPlan::open`] says.
    ///
    /// # Errors
    /// What was thrown, and no change, when it was no node that panicked.
    pub fn contain(&mut self, batch: &mut Batch, thrown: Box<dyn Any + Send>) -> Result<Panicked, Box<dyn Any + Send>> {
        let Some(Hop(hop)) = self.desk.running.hop() else { return Err(thrown) };
        // of the node's making as well, so it still runs
        let message = caught::message(thrown);
        self.desk.running.clear();
        let (node, n) = (self.hops[hop as usize].plan.node, core::mem::take(&mut self.entered));
        let BatchState { gone, dropped, emitted, created, held, released, leave, touched, strays, .. } = &mut self.desk;
        gone.clear();
        // what the node had in its hands went home while the stack unwound
        let in_hand = (n + *created + *released).saturating_sub(batch.len() + *dropped + *emitted + *held);
        let waiting: usize = self.hops.iter_mut().flat_map(|h| &mut h.outbox).map(|o| o.drain(..).count()).sum();
        let waiting = waiting + strays.drain(..).count();
        (*dropped, *emitted, *created, *held, *released, *leave, *touched) = (0, 0, 0, 0, 0, 0, false);
        let in_batch = (batch.len() + in_hand + waiting) as u64;
        batch.clear();
        self.backlog.clear();
        let slot = &mut self.slots[node as usize];
        // what it keeps goes home with it
        slot.stats.lose_held(core::mem::take(&mut slot.lost).take());
        let kept = slot.stats.held.get();
        slot.stats.held.set(0);
        slot.every = None;
        let packets = in_batch + kept;
        slot.stats.drop_every(NF_PANIC, packets);
        let open = self.hops.iter().map(|h| h.plan.open).collect();
        let old = core::mem::replace(&mut slot.node, Box::new(StandIn { open }));
        Ok(Panicked { node, message, packets, old })
    }

    /// Puts a new copy in the place of a node that has panicked. It begins anew: with no state, and with counts of its own
    /// at 0.
    ///
    /// # Panics
    /// When there is no node of this number.
    pub fn renew(&mut self, node: u16, new: Ready) {
        let slot = &mut self.slots[node as usize];
        slot.every = new.every;
        slot.stats.show(new.shown);
        slot.stats.restarts.add(1);
        slot.node = new.node;
    }
}
