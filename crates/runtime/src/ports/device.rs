//! DPDK devices.

use super::io::{SharedQueue, Transmit, TxPort};
use super::tap_descriptor::TapDescriptor;
use crate::pci::sriov::missing_nic;
use config::{ChainFile, Device, Port, Sandbox, Transport};
use diagnostics::Diagnostic;
use dpdk::netdev;
use dpdk::{Driver, PortConfig, PortHandle, PortInfo, PortStats, TxQueue};
use packet::Batch;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of an Ethernet header, which an MTU does not include.
pub(super) const ETHERNET_HEADER: u32 = 14;

impl Transmit for TxQueue {
    fn send(&mut self, batch: &mut Batch) -> usize {
        TxQueue::send(self, batch)
    }
    fn bytes(&self) -> u64 {
        TxQueue::bytes(self)
    }
}

/// A transmit queue that several workers share, as the device has fewer queues than there are workers.
pub(crate) struct SharedTx {
    queue: SharedQueue,
    /// Bytes sent by this worker.
    bytes: u64,
}

impl SharedTx {
    pub(crate) fn new(queue: &SharedQueue) -> Self {
        SharedTx { queue: queue.clone(), bytes: 0 }
    }

    /// Lets others send to what one worker has sent to so far; that worker goes on counting bytes.
    pub(crate) fn share(tx: TxPort) -> (SharedQueue, SharedTx) {
        let bytes = tx.bytes();
        let queue = tx.shared().unwrap_or_else(|| {
            Arc::new(Mutex::new(match tx {
                TxPort::Device(queue) => Box::new(queue),
                TxPort::Other(other) => other,
            }))
        });
        (queue.clone(), SharedTx { queue, bytes })
    }
}

impl Transmit for SharedTx {
    fn send(&mut self, batch: &mut Batch) -> usize {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let before = queue.bytes();
        let n = queue.send(batch);
        self.bytes += queue.bytes() - before;
        n
    }
    fn maintain(&mut self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).maintain();
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn shared(&self) -> Option<SharedQueue> {
        Some(self.queue.clone())
    }
}

/// The link state and counts of a port.
#[derive(Clone)]
pub(crate) struct PortMonitor {
    pub(crate) port: PortHandle,
    interface: Interface,
    driver: Driver,
    /// True once the link has been up.
    had_link: Arc<AtomicBool>,
}

/// The kernel interface of a port.
#[derive(Clone)]
enum Interface {
    None,
    /// A tap, which may be in another network namespace.
    Tap(String, Option<TapDescriptor>),
    /// An interface to which the driver has a socket.
    Attached(String),
}

impl PortMonitor {
    pub(crate) fn new(device: &Device, info: &PortInfo, port: PortHandle) -> Self {
        let interface = match device.scheme_and_target() {
            Some(("tap", name)) => Interface::Tap(name.to_owned(), TapDescriptor::find(name)),
            Some(("af_packet" | "af_xdp", name)) => Interface::Attached(name.to_owned()),
            _ => Interface::None,
        };
        PortMonitor { port, interface, driver: info.driver, had_link: Arc::default() }
    }

    /// Returns the packets that the driver received and dropped. For virtio these are packets shorter than an Ethernet
    /// header or with an invalid header; errors of other drivers are packets that were not received completely.
    pub(crate) fn rx_dropped(&self, stats: &PortStats) -> u64 {
        if self.driver.drops_rx_errors() { stats.rx_errors } else { 0 }
    }

    /// Returns true if what is sent to the port is received from it.
    pub(crate) fn is_ring(&self) -> bool {
        self.driver == Driver::Ring
    }

    /// Returns the link state; `None` if it cannot be determined.
    pub(crate) fn link(&self) -> Option<bool> {
        let link = match &self.interface {
            // the drivers report the link as up from start to stop
            Interface::Attached(name) => Some(netdev::is_running(name)),
            // in another network namespace the driver does not find the interface, and reports the link as down
            Interface::Tap(name, _) if !netdev::exists(name) => self.is_deleted().then_some(false),
            _ => Some(self.port.link_up()),
        };
        if link == Some(true) {
            self.had_link.store(true, Ordering::Relaxed);
        }
        link
    }

