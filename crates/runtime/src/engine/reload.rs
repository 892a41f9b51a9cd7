//! Replacing the chain file of a running engine.

mod layout;

use super::driver_counts::DriverCounts;
use super::memory::{further_pool, pool_size};
use super::nodes::node_builder;
use super::planned_worker::{PlannedWorker, plan_workers};
use super::port_setup::PortSetup;
use super::{
    Destination, End, Engine, Names, Source, WorkerHandle, cores_of_chains, cpus_without, links, record_taps,
    watched_hops,
};
use crate::cpu::{affinity_of, set_affinity_of};
use crate::error::Error;
use crate::faults::watchdog::WatchedWorker;
use crate::ports::{self, CaptureWriter, ExistingTaps, PortMonitor, RepresentorTap, SourceKind};
use crate::summary::WorkerSummary;
use crate::worker::command::Command;
use crate::worker::exchange::{Exchange, Meeting, NewOutput, Parts, retire_input};
use crate::worker::rebuild::NodeBuilder;
use crate::worker::schedule::ChainUsage;
use crate::{IdlePolicy, LinkStats};
use config::{ChainFile, Changed, Changes, Device, NfChange, NfConfig, Port, WorkerPlan};
use diagnostics::Diagnostics;
use dpdk::Mempool;
use graph::{
    Blueprint, BuildContext, FileVersion, Graph, NewNode, NodeStats, Origin, Replacement, SettingFiles, SharedState,
};
use layout::{Layout, Reload, WorkerLayout, source_name};
use rustix::thread::Pid;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The result of a reload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reloaded {
    /// The difference that it made.
    pub changes: Changes,
    /// Milliseconds in which the new graphs were built, beside the running ones.
    pub build_ms: f64,
    /// Milliseconds from then until all workers ran their new graphs.
    pub exchange_ms: f64,
    /// Longest time in microseconds for which a worker did not forward.
    pub pause_us: f64,
    /// Notes for the user about what was opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Interval at which a worker that has not replaced its graph is checked for its end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time for which workers wait for each other to end a batch, while they go on forwarding.
const MEETING_TIMEOUT: Duration = Duration::from_secs(5);

impl Engine {
    /// Replaces the chain file: builds new graphs beside the running ones, then has each worker change to its own
    /// between two batches. NFs with the same settings keep their state, others
    /// [take it over](graph::Node::take_over). If an error is returned, nothing has changed.
    ///
    /// # Errors
    /// An error in the file, or a difference that only a restart can make.
    pub fn reload(&mut self, file: &ChainFile) -> Result<Reloaded, Error> {
        self.reload_with_hook(file, self.options.idle, || Ok(()))
    }

    /// Reloads as [`Engine::reload`] does, calls `opened` when the added ports are open and nothing has changed yet, and
    /// has workers behave in this way from then on while no packets arrive.
    ///
    /// # Errors
    /// As for [`Engine::reload`], and those of `opened`.
    pub fn reload_with_hook(
        &mut self,
        file: &ChainFile,
        idle: IdlePolicy,
        opened: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Reloaded, Error> {
        let start = Instant::now();
        let mut changes = Changes::between(&self.file, file);
        let unavailable = file.unavailable_cpus(&self.allowed);
        if !unavailable.is_empty() {
            return Err(Error::Input(Diagnostics(unavailable)));
        }
        self.merge_ended();
        self.further_pools.retain(|pool| Arc::strong_count(pool) > 1 || pool.in_use() > 0);
        let mut planned = plan_workers(&self.on_present_cpus(file), &self.allowed, self.options.strategy);
        // workers that have no chains afterwards
        for own in self.live_workers() {
            if !planned.iter().any(|worker| worker.cpu == own.cpu) {
                planned.push(PlannedWorker::without_chains(own.cpu, file));
            }
        }
        let position = |cpu| self.workers.iter().position(|own| own.cpu == cpu && !own.has_ended);
        let own: Vec<Option<usize>> = planned.iter().map(|worker| position(worker.cpu)).collect();
        if changes.restart.is_empty() {
            changes.restart = self.unsupported_ports(file, &changes);
        }
        if !changes.restart.is_empty() {
            return Err(Error::needs_restart(file, &changes.restart));
        }
        links::connect(file, &mut planned)?;
        let names = self.names.with(file, self.on_wires);
        let prepared = self.prepare(file, (&planned, &own), &names, &mut changes)?;
        let (added, layout) = self.open_added(file, &names, (&mut planned, &own), &changes)?;
        opened()?;
        let (built, mut notes) = (Instant::now(), added.notes.clone());
        let before = self.file.ports.clone();
        let pause = self.exchange(Plan { file, idle, names, planned, own, prepared, layout, opened: added })?;
        notes.extend(self.unconfigured.update(&before, file));
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (build_ms, exchange_ms) = (ms(built - start), ms(built.elapsed()));
        Ok(Reloaded { changes, build_ms, exchange_ms, pause_us: pause.as_secs_f64() * 1e6, notes })
    }

    /// Configures representors again that the last reload could not configure like their interfaces; to be called about
    /// once a second.
    pub fn retry_representors(&self) {
        self.unconfigured.retry(&self.file);
    }

    /// Returns the files that NFs have read because settings name them, with the versions that they have read.
    #[must_use]
    pub fn setting_files(&self) -> BTreeMap<PathBuf, FileVersion> {
        let builders = self.live_workers().flat_map(|worker| &worker.builders);
        builders.flat_map(|builder| builder.context.files.read()).collect()
    }

    /// Returns the file with chains that name no CPUs on those where packets of their source are processed now.
    fn on_present_cpus(&self, file: &ChainFile) -> ChainFile {
        let mut file = file.clone();
        let now = |source: &str| {
            let of = |&chain: &usize| source_name(&self.file, self.file.chains[chain].from) == source;
            self.live_workers().filter(|worker| worker.chains.iter().any(of)).map(|worker| worker.cpu).collect()
        };
        for chain in 0..file.chains.len() {
            if file.chains[chain].cores.is_empty() {
                file.chains[chain].cores = now(source_name(&file, file.chains[chain].from));
            }
        }
        file
    }

    /// Adds the counts of workers that have ended to those of their successors on the same CPUs.
    fn merge_ended(&mut self) {
        let is_done =
            |worker: &WorkerHandle| worker.has_ended && worker.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let successor = |all: &[WorkerHandle], n: usize| {
            all.iter().position(|other| is_done(&all[n]) && !other.has_ended && other.cpu == all[n].cpu)
        };
        let pair = |all: &[WorkerHandle]| (0..all.len()).find_map(|n| Some((n, successor(all, n)?)));
        while let Some((n, to)) = pair(&self.workers) {
            let mut ended = self.workers.remove(n);
            let worker = &mut self.workers[if to > n { to - 1 } else { to }];
            worker.received.append(&mut ended.received);
            worker.sent.append(&mut ended.sent);
            worker.nodes.append(&mut ended.nodes);
            worker.usage.append(&mut ended.usage);
            worker.counted_elsewhere.add_wrapping(&ended.counted_elsewhere);
            let busy = ended.busy.get() + ended.counted_elsewhere.busy_cycles.unwrap_or_default();
            *worker.counted_elsewhere.busy_cycles.get_or_insert_default() += busy;
            if ended.thread.take().is_some_and(|thread| thread.join().is_err()) {
                self.errors.report(format!("the worker on CPU {} ended by a panic", ended.cpu));
            }
        }
    }

    /// Returns the added ports that only a start can open.
    fn unsupported_ports(&self, file: &ChainFile, changes: &Changes) -> Vec<String> {
        let added = changes.ports.iter().filter(|port| port.after);
        let port = |changed: &Changed| file.ports.iter().find(|port| port.name == changed.name);
        let problem = |port: &Port| match &port.device {
            _ if self.on_wires => Some(format!("port {:?}, which is a wire, cannot be added by a reload", port.name)),
            Device::Dpdk { function: Some(_), .. } => {
                Some(format!("port {:?}: a virtual function cannot be created by a reload", port.name))
            }
            _ => None,
        };
        added.filter_map(port).filter_map(problem).collect()
    }

    /// Builds the nodes of each worker that are not kept.
    fn prepare(
        &self,
        file: &ChainFile,
        (planned, own): (&[PlannedWorker], &[Option<usize>]),
        names: &Names,
        changes: &mut Changes,
    ) -> Result<Vec<Prepared>, Error> {
        let (shared, files) = (SharedState::default(), SettingFiles::default());
        let (mut all, mut errors) = (vec![], vec![]);
        for (n, worker) in planned.iter().enumerate() {
            let (mut nodes, mut builders) = (vec![], vec![]);
            for &nf in &worker.plan.nfs {
                let config = &file.nfs[nf];
                let mut builder =
                    node_builder(file, planned, n, (nf, names.nf(file, nf)), &self.accounts, (&shared, &files));
                let (origin, is_same_copy) = self.predecessor(own, n, config, builder.context.copy);
                let before = origin.map(|of| self.builder(own, of));
                let change = &mut changes.nfs[nf];
                if change.change == NfChange::Kept {
                    if let (Some(origin), Some(before)) = (origin, before)
                        && is_same_copy
                        && reads_the_same(&before.context, &builder.context)
                    {
                        nodes.push(NewNode::Kept(origin));
                        builders.push(before.clone());
                        continue;
                    }
                    let reason = if is_same_copy { "a file that it reads" } else { "the CPUs that run it" };
                    let takes_over = config.kind.takes_over.filter(|_| is_same_copy);
                    *change = change.clone().because(vec![reason.to_owned()], takes_over);
                }
                let takes_over = is_same_copy && change.change == NfChange::Reconfigured;
                builder.context.before = before.filter(|_| takes_over).map(|before| before.context.shared.clone());
                match (builder.build(), origin) {
                    (Ok(node), Some(origin)) => nodes.push(NewNode::Successor(origin, node, takes_over)),
                    (Ok(node), None) => nodes.push(NewNode::Added(node)),
                    (Err(d), _) => errors.push(file.locate(nf, d)),
                }
                builder.context.before = None;
                builders.push(Arc::new(builder));
            }
            all.push((nodes, builders));
        }
        errors.dedup();
        if !errors.is_empty() {
            return Err(Error::Input(Diagnostics(errors)));
        }
        let none = Blueprint::default();
        let running = own.iter().map(|own| match own {
            Some(own) => (&self.workers[*own].plan.blueprint, &self.workers[*own].node_stats[..]),
            None => (&none, &[][..]),
        });
        let running: Vec<_> = running.collect();
        let replacement = |(n, (worker, (nodes, builders))): (usize, (&PlannedWorker, (Vec<NewNode>, Vec<_>)))| {
            let moves = nodes.iter().filter_map(NewNode::predecessor).any(|of| of.graph != n);
            let replacement = Replacement::new(&running, &worker.plan.blueprint, nodes, self.pool.clone());
            Prepared { replacement, builders, moves }
        };
        Ok(planned.iter().zip(all).enumerate().map(replacement).collect())
    }

    /// Returns the node of an NF that runs now and that a node of the worker `n` continues: the same copy of the NF, on
    /// whatever CPU it is, and true; or another copy on that worker, and false.
    fn predecessor(
        &self,
        own: &[Option<usize>],
        n: usize,
        nf: &NfConfig,
        copy: (usize, usize),
    ) -> (Option<Origin>, bool) {
        let on = |graph: usize, copy: Option<(usize, usize)>| {
            let worker = &self.workers[own[graph]?];
            let is_same = |(&old, builder): (&usize, &Arc<NodeBuilder>)| {
                let old = &self.file.nfs[old];
                old.name == nf.name
                    && old.kind.name == nf.kind.name
                    && copy.is_none_or(|copy| copy == builder.context.copy)
            };
            let node = worker.plan.nfs.iter().zip(&worker.builders).position(is_same)?;
            Some(Origin { graph, node: node as u16 })
        };
        match (0..own.len()).find_map(|graph| on(graph, Some(copy))) {
            Some(origin) => (Some(origin), true),
            None => (on(n, None), false),
        }
    }

    fn builder(&self, own: &[Option<usize>], of: Origin) -> &Arc<NodeBuilder> {
        let worker = own[of.graph].expect("a running graph has a worker");
        &self.workers[worker].builders[usize::from(of.node)]
    }

    /// Plans inputs and outputs, and opens the ports that the running file does not have.
    fn open_added(
        &self,
        file: &ChainFile,
        names: &Names,
        (planned, own): (&mut [PlannedWorker], &[Option<usize>]),
        changes: &Changes,
    ) -> Result<(Opened, Layout), Error> {
        let reload = Reload { engine: self, file, names, changes, own };
        let (kept, added): (Vec<_>, Vec<_>) = (0..file.ports.len()).partition(|port| reload.keeps_port(*port));
        let monitor = |port: &usize| {
            let end = names.end(file, *port);
            let (_, monitor) = self.monitors.iter().find(|(index, _)| End::Port(*index) == end)?;
            Some((*port, monitor.clone()))
        };
        let ports: Vec<&Port> = file.ports.iter().collect();
        let new_ports: Vec<&Port> = added.iter().map(|port| ports[*port]).collect();
        let is_enough = new_ports.is_empty() || pool_size(&ports, planned.len(), None) as usize <= self.pool.size();
        let further_pool = match is_enough {
            true => None,
            false => Some(further_pool(self.eal, &new_ports, planned.len(), file.max_frame)?),
        };
        let mut setup = PortSetup {
            file,
            functions: &self.functions,
            eal: self.eal,
            pool: further_pool.clone().unwrap_or_else(|| self.pool.clone()),
            stop: self.stop.clone(),
            errors: self.errors.clone(),
            monitors: kept.iter().filter_map(monitor).collect(),
            representors: self.representors.clone(),
            taps: vec![],
            control_cpus: cpus_without(&self.allowed, planned.iter().map(|worker| worker.cpu)),
            captures: vec![],
            driver_buffers: 0,
            shared_rings: ports::SharedRings::default(),
            notes: vec![],
            rx_interrupts: self.options.idle == IdlePolicy::Sleep,
        };
        let mut layout =
            reload.lay_out(&mut setup, planned).map_err(|problems| Error::needs_restart(file, &problems))?;
        let existing_taps = record_taps(added.iter().map(|port| &file.ports[*port]))?;
        setup.open(&added, planned)?;
        layout.add_new(file, names, planned);
        let PortSetup { mut monitors, taps, captures, driver_buffers, shared_rings, notes, .. } = setup;
        monitors.retain(|(port, _)| added.contains(port));
        let driver_buffers = driver_buffers + shared_rings.max_outstanding();
        let end = |number| match self.names.end(&self.file, number) {
            End::Port(port) => Some(port),
            End::Link(_) => None,
        };
        let is_kept = |port: &Port| kept.iter().any(|kept| file.ports[*kept].name == port.name);
        let before = self.file.ports.iter().enumerate();
        let closed = before.filter(|(_, port)| !is_kept(port)).filter_map(|(number, _)| end(number)).collect();
        Ok((Opened { monitors, captures, driver_buffers, notes, further_pool, taps, existing_taps, closed }, layout))
    }

    /// Has workers change to their new graphs, and waits until they have; returns the longest time that it took one.
    ///
    /// # Errors
    /// A worker that was to exchange something with others has ended, or is busy with a batch for too long.
    fn exchange(&mut self, plan: Plan<'_>) -> Result<Duration, Error> {
        let Plan { file, idle, names, planned, mut own, prepared, mut layout, opened } = plan;
        let cores = cores_of_chains(file, &planned);
        let control_cpus = self.control_cpus();
        for (own, worker) in own.iter_mut().zip(&planned).filter(|(own, _)| own.is_none()) {
            let empty = PlannedWorker::without_chains(worker.cpu, &self.file);
            let graph = Graph::new(&empty.plan.blueprint, vec![], self.pool.clone());
            let rebuild = self.rebuilder.as_ref().expect("the engine runs").client(vec![]);
            self.spawn_worker(empty, graph, rebuild, &[])?;
            *own = Some(self.workers.len() - 1);
        }
        let before = (std::mem::replace(&mut self.file, file.clone()), std::mem::replace(&mut self.names, names));
        let own: Vec<usize> = own.into_iter().flatten().collect();
        let meets = layout.moves() || prepared.iter().any(|prepared| prepared.moves);
        let parts = || Parts::empty(own.len(), &self.pool);
        let meetings: Vec<Arc<Meeting>> = match meets {
            true => {
                let mut parts = parts();
                layout.take_changes(&mut parts);
                vec![Meeting::new(own.len(), parts); own.len()]
            }
            false => own.iter().map(|_| Meeting::new(1, parts())).collect(),
        };
        let mut awaited = vec![];
        let mut updates = vec![];
        for (n, ((planned, prepared), laid)) in planned.into_iter().zip(prepared).zip(layout.workers).enumerate() {
            let PlannedWorker { cpu, chains, plan, .. } = planned;
            let Prepared { replacement, builders, .. } = prepared;
            let WorkerLayout { inputs, outputs, local } = laid;
            let (sources, inputs): (Vec<Source>, Vec<_>) = inputs.into_iter().unzip();
            let output = |output: Option<_>| output.map_or((None, NewOutput::None), |(to, output)| (Some(to), output));
            let (destinations, outputs): (Vec<_>, Vec<_>) = outputs.into_iter().map(output).unzip();
            let worker = &self.workers[own[n]];
            let nf_of = |node: u16| self.names.nf(file, plan.nfs[usize::from(node)]);
            let hops = watched_hops(cpu, &plan, nf_of, &self.accounts);
            let watched = WatchedWorker { hops: hops.into(), ..worker.watched.clone() };
            let (usage, schedule) = self.schedule(&chains, &sources, &cores);
            let (replaced, reply) = channel();
            let exchange = Exchange {
                meeting: meetings[n].clone(),
                own: n,
                has_arrived: false,
                inputs,
                outputs,
                schedule,
                idle,
                builders: builders.clone(),
                watched: watched.clone(),
                names: Arc::new(self.worker_names(cpu, &plan, &sources)),
                ends: chains.is_empty(),
                replaced,
                replacement,
            };
            let node_stats: Vec<Arc<NodeStats>> = exchange.replacement.stats().cloned().collect();
            // an error: the worker has ended
            if worker.commands.send(Command::Replace(Box::new(exchange))).is_ok() {
                awaited.push((n, reply));
            }
            let (inputs, outputs) = (sources, destinations);
            updates.push(Update { chains, plan, builders, node_stats, watched, inputs, outputs, usage, local });
        }
        let longest = match self.await_exchange(&own, &meetings, awaited, meets) {
            Ok(longest) => longest,
            Err(e) => {
                (self.file, self.names) = before;
                return Err(e);
            }
        };
        self.options.idle = idle;
        let before = self.update_workers(&own, updates);
        self.retire(before, &meetings, &opened.closed);
        self.update_ports(opened);
        self.update_watched();
        self.live_nfs.update(file, &self.workers);
        if self.control_cpus() != control_cpus {
            move_threads(&control_cpus, &self.control_cpus());
        }
        Ok(longest)
    }

    /// Waits until workers have changed to their new graphs.
    ///
    /// # Errors
    /// As [`Engine::exchange`].
    fn await_exchange(
        &self,
        own: &[usize],
        meetings: &[Arc<Meeting>],
        awaited: Vec<(usize, Receiver<Duration>)>,
        meets: bool,
    ) -> Result<Duration, Error> {
        let deadline = Instant::now() + MEETING_TIMEOUT;
        let mut longest = Duration::ZERO;
        for (n, reply) in awaited {
            let worker = &self.workers[own[n]];
            let has_ended = || worker.thread.as_ref().is_none_or(JoinHandle::is_finished);
            loop {
                match reply.recv_timeout(CHECK_INTERVAL) {
                    Ok(pause) => longest = longest.max(pause),
                    Err(RecvTimeoutError::Timeout) => {
                        let gives_up = has_ended() || self.is_stopping() || self.is_stuck();
                        // a worker whose NF does not return changes when that returns
                        if !(gives_up || meets && Instant::now() > deadline) || !meetings[n].cancel() {
                            continue;
                        }
                        if meets {
                            return Err(Error::Environment {
                                problem: format!("the worker on CPU {} has not ended its batch", worker.cpu),
                                remedy: "see bondstone top, and reload again".to_owned(),
                            });
                        }
                    }
                    Err(RecvTimeoutError::Disconnected) if meets && meetings[n].cancel() => {
                        return Err(Error::Environment {
                            problem: format!("the worker on CPU {} has ended", worker.cpu),
                            remedy: "start the chain file again".to_owned(),
                        });
                    }
                    Err(RecvTimeoutError::Disconnected) => {}
                }
                break;
            }
        }
        Ok(longest)
    }

    /// Records what workers run on; returns what they had before.
    fn update_workers(&mut self, own: &[usize], updates: Vec<Update>) -> Vec<Before> {
        let (mut before, mut former_stats) = (vec![], vec![]);
        for (&worker, update) in own.iter().zip(updates) {
            let Update { chains, plan, builders: new, node_stats, watched, inputs, outputs, usage, local } = update;
            for (stats, &nf) in node_stats.iter().zip(&plan.nfs) {
                let dropped = |stats: &NodeStats| stats.drops.iter().map(graph::Counter::get).sum();
                let counts =
                    |_: &usize, stats: &NodeStats| WorkerSummary { dropped: dropped(stats), ..Default::default() };
                let entry = (self.names.nf(&self.file, nf), stats.clone());
                adopt(&mut self.workers, worker, entry, |handle| &mut handle.nodes, counts);
            }
            for Source { end, stats, .. } in &inputs {
                let entry = (*end, stats.clone());
                adopt(
                    &mut self.workers,
                    worker,
                    entry,
                    |handle| &mut handle.received,
                    |end, stats| {
                        let mut counts = WorkerSummary::default();
                        counts.add_received(stats, matches!(end, End::Link(_)));
                        counts
                    },
                );
            }
            for Destination { end, stats } in outputs.iter().flatten() {
                let entry = (*end, stats.clone());
                adopt(
                    &mut self.workers,
                    worker,
                    entry,
                    |handle| &mut handle.sent,
                    |end, stats| {
                        let mut counts = WorkerSummary::default();
                        counts.add_sent(stats, matches!(end, End::Link(_)));
                        counts
                    },
                );
            }
            let handle = &mut self.workers[worker];
            former_stats.append(&mut handle.node_stats);
            handle.usage.extend(usage);
            handle.received.extend(local);
            handle.has_ended = chains.is_empty();
            before.push(Before {
                builders: std::mem::replace(&mut handle.builders, new),
                inputs: std::mem::replace(&mut handle.inputs, inputs),
            });
            (handle.chains, handle.plan, handle.node_stats) = (chains, plan, node_stats);
            (handle.watched, handle.outputs) = (watched, outputs);
        }
        let all = || self.workers.iter().flat_map(|worker| &worker.node_stats);
        let runs = |stats: &&Arc<NodeStats>| all().any(|own| Arc::ptr_eq(own, stats));
        former_stats.iter().filter(|stats| !runs(stats)).for_each(|stats| stats.retire());
        before
    }

    /// Drops the graphs that workers had before, and the inputs and outputs that none has any more.
    fn retire(&self, before: Vec<Before>, meetings: &[Arc<Meeting>], closed: &BTreeSet<usize>) {
        for (n, Before { builders, inputs }) in before.into_iter().enumerate() {
            let (graph, retired, outputs) = meetings[n].parts().take(n);
            if let (Some(rebuilder), Some(graph)) = (&self.rebuilder, graph) {
                rebuilder.retire(graph, builders);
            }
            for (mut input, Source { end, kind, .. }) in retired.into_iter().zip(inputs) {
                let is_closed = matches!(end, End::Port(port) if closed.contains(&port));
                if let Some(input) = &mut input {
                    retire_input(input, kind == SourceKind::FromCore || is_closed);
                }
            }
            drop(outputs);
        }
    }

    /// Adds the ports that were opened, and closes those that the file does not have any more.
    fn update_ports(&mut self, opened: Opened) {
        let Opened { monitors, captures, driver_buffers, notes, further_pool, taps, existing_taps, closed } = opened;
        let (closing, open) =
            std::mem::take(&mut self.monitors).into_iter().partition(|(port, _)| closed.contains(port));
        self.monitors = open;
        let closing: Vec<(usize, PortMonitor)> = closing;
        self.removed_ports.extend(closing.iter().map(|(port, monitor)| (*port, DriverCounts::of(monitor))));
        for (port, tap) in self.taps.extract_if(.., |(port, _)| closed.contains(port)) {
            tap.close();
            self.removed_ports.push((port, DriverCounts::of_tap(&tap)));
        }
        self.captures.iter().filter(|(port, _)| closed.contains(port)).for_each(|(_, capture)| capture.finish());
        let index = |number| match self.end(number) {
            End::Port(port) => port,
            End::Link(_) => unreachable!("monitors, taps and captures are of ports"),
        };
        let monitors: Vec<_> = monitors.into_iter().map(|(number, monitor)| (index(number), monitor)).collect();
        let captures: Vec<_> = captures.into_iter().map(|(number, capture)| (index(number), capture)).collect();
        let taps: Vec<_> = taps.into_iter().map(|(number, tap)| (index(number), tap)).collect();
        self.monitors.extend(monitors);
        self.taps.extend(taps);
        self.captures.extend(captures);
        self.driver_buffers += driver_buffers;
        self.notes.extend(notes);
        self.further_pools.extend(further_pool);
        self.existing_taps.push(existing_taps);
    }
}

/// The new graph of a worker.
struct Prepared {
    replacement: Replacement,
    builders: Vec<Arc<NodeBuilder>>,
    /// True if a node comes from another worker.
    moves: bool,
}

/// Ports that a reload has opened, with all that belongs to them.
struct Opened {
    /// By the number of the port in the file.
    monitors: Vec<(usize, PortMonitor)>,
    captures: Vec<(usize, CaptureWriter)>,
    driver_buffers: usize,
    notes: Vec<String>,
    further_pool: Option<Arc<Mempool>>,
    taps: Vec<(usize, RepresentorTap)>,
    existing_taps: ExistingTaps,
    /// Ports that the file does not have any more, by their index in [`Names`].
    closed: BTreeSet<usize>,
}

/// All that a reload has built.
struct Plan<'a> {
    file: &'a ChainFile,
    idle: IdlePolicy,
    names: Names,
    planned: Vec<PlannedWorker>,
    /// Indices of the planned workers that run already.
    own: Vec<Option<usize>>,
    prepared: Vec<Prepared>,
    layout: Layout,
    opened: Opened,
}

/// State of a worker after the exchange.
struct Update {
    chains: Vec<usize>,
    plan: WorkerPlan,
    builders: Vec<Arc<NodeBuilder>>,
    node_stats: Vec<Arc<NodeStats>>,
    watched: WatchedWorker,
    inputs: Vec<Source>,
    outputs: Vec<Option<Destination>>,
    usage: Vec<(String, Arc<ChainUsage>)>,
    /// Counts of packets that new links keep on the worker.
    local: Vec<(End, Arc<LinkStats>)>,
}

/// State of a worker before the exchange.
struct Before {
    builders: Vec<Arc<NodeBuilder>>,
    inputs: Vec<Source>,
}

/// Has a worker list counts: new ones, or those that another one has listed, which then keeps what it has counted.
fn adopt<K, S>(
    workers: &mut [WorkerHandle],
    to: usize,
    (key, stats): (K, Arc<S>),
    list: impl Fn(&mut WorkerHandle) -> &mut Vec<(K, Arc<S>)>,
    counts: impl Fn(&K, &S) -> WorkerSummary,
) {
    let place = |worker: &mut WorkerHandle| list(worker).iter().position(|(_, own)| Arc::ptr_eq(own, &stats));
    let Some((from, at)) = workers.iter_mut().enumerate().find_map(|(n, worker)| Some((n, place(worker)?))) else {
        return list(&mut workers[to]).push((key, stats));
    };
    if from == to {
        return;
    }
    let entry = list(&mut workers[from]).remove(at);
    let counts = counts(&entry.0, &entry.1);
    workers[from].counted_elsewhere.add_wrapping(&counts);
    workers[to].counted_elsewhere.subtract_wrapping(&counts);
    list(&mut workers[to]).push(entry);
}

/// Moves the threads of the process that are to run on the CPUs `from`, which are those without workers, to `to`.
fn move_threads(from: &[usize], to: &[usize]) {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    for thread in threads.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?)) {
        if affinity_of(Some(thread)).is_some_and(|cpus| cpus == from) {
            // ignore errors: the thread may have ended
            let _ = set_affinity_of(Some(thread), to);
        }
    }
}

/// Returns true if an NF reads the same files as before a reload, in the same versions.
fn reads_the_same(before: &BuildContext, now: &BuildContext) -> bool {
    let files = before.files.read();
    files.is_empty() || before.base_dir == now.base_dir && !before.files.have_changed()
}
