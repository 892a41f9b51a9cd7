//! DPDK, and what packets are kept in.

use super::{Error, Placed};
use crate::sriov::Functions;
use config::{ChainFile, Device, Side};
use dpdk::{Eal, Memory, Mempool};
use std::sync::Arc;

/// Packets of the largest pool, and one.
pub const MOST_PACKETS: usize = 1 << 17;

/// Starts DPDK and makes a pool with a packet for every descriptor and worker, as far as the largest goes.
pub(super) fn memory(
    file: &ChainFile,
    workers: &[Placed],
    wires: Option<u32>,
    functions: &Functions,
) -> Result<(Eal, Arc<Mempool>), Error> {
    /// Packets of the smallest pool.
    const LEAST: u32 = 1 << 13;
    let of_walls = |side| {
        let rings = |p: &&config::Port| p.wall == Some(side) && matches!(p.device, Device::Rings { .. });
        file.ports.iter().filter(rings).count() as u32
    };
    let pci = file.ports.iter().filter_map(|p| p.device.pci()).map(str::to_owned);
    let pci: Vec<String> = pci.chain(functions.addresses().values().cloned()).collect();
    let queues = workers.len() as u32 + 1;
    let devices = file.ports.iter().filter(|p| matches!(p.device, Device::Dpdk { .. }));
    let in_ports = match wires {
        Some(depth) => 2 * depth * file.ports.len() as u32,
        None => devices.map(|p| 2 * queues * u32::from(p.descriptors)).sum(),
    };
    // one each way
    let further = file.ports.iter().filter(|p| matches!(p.device, Device::Queue { .. }));
    let in_ports = in_ports + further.map(|p| 2 * u32::from(p.descriptors)).sum::<u32>();
    let lent = of_walls(Side::Switch) * dpdk::Lender::MOST as u32;
    let wanted = (in_ports + lent + queues * 2048).next_power_of_two();
    let size = wanted.clamp(LEAST, MOST_PACKETS as u32) - 1;
    let memory = Memory::best_for(size);
    let eal = if of_walls(Side::Host) > 0 { Eal::start_apart(memory) } else { Eal::start(memory, &pci) };
    let eal = eal.map_err(|e| environment_of_dpdk(&e))?;
    let pool = Mempool::new(eal, size).map_err(|e| environment_of_dpdk(&e))?;
    Ok((eal, pool))
}

/// What packets are kept in, in words.
pub(crate) fn words_of(memory: Memory) -> &'static str {
    match memory {
        Memory::Huge => "huge pages",
        Memory::Ordinary => "ordinary pages",
    }
}

/// What DPDK refuses at start.
pub(crate) fn environment_of_dpdk(e: &dpdk::Error) -> Error {
    Error::Environment {
        problem: e.to_string(),
        remedy: "run bondstone doctor, which finds what DPDK lacks on this machine".into(),
    }
}

/// What more this machine could give.
pub(super) fn notes(eal: Eal) -> Vec<String> {
    let mut notes = vec![];
    if eal.memory() == Memory::Ordinary {
        notes.push("running on ordinary pages; huge pages make packets and large tables faster: echo 512 | sudo tee /proc/sys/vm/nr_hugepages".to_owned());
    }
    notes
}
