//! The start of DPDK, and the packet pool.

use super::planned_worker::PlannedWorker;
use crate::error::{Error, memory_error};
use crate::pci::sriov::VirtualFunctions;
use crate::ports::Wires;
use config::{ChainFile, Device, Side};
use dpdk::{Eal, Memory, Mempool};
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
    /// Packets of the smallest pool.
    const MIN_PACKETS: u32 = 1 << 13;
    let shared_rings = |side| {
        let is_ring = |p: &&config::Port| p.crossing_side == Some(side) && matches!(p.device, Device::Rings { .. });
        file.ports.iter().filter(is_ring).count() as u32
    };
    let pci = file.ports.iter().filter_map(|p| p.device.pci_address()).map(str::to_owned);
    let pci: Vec<String> = pci.chain(functions.addresses().values().cloned()).collect();
    let queues = workers.len() as u32 + 1;
    let devices = file.ports.iter().filter(|p| matches!(p.device, Device::Dpdk { .. }));
    let in_ports = match wires {
        Some(Wires { depth, per_port }) => 2 * depth * per_port as u32 * file.ports.len() as u32,
        None => devices.map(|p| 2 * queues * u32::from(p.descriptors)).sum(),
    };
    // an additional queue of a device has one queue in each direction
    let extra = file.ports.iter().filter(|p| matches!(p.device, Device::Queue { .. }));
    let in_ports = in_ports + extra.map(|p| 2 * u32::from(p.descriptors)).sum::<u32>();
    let in_sandboxes = shared_rings(Side::Host) * dpdk::RingServer::MAX_OUTSTANDING as u32;
    let needed = (in_ports + in_sandboxes + queues * 2048).next_power_of_two();
    let size = needed.clamp(MIN_PACKETS, MAX_POOL_PACKETS as u32) - 1;
    let _lock = Memory::lock();
    let memory = Memory::best_for(size, file.max_frame);
    let is_client = shared_rings(Side::Sandboxed) > 0;
    let eal = if is_client { Eal::start_ring_client(memory) } else { Eal::start(memory, &pci) };
    let eal = eal.map_err(|e| memory_error(memory, &e))?;
    let pool = Mempool::for_frames(eal, size, file.max_frame).map_err(|e| memory_error(eal.memory(), &e))?;
    Ok((eal, pool))
}

/// Returns a note for the user if packets are not in huge pages.
pub(super) fn memory_note(eal: Eal) -> Option<String> {
    (eal.memory() == Memory::Ordinary).then(|| {
        "running on ordinary pages; huge pages make packets and large tables faster: \
         echo 512 | sudo tee /proc/sys/vm/nr_hugepages"
            .to_owned()
    })
}
