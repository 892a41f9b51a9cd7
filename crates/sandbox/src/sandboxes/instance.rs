//! A sandbox with its process.

use super::tools::{PassthroughDevice, Tools, passthrough_devices, unique_name};
use crate::cleanup::start_cleanup;
use crate::confinement::cgroup::{ControlGroups, Limits};
use crate::error::{environment_error, not_writable};
use crate::launch::LaunchSpec;
use crate::supervisor::{self, ProcessState, SupervisedProcess, Supervisor};
use crate::vm;
use config::{ChainFile, Isolation, Sandbox};
use diagnostics::Diagnostics;
use graph::FileVersion;
use runtime::{CleanupProcess, Error, VirtualFunctions};
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// First user ID of sandboxed processes; no other processes use these IDs.
const FIRST_USER: u32 = 1_900_000_000;
/// User IDs for each process that has sandboxes.
const USERS_PER_RUN: u32 = 64;

/// A sandbox with its process, and what it is started with.
pub(super) struct Instance {
    pub(super) sandbox: Sandbox,
    /// Name and version of the runtime.
    pub(super) runtime: String,
    pub(super) place: Place,
    /// Hops of the chain file, each of which a packet visits at most once.
    pub(super) hops: usize,
    /// Files that it reads, in the versions at its start.
    files: Vec<(PathBuf, FileVersion)>,
    // dropped in this order: the process ends before its files are removed
    supervisor: Mutex<Option<Supervisor>>,
    pub(super) process: Arc<SupervisedProcess>,
    /// Removes the files of a process that a reload has started.
    cleanup: Option<CleanupProcess>,
}

/// The CPUs of a sandbox.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) cpus: Vec<usize>,
    /// True if it sleeps while no packets arrive.
    pub(super) sleeps: bool,
    /// Number of its user ID among those of the run.
    pub(super) user: u32,
}

/// The file, folder and tools of the instances of a chain file.
pub(super) struct Common<'a> {
    pub(super) file: &'a ChainFile,
    /// Folder of the run.
    pub(super) folder: &'a Path,
    pub(super) functions: &'a VirtualFunctions,
    pub(super) tools: &'a Tools,
}

/// Returns the control groups of a sandbox, which are not created.
pub(super) fn control_groups(sandbox: &Sandbox) -> ControlGroups {
    ControlGroups::plan(&unique_name(sandbox), sandbox.isolation == Isolation::Container)
}

impl Common<'_> {
    /// Creates the files and control groups of a sandbox.
    ///
    /// # Errors
    /// An error in the file, or something that this machine or user lacks.
    pub(super) fn prepare(&self, sandbox: &Sandbox, place: Place, notes: &mut Vec<String>) -> Result<Instance, Error> {
        let Common { file, functions, tools, .. } = self;
        let devices: Vec<PassthroughDevice> = passthrough_devices(file, sandbox, functions.addresses())?;
        let folder = sandbox.folder(self.folder);
        let failed = |e: std::io::Error| not_writable(&folder, &e);
        let mut groups = control_groups(sandbox);
        let mut directories = DirBuilder::new();
        directories.mode(0o711);
        let mut cleanup = None;
        if sandbox.generation != 0 {
            directories.create(&folder).map_err(failed)?;
            cleanup = Some(start_cleanup(&folder, &groups.all_paths()).map_err(failed)?);
        }
        directories.create(folder.join(&sandbox.name)).map_err(failed)?;
        let list = place.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut limits = Limits { memory_mib: sandbox.memory_mib, cpus: list };
        if sandbox.isolation == Isolation::Vm {
            limits.memory_mib += vm::QEMU_MEMORY_MIB;
        }
        let within = groups.relative_path();
        if let Err(e) = groups.create(&limits) {
            notes.push(format!("sandbox {:?}: memory is not limited: no control group: {e}", sandbox.name));
            groups = ControlGroups::none();
        }
        let root = rustix::process::geteuid().is_root();
        let user = root.then(|| FIRST_USER + std::process::id() * USERS_PER_RUN + place.user % USERS_PER_RUN);
        let files = file.setting_files(|name| sandbox.nfs.iter().any(|nf| nf == name));
        let versions = files.iter().filter_map(|path| Some((path.clone(), FileVersion::of(path)?))).collect();
        let files = files.iter().map(std::path::absolute).collect::<Result<_, _>>();
        let sockets = file.sandbox_sockets(sandbox, self.folder);
        let spec = LaunchSpec {
            sandbox: sandbox.name.clone(),
            isolation: sandbox.isolation,
            file: std::path::absolute(&file.file).map_err(failed)?,
            partition: file
                .sandbox_side(sandbox, self.folder, functions.addresses())
                .map_err(|d| Error::Input(Diagnostics(vec![d])))?,
            files: files.map_err(failed)?,
            folder: folder.clone(),
            sockets: if sandbox.transport.is_memif() { sockets.clone() } else { vec![] },
            devices: devices.iter().map(|device| device.address.clone()).collect(),
            program: vec![],
            program_files: vec![],
            cpus: place.cpus.clone(),
            sleep_when_idle: place.sleeps,
            user: user.unwrap_or_default(),
            group: tools.group(sandbox.isolation),
            // the other half is for the guest's kernel
            heap_mib: if sandbox.isolation == Isolation::Vm { sandbox.memory_mib / 2 } else { sandbox.memory_mib },
        };
        let command = tools.prepare(spec, file, (sandbox, sockets), within.as_deref(), limits).map_err(failed)?;
        let process = Arc::new(SupervisedProcess {
            sandbox: sandbox.name.clone(),
            nfs: sandbox.nfs.clone(),
            crossing_ports: sandbox.ports().map(str::to_owned).collect(),
            passthrough: sandbox.passthrough.clone(),
            command,
            groups,
            user,
            state: Mutex::new(ProcessState::new(devices.iter().map(|device| (&*device.port, &*device.written)))),
        });
        Ok(Instance {
            sandbox: sandbox.clone(),
            runtime: tools.runtime(sandbox.isolation),
            place,
            hops: file.hop_count(),
            files: versions,
            supervisor: Mutex::default(),
            process,
            cleanup,
        })
    }
}

