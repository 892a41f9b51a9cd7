//! The sandboxes of a chain file.

mod counts;
mod instance;
mod probes;
mod reload;
mod statistics;
mod tools;

use crate::cleanup::{RunFolder, run_folder};
use crate::placement::{choose_cpus, shares_cpus, sleep_when_idle};
use config::{ChainFile, Sandbox};
use diagnostics::Diagnostics;
use graph::{FileVersion, Registry};
use instance::{Common, Instance, Place, control_groups};
pub use probes::SandboxProbes;
use runtime::{Engine, Error, IdlePolicy, Summary, VirtualFunctions, allowed_cpus};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tools::{Tools, has_passthrough};

/// Time without a returned packet after which packets of a failed process count as lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(200);
/// Longest wait for packets to leave a sandbox that a reload ends.
pub(crate) const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval at which they are counted.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The sandboxed processes of a chain file, and the plan of the host side.
pub(crate) struct Sandboxes {
    /// The file that runs now.
    file: ChainFile,
    host_side: ChainFile,
    /// CPUs of chains of the host side that name none.
    host_cpus: Vec<usize>,
    /// True if the host side shares a CPU with a sandbox.
    shares_cpus: bool,
    /// True if packets are received from passthrough ports.
    receives: bool,
    folder: PathBuf,
    notes: Vec<String>,
    last_in_flight: Mutex<InFlight>,
    // dropped in this order: processes end before their files are removed
    /// The sandboxes of the file, in its order.
    running: Vec<Instance>,
    /// Those that reloads have ended or replaced, the oldest first.
    ended: Vec<Instance>,
    /// Number of the last process that a reload has started.
    generation: u32,
    /// Virtual functions of both sides that this process has created.
    functions: VirtualFunctions,
    _run_folder: RunFolder,
}

/// Packets in sandboxes while the host side drains.
struct InFlight {
    /// Number for each sandbox; negative if its report lags behind the counts of the host side.
    packets: Vec<i64>,
    /// Time since which the numbers are constant.
    since: Instant,
    /// Smallest number of reports of any sandbox at that time.
    reports: u64,
}

impl Sandboxes {
    /// Prepares the sandboxes of a file; returns `None` if it has none. `others` is the number of CPUs that other
    /// threads of this process need.
    ///
    /// # Errors
    /// An error in the file, or something that this machine or user lacks.
    pub(crate) fn build(file: &ChainFile, registry: &Registry, others: usize) -> Result<Option<Sandboxes>, Error> {
        if file.sandboxes.is_empty() {
            return Ok(None);
        }
        let allowed = allowed_cpus();
        check_cpus(file, &allowed)?;
        // the generator needs an exclusive CPU: packets that it loses would count as losses of the chains
        let available = allowed.get(others..).filter(|cpus| !cpus.is_empty()).unwrap_or(&allowed);
        let (host_cpus, cpus) = choose_cpus(file, available);
        let sleeps = sleep_when_idle(file, &host_cpus, &cpus, allowed.len().saturating_sub(others));
        let shares_cpus = shares_cpus(file, &host_cpus, &cpus);
        let tools = Tools::new(&file.sandboxes)?;
        let folder = run_folder();
        let side = |functions: &BTreeMap<String, String>| {
            let side = file.host_side(&folder, &host_cpus, functions, registry);
            side.map_err(|errors| Error::Input(Diagnostics(errors)))
        };
        let mut functions = VirtualFunctions::default();
        if has_passthrough(&file.sandboxes) {
            // errors of the host side are reported before any device is changed
            side(&BTreeMap::new())?;
            // all virtual functions of a NIC are created at once, for both sides
            functions = VirtualFunctions::for_chain_file(file)?;
        }
        let host_side = side(functions.addresses())?;
        let mut all = Sandboxes::create(file, host_side, functions)?;
        (all.host_cpus, all.shares_cpus) = (host_cpus, shares_cpus);
        all.receives = file.ports.iter().any(|port| port.sandbox.is_some() && port.received_from);
        all.notes = tools.notes().into_iter().chain(all.functions.notes().iter().cloned()).collect();
        let places = cpus.into_iter().zip(sleeps).zip(0..).map(|((cpus, sleeps), user)| Place { cpus, sleeps, user });
        let common = Common { file, folder: &all.folder, functions: &all.functions, tools: &tools };
        for (sandbox, place) in file.sandboxes.iter().zip(places) {
            all.running.push(common.prepare(sandbox, place, &mut all.notes)?);
        }
        Ok(Some(all))
    }

    /// Prepares sandboxes that reloads may add to a run without any.
    ///
    /// # Errors
    /// The folder of the run cannot be created.
    pub(crate) fn none(engine: &Engine) -> Result<Sandboxes, Error> {
        let (file, cpus) = (engine.file(), engine.worker_cpus());
        let mut all = Sandboxes::create(file, file.clone(), VirtualFunctions::default())?;
        // several chains without cores stay on their CPUs
        if cpus.len() == 1 {
            all.host_cpus = cpus;
        }
        Ok(all)
    }

