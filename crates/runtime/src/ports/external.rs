//! External ports: ports of a process that runs no chain, such as a generator in front of an external DUT.

use super::device::{self, PortMonitor};
use super::io::PortQueues;
use super::nic::Nic;
use crate::error::{Error, memory_error};
use crate::pci::sriov::{Linux, VirtualFunctions};
use config::Device;
use dpdk::{Eal, Memory, Mempool, Port, PortConfig};
use std::sync::Arc;

/// Descriptors of each queue, as common NICs have.
const DESCRIPTORS: u16 = 1024;
/// Packets of the pool besides those in queues.
const EXTRA_PACKETS: u32 = 1 << 14;

/// Open ports with one queue in each direction per generator core. It must outlive the queues.
pub struct ExternalPorts {
    eal: Eal,
    pool: Arc<Mempool>,
    monitors: Vec<PortMonitor>,
    nics: Vec<Nic>,
    /// Dropped last, as ports that use them have to be closed before.
    functions: VirtualFunctions,
}

impl ExternalPorts {
    /// Opens devices for frames of up to `max_frame` bytes, given by the name of the port and the device as in a chain
    /// file, each with `queues` queues in each direction; returns the queues in the order of the devices.
    ///
    /// # Errors
    /// A device is invalid, cannot be opened, or has fewer queues.
    pub fn open(
        devices: &[(String, String)],
        queues: u16,
        max_frame: usize,
    ) -> Result<(ExternalPorts, Vec<PortQueues>), Error> {
        let parse = |(name, written): &(String, String)| {
            let device = Device::parse(written, name).map_err(|(problem, remedy)| Error::Environment {
                problem: format!("port {name:?}: {written:?} {problem}"),
                remedy,
            })?;
            Ok((name.clone(), device))
        };
        let devices = devices.iter().map(parse).collect::<Result<Vec<_>, Error>>()?;
        let functions = VirtualFunctions::create(&Linux, devices.iter().map(|(name, device)| (name.as_str(), device)))?;
        let pci = devices.iter().filter_map(|(_, d)| d.pci_address()).map(str::to_owned);
        let pci: Vec<String> = pci.chain(functions.addresses().values().cloned()).collect();
        let size = (2 * u32::from(DESCRIPTORS) * u32::from(queues) * devices.len() as u32
            + u32::from(queues) * EXTRA_PACKETS)
            .next_power_of_two()
            - 1;
        let lock = Memory::lock();
        let memory = Memory::best_for(size, max_frame);
        let eal = Eal::start(memory, &pci).map_err(|e| memory_error(memory, &e))?;
        let pool = Mempool::for_frames(eal, size, max_frame).map_err(|e| memory_error(eal.memory(), &e))?;
        drop(lock);
        let mut external = ExternalPorts { eal, pool, monitors: vec![], nics: vec![], functions };
        let mut all = vec![];
        for (port, (name, device)) in devices.iter().enumerate() {
            let error = |problem: &str, remedy: String| Error::Environment {
                problem: format!("port {name:?}: {problem}"),
                remedy,
            };
            let Device::Dpdk { name: dpdk_name, arguments, .. } = device else {
                return Err(error("not a DPDK device", "name a device, not a capture file".to_owned()));
            };
            if let Some((problem, remedy)) = device::missing(device, false, max_frame) {
                return Err(error(&problem, remedy));
            }
            device::claim_socket(device)
                .map_err(|e| error(&e, "name another socket, or stop that process".to_owned()))?;
            let fail = |e: dpdk::Error| error(&e.to_string(), device::remedy(device, &e));
            let dpdk_name = external.functions.addresses().get(name).unwrap_or(dpdk_name);
            let arguments = &device::driver_arguments(device, arguments, max_frame);
            let opened = Port::open(external.eal, dpdk_name, arguments).map_err(fail)?;
            let info = opened.info().map_err(fail)?;
            if let Some((problem, remedy)) = device::too_short(&info, max_frame) {
                return Err(error(&problem, remedy));
            }
            let most = info.max_rx_queues.min(info.max_tx_queues);
            if most < queues {
                return Err(error(
                    &format!(
                        "{device} has {most} queues in each direction, and {queues} generator cores need {queues}"
                    ),
                    format!("use {most} generator cores, or a device with more queues"),
                ));
            }
            let config = PortConfig {
                descriptors: DESCRIPTORS,
                rx_queues: queues,
                tx_queues: queues,
                max_frame,
                ..PortConfig::default()
            };
            let function = external.functions.addresses().get(name).map(String::as_str);
            if let Some(address) = function.or(device.pci_address()) {
                external.nics.push(Nic::read(name, address, info.firmware.clone()));
            }
            let started = opened.start(&config, &external.pool).map_err(fail)?;
            external.monitors.push(PortMonitor::new(device, &info, started.port));
            let pairs = started.rx.into_iter().zip(started.tx).enumerate();
            all.extend(pairs.map(|(queue, (rx, tx))| PortQueues { port, queue, rx, tx }));
        }
        Ok((external, all))
    }

    /// Returns the EAL.
    pub fn eal(&self) -> Eal {
        self.eal
    }

    /// Returns the name of the kind of memory that packets are in.
    pub fn memory(&self) -> &'static str {
        self.eal.memory().name()
    }

    /// Returns the packet pool.
    pub fn pool(&self) -> &Arc<Mempool> {
        &self.pool
    }

    /// Returns the network cards behind the ports.
    pub fn nics(&self) -> &[Nic] {
        &self.nics
    }

    /// Returns the link state of each port; `None` if it cannot be determined.
    pub fn links(&self) -> Vec<Option<bool>> {
        self.monitors.iter().map(PortMonitor::link).collect()
    }

    /// Returns the packets that the drivers of all ports report as lost: received into a full queue, without a buffer
    /// or with errors; and accepted for sending and not sent.
    pub fn driver_drops(&self) -> u64 {
        let drops = |monitor: &PortMonitor| {
            let stats = monitor.port.stats();
            stats.rx_missed + stats.rx_no_buffer + stats.rx_errors + stats.tx_errors
        };
        self.monitors.iter().map(drops).sum()
    }
}
