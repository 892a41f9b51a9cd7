//! Checks of NICs, IOMMU and drivers.

use super::sysfs::{list, read};
use super::{Check, State};
use std::path::Path;

pub(super) fn checks() -> Vec<Check> {
    let exists = |path: &str| Path::new(path).exists();
    let groups = list("/sys/kernel/iommu_groups").len();
    let nics = nics();
    let mut checks =
        vec![iommu(groups, exists("/dev/vfio/vfio")), drivers(&list("/sys/bus/pci/drivers"), &list("/sys/module"))];
    if nics.is_empty() {
        let provides =
            "line rate with DPDK drivers; otherwise ports are virtual devices, kernel interfaces and captures";
        checks.push(
            Check::new("PCI network devices", State::Missing, "none", provides)
                .remedy("a machine with a NIC, or a virtual function passed to this VM"),
        );
    }
    checks.extend(nics.iter().map(|nic| nic.check(groups != 0)));
    checks
}

fn iommu(groups: usize, device: bool) -> Check {
    let found = match (groups, device) {
        (0, _) => "none".to_owned(),
        (n, true) => format!("{n} groups, /dev/vfio/vfio exists"),
        (n, false) => format!("{n} groups, /dev/vfio/vfio missing"),
    };
    let (state, remedy) = match (groups, device) {
        (0, _) => (State::Missing, "enable it in the firmware; kernel command line: intel_iommu=on iommu=pt"),
        (_, false) => (State::Degraded, "sudo modprobe vfio-pci"),
        (_, true) => (State::Ok, ""),
    };
    Check::new("IOMMU", state, found, "DMA protection for physical NICs, also for unprivileged users").remedy(remedy)
}

fn drivers(pci: &[String], modules: &[String]) -> Check {
    let known = ["vfio-pci", "uio_pci_generic", "igb_uio"];
    let loaded = |d: &&str| pci.iter().any(|p| p == d) || modules.iter().any(|m| *m == d.replace('-', "_"));
    let found: Vec<&str> = known.into_iter().filter(loaded).collect();
    let provides = "driver that gives DPDK access to a NIC (not needed for Mellanox NICs)";
    match found[..] {
        [] => Check::new("vfio or uio", State::Missing, "no driver loaded", provides).remedy("sudo modprobe vfio-pci"),
        _ => Check::new("vfio or uio", State::Ok, found.join(", "), provides),
    }
}

/// A network device on the PCI bus.
#[derive(Clone, Debug, Default)]
struct Nic {
    address: String,
    /// Vendor and device, such as `8086:1572`.
    id: String,
    driver: Option<String>,
    /// Kernel interfaces.
    interfaces: Vec<String>,
    node: Option<String>,
    /// Number of virtual functions, and the maximum.
    functions: Option<(u16, u16)>,
    /// Physical function, if this is a virtual function.
    physical: Option<String>,
}

