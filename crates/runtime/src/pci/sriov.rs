//! SR-IOV: virtual functions of NICs, created for a run, bound to `vfio-pci` for DPDK, and released at the end of the
//! run or of the process, also if it is killed.
//!
//! The kernel changes the number of virtual functions of a NIC only from 0 and to 0. Therefore all functions of a NIC
//! are created at once, a NIC that already has functions is rejected, and releasing removes all of them. A process
//! holds a lock on the sysfs directory of the NIC until its functions are removed.

use super::{VFIO_DRIVER as DRIVER, driver, group_conflict, iommu_group, sysfs_dir};
use crate::cleanup::CleanupProcess;
use crate::error::Error;
use config::{ChainFile, Device, VirtualFunction};
use std::collections::BTreeMap;
use std::fs::{File, read_dir, read_to_string};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Releases the functions of the NIC with sysfs directory `$1`; `$2` is the previous `sriov_drivers_autoprobe`.
const RELEASE_SCRIPT: &str = r#"
for function in "$1"/virtfn*; do
    [ -e "$function" ] || continue
    [ -e "$function/driver" ] && put "$(basename "$(readlink -f "$function")")" "$function/driver/unbind"
    put "" "$function/driver_override"
done
put 0 "$1/sriov_numvfs"
put "$2" "$1/sriov_drivers_autoprobe""#;

/// The kernel interfaces by which devices are configured.
pub(crate) trait Kernel {
    /// Returns the path of sysfs.
    fn sys(&self) -> &Path;
    /// Writes a line into a file of sysfs.
    ///
    /// # Errors
    /// The kernel's error.
    fn write_line(&self, line: &str, file: &Path) -> io::Result<()>;
    /// Returns a shell function `put LINE FILE` that does the same.
    fn shell_put(&self) -> String;
    /// Runs `ip`.
    ///
    /// # Errors
    /// The error message of `ip`.
    fn ip(&self, arguments: &[&str]) -> Result<(), String>;
}

/// The kernel of this machine.
pub(crate) struct Linux;

impl Kernel for Linux {
    fn sys(&self) -> &Path {
        Path::new("/sys")
    }

    fn write_line(&self, line: &str, file: &Path) -> io::Result<()> {
        File::options().write(true).open(file)?.write_all(format!("{line}\n").as_bytes())
    }

    fn shell_put(&self) -> String {
        r#"put() { printf '%s\n' "$1" >"$2"; }"#.to_owned()
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), String> {
        let output = Command::new("ip").args(arguments).output();
        let output = output.map_err(|e| format!("{e}; apt-get install iproute2"))?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
    }
}

/// Virtual functions that exist until this is dropped or the process ends. Ports that use them must be closed before.
#[derive(Default)]
pub struct VirtualFunctions {
    addresses: BTreeMap<String, String>,
    notes: Vec<String>,
    /// The cleanup process of each NIC, by the name of the NIC.
    nics: Vec<(String, CleanupProcess)>,
}

impl VirtualFunctions {
    /// Creates all virtual functions that a file needs.
    ///
    /// # Errors
    /// The NIC, the machine or the user lacks a capability.
    pub fn for_chain_file(file: &ChainFile) -> Result<VirtualFunctions, Error> {
        VirtualFunctions::create(&Linux, file.ports.iter().map(|port| (port.name.as_str(), &port.device)))
    }

    /// Creates the virtual functions for these ports, given by name and device; other devices are ignored.
    ///
    /// # Errors
    /// The NIC, the machine or the user lacks a capability.
    pub(crate) fn create<'a>(
        kernel: &dyn Kernel,
        ports: impl IntoIterator<Item = (&'a str, &'a Device)>,
    ) -> Result<VirtualFunctions, Error> {
        let mut nics: Vec<Nic> = vec![];
        for (port, device) in ports {
            let Some(function) = device.virtual_function() else { continue };
            let nic = Nic::find(kernel, port, &function.physical)?;
            match nics.iter_mut().find(|known| known.dir == nic.dir) {
                Some(known) => known.ports.push((port, function)),
                None => nics.push(Nic { ports: vec![(port, function)], ..nic }),
            }
        }
        let mut functions = VirtualFunctions::default();
        nics.iter().try_for_each(|nic| nic.create(&mut functions))?;
        Ok(functions)
    }

    /// Returns the PCI addresses by name of the port.
    #[must_use]
    pub fn addresses(&self) -> &BTreeMap<String, String> {
        &self.addresses
    }

    /// Returns notes for the user.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Releases the functions; returns the errors.
    pub fn release(&mut self) -> Vec<String> {
        let release = |(nic, cleanup): (String, CleanupProcess)| {
            let error = cleanup.run().err()?;
            Some(format!("the virtual functions of {nic} could not be released: {error}"))
        };
        self.nics.drain(..).filter_map(release).collect()
    }

    /// Leaves the release to the end of the process, as the kernel waits for users of a function; returns notes.
    pub fn release_at_exit(&mut self) -> Vec<String> {
        let leave = |(nic, cleanup): (String, CleanupProcess)| {
            std::mem::forget(cleanup);
            format!("the virtual functions of {nic} are released when the process ends")
        };
        self.nics.drain(..).map(leave).collect()
    }
}

