//! The engine: starts the workers of a chain file, reports on them, and stops them.

mod driver_counts;
mod fused;
mod hand_over;
mod links;
mod live_nfs;
mod memory;
mod names;
mod nodes;
mod observe;
mod planned_worker;
mod port_setup;
mod reload;
mod saved_state;
mod snapshot;

use driver_counts::DriverCounts;
pub use live_nfs::LiveNfs;
pub use memory::MAX_POOL_PACKETS;
use memory::start_dpdk;
use names::{End, Names};
use nodes::build_nodes;
use planned_worker::{PlannedWorker, plan_workers};
use port_setup::PortSetup;
pub use reload::Reloaded;
use saved_state::SavedNode;
pub use saved_state::{Predecessor, SavedState, monotonic_nanos};

use crate::cpu::{Strategy, allowed_cpus, pin, set_affinity};
use crate::error::{Error, thread_error};
use crate::faults::attribution::{self, MemoryAccounts, NfActivity};
use crate::faults::run_errors::RunErrors;
use crate::faults::watchdog::{self, Watched, WatchedWorker};
use crate::pci::sriov::{Kernel, Linux, VirtualFunctions};
use crate::ports::{
    self, CaptureWriter, ExistingTaps, PortMonitor, PortQueues, RepresentorTap, Representors, SourceKind,
    UnconfiguredRepresentors, Wires,
};
use crate::summary::{Summary, WorkerSummary};
use crate::worker::command::Command;
use crate::worker::rebuild::{self, NodeBuilder, RebuildClient, Rebuilder};
use crate::worker::schedule::{ChainUsage, Schedule};
use crate::worker::{DrainControl, DrainProgress, IdlePolicy, RELEASE_TIMEOUT, RunEnd};
use crate::{Input, LinkStats, Output, PollGaps, PollTimes, Receive as _, Worker};
use config::{ChainFile, Clock, ServiceClass, Start, WorkerPlan};
use diagnostics::Diagnostics;
use dpdk::{Eal, Mempool};
use graph::{Graph, NodeStats, Rate, SettingFiles, panics};
use packet::{Batch, clock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Settings of a run that a chain file does not contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Placement of chains for which the file names no CPUs.
    pub strategy: Strategy,
    /// Bytes of memory, without huge pages, above which the run is stopped and the NF with the largest share is named.
    /// Defaults to four fifths of the memory of the machine or container.
    pub memory_limit: Option<u64>,
    /// Behaviour of workers while no packets arrive.
    pub idle: IdlePolicy,
}

/// A running chain file.
pub struct Engine {
    /// The chain file that runs now.
    file: ChainFile,
    options: Options,
    /// CPUs that workers may use.
    allowed: Vec<usize>,
    /// True if wires replace the ports.
    on_wires: bool,
    names: Names,
    started: Instant,
    /// Begin of the time of the graphs, which goes on from process to process.
    graph_started: Instant,
    stop: Arc<AtomicBool>,
    drain: Arc<DrainControl>,
    errors: RunErrors,
    workers: Vec<WorkerHandle>,
    /// Of the open ports.
    monitors: Vec<(usize, PortMonitor)>,
    /// Taps of the open ports of representors.
    taps: Vec<(usize, RepresentorTap)>,
    representors: Representors,
    unconfigured: UnconfiguredRepresentors,
    /// Counts of the drivers of ports that a reload has removed.
    removed_ports: Vec<(usize, DriverCounts)>,
    captures: Vec<(usize, CaptureWriter)>,
    pool: Arc<Mempool>,
    /// Pools of the packets of ports that reloads have added.
    further_pools: Vec<Arc<Mempool>>,
    /// Packet buffers that drivers may retain after closing.
    driver_buffers: usize,
    eal: Eal,
    notes: Vec<String>,
    /// NFs that started without the state that they had in another process.
    not_restored: Vec<String>,
    /// Packets received at the last call of [`Engine::is_finished`].
    last_received: AtomicU64,
    /// Rebuilds NFs after a panic.
    rebuilder: Option<Rebuilder>,
    watchdog: Option<JoinHandle<()>>,
    watched: Arc<Mutex<Watched>>,
    stuck: Arc<AtomicBool>,
    accounts: MemoryAccounts,
    live_nfs: LiveNfs,
    /// Receives the state of the NFs at the end.
    successor: Option<Box<dyn FnOnce(SavedState) + Send>>,
    /// Dropped last, as ports that use them have to be closed before.
    functions: VirtualFunctions,
    existing_taps: Vec<ExistingTaps>,
}

/// An input of a worker.
#[derive(Clone)]
struct Source {
    end: End,
    kind: SourceKind,
    stats: Arc<LinkStats>,
}

