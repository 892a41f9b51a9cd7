//! Opens ports and assigns their queues to workers.

use super::links::{reachable_chains, receivers, senders, targets};
use super::planned_worker::PlannedWorker;
use crate::error::Error;
use crate::faults::run_errors::RunErrors;
use crate::pci::sriov::VirtualFunctions;
use crate::ports::{
    self, CaptureReader, CaptureWriter, JoinedWires, PortMonitor, PortQueues, RepresentorTap, Representors, SharedTx,
    SteeringKey, Wires,
};
use crate::{DrainPolicy, Input, Output, RxPort, Transmit, TxPort};
use config::{ChainFile, Device, Side, Spreading, Start};
use dpdk::{Driver, Eal, Mempool, Port, PortConfig, PortHandle, PortInfo, TxQueue};
use graph::{Spread, Target};
use pcap::LinkType;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The ports that are being opened.
pub(super) struct PortSetup<'a> {
    pub(super) file: &'a ChainFile,
    pub(super) functions: &'a VirtualFunctions,
    pub(super) eal: Eal,
    pub(super) pool: Arc<Mempool>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) errors: RunErrors,
    pub(super) monitors: Vec<(usize, PortMonitor)>,
    pub(super) representors: Representors,
    pub(super) taps: Vec<(usize, RepresentorTap)>,
    /// CPUs without workers.
    pub(super) control_cpus: Vec<usize>,
    pub(super) captures: Vec<(usize, CaptureWriter)>,
    pub(super) driver_buffers: usize,
    pub(super) notes: Vec<String>,
    pub(super) shared_rings: ports::SharedRings,
    /// True to enable rx interrupts on ports that support them.
    pub(super) rx_interrupts: bool,
}

