//! Ports of whoever runs no chain: a generator in front of a device that is not in this process.

use crate::engine::{End, Error, environment_of_dpdk};
use crate::ports::{self, Watch};
use crate::sriov::{Functions, Linux};
use config::Device;
use dpdk::{Eal, Memory, Mempool, Port, PortConfig};
use std::sync::Arc;

/// Descriptors of each queue: those of a common NIC.
const DESCRIPTORS: u16 = 1024;
/// Packets of the pool, beyond those in queues.
const MORE: u32 = 1 << 14;

/// Ports that are open, each with one queue in each direction. It has to outlive the queues.
pub struct Outside {
    eal: Eal,
    pool: Arc<Mempool>,
    watches: Vec<Watch>,
    /// Last, as the ports on them have to be closed before.
    functions: Functions,
}

impl Outside {
    /// Opens these devices, written as in a chain file, each with the name of its port; the ends come in their order.
    ///
    /// # Errors
    /// A device that is none, or that does not open.
    pub fn open(devices: &[(String, String)]) -> Result<(Outside, Vec<End>), Error> {
        let parse = |(name, written): &(String, String)| {
            let device = Device::parse(written, name).map_err(|(problem, remedy)| Error::Environment {
                problem: format!("port {name:?}: {written:?} {problem}"),
                remedy,
            })?;
            Ok((name.clone(), device))
        };
        let devices = devices.iter().map(parse).collect::<Result<Vec<_>, Error>>()?;
        let functions = Functions::make(&Linux, devices.iter().map(|(name, device)| (name.as_str(), device)))?;
        let pci = devices.iter().filter_map(|(_, d)| d.pci()).map(str::to_owned);
        let pci: Vec<String> = pci.chain(functions.addresses().values().cloned()).collect();
        let size = (2 * u32::from(DESCRIPTORS) * devices.len() as u32 + MORE).next_power_of_two() - 1;
        let eal = Eal::start(Memory::best_for(size), &pci).map_err(|e| environment_of_dpdk(&e))?;
        let pool = Mempool::new(eal, size).map_err(|e| environment_of_dpdk(&e))?;
        let mut outside = Outside { eal, pool, watches: vec![], functions };
        let mut ends = vec![];
        for (number, (name, device)) in devices.iter().enumerate() {
            let wrong =
                |problem: &str, remedy: String| Error::Environment { problem: format!("port {name:?}: {problem}"), remedy };
            let Device::Dpdk { name: dpdk_name, arguments, .. } = device else {
                return Err(wrong("a capture is no port of a device", "name a device of DPDK's".to_owned()));
            };
            ports::claim_socket(device)
                .map_err(|e| wrong(&e, "name another socket, or stop that process".to_owned()))?;
            let fail = |e: dpdk::Error| wrong(&e.to_string(), ports::remedy(device, &e));
            let dpdk_name = outside.functions.addresses().get(name).unwrap_or(dpdk_name);
            let opened = Port::open(outside.eal, dpdk_name, arguments).map_err(fail)?;
            let config = PortConfig { descriptors: DESCRIPTORS, ..PortConfig::default() };
            let info = opened.info().map_err(fail)?;
            let mut queues = opened.start(&config, &outside.pool).map_err(fail)?;
            outside.watches.push(Watch::new(device, &info, queues.port));
            ends.push(End { port: number, rx: queues.rx.remove(0), tx: queues.tx.remove(0) });
        }
        Ok((outside, ends))
    }

    /// The EAL.
    pub fn eal(&self) -> Eal {
        self.eal
    }

    /// What packets are kept in, in words.
    pub fn memory(&self) -> &'static str {
        crate::engine::words_of(self.eal.memory())
    }

    /// Where packets come from.
    pub fn pool(&self) -> &Arc<Mempool> {
        &self.pool
    }

    /// For each port, whether its other side is there; `None` where that cannot be known.
    pub fn links(&self) -> Vec<Option<bool>> {
        self.watches.iter().map(Watch::link).collect()
    }

    /// Packets that the drivers say they lost or could not take, all ports: received into a full queue, without a buffer, or
    /// broken; and accepted for sending without leaving.
    pub fn lost_here(&self) -> u64 {
        let of = |watch: &Watch| {
            let stats = watch.port.stats();
            stats.rx_missed + stats.rx_no_buffer + stats.rx_errors + stats.tx_errors
        };
        self.watches.iter().map(of).sum()
    }
}
