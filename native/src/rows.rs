//! The rows of the table.

use crate::firewall::Rules;
use crate::fixture::{self, CLoop, CPort, CellsState, Counts, Memory, Packets};
use crate::fresh::{Destinations, LIST};
use crate::hosts::Host;
use crate::routes::{Table, Version};
use crate::sample::{Compared, Cost, compare};
use crate::{chains, conntrack, maglev, monitor, nat, spread, stations, testpmd, verify};
use anyhow::Context;
use core::ffi::c_void;
use core::net::{Ipv4Addr, Ipv6Addr};
use dpdk::{Eal, Mempool};
use graph::{Blueprint, BuildContext, Graph, Hop, HopPlan, Node, NodePlan, Target};
use packet::BURST;
use runtime::{Drain, Input, Origin, Output, Receive, Source, Worker};
use serde::Serialize;
use std::rc::Rc;
use std::sync::Arc;

/// Packets processed between two resets, at the least.
const SAMPLE: usize = 40_000;

/// One row, as `native.json` has it.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    nf: String,
    source: &'static str,
    flows: usize,
    frame: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cells: Option<u32>,
    /// Functions in its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<u32>,
    pub(crate) bondstone: Cost,
    pub(crate) native: Cost,
    ratio: f64,
    ratio_lower: f64,
    ratio_upper: f64,
}

pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    io: Option<Cost>,
}

impl Row {
    pub(crate) fn is(&self, nf: &str, source: &str) -> bool {
        self.nf == nf && self.source == source
    }
}

/// An NF, in both languages.
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) nodes: Box<dyn Fn() -> Vec<Box<dyn Node>>>,
    pub(crate) native: CLoop,
    pub(crate) cells: Option<u32>,
    pub(crate) stages: Option<u32>,
    /// Times that a packet may pass before its time to live ends.
    pub(crate) passes: usize,
    pub(crate) ports: Ports,
    /// What else both must agree on.
    pub(crate) agree: Option<Rc<dyn Agree>>,
}

impl Pair {
    /// One of no cells and stages, whose packets may pass for ever.
    pub(crate) fn new(name: &str, nodes: Box<dyn Fn() -> Vec<Box<dyn Node>>>, native: CLoop) -> Pair {
        Pair {
            name: name.into(),
            nodes,
            native,
            cells: None,
            stages: None,
            passes: usize::MAX,
            ports: Ports::One,
            agree: None,
        }
    }
}

/// Where an NF's packets go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// All to one port.
    One,
    /// Those of its second output and of its third to a port each.
    Two,
    /// From each of two ports, by the first and the second input, to the other.
    Between,
}

/// What both sides have counted, compared.
pub(crate) trait Agree {
    /// Has C count anew.
    fn begin(&self);
    /// After the same packets on both sides.
    ///
    /// # Errors
    /// What differs.
    fn check(&self, worker: &mut Worker) -> anyhow::Result<()>;
}

/// What packets go round on.
enum Lap {
    /// Two DPDK rings, 256 packets each.
    Rings,
    /// So many packets in memory.
    Memory(usize),
    /// These packets in memory.
    Frames(Vec<Vec<u8>>),
    /// 1,024 packets in memory, each time with other destinations, of so many different ones.
    Fresh(usize, Box<dyn Destinations>),
    /// 1,024 packets each way between two ports, each time with other addresses, of so many different ones.
    Between(usize, [Box<dyn Destinations>; 2]),
}

impl Lap {
    /// Its packets, as they are before a sample.
    fn frames(&self) -> Vec<Vec<u8>> {
        match self {
            Lap::Rings => fixture::frames(512),
            Lap::Memory(n) => fixture::frames(*n),
            Lap::Frames(frames) => frames.clone(),
            Lap::Fresh(_, list) => vec![list.frame(); 1024],
            Lap::Between(_, [list, _]) => vec![list.frame(); 2048],
        }
    }

    /// Bytes of its packets with their FCS.
    fn frame(&self) -> usize {
        match self {
            Lap::Fresh(_, list) => list.frame().len() + 4,
            _ => 64,
        }
    }
}

pub(crate) fn node(kind: &str, settings: &str) -> Box<dyn Node> {
    node_in(kind, settings, &BuildContext::default())
}

