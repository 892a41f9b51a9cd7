//! Topology of the machine: CPUs, cores and NUMA nodes.

use crate::pci;
use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;

/// The CPUs, cores and NUMA nodes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// CPUs of each NUMA node; a single node 0 if the kernel reports none.
    pub nodes: BTreeMap<usize, Vec<usize>>,
    /// Distances between nodes as reported by the kernel; 10 is local.
    distances: BTreeMap<(usize, usize), u32>,
    /// The CPUs of each core.
    pub cores: Vec<Vec<usize>>,
}

/// Parses a list such as `0-3,8`.
fn parse_cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse::<usize>().ok()?..=to.trim().parse::<usize>().ok()?.min(1 << 16))
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

impl Topology {
    /// Reads the topology of this machine.
    #[must_use]
    pub fn read() -> Topology {
        Topology::at(Path::new("/sys"))
    }

    /// Reads the topology from a directory with the layout of `/sys`.
    #[must_use]
    pub fn at(sys: &Path) -> Topology {
        let list = |path: &Path| parse_cpu_list(&read_to_string(path).unwrap_or_default());
        let system = sys.join("devices/system");
        let all = list(&system.join("cpu/online"));
        let mut nodes = BTreeMap::new();
        let mut distances = BTreeMap::new();
        let numbers = list(&system.join("node/online"));
        for &node in &numbers {
            let folder = system.join(format!("node/node{node}"));
            nodes.insert(node, list(&folder.join("cpulist")));
            let row = read_to_string(folder.join("distance")).unwrap_or_default();
            let row = row.split_whitespace().filter_map(|d| d.parse().ok());
            distances.extend(numbers.iter().zip(row).map(|(&to, distance)| ((node, to), distance)));
        }
        if nodes.is_empty() {
            nodes.insert(0, all.clone());
        }
        let mut cores: Vec<Vec<usize>> = vec![];
        for cpu in all {
            let siblings = list(&system.join(format!("cpu/cpu{cpu}/topology/thread_siblings_list")));
            let core = if siblings.is_empty() { vec![cpu] } else { siblings };
            if !cores.contains(&core) {
                cores.push(core);
            }
        }
        Topology { nodes, distances, cores }
    }

    /// Returns the node of a CPU.
    #[must_use]
    pub fn node_of(&self, cpu: usize) -> Option<usize> {
        self.nodes.iter().find(|(_, cpus)| cpus.contains(&cpu)).map(|(node, _)| *node)
    }

    /// Returns the distance from one node's CPUs to another node's memory; 10 if unknown.
    #[must_use]
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        self.distances.get(&(from, to)).copied().unwrap_or(10)
    }

    /// Returns true if two CPUs share a core.
    #[must_use]
    pub fn is_sibling(&self, a: usize, b: usize) -> bool {
        a != b && self.cores.iter().any(|core| core.contains(&a) && core.contains(&b))
    }
}

/// Returns the NUMA node of a NIC, given by its PCI address or by the name of its interface, if known.
#[must_use]
pub fn node_of_device(sys: &Path, nic: &str) -> Option<usize> {
    let device = pci::sysfs_dir(sys, nic).ok()?;
    // a virtio device has no such file, but its PCI device above it
    let node = device.ancestors().take(2).find_map(|folder| read_to_string(folder.join("numa_node")).ok());
    node?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    #[test]
    fn parses_cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,5,8-9\n"), [0, 1, 2, 5, 8, 9]);
        assert_eq!(parse_cpu_list(""), Vec::<usize>::new());
        assert_eq!(parse_cpu_list("x,3-,7"), [7]);
    }

    /// Two nodes of two cores with two threads each.
    #[test]
    fn reads_a_machine_with_two_nodes() {
        let sys = std::env::temp_dir().join(format!("bondstone-sys-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = sys.join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        };
        put("devices/system/cpu/online", "0-7\n");
        put("devices/system/node/online", "0-1\n");
        for (node, cpus, distance) in [(0, "0-1,4-5\n", "10 21\n"), (1, "2-3,6-7\n", "21 10\n")] {
            put(&format!("devices/system/node/node{node}/cpulist"), cpus);
            put(&format!("devices/system/node/node{node}/distance"), distance);
        }
        for cpu in 0..8 {
            let path = format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            put(&path, &format!("{},{}\n", cpu % 4, cpu % 4 + 4));
        }
        put("bus/pci/devices/0000:01:00.0/numa_node", "1\n");
        put("bus/pci/devices/0000:02:00.0/numa_node", "-1\n");
        put("class/net/eth0/device/numa_node", "1\n");
        put("class/net/eth1/device/vendor", "0x1af4\n");
        put("class/net/eth1/numa_node", "0\n");
        let t = Topology::at(&sys);
        assert_eq!((t.node_of(5), t.node_of(6), t.node_of(8)), (Some(0), Some(1), None));
        assert_eq!((t.distance(0, 1), t.distance(1, 1), t.distance(7, 8)), (21, 10, 10));
        assert_eq!(
            (t.cores.len(), t.is_sibling(1, 5), t.is_sibling(1, 2), t.is_sibling(1, 1)),
            (4, true, false, false)
        );
        assert_eq!(node_of_device(&sys, "0000:01:00.0"), Some(1));
        assert_eq!((node_of_device(&sys, "0000:02:00.0"), node_of_device(&sys, "none")), (None, None));
        let of_interfaces = ["eth0", "eth1", "eth2"].map(|name| node_of_device(&sys, name));
        assert_eq!(of_interfaces, [Some(1), Some(0), None]);
        std::fs::remove_dir_all(&sys).unwrap();
        assert_eq!(Topology::at(&sys).nodes, BTreeMap::from([(0, vec![])]));
    }
}
