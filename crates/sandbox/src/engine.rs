//! An engine with sandboxes.

use crate::error::environment_error;
use crate::probes::ProbeTraces;
use crate::sandboxes::{LEAVE_TIMEOUT, POLL_INTERVAL, Sandboxes};
use config::{ChainFile, NfChange};
use graph::{FileVersion, Registry};
use runtime::{Engine, Error, IdlePolicy, Options, PortQueues, Predecessor, Reloaded, SavedState, Summary, Wires};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// An engine for the host side of a chain file, and its sandboxes.
pub struct SandboxedEngine {
    engine: Engine,
    /// Behaviour of idle workers that share no CPU with a sandbox.
    requested_idle: IdlePolicy,
    idle: IdlePolicy,
    sandboxes: Option<Sandboxes>,
}

impl SandboxedEngine {
    /// Starts a chain file.
    ///
    /// # Errors
    /// Those of [`Engine::start`], and what this machine or user lacks for sandboxes.
    pub fn start(file: &ChainFile, registry: &Registry, options: Options) -> Result<SandboxedEngine, Error> {
        SandboxedEngine::start_successor(file, registry, options, None)
    }

    /// Starts a chain file that another process has run: [`Engine::start_successor`]. Sandboxes start anew.
    ///
    /// # Errors
    /// Those of [`SandboxedEngine::start`], and of the predecessor.
    pub fn start_successor(
        file: &ChainFile,
        registry: &Registry,
        options: Options,
        predecessor: Option<Predecessor<'_>>,
    ) -> Result<SandboxedEngine, Error> {
        let sandboxes = Sandboxes::build(file, registry, 0)?;
        let side = sandboxes.as_ref().map_or(file, Sandboxes::host_side);
        let requested_idle = options.idle;
        let options =
            Options { idle: sandboxes.as_ref().map_or(options.idle, |all| all.idle(options.idle)), ..options };
        let start = || sandboxes.as_ref().map_or(Ok(()), Sandboxes::start);
        let engine = Engine::start_successor(side, options, predecessor, start)?;
        Ok(SandboxedEngine { engine, requested_idle, idle: options.idle, sandboxes })
    }

    /// Starts a chain file with wires instead of each port, as [`Engine::start_on_wires_with_hook`].
    ///
    /// # Errors
    /// Those of [`SandboxedEngine::start`].
    pub fn start_on_wires(
        file: &ChainFile,
        registry: &Registry,
        wires: Wires,
    ) -> Result<(SandboxedEngine, Vec<PortQueues>), Error> {
        if let Some(port) = file.ports.iter().find(|port| port.sandbox.is_some()) {
            let remedy = format!("remove sandbox from [port.{}]", port.name);
            return Err(environment_error(
                format!("port {:?} is passed through to a sandbox and cannot be a wire", port.name),
                remedy,
            ));
        }
        // the generator's cores poll, too
        let sandboxes = Sandboxes::build(file, registry, wires.per_port)?;
        let side = sandboxes.as_ref().map_or(file, Sandboxes::host_side);
        let opened = || sandboxes.as_ref().map_or(Ok(()), Sandboxes::start);
        let idle = IdlePolicy::default();
        let options = Options { idle: sandboxes.as_ref().map_or(idle, |all| all.idle(idle)), ..Options::default() };
        let (engine, ends) = Engine::start_on_wires_with_hook(side, wires, options, opened)?;
        Ok((SandboxedEngine { engine, requested_idle: idle, idle: options.idle, sandboxes }, ends))
    }