pub(crate) fn node_in(kind: &str, settings: &str, cx: &BuildContext) -> Box<dyn Node> {
    let registry = nf::registry();
    let kind = registry.get(kind).expect("a shipped NF");
    let settings = config::settings(settings).expect("TOML");
    kind.read(settings).expect("settings").build(cx).expect("an NF")
}

pub(crate) fn run(eal: Eal, pool: &Arc<Mempool>, only: &str, pairs: usize) -> anyhow::Result<Rows> {
    let wanted = |name: &str| name.contains(only);
    let mut bench = Bench { eal, pool: pool.clone(), pairs, rings: 0, array: vec![0; 1 << 16] };
    let mut list = vec![
        Pair::new("io", Box::new(Vec::new), fixture::native_io),
        Pair::new("l2fwd", Box::new(|| vec![node("l2fwd", "")]), fixture::native_l2fwd),
        Pair { passes: 250, ..Pair::new("ttl", Box::new(|| vec![node("ttl", "")]), fixture::native_ttl) },
    ];
    for n in [1, 2, 4, 8, 16, 32] {
        let nodes = move || vec![node("cells", &format!("cells = {n}"))];
        list.push(Pair { cells: Some(n), ..Pair::new("cells", Box::new(nodes), fixture::native_cells) });
    }

    let mut rows = Rows { rows: vec![], io: None };
    for pair in list.iter().filter(|p| wanted(&p.name)) {
        let state = bench.state(pair);
        verify::same(&bench.pool, &pair.name, &verify::frames(), (pair.nodes)(), pair.native, state)?;
        for source in [Lap::Rings, Lap::Memory(1024), Lap::Memory(16384)] {
            let ours = rows.add(&mut bench, pair, &source, state)?;
            if pair.name == "io" && matches!(source, Lap::Rings) {
                rows.io = Some(ours);
            }
        }
    }
    for pair in chains::pairs().iter().filter(|p| wanted(&p.name)) {
        let state = bench.state(pair);
        let frames = [verify::frames(), chains::frames()].concat();
        verify::same(&bench.pool, &pair.name, &frames, (pair.nodes)(), pair.native, state)?;
        for source in [Lap::Rings, Lap::Memory(1024)] {
            rows.add(&mut bench, pair, &source, state)?;
        }
    }
    rows.routers::<Ipv4Addr>(&mut bench, only)?;
    rows.routers::<Ipv6Addr>(&mut bench, only)?;
    rows.routers::<Host>(&mut bench, only)?;
    for rules in [10, 1000].map(Rules::random) {
        if !wanted(&rules.name()) {
            continue;
        }
        let (pair, native) = rules.pair()?;
        verify::same(&bench.pool, &pair.name, &verify::frames(), (pair.nodes)(), pair.native, native.state())?;
        for n in [1024, 16_384] {
            rows.add(&mut bench, &pair, &Lap::Frames(rules.frames(n)), native.state())?;
        }
    }
    if wanted(conntrack::NAME) {
        for flows in [1, 10_000, 1_000_000] {
            let (pair, native) = conntrack::pair(&bench.pool)?;
            rows.add(&mut bench, &pair, &Lap::Fresh(flows, conntrack::destinations(flows)), native.state())?;
        }
    }
    if wanted(spread::NAME) {
        for n in [1024, 16_384] {
            rows.add(&mut bench, &spread::pair(), &Lap::Memory(n), core::ptr::null_mut())?;
        }
    }
    for flows in [1, 10_000, 1_000_000] {
        if wanted(stations::STATIONS) {
            let (pair, native) = (stations::stations(flows), stations::Native::stations(flows)?);
            let frames = stations::frames(flows);
            verify::same(&bench.pool, &pair.name, &frames, (pair.nodes)(), pair.native, native.state())?;
            rows.add(&mut bench, &pair, &Lap::Fresh(flows, stations::to_stations(flows)), native.state())?;
        }
        if wanted(stations::BRIDGE) {
            let (pair, native) = (stations::bridge(flows), stations::Native::bridge(stations::addresses(flows)));
            rows.add(&mut bench, &pair, &Lap::Between(flows, stations::between(flows)), native.state())?;
        }
    }
    let pair = monitor::pair();
    if wanted(&pair.name) {
        monitor::same(&bench.pool, 100_000)?;
        for flows in [1, 10_000, 1_000_000] {
            let native = monitor::Native::new();
            rows.add(&mut bench, &pair, &Lap::Fresh(flows, monitor::destinations(flows)), native.state())?;
        }
    }
    if wanted(nat::NAME) {
        nat::same(&bench.pool)?;
        rows.add(&mut bench, &nat::nothing(), &Lap::Fresh(1, nat::destinations(1)), core::ptr::null_mut())?;
        for flows in [1, 4096, 10_000, 1_000_000] {
            let native = nat::Native::new();
            rows.add(&mut bench, &nat::pair(), &Lap::Fresh(flows, nat::destinations(flows)), native.state())?;
        }
    }
    for how in maglev::HOW.iter().filter(|how| wanted(how.name())) {
        let (pair, flows) = (how.pair(), [1, 10_000, 1_000_000]);
        let native = how.native()?;
        verify::same(&bench.pool, &pair.name, &maglev::frames(), (pair.nodes)(), pair.native, native.state())?;
        for flows in flows {
            rows.add(&mut bench, &pair, &Lap::Fresh(flows, maglev::flows(flows)), how.native()?.state())?;
        }
    }
    Ok(rows)
}

