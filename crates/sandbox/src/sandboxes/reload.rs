//! Sandboxes that a reload adds, removes, or replaces by another process.

use super::instance::{self, Common, Instance, Place};
use super::tools::Tools;
use super::{InFlight, Sandboxes, check_cpus, statistics};
use crate::placement::{choose_cpus, shares_cpus, sleep_when_idle};
use config::{ChainFile, Changes, Sandbox, unused_name};
use diagnostics::{Diagnostic, Diagnostics};
use graph::Registry;
use runtime::{Engine, Error, IdlePolicy, Summary};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// All that a reload has prepared.
pub(crate) struct Prepared {
    pub(crate) changes: Changes,
    file: ChainFile,
    host_side: ChainFile,
    /// The host side while packets leave sandboxes that end; none if no sandbox ends.
    leaving: Option<ChainFile>,
    /// Processes for added and changed sandboxes.
    added: Vec<Instance>,
    /// Names of the sandboxes whose processes go on.
    kept: Vec<String>,
    shares_cpus: bool,
    folder: PathBuf,
    notes: Vec<String>,
}

/// Processes that end, while packets leave them.
pub(crate) struct Leaving {
    instances: Vec<Instance>,
    in_flight: InFlight,
}

impl Sandboxes {
    /// Prepares what a reload needs, and checks that it is possible. Nothing changes for the processes that run.
    ///
    /// # Errors
    /// An error in the file, a difference that only a restart can make, or something that this machine or user lacks.
    pub(crate) fn prepare(
        &mut self,
        file: &ChainFile,
        registry: &Registry,
        engine: &Engine,
    ) -> Result<Prepared, Error> {
        // those of this thread are without workers
        let allowed = engine.allowed_cpus();
        check_cpus(file, allowed)?;
        let mut changes = Changes::between(&self.file, file);
        let is_changed =
            |changes: &Changes, sandbox: &Sandbox| changes.sandboxes.iter().any(|changed| changed.name == sandbox.name);
        for Instance { sandbox, .. } in self.running.iter().filter(|instance| instance.files_have_changed()) {
            if !is_changed(&changes, sandbox) && sandbox.passthrough.is_empty() {
                changes.replace_sandbox(sandbox, "a file that it reads");
            }
        }
        self.check_names(file, &mut changes);
        if !changes.restart.is_empty() {
            return Err(Error::needs_restart(file, &changes.restart));
        }
        let mut planned = file.clone();
        let mut names = self.used_names(file, &engine.snapshot());
        let (mut generation, mut kept, mut added) = (self.generation, vec![], vec![]);
        for (n, sandbox) in planned.sandboxes.iter_mut().enumerate() {
            let running = self.running.iter().find(|own| own.sandbox.name == sandbox.name);
            match running.filter(|_| !is_changed(&changes, sandbox)) {
                Some(running) => {
                    sandbox.continue_process(&running.sandbox);
                    kept.push(sandbox.name.clone());
                }
                None => {
                    generation += 1;
                    sandbox.generation = generation;
                    let of = sandbox.name.clone();
                    sandbox.rename_ports(|| unused_name(&of, 1, &mut names));
                    added.push(n);
                }
            }
        }
        let (folder, addresses) = (self.folder.clone(), self.functions.addresses());
        let input = |errors| Error::Input(Diagnostics(errors));
        let host_side = planned.host_side(&folder, &self.host_cpus, addresses, registry).map_err(input)?;
        let ending = self.running.iter().filter(|own| !kept.contains(&own.sandbox.name));
        let leaving: Vec<&str> = ending.flat_map(|own| own.sandbox.ports()).collect();
        let leaving = (!leaving.is_empty()).then(|| {
            let before = (&self.host_side, &leaving[..]);
            planned.host_side_and_leaving(&folder, &self.host_cpus, addresses, registry, before)
        });
        let leaving = leaving.transpose().map_err(|errors| {
            let of_leaving = |d: Diagnostic| Diagnostic {
                problem: format!("packets cannot leave the sandboxes that would end: {}", d.problem),
                ..d
            };
            input(errors.into_iter().map(of_leaving).collect())
        })?;
        let (places, shares_cpus) = self.places(&planned, &engine.worker_cpus(), allowed);
        let new: Vec<Sandbox> = added.iter().map(|n| planned.sandboxes[*n].clone()).collect();
        let tools = Tools::new(&new)?;
        let mut notes = tools.notes();
        let common = Common { file: &planned, folder: &folder, functions: &self.functions, tools: &tools };
        // not used again, even if this fails
        self.generation = generation;
        let prepared = added.into_iter().zip(&new).map(|(n, new)| common.prepare(new, places[n].clone(), &mut notes));
        let added = prepared.collect::<Result<_, _>>()?;
        Ok(Prepared { changes, file: file.clone(), host_side, leaving, added, kept, shares_cpus, folder, notes })
    }

    /// Reports ports and NFs that have the name of a connection to a sandbox.
    fn check_names(&self, file: &ChainFile, changes: &mut Changes) {
        let ports = file.ports.iter().map(|port| ("port", port.name.as_str()));
        for (what, name) in ports.chain(file.nfs.iter().map(|nf| ("nf", nf.name.as_str()))) {
            let mut all = self.running.iter().chain(&self.ended).map(|instance| &instance.sandbox);
            if let Some(sandbox) = all.find(|sandbox| sandbox.host_names().any(|own| own == name)) {
                let of = &sandbox.name;
                changes.restart.push(format!(
                    "{what} {name:?} cannot be added by a reload: a connection to sandbox {of:?} has that name"
                ));
            }
        }
    }

