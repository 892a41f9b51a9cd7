//! The NFs that are compared, and their measurement.

use crate::fixture::{self, CPort, CellsState, Counts, Memory, Packets};
use crate::fresh::{Destinations, LIST};
use crate::nfs::firewall::Rules;
use crate::nfs::router::host_routes::Host;
use crate::nfs::router::{RouteTable, Version};
use crate::nfs::{chains, conntrack, l2, maglev, monitor, nat44, police, spread};
use crate::pair::{Pair, Ports, Row, node, worker};
use crate::sample::{Compared, Cost, compare};
use crate::{testpmd, verify};
use anyhow::Context;
use core::ffi::c_void;
use core::net::{Ipv4Addr, Ipv6Addr};
use dpdk::{Eal, Mempool};
use packet::BURST;
use runtime::{Receive, RxPort, TxPort, Worker};
use std::sync::Arc;

/// Minimum number of packets between two resets.
const SAMPLE_PACKETS: usize = 40_000;

/// Rows of all measured NFs.
pub(crate) struct Rows {
    pub(crate) rows: Vec<Row>,
    io: Option<Cost>,
}

/// Source and sink of the packets.
enum PacketSource {
    /// Two DPDK rings, 256 packets each.
    Rings,
    /// A number of packets in memory.
    Memory(usize),
    /// These packets in memory.
    Frames(Vec<Vec<u8>>),
    /// 1,024 packets in memory, which are received with new destinations each time, out of a number of different ones.
    Fresh(usize, Box<dyn Destinations>),
    /// 1,024 packets in each direction between two ports, which are received with new addresses each time, out of a
    /// number of different ones.
    Between(usize, [Box<dyn Destinations>; 2]),
}

impl PacketSource {
    /// Returns the packets before a sample.
    fn frames(&self) -> Vec<Vec<u8>> {
        match self {
            PacketSource::Rings => fixture::frames(512),
            PacketSource::Memory(n) => fixture::frames(*n),
            PacketSource::Frames(frames) => frames.clone(),
            PacketSource::Fresh(_, list) => vec![list.frame(); 1024],
            PacketSource::Between(_, [list, _]) => vec![list.frame(); 2048],
        }
    }

    /// Returns the frame length in bytes with FCS.
    fn frame_len(&self) -> usize {
        match self {
            PacketSource::Fresh(_, list) => list.frame().len() + 4,
            _ => 64,
        }
    }
}

