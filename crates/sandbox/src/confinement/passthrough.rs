//! Passthrough of PCI devices by the kernel driver `vfio-pci`; the IOMMU restricts each device to the memory of its
//! owner.

use crate::error::{Context, environment_error};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, SFlag, mknod};
use runtime::{Error, pci};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::collections::BTreeSet;
use std::fs::{create_dir_all, metadata};
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};

/// Folder of VFIO device nodes.
const VFIO_FOLDER: &str = "/dev/vfio";
/// Folder of PCI devices.
const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// Checks that a device can be passed through.
///
/// # Errors
/// The device does not exist, has another driver or no IOMMU group, or its group contains a device that is not one of
/// `with`.
pub(crate) fn check_passthrough(port: &str, address: &str, with: &[String]) -> Result<(), Error> {
    let at = Path::new(PCI_DEVICES).join(address);
    let error = |problem: String, remedy: String| Err(environment_error(format!("port {port:?}: {problem}"), remedy));
    if !at.exists() {
        return error(format!("device {address} does not exist"), "list devices with lspci -D".to_owned());
    }
    match pci::driver(&at) {
        Some(driver) if driver == pci::VFIO_DRIVER => {}
        driver => {
            let has = driver.map_or("it has no driver".to_owned(), |driver| format!("its driver is {driver}"));
            let remedy = format!("sudo modprobe vfio-pci && sudo dpdk-devbind.py -b vfio-pci {address}");
            return error(format!("{address} cannot be passed through: {has} instead of vfio-pci"), remedy);
        }
    }
    let Some(group) = pci::iommu_group(&at) else {
        let remedy = "enable the IOMMU in the firmware, and by intel_iommu=on on the kernel command line";
        return error(format!("{address} has no IOMMU group"), remedy.to_owned());
    };
    let ours = |other: &Path| with.iter().any(|own| other.ends_with(own));
    if let Some((name, driver)) = pci::group_conflict(&at, ours) {
        let remedy = "pass both to one sandbox, enable ACS in the firmware, or move the NIC to another slot";
        return error(
            format!("{address} shares an IOMMU group with {name}, whose driver is {driver}"),
            remedy.to_owned(),
        );
    }
    let node = Path::new(VFIO_FOLDER).join(&group);
    if !node.exists() {
        let remedy = "load the module vfio-pci, and check dmesg";
        return error(format!("{} does not exist", node.display()), remedy.to_owned());
    }
    Ok(())
}

/// Returns the device nodes: the VFIO container and one for each group.
fn device_nodes(devices: &[String]) -> Result<BTreeSet<PathBuf>, String> {
    let node = |address: &String| {
        let group = pci::iommu_group(&Path::new(PCI_DEVICES).join(address));
        Ok(Path::new(VFIO_FOLDER).join(group.ok_or_else(|| format!("{address}: no IOMMU group"))?))
    };
    let mut all: BTreeSet<PathBuf> = devices.iter().map(node).collect::<Result<_, String>>()?;
    all.insert(Path::new(VFIO_FOLDER).join("vfio"));
    Ok(all)
}

/// Creates device nodes below a root for a user.
fn create_nodes(devices: &[String], root: &Path, user: u32) -> Result<(), String> {
    // memory for DMA is locked; the control group limits its size
    let unlimited = Rlimit { current: None, maximum: None };
    setrlimit(Resource::Memlock, unlimited).context("limit of locked memory (ulimit -l)")?;
    let nodes = device_nodes(devices)?;
    let numbers: Vec<u64> = nodes
        .iter()
        .map(|node| Ok(metadata(node).context(node.display().to_string())?.rdev()))
        .collect::<Result<_, String>>()?;
    let at = root.join(VFIO_FOLDER.trim_start_matches('/'));
    create_dir_all(&at).context(at.display().to_string())?;
    mount(Some("tmpfs"), &at, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, Some("mode=755,size=4k"))
        .context(VFIO_FOLDER)?;
    for (node, number) in nodes.iter().zip(numbers) {
        let to = at.join(node.file_name().unwrap_or_default());
        mknod(&to, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, number).context(to.display().to_string())?;
        chown(&to, Some(user), Some(user)).context(to.display().to_string())?;
    }
    Ok(())
}

/// Returns the sysfs folders of devices.
///
/// # Errors
/// A device does not exist.
pub(crate) fn device_folders(devices: &[String]) -> Result<Vec<PathBuf>, String> {
    devices.iter().map(|address| Path::new(PCI_DEVICES).join(address).canonicalize().context(address)).collect()
}

/// Creates what DPDK needs below a root that contains the [`device_folders`].
///
/// # Errors
/// A system call that failed.
pub(crate) fn expose_in_root(devices: &[String], root: &Path, user: u32) -> Result<(), String> {
    if devices.is_empty() {
        return Ok(());
    }
    create_nodes(devices, root, user)?;
    let within = |path: &str| root.join(path.trim_start_matches('/'));
    // DPDK checks that these modules are loaded
    for module in ["vfio", "vfio_pci", "vfio_iommu_type1"] {
        create_dir_all(within("/sys/module").join(module)).context(module)?;
    }
    let bus = within(PCI_DEVICES);
    create_dir_all(&bus).context(PCI_DEVICES)?;
    for (address, folder) in devices.iter().zip(device_folders(devices)?) {
        symlink(folder, bus.join(address)).context(address)?;
    }
    Ok(())
}