    /// Returns an error if the kernel interface was deleted, or if one with a socket was moved into another network
    /// namespace.
    pub(crate) fn deletion(&self) -> Option<String> {
        let name = self.interface_name().filter(|_| self.is_deleted())?;
        Some(format!("interface {name} was deleted during the run"))
    }

    /// Returns an error if a kernel interface that exists had a link in an earlier call of [`link`](Self::link) and has
    /// none.
    pub(crate) fn link_loss(&self) -> Option<String> {
        let name = self.interface_name().filter(|_| !self.is_deleted())?;
        let lost = self.had_link.load(Ordering::Relaxed) && self.link() == Some(false);
        lost.then(|| format!("interface {name} lost its link during the run"))
    }

    fn interface_name(&self) -> Option<&str> {
        match &self.interface {
            Interface::Tap(name, _) | Interface::Attached(name) => Some(name),
            Interface::None => None,
        }
    }

    fn is_deleted(&self) -> bool {
        match &self.interface {
            Interface::Tap(_, descriptor) => descriptor.as_ref().is_some_and(TapDescriptor::is_detached),
            Interface::Attached(name) => !netdev::exists(name),
            Interface::None => false,
        }
    }
}

/// Moves a new tap into the network namespace of its port.
///
/// # Errors
/// The problem and the remedy.
pub(crate) fn enter_namespace(port: &Port) -> Result<(), (String, String)> {
    let (Some((_, name)), Some(namespace)) = (port.device.scheme_and_target(), &port.namespace) else { return Ok(()) };
    netdev::move_to_namespace(name, namespace).map_err(|e| {
        let remedy = format!("create the namespace (ip netns add {namespace}), and run as root");
        (format!("tap {name} could not be moved into the network namespace {namespace:?}: {e}"), remedy)
    })
}

/// Returns the arguments of a driver with those that frames of up to `max_frame` bytes need, unless they are written.
pub(crate) fn driver_arguments(device: &Device, arguments: &str, max_frame: usize) -> String {
    if max_frame <= packet::MAX_FRAME {
        return arguments.to_owned();
    }
    match device.scheme_and_target() {
        Some(("af_packet", _)) if !arguments.contains("framesz=") && !arguments.contains("blocksz=") => {
            let size = packet::data_room(max_frame);
            format!("{arguments},framesz={size},blocksz={}", 4 * size)
        }
        Some(("memif", _)) if !arguments.contains("bsize=") => {
            format!("{arguments},bsize={}", packet::data_room(max_frame))
        }
        _ => arguments.to_owned(),
    }
}

