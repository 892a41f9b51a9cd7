//! The inputs and outputs of workers after a reload: kept, moved between workers, shared, added.

use super::super::planned_worker::PlannedWorker;
use super::super::port_setup::{PortSetup, extra_queues};
use super::super::{Destination, End, Engine, Names, Source, links};
use crate::ports::{SourceKind, SteeringKey};
use crate::worker::exchange::{NewInput, NewOutput, Parts, Place, Respread, Share};
use crate::{LinkStats, Output, Receive as _, RxPort, TxPort};
use config::{ChainFile, Changes, NfChange, Spreading, Start};
use graph::Target;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The inputs and outputs of each worker after a reload.
pub(super) struct Layout {
    pub(super) workers: Vec<WorkerLayout>,
    pub(super) respreads: Vec<Respread>,
    pub(super) shares: Vec<Share>,
    /// Numbers of the ports and links of which inputs and outputs are new.
    pub(super) new: BTreeSet<usize>,
}

/// The inputs and outputs of one worker after a reload.
#[derive(Default)]
pub(super) struct WorkerLayout {
    pub(super) inputs: Vec<(Source, NewInput)>,
    /// By the number of the port or link.
    pub(super) outputs: Vec<Option<(Destination, NewOutput)>>,
    /// Counts of packets that new links keep on the worker.
    pub(super) local: Vec<(End, Arc<LinkStats>)>,
}

/// Both chain files, and the workers of a reload.
pub(super) struct Reload<'a> {
    pub(super) engine: &'a Engine,
    pub(super) file: &'a ChainFile,
    pub(super) names: &'a Names,
    pub(super) changes: &'a Changes,
    /// Indices of the workers in the engine, if they run already; in the order of the plan.
    pub(super) own: &'a [Option<usize>],
}

impl Layout {
    /// Returns true if a worker gives something to another one.
    pub(super) fn moves(&self) -> bool {
        let mut workers = self.workers.iter().enumerate();
        !self.respreads.is_empty()
            || !self.shares.is_empty()
            || workers.any(|(n, worker)| {
                let leaves = |&(from, _): &Place| from != n;
                worker.inputs.iter().any(|(_, input)| matches!(input, NewInput::Moved(from, _) if leaves(from)))
                    || worker
                        .outputs
                        .iter()
                        .flatten()
                        .any(|(_, output)| matches!(output, NewOutput::Moved { from, .. } if leaves(from)))
            })
    }

    /// Moves what spreads packets and shares outputs to where workers exchange it.
    pub(super) fn take_changes(&mut self, parts: &mut Parts) {
        parts.respreads = std::mem::take(&mut self.respreads);
        parts.shares = std::mem::take(&mut self.shares);
    }

    /// Adds the inputs and outputs that were created for the new ports and links.
    pub(super) fn add_new(&mut self, file: &ChainFile, names: &Names, planned: &mut [PlannedWorker]) {
        for (worker, planned) in self.workers.iter_mut().zip(planned) {
            for (number, input) in planned.inputs.drain(..).filter(|(number, _)| self.new.contains(number)) {
                let (end, kind) = (names.end(file, number), input.rx.kind());
                let source = Source { end, kind, stats: input.stats.clone() };
                worker.inputs.push((source, NewInput::Added(Box::new(input))));
            }
            for (number, output) in planned.outputs.drain(..).enumerate() {
                let Some(output) = output.filter(|_| self.new.contains(&number)) else { continue };
                worker.add_output(number, names.end(file, number), output);
            }
        }
    }
}

impl WorkerLayout {
    fn add_output(&mut self, number: usize, end: End, output: Output) {
        self.local.extend(output.local_stats().map(|local| (end, local)));
        let destination = Destination { end, stats: output.stats.clone() };
        self.outputs[number] = Some((destination, NewOutput::Added(Box::new(output))));
    }
}