    /// Returns the engine of the host side.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Starts a trace of one probe in `every` on average, and waits until all workers have begun it.
    #[must_use]
    pub fn trace_probes(&self, every: u64) -> ProbeTraces<'_> {
        ProbeTraces::start(&self.engine, self.sandboxes.as_ref(), every)
    }

    /// Returns the behaviour of workers of the host side while no packets arrive.
    #[must_use]
    pub fn idle(&self) -> IdlePolicy {
        self.idle
    }

    /// Returns true if no more packets are received, on either side.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let receives = self.sandboxes.as_ref().is_some_and(Sandboxes::receives);
        self.engine.is_stopping() || self.engine.is_finished() && !receives
    }

    /// Returns the plan of the host side; port and chain indices of the engine refer to it.
    #[must_use]
    pub fn host_side<'a>(&'a self, file: &'a ChainFile) -> &'a ChainFile {
        self.sandboxes.as_ref().map_or(file, Sandboxes::host_side)
    }

    /// Returns notes for the user.
    pub fn notes(&self) -> impl Iterator<Item = &String> {
        self.engine.notes().iter().chain(self.sandboxes.iter().flat_map(Sandboxes::notes))
    }

    /// Returns the statistics of both sides; those of sandboxes are up to 50 ms old (200 ms in a VM).
    #[must_use]
    pub fn snapshot(&self) -> Summary {
        let done = self.engine.snapshot();
        match &self.sandboxes {
            Some(sandboxes) => sandboxes.merge(done, false),
            None => done,
        }
    }

    /// Returns the statistics as [`SandboxedEngine::snapshot`], and requests new reports for the next snapshot.
    #[must_use]
    pub fn request_snapshot(&self) -> Summary {
        self.sandboxes.iter().for_each(Sandboxes::request_reports);
        self.snapshot()
    }

    /// Returns the files that NFs have read because settings name them, with the versions that they have read.
    #[must_use]
    pub fn setting_files(&self) -> BTreeMap<PathBuf, FileVersion> {
        let of_sandboxes = self.sandboxes.iter().flat_map(Sandboxes::setting_files);
        self.engine.setting_files().into_iter().chain(of_sandboxes).collect()
    }

    /// Replaces the chain file as [`Engine::reload`] does. Sandboxes that are the same stay as they are; processes for
    /// added and changed ones are ready before anything changes, and those of removed and changed ones end once packets
    /// have left them.
    ///
    /// # Errors
    /// Those of [`Engine::reload`], and the reason why a process cannot start. If an error is returned, nothing has
    /// changed.
    pub fn reload(&mut self, file: &ChainFile, registry: &Registry) -> Result<Reloaded, Error> {
        if self.sandboxes.is_none() && !file.sandboxes.is_empty() {
            self.sandboxes = Some(Sandboxes::none(&self.engine)?);
        }
        let Some(sandboxes) = &mut self.sandboxes else { return self.engine.reload(file) };
        let prepared = sandboxes.prepare(file, registry, &self.engine)?;
        let idle = prepared.idle(self.requested_idle);
        let mut reloaded = self.engine.reload_with_hook(prepared.host_side(), idle, || prepared.start())?;
        self.idle = idle;
        let mut changes = prepared.changes.clone();
        // of NFs on the host side that have the same settings, workers may need a new one
        for nf in changes.nfs.iter_mut().filter(|nf| nf.change == NfChange::Kept) {
            let on_host = reloaded.changes.nfs.iter().find(|own| own.name == nf.name);
            on_host.into_iter().for_each(|own| nf.clone_from(own));
        }
        reloaded.changes = changes;
        let (leaving, notes) = sandboxes.adopt(prepared);
        reloaded.notes.extend(notes);
        let Some(mut leaving) = leaving else { return Ok(reloaded) };
        let start = Instant::now();
        while !leaving.has_left(&self.engine.snapshot()) && start.elapsed() < LEAVE_TIMEOUT {
            std::thread::sleep(POLL_INTERVAL);
        }
        reloaded.notes.extend(sandboxes.end(leaving, || self.engine.snapshot()));
        match self.engine.reload(sandboxes.host_side()) {
            Ok(without) => {
                reloaded.exchange_ms += without.build_ms + without.exchange_ms;
                reloaded.pause_us = reloaded.pause_us.max(without.pause_us);
                sandboxes.remove_ended_files();
            }
            // the next reload closes them
            Err(e) => reloaded.notes.push(format!("the ports of sandboxes that have ended are still open: {e}")),
        }
        Ok(reloaded)
    }

    /// Stops as [`SandboxedEngine::stop`] does, and passes the state of the NFs that are not in sandboxes to `successor`
    /// once ports are closed.
    #[must_use]
    pub fn hand_over(mut self, successor: impl FnOnce(SavedState) + Send + 'static) -> Summary {
        self.engine.hand_over_to(successor);
        self.stop()
    }

    /// Stops the engine and returns its statistics.
    #[must_use]
    pub fn stop(self) -> Summary {
        match self.sandboxes {
            Some(sandboxes) => {
                let done = self.engine.stop_when_drained(|done| sandboxes.all_returned(done));
                sandboxes.stop(done)
            }
            None => self.engine.stop(),
        }
    }
}
