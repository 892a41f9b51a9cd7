//! Replacing the chain file of a running engine.

use super::nodes::node_builder;
use super::planned_worker::{PlannedWorker, plan_workers};
use super::{End, Engine, WorkerHandle, cores_of_chains, links, watched_hops};
use crate::error::Error;
use crate::faults::watchdog::WatchedWorker;
use crate::worker::command::Command;
use crate::worker::exchange::{Exchange, NewOutput};
use crate::worker::rebuild::NodeBuilder;
use config::{ChainFile, Changes, NfChange, Start};
use diagnostics::{Diagnostic, Diagnostics};
use graph::{BuildContext, FileVersion, NewNode, NodeStats, Replacement, SettingFiles, SharedState, Target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
}

/// Interval at which a worker that has not replaced its graph is checked for its end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl Engine {
    /// Replaces the chain file: builds new graphs beside the running ones, then has each worker change to its own
    /// between two batches. NFs with the same settings keep their state, others
    /// [take it over](graph::Node::take_over). If an error is returned, nothing has changed.
    ///
    /// # Errors
    /// An error in the file, or a difference that only a restart can make.
    pub fn reload(&mut self, file: &ChainFile) -> Result<Reloaded, Error> {
        let start = Instant::now();
        let mut changes = Changes::between(&self.file, file);
        let unavailable = file.unavailable_cpus(&self.allowed);
        if !unavailable.is_empty() {
            return Err(Error::Input(Diagnostics(unavailable)));
        }
        let mut workers = plan_workers(&self.on_present_cpus(file), &self.allowed, self.options.strategy);
        links::connect(file, &mut workers)?;
        if changes.restart.is_empty() {
            changes.restart = self.moves(file, &workers, &changes);
        }
        if !changes.restart.is_empty() {
            let problem = |problem: &String| {
                let d =
                    Diagnostic::new(problem).remedy("restore it, or start the file again: bondstone stop, then run");
                Diagnostic { file: Some(file.file.clone()), ..d }
            };
            return Err(Error::Input(Diagnostics(changes.restart.iter().map(problem).collect())));
        }
        let mut names = self.names.nfs.clone();
        let nf_of: Vec<usize> = file.nfs.iter().map(|nf| index_in(&mut names, (&nf.name, nf.kind.name))).collect();
        let prepared = self.prepare(file, &workers, &nf_of, &mut changes)?;
        self.names.nfs = names;
        let built = Instant::now();
        let pause = self.exchange(file, workers, prepared, &nf_of);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (build_ms, exchange_ms) = (ms(built - start), ms(built.elapsed()));
        Ok(Reloaded { changes, build_ms, exchange_ms, pause_us: pause.as_secs_f64() * 1e6 })
    }

    /// Returns the files that NFs have read because settings name them, with the versions that they have read.
    #[must_use]
    pub fn setting_files(&self) -> BTreeMap<PathBuf, FileVersion> {
        let builders = self.workers.iter().flat_map(|worker| &worker.builders);
        builders.flat_map(|builder| builder.context.files.read()).collect()
    }

    /// Returns the file with chains that name no CPUs on those where packets of their source are processed now.
    fn on_present_cpus(&self, file: &ChainFile) -> ChainFile {
        let mut file = file.clone();
        let now = |source: &str| {
            let of = |&chain: &usize| source_name(&self.file, self.file.chains[chain].from) == source;
            self.workers.iter().filter(|worker| worker.chains.iter().any(of)).map(|worker| worker.cpu).collect()
        };
        for chain in 0..file.chains.len() {
            if file.chains[chain].cores.is_empty() {
                file.chains[chain].cores = now(source_name(&file, file.chains[chain].from));
            }
        }
        file
    }

    /// Returns what would move between CPUs, which a reload cannot do.
    fn moves(&self, file: &ChainFile, planned: &[PlannedWorker], changes: &Changes) -> Vec<String> {
        let mut problems = vec![];
        let cpus = |of: &mut dyn Iterator<Item = usize>| of.map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(", ");
        for chain in &file.chains {
            let name = source_name(file, chain.from);
            let of = |chains: &[usize], file: &ChainFile| {
                chains.iter().any(|&n| source_name(file, file.chains[n].from) == name)
            };
            let before = cpus(&mut self.workers.iter().filter(|w| of(&w.chains, &self.file)).map(|w| w.cpu));
            let after = cpus(&mut planned.iter().filter(|w| of(&w.chains, file)).map(|w| w.cpu));
            if before != after && !before.is_empty() {
                problems.push(format!("chain {:?} cannot move from CPU {before} to {after} by a reload", chain.name));
            }
        }
        let unchanged = |w: &PlannedWorker| self.workers.iter().any(|own| own.cpu == w.cpu);
        if let Some(new) = planned.iter().find(|worker| !unchanged(worker)) {
            problems.push(format!("CPU {} runs no chain now; a reload cannot start a worker", new.cpu));
        }
        if let Some(idle) = self.workers.iter().find(|own| !planned.iter().any(|w| w.cpu == own.cpu)) {
            problems.push(format!("CPU {} would run no chain; a reload cannot end a worker", idle.cpu));
        }
        // packets between CPUs pass through rings, which stay as they are
        let rings = |file: &ChainFile, chains: &dyn Fn(usize) -> Vec<usize>, senders: &dyn Fn(usize) -> Vec<usize>| {
            let all = file.links.iter().enumerate().filter_map(|(n, link)| {
                let (receivers, senders) = (chains(link.chain), senders(file.ports.len() + n));
                let is_local = senders.is_empty() || receivers == senders && receivers.len() == 1;
                let spreading = file.chains[link.chain].spreading.requirement;
                (!is_local).then(|| (link.name.clone(), (receivers, senders, spreading)))
            });
            all.collect::<BTreeMap<_, _>>()
        };
        let before = rings(
            &self.file,
            &|chain| self.workers.iter().filter(|w| w.chains.contains(&chain)).map(|w| w.cpu).collect(),
            &|number| {
                let sends = |w: &&WorkerHandle| w.outputs.get(number).is_some_and(Option::is_some);
                self.workers.iter().filter(sends).map(|w| w.cpu).collect()
            },
        );
        let after = rings(
            file,
            &|chain| planned.iter().filter(|w| w.chains.contains(&chain)).map(|w| w.cpu).collect(),
            &|number| links::senders(number, planned).into_iter().map(|n| planned[n].cpu).collect(),
        );
        for name in before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name)) {
            problems.push(format!("packets of {name} cannot take other ways between CPUs by a reload"));
        }
        for (port, own) in file.ports.iter().enumerate() {
            let polled = planned.iter().filter(|w| w.chains.iter().any(|&c| file.chains[c].from == Start::Port(port)));
            // the function that chooses the core depends on the settings
            let steers_otherwise =
                || file.spreading(port).steered_by.is_some_and(|(nf, _)| changes.nfs[nf].change != NfChange::Kept);
            if polled.count() > 1 && (file.spreading(port) != self.file.spreading(port) || steers_otherwise()) {
                problems.push(format!("packets of port {:?} cannot be spread otherwise by a reload", own.name));
            }
            let senders: Vec<usize> = links::senders(port, planned).into_iter().map(|n| planned[n].cpu).collect();
            let has = |cpu: &usize| self.workers.iter().any(|w| w.cpu == *cpu && w.outputs[port].is_some());
            if let Some(cpu) = senders.iter().find(|cpu| !has(cpu)) {
                problems.push(format!("CPU {cpu} has no queue of port {:?}; a reload cannot add one", own.name));
            }
        }
        problems.dedup();
        problems
    }

    /// Builds the nodes of each worker that are not kept.
    fn prepare(
        &self,
        file: &ChainFile,
        planned: &[PlannedWorker],
        nf_of: &[usize],
        changes: &mut Changes,
    ) -> Result<Vec<Prepared>, Error> {
        let (shared, files) = (SharedState::default(), SettingFiles::default());
        let (mut all, mut errors) = (vec![], vec![]);
        for (n, worker) in planned.iter().enumerate() {
            let own = &self.workers[self.position(worker.cpu)];
            let (mut nodes, mut builders) = (vec![], vec![]);
            for &nf in &worker.plan.nfs {
                let config = &file.nfs[nf];
                let is_same = |&old: &usize| {
                    let old = &self.file.nfs[old];
                    old.name == config.name && old.kind.name == config.kind.name
                };
                let old = own.plan.nfs.iter().position(is_same);
                let before = old.map(|old| &own.builders[old]);
                let mut builder = node_builder(file, planned, n, (nf, nf_of[nf]), &self.accounts, (&shared, &files));
                let is_same_copy = before.is_some_and(|before| before.context.copy == builder.context.copy);
                let change = &mut changes.nfs[nf];
                if change.change == NfChange::Kept {
                    if let (Some(old), Some(before)) = (old, before)
                        && is_same_copy
                        && reads_the_same(&before.context, &builder.context)
                    {
                        nodes.push(NewNode::Kept(old as u16));
                        builders.push(before.clone());
                        continue;
                    }
                    let reason = if is_same_copy { "a file that it reads" } else { "the CPUs that run it" };
                    let takes_over = config.kind.takes_over.filter(|_| is_same_copy);
                    *change = change.clone().because(vec![reason.to_owned()], takes_over);
                }
                let takes_over = is_same_copy && change.change == NfChange::Reconfigured;
                builder.context.before = before.filter(|_| takes_over).map(|before| before.context.shared.clone());
                match (builder.build(), old) {
                    (Ok(node), Some(old)) => nodes.push(NewNode::Successor(old as u16, node, takes_over)),
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
        let replacement = |(worker, (nodes, builders)): (&PlannedWorker, (Vec<NewNode>, Vec<_>))| {
            let own = &self.workers[self.position(worker.cpu)];
            let old = (&own.plan.blueprint, &own.node_stats[..]);
            Prepared { replacement: Replacement::new(old, &worker.plan.blueprint, nodes, self.pool.clone()), builders }
        };
        Ok(planned.iter().zip(all).map(replacement).collect())
    }

    /// Returns the index of the worker on a CPU.
    ///
    /// # Panics
    /// If there is none.
    fn position(&self, cpu: usize) -> usize {
        self.workers.iter().position(|worker| worker.cpu == cpu).expect("plans of other CPUs were rejected")
    }

    /// Has each worker change to its new graph, and waits until all have; returns the longest time that it took one.
    fn exchange(
        &mut self,
        file: &ChainFile,
        planned: Vec<PlannedWorker>,
        prepared: Vec<Prepared>,
        nf_of: &[usize],
    ) -> Duration {
        let cores = cores_of_chains(file, &planned);
        self.file = file.clone();
        for link in &file.links {
            if !self.names.links.contains(&link.name) {
                self.names.links.push(link.name.clone());
            }
        }
        let mut awaited: Vec<(usize, Receiver<Duration>)> = vec![];
        for (planned, Prepared { replacement, builders }) in planned.into_iter().zip(prepared) {
            let PlannedWorker { cpu, chains, plan, outputs, .. } = planned;
            let n = self.position(cpu);
            let own = &self.workers[n];
            let entry = |end: End| {
                let at = chains.iter().position(|&chain| self.source(chain) == end);
                at.map_or(Target::Unconnected, |at| plan.entries[at])
            };
            let (mut sources, mut ends, mut added) = (vec![], vec![], vec![]);
            for (number, output) in outputs.into_iter().enumerate() {
                let end = self.end(number);
                let before = own.outputs.iter().position(|before| *before == Some(end));
                ends.push(Some(end).filter(|_| before.is_some() || output.is_some()));
                sources.push(match (before, output) {
                    (Some(before), _) => NewOutput::Kept(before, entry(end)),
                    (None, Some(output)) => {
                        added.push((end, output.stats.clone(), output.local_stats()));
                        NewOutput::Added(output)
                    }
                    (None, None) => NewOutput::None,
                });
            }
            let hops = watched_hops(cpu, &plan, |node| nf_of[plan.nfs[usize::from(node)]], &self.accounts);
            let watched = WatchedWorker { hops: hops.into(), ..own.watched.clone() };
            let node_stats: Vec<Arc<NodeStats>> = replacement.stats().cloned().collect();
            let (usage, schedule) = self.schedule(&chains, &own.inputs, &cores);
            let (replaced, reply) = channel();
            let exchange = Exchange {
                replacement,
                entries: own.inputs.iter().map(|end| entry(*end)).collect(),
                outputs: sources,
                schedule,
                builders: builders.clone(),
                watched: watched.clone(),
                names: Arc::new(self.worker_names(cpu, &plan, &own.inputs)),
                replaced,
            };
            let own = &mut self.workers[n];
            let is_in = |stats: &Arc<NodeStats>, all: &[Arc<NodeStats>]| all.iter().any(|own| Arc::ptr_eq(own, stats));
            for (stats, &nf) in node_stats.iter().zip(&plan.nfs).filter(|(stats, _)| !is_in(stats, &own.node_stats)) {
                own.nodes.push((nf_of[nf], stats.clone()));
            }
            let retired: Vec<_> = own.node_stats.drain(..).filter(|stats| !is_in(stats, &node_stats)).collect();
            for (end, sent, local) in added {
                own.sent.push((end, sent));
                own.received.extend(local.map(|local| (end, local)));
            }
            own.usage.extend(usage);
            (own.chains, own.plan, own.builders) = (chains, plan, builders);
            (own.node_stats, own.watched, own.outputs) = (node_stats, watched, ends);
            // an error: the worker has ended
            if own.commands.send(Command::Replace(Box::new(exchange))).is_ok() {
                awaited.push((n, reply));
            }
            retired.iter().for_each(|stats| stats.retire());
        }
        let pauses = awaited.iter().filter_map(|(n, reply)| self.await_exchange(*n, reply));
        let longest = pauses.max().unwrap_or_default();
        self.update_watched();
        self.live_nfs.update(file, &self.workers);
        longest
    }

    /// Waits until a worker has changed to its new graph; `None` if it ends instead.
    fn await_exchange(&self, n: usize, reply: &Receiver<Duration>) -> Option<Duration> {
        let ended = || self.workers[n].thread.as_ref().is_none_or(JoinHandle::is_finished);
        loop {
            match reply.recv_timeout(CHECK_INTERVAL) {
                Ok(pause) => return Some(pause),
                Err(RecvTimeoutError::Disconnected) => return None,
                // a worker whose NF does not return changes when that returns
                Err(RecvTimeoutError::Timeout) if ended() || self.is_stopping() || self.is_stuck() => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// The new graph of a worker.
struct Prepared {
    replacement: Replacement,
    builders: Vec<Arc<NodeBuilder>>,
}

/// Returns true if an NF reads the same files as before a reload, in the same versions.
fn reads_the_same(before: &BuildContext, now: &BuildContext) -> bool {
    let files = before.files.read();
    files.is_empty() || before.base_dir == now.base_dir && !before.files.have_changed()
}

fn source_name(file: &ChainFile, from: Start) -> &str {
    match from {
        Start::Port(port) => &file.ports[port].name,
        Start::Link(link) => &file.links[link].name,
    }
}

/// Returns the index of an NF among all that the run has had; a new one is added.
fn index_in(nfs: &mut Vec<(String, &'static str)>, (name, kind): (&str, &'static str)) -> usize {
    nfs.iter().position(|(other, of)| other == name && *of == kind).unwrap_or_else(|| {
        nfs.push((name.to_owned(), kind));
        nfs.len() - 1
    })
}
