//! DPDK's devices.

use crate::Transmit;
use config::{Device, Wall};
use dpdk::kernel;
use dpdk::{PortConfig, PortHandle, PortInfo, PortStats, TxQueue};
use packet::Batch;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

impl Transmit for TxQueue {
    fn send(&mut self, batch: &mut Batch) -> usize {
        TxQueue::send(self, batch)
    }
    fn bytes(&self) -> u64 {
        TxQueue::bytes(self)
    }
}

/// A transmit queue of a device that has fewer of them than there are workers.
pub(crate) struct Shared {
    queue: Arc<Mutex<Box<dyn Transmit>>>,
    /// Bytes that this worker has sent.
    bytes: u64,
}

impl Shared {
    pub(crate) fn new(queue: &Arc<Mutex<Box<dyn Transmit>>>) -> Self {
        Shared { queue: queue.clone(), bytes: 0 }
    }
}

impl Transmit for Shared {
    fn send(&mut self, batch: &mut Batch) -> usize {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let before = queue.bytes();
        let n = queue.send(batch);
        self.bytes += queue.bytes() - before;
        n
    }
    fn tend(&mut self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).tend();
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A port as those see it who only watch it.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) port: PortHandle,
    interface: Interface,
    is_virtio: bool,
}

/// The kernel's side of a port.
#[derive(Clone)]
enum Interface {
    None,
    /// Made by the port's driver.
    Made(String),
    /// There before.
    Found(String),
}

impl Watch {
    pub(crate) fn new(device: &Device, info: &PortInfo, port: PortHandle) -> Self {
        let interface = match kind_and_target(device) {
            Some(("tap", name)) => Interface::Made(name.to_owned()),
            Some(("af_packet" | "af_xdp", name)) => Interface::Found(name.to_owned()),
            _ => Interface::None,
        };
        Watch { port, interface, is_virtio: info.driver.starts_with("net_virtio") }
    }

    /// Packets that came and that the driver has dropped: virtio's those that are shorter than an Ethernet header, or say
    /// what makes no sense. What other drivers call an error never came whole.
    pub(crate) fn dropped(&self, stats: &PortStats) -> u64 {
        if self.is_virtio { stats.rx_errors } else { 0 }
    }

    /// Whether the other side is there; `None` when that cannot be known.
    pub(crate) fn link(&self) -> Option<bool> {
        match &self.interface {
            // these drivers call it up from start to stop
            Interface::Found(name) => Some(kernel::running(name)),
            // once it is in another network namespace, its driver asks after it in vain and calls it down
            Interface::Made(name) if !kernel::exists(name) => None,
            _ => Some(self.port.link_up()),
        }
    }
}

/// `KIND:TARGET` of a device that is written so.
fn kind_and_target(device: &Device) -> Option<(&str, &str)> {
    let Device::Dpdk { written, .. } = device else { return None };
    written.split(',').next()?.split_once(':').filter(|_| device.pci().is_none())
}

/// Makes sure that nobody has the socket that a device would listen at, and removes one that was left behind, as by a
/// process that was killed. DPDK's drivers refuse the latter, and take the former away from whoever has it.
///
/// # Errors
/// When somebody listens there.
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
    let taken = || Err(format!("somebody listens at {} already", path.display()));
    match UnixStream::connect(path).map_err(|e| (e.kind(), e.raw_os_error())) {
        Ok(_) | Err((_, Some(libc::EPROTOTYPE))) => taken(),
        // whatever kind of socket it is, only one that nobody holds refuses; when it cannot be removed the driver tells
        Err((ErrorKind::ConnectionRefused, _)) => {
            let _ = std::fs::remove_file(path);
            Ok(())
        }
        Err(_) => Ok(()),
    }
}

