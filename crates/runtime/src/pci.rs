//! PCI devices that are used by programs: their drivers and IOMMU groups.

pub(crate) mod sriov;

use std::fs::{read_dir, read_link};
use std::io;
use std::path::{Path, PathBuf};

/// The kernel driver that gives a program access to a device.
pub const VFIO_DRIVER: &str = "vfio-pci";
/// Drivers of devices that may share an IOMMU group with a device used by a program.
const NON_BLOCKING_DRIVERS: [&str; 2] = ["pci-stub", "pcieport"];

fn link_target_name(link: &Path) -> Option<String> {
    Some(read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// Returns the driver of a device, given by its sysfs directory.
#[must_use]
pub fn driver(device: &Path) -> Option<String> {
    link_target_name(&device.join("driver"))
}

/// Returns the number of a device's IOMMU group; `None` if there is no IOMMU, or it is disabled.
#[must_use]
pub fn iommu_group(device: &Path) -> Option<String> {
    link_target_name(&device.join("iommu_group"))
}

/// Returns a device in the same IOMMU group, with its driver, that prevents use of the group by a program, which always
/// gets the whole group. Devices for which `ours` returns true are ignored.
#[must_use]
pub fn group_conflict(device: &Path, ours: impl Fn(&Path) -> bool) -> Option<(String, String)> {
    let all = read_dir(device.join("iommu_group/devices")).into_iter().flatten().flatten();
    all.map(|other| other.path()).filter(|other| !ours(other)).find_map(|other| {
        let driver = driver(&other).filter(|driver| !NON_BLOCKING_DRIVERS.contains(&driver.as_str()))?;
        Some((other.file_name()?.to_string_lossy().into_owned(), driver))
    })
}

/// Returns the sysfs directory of a NIC, given by its PCI address or by the name of its interface.
pub(crate) fn sysfs_dir(sys: &Path, nic: &str) -> io::Result<PathBuf> {
    // interface names contain no colon
    let is_address = nic.contains(':');
    let device =
        if is_address { sys.join("bus/pci/devices").join(nic) } else { sys.join("class/net").join(nic).join("device") };
    device.canonicalize()
}
