//! DPDK's devices.

use crate::{Receive, Transmit};
use chain::Device;
use dpdk::{RxQueue, TxQueue};
use packet::Batch;
use std::sync::{Arc, Mutex, PoisonError};

impl Receive for RxQueue {
    #[inline]
    fn receive(&mut self, batch: &mut Batch) -> usize {
        RxQueue::receive(self, batch)
    }
    fn bytes(&self) -> u64 {
        RxQueue::bytes(self)
    }
    fn dropped(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("rx_unusable", self.unusable());
    }
}

impl Transmit for TxQueue {
    #[inline]
    fn send(&mut self, batch: &mut Batch) -> usize {
        TxQueue::send(self, batch)
    }
    fn bytes(&self) -> u64 {
        TxQueue::bytes(self)
    }
}

/// A transmit queue of a device that has fewer of them than there are workers.
pub(crate) struct Shared {
    queue: Arc<Mutex<TxQueue>>,
    /// Bytes that this worker has sent.
    bytes: u64,
}

impl Shared {
    pub(crate) fn new(queue: &Arc<Mutex<TxQueue>>) -> Self {
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
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What probably mends a device that does not open.
pub(crate) fn cure(device: &Device, e: &dpdk::Error) -> String {
    let Device::Dpdk { written, name, .. } = device else { return String::new() };
    // SAFETY: a plain call.
    let root = unsafe { libc::geteuid() } == 0;
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
        "memif" => format!(
            "make sure that the folder of {target} is there and writable; the side that comes second says role=client"
        ),
        _ if e.errno == libc::ENODEV || e.errno == libc::EINVAL => {
            format!("check the driver's name and its arguments in {written:?}")
        }
        _ => "see what DPDK said above".to_owned(),
    }
}