/// An output of a worker.
#[derive(Clone)]
struct Destination {
    end: End,
    stats: Arc<LinkStats>,
}

struct WorkerHandle {
    cpu: usize,
    /// True once a reload has taken all chains from it.
    has_ended: bool,
    /// Chains of the file that runs now.
    chains: Vec<usize>,
    plan: WorkerPlan,
    builders: Vec<Arc<NodeBuilder>>,
    /// Statistics of the nodes of the plan.
    node_stats: Vec<Arc<NodeStats>>,
    /// Statistics of all nodes so far, with the index of the NF in [`Names`].
    nodes: Vec<(usize, Arc<NodeStats>)>,
    /// Inputs of the worker, in order.
    inputs: Vec<Source>,
    /// Outputs of the worker, by the number of the port or link in the file that runs now.
    outputs: Vec<Option<Destination>>,
    received: Vec<(End, Arc<LinkStats>)>,
    sent: Vec<(End, Arc<LinkStats>)>,
    /// Correction of counts of which a part belongs to another worker, added modulo 2^64.
    counted_elsewhere: WorkerSummary,
    /// Usage of each chain by its name, while the worker schedules its chains.
    usage: Vec<(String, Arc<ChainUsage>)>,
    commands: Sender<Command>,
    watched: WatchedWorker,
    drained: Arc<AtomicBool>,
    progress: Arc<DrainProgress>,
    gaps: Arc<PollGaps>,
    busy: Arc<graph::Counter>,
    thread: Option<JoinHandle<Worker>>,
}

impl Engine {
    /// Opens the ports, builds the NFs and starts the workers.
    ///
    /// # Errors
    /// An NF rejects a setting, a CPU does not exist, or a port cannot be opened.
    pub fn start(file: &ChainFile) -> Result<Engine, Error> {
        Engine::start_with(file, Options::default())
    }

    /// Starts as [`Engine::start`] does, with these options.
    ///
    /// # Errors
    /// As for [`Engine::start`].
    pub fn start_with(file: &ChainFile, options: Options) -> Result<Engine, Error> {
        Engine::start_with_hook(file, options, || Ok(()))
    }