pub(crate) fn run(eal: Eal, pool: &Arc<Mempool>, only: &str, pairs: usize) -> anyhow::Result<Rows> {
    let selected = |name: &str| name.contains(only);
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
    for pair in list.iter().filter(|p| selected(&p.name)) {
        let state = bench.state(pair);
        verify::same_output(&bench.pool, pair, &verify::frames(), state)?;
        for source in [PacketSource::Rings, PacketSource::Memory(1024), PacketSource::Memory(16384)] {
            let ours = rows.add(&mut bench, pair, &source, state)?;
            if pair.name == "io" && matches!(source, PacketSource::Rings) {
                rows.io = Some(ours);
            }
        }
    }
    for pair in chains::pairs().iter().filter(|p| selected(&p.name)) {
        let state = bench.state(pair);
        let frames = [verify::frames(), chains::frames()].concat();
        verify::same_output(&bench.pool, pair, &frames, state)?;
        for source in [PacketSource::Rings, PacketSource::Memory(1024)] {
            rows.add(&mut bench, pair, &source, state)?;
        }
    }
    rows.routers::<Ipv4Addr>(&mut bench, only)?;
    rows.routers::<Ipv6Addr>(&mut bench, only)?;
    rows.routers::<Host>(&mut bench, only)?;
    for rules in [10, 1000].map(Rules::random) {
        if !selected(&rules.name()) {
            continue;
        }
        let (pair, native) = rules.pair()?;
        verify::same_output(&bench.pool, &pair, &verify::frames(), native.state())?;
        for n in [1024, 16_384] {
            rows.add(&mut bench, &pair, &PacketSource::Frames(rules.frames(n)), native.state())?;
        }
    }
    if selected(conntrack::NAME) {
        for flows in [1, 10_000, 1_000_000] {
            let (pair, native) = conntrack::pair(&bench.pool)?;
            rows.add(&mut bench, &pair, &PacketSource::Fresh(flows, conntrack::destinations(flows)), native.state())?;
        }
    }
    if selected(spread::NAME) {
        for n in [1024, 16_384] {
            rows.add(&mut bench, &spread::pair(), &PacketSource::Memory(n), core::ptr::null_mut())?;
        }
    }
    for flows in [1, 10_000, 1_000_000] {
        if selected(l2::MAC_TABLE) {
            let (pair, native) = (l2::mac_table(flows), l2::Native::mac_table(flows)?);
            let frames = l2::frames(flows);
            verify::same_output(&bench.pool, &pair, &frames, native.state())?;
            rows.add(&mut bench, &pair, &PacketSource::Fresh(flows, l2::to_known_macs(flows)), native.state())?;
        }
        if selected(l2::BRIDGE) {
            let (pair, native) = (l2::bridge(flows), l2::Native::bridge(l2::bridge_entries(flows)));
            rows.add(&mut bench, &pair, &PacketSource::Between(flows, l2::between(flows)), native.state())?;
        }
    }
    let pair = monitor::pair();
    if selected(&pair.name) {
        monitor::verify_counts(&bench.pool, 100_000)?;
        for flows in [1, 10_000, 1_000_000] {
            let native = monitor::Native::new();
            rows.add(&mut bench, &pair, &PacketSource::Fresh(flows, monitor::destinations(flows)), native.state())?;
        }
    }
    if selected(police::NAME) {
        police::verify_output(&bench.pool)?;
        for flows in [1, 10_000, 1_000_000] {
            let (pair, native) = (police::green(), police::Native::green());
            rows.add(&mut bench, &pair, &PacketSource::Fresh(flows, police::sources(flows)), native.state())?;
        }
    }
    if selected(nat44::NAME) {
        nat44::verify_output(&bench.pool)?;
        rows.add(
            &mut bench,
            &nat44::source_only(),
            &PacketSource::Fresh(1, nat44::destinations(1)),
            core::ptr::null_mut(),
        )?;
        for flows in [1, 4096, 10_000, 1_000_000] {
            let native = nat44::Native::new();
            rows.add(
                &mut bench,
                &nat44::pair(),
                &PacketSource::Fresh(flows, nat44::destinations(flows)),
                native.state(),
            )?;
        }
    }
    for forward in maglev::FORWARD.iter().filter(|forward| selected(forward.name())) {
        let (pair, flows) = (forward.pair(), [1, 10_000, 1_000_000]);
        let native = forward.native()?;
        verify::same_output(&bench.pool, &pair, &maglev::frames(), native.state())?;
        for flows in flows {
            rows.add(&mut bench, &pair, &PacketSource::Fresh(flows, maglev::flows(flows)), forward.native()?.state())?;
        }
    }
    Ok(rows)
}