impl<'a> Reload<'a> {
    /// Plans where inputs and outputs go. Queues of ports that no worker had are added to `planned`.
    ///
    /// # Errors
    /// Differences that a reload cannot make, as problems.
    pub(super) fn lay_out(
        &self,
        setup: &mut PortSetup<'_>,
        planned: &mut [PlannedWorker],
    ) -> Result<Layout, Vec<String>> {
        let numbers = self.file.ports.len() + self.file.links.len();
        let worker = || WorkerLayout { outputs: (0..numbers).map(|_| None).collect(), ..WorkerLayout::default() };
        let mut layout = Layout {
            workers: planned.iter().map(|_| worker()).collect(),
            respreads: vec![],
            shares: vec![],
            new: BTreeSet::new(),
        };
        let mut problems = vec![];
        for port in 0..self.file.ports.len() {
            if self.keeps_port(port) {
                let laid = self
                    .port_inputs(port, setup, planned, &mut layout)
                    .and_then(|()| self.port_outputs(port, setup, planned, &mut layout));
                problems.extend(laid.err());
            } else {
                layout.new.insert(port);
            }
        }
        for link in 0..self.file.links.len() {
            self.link(link, planned, &mut layout);
        }
        for (n, worker) in layout.workers.iter_mut().enumerate() {
            // those that stay, in their order
            worker.inputs.sort_by_key(|(_, input)| match input {
                NewInput::Moved((from, input), _) if *from == n => *input,
                _ => usize::MAX,
            });
        }
        if problems.is_empty() { Ok(layout) } else { Err(problems) }
    }

    /// Returns true if a port of the new file is open already.
    pub(super) fn keeps_port(&self, port: usize) -> bool {
        let name = &self.file.ports[port].name;
        self.engine.file.ports.iter().any(|port| port.name == *name)
            && !self.changes.ports.iter().any(|changed| changed.name == *name)
    }

    /// Returns the inputs that workers have from an end.
    fn present_inputs(&self, end: End) -> Vec<(Place, &Source)> {
        let of = |(n, own): (usize, &Option<usize>)| {
            let inputs = own.map(|own| &self.engine.workers[own].inputs[..]).unwrap_or_default();
            let of_end = inputs.iter().enumerate().filter(|(_, source)| source.end == end);
            of_end.map(|(input, source)| ((n, input), source)).collect::<Vec<_>>()
        };
        self.own.iter().enumerate().flat_map(of).collect()
    }

    /// Returns the outputs that workers have to an end.
    fn present_outputs(&self, end: End) -> Vec<(Place, &Destination)> {
        let of = |(n, own): (usize, &Option<usize>)| {
            let outputs = own.map(|own| &self.engine.workers[own].outputs[..]).unwrap_or_default();
            let of_end = |(number, output): (usize, &'a Option<Destination>)| {
                Some(((n, number), output.as_ref().filter(|output| output.end == end)?))
            };
            outputs.iter().enumerate().find_map(of_end)
        };
        self.own.iter().enumerate().filter_map(of).collect()
    }

    /// Returns true if packets have to be spread over cores by another key than before.
    fn spreads_otherwise(&self, before: Option<Spreading>, now: Spreading) -> bool {
        // the function that chooses the core depends on the settings
        let is_changed = |(nf, _): (usize, u8)| self.changes.nfs[nf].change != NfChange::Kept;
        before != Some(now) || now.steered_by.is_some_and(is_changed)
    }