    /// Creates the folder of the run.
    fn create(file: &ChainFile, host_side: ChainFile, functions: VirtualFunctions) -> Result<Sandboxes, Error> {
        let groups: Vec<PathBuf> = file.sandboxes.iter().flat_map(|own| control_groups(own).all_paths()).collect();
        let run_folder = RunFolder::create_with_groups(0o711, &groups)?;
        Ok(Sandboxes {
            file: file.clone(),
            host_side,
            host_cpus: vec![],
            shares_cpus: false,
            receives: false,
            folder: run_folder.path().to_owned(),
            notes: vec![],
            last_in_flight: Mutex::new(InFlight::new()),
            running: vec![],
            ended: vec![],
            generation: 0,
            functions,
            _run_folder: run_folder,
        })
    }

    /// Returns the plan of the host side.
    pub(crate) fn host_side(&self) -> &ChainFile {
        &self.host_side
    }

    /// Returns the behaviour of idle workers on the host side, which is `idle` unless they share a CPU with a sandbox.
    pub(crate) fn idle(&self, idle: IdlePolicy) -> IdlePolicy {
        if self.shares_cpus { IdlePolicy::Yield } else { idle }
    }

    /// Returns the interfaces of the sandboxes with the sockets on which the host side listens.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (String, PathBuf)> {
        let sockets = |sandbox: &'_ Sandbox| {
            let names = sandbox.interfaces().map(|ports| ports[0].clone());
            names.zip(self.host_side.sandbox_sockets(sandbox, &self.folder)).collect::<Vec<_>>()
        };
        self.running.iter().flat_map(move |instance| sockets(&instance.sandbox))
    }

    /// Creates a folder for the sockets of an external switch; no sandbox can have its name.
    pub(crate) fn make_switch_folder(&self) -> std::io::Result<PathBuf> {
        let folder = self.folder.join(".switch");
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }

    /// Returns true if packets are received from passthrough ports.
    pub(crate) fn receives(&self) -> bool {
        self.receives
    }

    /// Returns the files that NFs in sandboxes read, with the versions at their start.
    pub(crate) fn setting_files(&self) -> impl Iterator<Item = (PathBuf, FileVersion)> {
        self.running.iter().flat_map(Instance::files)
    }

    /// Returns notes for the user.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Starts the processes, whose sockets must exist, and waits until all are ready.
    ///
    /// # Errors
    /// The reason why a process cannot start.
    pub(crate) fn start(&self) -> Result<(), Error> {
        instance::start(&self.running, &self.host_side, &self.folder)
    }

    /// Returns true if all packets that entered sandboxes were returned, by the statistics of the host side and reports
    /// that are newer; requests reports. The host side must have no packets between its ports.
    pub(crate) fn all_returned(&self, done: &Summary) -> bool {
        for Instance { process, .. } in &self.running {
            process.close();
            process.request_report();
            process.state().stopping = true;
        }
        // a worker may be processing a batch for the next sandbox
        if !done.balanced || !self.running.iter().all(|instance| instance.process.is_closed()) {
            return false;
        }
        let mut last = self.last_in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        last.have_returned(&self.running, done, false)
    }

    /// Requests reports of all processes.
    pub(crate) fn request_reports(&self) {
        self.running.iter().for_each(|instance| instance.process.request_report());
    }

    /// Ends the processes and returns the statistics of both sides.
    pub(crate) fn stop(mut self, mut done: Summary) -> Summary {
        instance::end(&self.running);
        // removing a virtual function blocks while a hung worker uses it
        let of_functions = if done.abandoned { self.functions.release_at_exit() } else { self.functions.release() };
        done.errors.extend(of_functions);
        self.merge(done, true)
    }
}

impl InFlight {
    fn new() -> InFlight {
        InFlight { packets: vec![], since: Instant::now(), reports: 0 }
    }

    /// Returns true if all packets that entered instances were returned, or are not going to be, by the statistics of the
    /// host side and further reports, which have to be requested; with `held`, also those that NFs hold.
    fn have_returned(&mut self, instances: &[Instance], done: &Summary, held: bool) -> bool {
        let (mut packets, mut failures, mut reports) = (vec![], 0, u64::MAX);
        for instance in instances {
            let state = instance.process.state();
            let counts = statistics::counts(instance, &state, done);
            let inside = counts.in_flight().saturating_add(if held { counts.held as i64 } else { 0 });
            // an ended process returns nothing
            packets.push(if state.ready { inside } else { 0 });
            reports = reports.min(if state.ready { state.reports } else { u64::MAX });
            failures += state.failures;
        }
        if self.packets != packets {
            *self = InFlight { packets, since: Instant::now(), reports };
        }
        // the first of two further reports may be older than the counts; created packets hide others until reported
        let is_confirmed = reports >= self.reports.saturating_add(2) || reports == u64::MAX;
        let returned = is_confirmed && self.packets.iter().all(|n| *n == 0);
        // packets of an ended process are never returned
        returned || failures > 0 && self.since.elapsed() > LOSS_TIMEOUT
    }
}

impl Drop for Sandboxes {
    /// Ends all processes at once.
    fn drop(&mut self) {
        instance::end(&self.running);
    }
}

/// Checks that the CPUs of a file may be used.
fn check_cpus(file: &ChainFile, allowed: &[usize]) -> Result<(), Error> {
    let unavailable = file.unavailable_cpus(allowed);
    if unavailable.is_empty() { Ok(()) } else { Err(Error::Input(Diagnostics(unavailable))) }
}
