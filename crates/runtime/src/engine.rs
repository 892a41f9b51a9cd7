//! From a chain file to running workers, and back.

mod memory;
mod opening;

pub use memory::MOST_PACKETS;
use memory::memory;
pub(crate) use memory::{environment_of_dpdk, words_of};
pub use opening::End;
use opening::Opening;

use crate::blame::{self, Blame, Ledger};
use crate::cpus::{allowed_cpus, pin};
use crate::faults::Faults;
use crate::placement::{self, Strategy};
use crate::ports::{self, CaptureWriter, Watch};
use crate::renew::{self, Recipe, Renewals, Renewing};
use crate::schedule::{Schedule, Served};
use crate::sriov::{Functions, Kernel, Linux};
use crate::summary::{ChainSummary, LinkSummary, NfSummary, PortSummary, Summary};
use crate::watchdog::{self, Watched};
use crate::worker::RETURN;
use crate::{Gaps, Input, LinkStats, Output, Topology, Worker};
use config::{Chain, ChainFile, Class, Rate, Start, WorkerPlan};
use diagnostics::Diagnostics;
use dpdk::{Eal, Mempool, RxQueue};
use graph::{BuildContext, Common, Graph, Hop, NodeStats, caught};
use packet::{Batch, clock};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Why a chain file does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something in the file.
    #[error(transparent)]
    Input(#[from] Diagnostics),
    /// Something about this machine, or what this user may do on it.
    #[error("{problem}\n  help: {remedy}")]
    Environment {
        /// What failed.
        problem: String,
        /// What mends it.
        remedy: String,
    },
}

/// How a chain file is run, where it does not say so itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How CPUs are chosen for chains that name none.
    pub strategy: Strategy,
    /// Bytes of memory, huge pages apart, at which the run is ended and the NF named that has most; by default four fifths
    /// of what the machine has, or the container.
    pub memory: Option<u64>,
    /// What workers do while nothing comes.
    pub idle: Idle,
}

/// What a worker does while nothing comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// It looks again.
    #[default]
    Poll,
    /// It lets others on its CPU go first, and looks again.
    Yield,
    /// It gives its CPU away until who sends wakes it.
    Sleep,
}

/// A running chain file.
pub struct Engine {
    file: String,
    names: Names,
    started: Instant,
    stop: Arc<AtomicBool>,
    /// Set once nothing comes back from behind walls any more.
    returned: Arc<AtomicBool>,
    faults: Faults,
    workers: Vec<Running>,
    handles: Vec<(usize, Watch)>,
    /// Receive queues of rings, which may hold packets that no chain takes out.
    rings: Vec<(usize, RxQueue)>,
    captures: Vec<CaptureWriter>,
    pool: Arc<Mempool>,
    /// Packet buffers that drivers may keep for good.
    drivers_own: usize,
    eal: Eal,
    notes: Vec<String>,
    /// Packets that had come when last asked whether all is done.
    seen: AtomicU64,
    /// Builds NFs anew after a panic.
    renewing: Option<Renewing>,
    watchdog: Option<JoinHandle<()>>,
    hangs: Arc<AtomicBool>,
    ledger: Ledger,
    /// Last, as the ports on them have to be closed before.
    functions: Functions,
}

struct Names {
    ports: Vec<(String, String)>,
    links: Vec<String>,
    /// And on how many cores each runs.
    chains: Vec<(String, usize)>,
    nfs: Vec<(String, &'static str)>,
}

struct Running {
    cpu: usize,
    chains: Vec<String>,
    nodes: Vec<(usize, Arc<NodeStats>)>,
    received: Vec<(usize, Arc<LinkStats>)>,
    sent: Vec<(usize, Arc<LinkStats>)>,
    /// What each chain has had, where they are not simply served in turn.
    served: Vec<(usize, Arc<Served>)>,
    watched: Watched,
    dry: Arc<AtomicBool>,
    gaps: Arc<Gaps>,
    thread: Option<JoinHandle<Worker>>,
}

/// A worker before it runs.
struct Placed {
    cpu: usize,
    chains: Vec<usize>,
    plan: WorkerPlan,
    inputs: Vec<(usize, Input)>,
    outputs: Vec<Option<Output>>,
}

impl Engine {
    /// Opens the ports, builds the NFs and starts the workers.
    ///
    /// # Errors
    /// A setting that an NF refuses, a CPU that is not there, a port that does not open.
    pub fn start(file: &ChainFile) -> Result<Engine, Error> {
        Engine::start_with(file, Options::default())
    }