    fn port_inputs(
        &self,
        port: usize,
        setup: &mut PortSetup<'_>,
        planned: &mut [PlannedWorker],
        layout: &mut Layout,
    ) -> Result<(), String> {
        let end = self.names.end(self.file, port);
        let (users, _) = setup.port_users(port, planned);
        let present = self.present_inputs(end);
        let cpus = |workers: &mut dyn Iterator<Item = usize>| workers.collect::<BTreeSet<_>>();
        let stay = cpus(&mut present.iter().map(|((worker, _), _)| *worker)) == cpus(&mut users.iter().map(|u| u.0));
        let old = self.engine.file.ports.iter().position(|old| old.name == self.file.ports[port].name);
        let (before, now) = (old.map(|old| self.engine.file.spreading(old)), self.file.spreading(port));
        let is_otherwise = users.len() > 1 && self.spreads_otherwise(before, now);
        if stay && !is_otherwise {
            for (from, source) in present {
                let moved = NewInput::Moved(from, entry_of(&users, from.0));
                layout.workers[from.0].inputs.push((source.clone(), moved));
            }
            return Ok(());
        }
        let (rings, queues): (Vec<_>, Vec<_>) =
            present.into_iter().partition(|(_, source)| source.kind == SourceKind::FromCore);
        match &queues[..] {
            _ if users.is_empty() => {}
            [] => {
                let rx = self.unused(setup, port, |monitor| monitor.unused_rx()).ok_or_else(|| {
                    format!("port {:?}: a reload cannot receive from a port that was only sent to", self.name(port))
                })?;
                let (drain, backpressure) = setup.drain_policy(port);
                let drain = if is_ring(setup, port) { crate::DrainPolicy::UntilQuiet } else { drain };
                setup.add_inputs(port, RxPort::Device(rx), &users, planned, backpressure, drain);
                layout.new.insert(port);
            }
            _ if rings.is_empty()
                && queues.iter().all(|(_, source)| source.kind == SourceKind::Port)
                && queues.len() >= users.len()
                && !is_otherwise =>
            {
                let mut queues_of = vec![0; users.len()];
                // those that stay on their worker first
                let mut order = queues.clone();
                order.sort_by_key(|((from, _), _)| !users.iter().any(|(worker, _)| worker == from));
                for (from, source) in order {
                    let own = users.iter().position(|(worker, _)| *worker == from.0).filter(|own| queues_of[*own] == 0);
                    let least = (0..users.len()).min_by_key(|user| queues_of[*user]).unwrap_or_default();
                    let user = own.unwrap_or(least);
                    queues_of[user] += 1;
                    let (worker, entry) = users[user];
                    layout.workers[worker].inputs.push((source.clone(), NewInput::Moved(from, entry)));
                }
            }
            &[(queue, source)] => {
                let step = layout.respreads.len();
                let kind = |user| match user {
                    _ if users.len() == 1 => SourceKind::Port,
                    0 => SourceKind::Spreading,
                    _ => SourceKind::FromCore,
                };
                let stats: Vec<Arc<LinkStats>> = users.iter().skip(1).map(|_| Arc::default()).collect();
                for (user, &(worker, _)) in users.iter().enumerate() {
                    let stats = user.checked_sub(1).map_or(&source.stats, |other| &stats[other]).clone();
                    let source = Source { end, kind: kind(user), stats };
                    layout.workers[worker].inputs.push((source, NewInput::Respread(step, user)));
                }
                layout.respreads.push(Respread {
                    port: Some(queue),
                    rings: rings.iter().map(|(place, _)| *place).collect(),
                    key: SteeringKey::of(self.file, now, users.len()),
                    users,
                    stats,
                    stop: self.engine.stop.clone(),
                });
            }
            more => {
                return Err(format!(
                    "port {:?}: a reload cannot spread the packets of its {} receive queues over {} CPUs",
                    self.name(port),
                    more.len(),
                    users.len()
                ));
            }
        }
        Ok(())
    }

    fn port_outputs(
        &self,
        port: usize,
        setup: &PortSetup<'_>,
        planned: &mut [PlannedWorker],
        layout: &mut Layout,
    ) -> Result<(), String> {
        let end = self.names.end(self.file, port);
        let (users, senders) = setup.port_users(port, planned);
        let present = self.present_outputs(end);
        let is_ring = is_ring(setup, port);
        let (stay, mut free): (Vec<_>, Vec<_>) = present.into_iter().partition(|(from, _)| senders.contains(&from.0));
        let mut donor = stay.first().map(|(from, _)| *from);
        let mut copies = vec![];
        for worker in senders {
            let own = stay.iter().find(|(from, _)| from.0 == worker).copied();
            let output = match own.or_else(|| free.pop()) {
                Some((from, destination)) => {
                    donor = donor.or(Some(from));
                    let self_consumed = is_ring && users.iter().any(|(user, _)| *user == worker);
                    (destination.clone(), NewOutput::Moved { from, entry: Target::Unconnected, self_consumed })
                }
                None => match self.unused(setup, port, |monitor| monitor.unused_tx()) {
                    Some(queue) => {
                        layout.workers[worker].add_output(port, end, Output::new(TxPort::Device(queue)));
                        continue;
                    }
                    None if donor.is_some() => {
                        let stats: Arc<LinkStats> = Arc::default();
                        copies.push(stats.clone());
                        (Destination { end, stats }, NewOutput::Shared(layout.shares.len(), copies.len() - 1))
                    }
                    None => {
                        let name = self.name(port);
                        return Err(format!(
                            "port {name:?}: a reload cannot send to a port that was only received from"
                        ));
                    }
                },
            };
            layout.workers[worker].outputs[port] = Some(output);
        }
        if let Some(of) = donor.filter(|_| !copies.is_empty()) {
            layout.shares.push(Share { of, stats: copies });
        }
        Ok(())
    }

