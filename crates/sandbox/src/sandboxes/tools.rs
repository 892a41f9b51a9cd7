//! The programs and devices that sandboxes need.

use crate::confinement::cgroup::Limits;
use crate::confinement::passthrough;
use crate::container;
use crate::error::environment_error;
use crate::image::initramfs;
use crate::image::program::{self, Program};
use crate::kernel::Kernel;
use crate::launch::{LaunchSpec, PROCESS_COMMAND};
use crate::supervisor::LaunchCommand;
use crate::vm::{self, Accelerator};
use config::{ChainFile, Isolation, Sandbox};
use runtime::Error;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

/// Returns the name of the container and control groups of a sandbox, which no other process on the machine has.
pub(super) fn unique_name(sandbox: &Sandbox) -> String {
    let name = format!("bondstone-{}-{}", std::process::id(), sandbox.name);
    if sandbox.generation == 0 { name } else { format!("{name}.{}", sandbox.generation) }
}

/// Returns true if sandboxes have passthrough ports.
pub(super) fn has_passthrough(sandboxes: &[Sandbox]) -> bool {
    sandboxes.iter().any(|sandbox| !sandbox.passthrough.is_empty())
}

/// A device that is passed through to a sandbox.
pub(super) struct PassthroughDevice {
    pub(super) port: String,
    /// Device as written in the chain file.
    pub(super) written: String,
    /// PCI address.
    pub(super) address: String,
}

/// Returns the passthrough ports of a sandbox.
fn passthrough_ports<'a>(file: &'a ChainFile, sandbox: &'a Sandbox) -> impl Iterator<Item = &'a config::Port> {
    sandbox.passthrough.iter().filter_map(|name| file.ports.iter().find(|port| port.name == *name))
}

/// Returns the passthrough devices of a sandbox, in the order of its ports.
pub(super) fn passthrough_devices(
    file: &ChainFile,
    sandbox: &Sandbox,
    functions: &BTreeMap<String, String>,
) -> Result<Vec<PassthroughDevice>, Error> {
    let ports: Vec<&config::Port> = passthrough_ports(file, sandbox).collect();
    let address = |port: &config::Port| {
        let address = functions.get(&port.name).map_or_else(|| port.device.pci_address(), |address| Some(address));
        config::full_pci_address(address.unwrap_or_default())
    };
    let addresses: Vec<String> = ports.iter().map(|port| address(port)).collect();
    let device = |port: &config::Port| {
        if !rustix::process::geteuid().is_root() {
            let remedy = format!("run as root, or remove sandbox from [port.{}]", port.name);
            return Err(environment_error(format!("port {:?}: passthrough requires root", port.name), remedy));
        }
        let address = address(port);
        passthrough::check_passthrough(&port.name, &address, &addresses)?;
        Ok(PassthroughDevice { port: port.name.clone(), written: port.device.to_string(), address })
    };
    ports.into_iter().map(device).collect()
}

/// Programs that sandboxes need.
pub(super) struct Tools {
    program: Option<Program>,
    /// Program with device drivers, for VMs with passthrough.
    with_drivers: Option<Program>,
    runc: Option<String>,
    vm: Option<Machine>,
    /// True if huge pages are available for the memory of all VMs.
    huge: bool,
}

/// Programs that VMs need.
struct Machine {
    kernel: Kernel,
    accel: Accelerator,
    /// Version of QEMU, its path, and the files and folders that it needs.
    version: String,
    qemu: PathBuf,
    qemu_files: Vec<PathBuf>,
}

impl Tools {
    pub(super) fn new(sandboxes: &[Sandbox]) -> Result<Tools, Error> {
        /// MiB of huge pages for the host side.
        const HOST_MIB: u64 = 512;
        let any = |isolation| sandboxes.iter().any(|sandbox| sandbox.isolation == isolation);
        let (containers, vms) = (any(Isolation::Container), any(Isolation::Vm));
        if containers && !rustix::process::geteuid().is_root() {
            return Err(environment_error("containers require root", "run as root, or set isolation = \"process\""));
        }
        let runc = containers.then(container::version).transpose()?;
        let machine = || -> Result<_, Error> {
            let (version, kernel) = (vm::version()?, Kernel::find()?);
            let accel = vm::detect_accelerator(&kernel);
            let (qemu, qemu_files) = vm::program_files()?;
            Ok(Machine { kernel, accel, version, qemu, qemu_files })
        };
        let of_vms = sandboxes.iter().filter(|sandbox| sandbox.isolation == Isolation::Vm);
        Ok(Tools {
            program: (containers || vms).then(Program::find).transpose()?,
            with_drivers: (vms && has_passthrough(sandboxes)).then(Program::with_drivers).transpose()?,
            runc,
            vm: vms.then(machine).transpose()?,
            huge: of_vms.map(|sandbox| sandbox.memory_mib).sum::<u64>() + HOST_MIB <= vm::free_huge_mib(),
        })
    }

