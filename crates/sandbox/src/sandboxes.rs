//! The sandboxes of a chain file.

mod counts;
mod tools;

use crate::cleanup::{remove_orphans, runtime_folder, start_cleanup};
use crate::confinement::cgroup::{ControlGroups, Limits};
use crate::error::environment_error;
use crate::launch::LaunchSpec;
use crate::placement::{choose_cpus, shares_cpus, sleep_when_idle};
use crate::supervisor::{self, ProcessState, SupervisedProcess, Supervisor};
use crate::vm;
use config::{ChainFile, Changes, Isolation, Sandbox};
use counts::{Counts, Run};
use diagnostics::{Diagnostic, Diagnostics};
use graph::Registry;
use runtime::{CleanupProcess, Error, PortSummary, SandboxSummary, Summary, VirtualFunctions, allowed_cpus};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tools::{PassthroughDevice, Tools, has_passthrough, passthrough_devices};

/// Time without a returned packet after which packets of a failed process count as lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(200);
/// First user ID of sandboxed processes; no other processes use these IDs.
const FIRST_USER: u32 = 1_900_000_000;
/// User IDs for each process that has sandboxes.
const USERS_PER_RUN: u32 = 64;

/// The sandboxed processes of a chain file, and the plan of the host side.
pub(crate) struct Sandboxes {
    sandboxes: Vec<Sandbox>,
    /// Name and version of the runtime of each sandbox.
    runtimes: Vec<String>,
    cpus: Vec<Vec<usize>>,
    /// CPUs of chains of the host side that name none.
    host_cpus: Vec<usize>,
    /// The file that runs now.
    file: ChainFile,
    sleep_when_idle: Vec<bool>,
    /// True if the host side shares a CPU with a sandbox.
    shares_cpus: bool,
    /// True if packets are received from passthrough ports.
    receives: bool,
    host_side: ChainFile,
    folder: PathBuf,
    notes: Vec<String>,
    last_in_flight: Mutex<InFlight>,
    // dropped in this order: processes end before their files are removed
    supervisor: Mutex<Option<Supervisor>>,
    processes: Vec<Arc<SupervisedProcess>>,
    /// Virtual functions of both sides that this process has created.
    functions: VirtualFunctions,
    _cleanup: CleanupProcess,
    /// Lock of the folder; an unlocked folder is an orphan.
    _lock: File,
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
        let unavailable = file.unavailable_cpus(&allowed);
        if !unavailable.is_empty() {
            return Err(Error::Input(Diagnostics(unavailable)));
        }
        // the generator needs an exclusive CPU: packets that it loses would count as losses of the chains
        let available = allowed.get(others..).filter(|cpus| !cpus.is_empty()).unwrap_or(&allowed);
        let (host_cpus, cpus) = choose_cpus(file, available);
        let sleep_when_idle = sleep_when_idle(file, &host_cpus, &cpus, allowed.len().saturating_sub(others));
        let shares_cpus = shares_cpus(file, &host_cpus, &cpus);
        let process_id = std::process::id();
        let folder = runtime_folder().join(format!("bondstone-{process_id}"));
        remove_orphans();
        let not_writable = |e: std::io::Error| {
            environment_error(format!("{}: {e}", folder.display()), "allow this user to write there")
        };
        let plan = |sandbox: &Sandbox| {
            ControlGroups::plan(
                &format!("bondstone-{process_id}-{}", sandbox.name),
                sandbox.isolation == Isolation::Container,
            )
        };
        let mut groups: Vec<ControlGroups> = file.sandboxes.iter().map(plan).collect();
        let paths: Vec<PathBuf> = groups.iter().flat_map(ControlGroups::all_paths).collect();
        let tools = Tools::new(file)?;
        let side = |functions: &BTreeMap<String, String>| {
            let side = file.host_side(&folder, &host_cpus, functions, registry);
            side.map_err(|errors| Error::Input(Diagnostics(errors)))
        };
        let mut functions = VirtualFunctions::default();
        if has_passthrough(file) {
            // errors of the host side are reported before any device is changed
            side(&BTreeMap::new())?;
            // all virtual functions of a NIC are created at once, for both sides
            functions = VirtualFunctions::for_chain_file(file)?;
        }
        let devices = |sandbox: &Sandbox| passthrough_devices(file, sandbox, functions.addresses());
        let devices: Vec<Vec<PassthroughDevice>> = file.sandboxes.iter().map(devices).collect::<Result<_, _>>()?;
        // an existing folder belongs to another process
        let mut directories = std::fs::DirBuilder::new();
        directories.mode(0o711).create(&folder).map_err(not_writable)?;
        let lock = File::open(&folder).and_then(|folder| folder.lock().map(|()| folder)).map_err(not_writable)?;
        // before anything else is created that has to be removed
        let cleanup = start_cleanup(&folder, &paths)
            .map_err(|e| environment_error(format!("no shell can be started: {e}"), "install a shell"))?;
        let root = rustix::process::geteuid().is_root();
        let path = std::path::absolute(&file.file).map_err(not_writable)?;
        let mut notes: Vec<String> = tools.notes().into_iter().chain(functions.notes().iter().cloned()).collect();
        let mut processes = vec![];
        for (n, ((sandbox, cpus), groups)) in file.sandboxes.iter().zip(&cpus).zip(&mut groups).enumerate() {
            directories.create(folder.join(&sandbox.name)).map_err(not_writable)?;
            let list = cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let mut limits = Limits { memory_mib: sandbox.memory_mib, cpus: list };
            if sandbox.isolation == Isolation::Vm {
                limits.memory_mib += vm::QEMU_MEMORY_MIB;
            }
            let within = groups.relative_path();
            if let Err(e) = groups.create(&limits) {
                notes.push(format!("sandbox {:?}: memory is not limited: no control group: {e}", sandbox.name));
                *groups = ControlGroups::none();
            }
            let user = root.then(|| FIRST_USER + process_id * USERS_PER_RUN + n as u32 % USERS_PER_RUN);
            let files = file.setting_files(|name| sandbox.nfs.iter().any(|nf| nf == name));
            let files = files.iter().map(std::path::absolute).collect::<Result<_, _>>();
            let spec = LaunchSpec {
                sandbox: sandbox.name.clone(),
                isolation: sandbox.isolation,
                file: path.clone(),
                partition: file
                    .sandbox_side(sandbox, &folder, functions.addresses())
                    .map_err(|d| Error::Input(Diagnostics(vec![d])))?,
                files: files.map_err(not_writable)?,
                folder: folder.clone(),
                sockets: if sandbox.transport.is_memif() { file.sandbox_sockets(sandbox, &folder) } else { vec![] },
                devices: devices[n].iter().map(|device| device.address.clone()).collect(),
                program: vec![],
                program_files: vec![],
                cpus: cpus.clone(),
                sleep_when_idle: sleep_when_idle[n],
                user: user.unwrap_or_default(),
                group: tools.group(sandbox.isolation),
                // the other half is for the guest's kernel
                heap_mib: if sandbox.isolation == Isolation::Vm { sandbox.memory_mib / 2 } else { sandbox.memory_mib },
            };
            let command = tools.prepare(spec, file, sandbox, within.as_deref(), limits).map_err(not_writable)?;
            processes.push(Arc::new(SupervisedProcess {
                sandbox: sandbox.name.clone(),
                nfs: sandbox.nfs.clone(),
                crossing_ports: sandbox.ports().map(str::to_owned).collect(),
                passthrough: sandbox.passthrough.clone(),
                command,
                groups: std::mem::replace(groups, ControlGroups::none()),
                user,
                state: Mutex::new(ProcessState::new(devices[n].iter().map(|device| (&*device.port, &*device.written)))),
            }));
        }
        let host_side = side(functions.addresses())?;
        Ok(Some(Sandboxes {
            sandboxes: file.sandboxes.clone(),
            runtimes: file.sandboxes.iter().map(|sandbox| tools.runtime(sandbox.isolation)).collect(),
            cpus,
            host_cpus,
            file: file.clone(),
            sleep_when_idle,
            shares_cpus,
            receives: file.ports.iter().any(|port| port.sandbox.is_some() && port.received_from),
            host_side,
            folder,
            notes,
            last_in_flight: Mutex::new(InFlight { packets: vec![], since: Instant::now(), reports: 0 }),
            supervisor: Mutex::default(),
            processes,
            functions,
            _cleanup: cleanup,
            _lock: lock,
        }))
    }

    /// Returns the plan of the host side.
    pub(crate) fn host_side(&self) -> &ChainFile {
        &self.host_side
    }

    /// Returns the plan of the host side of a file with the same sandboxes.
    ///
    /// # Errors
    /// The file has other sandboxes, or an error.
    pub(crate) fn side_of(&self, file: &ChainFile, registry: &Registry) -> Result<ChainFile, Error> {
        let changes = Changes::between(&self.file, file);
        if let Some(problem) = changes.restart.first() {
            let remedy = "restore it, or start the file again: bondstone stop, then run";
            let d = Diagnostic { file: Some(file.file.clone()), ..Diagnostic::new(problem).remedy(remedy) };
            return Err(Error::Input(Diagnostics(vec![d])));
        }
        file.host_side(&self.folder, &self.host_cpus, self.functions.addresses(), registry)
            .map_err(|errors| Error::Input(Diagnostics(errors)))
    }

    /// Sets the file that runs now, and the plan of its host side.
    pub(crate) fn set_file(&mut self, file: &ChainFile, host_side: ChainFile) {
        (self.file, self.host_side) = (file.clone(), host_side);
    }

    /// Returns the behaviour of idle workers on the host side, which is `idle` unless they share a CPU with a sandbox.
    pub(crate) fn idle(&self, idle: runtime::IdlePolicy) -> runtime::IdlePolicy {
        if self.shares_cpus { runtime::IdlePolicy::Yield } else { idle }
    }

    /// Returns the interfaces of the sandboxes with the sockets on which the host side listens.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (String, PathBuf)> {
        let sockets = |sandbox: &'_ Sandbox| {
            let names = sandbox.interfaces().map(|ports| ports[0].clone());
            names.zip(self.host_side.sandbox_sockets(sandbox, &self.folder)).collect::<Vec<_>>()
        };
        self.sandboxes.iter().flat_map(sockets)
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

    /// Returns notes for the user.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Starts the processes, whose sockets must exist, and waits until all are ready.
    ///
    /// # Errors
    /// The reason why a process cannot start.
    pub(crate) fn start(&self) -> Result<(), Error> {
        for (sandbox, process) in self.sandboxes.iter().zip(&self.processes) {
            let Some(user) = process.user else { continue };
            for socket in self.host_side.sandbox_sockets(sandbox, &self.folder) {
                let owned = chown(&socket, Some(user), Some(user));
                owned.map_err(|e| {
                    environment_error(format!("{}: {e}", socket.display()), "run as root, or as a user without rights")
                })?;
            }
        }
        let supervisor = Supervisor::start(self.processes.clone());
        let supervisor = supervisor.map_err(|e| {
            environment_error(format!("cannot start a thread: {e}"), "raise the limit of processes: ulimit -u")
        })?;
        *self.supervisor.lock().unwrap_or_else(PoisonError::into_inner) = Some(supervisor);
        for process in &self.processes {
            while !process.state().ready {
                if let Some(problem) = supervisor::startup_failure(process) {
                    return Err(environment_error(problem, "check its output, or set isolation = \"inproc\""));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Returns true if all packets that entered sandboxes were returned, by the statistics of the host side and reports
    /// that are newer; requests reports. The host side must have no packets between its ports.
    pub(crate) fn all_returned(&self, done: &Summary) -> bool {
        for process in &self.processes {
            process.close();
            process.request_report();
            process.state().stopping = true;
        }
        // a worker may be processing a batch for the next sandbox
        if !done.balanced || !self.processes.iter().all(|process| process.is_closed()) {
            return false;
        }
        let (mut packets, mut failures, mut reports) = (vec![], 0, u64::MAX);
        for (sandbox, process) in self.sandboxes.iter().zip(&self.processes) {
            let state = process.state();
            // an ended process returns nothing
            packets.push(if state.ready { self.counts(sandbox, &state, done).in_flight() } else { 0 });
            reports = reports.min(if state.ready { state.reports } else { u64::MAX });
            failures += state.failures;
        }
        let mut last = self.last_in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        if last.packets != packets {
            *last = InFlight { packets, since: Instant::now(), reports };
        }
        // the first of two further reports may be older than the counts; created packets hide others until reported
        let is_confirmed = reports >= last.reports.saturating_add(2) || reports == u64::MAX;
        let returned = is_confirmed && last.packets.iter().all(|n| *n == 0);
        // packets of an ended process are never returned
        returned || failures > 0 && last.since.elapsed() > LOSS_TIMEOUT
    }

    /// Requests reports of all processes.
    pub(crate) fn request_reports(&self) {
        self.processes.iter().for_each(|process| process.request_report());
    }

    /// Returns the counts of a sandbox, by the last reports.
    fn counts(&self, sandbox: &Sandbox, state: &ProcessState, done: &Summary) -> Counts {
        let mut counts = crossed(sandbox, done);
        // drops at passthrough ports are in the totals
        for port in state.passthrough_ports().values() {
            counts.entered = counts.entered.saturating_add(port.received);
            counts.left = counts.left.saturating_add(port.sent).saturating_add(port.held);
        }
        let [created, dropped, held] = state.report.as_ref().map(supervisor::totals).unwrap_or_default();
        counts.created = state.created.saturating_add(created);
        counts.dropped = state.dropped.saturating_add(dropped);
        counts.held = held;
        counts
    }

    /// Returns the statistics of both sides, so far or at the end.
    pub(crate) fn merge(&self, mut done: Summary, ended: bool) -> Summary {
        for (n, (sandbox, process)) in self.sandboxes.iter().zip(&self.processes).enumerate() {
            let state = process.state();
            let mut summary = SandboxSummary {
                name: sandbox.name.clone(),
                isolation: sandbox.isolation.name().into(),
                runtime: self.runtimes[n].clone().into(),
                transport: sandbox.transport.name().into(),
                cpus: self.cpus[n].clone(),
                sleeps: self.sleep_when_idle[n],
                starts: state.starts,
                startup_ms: state.startup_time.as_secs_f64() * 1e3,
                up: state.ready && !ended,
                suppressed_lines: state.line_limit.suppressed(),
                ..Default::default()
            };
            let now = state.report.iter();
            // statistics of ended processes are added to those of their successors
            let mut nfs = state.nf_totals.clone();
            supervisor::add_nfs(&mut nfs, now.clone().flat_map(|now| now.nfs.iter().cloned()));
            let counts = self.counts(sandbox, &state, &done);
            let run = Run {
                seconds: done.seconds,
                cpus: summary.cpus.len(),
                starts: state.starts,
                hops: self.file.hop_count(),
                ended,
                complete: state.finished && state.failures == 0,
            };
            let problem = counts.problem(nfs.values(), run);
            summary.implausible = problem.is_some();
            if let Some(problem) = &problem {
                done.errors.push(format!(
                    "sandbox {:?}: the counts that it reported cannot be true and are not part of the totals: {problem}",
                    sandbox.name
                ));
                nfs.values_mut().for_each(|nf| nf.implausible = true);
            }
            let in_flight = if summary.implausible { crossed(sandbox, &done).in_flight() } else { counts.in_flight() };
            if ended && in_flight < 0 {
                summary.created = in_flight.unsigned_abs();
            }
            if ended && in_flight > 0 {
                summary.add_drops("sandbox_lost", in_flight as u64);
                if state.failures == 0 && !summary.implausible {
                    done.errors.push(format!(
                        "sandbox {:?}: {in_flight} packets entered it and were not returned",
                        sandbox.name
                    ));
                }
            }
            let is_crossing = |name: &str| sandbox.ports().any(|own| own == name);
            for port in done.ports.extract_if(.., |port| is_crossing(&port.name)) {
                summary.sent += port.sent;
                summary.received += port.received;
                // packets left in the queue of the host side
                summary.add_drops("sandbox_lost", port.held);
                summary.send.merge(port.send);
                summary.receive.merge(port.receive);
                port.drops.iter().for_each(|(reason, n)| {
                    summary.add_drops(if reason == "tx_full" { "sandbox_full" } else { reason }, *n)
                });
            }
            let passthrough = state.passthrough_ports().into_values();
            done.ports.extend(passthrough.map(|port| match summary.implausible {
                true => PortSummary { name: port.name, device: port.device, ..Default::default() },
                false => port,
            }));
            let crossing = || now.clone().flat_map(|now| &now.ports).filter(|port| is_crossing(&port.name));
            if !summary.implausible {
                supervisor::add_drops(&mut summary.drops, &state.drops);
                supervisor::add_crossing_drops(&mut summary.drops, crossing());
            }
            for port in crossing() {
                summary.inner_receive.merge(port.receive);
                summary.inner_send.merge(port.send);
            }
            done.nfs.extend(nfs.into_values());
            done.errors.extend(state.errors.iter().chain(now.flat_map(|now| &now.errors)).cloned());
            for &cpu in &summary.cpus {
                let worker = done.workers.entry(cpu).or_default();
                worker.chains.push(format!("sandbox {}", sandbox.name));
                let inner = state.report.as_ref().and_then(|report| report.workers.get(&cpu)?.busy_cycles);
                inner.iter().for_each(|cycles| *worker.busy_cycles.get_or_insert(0) += cycles);
            }
            done.sandboxes.push(summary);
        }
        done.ports.sort_by_key(|port| self.file.ports.iter().position(|own| own.name == port.name));
        done.nfs.sort_by_key(|nf| self.file.nfs.iter().position(|own| own.name == nf.name));
        let this_side = done.balanced;
        done.compute_totals();
        done.balanced &= !ended || this_side;
        done
    }

    /// Ends the processes and returns the statistics of both sides.
    pub(crate) fn stop(mut self, mut done: Summary) -> Summary {
        drop(self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take());
        // removing a virtual function blocks while a hung worker uses it
        let of_functions = if done.abandoned { self.functions.release_at_exit() } else { self.functions.release() };
        done.errors.extend(of_functions);
        self.merge(done, true)
    }
}

/// Returns the packets that entered and left a sandbox through the host side.
fn crossed(sandbox: &Sandbox, done: &Summary) -> Counts {
    let crossing = done.ports.iter().filter(|port| sandbox.ports().any(|own| own == port.name));
    crossing.fold(Counts::default(), |sum, port| Counts {
        entered: sum.entered + port.sent,
        left: sum.left + port.received,
        ..sum
    })
}
