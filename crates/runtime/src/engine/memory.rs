//! The start of DPDK, and the packet pool.

use super::planned_worker::PlannedWorker;
use crate::error::{Error, memory_error};
use crate::pci::sriov::VirtualFunctions;
use crate::ports::Wires;
use config::{ChainFile, Device, Port, Side};
use dpdk::{Eal, Memory, Mempool};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Packets of the largest pool, plus one.
pub const MAX_POOL_PACKETS: usize = 1 << 17;

/// Starts DPDK and creates a pool with packets for every descriptor and worker, up to the largest pool.
pub(super) fn start_dpdk(
    file: &ChainFile,
    workers: &[PlannedWorker],
    wires: Option<Wires>,
    functions: &VirtualFunctions,
) -> Result<(Eal, Arc<Mempool>), Error> {
    let is_client = file.ports.iter().any(|port| is_shared_ring(port, Side::Sandboxed));
    let pci = file.ports.iter().filter_map(|p| p.device.pci_address()).map(str::to_owned);
    let pci: Vec<String> = pci.chain(functions.addresses().values().cloned()).collect();
    let in_wires = wires.map(|Wires { depth, per_port }| 2 * depth * per_port as u32 * file.ports.len() as u32);
    let size = pool_size(&file.ports.iter().collect::<Vec<_>>(), workers.len(), in_wires);
    let _lock = Memory::lock();
    let memory = Memory::best_for(size, file.max_frame);
    let eal = if is_client { Eal::start_ring_client(memory) } else { Eal::start(memory, &pci) };
    let eal = eal.map_err(|e| memory_error(memory, &e))?;
    let pool = Mempool::for_frames(eal, size, file.max_frame).map_err(|e| memory_error(eal.memory(), &e))?;
    Ok((eal, pool))
}

/// Creates a pool for the packets of ports that are added to a run.
///
/// # Errors
/// There is not enough memory.
pub(super) fn further_pool(eal: Eal, ports: &[&Port], workers: usize, max_frame: usize) -> Result<Arc<Mempool>, Error> {
    let _lock = Memory::lock();
    let size = pool_size(ports, workers, None);
    Mempool::for_frames(eal, size, max_frame).map_err(|e| memory_error(eal.memory(), &e))
}

/// Returns the packets for every descriptor of the ports and for every worker; in memory, ports have `in_wires` packets.
pub(super) fn pool_size(ports: &[&Port], workers: usize, in_wires: Option<u32>) -> u32 {
    /// Packets of the smallest pool.
    const MIN_PACKETS: u32 = 1 << 13;
    let queues = workers as u32 + 1;
    let in_port = |port: &&Port| match port.device {
        // its rings hold copies
        _ if port.representor_tap().is_some() && in_wires.is_none() => 0,
        Device::Dpdk { .. } if in_wires.is_none() => 2 * queues * u32::from(port.descriptors),
        // an additional queue of a device has one queue in each direction
        Device::Queue { .. } => 2 * u32::from(port.descriptors),
        _ if is_shared_ring(port, Side::Host) => dpdk::RingServer::MAX_OUTSTANDING as u32,
        _ => 0,
    };
    let in_ports = ports.iter().map(in_port).sum::<u32>() + in_wires.unwrap_or_default();
    let needed = (in_ports + queues * 2048).next_power_of_two();
    needed.clamp(MIN_PACKETS, MAX_POOL_PACKETS as u32) - 1
}

fn is_shared_ring(port: &Port, side: Side) -> bool {
    port.crossing_side == Some(side) && matches!(port.device, Device::Rings { .. })
}

/// Returns a note for the user if packets are not in huge pages.
pub(super) fn memory_note(eal: Eal) -> Option<String> {
    (eal.memory() == Memory::Ordinary).then(|| {
        "running on ordinary pages; huge pages make packets and large tables faster: \
         echo 512 | sudo tee /proc/sys/vm/nr_hugepages"
            .to_owned()
    })
}

/// Returns a note for the user if nodes, given by the names of their NFs and the packets that they may hold, can hold more
/// than three quarters of the packets of the pool.
pub(super) fn held_note<'a>(nodes: impl Iterator<Item = (&'a str, usize)>, pool: usize) -> Option<String> {
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    nodes.filter(|(_, held)| *held != 0).for_each(|(name, held)| *by_name.entry(name).or_default() += held);
    let most = pool / 4 * 3;
    if by_name.values().sum::<usize>() <= most {
        return None;
    }
    let nfs: Vec<_> = by_name.iter().map(|(name, held)| format!("nf {name:?} may hold {held} packets")).collect();
    Some(format!(
        "{}, but the pool has {pool}: ports receive nothing while all are held; lower their `packets` to {most} in all, \
         on all cores",
        nfs.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::held_note;

    #[test]
    fn a_note_names_nfs_that_may_hold_most_packets_of_the_pool() {
        let nodes = |up| [("down", 3000), ("count", 0), ("up", up), ("down", 3000)];
        assert_eq!(held_note(nodes(141).into_iter(), 8191), None);
        let note = held_note(nodes(142).into_iter(), 8191).unwrap();
        assert!(note.starts_with("nf \"down\" may hold 6000 packets, nf \"up\" may hold 142 packets, but"), "{note}");
        assert!(note.contains("to 6141 in all") && !note.contains("count"), "{note}");
    }
}
