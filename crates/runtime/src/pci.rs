//! What the kernel says of PCI devices that programs are to drive.

use std::fs::{read_dir, read_link};
use std::path::Path;

/// The driver of the kernel's that hands a device to a program.
pub const HANDING: &str = "vfio-pci";
/// Drivers that leave the rest of an IOMMU group to a program.
const HARMLESS: [&str; 2] = ["pci-stub", "pcieport"];

fn named(link: &Path) -> Option<String> {
    Some(read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// The driver that has a device, given by its folder in `/sys`.
#[must_use]
pub fn driver(device: &Path) -> Option<String> {
    named(&device.join("driver"))
}

/// The number of a device's IOMMU group; `None` where no IOMMU is, or it is switched off.
#[must_use]
pub fn group(device: &Path) -> Option<String> {
    named(&device.join("iommu_group"))
}

/// A device in the same IOMMU group, and its driver, for which the group cannot be handed to a program: who opens it has all
/// of it. Not looked at are devices that are `ours`.
#[must_use]
pub fn in_the_way(device: &Path, ours: impl Fn(&Path) -> bool) -> Option<(String, String)> {
    let all = read_dir(device.join("iommu_group/devices")).into_iter().flatten().flatten();
    all.map(|other| other.path()).filter(|other| !ours(other)).find_map(|other| {
        let driver = driver(&other).filter(|driver| !HARMLESS.contains(&driver.as_str()))?;
        Some((other.file_name()?.to_string_lossy().into_owned(), driver))
    })
}