impl Rows {
    /// The rows of an IP version's routers.
    fn routers<A: Version>(&mut self, bench: &mut Bench, only: &str) -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        for table in Table::<A>::wanted(only)? {
            let (pair, native) = (table.pair(folder.path())?, table.native()?);
            verify::same(&bench.pool, &pair.name, &table.frames(), (pair.nodes)(), pair.native, native.state())?;
            for flows in [1 << 10, 1 << 16, 1 << 22] {
                self.add(bench, &pair, &Lap::Fresh(flows, table.destinations(flows)), native.state())?;
            }
        }
        Ok(())
    }

    /// Measures a row, prints it and keeps it; what Bondstone's side cost.
    fn add(&mut self, bench: &mut Bench, pair: &Pair, source: &Lap, state: *mut c_void) -> anyhow::Result<Cost> {
        let (compared, name, flows) = bench.row(pair, source, state)?;
        let Compared { ours, theirs, ratio, bounds } = compared;
        let cells = pair.cells.map_or_else(String::new, |n| format!(" {n}"));
        println!(
            "{:<34} {flows:>7} {:>7.2} {:>7.2} {:>7.2} {:>7.2} {ratio:>7.3} {:>7.3}",
            format!("{}{cells}, {name}", pair.name),
            ours.p05,
            ours.median,
            theirs.p05,
            theirs.median,
            bounds.1
        );
        self.rows.push(Row {
            nf: pair.name.clone(),
            source: name,
            flows,
            frame: source.frame(),
            cells: pair.cells,
            stages: pair.stages,
            bondstone: ours,
            native: theirs,
            ratio,
            ratio_lower: bounds.0,
            ratio_upper: bounds.1,
        });
        Ok(ours)
    }

    /// The comparison that is no row: DPDK's own forwarder.
    pub(crate) fn compare(&self, core: usize, cpus: &[usize]) -> anyhow::Result<()> {
        if let Some(io) = self.io {
            match testpmd::io(core, cpus)? {
                Some(cost) => println!(
                    "ring to ring without NF: {:.2} cycles, testpmd io {:.2}: {:.2} times",
                    io.median,
                    cost.median,
                    io.median / cost.median
                ),
                None => println!(
                    "ring to ring without NF: {:.2} cycles; skipped: dpdk-testpmd (Debian: dpdk-dev) is not there or did not start",
                    io.median
                ),
            }
        }
        Ok(())
    }
}

struct Bench {
    eal: Eal,
    pool: Arc<Mempool>,
    pairs: usize,
    rings: usize,
    array: Vec<u64>,
}

impl Bench {
    fn state(&mut self, pair: &Pair) -> *mut c_void {
        let state = CellsState { n: pair.cells.or(pair.stages).unwrap_or(0), array: self.array.as_mut_ptr() };
        core::ptr::from_mut(Box::leak(Box::new(state))).cast()
    }