    /// As [`Engine::start`], in this way.
    ///
    /// # Errors
    /// As for [`Engine::start`].
    pub fn start_with(file: &ChainFile, options: Options) -> Result<Engine, Error> {
        Engine::start_around(file, options, || Ok(()))
    }

    /// As [`Engine::start_with`]; `opened` is called when the ports are there and nothing moves yet.
    ///
    /// # Errors
    /// As for [`Engine::start`], and those of `opened`.
    pub fn start_around(
        file: &ChainFile,
        options: Options,
        opened: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Engine, Error> {
        Ok(Engine::begin(file, None, options, &Linux, opened)?.0)
    }

    /// As [`Engine::start`], with a wire in the place of every port, on which `depth` packets may be under way in each
    /// direction; whoever has the far ends sends to the chains and receives from them.
    ///
    /// # Errors
    /// As for [`Engine::start`].
    pub fn start_on_wires(file: &ChainFile, depth: u32) -> Result<(Engine, Vec<End>), Error> {
        Engine::start_on_wires_around(file, depth, Options::default(), || Ok(()))
    }

    /// As [`Engine::start_on_wires`], in this way; ways through walls are what they are, and `opened` is called when they are
    /// there.
    ///
    /// # Errors
    /// As for [`Engine::start_around`].
    pub fn start_on_wires_around(
        file: &ChainFile,
        depth: u32,
        options: Options,
        opened: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(Engine, Vec<End>), Error> {
        Engine::begin(file, Some(depth), options, &Linux, opened)
    }

    /// `kernel` is told to make virtual functions.
    pub(crate) fn begin(
        file: &ChainFile,
        wires: Option<u32>,
        options: Options,
        kernel: &dyn Kernel,
        opened: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(Engine, Vec<End>), Error> {
        crash::install();
        let allowed = allowed_cpus();
        let absent = file.absent_cpus(&allowed);
        if !absent.is_empty() {
            return Err(Error::Input(Diagnostics(absent)));
        }
        // goes after the ports, whatever fails
        let functions;
        let mut workers = place(file, &allowed, options.strategy);
        // NFs first: a setting that makes no sense is told before any device is touched
        let ledger = Ledger::new(file.nfs.len());
        let (mut nodes, recipes) = build(file, &workers, &ledger)?;
        let ports = file.ports.iter().filter(|_| wires.is_none());
        functions = Functions::make(kernel, ports.map(|port| (port.name.as_str(), &port.device)))?;
        let (eal, pool) = memory(file, &workers, wires, &functions)?;
        let mut opening = Opening {
            file,
            functions: &functions,
            eal,
            pool: pool.clone(),
            stop: Arc::default(),
            faults: Faults::default(),
            handles: vec![],
            rings: vec![],
            captures: vec![],
            drivers_own: 0,
            walls: ports::Rings::default(),
            notes: memory::notes(eal).into_iter().chain(functions.notes().iter().cloned()).collect(),
            bells: options.idle == Idle::Sleep,
        };
        let ends = match wires {
            Some(depth) => opening.wires(depth, &mut workers)?,
            None => {
                opening.all(&mut workers)?;
                vec![]
            }
        };
        opening.links(&mut workers)?;
        opened()?;
        let Opening { stop, faults, handles, rings, captures, drivers_own, walls, notes, .. } = opening;
        let drivers_own = drivers_own + walls.lent();
        let (ways, renewing) = renew::start(recipes, faults.clone()).map_err(no_thread)?;
        // whatever else it would be: on a wire it is no ring, out of which comes what went in
        let on_wire = |port: &config::Port| wires.is_some() && port.wall.is_none();
        let device = |port: &config::Port| if on_wire(port) { "wire".to_owned() } else { port.device.to_string() };
        let holders = |n: usize| workers.iter().filter(|w| w.chains.contains(&n)).count();
        let mut engine = Engine {
            file: file.file.display().to_string(),
            names: Names {
                ports: file.ports.iter().map(|p| (p.name.clone(), device(p))).collect(),
                links: file.links.iter().map(|l| l.name.clone()).collect(),
                chains: file.chains.iter().enumerate().map(|(n, chain)| (chain.name.clone(), holders(n))).collect(),
                nfs: file.nfs.iter().map(|n| (n.name.clone(), n.kind.name)).collect(),
            },
            started: Instant::now(),
            stop,
            returned: Arc::default(),
            faults,
            workers: vec![],
            handles,
            rings,
            captures,
            eal,
            pool,
            drivers_own,
            notes,
            seen: AtomicU64::new(u64::MAX),
            renewing: Some(renewing),
            watchdog: None,
            hangs: Arc::default(),
            ledger,
            functions,
        };
        for (placed, renewals) in workers.into_iter().zip(ways) {
            let graph = Graph::new(&placed.plan.blueprint, nodes.remove(0), engine.pool.clone());
            engine.launch(file, eal, placed, graph, renewals, options.idle)?;
        }
        let watch = watchdog::Watch {
            workers: engine.workers.iter().map(|w| w.watched.clone()).collect(),
            nodes: engine.nodes(),
            names: engine.nfs(),
            pool: engine.pool.clone(),
            ledger: engine.ledger.clone(),
            enough: options.memory.unwrap_or_else(blame::enough),
            stop: engine.stop.clone(),
            hangs: engine.hangs.clone(),
            faults: engine.faults.clone(),
        };
        engine.watchdog = Some(watchdog::start(watch).map_err(no_thread)?);
        Ok((engine, ends))
    }

    fn launch(
        &mut self,
        file: &ChainFile,
        eal: Eal,
        placed: Placed,
        graph: Graph,
        renewals: Renewals,
        idle: Idle,
    ) -> Result<(), Error> {
        let Placed { cpu, chains, plan, inputs, outputs } = placed;
        let nodes = plan.nfs.iter().zip(graph.stats()).map(|(&nf, (_, s))| (nf, s.clone())).collect();
        let received: Vec<_> = inputs.iter().map(|(port, i)| (*port, i.stats.clone())).collect();
        let sent = outputs.iter().enumerate().filter_map(|(p, o)| Some((p, o.as_ref()?.stats.clone()))).collect();
        let kept = |(p, o): (usize, &Option<Output>)| Some((p, o.as_ref()?.local.as_ref()?.stats.clone()));
        let kept: Vec<_> = outputs.iter().enumerate().filter_map(kept).collect();
        let received = received.into_iter().chain(kept).collect();
        let served = scheduled(file, &chains);
        let of = |chain: &Chain| match chain.from {
            Start::Port(port) => port,
            Start::Link(link) => file.ports.len() + link,
        };
        let from = |&c: &usize| (0..inputs.len()).filter(|&i| inputs[i].0 == of(&file.chains[c])).collect();
        let inputs_of: Vec<Vec<usize>> = chains.iter().map(from).collect();
        let inputs = inputs.into_iter().map(|(_, i)| i).collect();
        let mut worker = Worker::new(inputs, graph, outputs, self.stop.clone());
        worker.wait_for(self.returned.clone());
        worker.set_idle(idle);
        if !served.is_empty() {
            // a rate is the chain's on all its cores
            let class = |(chain, served): &(usize, Arc<Served>)| {
                let cores = self.names.chains[*chain].1 as f64;
                let class = file.chains[*chain].class;
                let rate = class.rate.map(|rate| match rate {
                    Rate::Packets(n) => Rate::Packets(n / cores),
                    Rate::Bits(n) => Rate::Bits(n / cores),
                });
                (Class { rate, ..class }, served.clone())
            };
            let classes: Vec<_> = served.iter().map(class).collect();
            worker.schedule(Schedule::new(&classes, clock::hz()), inputs_of);
        }
        let (dry, gaps) = (worker.dry(), worker.gaps());
        let hops = plan.blueprint.hops.iter().enumerate().map(|(hop, of)| {
            let name = worker.graph().name(Hop(hop as u16)).to_owned();
            let blame = Blame::new(format!("nf {name:?} on CPU {cpu}"), plan.nfs[usize::from(of.node)], &self.ledger);
            (name, blame)
        });
        let watched =
            Watched { cpu, beat: worker.beat(), running: worker.graph().running().clone(), hops: hops.collect() };
        let faults = self.faults.clone();
        let doing = Arc::new(watched.clone());
        let stop = self.stop.clone();
        let run = move || {
            caught::be_quiet();
            if let Err(e) = pin(cpu) {
                faults.report(format!("a worker could not be kept on CPU {cpu}: {e}"));
            }
            // without an lcore of its own it works, slower
            let lcore = eal.register_thread();
            if let Err(e) = &lcore {
                faults.report(e.to_string());
            }
            if let Err(message) = crash::within(doing, || worker.run(renewals, &faults)) {
                faults.report(format!("the worker on CPU {cpu} died, and its chains with it: {message}"));
                stop.store(true, Ordering::Relaxed);
            }
            worker
        };
        let thread = std::thread::Builder::new().name(format!("worker-{cpu}")).spawn(run).map_err(no_thread)?;
        let chains = chains.iter().map(|&c| file.chains[c].name.clone()).collect();
        self.workers.push(Running {
            cpu,
            chains,
            nodes,
            received,
            sent,
            served,
            watched,
            dry,
            gaps,
            thread: Some(thread),
        });
        Ok(())
    }

    fn nfs(&self) -> Vec<String> {
        self.names.nfs.iter().map(|(name, _)| name.clone()).collect()
    }

    fn nodes(&self) -> Vec<(usize, Arc<NodeStats>)> {
        self.workers.iter().flat_map(|w| w.nodes.iter().cloned()).collect()
    }

    /// Whether all is done: every worker has come to its end by itself, as when all captures are read, or waits for others
    /// that wait too, and nothing has moved since this was last asked; or the watchdog has ended the run.
    pub fn is_finished(&self) -> bool {
        if self.is_ended() {
            return true;
        }
        let ended = |w: &Running| w.thread.as_ref().is_none_or(JoinHandle::is_finished);
        if self.workers.iter().all(ended) {
            return true;
        }
        let received: u64 = self.workers.iter().flat_map(|w| &w.received).map(|(_, s)| s.packets.get()).sum();
        let still = self.seen.swap(received, Ordering::Relaxed) == received;
        still && self.workers.iter().all(|w| ended(w) || w.dry.load(Ordering::Relaxed))
    }

    /// Whether it was told to stop, or had to.
    pub fn is_ended(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether an NF has had a batch for so long that it is told: only the end of the process ends that.
    pub fn hangs(&self) -> bool {
        self.hangs.load(Ordering::Relaxed)
    }

    /// What has been done so far.
    pub fn snapshot(&self) -> Summary {
        let ports = self.names.ports.iter().map(|(name, device)| PortSummary {
            name: name.clone(),
            device: device.clone(),
            ..Default::default()
        });
        let links = self.names.links.iter().map(|name| LinkSummary { name: name.clone(), ..Default::default() });
        let nfs = self.names.nfs.iter().map(|(name, kind)| NfSummary {
            name: name.clone(),
            kind: (*kind).into(),
            ..Default::default()
        });
        let mut s = Summary {
            file: self.file.clone(),
            seconds: self.started.elapsed().as_secs_f64(),
            memory: words_of(self.eal.memory()).into(),
            ports: ports.collect(),
            links: links.collect(),
            nfs: nfs.collect(),
            workers: self.workers.iter().map(|w| (w.cpu, w.chains.clone())).collect(),
            faults: self.faults.told(),
            ..Default::default()
        };
        for worker in &self.workers {
            worker.nodes.iter().for_each(|(nf, stats)| s.nfs[*nf].add(stats));
            for (chain, served) in &worker.served {
                let name = &self.names.chains[*chain].0;
                match s.chains.iter_mut().find(|c| c.name == *name) {
                    Some(chain) => chain.add(served),
                    None => s.chains.push(ChainSummary::of(name, served)),
                }
            }
            for (port, stats) in &worker.sent {
                match port.checked_sub(self.names.ports.len()) {
                    None => s.ports[*port].add_sent(stats),
                    Some(link) => s.links[link].add_handed(stats),
                }
            }
            for (port, stats) in &worker.received {
                match port.checked_sub(self.names.ports.len()) {
                    None => s.ports[*port].add_received(stats),
                    Some(link) => s.links[link].add_taken(stats),
                }
            }
        }
        s.nfs.iter_mut().enumerate().for_each(|(nf, of)| of.memory = self.ledger.peak(nf));
        for (port, handle) in &self.handles {
            let (stats, port) = (handle.port.stats(), &mut s.ports[*port]);
            port.missed = stats.rx_missed;
            port.copied = stats.rx_copied;
            port.send_errors = stats.tx_errors;
            port.link = handle.link();
            port.drop_received("rx_unusable", handle.dropped(&stats));
        }
        s.total();
        s
    }

    /// The longest time that a worker was away from its ports since this was last asked, to about 50 µs, and the sum of
    /// such times over 100 µs of the worker that has most of them. Workers that let others go first ([`Idle::Yield`]) have
    /// none: nobody can tell who took the CPU.
    pub fn gaps(&self) -> (Duration, Duration) {
        let time = |cycles: u64| Duration::from_secs_f64(cycles as f64 / clock::hz() as f64);
        let most = |of: fn(&Gaps) -> &AtomicU64| {
            self.workers.iter().map(|w| of(&w.gaps).swap(0, Ordering::Relaxed)).max().unwrap_or(0)
        };
        (time(most(|g| &g.longest)), time(most(|g| &g.sum)))
    }

    /// DPDK, for threads besides the workers that send and receive.
    pub fn eal(&self) -> Eal {
        self.eal
    }

    /// Where packets come from.
    pub fn pool(&self) -> &Arc<Mempool> {
        &self.pool
    }

    /// What the user may want to know about how it runs.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Workers that do not end although they have been told to. Waits for the others.
    fn stuck(&self) -> Vec<usize> {
        /// How long a worker may take for what is no NF's, such as closing its ports.
        const CLOSING: Duration = Duration::from_secs(10);
        /// How long an NF may take for its batch, or its end, on a machine that gives its CPU to others.
        const PARTING: Duration = Duration::from_secs(5);
        let ended = |w: &Running| w.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let mut seen: Vec<_> = self.workers.iter().map(|_| ((0, 0), Instant::now())).collect();
        loop {
            let mut waits = false;
            let mut stuck = vec![];
            for (n, (worker, (before, since))) in self.workers.iter().zip(&mut seen).enumerate() {
                let watched = &worker.watched;
                let now = (watched.beat.load(Ordering::Relaxed), watched.running.turn());
                if ended(worker) {
                    continue;
                }
                if now != *before {
                    (*before, *since) = (now, Instant::now());
                }
                let patience = if watched.nf().is_some() { PARTING } else { CLOSING };
                if since.elapsed() < patience { waits = true } else { stuck.push(n) }
            }
            if !waits {
                for &n in &stuck {
                    let Watched { cpu, .. } = self.workers[n].watched;
                    let where_it_is = match self.workers[n].watched.nf() {
                        Some(nf) => format!("nf {nf:?} has not given its batch back"),
                        None => "it is in no NF".to_owned(),
                    };
                    self.faults.report(format!(
                        "the worker on CPU {cpu} does not end: {where_it_is}; what it holds is not counted"
                    ));
                }
                return stuck;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops receiving, lets run out what is inside, closes everything, and adds up.
    pub fn stop(self) -> Summary {
        self.stop_once(|_| true)
    }

    /// Takes nothing more from outside; what comes through walls is taken until [`Engine::stop`].
    pub fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// As [`Engine::stop`]; workers go on taking what comes back from behind walls until `returned` says of what has been
    /// done so far that all is back, at most for three seconds.
    pub fn stop_once(mut self, mut returned: impl FnMut(&Summary) -> bool) -> Summary {
        self.close();
        let end = Instant::now() + RETURN;
        while !returned(&self.snapshot()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.returned.store(true, Ordering::Relaxed);
        let mut held: BTreeMap<usize, u64> = BTreeMap::new();
        let mut ended = vec![];
        drop(self.watchdog.take().map(JoinHandle::join));
        let stuck = self.stuck();
        for (n, running) in self.workers.iter_mut().enumerate() {
            if stuck.contains(&n) {
                // it is left to itself, with all that it holds
                running.thread = None;
                continue;
            }
            match running.thread.take().map(JoinHandle::join) {
                Some(Ok(worker)) => {
                    ended.push((worker, running.received.iter().map(|(port, _)| *port).collect::<Vec<_>>()))
                }
                Some(Err(_)) => self.faults.report(format!("the worker on CPU {} died", running.cpu)),
                None => {}
            }
        }
        for (worker, ports) in &mut ended {
            for (input, n) in worker.empty_queues() {
                *held.entry(ports[input]).or_default() += n;
            }
        }
        for (port, rx) in &mut self.rings {
            let mut batch = Batch::new();
            while RxQueue::receive(rx, &mut batch) != 0 {
                *held.entry(*port).or_default() += batch.len() as u64;
                batch.clear();
            }
        }
        self.captures.iter().for_each(CaptureWriter::finish);
        // the last way to it goes, and it says what it has to say
        ended.iter_mut().for_each(|(worker, _)| worker.part());
        if let Some(renewing) = self.renewing.take().filter(|_| stuck.is_empty()) {
            renewing.end(&self.faults);
        }
        let mut summary = self.snapshot();
        // what is left between cores is counted as handed over and not taken
        for (port, n) in held.into_iter().filter(|(port, _)| *port < self.names.ports.len()) {
            summary.hold(port, n);
        }
        // with the last queue handle a port closes and gives back what its driver held
        drop((ended, std::mem::take(&mut self.rings), std::mem::take(&mut self.handles)));
        // a worker that is left to itself may have a port on one
        summary.faults.extend(if stuck.is_empty() { self.functions.end() } else { self.functions.leave() });
        summary.left = !stuck.is_empty();
        summary.stuck = stuck.iter().filter_map(|&n| self.workers[n].watched.nf().map(str::to_owned)).collect();
        if stuck.is_empty() {
            let who = watchdog::culprits(&self.nfs(), &self.nodes(), false);
            let leaked = self.pool.in_use();
            match (leaked > self.drivers_own, who.is_empty()) {
                (true, true) => summary.faults.push(format!("{leaked} packet buffers were not given back")),
                (true, false) => summary.faults.push(format!("{leaked} packet buffers were not given back: {who}")),
                (false, true) => {}
                (false, false) => {
                    summary.faults.push(format!("{who}: neither sent, nor dropped for a reason, nor held"))
                }
            }
        }
        summary
    }
}

impl Drop for Engine {
    /// Stops workers that nobody has stopped, so that none polls a port that closes.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let stuck = self.stuck();
        for (n, running) in self.workers.iter_mut().enumerate() {
            let thread = running.thread.take().filter(|_| !stuck.contains(&n));
            drop(thread.map(JoinHandle::join));
        }
        drop(self.watchdog.take().map(JoinHandle::join));
        if let Some(renewing) = self.renewing.take().filter(|_| stuck.is_empty()) {
            renewing.end(&self.faults);
        }
        if !stuck.is_empty() {
            drop(self.functions.leave());
        }
    }
}

fn no_thread(e: std::io::Error) -> Error {
    Error::Environment {
        problem: format!("a thread does not start: {e}"),
        remedy: "raise the limit of threads: ulimit -u".into(),
    }
}

/// Counts for each chain of a worker, if they are not all served in turn.
fn scheduled(file: &ChainFile, chains: &[usize]) -> Vec<(usize, Arc<Served>)> {
    if chains.iter().all(|&c| file.chains[c].class == Class::PLAIN) {
        return vec![];
    }
    chains.iter().map(|&c| (c, Arc::default())).collect()
}

/// What runs where.
fn place(file: &ChainFile, allowed: &[usize], strategy: Strategy) -> Vec<Placed> {
    let mut by_cpu: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let placed = placement::place(file, &Topology::read(), allowed, strategy, Path::new("/sys"));
    for (n, placement) in placed.iter().enumerate() {
        placement.cpus.iter().for_each(|&cpu| by_cpu.entry(cpu).or_default().push(n));
    }
    let placed = by_cpu.into_iter().map(|(cpu, chains)| {
        let plan = file.worker(&chains);
        let outputs = (0..file.ports.len() + file.links.len()).map(|_| None).collect();
        Placed { cpu, chains, plan, inputs: vec![], outputs }
    });
    placed.collect()
}

/// For each worker, its nodes.
type Nodes = Vec<Vec<Box<dyn graph::Node>>>;

/// One copy of each NF for each worker that has it, and how to build it again.
fn build(file: &ChainFile, workers: &[Placed], ledger: &Ledger) -> Result<(Nodes, Vec<Vec<Recipe>>), Error> {
    let common = Common::default();
    let mut faults = vec![];
    let (mut all, mut all_recipes) = (vec![], vec![]);
    for (w, worker) in workers.iter().enumerate() {
        let (mut nodes, mut recipes) = (vec![], vec![]);
        for &nf in &worker.plan.nfs {
            let holders = |ws: &[Placed]| ws.iter().filter(|p| p.plan.nfs.contains(&nf)).count();
            let cx = BuildContext {
                name: file.nfs[nf].name.clone(),
                folder: file.folder().to_owned(),
                copy: (holders(&workers[..w]), holders(workers)),
                common: common.clone(),
                checks: false,
            };
            let factory = file.nfs[nf].factory.clone();
            let blame = Arc::new(Blame::new(format!("nf {:?}, while it was built,", cx.name), nf, ledger));
            match crash::within(blame.clone(), || factory.build(&cx)) {
                Ok(node) => nodes.push(node),
                Err(d) => faults.push(file.place(nf, d)),
            }
            recipes.push(Recipe { factory, cx, blame });
        }
        all.push(nodes);
        all_recipes.push(recipes);
    }
    faults.dedup();
    if faults.is_empty() { Ok((all, all_recipes)) } else { Err(Error::Input(Diagnostics(faults))) }
}
