//! Virtual functions of NICs (SR-IOV): made for a run, handed to DPDK by `vfio-pci`, and given back at the end of the
//! run or of the process, however that comes.
//!
//! The kernel changes the number of a NIC's virtual functions only from 0 and to 0. So all that a run needs of one are
//! made at once, a NIC that has some already is refused, and giving back means all of them. Whoever has a NIC holds a
//! lock on its folder in `/sys` until its virtual functions are gone.

use crate::pci::{self, HANDING as DRIVER, driver};
use crate::{Error, Guard};
use config::{ChainFile, Device, Function};
use std::collections::BTreeMap;
use std::fs::{File, read_dir, read_to_string};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Gives back what there is of the NIC whose folder is `$1`; `$2` is what its `sriov_drivers_autoprobe` was.
const UNDO: &str = r#"
for function in "$1"/virtfn*; do
    [ -e "$function" ] || continue
    [ -e "$function/driver" ] && put "$(basename "$(readlink -f "$function")")" "$function/driver/unbind"
    put "" "$function/driver_override"
done
put 0 "$1/sriov_numvfs"
put "$2" "$1/sriov_drivers_autoprobe""#;

/// What devices are looked at and changed by.
pub(crate) trait Kernel {
    /// Where its devices are.
    fn sys(&self) -> &Path;
    /// Writes a line into one of its files.
    ///
    /// # Errors
    /// The kernel's.
    fn put(&self, line: &str, file: &Path) -> io::Result<()>;
    /// The same for a shell: a function `put LINE FILE`.
    fn put_of_a_shell(&self) -> String;
    /// Runs `ip`.
    ///
    /// # Errors
    /// What it says.
    fn ip(&self, words: &[&str]) -> Result<(), String>;
}

/// The kernel of this machine.
pub(crate) struct Linux;

impl Kernel for Linux {
    fn sys(&self) -> &Path {
        Path::new("/sys")
    }

    fn put(&self, line: &str, file: &Path) -> io::Result<()> {
        File::options().write(true).open(file)?.write_all(format!("{line}\n").as_bytes())
    }

    fn put_of_a_shell(&self) -> String {
        r#"put() { printf '%s\n' "$1" >"$2"; }"#.to_owned()
    }

    fn ip(&self, words: &[&str]) -> Result<(), String> {
        let done = Command::new("ip").args(words).output().map_err(|e| format!("{e}; apt-get install iproute2"))?;
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
    }
}

/// Virtual functions that are there until this is dropped, or the process has ended. Ports on them have to be closed
/// before.
#[derive(Default)]
pub struct Functions {
    addresses: BTreeMap<String, String>,
    notes: Vec<String>,
    /// Of each NIC, by its name.
    made: Vec<(String, Guard)>,
}

impl Functions {
    /// Makes all that a file asks for, by the kernel of this machine.
    ///
    /// # Errors
    /// What the NIC, the machine or the user lacks.
    pub fn of(file: &ChainFile) -> Result<Functions, Error> {
        Functions::make(&Linux, file.ports.iter().map(|port| (port.name.as_str(), &port.device)))
    }

    /// Makes one for each of these ports, given by name and device, that asks for one.
    ///
    /// # Errors
    /// What the NIC, the machine or the user lacks.
    pub(crate) fn make<'a>(
        kernel: &dyn Kernel,
        ports: impl IntoIterator<Item = (&'a str, &'a Device)>,
    ) -> Result<Functions, Error> {
        let mut nics: Vec<Nic> = vec![];
        for (port, device) in ports {
            let Some(function) = device.virtual_function() else { continue };
            let nic = Nic::find(kernel, port, &function.of)?;
            match nics.iter_mut().find(|known| known.folder == nic.folder) {
                Some(known) => known.wanted.push((port, function)),
                None => nics.push(Nic { wanted: vec![(port, function)], ..nic }),
            }
        }
        let mut functions = Functions::default();
        nics.iter().try_for_each(|nic| nic.make(&mut functions))?;
        Ok(functions)
    }

    /// The PCI address of each, by its port.
    #[must_use]
    pub fn addresses(&self) -> &BTreeMap<String, String> {
        &self.addresses
    }

    /// What the user may want to know.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Gives them back; what went wrong.
    pub fn end(&mut self) -> Vec<String> {
        let end = |(of, guard): (String, Guard)| {
            let said = guard.end().err()?;
            Some(format!("the virtual functions of {of} could not be given back as they were: {said}"))
        };
        self.made.drain(..).filter_map(end).collect()
    }

    /// Leaves them to the end of the process, as the kernel waits for whoever uses one; what the user has to know.
    pub fn leave(&mut self) -> Vec<String> {
        let leave = |(of, guard): (String, Guard)| {
            std::mem::forget(guard);
            format!("the virtual functions of {of} are given back when the process has ended")
        };
        self.made.drain(..).map(leave).collect()
    }
}