    fn row(
        &mut self,
        pair: &Pair,
        source: &Lap,
        state: *mut c_void,
    ) -> anyhow::Result<(Compared, &'static str, usize)> {
        match source {
            Lap::Rings => {
                self.rings += 2;
                let mut a = fixture::ring(self.eal, &format!("{}", self.rings), &self.pool)?;
                let mut b = fixture::ring(self.eal, &format!("{}", self.rings + 1), &self.pool)?;
                let mut batch = packet::Batch::new();
                let packets = Packets::new(&self.pool, source.frames(), |i, p| {
                    batch.push(p).expect("it has room");
                    if i % 32 == 31 {
                        let to = if i < 256 { &mut a.tx[0] } else { &mut b.tx[0] };
                        to.send(&mut batch);
                        assert!(batch.is_empty(), "a ring holds 256 packets");
                    }
                });
                let c = |q: &dpdk::Queues| CPort {
                    ethdev: q.port.id(),
                    slots: core::ptr::null_mut(),
                    mask: 0,
                    head: 0,
                    tail: 0,
                    fresh: core::ptr::null(),
                    fresh_mask: 0,
                    at: 0,
                    front: 0,
                    ip: 0,
                };
                let (mut ca, mut cb) = (c(&a), c(&b));
                let receivers = vec![Source::Queue(a.rx.remove(0)), Source::Queue(b.rx.remove(0))];
                let senders = vec![Drain::Queue(a.tx.remove(0)), Drain::Queue(b.tx.remove(0))];
                let mut worker = worker((pair.nodes)(), pair.ports, receivers, senders, &self.pool);
                let reset = || packets.reset();
                let compared =
                    self.alternate(pair, (&packets, &reset, &reset), 512, &mut worker, (&mut ca, &mut cb), state)?;
                worker.empty_queues();
                Ok((compared, "ring", 512))
            }
            Lap::Between(flows, _) => self.between(pair, source, *flows, state),
            Lap::Memory(_) | Lap::Frames(_) | Lap::Fresh(..) => {
                let frames = source.frames();
                let n = frames.len();
                let memory = Memory::new(n);
                let packets = Packets::new(&self.pool, frames, |_, p| memory.give(p));
                let receive: Box<dyn Receive> = match source {
                    Lap::Fresh(_, list) => list.freshen(&memory),
                    _ => Box::new(memory.handle()),
                };
                let send = || Drain::Other(Box::new(memory.handle()));
                let senders = (0..if pair.ports == Ports::Two { 2 } else { 1 }).map(|_| send()).collect();
                let mut worker = worker((pair.nodes)(), pair.ports, vec![Source::Other(receive)], senders, &self.pool);
                // SAFETY: one thread; C and Rust take turns.
                let (a, b) = unsafe { (&mut *memory.port.as_ptr(), &mut *memory.port.as_ptr()) };
                let reset = || {
                    packets.reset();
                    memory.rewind();
                };
                if let Lap::Fresh(_, list) = source {
                    list.prepare(&memory, &packets, &mut |bursts| {
                        memory.rewind();
                        for _ in 0..bursts {
                            worker.poll();
                        }
                        memory.full(n, "Bondstone");
                        memory.rewind();
                        // SAFETY: ports and state live through the call, on this one thread.
                        unsafe { (pair.native)(a, b, bursts as u32, &mut Counts::default(), state) };
                        memory.full(n, "C");
                    });
                }
                // fresh destinations go on through their list: neither side gets what the other has just looked up
                let before: &dyn Fn() = if let Lap::Fresh(..) = source { &|| () } else { &reset };
                let compared = self.alternate(pair, (&packets, &reset, before), n, &mut worker, (a, b), state)?;
                drop(memory.take());
                match source {
                    Lap::Fresh(flows, _) => Ok((compared, "fresh", *flows)),
                    _ => Ok((compared, "memory", n)),
                }
            }
        }
    }

    /// As [`Bench::row`], between two ports; both sides learn who is there first.
    fn between(
        &self,
        pair: &Pair,
        source: &Lap,
        flows: usize,
        state: *mut c_void,
    ) -> anyhow::Result<(Compared, &'static str, usize)> {
        let Lap::Between(_, lists) = source else { anyhow::bail!("{} is no way between two ports", pair.name) };
        let frames = source.frames();
        let (n, memories) = (frames.len(), [Memory::new(frames.len() / 2), Memory::new(frames.len() / 2)]);
        let packets = Packets::new(&self.pool, frames, |i, p| memories[2 * i / n].give(p));
        let receivers = memories.iter().zip(lists).map(|(memory, list)| Source::Other(list.freshen(memory))).collect();
        let senders = memories.iter().map(|memory| Drain::Other(Box::new(memory.handle()))).collect();
        let mut worker = worker((pair.nodes)(), pair.ports, receivers, senders, &self.pool);
        // SAFETY: one thread; C and Rust take turns.
        let (a, b) = unsafe { (&mut *memories[0].port.as_ptr(), &mut *memories[1].port.as_ptr()) };
        let rewind = || memories.iter().for_each(Memory::rewind);
        rewind();
        for _ in 0..LIST / BURST {
            worker.poll();
        }
        rewind();
        // SAFETY: ports and state live through the call, on this one thread.
        unsafe { (pair.native)(a, b, (2 * LIST / BURST) as u32, &mut Counts::default(), state) };
        let reset = || {
            packets.reset();
            rewind();
        };
        // packets are where they were after two of their passes
        let compared = self.alternate(pair, (&packets, &reset, &|| ()), 2 * n, &mut worker, (a, b), state)?;
        memories.iter().for_each(|memory| drop(memory.take()));
        Ok((compared, "between", flows))
    }