impl PortSetup<'_> {
    /// Opens wires instead of every port except sandbox ports; returns the far ends.
    pub(super) fn open_wires(&mut self, wires: Wires, workers: &mut [PlannedWorker]) -> Result<Vec<PortQueues>, Error> {
        let mut far_ends = vec![];
        for (n, port) in self.file.ports.iter().enumerate() {
            match &port.device {
                Device::Dpdk { name, arguments, .. } if port.crossing_side.is_some() => {
                    self.open_device(n, name, arguments, workers)?;
                }
                Device::Rings { socket, queue, queues } => {
                    self.open_shared_ring(n, socket, (*queue, *queues), workers)?
                }
                Device::Queue { .. } => {}
                _ => far_ends.extend(self.open_port_wires(n, wires, workers)?),
            }
        }
        Ok(far_ends)
    }

    fn open_port_wires(
        &mut self,
        port: usize,
        wires: Wires,
        workers: &mut [PlannedWorker],
    ) -> Result<Vec<PortQueues>, Error> {
        let (polled, senders) = self.port_users(port, workers);
        let fail = |e: dpdk::Error| self.environment_error(port, &e.to_string(), "check free memory".to_owned());
        let config = PortConfig::default();
        let (mut near_rx, mut near_tx, mut far_ends) = (vec![], vec![], vec![]);
        for queue in 0..wires.per_port {
            let (near, far) = Port::wire(self.eal, wires.depth).map_err(fail)?;
            let near = near.start(&config, &self.pool).map_err(fail)?;
            let mut far = far.start(&config, &self.pool).map_err(fail)?;
            near_rx.extend(near.rx);
            near_tx.extend(near.tx);
            far_ends.push(PortQueues { port, queue, rx: far.rx.remove(0), tx: far.tx.remove(0) });
        }
        if !polled.is_empty() {
            let from = match near_rx.len() {
                1 => RxPort::Device(near_rx.remove(0)),
                _ => RxPort::Other(Box::new(JoinedWires::new(near_rx))),
            };
            self.add_inputs(port, from, &polled, workers, false, DrainPolicy::Stop);
        }
        // workers with a wire of their own need no lock
        let shared = senders.len() > near_tx.len();
        add_outputs(port, near_tx, &senders, workers, shared);
        Ok(far_ends)
    }

    /// Opens ports.
    pub(super) fn open(&mut self, ports: &[usize], workers: &mut [PlannedWorker]) -> Result<(), Error> {
        let mut order = ports.to_vec();
        // a server has to be started before its client connects; captures wait for the links of the others
        order.sort_by_key(|&p| match &self.file.ports[p].device {
            Device::Pcap(_) => 2,
            Device::Queue { .. } | Device::Rings { .. } => 0,
            Device::Dpdk { written, .. } => {
                u8::from(written.starts_with("virtio-user:") || written.contains("role=client"))
            }
        });
        for port in order {
            match self.file.ports[port].device.clone() {
                Device::Pcap(name) => self.open_capture(port, &name, workers)?,
                Device::Dpdk { .. } if self.file.ports[port].representor_tap().is_some() => {
                    self.open_representor(port, workers)?
                }
                Device::Dpdk { name, arguments, .. } => {
                    let function = self.functions.addresses().get(&self.file.ports[port].name);
                    self.open_device(port, function.unwrap_or(&name), &arguments, workers)?;
                }
                Device::Rings { socket, queue, queues } => {
                    self.open_shared_ring(port, &socket, (queue, queues), workers)?
                }
                // opened with the first queue of the device
                Device::Queue { .. } => {}
            }
        }
        Ok(())
    }

    /// Returns the workers that poll the port, with the entry of its packets into their graphs, and those that send to
    /// it.
    pub(super) fn port_users(&self, port: usize, workers: &[PlannedWorker]) -> (Vec<(usize, Target)>, Vec<usize>) {
        (receivers(self.file, Start::Port(port), workers), senders(port, workers))
    }

    /// Returns the ports by which packets of this port can leave.
    fn reachable_ports(&self, port: usize) -> Vec<usize> {
        let plan = self.file.worker(&reachable_chains(self.file, port));
        (0..self.file.ports.len()).filter(|&p| targets(&plan).any(|t| *t == Target::Port(p as u16))).collect()
    }

    fn environment_error(&self, port: usize, problem: &str, remedy: String) -> Error {
        Error::Environment { problem: format!("port {:?}: {problem}", self.file.ports[port].name), remedy }
    }

    fn open_capture(&mut self, port: usize, name: &str, workers: &mut [PlannedWorker]) -> Result<(), Error> {
        let path = self.file.folder().join(name);
        let (polled, senders) = self.port_users(port, workers);
        let p = &self.file.ports[port];
        let failed = |e: pcap::Error| Error::Environment {
            problem: format!("port {:?}: {e}", p.name),
            remedy: "name a pcap or pcapng file that this user may read, or a path that this user may write".into(),
        };
        if !polled.is_empty() {
            if let Some(link_type) = ports::first_link_type(&path).map_err(failed)?.filter(|t| *t != LinkType::ETHERNET)
            {
                self.notes.push(format!(
                    "capture {} contains {link_type} frames; NFs parse every frame as Ethernet",
                    path.display()
                ));
            }
            let reachable = self.reachable_ports(port);
            let monitors: Vec<_> = self.monitors.iter().filter(|(port, _)| reachable.contains(port)).collect();
            // sandbox ports get their link without the user
            let unlinked = monitors.iter().filter(|(port, monitor)| {
                self.file.ports[*port].crossing_side.is_none() && monitor.link() == Some(false)
            });
            for (unlinked, _) in unlinked {
                self.notes.push(format!(
                    "capture {} is read once port {:?} has a link",
                    path.display(),
                    self.file.ports[*unlinked].name
                ));
            }
            let links = monitors.into_iter().map(|(_, monitor)| monitor.clone()).collect();
            let reader = CaptureReader::open(&path, p.repeat, p.timed, links, self.pool.clone(), self.errors.clone())
                .map_err(failed)?;
            self.add_inputs(port, RxPort::Other(Box::new(reader)), &polled, workers, true, DrainPolicy::Stop);
        }
        if !senders.is_empty() {
            let writer = CaptureWriter::create(&path, self.link_type(port), self.errors.clone()).map_err(failed)?;
            for n in senders {
                add_output(port, TxPort::Other(Box::new(writer.clone())), &mut workers[n]);
            }
            self.captures.push((port, writer));
        }
        Ok(())
    }

    /// Returns the link type that all sources of this port have in common, or Ethernet.
    fn link_type(&self, to: usize) -> LinkType {
        let sources = (0..self.file.ports.len()).filter(|&p| self.reachable_ports(p).contains(&to));
        let read = sources.map(|p| match &self.file.ports[p].device {
            Device::Pcap(name) => ports::first_link_type(&self.file.folder().join(name)).ok().flatten(),
            Device::Dpdk { .. } | Device::Queue { .. } | Device::Rings { .. } => Some(LinkType::ETHERNET),
        });
        let mut types: Vec<LinkType> = read.flatten().collect();
        types.dedup();
        if let [one] = types[..] { one } else { LinkType::ETHERNET }
    }

    fn open_device(
        &mut self,
        port: usize,
        name: &str,
        arguments: &str,
        workers: &mut [PlannedWorker],
    ) -> Result<(), Error> {
        let (polled, senders) = self.port_users(port, workers);
        let plan = &self.file.ports[port];
        let fail = |e: dpdk::Error| self.environment_error(port, &e.to_string(), ports::remedy(&plan.device, &e));
        ports::claim_socket(&plan.device)
            .map_err(|e| self.environment_error(port, &e, "name another socket, or stop that process".to_owned()))?;
        // sandboxes do not see the directory of PCI devices
        let checked = Some(plan).filter(|port| port.device.pci_address().is_none());
        if let Some((problem, remedy)) =
            checked.and_then(|port| ports::missing(&port.device, port.existing, self.file.max_frame))
        {
            return Err(self.environment_error(port, &problem, remedy));
        }
        let arguments = &ports::driver_arguments(&plan.device, arguments, self.file.max_frame);
        let opened = Port::open(self.eal, name, arguments).map_err(fail)?;
        let info = opened.info().map_err(fail)?;
        if let Some((problem, remedy)) = ports::too_short(&info, self.file.max_frame) {
            return Err(self.environment_error(port, &problem, remedy));
        }
        let extra = extra_queues(self.file, port);
        if !extra.is_empty() {
            return self.open_queues(port, extra, (opened, info), workers);
        }
        let ring = info.driver == Driver::Ring;
        let multi_queue = info.driver.is_multi_queue();
        let hardware = polled.len() > 1
            && multi_queue
            && usize::from(info.max_rx_queues) >= polled.len()
            && match self.file.spreading(port) {
                Spreading { requirement: Spread::Any, .. } => true,
                // devices do not hash alike
                Spreading { requirement: Spread::Flow, is_shared, .. } => info.rss && !is_shared,
                Spreading { requirement: Spread::Symmetric | Spread::Hosts | Spread::Custom, .. } => false,
            };
        let rx_queues = if hardware { polled.len() } else { 1 };
        // with more transmit queues a tap would have receive queues that no worker polls
        let paired = info.driver.has_paired_queues();
        let max_tx = if paired { rx_queues } else { usize::from(info.max_tx_queues) };
        let shared = !multi_queue || max_tx < senders.len();
        let config = PortConfig {
            rx_queues: rx_queues as u16,
            tx_queues: match shared {
                _ if paired => rx_queues as u16,
                true => 1,
                false => senders.len().max(1) as u16,
            },
            descriptors: plan.descriptors,
            rx_interrupts: self.rx_interrupts && info.driver.supports_rx_interrupts(),
            max_frame: self.file.max_frame,
        };
        let queues = opened.start(&config, &self.pool).map_err(fail)?;
        if info.driver == Driver::Memif && plan.crossing_side == Some(Side::Sandboxed) {
            self.wait_for_link(port, &queues.port)?;
        }
        self.monitors.push((port, PortMonitor::new(&plan.device, &info, queues.port)));
        ports::enter_namespace(plan).map_err(|(problem, remedy)| self.environment_error(port, &problem, remedy))?;
        self.driver_buffers += ports::buffers_kept_by_driver(&info, &config, arguments);
        self.notes.extend(ports::note(&plan.name, &plan.device, self.file.max_frame));
        let mut rx = queues.rx.into_iter();
        let (drain, backpressure) = self.drain_policy(port);
        let drain = if ring { DrainPolicy::UntilQuiet } else { drain };
        if hardware {
            for (user, queue) in polled.iter().zip(rx.by_ref()) {
                self.add_inputs(port, RxPort::Device(queue), std::slice::from_ref(user), workers, backpressure, drain);
            }
        } else if !polled.is_empty()
            && let Some(queue) = rx.next()
        {
            self.add_inputs(port, RxPort::Device(queue), &polled, workers, backpressure, drain);
        }
        add_outputs(port, queues.tx, &senders, workers, shared);
        self.set_yield_when_full(port, &senders, workers);
        Ok(())
    }

    /// Opens a device of which each queue is a port of its own: vhost or virtio, whose drivers retain no packets.
    fn open_queues(
        &mut self,
        port: usize,
        extra: Vec<usize>,
        (opened, info): (Port, PortInfo),
        workers: &mut [PlannedWorker],
    ) -> Result<(), Error> {
        let plan = &self.file.ports[port];
        let fail = |e: dpdk::Error| self.environment_error(port, &e.to_string(), ports::remedy(&plan.device, &e));
        let wanted = 1 + extra.len();
        let available = usize::from(info.max_rx_queues.min(info.max_tx_queues));
        if available < wanted {
            let problem = format!("{wanted} queues are configured, and the device has {available}");
            return Err(self.environment_error(port, &problem, "configure fewer queues".to_owned()));
        }
        let config = PortConfig {
            rx_queues: wanted as u16,
            tx_queues: wanted as u16,
            descriptors: plan.descriptors,
            rx_interrupts: self.rx_interrupts && info.driver.supports_rx_interrupts(),
            max_frame: self.file.max_frame,
        };
        let queues = opened.start(&config, &self.pool).map_err(fail)?;
        // the driver's counts are those of all queues
        self.monitors.push((port, PortMonitor::new(&plan.device, &info, queues.port)));
        let (drain, backpressure) = self.drain_policy(port);
        let all = std::iter::once(port).chain(extra);
        for (port, (rx, tx)) in all.zip(queues.rx.into_iter().zip(queues.tx)) {
            let (polled, senders) = self.port_users(port, workers);
            if !polled.is_empty() {
                self.add_inputs(port, RxPort::Device(rx), &polled, workers, backpressure, drain);
            }
            add_outputs(port, vec![tx], &senders, workers, true);
            self.set_yield_when_full(port, &senders, workers);
        }
        Ok(())
    }

    /// Returns the drain policy of a port, and true if its source can wait. The host side never waits for a sandbox,
    /// which is not trusted; a sandbox may wait for the host side.
    pub(super) fn drain_policy(&self, port: usize) -> (DrainPolicy, bool) {
        match self.file.ports[port].crossing_side {
            Some(Side::Host) => (DrainPolicy::UntilReleased { endless: false }, false),
            Some(Side::Sandboxed) => (DrainPolicy::UntilReleased { endless: true }, true),
            None => (DrainPolicy::Stop, false),
        }
    }

    /// Makes outputs into a sandbox yield the CPU when full, as the sandboxed process may share it.
    fn set_yield_when_full(&self, port: usize, senders: &[usize], workers: &mut [PlannedWorker]) {
        for &n in senders {
            if let Some(output) = &mut workers[n].outputs[port] {
                output.yields_when_full = self.file.ports[port].crossing_side == Some(Side::Host);
            }
        }
    }

    /// Opens a sandbox port over shared-memory rings.
    fn open_shared_ring(
        &mut self,
        port: usize,
        socket: &Path,
        queue: (usize, usize),
        workers: &mut [PlannedWorker],
    ) -> Result<(), Error> {
        let (polled, senders) = self.port_users(port, workers);
        let side = self.file.ports[port].crossing_side.unwrap_or(Side::Host);
        let (rx, tx): ports::RingEnds = self.shared_rings.open(side, socket, queue, &self.pool).map_err(|e| {
            let problem = format!("shared-memory rings: {}: {e}", socket.display());
            self.environment_error(port, &problem, "set transport = \"memif\", which shares less memory".to_owned())
        })?;
        let (drain, backpressure) = self.drain_policy(port);
        if !polled.is_empty() {
            self.add_inputs(port, RxPort::Other(rx), &polled, workers, backpressure, drain);
        }
        add_shared_output(port, tx, &senders, workers);
        self.set_yield_when_full(port, &senders, workers);
        Ok(())
    }

    /// Creates the tap of a representor.
    fn open_representor(&mut self, port: usize, workers: &mut [PlannedWorker]) -> Result<(), Error> {
        let (polled, senders) = self.port_users(port, workers);
        let plan = &self.file.ports[port];
        let Some(name) = plan.representor_tap() else { return Ok(()) };
        let opened = self.representors.open((plan, name), self.file.max_frame, &self.pool, &self.control_cpus);
        let (tap, rx, tx) = opened.map_err(|(problem, remedy)| self.environment_error(port, &problem, remedy))?;
        self.taps.push((port, tap));
        if !polled.is_empty() {
            self.add_inputs(port, RxPort::Other(Box::new(rx)), &polled, workers, false, DrainPolicy::Stop);
        }
        add_shared_output(port, Box::new(tx), &senders, workers);
        Ok(())
    }

    /// Waits until DPDK's interrupt thread has brought the link up, which takes system calls that are forbidden later.
    fn wait_for_link(&self, port: usize, handle: &PortHandle) -> Result<(), Error> {
        const TIMEOUT: Duration = Duration::from_secs(10);
        let deadline = Instant::now() + TIMEOUT;
        while !handle.link_up() {
            if Instant::now() > deadline {
                let problem = format!("no link after {TIMEOUT:?}");
                return Err(self.environment_error(port, &problem, "check the log of the host side".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Assigns a receive queue to the workers that poll it: directly to a single one, or by software steering.
    pub(super) fn add_inputs(
        &mut self,
        port: usize,
        rx: RxPort,
        users: &[(usize, Target)],
        workers: &mut [PlannedWorker],
        backpressure: bool,
        drain: DrainPolicy,
    ) {
        let mut sources = vec![];
        if users.len() == 1 {
            sources.push((rx, drain));
        } else {
            let key = SteeringKey::of(self.file, self.file.spreading(port), users.len());
            self.notes.push(steering_note(&self.file.ports[port].name, users, workers));
            let (own, others) = ports::steer(rx, key, users.len(), (backpressure, 0), self.stop.clone());
            sources.push((RxPort::Other(Box::new(own)), drain));
            sources.extend(others.into_iter().map(|o| (RxPort::Other(Box::new(o)), DrainPolicy::UntilFinished)));
        }
        for ((rx, drain), &(n, entry)) in sources.into_iter().zip(users) {
            workers[n].inputs.push((port, Input { rx, entry, stats: Arc::default(), backpressure, drain }));
        }
    }
}

/// Returns the ports that are additional queues of a port's device, in order.
pub(super) fn extra_queues(file: &ChainFile, port: usize) -> Vec<usize> {
    let name = &file.ports[port].name;
    let nth = |port: &usize| match &file.ports[*port].device {
        Device::Queue { port: first, queue } if first == name => Some(*queue),
        _ => None,
    };
    let mut extra: Vec<usize> = (0..file.ports.len()).filter(|port| nth(port).is_some()).collect();
    extra.sort_by_key(nth);
    extra
}

/// Returns a note about a port whose packets are spread over CPUs by the first one.
fn steering_note(port: &str, users: &[(usize, Target)], workers: &[PlannedWorker]) -> String {
    let list = |users: &[(usize, Target)]| {
        let cpus: Vec<String> = users.iter().map(|(worker, _)| workers[*worker].cpu.to_string()).collect();
        format!("CPU{} {}", if cpus.len() > 1 { "s" } else { "" }, cpus.join(", "))
    };
    let (first, others) = users.split_at(1);
    format!(
        "port {port:?}: the device does not spread packets as the NFs require: {} receives all and passes those of {} \
         through rings; NFs that take fewer cycles per packet than a ring, about 130, are faster on one CPU",
        list(first),
        list(others)
    )
}

fn add_output(port: usize, tx: TxPort, worker: &mut PlannedWorker) {
    let mut output = Output::new(tx);
    // waiting for room in a ring that the same worker empties would never end
    output.self_consumed = worker.inputs.iter().any(|(p, i)| *p == port && i.drain == DrainPolicy::UntilQuiet);
    worker.outputs[port] = Some(output);
}

/// Shares one transmit queue among all workers that send to a port.
fn add_shared_output(port: usize, tx: Box<dyn Transmit>, senders: &[usize], workers: &mut [PlannedWorker]) {
    if let [only] = senders {
        return add_output(port, TxPort::Other(tx), &mut workers[*only]);
    }
    let tx = Arc::new(Mutex::new(tx));
    for &n in senders {
        add_output(port, TxPort::Other(Box::new(SharedTx::new(&tx))), &mut workers[n]);
    }
}

fn add_outputs(port: usize, tx: Vec<TxQueue>, senders: &[usize], workers: &mut [PlannedWorker], shared: bool) {
    let mut tx = tx.into_iter();
    if shared && senders.len() > 1 {
        let Some(queue) = tx.next() else { return };
        return add_shared_output(port, Box::new(queue), senders, workers);
    }
    for (&n, queue) in senders.iter().zip(tx) {
        add_output(port, TxPort::Device(queue), &mut workers[n]);
    }
}