/// Packet buffers that a device's driver may keep for good when it closes.
pub(crate) fn drivers_own(info: &PortInfo, config: &PortConfig, arguments: &str) -> usize {
    /// Packets in the fill ring and in the completion ring of an AF_XDP socket.
    const RINGS: usize = 2 * 2048;
    let own = match info.driver.as_str() {
        // it forgets those that the kernel holds
        "net_af_xdp" => RINGS + usize::from(config.descriptors),
        // and those that its peer may write to or has not read
        "net_memif" if arguments.contains("zero-copy=yes") => 2 * Wall::QUEUE,
        _ => 0,
    };
    own * usize::from(config.rx_queues)
}

/// What the user may want to know about a device before wondering where packets are.
pub(crate) fn note(port: &str, device: &Device) -> Option<String> {
    /// Longest frame that the driver's ring holds, and the Ethernet header that an MTU leaves out.
    const AF_PACKET: (u32, u32) = (1982, 14);
    let (kind @ ("af_packet" | "af_xdp"), interface) = kind_and_target(device)? else { return None };
    if kernel::driver(interface).as_deref() == Some("veth") {
        // that end is often in another namespace, where nobody here can look
        return Some(format!(
            "port {port:?}: {interface} is an end of a veth pair, and the kernel leaves checksums and segmentation undone \
             between such ends; at the other end: ethtool -K INTERFACE tx off tso off gso off"
        ));
    }
    let (longest, header) = AF_PACKET;
    let long = kernel::mtu(interface).is_some_and(|mtu| mtu + header > longest);
    (kind == "af_packet" && (long || kernel::joins_packets(interface))).then(|| {
        format!(
            "port {port:?}: frames longer than {longest} bytes are cut, and {interface} may bring such: \
             ip link set {interface} mtu 1500; ethtool -K {interface} gro off lro off"
        )
    })
}

/// What probably mends a device that does not open.
pub(crate) fn remedy(device: &Device, e: &dpdk::Error) -> String {
    let Device::Dpdk { written, name, .. } = device else { return String::new() };
    let root = rustix::process::geteuid().is_root();
    let as_root = |capability: &str, what: &str| {
        if root {
            format!("check that {what}, and that no other process has it")
        } else {
            format!(
                "run as root, or give the program the right: sudo setcap {capability}+ep $(command -v bondstone); and check that {what}"
            )
        }
    };
    let target = written.split_once(':').map_or("", |(_, t)| t.split(',').next().unwrap_or(""));
    match written.split([':', ',']).next().unwrap_or("") {
        "sriov" => {
            "bondstone doctor finds what DPDK lacks on this machine; DPDK may have no driver for this virtual function"
                .to_owned()
        }
        _ if device.pci().is_some() => format!(
            "bind it to a driver that DPDK can use: sudo modprobe vfio-pci && sudo dpdk-devbind.py -b vfio-pci {name}; and switch on the IOMMU"
        ),
        "tap" => as_root("cap_net_admin", &format!("no interface is called {target:?} yet and /dev/net/tun is there")),
        "af_packet" => as_root("cap_net_raw,cap_net_admin", &format!("there is an interface {target:?} (ip link)")),
        "af_xdp" => as_root(
            "cap_net_raw,cap_net_admin,cap_bpf,cap_sys_admin",
            &format!("there is an interface {target:?} (ip link)"),
        ),
        "virtio-user" => format!("start the vhost-user side first: nobody listens at {target}"),
        "vhost" => format!(
            "make sure that the folder of {target} is there and writable, and that no other process listens there"
        ),
        "memif" if written.contains("zero-copy=yes") && e.log.contains("Zero-copy") => {
            "make huge pages: echo 512 | sudo tee /proc/sys/vm/nr_hugepages; without them there is transport = \"memif\""
                .to_owned()
        }
        "memif" => format!(
            "make sure that the folder of {target} is there and writable; the side that comes second says role=client"
        ),
        _ if [libc::ENODEV, libc::EINVAL, libc::EFAULT].contains(&e.errno) => {
            format!("check the driver's name and its arguments in {written:?}")
        }
        _ => format!("check the arguments in {written:?}; bondstone doctor finds what DPDK lacks on this machine"),
    }
}