    fn link(&self, link: usize, planned: &[PlannedWorker], layout: &mut Layout) {
        let old = self.engine.file.links.iter().position(|old| old.name == self.file.links[link].name);
        let number = self.file.ports.len() + link;
        let end = self.names.end(self.file, number);
        let chain = self.file.links[link].chain;
        let receivers = links::receivers(self.file, Start::Link(link), planned);
        let (inputs, outputs) = (self.present_inputs(end), self.present_outputs(end));
        let received_by = |worker: usize| {
            let of = self.own[worker].map(|own| &self.engine.workers[own].chains[..]).unwrap_or_default();
            old.is_some_and(|old| of.contains(&self.engine.file.links[old].chain))
        };
        let stay = (0..planned.len()).all(|n| received_by(n) == receivers.iter().any(|(worker, _)| *worker == n))
            && outputs.iter().map(|(from, _)| from.0).eq(links::senders(number, planned));
        let before = old.map(|old| &self.engine.file.chains[self.engine.file.links[old].chain]);
        let now = &self.file.chains[chain];
        let is_otherwise = receivers.len() > 1
            && (before.is_some_and(|before| before.shuffle != now.shuffle)
                || self.spreads_otherwise(before.map(|before| before.spreading), now.spreading));
        if old.is_some() && stay && !is_otherwise {
            for (from, source) in inputs {
                let moved = NewInput::Moved(from, entry_of(&receivers, from.0));
                layout.workers[from.0].inputs.push((source.clone(), moved));
            }
            for (from, destination) in outputs {
                let entry = entry_of(&receivers, from.0);
                let moved = NewOutput::Moved { from, entry, self_consumed: false };
                layout.workers[from.0].outputs[number] = Some((destination.clone(), moved));
            }
            return;
        }
        layout.new.insert(number);
        if !inputs.is_empty() && !receivers.is_empty() {
            layout.respreads.push(Respread {
                port: None,
                rings: inputs.into_iter().map(|(place, _)| place).collect(),
                key: links::key(self.file, link, receivers.len()),
                users: receivers,
                stats: vec![],
                stop: self.engine.stop.clone(),
            });
        }
    }

    /// Returns a queue of an open port to which no worker has a handle.
    fn unused<T>(
        &self,
        setup: &PortSetup<'_>,
        port: usize,
        queue: impl Fn(&dpdk::PortHandle) -> Option<T>,
    ) -> Option<T> {
        // a queue that is a port of its own has to be that one
        let is_plain = matches!(self.file.ports[port].device, config::Device::Dpdk { .. })
            && extra_queues(self.file, port).is_empty();
        let (_, monitor) = setup.monitors.iter().find(|(number, _)| is_plain && *number == port)?;
        queue(&monitor.port)
    }

    fn name(&self, port: usize) -> &str {
        &self.file.ports[port].name
    }
}

/// Returns true if packets that are sent to an open port are received from it.
fn is_ring(setup: &PortSetup<'_>, port: usize) -> bool {
    setup.monitors.iter().any(|(number, monitor)| *number == port && monitor.is_ring())
}

/// Returns the entry of a worker's packets.
fn entry_of(users: &[(usize, Target)], worker: usize) -> Target {
    users.iter().find(|(user, _)| *user == worker).map_or(Target::Unconnected, |(_, entry)| *entry)
}

/// Returns the source of a chain as written in its file.
pub(super) fn source_name(file: &ChainFile, from: Start) -> &str {
    match from {
        Start::Port(port) => &file.ports[port].name,
        Start::Link(link) => &file.links[link].name,
    }
}