/// Returns the file name of the target of a symbolic link.
fn target(link: &Path) -> Option<String> {
    Some(std::fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// Returns the number of virtual functions and the maximum of a device, if supported.
fn functions(device: &Path) -> Option<(u16, u16)> {
    let number = |file: &str| read(device.join(file))?.parse::<u16>().ok();
    Some((number("sriov_numvfs")?, number("sriov_totalvfs")?)).filter(|(_, max)| *max != 0)
}

fn nics() -> Vec<Nic> {
    let all = list("/sys/bus/pci/devices").into_iter().filter_map(|address| {
        let base = Path::new("/sys/bus/pci/devices").join(&address);
        is_network(&read(base.join("class"))?).then(|| Nic {
            id: id(&read(base.join("vendor")).unwrap_or_default(), &read(base.join("device")).unwrap_or_default()),
            driver: target(&base.join("driver")),
            functions: functions(&base),
            physical: target(&base.join("physfn")),
            // interfaces of virtio devices are one level deeper
            interfaces: std::iter::once(String::new())
                .chain(list(&base).into_iter().filter(|n| n.starts_with("virtio")))
                .flat_map(|sub| list(base.join(sub).join("net")))
                .collect(),
            node: read(base.join("numa_node")).filter(|n| !n.starts_with('-')),
            address,
        })
    });
    all.collect()
}

/// Returns true for the PCI class of a network controller.
fn is_network(class: &str) -> bool {
    class.strip_prefix("0x").and_then(|c| u32::from_str_radix(c, 16).ok()).is_some_and(|c| c >> 16 == 2)
}

fn id(vendor: &str, device: &str) -> String {
    let hex = |s: &str| s.trim_start_matches("0x").to_owned();
    format!("{}:{}", hex(vendor), hex(device))
}

impl Nic {
    fn check(&self, iommu: bool) -> Check {
        let driver = self.driver.as_deref();
        let usable = driver.is_some_and(|d| d.starts_with("vfio") || d.contains("uio"));
        // the kernel driver and DPDK share the device
        let bifurcated = driver.is_some_and(|d| d.starts_with("mlx"));
        let mut found = format!("{}, driver {}", self.id, driver.unwrap_or("none"));
        if !self.interfaces.is_empty() {
            found += &format!(", kernel interface {}", self.interfaces.join(", "));
        }
        if let Some(node) = &self.node {
            found += &format!(", NUMA node {node}");
        }
        if let Some((current, max)) = self.functions {
            found += &format!(", {current} of {max} VFs");
        }
        if let Some(physical) = &self.physical {
            found += &format!(", VF of {physical}");
        }
        let state = if usable || bifurcated { State::Ok } else { State::Degraded };
        let mut provides = match self.interfaces[..] {
            [] => "a port at line rate".to_owned(),
            _ => format!("a port at line rate; removes {} from the kernel", self.interfaces.join(", ")),
        };
        if let ([interface, ..], Some((0, _)), true) = (&self.interfaces[..], self.functions, iommu) {
            provides += &format!("; device = \"sriov:{interface}\" keeps it and gives the chain a VF");
        }
        let with = if iommu { "vfio-pci" } else { "uio_pci_generic" };
        Check::new(format!("NIC {}", self.address), state, found, provides)
            .remedy(format!("sudo modprobe {with} && sudo dpdk-devbind.py -b {with} {}", self.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_network_controllers() {
        for (class, network) in [
            ("0x020000", true),
            ("0x028000", true),
            ("0x010000", false),
            ("", false),
            ("x", false),
            ("0x0200zz", false),
        ] {
            assert_eq!(is_network(class), network, "{class:?}");
        }
        assert_eq!(id("0x8086", "0x1572"), "8086:1572");
    }

    #[test]
    fn remedy_binds_the_nic() {
        let nic = |driver: &str, interfaces: &[&str]| Nic {
            address: "0000:01:00.0".into(),
            driver: Some(driver.into()),
            interfaces: interfaces.iter().map(|i| (*i).to_owned()).collect(),
            ..Default::default()
        };
        let kernel = nic("i40e", &["eth0"]).check(true);
        assert!(
            kernel.remedy.unwrap().ends_with("-b vfio-pci 0000:01:00.0") && kernel.provides.contains("removes eth0")
        );
        let functions = |there| Nic { functions: Some((there, 8)), ..nic("i40e", &["eth0"]) };
        let can = functions(0).check(true);
        assert!(
            can.found.ends_with("kernel interface eth0, 0 of 8 VFs") && can.provides.contains("sriov:eth0"),
            "{can:?}"
        );
        for without in [functions(0).check(false), functions(2).check(true), nic("i40e", &["eth0"]).check(true)] {
            assert!(!without.provides.contains("sriov"), "{without:?}");
        }
        let function = Nic { physical: Some("0000:01:00.0".into()), ..nic("iavf", &["eth1"]) };
        assert!(function.check(true).found.ends_with("VF of 0000:01:00.0"));
        assert!(nic("i40e", &[]).check(false).remedy.unwrap().contains("uio_pci_generic"));
        for ready in ["vfio-pci", "uio_pci_generic", "mlx5_core"] {
            assert_eq!(nic(ready, &[]).check(true).state, State::Ok, "{ready}");
        }
        assert_eq!(Nic::default().check(true).state, State::Degraded);
    }

    #[test]
    fn virtual_functions_of_a_device() {
        let device = std::env::temp_dir().join(format!("bondstone-doctor-{}", std::process::id()));
        std::fs::create_dir_all(&device).unwrap();
        let put = |file: &str, text: &str| std::fs::write(device.join(file), text).unwrap();
        assert_eq!(functions(&device), None);
        put("sriov_numvfs", "2\n");
        assert_eq!(functions(&device), None);
        put("sriov_totalvfs", "63\n");
        assert_eq!(functions(&device), Some((2, 63)));
        put("sriov_totalvfs", "0\n");
        assert_eq!(functions(&device), None);
        std::fs::remove_dir_all(&device).unwrap();
    }

    #[test]
    fn iommu_and_drivers() {
        assert_eq!(
            [(0, false), (0, true), (4, false), (4, true)].map(|(g, d)| iommu(g, d).state),
            [State::Missing, State::Missing, State::Degraded, State::Ok]
        );
        let names = |n: &[&str]| n.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(drivers(&names(&["e1000e"]), &[]).state, State::Missing);
        assert_eq!(drivers(&names(&["vfio-pci"]), &[]).found, "vfio-pci");
        assert_eq!(drivers(&[], &names(&["uio_pci_generic"])).found, "uio_pci_generic");
    }
}