    /// Starts as [`Engine::start_with`] does, and calls `opened` when the ports are open and no worker runs yet.
    ///
    /// # Errors
    /// As for [`Engine::start`], and those of `opened`.
    pub fn start_with_hook(
        file: &ChainFile,
        options: Options,
        opened: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Engine, Error> {
        Engine::start_successor(file, options, None, opened)
    }

    /// Starts as [`Engine::start_with_hook`] does, and continues what another process has run: see [`Predecessor`].
    ///
    /// # Errors
    /// As for [`Engine::start_with_hook`], and those of the predecessor.
    pub fn start_successor(
        file: &ChainFile,
        options: Options,
        predecessor: Option<Predecessor<'_>>,
        opened: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Engine, Error> {
        Ok(Engine::start_inner(file, None, options, &Linux, None, predecessor, opened)?.0)
    }

    /// Starts a chain file whose NFs are not trusted: opens the ports, calls `confine`, and only then builds NFs, which
    /// read `files`.
    ///
    /// # Errors
    /// As for [`Engine::start`], and those of `confine`.
    pub fn start_confined(
        file: &ChainFile,
        options: Options,
        files: SettingFiles,
        confine: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Engine, Error> {
        Ok(Engine::start_inner(file, None, options, &Linux, Some(files), None, confine)?.0)
    }

    /// Starts with a wire of `depth` packets in each direction instead of every port; the caller sends to the chains
    /// and receives from them at the far ends.
    ///
    /// # Errors
    /// As for [`Engine::start`].
    pub fn start_on_wires(file: &ChainFile, depth: u32) -> Result<(Engine, Vec<PortQueues>), Error> {
        Engine::start_on_wires_with_hook(file, Wires { depth, per_port: 1 }, Options::default(), || Ok(()))
    }

    /// Starts as [`Engine::start_on_wires`] does, with these options. Sandbox ports are opened as usual, and `opened`
    /// is called when they are open.
    ///
    /// # Errors
    /// As for [`Engine::start_with_hook`].
    pub fn start_on_wires_with_hook(
        file: &ChainFile,
        wires: Wires,
        options: Options,
        opened: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(Engine, Vec<PortQueues>), Error> {
        Engine::start_inner(file, Some(wires), options, &Linux, None, None, opened)
    }

    /// Starts an engine; `kernel` creates the virtual functions. With `confined`, NFs are built after `opened`.
    pub(crate) fn start_inner(
        file: &ChainFile,
        wires: Option<Wires>,
        options: Options,
        kernel: &dyn Kernel,
        confined: Option<SettingFiles>,
        predecessor: Option<Predecessor<'_>>,
        opened: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(Engine, Vec<PortQueues>), Error> {
        crash::install();
        // before the workers, whose CPUs it must not use
        logger::start();
        let allowed = allowed_cpus();
        let unavailable = file.unavailable_cpus(&allowed);
        if !unavailable.is_empty() {
            return Err(Error::Input(Diagnostics(unavailable)));
        }
        // declared first, to be dropped after the ports on every path
        let functions;
        let existing_taps: ExistingTaps;
        let mut workers = plan_workers(file, &allowed, options.strategy);
        if predecessor.is_some() {
            // takes 20 ms the first time
            clock::hz();
            // whose workers run there; ignore errors: this process then takes time of theirs
            let _ = set_affinity(&cpus_without(&allowed, workers.iter().map(|worker| worker.cpu)));
        }
        let accounts = MemoryAccounts::default();
        // NFs first, so that invalid settings are reported before any device is opened
        let built = match &confined {
            None => Some(build_nodes(file, &workers, &accounts, &SettingFiles::default())?),
            Some(_) => None,
        };
        let ports = || file.ports.iter().filter(|_| wires.is_none());
        let (mut predecessor, mut saved) = (predecessor, SavedState::default());
        if ports().any(|port| saved_state::is_held_by_dpdk(&port.device))
            && let Some(predecessor) = predecessor.take()
        {
            saved = predecessor(vec![])?;
        }
        functions = VirtualFunctions::create(kernel, ports().map(|port| (port.name.as_str(), &port.device)))?;
        existing_taps = record_taps(ports())?;
        let (eal, pool) = start_dpdk(file, &workers, wires, &functions)?;
        let control_cpus = cpus_without(&allowed, workers.iter().map(|worker| worker.cpu));
        let mut setup = PortSetup {
            file,
            functions: &functions,
            eal,
            pool: pool.clone(),
            stop: Arc::default(),
            errors: RunErrors::default(),
            monitors: vec![],
            representors: Representors::default(),
            taps: vec![],
            control_cpus: control_cpus.clone(),
            captures: vec![],
            driver_buffers: 0,
            shared_rings: ports::SharedRings::default(),
            notes: memory::memory_note(eal).into_iter().chain(functions.notes().iter().cloned()).collect(),
            rx_interrupts: options.idle == IdlePolicy::Sleep,
        };
        let far_ends = match wires {
            Some(wires) => setup.open_wires(wires, &mut workers)?,
            None => {
                let all: Vec<usize> = (0..file.ports.len()).collect();
                let (shareable, others): (Vec<_>, Vec<_>) =
                    all.into_iter().partition(|&port| saved_state::is_shareable(&file.ports[port].device));
                setup.open(&shareable, &mut workers)?;
                if let Some(predecessor) = predecessor {
                    saved = predecessor(saved_state::hold_back(file, &shareable, &mut workers)?)?;
                }
                setup.open(&others, &mut workers)?;
                vec![]
            }
        };
        links::connect(file, &mut workers)?;
        opened()?;
        let (nodes, builders) = match built {
            Some(built) => built,
            None => build_nodes(file, &workers, &accounts, &confined.unwrap_or_default())?,
        };
        let PortSetup {
            stop, errors, monitors, representors, taps, captures, driver_buffers, shared_rings, notes, ..
        } = setup;
        let rebuilder = rebuild::start(errors.clone(), control_cpus).map_err(thread_error)?;
        let clients: Vec<_> = builders.into_iter().map(|builders| rebuilder.client(builders)).collect();
        let cores = cores_of_chains(file, &workers);
        let mut engine = Engine {
            file: file.clone(),
            options,
            allowed,
            on_wires: wires.is_some(),
            names: Names::default().with(file, wires.is_some()),
            started: Instant::now(),
            graph_started: saved.graph_start(),
            stop,
            drain: Arc::default(),
            errors,
            workers: vec![],
            monitors,
            taps,
            representors,
            unconfigured: UnconfiguredRepresentors::default(),
            removed_ports: vec![],
            captures,
            eal,
            pool,
            further_pools: vec![],
            driver_buffers: driver_buffers + shared_rings.max_outstanding(),
            notes,
            not_restored: vec![],
            last_received: AtomicU64::new(u64::MAX),
            rebuilder: Some(rebuilder),
            watchdog: None,
            watched: Arc::default(),
            stuck: Arc::default(),
            accounts,
            live_nfs: LiveNfs::default(),
            successor: None,
            functions,
            existing_taps: vec![existing_taps],
        };
        let named = workers.iter().zip(&nodes).flat_map(|(planned, nodes)| {
            let names = planned.plan.blueprint.nodes.iter().map(|node| node.name.as_str());
            names.zip(nodes.iter().map(|node| node.held_max()))
        });
        engine.notes.extend(memory::held_note(named, engine.pool.size()));
        let mut graphs = vec![];
        for ((planned, rebuild), nodes) in workers.iter().zip(&clients).zip(nodes) {
            let mut graph = Graph::new(&planned.plan.blueprint, nodes, engine.pool.clone());
            if !file.segments.is_empty() {
                graph.fuse(&file.segments);
                engine.notes.extend(fused::notes(planned.cpu, &planned.plan.blueprint, &graph));
            }
            if !engine.follows_captures() {
                graph.set_time(engine.graph_started.elapsed());
            }
            let notes = saved.restore(file, &planned.plan.nfs, rebuild.builders(), &mut graph);
            engine.not_restored.extend(notes);
            graphs.push(graph);
        }
        // all copies have restored what they share
        for ((planned, rebuild), graph) in workers.into_iter().zip(clients).zip(graphs) {
            engine.spawn_worker(planned, graph, rebuild, &cores)?;
        }
        engine.update_watched();
        engine.live_nfs.update(file, &engine.workers);
        let watchdog = watchdog::Watchdog {
            watched: engine.watched.clone(),
            pool: engine.pool.clone(),
            accounts: engine.accounts.clone(),
            memory_limit: options.memory_limit.unwrap_or_else(attribution::default_memory_limit),
            stop: engine.stop.clone(),
            stuck: engine.stuck.clone(),
            errors: engine.errors.clone(),
        };
        engine.watchdog = Some(watchdog::start(watchdog).map_err(thread_error)?);
        Ok((engine, far_ends))
    }

    fn spawn_worker(
        &mut self,
        planned: PlannedWorker,
        graph: Graph,
        rebuild: RebuildClient,
        cores: &[usize],
    ) -> Result<(), Error> {
        let (eal, file) = (self.eal, &self.file);
        let PlannedWorker { cpu, chains, plan, inputs, outputs } = planned;
        let node_stats: Vec<_> = graph.stats().map(|(_, stats)| stats.clone()).collect();
        // the names are those of the file until the first reload
        let nodes = plan.nfs.iter().copied().zip(node_stats.iter().cloned()).collect();
        let end = |number| self.names.end(file, number);
        let received = inputs.iter().map(|(number, i)| (end(*number), i.stats.clone()));
        let sent = outputs.iter().enumerate().filter_map(|(n, o)| Some((end(n), o.as_ref()?.stats.clone())));
        let sent = sent.collect();
        let local = outputs.iter().enumerate().filter_map(|(n, o)| Some((end(n), o.as_ref()?.local_stats()?)));
        let received = received.chain(local).collect();
        let source = |(number, input): &(usize, Input)| Source {
            end: end(*number),
            kind: input.rx.kind(),
            stats: input.stats.clone(),
        };
        let sources: Vec<Source> = inputs.iter().map(source).collect();
        let destination = |(n, output): (usize, &Option<Output>)| {
            Some(Destination { end: end(n), stats: output.as_ref()?.stats.clone() })
        };
        let destinations = outputs.iter().enumerate().map(destination).collect();
        let inputs = inputs.into_iter().map(|(_, i)| i).collect();
        let mut worker = Worker::new(inputs, graph, outputs, self.stop.clone());
        worker.set_drain_control(self.drain.clone());
        worker.set_started(self.graph_started);
        if chains.is_empty() {
            worker.await_chains();
        }
        if self.follows_captures() {
            worker.set_capture_clock();
        }
        worker.set_idle(self.options.idle);
        let (usage, schedule) = self.schedule(&chains, &sources, cores);
        if let Some((schedule, inputs)) = schedule {
            worker.set_schedule(schedule, inputs);
        }
        let (drained, gaps, busy) = (worker.drained(), worker.poll_gaps(), worker.busy_cycles());
        let progress = worker.drain_progress();
        let mut hops = watched_hops(cpu, &plan, |node| plan.nfs[usize::from(node)], &self.accounts);
        // memory that a segment allocates is attributed to its first NF
        hops.extend(worker.graph().segments().map(|(_, nodes)| {
            let name = fused::list(&plan.blueprint, nodes, "or");
            let activity =
                NfActivity::new(format!("nf {name:?} on CPU {cpu}"), plan.nfs[usize::from(nodes[0])], &self.accounts);
            (name, activity)
        }));
        let watched = WatchedWorker {
            cpu,
            heartbeat: worker.heartbeat(),
            running: worker.graph().current_hop().clone(),
            clock: Arc::default(),
            hops: hops.into(),
        };
        let builders = rebuild.builders().to_vec();
        let (commands, incoming) = channel();
        worker.connect(rebuild, incoming);
        let errors = self.errors.clone();
        let mut activity = watched.clone();
        let stop = self.stop.clone();
        let run = move || {
            if let Some(own) = crash::ThreadClock::of_this_thread() {
                // set once, as the thread starts once
                let _ = activity.clock.set(own);
            }
            panics::suppress_output();
            if let Err(e) = pin(cpu) {
                errors.report(format!("the worker cannot be pinned to CPU {cpu}: {e}"));
            }
            // optional: a thread that is no lcore works, slower
            let lcore = eal.register_thread();
            if let Err(e) = &lcore {
                errors.report(e.to_string());
            }
            loop {
                match crash::with_activity(Arc::new(activity.clone()), || worker.run(&errors)) {
                    Ok(RunEnd::Replaced(as_watched)) => activity = as_watched,
                    Ok(RunEnd::Finished) => break,
                    Err(message) => {
                        errors.report(format!("the worker on CPU {cpu} and its chains ended by a panic: {message}"));
                        stop.store(true, Ordering::Relaxed);
                        break;
                    }
                }
            }
            worker
        };
        let thread = std::thread::Builder::new().name(format!("worker-{cpu}")).spawn(run).map_err(thread_error)?;
        self.workers.push(WorkerHandle {
            cpu,
            has_ended: false,
            chains,
            plan,
            builders,
            node_stats,
            nodes,
            inputs: sources,
            outputs: destinations,
            received,
            sent,
            counted_elsewhere: WorkerSummary::default(),
            usage,
            commands,
            watched,
            drained,
            progress,
            gaps,
            busy,
            thread: Some(thread),
        });
        Ok(())
    }

    /// Returns the end with this number in the file that runs now.
    fn end(&self, number: usize) -> End {
        self.names.end(&self.file, number)
    }

    /// Returns the workers that have chains.
    fn live_workers(&self) -> impl Iterator<Item = &WorkerHandle> {
        self.workers.iter().filter(|worker| !worker.has_ended)
    }

    /// Keeps the calling thread, and those that it creates from now on, off the CPUs of workers, if there are others.
    pub fn leave_worker_cpus(&self) {
        // ignore errors: the thread may then run on any
        let _ = set_affinity(&self.control_cpus());
    }

    /// Returns the chain file that runs now.
    #[must_use]
    pub fn file(&self) -> &ChainFile {
        &self.file
    }

    /// Returns the CPUs that workers may use.
    #[must_use]
    pub fn allowed_cpus(&self) -> &[usize] {
        &self.allowed
    }

    /// Returns the CPUs of workers that have chains.
    #[must_use]
    pub fn worker_cpus(&self) -> Vec<usize> {
        self.live_workers().map(|worker| worker.cpu).collect()
    }

    /// Returns the CPUs without workers.
    fn control_cpus(&self) -> Vec<usize> {
        cpus_without(&self.allowed, self.live_workers().map(|worker| worker.cpu))
    }

    /// Returns the source of a chain of the file that runs now.
    fn source(&self, chain: usize) -> End {
        match self.file.chains[chain].from {
            Start::Port(port) => self.end(port),
            Start::Link(link) => self.end(self.file.ports.len() + link),
        }
    }

    /// Returns true if captures give the time of the graphs. In a benchmark, wires replace them.
    fn follows_captures(&self) -> bool {
        self.file.clock == Clock::Capture && !self.on_wires
    }

    /// Returns the schedule of a worker's chains, and the usage of each by its name; nothing if they are served in turn.
    /// `cores` are those of each chain of the file.
    fn schedule(
        &self,
        chains: &[usize],
        inputs: &[Source],
        cores: &[usize],
    ) -> (Vec<(String, Arc<ChainUsage>)>, Option<ChainSchedule>) {
        let all = &self.file.chains;
        if chains.iter().all(|&c| all[c].class == ServiceClass::DEFAULT) {
            return (vec![], None);
        }
        let usage: Vec<(String, Arc<ChainUsage>)> =
            chains.iter().map(|&c| (all[c].name.clone(), Arc::default())).collect();
        // the rate of a chain is shared by its cores
        let class = |(&chain, (_, usage)): (&usize, &(String, Arc<ChainUsage>))| {
            let (class, cores) = (all[chain].class, cores[chain] as f64);
            let rate = class.rate.map(|rate| match rate {
                Rate::Packets(n) => Rate::Packets(n / cores),
                Rate::Bits(n) => Rate::Bits(n / cores),
            });
            (ServiceClass { rate, ..class }, usage.clone())
        };
        let classes: Vec<_> = chains.iter().zip(&usage).map(class).collect();
        let of_chain = |&chain: &usize| (0..inputs.len()).filter(|&i| inputs[i].end == self.source(chain)).collect();
        (usage, Some((Schedule::new(&classes, clock::hz()), chains.iter().map(of_chain).collect())))
    }

    /// Has the watchdog check what runs now.
    fn update_watched(&self) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = Watched {
            workers: self.live_workers().map(|worker| worker.watched.clone()).collect(),
            nodes: self.workers.iter().flat_map(|worker| worker.nodes.iter().cloned()).collect(),
            names: self.names.nfs.iter().map(|(name, _)| name.clone()).collect(),
        };
    }

    /// Returns true if the run is complete: every worker has ended, as when all captures are read, or waits for others
    /// that wait too and no packet was received since the last call; or the watchdog has stopped the run.
    pub fn is_finished(&self) -> bool {
        if self.is_stopping() {
            return true;
        }
        let ended = |w: &WorkerHandle| w.thread.as_ref().is_none_or(JoinHandle::is_finished);
        if self.workers.iter().all(ended) {
            return true;
        }
        let received: u64 = self.workers.iter().flat_map(|w| &w.received).map(|(_, s)| s.packets.get()).sum();
        let quiet = self.last_received.swap(received, Ordering::Relaxed) == received;
        quiet && self.workers.iter().all(|w| ended(w) || w.drained.load(Ordering::Relaxed))
    }

    /// Returns true if the run is being stopped, by the caller or by the watchdog.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns true if an NF exceeds the time limit of a batch, which only the end of the process resolves.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Returns the longest times of a worker since the last call; longest gaps have a resolution of about 50 µs.
    /// Workers under [`IdlePolicy::Yield`] report none, as preemption cannot be told from yielding.
    pub fn take_poll_times(&self) -> PollTimes {
        let time = |cycles: u64| Duration::from_secs_f64(cycles as f64 / clock::hz() as f64);
        let max = |value: fn(&PollGaps) -> &AtomicU64| {
            time(self.workers.iter().map(|w| value(&w.gaps).swap(0, Ordering::Relaxed)).max().unwrap_or(0))
        };
        PollTimes {
            gap_max: max(|g| &g.longest),
            gap_sum: max(|g| &g.sum),
            off_cpu: max(|g| &g.off_cpu),
            off_cpu_max: max(|g| &g.off_cpu_longest),
        }
    }

    /// Returns the EAL, for further threads that send and receive.
    pub fn eal(&self) -> Eal {
        self.eal
    }

    fn pools(&self) -> impl Iterator<Item = &Arc<Mempool>> {
        std::iter::once(&self.pool).chain(&self.further_pools)
    }

    fn packets_in_use(&self) -> usize {
        self.pools().map(|pool| pool.in_use()).sum()
    }

    /// Returns the packet pool.
    pub fn pool(&self) -> &Arc<Mempool> {
        &self.pool
    }

    /// Returns access to the NFs, which is not that of the engine: other threads may use it.
    #[must_use]
    pub fn live_nfs(&self) -> &LiveNfs {
        &self.live_nfs
    }

    /// Returns notes for the user about how the chain file runs.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Waits for the workers to stop; returns those that do not.
    fn wait_for_workers(&self) -> Vec<usize> {
        /// Time limit without progress outside of NFs, such as for closing ports.
        const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
        /// Limit of CPU time without progress within an NF.
        const NF_TIMEOUT: Duration = Duration::from_secs(5);
        /// Time limit without progress within an NF that waits, or gets no CPU time.
        const NF_WAITING_TIMEOUT: Duration = Duration::from_secs(15);
        let ended = |w: &WorkerHandle| w.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let mut progress: Vec<_> = self.workers.iter().map(|_| ((0, 0), Instant::now(), Duration::ZERO)).collect();
        loop {
            let mut waits = false;
            let mut stuck = vec![];
            for (n, (worker, (before, since, cpu_time))) in self.workers.iter().zip(&mut progress).enumerate() {
                let watched = &worker.watched;
                let now = (watched.heartbeat.load(Ordering::Relaxed), watched.running.sequence());
                if ended(worker) {
                    continue;
                }
                if now != *before {
                    (*before, *since, *cpu_time) = (now, Instant::now(), watched.cpu_time());
                }
                let is_stuck = match watched.current_nf() {
                    None => since.elapsed() >= CLOSE_TIMEOUT,
                    Some(_) => {
                        let used = watched.cpu_time().saturating_sub(*cpu_time);
                        used >= NF_TIMEOUT || since.elapsed() >= NF_WAITING_TIMEOUT
                    }
                };
                if is_stuck { stuck.push(n) } else { waits = true }
            }
            if !waits {
                for &n in &stuck {
                    let WatchedWorker { cpu, .. } = self.workers[n].watched;
                    let position = match self.workers[n].watched.current_nf() {
                        Some(nf) => format!("nf {nf:?} has not finished its batch"),
                        None => "it is in no NF".to_owned(),
                    };
                    self.errors.report(format!(
                        "the worker on CPU {cpu} does not stop: {position}; the packets that it holds are not counted"
                    ));
                }
                return stuck;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops receiving, drains the chains, closes everything, and returns the final counts.
    pub fn stop(self) -> Summary {
        self.stop_receiving();
        self.finish()
    }

    /// Receives no more packets from ports, while queued and held packets are forwarded and timers run, until
    /// [`Engine::stop`]. Rings, links and sandboxes are received from as before.
    pub fn close_inputs(&self) {
        for worker in &self.workers {
            // ignore errors: the worker has ended
            let _ = worker.commands.send(Command::CloseInputs);
        }
    }

    /// Stops receiving from ports; packets that return from sandboxes are received until [`Engine::stop`].
    pub fn stop_receiving(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns true once all workers have seen [`Engine::stop_receiving`], after which `received` of ports outside
    /// sandboxes is constant.
    pub fn has_stopped_receiving(&self) -> bool {
        let ended = |w: &WorkerHandle| w.thread.as_ref().is_none_or(JoinHandle::is_finished);
        self.workers.iter().all(|w| w.progress.stopped.load(Ordering::Acquire) || ended(w))
    }

    /// Returns true if all workers have stopped and each polled its remaining inputs without receiving a packet since
    /// the last call that returned true.
    fn take_empty_round(&self) -> bool {
        let round = self.drain.round.load(Ordering::Relaxed);
        let ended = |w: &WorkerHandle| w.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let is_empty = |w: &WorkerHandle| w.progress.empty_round.load(Ordering::Acquire) >= round || ended(w);
        let all_empty = round > 0 && self.workers.iter().all(is_empty);
        if all_empty || round == 0 {
            self.drain.round.store(round + 1, Ordering::Release);
        }
        all_empty
    }

    /// Stops as [`Engine::stop`] does, and receives packets that return from sandboxes for at most three seconds: until
    /// no packet is on its way between ports and workers, and `drained` returns true for the counts so far.
    pub fn stop_when_drained(self, mut drained: impl FnMut(&Summary) -> bool) -> Summary {
        self.stop_receiving();
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        let moved = |counts: &Summary| {
            let links = counts.links.iter().map(|link| link.sent + link.received).sum::<u64>();
            (counts.totals, links)
        };
        let mut before = None;
        while Instant::now() < deadline {
            if self.take_empty_round() {
                let counts = self.snapshot();
                // in the first of two rounds, a worker may pass a packet to one that has polled before
                if before == Some(moved(&counts)) && drained(&counts) {
                    break;
                }
                before = Some(moved(&counts));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.finish()
    }

    /// Passes what nodes have saved to the process that continues the chains, once.
    fn pass_state(&mut self, saved: &mut Vec<SavedNode>) {
        if let Some(successor) = self.successor.take() {
            successor(SavedState::new(self.graph_started, core::mem::take(saved)));
        }
    }

    /// Waits for stopped workers, closes everything, and returns the final counts.
    fn finish(mut self) -> Summary {
        self.drain.released.store(true, Ordering::Relaxed);
        let mut held: BTreeMap<End, u64> = BTreeMap::new();
        let mut ended = vec![];
        let mut saved = vec![];
        let stuck = self.wait_for_workers();
        for (n, handle) in self.workers.iter_mut().enumerate() {
            if stuck.contains(&n) {
                // abandoned, with all that it holds
                handle.thread = None;
                continue;
            }
            match handle.thread.take().map(JoinHandle::join) {
                Some(Ok(mut worker)) => {
                    saved.extend(saved_state::saved_nodes(
                        &self.file,
                        (&handle.plan.nfs, &handle.builders),
                        worker.take_saved(),
                    ));
                    ended.push((worker, handle.inputs.iter().map(|source| source.end).collect::<Vec<_>>()))
                }
                Some(Err(_)) => self.errors.report(format!("the worker on CPU {} ended by a panic", handle.cpu)),
                None => {}
            }
        }
        if self.file.ports.iter().all(|port| saved_state::is_shareable(&port.device)) {
            self.pass_state(&mut saved);
        }
        for (worker, ports) in &mut ended {
            for (input, n) in worker.discard_queued() {
                *held.entry(ports[input]).or_default() += n;
            }
        }
        // rings that no chain receives from
        for (port, monitor) in self.monitors.iter().filter(|(_, monitor)| monitor.is_ring()) {
            let mut batch = Batch::new();
            let mut rx = monitor.port.unused_rx();
            while rx.as_mut().is_some_and(|rx| rx.receive(&mut batch) != 0) {
                *held.entry(End::Port(*port)).or_default() += batch.len() as u64;
                batch.clear();
            }
        }
        self.captures.iter().for_each(|(_, capture)| capture.finish());
        // before the last counts, which include errors of sending
        self.taps.iter().for_each(|(_, tap)| tap.close());
        // the rebuilder ends when the last client disconnects, and reports its errors
        ended.iter_mut().for_each(|(worker, _)| worker.disconnect_rebuilder());
        if let Some(rebuilder) = self.rebuilder.take().filter(|_| stuck.is_empty()) {
            rebuilder.join(&self.errors);
        }
        let mut summary = self.snapshot();
        for (port, monitor) in &self.monitors {
            let name = &self.names.ports[*port].0;
            summary.errors.extend(monitor.link_loss().map(|error| format!("port {name:?}: {error}")));
        }
        // packets left between cores are already counted as sent and not received by the link
        for (end, n) in held {
            if let End::Port(port) = end {
                summary.add_held(port, n);
            }
        }
        // a port closes with its last queue handle, and returns the packets that its driver held
        drop((ended, std::mem::take(&mut self.monitors)));
        self.pass_state(&mut saved);
        drop(self.watchdog.take().map(JoinHandle::join));
        // an abandoned worker may still have a port on a virtual function
        if stuck.is_empty() {
            summary.errors.extend(self.functions.release());
            summary.errors.extend(self.existing_taps.iter_mut().flat_map(ExistingTaps::restore));
        } else {
            summary.errors.extend(self.functions.release_at_exit());
            self.existing_taps.iter_mut().for_each(ExistingTaps::restore_at_exit);
        }
        summary.abandoned = !stuck.is_empty();
        summary.stuck = stuck.iter().filter_map(|&n| self.workers[n].watched.current_nf().map(str::to_owned)).collect();
        if stuck.is_empty() {
            let who = self.watched.lock().unwrap_or_else(PoisonError::into_inner).describe_holders(false);
            let leaked = self.packets_in_use();
            match (leaked > self.driver_buffers, who.is_empty()) {
                (true, true) => summary.errors.push(format!("{leaked} packet buffers leaked")),
                (true, false) => summary.errors.push(format!("{leaked} packet buffers leaked: {who}")),
                (false, true) => {}
                (false, false) => summary.errors.push(who),
            }
        }
        summary
    }
}

impl Drop for Engine {
    /// Stops workers that are still running, so that none polls a closed port.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let stuck = self.wait_for_workers();
        for (n, handle) in self.workers.iter_mut().enumerate() {
            let thread = handle.thread.take().filter(|_| !stuck.contains(&n));
            drop(thread.map(JoinHandle::join));
        }
        drop(self.watchdog.take().map(JoinHandle::join));
        if let Some(rebuilder) = self.rebuilder.take().filter(|_| stuck.is_empty()) {
            rebuilder.join(&self.errors);
        }
        if !stuck.is_empty() {
            drop(self.functions.release_at_exit());
            self.existing_taps.iter_mut().for_each(ExistingTaps::restore_at_exit);
        }
    }
}

/// Records the state of taps that exist before the run.
fn record_taps<'a>(ports: impl Iterator<Item = &'a config::Port>) -> Result<ExistingTaps, Error> {
    ExistingTaps::record(ports).map_err(|e| Error::Environment {
        problem: format!("a shell that restores taps at the end cannot be started: {e}"),
        remedy: "install sh".to_owned(),
    })
}

/// The schedule of a worker's chains, with the indices of the inputs of each.
type ChainSchedule = (Schedule, Vec<Vec<usize>>);

/// Returns the allowed CPUs without those that are used.
fn cpus_without(allowed: &[usize], used: impl Iterator<Item = usize>) -> Vec<usize> {
    let used: Vec<usize> = used.collect();
    allowed.iter().copied().filter(|cpu| !used.contains(cpu)).collect()
}

/// Returns the number of cores of each chain.
fn cores_of_chains(file: &ChainFile, workers: &[PlannedWorker]) -> Vec<usize> {
    (0..file.chains.len()).map(|n| workers.iter().filter(|worker| worker.chains.contains(&n)).count()).collect()
}

/// Returns name and activity of the NF of each hop; `nf` is the index in [`Names`] of the NF of a node.
fn watched_hops(
    cpu: usize,
    plan: &WorkerPlan,
    nf: impl Fn(u16) -> usize,
    accounts: &MemoryAccounts,
) -> Vec<(String, NfActivity)> {
    let hops = plan.blueprint.hops.iter().map(|hop| {
        let name = plan.blueprint.nodes[usize::from(hop.node)].name.clone();
        let activity = NfActivity::new(format!("nf {name:?} on CPU {cpu}"), nf(hop.node), accounts);
        (name, activity)
    });
    hops.collect()
}
