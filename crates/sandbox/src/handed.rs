//! Devices that are handed to what is behind a wall, by the kernel's `vfio-pci`: the IOMMU lets each reach the memory of its owner
//! only.

use crate::cage::Of;
use crate::lacks;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, mknod};
use runtime::{Error, pci};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::collections::BTreeSet;
use std::fs::{create_dir_all, metadata};
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};

const NONE: Option<&str> = None;
/// Where the kernel has devices for programs.
const NODES: &str = "/dev/vfio";
/// Where DPDK looks for a device.
const BUS: &str = "/sys/bus/pci/devices";

/// Whether a device can be opened by a program by its IOMMU group.
///
/// # Errors
/// It is not there, not in a group, another driver has it, or its group holds what is not `with` it: who opens the group has all of it.
pub(crate) fn is_free(port: &str, address: &str, with: &[String]) -> Result<(), Error> {
    let at = Path::new(BUS).join(address);
    let fault = |problem: String, remedy: String| Err(lacks(format!("port {port:?}: {problem}"), remedy));
    if !at.exists() {
        return fault(format!("there is no device {address}"), "lspci -D shows all".to_owned());
    }
    match pci::driver(&at) {
        Some(driver) if driver == pci::HANDING => {}
        driver => {
            let has = driver.map_or("no driver has it".to_owned(), |driver| format!("the driver {driver} has it"));
            let remedy = format!("sudo modprobe vfio-pci && sudo dpdk-devbind.py -b vfio-pci {address}");
            return fault(format!("{address} cannot be handed on: {has}, and vfio-pci has to"), remedy);
        }
    }
    let Some(group) = pci::group(&at) else {
        let remedy = "switch the IOMMU on: in the firmware, and by intel_iommu=on on the kernel's command line";
        return fault(format!("{address} is in no IOMMU group"), remedy.to_owned());
    };
    let ours = |other: &Path| with.iter().any(|own| other.ends_with(own));
    if let Some((name, driver)) = pci::in_the_way(&at, ours) {
        let remedy = "hand both to one wall, switch ACS on in the firmware, or put the NIC into another slot";
        return fault(format!("{address} is in one IOMMU group with {name}, which {driver} has"), remedy.to_owned());
    }
    let node = Path::new(NODES).join(&group);
    if !node.exists() {
        let remedy = "load vfio-pci in this namespace of devices, and look at what dmesg says";
        return fault(format!("{} is not there", node.display()), remedy.to_owned());
    }
    Ok(())
}

/// The nodes of devices: the one for all, and one for each group.
fn nodes(devices: &[String]) -> Result<BTreeSet<PathBuf>, String> {
    let of = |address: &String| {
        let group = pci::group(&Path::new(BUS).join(address));
        Ok(Path::new(NODES).join(group.ok_or_else(|| format!("{address}: it is in no IOMMU group any more"))?))
    };
    let mut all: BTreeSet<PathBuf> = devices.iter().map(of).collect::<Result<_, String>>()?;
    all.insert(Path::new(NODES).join("vfio"));
    Ok(all)
}

/// Puts nodes at their place below a root, for a user; nobody else sees these.
fn put(devices: &[String], root: &Path, user: u32) -> Result<(), String> {
    // all memory that a device may reach stays where it is; how much that can be is limited elsewhere
    let most = Rlimit { current: None, maximum: None };
    setrlimit(Resource::Memlock, most).of("memory that may be kept in its place (ulimit -l)")?;
    let nodes = nodes(devices)?;
    let numbers: Vec<u64> = nodes
        .iter()
        .map(|node| Ok(metadata(node).of(node.display().to_string())?.rdev()))
        .collect::<Result<_, String>>()?;
    let at = root.join(NODES.trim_start_matches('/'));
    create_dir_all(&at).of(at.display().to_string())?;
    mount(Some("tmpfs"), &at, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, Some("mode=755,size=4k"))
        .of(NODES)?;
    for (node, number) in nodes.iter().zip(numbers) {
        let to = at.join(node.file_name().unwrap_or_default());
        mknod(&to, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, number).of(to.display().to_string())?;
        chown(&to, Some(user), Some(user)).of(to.display().to_string())?;
    }
    Ok(())
}

/// Shows devices to whom this process becomes, in its own namespace of mounts.
///
/// # Errors
/// What the kernel refuses.
pub(crate) fn show(devices: &[String], user: u32) -> Result<(), String> {
    if devices.is_empty() {
        return Ok(());
    }
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).of("mounts of its own")?;
    put(devices, Path::new("/"), user)
}

/// The folders of devices, in which the kernel shows what they are.
///
/// # Errors
/// One is not there any more.
pub(crate) fn folders(devices: &[String]) -> Result<Vec<PathBuf>, String> {
    devices.iter().map(|address| Path::new(BUS).join(address).canonicalize().of(address)).collect()
}

/// What DPDK needs below another root to find devices by whose [`folders`] are there.
///
/// # Errors
/// What the kernel refuses.
pub(crate) fn enter(devices: &[String], root: &Path, user: u32) -> Result<(), String> {
    if devices.is_empty() {
        return Ok(());
    }
    put(devices, root, user)?;
    let within = |path: &str| root.join(path.trim_start_matches('/'));
    // it looks whether these are loaded
    for module in ["vfio", "vfio_pci", "vfio_iommu_type1"] {
        create_dir_all(within("/sys/module").join(module)).of(module)?;
    }
    let bus = within(BUS);
    create_dir_all(&bus).of(BUS)?;
    for (address, folder) in devices.iter().zip(folders(devices)?) {
        symlink(folder, bus.join(address)).of(address)?;
    }
    Ok(())
}