    fn alternate(
        &self,
        pair: &Pair,
        (packets, reset, before): (&Packets, &dyn Fn(), &dyn Fn()),
        n: usize,
        worker: &mut Worker,
        (a, b): (*mut CPort, *mut CPort),
        state: *mut c_void,
    ) -> anyhow::Result<Compared> {
        // whole passes, so that every packet passes as often on either side
        let bursts = (SAMPLE / n).clamp(1, pair.passes) * n / BURST;
        let polls = if std::ptr::eq(a, b) { bursts } else { bursts / 2 };
        let mut counts = Counts::default();
        let ours = |worker: &mut Worker| (0..polls).map(|_| worker.poll() as u64).sum();
        let mut theirs = || {
            let before = counts.sent;
            // SAFETY: ports, counts and state live through the call, on this one thread.
            unsafe { (pair.native)(a, b, bursts as u32, &mut counts, state) };
            counts.sent - before
        };
        if let Some(agree) = &pair.agree {
            agree.begin();
        }
        reset();
        let (x, ours_out): (u64, _) = (ours(worker), packets.bytes());
        reset();
        let (y, theirs_out) = (theirs(), packets.bytes());
        anyhow::ensure!(x == y && x == 32 * bursts as u64, "{}: {x} packets from Bondstone, {y} from C", pair.name);
        anyhow::ensure!(ours_out == theirs_out, "{}: the packets differ", pair.name);
        if let Some(agree) = &pair.agree {
            agree.check(worker).with_context(|| pair.name.clone())?;
        }
        let compared = compare(self.pairs, before, || ours(worker), theirs);
        let dropped: u64 = worker.graph().stats().map(|(_, stats)| stats.dropped()).sum();
        let Counts { dropped: native, tx_full, .. } = counts;
        anyhow::ensure!(
            dropped == 0 && native == [0; 4] && tx_full == 0,
            "{}: Bondstone drops {dropped} packets, C {native:?} and {tx_full}",
            pair.name
        );
        Ok(compared)
    }
}

/// A worker with one path from each port, through these nodes, to where their packets go.
pub(crate) fn worker(
    nodes: Vec<Box<dyn Node>>,
    to: Ports,
    receivers: Vec<Source>,
    senders: Vec<Drain>,
    pool: &Arc<Mempool>,
) -> Worker {
    let mut edges = vec![Target::Nowhere, Target::Port(0)];
    edges.extend((to != Ports::One).then_some(Target::Port(1)));
    let mut blueprint = Blueprint::default();
    blueprint.nodes.extend((0..nodes.len()).map(|n| NodePlan { name: n.to_string(), edges: edges.clone() }));
    let ports = senders.len() as u16;
    let mut inputs = vec![];
    for (at, from) in receivers.into_iter().enumerate() {
        let mut next = Target::Port((at as u16 + 1) % ports);
        let input = if to == Ports::Between { at as u8 } else { 0 };
        for node in (0..nodes.len() as u16).rev() {
            blueprint.hops.push(HopPlan { node, input, next, open: false });
            next = Target::Hop(Hop(blueprint.hops.len() as u16 - 1));
        }
        inputs.push(Input { from, entry: next, stats: Arc::default(), patient: false, origin: Origin::Ring });
    }
    let outputs = senders.into_iter().map(|to| Some(Output::new(to))).collect();
    let graph = Graph::new(&blueprint, nodes, pool.clone());
    Worker::new(inputs, graph, outputs, Arc::default())
}