impl Instance {
    /// Returns the files that it reads, in the versions at its start.
    pub(super) fn files(&self) -> impl Iterator<Item = (PathBuf, FileVersion)> {
        self.files.iter().cloned()
    }

    /// Returns true if a file that it reads has another version than at its start.
    pub(super) fn files_have_changed(&self) -> bool {
        self.files.iter().any(|(path, version)| FileVersion::of(path).as_ref() != Some(version))
    }

    /// Returns a description for the user, once it is ready.
    pub(super) fn description(&self) -> String {
        let Sandbox { name, isolation, transport, .. } = &self.sandbox;
        let (ms, idle) = (
            self.process.state().startup_time.as_secs_f64() * 1e3,
            if self.place.sleeps { ", sleeps when idle" } else { "" },
        );
        format!(
            "sandbox {name}: {} ({}), transport {}, ready after {ms:.0} ms{idle}",
            isolation.name(),
            self.runtime,
            transport.name()
        )
    }

    /// Removes the files of a process that has ended.
    pub(super) fn remove_files(&mut self) {
        self.cleanup = None;
    }

    fn supervisor(&self) -> std::sync::MutexGuard<'_, Option<Supervisor>> {
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the processes of instances, whose sockets must exist, and waits until all are ready; `run` is the folder of
/// the run.
///
/// # Errors
/// The reason why a process cannot start.
pub(super) fn start(instances: &[Instance], host_side: &ChainFile, run: &Path) -> Result<(), Error> {
    for Instance { sandbox, process, .. } in instances {
        let Some(user) = process.user else { continue };
        for socket in host_side.sandbox_sockets(sandbox, run) {
            let owned = chown(&socket, Some(user), Some(user));
            owned.map_err(|e| {
                environment_error(format!("{}: {e}", socket.display()), "run as root, or as a user without rights")
            })?;
        }
    }
    for instance in instances {
        let supervisor = Supervisor::start(instance.process.clone());
        let supervisor = supervisor.map_err(|e| {
            environment_error(format!("cannot start a thread: {e}"), "raise the limit of processes: ulimit -u")
        })?;
        *instance.supervisor() = Some(supervisor);
    }
    for Instance { process, .. } in instances {
        while !process.state().ready {
            if let Some(problem) = supervisor::startup_failure(process) {
                return Err(environment_error(problem, "check its output, or set isolation = \"inproc\""));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Ends the processes of instances.
pub(super) fn end(instances: &[Instance]) {
    let supervisors: Vec<Supervisor> = instances.iter().filter_map(|instance| instance.supervisor().take()).collect();
    instances.iter().for_each(|instance| instance.process.state().stopping = true);
    supervisors.iter().for_each(Supervisor::request_end);
    drop(supervisors);
}