impl Rows {
    /// Measures the routers of an IP version.
    fn routers<A: Version>(&mut self, bench: &mut Bench, only: &str) -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        for table in RouteTable::<A>::selected(only)? {
            let (pair, native) = (table.pair(folder.path())?, table.native()?);
            verify::same_output(&bench.pool, &pair, &table.frames(), native.state())?;
            for flows in [1 << 10, 1 << 16, 1 << 22] {
                self.add(bench, &pair, &PacketSource::Fresh(flows, table.destinations(flows)), native.state())?;
            }
        }
        Ok(())
    }

    /// Measures, prints and stores a row; returns the cost of Bondstone.
    fn add(
        &mut self,
        bench: &mut Bench,
        pair: &Pair,
        source: &PacketSource,
        state: *mut c_void,
    ) -> anyhow::Result<Cost> {
        let (compared, name, flows) = bench.row(pair, source, state)?;
        let Compared { ours, baseline, ratio, bounds } = compared;
        let cells = pair.cells.map_or_else(String::new, |n| format!(" {n}"));
        println!(
            "{:<34} {flows:>7} {:>7.2} {:>7.2} {:>7.2} {:>7.2} {ratio:>7.3} {:>7.3}",
            format!("{}{cells}, {name}", pair.name),
            ours.p05,
            ours.median,
            baseline.p05,
            baseline.median,
            bounds.1
        );
        self.rows.push(Row {
            nf: pair.name.clone(),
            source: name,
            flows,
            frame: source.frame_len(),
            cells: pair.cells,
            stages: pair.stages,
            bondstone: ours,
            native: baseline,
            ratio,
            ratio_lower: bounds.0,
            ratio_upper: bounds.1,
        });
        Ok(ours)
    }

    /// Compares forwarding between rings without an NF with testpmd.
    pub(crate) fn compare_testpmd(&self, core: usize, cpus: &[usize]) -> anyhow::Result<()> {
        if let Some(io) = self.io {
            match testpmd::io(core, cpus)? {
                Some(cost) => println!(
                    "ring to ring without NF: {:.2} cycles, testpmd io {:.2}: {:.2} times",
                    io.median,
                    cost.median,
                    io.median / cost.median
                ),
                None => println!(
                    "ring to ring without NF: {:.2} cycles; testpmd skipped: dpdk-testpmd (Debian: dpdk-dev) not found or not started",
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
        source: &PacketSource,
        state: *mut c_void,
    ) -> anyhow::Result<(Compared, &'static str, usize)> {
        match source {
            PacketSource::Rings => {
                self.rings += 2;
                let mut a = fixture::ring(self.eal, &format!("{}", self.rings), &self.pool)?;
                let mut b = fixture::ring(self.eal, &format!("{}", self.rings + 1), &self.pool)?;
                let mut batch = packet::Batch::new();
                let packets = Packets::new(&self.pool, source.frames(), |i, p| {
                    batch.push(p).expect("room for a burst");
                    if batch.is_full() {
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
                    frame_start: 0,
                    ip_start: 0,
                };
                let (mut ca, mut cb) = (c(&a), c(&b));
                let receivers = vec![RxPort::Device(a.rx.remove(0)), RxPort::Device(b.rx.remove(0))];
                let senders = vec![TxPort::Device(a.tx.remove(0)), TxPort::Device(b.tx.remove(0))];
                let mut worker = worker(pair.graph(), pair.ports, receivers, senders, &self.pool);
                let reset = || packets.reset();
                let compared =
                    self.alternate(pair, (&packets, &reset, &reset), 512, &mut worker, (&mut ca, &mut cb), state)?;
                worker.discard_queued();
                Ok((compared, "ring", 512))
            }
            PacketSource::Between(flows, _) => self.between(pair, source, *flows, state),
            PacketSource::Memory(_) | PacketSource::Frames(_) | PacketSource::Fresh(..) => {
                let frames = source.frames();
                let n = frames.len();
                let memory = Memory::new(n);
                let packets = Packets::new(&self.pool, frames, |_, p| memory.push(p));
                let receive: Box<dyn Receive> = match source {
                    PacketSource::Fresh(_, list) => list.source(&memory),
                    _ => Box::new(memory.handle()),
                };
                let send = || TxPort::Other(Box::new(memory.handle()));
                let senders = (0..if pair.ports == Ports::Two { 2 } else { 1 }).map(|_| send()).collect();
                let mut worker = worker(pair.graph(), pair.ports, vec![RxPort::Other(receive)], senders, &self.pool);
                // SAFETY: one thread; C and Rust take turns.
                let (a, b) = unsafe { (&mut *memory.port.as_ptr(), &mut *memory.port.as_ptr()) };
                let reset = || {
                    packets.reset();
                    memory.rewind();
                };
                if let PacketSource::Fresh(_, list) = source {
                    list.prepare(&memory, &packets, &mut |bursts| {
                        memory.rewind();
                        for _ in 0..bursts {
                            worker.poll();
                        }
                        memory.assert_full(n, "Bondstone");
                        memory.rewind();
                        // SAFETY: ports and state outlive the call, on this one thread.
                        unsafe { (pair.native)(a, b, bursts as u32, &mut Counts::default(), state) };
                        memory.assert_full(n, "C");
                    });
                }
                // both sides continue in the list of destinations: neither receives those that the other has just
                // looked up
                let before: &dyn Fn() = if let PacketSource::Fresh(..) = source { &|| () } else { &reset };
                let compared = self.alternate(pair, (&packets, &reset, before), n, &mut worker, (a, b), state)?;
                drop(memory.take());
                match source {
                    PacketSource::Fresh(flows, _) => Ok((compared, "fresh", *flows)),
                    _ => Ok((compared, "memory", n)),
                }
            }
        }
    }

    /// As [`Bench::row`], between two ports; both sides learn all addresses first.
    fn between(
        &self,
        pair: &Pair,
        source: &PacketSource,
        flows: usize,
        state: *mut c_void,
    ) -> anyhow::Result<(Compared, &'static str, usize)> {
        let PacketSource::Between(_, lists) = source else {
            anyhow::bail!("{}: the source is not between two ports", pair.name)
        };
        let frames = source.frames();
        let (n, memories) = (frames.len(), [Memory::new(frames.len() / 2), Memory::new(frames.len() / 2)]);
        let packets = Packets::new(&self.pool, frames, |i, p| memories[2 * i / n].push(p));
        let receivers = memories.iter().zip(lists).map(|(memory, list)| RxPort::Other(list.source(memory))).collect();
        let senders = memories.iter().map(|memory| TxPort::Other(Box::new(memory.handle()))).collect();
        let mut worker = worker(pair.graph(), pair.ports, receivers, senders, &self.pool);
        // SAFETY: one thread; C and Rust take turns.
        let (a, b) = unsafe { (&mut *memories[0].port.as_ptr(), &mut *memories[1].port.as_ptr()) };
        let rewind = || memories.iter().for_each(Memory::rewind);
        rewind();
        for _ in 0..LIST / BURST {
            worker.poll();
        }
        rewind();
        // SAFETY: ports and state outlive the call, on this one thread.
        unsafe { (pair.native)(a, b, (2 * LIST / BURST) as u32, &mut Counts::default(), state) };
        let reset = || {
            packets.reset();
            rewind();
        };
        // after two passes packets are at their first port again
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
        // whole passes, so that every packet passes equally often on both sides
        let bursts = (SAMPLE_PACKETS / n).clamp(1, pair.passes) * n / BURST;
        let polls = if std::ptr::eq(a, b) { bursts } else { bursts / 2 };
        let mut counts = Counts::default();
        let ours = |worker: &mut Worker| (0..polls).map(|_| worker.poll() as u64).sum();
        let mut baseline = || {
            let before = counts.sent;
            // SAFETY: ports, counts and state outlive the call, on this one thread.
            unsafe { (pair.native)(a, b, bursts as u32, &mut counts, state) };
            counts.sent - before
        };
        if let Some(counters) = &pair.counters {
            counters.reset();
        }
        reset();
        let (x, ours_out): (u64, _) = (ours(worker), packets.bytes());
        reset();
        let (y, baseline_out) = (baseline(), packets.bytes());
        anyhow::ensure!(
            x == y && x == (BURST * bursts) as u64,
            "{}: {x} packets from Bondstone, {y} from C",
            pair.name
        );
        anyhow::ensure!(ours_out == baseline_out, "{}: the packets differ", pair.name);
        if let Some(counters) = &pair.counters {
            counters.compare(worker).with_context(|| pair.name.clone())?;
        }
        let compared = compare(self.pairs, before, || ours(worker), baseline);
        let dropped: u64 = worker.graph().stats().map(|(_, stats)| stats.dropped()).sum();
        let Counts { dropped: native, tx_full, .. } = counts;
        anyhow::ensure!(
            dropped == 0 && native == [0; 4] && tx_full == 0,
            "{}: Bondstone dropped {dropped} packets, C {native:?} and {tx_full}",
            pair.name
        );
        Ok(compared)
    }
}