/// Checks that no process listens at the socket of a device, and removes a stale socket, such as that of a killed
/// process. DPDK's drivers fail on a stale socket, and replace one that is in use.
///
/// # Errors
/// Another process listens at the socket.
pub(crate) fn claim_socket(device: &Device) -> Result<(), String> {
    let Device::Dpdk { written, .. } = device else { return Ok(()) };
    let (address, more) = written.split_once(',').unwrap_or((written, ""));
    let client = more.contains("role=client") || more.contains("client=1");
    let path = match address.split_once(':') {
        Some(("vhost" | "memif", path)) if !client => Path::new(path),
        _ => return Ok(()),
    };
    if !std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        return Ok(());
    }
    let in_use = || Err(format!("another process listens at {}", path.display()));
    match UnixStream::connect(path).map_err(|e| (e.kind(), e.raw_os_error())) {
        Ok(_) | Err((_, Some(libc::EPROTOTYPE))) => in_use(),
        // only a stale socket refuses connections; if it cannot be removed, the driver reports an error
        Err((ErrorKind::ConnectionRefused, _)) => {
            let _ = std::fs::remove_file(path);
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

/// Returns the problem and the remedy if this machine lacks the device, has a tap that is not to exist, or an interface
/// whose MTU is too small for frames of `max_frame` bytes. NICs of virtual functions are checked when the functions are
/// created.
pub(crate) fn missing(device: &Device, existing_tap: bool, max_frame: usize) -> Option<(String, String)> {
    if let Some(address) = device.pci_address().map(config::full_pci_address) {
        let exists = Path::new("/sys/bus/pci/devices").join(&address).exists();
        let remedy = "name a NIC by an address that lspci -D shows, and bind it to vfio-pci".to_owned();
        return (!exists).then(|| (format!("there is no PCI device {address}"), remedy));
    }
    match device.scheme_and_target()? {
        ("af_packet" | "af_xdp", name) if !netdev::exists(name) => {
            let all = netdev::names().join(", ");
            Some((
                format!("there is no interface {name:?}"),
                format!("name one of the interfaces {all}, or create {name} first"),
            ))
        }
        ("af_packet" | "af_xdp", name)
            if max_frame > packet::MAX_FRAME
                && netdev::mtu(name).is_some_and(|mtu| (mtu + ETHERNET_HEADER) < max_frame as u32) =>
        {
            let mtu = max_frame as u32 - ETHERNET_HEADER;
            Some((
                format!("the MTU of interface {name:?} is too small for frames of {max_frame} bytes"),
                format!("ip link set {name} mtu {mtu}, also at the other end of the link"),
            ))
        }
        ("tap", name) if netdev::exists(name) && netdev::driver(name).as_deref() != Some("tun") => Some((
            format!("an interface {name:?} exists, and is not a tap"),
            format!("choose another name, or open the interface with \"af_packet:{name}\""),
        )),
        ("tap", name) if netdev::is_running(name) => {
            Some((format!("another process uses the tap {name:?}"), "stop it, or choose another name".to_owned()))
        }
        ("tap", name) if netdev::exists(name) && !existing_tap => Some((
            format!("a tap {name:?} exists"),
            format!("choose another name, delete it (ip link delete {name}), or use it: existing = true in the port"),
        )),
        ("tap", name) if !netdev::exists(name) && existing_tap => Some((
            format!("there is no tap {name:?}"),
            format!("create it (ip tuntap add {name} mode tap multi_queue), or remove existing = true"),
        )),
        _ => None,
    }
}

/// As [`missing`], before virtual functions are created.
fn missing_or_nic(device: &Device, existing_tap: bool, max_frame: usize) -> Option<(String, String)> {
    match device.virtual_function() {
        Some(function) => missing_nic(Path::new("/sys"), &function.physical),
        None => missing(device, existing_tap, max_frame),
    }
}

/// Returns an error for each device that a chain file names and this machine lacks.
pub fn missing_devices(file: &ChainFile) -> Vec<Diagnostic> {
    let error = |(n, port): (usize, &Port)| {
        // that of a representor is created in its namespace, and must be new there
        let is_elsewhere = port.representor_tap().is_some() && port.namespace.is_some();
        let missing = if is_elsewhere { None } else { missing_or_nic(&port.device, port.existing, file.max_frame) };
        let (problem, remedy) = missing?;
        Some(file.locate_device(n, Diagnostic::new(problem).remedy(remedy)))
    };
    let devices = file.ports.iter().enumerate().filter_map(error);
    let free = dpdk::Memory::free_huge_pages();
    let zero_copy = |sandbox: &&Sandbox| free == 0 && sandbox.transport == Transport::MemifZeroCopy;
    let sandboxes = file.sandboxes.iter().filter(zero_copy).map(|sandbox| {
        let d = Diagnostic::new("the transport \"memif-zero-copy\" needs huge pages, and none are free");
        let remedy = "echo 512 | sudo tee /proc/sys/vm/nr_hugepages; or set transport = \"memif\", which needs none";
        Diagnostic { file: Some(file.file.clone()), ..d.value(&sandbox.name).remedy(remedy) }
    });
    devices.chain(sandboxes).collect()
}

/// Returns an error if this machine lacks a device that is written as in a chain file.
pub fn missing_device(written: &str) -> Option<Diagnostic> {
    let (problem, remedy) = missing_or_nic(&Device::parse(written, "port").ok()?, false, packet::MAX_FRAME)?;
    Some(Diagnostic::new(problem).value(written).remedy(remedy))
}

/// Returns the packet buffers that a driver may retain after it has closed.
pub(crate) fn buffers_kept_by_driver(info: &PortInfo, config: &PortConfig, arguments: &str) -> usize {
    /// Packets in the fill ring and in the completion ring of an AF_XDP socket.
    const RINGS: usize = 2 * 2048;
    let per_queue = match info.driver {
        // the driver does not recover buffers held by the kernel
        Driver::AfXdp => RINGS + usize::from(config.descriptors),
        // nor memif those that the peer may write to or has not read
        Driver::Memif if arguments.contains("zero-copy=yes") => 2 * Sandbox::QUEUE_SIZE,
        _ => 0,
    };
    per_queue * usize::from(config.rx_queues)
}

/// Returns a note about a device that may corrupt or drop packets unexpectedly.
pub(crate) fn note(port: &str, device: &Device, max_frame: usize) -> Option<String> {
    /// Longest frame that the driver's ring can hold by default.
    const AF_PACKET: u32 = 1982;
    let (kind @ ("af_packet" | "af_xdp"), interface) = device.scheme_and_target()? else { return None };
    if netdev::driver(interface).as_deref() == Some("veth") {
        // the other end is often in another namespace, where it cannot be checked from here
        return Some(format!(
            "port {port:?}: {interface} is one end of a veth pair, over which the kernel sends packets without \
             checksums and segmentation; at the other end: ethtool -K INTERFACE tx off tso off gso off"
        ));
    }
    let longest = if max_frame > packet::MAX_FRAME { max_frame as u32 } else { AF_PACKET };
    let long = netdev::mtu(interface).is_some_and(|mtu| mtu + ETHERNET_HEADER > longest);
    (kind == "af_packet" && (long || netdev::gro_enabled(interface))).then(|| {
        format!(
            "port {port:?}: frames longer than {longest} bytes are truncated, and {interface} may receive such frames: \
             ip link set {interface} mtu 1500; ethtool -K {interface} gro off lro off"
        )
    })
}

/// Returns the problem and the remedy if a device cannot be configured for frames of `max_frame` bytes.
pub(crate) fn too_short(info: &PortInfo, max_frame: usize) -> Option<(String, String)> {
    (max_frame > packet::MAX_FRAME && max_frame > info.max_frame).then(|| {
        let most = info.max_frame;
        (
            format!("the device has frames of up to {most} bytes, and {max_frame} are needed"),
            format!("use shorter frames, max_frame = {most} or less without FCS, or another kind of port"),
        )
    })
}

/// Returns the likely remedy for a device that cannot be opened.
pub(crate) fn remedy(device: &Device, e: &dpdk::Error) -> String {
    let Device::Dpdk { written, name, .. } = device else { return String::new() };
    let root = rustix::process::geteuid().is_root();
    let as_root = |capability: &str, what: &str| {
        if root {
            format!("check that {what}, and that no other process uses it")
        } else {
            format!(
                "run as root or grant the capability: sudo setcap {capability}+ep $(command -v bondstone); \
                 check that {what}"
            )
        }
    };
    let target = written.split_once(':').map_or("", |(_, t)| t.split(',').next().unwrap_or(""));
    match written.split([':', ',']).next().unwrap_or("") {
        "sriov" => "run bondstone doctor; DPDK may have no driver for this virtual function".to_owned(),
        _ if device.pci_address().is_some() => format!(
            "enable the IOMMU, and bind the device to a driver that DPDK can use: sudo modprobe vfio-pci && \
             sudo dpdk-devbind.py -b vfio-pci {name}"
        ),
        "tap" => as_root("cap_net_admin", &format!("/dev/net/tun exists, for {target:?}")),
        "af_packet" => as_root("cap_net_raw,cap_net_admin", &format!("interface {target:?} is up (ip link)")),
        "af_xdp" => {
            as_root("cap_net_raw,cap_net_admin,cap_bpf,cap_sys_admin", &format!("interface {target:?} is up (ip link)"))
        }
        "virtio-user" => format!("start the vhost-user side first: no process listens at {target}"),
        "vhost" => format!(
            "check that the directory of {target} exists and is writable, and that no other process listens there"
        ),
        "memif" if written.contains("zero-copy=yes") && e.log.contains("Zero-copy") => {
            "reserve huge pages: echo 512 | sudo tee /proc/sys/vm/nr_hugepages; \
             or set transport = \"memif\", which needs none"
                .to_owned()
        }
        "memif" => format!(
            "check that the directory of {target} exists and is writable; \
             the side that is started second needs role=client"
        ),
        _ if [libc::ENODEV, libc::EINVAL, libc::EFAULT].contains(&e.errno) => {
            format!("check the name of the driver and its arguments in {written:?}")
        }
        _ => format!("check the arguments in {written:?}; bondstone doctor checks this machine for what DPDK needs"),
    }
}