    /// Returns the names that ports of added sandboxes cannot have: counts of the run refer to them.
    fn used_names(&self, file: &ChainFile, done: &Summary) -> BTreeSet<String> {
        let instances = self.running.iter().chain(&self.ended);
        let connections = instances.flat_map(|instance| instance.sandbox.host_names()).map(str::to_owned);
        let counted = done.ports.iter().map(|port| &port.name).chain(done.nfs.iter().map(|nf| &nf.name));
        let ports = file.ports.iter().map(|port| &port.name);
        let nfs = file.nfs.iter().flat_map(|nf| nf.outputs.iter().chain([&nf.name]));
        counted.chain(ports).chain(nfs).cloned().chain(connections).collect()
    }

    /// Returns the places of the sandboxes of a file, and true if the host side shares a CPU with one. Those that run
    /// stay where they are.
    fn places(&self, file: &ChainFile, workers: &[usize], allowed: &[usize]) -> (Vec<Place>, bool) {
        let process = |sandbox: &Sandbox| (sandbox.name.clone(), sandbox.generation);
        let running = |sandbox: &Sandbox| self.running.iter().find(|own| process(&own.sandbox) == process(sandbox));
        let mut placed = file.clone();
        for sandbox in &mut placed.sandboxes {
            if let Some(own) = running(sandbox) {
                sandbox.cores.clone_from(&own.place.cpus);
            }
        }
        placed
            .chains
            .iter_mut()
            .filter(|chain| chain.cores.is_empty())
            .for_each(|chain| chain.cores = workers.to_vec());
        let (_, cpus) = choose_cpus(&placed, allowed);
        let sleeps = sleep_when_idle(&placed, workers, &cpus, allowed.len());
        let shares_cpus = shares_cpus(&placed, workers, &cpus);
        let mut users: BTreeSet<u32> = self.running.iter().map(|own| own.place.user).collect();
        let place = |((sandbox, cpus), sleeps): ((&Sandbox, Vec<usize>), bool)| {
            running(sandbox).map(|own| own.place.clone()).unwrap_or_else(|| {
                let user = (0..).find(|user| !users.contains(user)).unwrap_or_default();
                users.insert(user);
                Place { cpus, sleeps, user }
            })
        };
        (file.sandboxes.iter().zip(cpus).zip(sleeps).map(place).collect(), shares_cpus)
    }

    /// Takes what the host side runs now; returns the processes that it sends no packets to any more, and notes.
    pub(crate) fn adopt(&mut self, prepared: Prepared) -> (Option<Leaving>, Vec<String>) {
        let Prepared { file, host_side, added, kept, shares_cpus, mut notes, .. } = prepared;
        notes.extend(added.iter().map(Instance::description));
        let (mut running, ending): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.running).into_iter().partition(|own| kept.contains(&own.sandbox.name));
        running.extend(added);
        running.sort_by_key(|own| file.sandboxes.iter().position(|sandbox| sandbox.name == own.sandbox.name));
        (self.running, self.file, self.host_side, self.shares_cpus) = (running, file, host_side, shares_cpus);
        let leaving = (!ending.is_empty()).then(|| Leaving { instances: ending, in_flight: InFlight::new() });
        (leaving, notes)
    }

    /// Ends the processes that packets have left; returns notes about those that have not.
    pub(crate) fn end(&mut self, leaving: Leaving, done: impl FnOnce() -> Summary) -> Vec<String> {
        instance::end(&leaving.instances);
        let (mut notes, done) = (vec![], done());
        for instance in &leaving.instances {
            let mut state = instance.process.state();
            state.retire();
            let lost = statistics::counts(instance, &state, &done).in_flight();
            if lost > 0 {
                notes.push(format!("sandbox {:?}: {lost} packets in it were lost", instance.sandbox.name));
            }
        }
        self.ended.extend(leaving.instances);
        notes
    }

    /// Removes the files of processes that have ended and whose ports are closed.
    pub(crate) fn remove_ended_files(&mut self) {
        self.ended.iter_mut().for_each(Instance::remove_files);
    }
}

impl Prepared {
    /// Returns the host side with the added sandboxes, and with the chains by which packets leave those that end.
    pub(crate) fn host_side(&self) -> &ChainFile {
        self.leaving.as_ref().unwrap_or(&self.host_side)
    }

    /// Returns the behaviour of idle workers on the host side, which is `idle` unless they share a CPU with a sandbox.
    pub(crate) fn idle(&self, idle: IdlePolicy) -> IdlePolicy {
        if self.shares_cpus { IdlePolicy::Yield } else { idle }
    }

    /// Starts the added processes, whose sockets must exist, and waits until all are ready.
    ///
    /// # Errors
    /// The reason why a process cannot start.
    pub(crate) fn start(&self) -> Result<(), Error> {
        instance::start(&self.added, &self.host_side, &self.folder)
    }
}

impl Leaving {
    /// Returns true if all packets have left, by the statistics of the host side and reports that are newer; requests
    /// reports.
    pub(crate) fn has_left(&mut self, done: &Summary) -> bool {
        self.instances.iter().for_each(|instance| instance.process.request_report());
        self.in_flight.have_returned(&self.instances, done, true)
    }
}