/// A physical function.
struct Nic<'a> {
    kernel: &'a dyn Kernel,
    /// The name in the chain file.
    name: &'a str,
    dir: PathBuf,
    /// The ports for which functions are created, in order.
    ports: Vec<(&'a str, &'a VirtualFunction)>,
}

fn environment_error(port: &str, problem: impl std::fmt::Display, remedy: impl Into<String>) -> Error {
    Error::Environment { problem: format!("port {port:?}: {problem}"), remedy: remedy.into() }
}

/// Returns the problem and the remedy if there is no NIC of this name or PCI address.
pub(crate) fn missing_nic(sys: &Path, name: &str) -> Option<(String, String)> {
    sysfs_dir(sys, name).err()?;
    let remedy = "name the interface of a NIC as ip link shows it, or the NIC's PCI address as lspci -D shows it";
    let exists = sys.join("class/net").join(name).exists();
    let problem = if exists { "is not the interface of a PCI device" } else { "does not exist" };
    Some((format!("{name} {problem}"), remedy.to_owned()))
}

impl<'a> Nic<'a> {
    fn find(kernel: &'a dyn Kernel, port: &str, name: &'a str) -> Result<Nic<'a>, Error> {
        let sys = kernel.sys();
        if let Some((problem, remedy)) = missing_nic(sys, name) {
            return Err(environment_error(port, problem, remedy));
        }
        let dir = sysfs_dir(sys, name).map_err(|e| environment_error(port, format!("{name}: {e}"), "check dmesg"))?;
        Ok(Nic { kernel, name, dir, ports: vec![] })
    }

    /// Returns the names of the NIC's kernel interfaces.
    fn interfaces(&self) -> Vec<String> {
        let names = read_dir(self.dir.join("net")).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn read(&self, file: &str) -> Result<String, Error> {
        let path = self.dir.join(file);
        let text = read_to_string(&path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => self.error(
                format!("{} does not support virtual functions: the NIC or its driver has no SR-IOV", self.name),
                "name a NIC for which bondstone doctor reports VFs; some have SR-IOV disabled in the firmware",
            ),
            _ => self.error(format!("{}: {e}", path.display()), "run as root"),
        })?;
        Ok(text.trim().to_owned())
    }

    /// Returns an error that concerns the whole NIC.
    fn error(&self, problem: impl std::fmt::Display, remedy: impl Into<String>) -> Error {
        environment_error(self.ports[0].0, problem, remedy)
    }

    fn write(&self, line: impl std::fmt::Display, file: &Path) -> Result<(), Error> {
        let line = line.to_string();
        let error = |e: io::Error| self.error(format!("writing {line:?} to {}: {e}", file.display()), remedy(e.kind()));
        self.kernel.write_line(&line, file).map_err(error)
    }

    fn create(&self, all: &mut VirtualFunctions) -> Result<(), Error> {
        let (name, needed) = (self.name, self.ports.len());
        let numvfs = self.dir.join("sriov_numvfs");
        let max = self.read("sriov_totalvfs")?;
        if max.parse().is_ok_and(|max: usize| max < needed) {
            let problem = format!("{needed} ports need a virtual function of {name}, which supports {max}");
            return Err(self.error(problem, "remove ports, or name another NIC"));
        }
        if !self.kernel.sys().join("bus/pci/drivers").join(DRIVER).exists() {
            return Err(self.error(format!("the kernel has no driver {DRIVER}"), format!("sudo modprobe {DRIVER}")));
        }
        self.check_iommu_group(&self.dir)?;
        let lock = File::open(&self.dir).and_then(|lock| lock.try_lock().map(|()| lock).map_err(io::Error::from));
        let lock = lock.map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => self.error(
                format!("another Bondstone process uses the virtual functions of {name}"),
                format!(
                    "stop it (sudo fuser -v {} names it), or put all ports on this NIC into one file",
                    self.dir.display()
                ),
            ),
            kind => self.error(format!("{}: {e}", self.dir.display()), remedy(kind)),
        })?;
        let existing = self.read("sriov_numvfs")?;
        if existing != "0" {
            return Err(self.error(
                format!("{name} already has {existing} virtual functions, and the kernel cannot add any"),
                format!(
                    "if they are unused: echo 0 | sudo tee {}; or bind one to {DRIVER} and name its PCI address",
                    numvfs.display()
                ),
            ));
        }
        let autoprobe = self.dir.join("sriov_drivers_autoprobe");
        let previous = self.read("sriov_drivers_autoprobe")?;
        // started before the first change, so that every change is undone
        let script = format!("{}{RELEASE_SCRIPT}", self.kernel.shell_put());
        let cleanup = CleanupProcess::start(&script, [self.dir.as_os_str(), previous.as_ref()], Some(lock));
        let cleanup = cleanup.map_err(|e| self.error(format!("starting a shell: {e}"), "install sh"))?;
        all.nics.push((name.to_owned(), cleanup));
        self.write(0, &autoprobe)?;
        self.write(needed, &numvfs)?;
        for (n, (port, function)) in self.ports.iter().enumerate() {
            let address = self.bind(n, port, function)?;
            all.notes.push(format!("port {port:?}: virtual function {n} of {name}, {address}"));
            all.addresses.insert((*port).to_owned(), address);
        }
        for interface in self.interfaces() {
            /// `IFF_UP` of linux/if.h.
            const UP: u32 = 1;
            let flags = read_to_string(self.dir.join("net").join(&interface).join("flags")).unwrap_or_default();
            if u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).is_ok_and(|flags| flags & UP == 0) {
                all.notes.push(format!(
                    "{interface} is down, and most NICs then give their virtual functions no link: \
                     sudo ip link set {interface} up"
                ));
            }
        }
        Ok(())
    }

    /// Binds a virtual function to `vfio-pci`; returns its address.
    fn bind(&self, number: usize, port: &str, function: &VirtualFunction) -> Result<String, Error> {
        const DMESG: &str = "check the output of dmesg";
        let sys = self.kernel.sys();
        let link = self.dir.join(format!("virtfn{number}"));
        let device =
            link.canonicalize().map_err(|e| environment_error(port, format!("{}: {e}", link.display()), DMESG))?;
        let address = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.check_iommu_group(&device)?;
        // functions of this NIC are bound later, and devices bound to vfio-pci are not used by the kernel
        let ours = |other: &Path| self.owns(other) || driver(other).as_deref() == Some(DRIVER);
        if let Some((other, driver)) = group_conflict(&device, ours) {
            let problem = format!("virtual function {address} shares an IOMMU group with {other}, which {driver} uses");
            return Err(environment_error(
                port,
                problem,
                "enable ACS in the firmware, or move the NIC to another slot",
            ));
        }
        if !function.settings.is_empty() {
            let interfaces = self.interfaces();
            let interface = interfaces.iter().find(|name| *name == self.name).or(interfaces.first());
            let interface = interface.ok_or_else(|| {
                let problem = format!("{} has no interface, which is needed to configure virtual functions", self.name);
                environment_error(
                    port,
                    problem,
                    "bind the NIC to its kernel driver, or remove mac, vlan, trust and spoofchk",
                )
            })?;
            let number = number.to_string();
            let mut arguments = vec!["link", "set", "dev", interface, "vf", &number];
            arguments.extend(function.settings.iter().flat_map(|(key, value)| [*key, value]));
            self.kernel.ip(&arguments).map_err(|error| {
                let remedy = "remove the settings that this NIC does not support";
                environment_error(port, format!("ip {}: {error}", arguments.join(" ")), remedy)
            })?;
        }
        self.write(DRIVER, &device.join("driver_override"))?;
        if driver(&device).is_some_and(|driver| driver != DRIVER) {
            self.write(&address, &device.join("driver/unbind"))?;
        }
        self.write(&address, &sys.join("bus/pci/drivers_probe"))?;
        match driver(&device) {
            Some(driver) if driver == DRIVER => Ok(address),
            _ => Err(environment_error(port, format!("{DRIVER} did not bind to virtual function {address}"), DMESG)),
        }
    }

    /// Returns true if a device is a virtual function of this NIC.
    fn owns(&self, device: &Path) -> bool {
        device.join("physfn").canonicalize().is_ok_and(|of| of == self.dir)
    }

    /// Checks that a device is in an IOMMU group.
    fn check_iommu_group(&self, device: &Path) -> Result<(), Error> {
        iommu_group(device).map(drop).ok_or_else(|| {
            let address = device.file_name().unwrap_or_default().to_string_lossy();
            self.error(
                format!("{address} is in no IOMMU group: the machine has no IOMMU, or it is disabled"),
                "enable it in the firmware (VT-d, AMD-Vi), and boot with intel_iommu=on or amd_iommu=on",
            )
        })
    }
}

/// Returns the likely remedy for a kernel error.
fn remedy(of: ErrorKind) -> &'static str {
    match of {
        ErrorKind::PermissionDenied => "run as root: only root can create virtual functions",
        ErrorKind::NotFound => "bind the NIC to a kernel driver that supports SR-IOV",
        ErrorKind::ReadOnlyFilesystem => "run where /sys is writable, not in a container",
        _ => "check the output of dmesg; for lack of resources, enable SR-IOV in the firmware or boot with pci=realloc",
    }
}

#[cfg(test)]
mod tests;