/// The PCI address of a NIC by that, or by the name of its interface.
pub(crate) fn address(sys: &Path, nic: &str) -> Option<String> {
    Some(folder(sys, nic).ok()?.file_name()?.to_string_lossy().into_owned())
}

fn folder(sys: &Path, nic: &str) -> io::Result<PathBuf> {
    // no interface has a colon
    let is_address = nic.contains(':');
    let device =
        if is_address { sys.join("bus/pci/devices").join(nic) } else { sys.join("class/net").join(nic).join("device") };
    device.canonicalize()
}

/// A physical function.
struct Nic<'a> {
    kernel: &'a dyn Kernel,
    /// As the user calls it.
    name: &'a str,
    folder: PathBuf,
    /// Ports that get a virtual function, in order.
    wanted: Vec<(&'a str, &'a Function)>,
}

fn lacks(port: &str, problem: impl std::fmt::Display, remedy: impl Into<String>) -> Error {
    Error::Environment { problem: format!("port {port:?}: {problem}"), remedy: remedy.into() }
}

impl<'a> Nic<'a> {
    fn find(kernel: &'a dyn Kernel, port: &str, name: &'a str) -> Result<Nic<'a>, Error> {
        let sys = kernel.sys();
        let folder = folder(sys, name).map_err(|_| {
            let there =
                "name the interface of a NIC as ip link shows it, or the NIC's PCI address as lspci -D shows it";
            let is_there = sys.join("class/net").join(name).exists();
            let problem = if is_there { "is no PCI device's interface" } else { "is not there" };
            lacks(port, format!("{name} {problem}"), there)
        })?;
        Ok(Nic { kernel, name, folder, wanted: vec![] })
    }

    /// The interfaces that the kernel has of it.
    fn interfaces(&self) -> Vec<String> {
        let names = read_dir(self.folder.join("net")).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    fn read(&self, file: &str) -> Result<String, Error> {
        let path = self.folder.join(file);
        let text = read_to_string(&path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => self.lacks(
                format!("{} can have no virtual functions: it, or its driver, has no SR-IOV", self.name),
                "name a NIC of which bondstone doctor tells how many VFs it can have; some have SR-IOV switched off in the firmware",
            ),
            _ => self.lacks(format!("{}: {e}", path.display()), "run as root"),
        })?;
        Ok(text.trim().to_owned())
    }

    /// A fault of the NIC as a whole.
    fn lacks(&self, problem: impl std::fmt::Display, remedy: impl Into<String>) -> Error {
        lacks(self.wanted[0].0, problem, remedy)
    }

    fn put(&self, line: impl std::fmt::Display, file: &Path) -> Result<(), Error> {
        let line = line.to_string();
        let told = |e: io::Error| self.lacks(format!("writing {line:?} to {}: {e}", file.display()), remedy(e.kind()));
        self.kernel.put(&line, file).map_err(told)
    }

    fn make(&self, all: &mut Functions) -> Result<(), Error> {
        let (name, wanted) = (self.name, self.wanted.len());
        let numvfs = self.folder.join("sriov_numvfs");
        let most = self.read("sriov_totalvfs")?;
        if most.parse().is_ok_and(|most: usize| most < wanted) {
            let problem = format!("{wanted} ports ask for a virtual function of {name}, which can have {most}");
            return Err(self.lacks(problem, "take ports out, or name another NIC"));
        }
        if !self.kernel.sys().join("bus/pci/drivers").join(DRIVER).exists() {
            return Err(self.lacks(format!("the kernel has no driver {DRIVER}"), format!("sudo modprobe {DRIVER}")));
        }
        self.has_group(&self.folder)?;
        let lock = File::open(&self.folder).and_then(|lock| lock.try_lock().map(|()| lock).map_err(io::Error::from));
        let lock = lock.map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => self.lacks(
                format!("another Bondstone has the virtual functions of {name}"),
                format!(
                    "stop it, or put all ports on this NIC into one file; who it is: sudo fuser -v {}",
                    self.folder.display()
                ),
            ),
            kind => self.lacks(format!("{}: {e}", self.folder.display()), remedy(kind)),
        })?;
        let there = self.read("sriov_numvfs")?;
        if there != "0" {
            return Err(self.lacks(
                format!("{name} has {there} virtual functions already, and more cannot be added to them"),
                format!(
                    "if nobody uses them: echo 0 | sudo tee {}; or bind one of them to {DRIVER} and name its PCI address",
                    numvfs.display()
                ),
            ));
        }
        let autoprobe = self.folder.join("sriov_drivers_autoprobe");
        let before = self.read("sriov_drivers_autoprobe")?;
        // before there is anything to be given back
        let script = format!("{}{UNDO}", self.kernel.put_of_a_shell());
        let guard = Guard::start(&script, [self.folder.as_os_str(), before.as_ref()], Some(lock));
        let guard = guard.map_err(|e| self.lacks(format!("no shell can be run: {e}"), "install one"))?;
        all.made.push((name.to_owned(), guard));
        self.put(0, &autoprobe)?;
        self.put(wanted, &numvfs)?;
        for (n, (port, function)) in self.wanted.iter().enumerate() {
            let address = self.bind(n, port, function)?;
            all.notes.push(format!("port {port:?}: virtual function {n} of {name}, {address}"));
            all.addresses.insert((*port).to_owned(), address);
        }
        for interface in self.interfaces() {
            /// The flag of an interface that is up.
            const UP: u32 = 1;
            let flags = read_to_string(self.folder.join("net").join(&interface).join("flags")).unwrap_or_default();
            if u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).is_ok_and(|flags| flags & UP == 0) {
                all.notes.push(format!(
                    "{interface} is down, and most NICs give their virtual functions no link then: \
                     sudo ip link set {interface} up"
                ));
            }
        }
        Ok(())
    }

    /// Hands a virtual function to `vfio-pci`; its address.
    fn bind(&self, number: usize, port: &str, function: &Function) -> Result<String, Error> {
        const DMESG: &str = "look at what dmesg says of it";
        let sys = self.kernel.sys();
        let link = self.folder.join(format!("virtfn{number}"));
        let device = link.canonicalize().map_err(|e| lacks(port, format!("{}: {e}", link.display()), DMESG))?;
        let address = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.has_group(&device)?;
        // those of this NIC are bound in turn, and what other programs have is none of the kernel's
        let ours = |other: &Path| self.has(other) || driver(other).as_deref() == Some(DRIVER);
        if let Some((other, driver)) = pci::in_the_way(&device, ours) {
            let problem = format!("virtual function {address} is in one IOMMU group with {other}, which {driver} has");
            return Err(lacks(port, problem, "switch ACS on in the firmware, or put the NIC into another slot"));
        }
        if !function.settings.is_empty() {
            let interfaces = self.interfaces();
            let interface = interfaces.iter().find(|name| *name == self.name).or(interfaces.first());
            let interface = interface.ok_or_else(|| {
                let problem = format!("{} has no interface, by which its virtual functions are set", self.name);
                lacks(
                    port,
                    problem,
                    "give it back to its driver in the kernel, or leave out mac, vlan, trust and spoofchk",
                )
            })?;
            let number = number.to_string();
            let mut words = vec!["link", "set", "dev", interface, "vf", &number];
            words.extend(function.settings.iter().flat_map(|(key, value)| [*key, value]));
            self.kernel.ip(&words).map_err(|said| {
                let remedy = "leave out what this NIC does not know";
                lacks(port, format!("ip {}: {said}", words.join(" ")), remedy)
            })?;
        }
        self.put(DRIVER, &device.join("driver_override"))?;
        if driver(&device).is_some_and(|driver| driver != DRIVER) {
            self.put(&address, &device.join("driver/unbind"))?;
        }
        self.put(&address, &sys.join("bus/pci/drivers_probe"))?;
        match driver(&device) {
            Some(driver) if driver == DRIVER => Ok(address),
            _ => Err(lacks(port, format!("{DRIVER} did not take the virtual function {address}"), DMESG)),
        }
    }

    /// Whether a device is one of its virtual functions.
    fn has(&self, device: &Path) -> bool {
        device.join("physfn").canonicalize().is_ok_and(|of| of == self.folder)
    }

    /// Whether a device is in an IOMMU group.
    fn has_group(&self, device: &Path) -> Result<(), Error> {
        pci::group(device).map(drop).ok_or_else(|| {
            let address = device.file_name().unwrap_or_default().to_string_lossy();
            self.lacks(
                format!("{address} is in no IOMMU group: there is no IOMMU, or it is switched off"),
                "switch it on in the firmware (VT-d, AMD-Vi), and boot with intel_iommu=on or amd_iommu=on on the kernel's command line",
            )
        })
    }
}

/// What mostly mends a refusal of the kernel's.
fn remedy(of: ErrorKind) -> &'static str {
    match of {
        ErrorKind::PermissionDenied => "run as root: only root makes virtual functions",
        ErrorKind::NotFound => "give the NIC a driver of the kernel's that makes virtual functions",
        ErrorKind::ReadOnlyFilesystem => "run where /sys can be written, not in a container",
        _ => {
            "look at what dmesg says; where it lacks room for them: SR-IOV in the firmware, or pci=realloc on the kernel's command line"
        }
    }
}

#[cfg(test)]
mod tests;