    /// Returns name and version of the runtime of a sandbox.
    pub(super) fn runtime(&self, isolation: Isolation) -> String {
        match (isolation, &self.runc, &self.vm) {
            (Isolation::Container, Some(version), _) => format!("runc {version}"),
            (Isolation::Vm, _, Some(Machine { kernel, accel, version, .. })) => {
                format!("QEMU {version}, {accel}; Linux {}", kernel.version)
            }
            _ => "namespaces and seccomp".to_owned(),
        }
    }

    /// Returns the group that a sandboxed process needs.
    pub(super) fn group(&self, isolation: Isolation) -> Option<u32> {
        let kvm =
            isolation == Isolation::Vm && self.vm.as_ref().is_some_and(|machine| machine.accel == Accelerator::Kvm);
        let group = kvm.then(|| std::fs::metadata("/dev/kvm").ok()).flatten().map(|device| device.gid());
        group.filter(|group| *group != 0)
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let emulated = self.vm.as_ref().filter(|machine| machine.accel == Accelerator::Tcg);
        let note = "VMs are emulated because KVM does not work; their performance is not representative";
        emulated.map(|_| note.to_owned()).into_iter().collect()
    }

    /// Writes the files of a sandboxed process with these sockets; `groups` is the path of its control groups, even if they are not
    /// created.
    pub(super) fn prepare(
        &self,
        mut spec: LaunchSpec,
        file: &ChainFile,
        (sandbox, sockets): (&Sandbox, Vec<PathBuf>),
        groups: Option<&Path>,
        limits: Limits,
    ) -> std::io::Result<LaunchCommand> {
        let at = spec.folder.join(format!("{}.json", sandbox.name));
        let argv = vec!["/proc/self/exe".to_owned(), PROCESS_COMMAND.to_owned(), at.display().to_string()];
        let reports_on_stdout = sandbox.isolation != Isolation::Process;
        let mut command = LaunchCommand { argv, reports_on_stdout, limits: None, cleanup: vec![] };
        let image = spec.folder.join(format!("{}.image", sandbox.name));
        // names of sandboxes have no dots
        let [linux, runc] = [".linux", ".runc"].map(|name| spec.folder.join(name));
        let mut new = File::options();
        new.write(true).create_new(true).mode(0o600);
        let program = self.with_drivers.as_ref().filter(|_| !spec.devices.is_empty()).or(self.program.as_ref());
        match (sandbox.isolation, program, &self.vm) {
            (Isolation::Container, Some(program), _) => {
                let id = unique_name(sandbox);
                let alone = Path::new("/").join(&id);
                container::write_bundle(&image, &spec, &at, program, groups.unwrap_or(&alone))?;
                spec.program = container::runc_command(&runc, &["run", "--bundle", &image.display().to_string(), &id]);
                command.limits = Some(limits);
                command.cleanup = container::runc_command(&runc, &["delete", "--force", &id]);
            }
            (Isolation::Vm, Some(program), Some(Machine { kernel, accel, qemu, qemu_files, .. })) => {
                if !linux.exists() {
                    let mut file = File::options().write(true).create_new(true).mode(0o444).open(&linux)?;
                    file.write_all(&kernel.read(&kernel.image)?)?;
                }
                let mut files = initramfs::guest_files(program, kernel)?;
                files.push((initramfs::LAUNCH_SPEC.into(), 0o600, serde_json::to_vec(&spec)?));
                files.extend(program::read_files(&spec.files, 0o600)?);
                initramfs::write(new.open(&image)?, &files)?;
                let guest = vm::Guest {
                    accel: *accel,
                    kernel: &linux,
                    initrd: &image,
                    memory_mib: sandbox.memory_mib,
                    huge: self.huge,
                    cpus: spec.cpus.len(),
                    interfaces: sockets.into_iter().zip(sandbox.interfaces().map(<[_]>::len)).collect(),
                    devices: spec.devices.clone(),
                    descriptors: passthrough_ports(file, sandbox).map(|port| usize::from(port.descriptors)).sum(),
                    max_frame: file.max_frame,
                };
                spec.program = guest.command();
                spec.program[0] = qemu.display().to_string();
                spec.program_files = qemu_files.iter().chain([&linux, &image]).cloned().collect();
                if *accel == Accelerator::Kvm {
                    spec.program_files.push("/dev/kvm".into());
                }
            }
            _ => {}
        }
        new.open(&at)?.write_all(&serde_json::to_vec(&spec)?)?;
        for path in [&at, &image].into_iter().filter(|path| spec.user != 0 && path.is_file()) {
            chown(path, Some(spec.user), Some(spec.user))?;
        }
        Ok(command)
    }
}
