//! Ports and their queues.

use crate::{Driver, Eal, Mempool, Result, check, vhost_listener};
use core::ffi::{CStr, c_void};
use core::fmt;
use dpdk_sys as sys;
use packet::{BURST, Batch, Packet};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// An opened device, not yet started.
pub struct Port {
    device: Device,
}

/// The properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The driver.
    pub driver: Driver,
    /// Version of the firmware, if the driver reports it.
    pub firmware: Option<String>,
    /// Most receive queues.
    pub max_rx_queues: u16,
    /// Most transmit queues.
    pub max_tx_queues: u16,
    /// True if the device distributes flows over its receive queues (RSS).
    pub rss: bool,
    /// NUMA node of the device, or -1.
    pub socket: i32,
    /// Longest frame that the device can be configured for, bytes without FCS; `usize::MAX` without a limit.
    pub max_frame: usize,
}

/// The configuration of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Number of receive queues.
    pub rx_queues: u16,
    /// Number of transmit queues.
    pub tx_queues: u16,
    /// Descriptors of each queue; the driver adjusts the number.
    pub descriptors: u16,
    /// True to enable rx interrupts ([`RxQueue::rx_interrupt`]); of the software ports only `virtio-user` supports
    /// them.
    pub rx_interrupts: bool,
    /// Longest frame, bytes without FCS. Above [`packet::MAX_FRAME`] the MTU of the device is set; otherwise it remains.
    pub max_frame: usize,
}

impl Default for PortConfig {
    fn default() -> Self {
        PortConfig { rx_queues: 1, tx_queues: 1, descriptors: 1024, rx_interrupts: false, max_frame: packet::MAX_FRAME }
    }
}

/// The queues of a started port. The port stops, closes and is removed when the last of them is dropped.
pub struct Queues {
    /// Receive queues.
    pub rx: Vec<RxQueue>,
    /// Transmit queues.
    pub tx: Vec<TxQueue>,
    /// The port itself, for monitoring.
    pub port: PortHandle,
}

/// A handle to monitor a started port.
#[derive(Clone)]
pub struct PortHandle {
    device: Arc<Device>,
}

/// Counts since the port was started, by the driver except where noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received, without FCS.
    pub rx_bytes: u64,
    /// Bytes sent, without FCS.
    pub tx_bytes: u64,
    /// Packets that the device dropped because its queue was full.
    pub rx_missed: u64,
    /// Erroneous packets received.
    pub rx_errors: u64,
    /// Packets accepted for sending and not sent.
    pub tx_errors: u64,
    /// Failed buffer allocations of the receive queues.
    pub rx_no_buffer: u64,
    /// Packets received in several segments or in a shared buffer and copied into one buffer; counted by [`RxQueue`].
    pub rx_copied: u64,
}

/// The rings between two ports, freed with the last of them; packets left in the rings return to their pool.
struct Wire([*mut sys::rte_ring; 2]);

// SAFETY: only the destructor uses the rings here; the ports' drivers use them with one thread at each end.
unsafe impl Send for Wire {}
// SAFETY: as above.
unsafe impl Sync for Wire {}

impl Drop for Wire {
    fn drop(&mut self) {
        // SAFETY: each port has a reference to this and drops it after it has closed.
        unsafe { sys::bs_wire_free(self.0.as_mut_ptr()) };
    }
}

struct Device {
    id: u16,
    name: String,
    // dropped before the pool and after the port has closed
    _wire: Option<Arc<Wire>>,
    // the driver returns the packets in its rings when it closes, so the pool must exist until then
    pool: Option<Arc<Mempool>>,
    copied: AtomicU64,
    /// True if this is the server side of a memif port.
    is_server: bool,
    driver: Driver,
    rx_interrupts: bool,
    /// Receive queues to which there is no handle.
    unused_rx: Mutex<BTreeSet<u16>>,
    /// Transmit queues to which there is no handle.
    unused_tx: Mutex<BTreeSet<u16>>,
}

/// Bytes of an Ethernet header, which an MTU does not include.
const ETHERNET_HEADER: usize = 14;

/// Numbers of the open ports. Locked while a port is opened or closed: DPDK reads its list of ports without a lock.
static OPEN_PORTS: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

impl Drop for Device {
    fn drop(&mut self) {
        let mut open_ports = OPEN_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: no queue handle is left, so no thread polls the port.
        unsafe { sys::bs_port_stop(self.id) };
        open_ports.remove(&self.id);
    }
}

impl Port {
    /// Opens a device: a virtual device (`net_null0`, with its arguments) or a PCI address.
    ///
    /// # Errors
    /// The driver's error, with what it logged.
    pub fn open(_: Eal, name: &str, arguments: &str) -> Result<Port> {
        let what = || format!("opening device {name:?} ({arguments:?})");
        let string = if arguments.is_empty() { name.to_owned() } else { format!("{name},{arguments}") };
        let (Ok(string), Ok(c_name)) = (CString::new(string), CString::new(name)) else {
            return check(what, -libc::EINVAL).map(|_| unreachable!("an error code is an error"));
        };
        crate::eal::take_log();
        let mut open_ports = OPEN_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: both strings are NUL-terminated; the EAL runs.
        let id = check(what, unsafe { sys::bs_port_probe(string.as_ptr(), c_name.as_ptr()) })?;
        // DPDK returns the same port for a device that is already open
        if !open_ports.insert(id as u16) {
            check(what, -libc::EBUSY)?;
        }
        let mut device = Device::new(id as u16, name.to_owned(), None);
        device.is_server = arguments.split(',').any(|argument| argument == "role=server");
        Ok(Port { device })
    }

    /// Creates two ports joined by a pair of rings of `depth` packets: each receives what the other sends. Packets left
    /// in the rings return to their pool when both ports are closed.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn wire(_: Eal, depth: u32) -> Result<(Port, Port)> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|side| format!("wire{serial}{side}"));
        let [a, b] = names.clone().map(|name| CString::new(name).expect("no NUL"));
        let mut ids = [0; 2];
        let mut rings = [core::ptr::null_mut(); 2];
        let mut open_ports = OPEN_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: both names are NUL-terminated, the arrays have two elements, and the EAL runs.
        let rc = unsafe { sys::bs_wire(a.as_ptr(), b.as_ptr(), depth, ids.as_mut_ptr(), rings.as_mut_ptr()) };
        check(|| format!("creating a wire of {depth} packets"), rc)?;
        open_ports.extend(ids);
        let wire = Arc::new(Wire(rings));
        let [a, b] = names;
        let port = |id, name| Port { device: Device::new(id, name, Some(wire.clone())) };
        Ok((port(ids[0], a), port(ids[1], b)))
    }

    /// Returns the properties of the device.
    ///
    /// # Errors
    /// The device has been removed.
    pub fn info(&self) -> Result<PortInfo> {
        // SAFETY: the structure is plain data, filled by the call.
        unsafe {
            let mut info: sys::bs_port_info = core::mem::zeroed();
            check(
                || format!("reading the properties of device {:?}", self.device.name),
                sys::bs_port_info(self.device.id, &mut info),
            )?;
            let driver = Driver::from_name(&CStr::from_ptr(info.driver.as_ptr()).to_string_lossy());
            let firmware = CStr::from_ptr(info.firmware.as_ptr()).to_string_lossy().into_owned();
            Ok(PortInfo {
                firmware: Some(firmware).filter(|version| !version.is_empty()),
                driver,
                max_rx_queues: info.max_rx_queues,
                max_tx_queues: info.max_tx_queues,
                rss: info.rss != 0,
                socket: info.socket,
                max_frame: if driver.has_mtu() { info.max_frame as usize } else { usize::MAX },
            })
        }
    }

    /// Configures and starts the port. Each returned queue is the only handle to it.
    ///
    /// # Errors
    /// The driver's error, with what it logged.
    pub fn start(mut self, config: &PortConfig, pool: &Arc<Mempool>) -> Result<Queues> {
        let PortConfig { rx_queues, tx_queues, descriptors, rx_interrupts, max_frame } = *config;
        let info = self.info()?;
        let rss = info.rss && rx_queues > 1;
        let mtu = match max_frame > packet::MAX_FRAME && info.driver.has_mtu() {
            true => (max_frame - ETHERNET_HEADER) as u16,
            false => 0,
        };
        self.device.pool = Some(pool.clone());
        let (id, raw) = (self.device.id, pool.raw());
        // SAFETY: the pool lives as long as the device; the driver checks the queue counts.
        let start = || unsafe {
            let (rss, interrupts) = (rss.into(), rx_interrupts.into());
            sys::bs_port_start(id, rx_queues, tx_queues, descriptors, descriptors, rss, interrupts, mtu, raw)
        };
        let rc = if info.driver == Driver::Vhost { vhost_listener::start_and_wake(start) } else { start() };
        let what = || {
            format!("starting device {:?} with {rx_queues} receive and {tx_queues} transmit queues", self.device.name)
        };
        check(what, rc)?;
        if info.driver == Driver::Memif {
            // in DPDK 22.11 a descriptor of a server that was used for a packet of several segments keeps its NEXT flag
            // for ever
            let max_len = if self.device.is_server { packet::data_room(max_frame) as u32 } else { u32::MAX };
            // SAFETY: the port is started, and no worker polls it yet.
            check(what, unsafe { sys::bs_memif_guard(id, rx_queues, tx_queues, max_len) })?;
        }
        (self.device.driver, self.device.rx_interrupts) = (info.driver, rx_interrupts);
        let device = Arc::new(self.device);
        Ok(Queues {
            rx: (0..rx_queues).map(|queue| RxQueue::new(&device, queue)).collect(),
            tx: (0..tx_queues).map(|queue| TxQueue::new(&device, queue)).collect(),
            port: PortHandle { device },
        })
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("id", &self.device.id).field("name", &self.device.name).finish()
    }
}

impl Device {
    fn new(id: u16, name: String, wire: Option<Arc<Wire>>) -> Self {
        Device {
            id,
            name,
            _wire: wire,
            pool: None,
            copied: AtomicU64::new(0),
            is_server: false,
            driver: Driver::Other,
            rx_interrupts: false,
            unused_rx: Mutex::default(),
            unused_tx: Mutex::default(),
        }
    }

    /// Returns true if packets of the port are as they were sent, which those of every other driver are validated for.
    fn is_trusted(&self) -> bool {
        self.driver == Driver::Ring
    }

    fn stats(&self) -> PortStats {
        // SAFETY: plain data, filled by the call.
        unsafe {
            let mut s: sys::bs_port_stats = core::mem::zeroed();
            sys::bs_port_stats(self.id, &mut s);
            PortStats {
                rx_packets: s.rx_packets,
                tx_packets: s.tx_packets,
                rx_bytes: s.rx_bytes,
                tx_bytes: s.tx_bytes,
                rx_missed: s.rx_missed,
                rx_errors: s.rx_errors,
                tx_errors: s.tx_errors,
                rx_no_buffer: s.rx_no_buffer,
                rx_copied: self.copied.load(Ordering::Relaxed),
            }
        }
    }
}

/// The only handle to a receive queue.
pub struct RxQueue {
    ops: Ops,
    device: Arc<Device>,
    queue: u16,
    trusted: bool,
    /// File descriptor of the rx interrupt, owned by the driver.
    rx_interrupt: Option<i32>,
    /// Number of descriptors, if the driver tells it and how many are used.
    descriptors: Option<u32>,
    too_long: u64,
    unusable: u64,
    bytes: u64,
}

/// The only handle to a transmit queue.
pub struct TxQueue {
    ops: Ops,
    device: Arc<Device>,
    queue: u16,
    trusted: bool,
    bytes: u64,
}

/// Removes packets on the heap, which a driver cannot return to a pool.
#[cold]
#[inline(never)]
fn drop_heap_packets(batch: &mut Batch) {
    batch.extract_if(|packet| packet.is_heap().then_some(()), |(), packet| drop(packet));
}

/// Returns the bytes in packets.
pub(crate) fn total_bytes(packets: &[Packet]) -> u64 {
    packets.iter().map(|p| p.len() as u64).sum()
}

/// A port's entry in the table of burst functions that DPDK's inline functions read.
#[derive(Clone, Copy)]
struct Ops(*const sys::rte_eth_fp_ops);

// SAFETY: the table is static; DPDK writes an entry only while its port is being started or stopped.
unsafe impl Send for Ops {}
// SAFETY: as above.
unsafe impl Sync for Ops {}

impl Ops {
    fn of(port: u16) -> Self {
        Ops((&raw const sys::rte_eth_fp_ops).cast::<sys::rte_eth_fp_ops>().wrapping_add(port as usize))
    }
}

impl Drop for RxQueue {
    fn drop(&mut self) {
        self.device.unused_rx.lock().unwrap_or_else(PoisonError::into_inner).insert(self.queue);
    }
}

impl Drop for TxQueue {
    fn drop(&mut self) {
        self.device.unused_tx.lock().unwrap_or_else(PoisonError::into_inner).insert(self.queue);
    }
}

impl RxQueue {
    /// Creates the only handle to a queue of a started device.
    fn new(device: &Arc<Device>, queue: u16) -> RxQueue {
        let (id, interrupts, counts) = (device.id, device.rx_interrupts, device.driver.counts_rx_descriptors());
        // SAFETY: the port is started.
        let fd = || unsafe { sys::bs_rx_interrupt_fd(id, queue) };
        // SAFETY: as above.
        let descriptors = || unsafe { (sys::bs_rx_queue_count(id, queue), sys::bs_rx_queue_size(id, queue)) };
        RxQueue {
            ops: Ops::of(id),
            device: device.clone(),
            queue,
            trusted: device.is_trusted(),
            rx_interrupt: interrupts.then(fd).filter(|fd| *fd >= 0),
            // errors: the driver does not tell the size, or not the number
            descriptors: counts
                .then(descriptors)
                .filter(|(count, size)| *count >= 0 && *size > 0)
                .map(|(_, size)| size as u32),
            too_long: 0,
            unusable: 0,
            bytes: 0,
        }
    }

    /// Appends received packets to the batch until it is full; returns their number.
    #[inline(always)]
    pub fn receive(&mut self, batch: &mut Batch) -> usize {
        let have = batch.len();
        // SAFETY: the body of rte_eth_rx_burst. The port is started while a handle lives, `&mut self` makes this the
        // only poller, and the slots behind `have` are free. `validate` accepts only direct, single-segment, unshared
        // buffers.
        unsafe {
            let at = batch.buffers().add(have);
            let room = (BURST - have) as u16;
            let ops = self.ops.0;
            let queue = self.queue as usize;
            let receive = (*ops).rx_pkt_burst.unwrap_unchecked();
            let mut n = receive(*(*ops).rxq.data.add(queue), at.cast(), room);
            let callbacks = *(*ops).rxq.clbk.add(queue);
            if !callbacks.is_null() {
                n = self.callbacks(at.cast(), n, room, callbacks.cast());
            }
            let n = if self.trusted || n == 0 { n as usize } else { self.validate(at.cast(), n) };
            batch.set_len(have + n);
            n
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn callbacks(&self, at: *mut *mut sys::rte_mbuf, n: u16, room: u16, callbacks: *mut c_void) -> u16 {
        // SAFETY: the arguments of the burst, and the callback list of the table.
        unsafe { sys::rte_eth_call_rx_callbacks(self.device.id, self.queue, at, n, room, callbacks) }
    }

    /// Ensures that every buffer is direct, single-segment and unshared, and counts bytes.
    #[inline]
    unsafe fn validate(&mut self, at: *mut *mut sys::rte_mbuf, n: u16) -> usize {
        /// `RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL`.
        const SHARED: u64 = 1 << 62 | 1 << 61;
        // deviations are accumulated as bits and tested once per burst
        let (mut counts, mut flags, mut lengths, mut slack, mut bytes) = (0, 0, 0, 0, 0);
        for i in 0..n as usize {
            // SAFETY: the driver wrote n buffer pointers; layout.rs proves the cast.
            let m = unsafe { &*(*at.add(i)).cast::<packet::Mbuf>() };
            counts |= (m.nb_segs ^ 1) | (m.refcnt ^ 1);
            flags |= m.ol_flags;
            // a driver may take lengths from its peer unchecked
            lengths |= m.pkt_len ^ u32::from(m.data_len);
            slack |= i32::from(m.buf_len) - i32::from(m.data_off) - i32::from(m.data_len);
            bytes += u64::from(m.pkt_len);
        }
        self.bytes += bytes;
        if counts == 0 && flags & SHARED == 0 && lengths == 0 && slack >= 0 {
            return n as usize;
        }
        self.linearize(at, n)
    }

    /// Copies segmented or shared buffers into one buffer of the pool, and drops packets that cannot be copied.
    #[cold]
    #[inline(never)]
    fn linearize(&mut self, at: *mut *mut sys::rte_mbuf, n: u16) -> usize {
        let pool = self.device.pool.as_ref().expect("a started port has one").raw();
        // SAFETY: n buffers of the driver, and the pool of the port.
        let sys::bs_linearized { kept, copied, too_long } = unsafe { sys::bs_linearize(at, n.into(), pool) };
        self.device.copied.fetch_add(copied.into(), Ordering::Relaxed);
        self.too_long += u64::from(too_long);
        self.unusable += u64::from(u32::from(n) - kept - too_long);
        kept as usize
    }

    /// Returns the descriptor that becomes readable when a packet arrives while the rx interrupt is enabled
    /// ([`RxQueue::enable_rx_interrupt`]); `None` if the port has no rx interrupts.
    pub fn rx_interrupt(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the driver closes it with the device, to which this is a handle.
        self.rx_interrupt.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Enables or disables the rx interrupt. Packets that arrived before may not raise one: poll once more after
    /// enabling.
    pub fn enable_rx_interrupt(&mut self, on: bool) {
        if self.rx_interrupt.is_some() {
            // SAFETY: the port is started, and this is the only poller. Errors: drivers with rx interrupts return none.
            unsafe { sys::bs_rx_interrupt_enable(self.device.id, self.queue, on.into()) };
        }
    }

    /// Returns the number of descriptors with a packet that was not received yet, and of all descriptors; `None` if the
    /// driver does not tell them. A driver may read many descriptors for it: not for every batch.
    pub fn used_descriptors(&self) -> Option<(u32, u32)> {
        let all = self.descriptors?;
        // SAFETY: the port is started, and this is the only handle to the queue.
        let used = unsafe { sys::bs_rx_queue_count(self.device.id, self.queue) };
        Some((used.clamp(0, all as i32) as u32, all))
    }

    /// Returns the number of segmented packets that were dropped because they exceed a buffer.
    #[inline(always)]
    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Returns the number of packets that were dropped because the pool had no buffer to copy them into, or because
    /// their lengths are inconsistent.
    #[inline(always)]
    pub fn unusable(&self) -> u64 {
        self.unusable
    }

    /// Returns the bytes received, without FCS; 0 for rings, whose packets are counted elsewhere.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Discards the packets that wait in the queue, which are not counted.
    pub fn discard(&mut self) {
        let counts = (self.bytes, self.too_long, self.unusable);
        let mut batch = Batch::new();
        while self.receive(&mut batch) != 0 {
            batch.clear();
        }
        (self.bytes, self.too_long, self.unusable) = counts;
    }
}

impl TxQueue {
    /// Creates the only handle to a queue of a started device.
    fn new(device: &Arc<Device>, queue: u16) -> TxQueue {
        TxQueue { ops: Ops::of(device.id), device: device.clone(), queue, trusted: device.is_trusted(), bytes: 0 }
    }

    /// Sends packets from the front of the batch; returns how many the driver accepted. The others stay, in order.
    #[inline(always)]
    pub fn send(&mut self, batch: &mut Batch) -> usize {
        // SAFETY: the body of rte_eth_tx_burst. The port is started while a handle lives, `&mut self` makes this the
        // only sender, and the driver owns the buffers that it accepted.
        unsafe {
            let ops = self.ops.0;
            let queue = self.queue as usize;
            if packet::heap_packets_exist() {
                drop_heap_packets(batch);
            }
            let mut n = batch.len() as u16;
            let at = batch.buffers().cast();
            let callbacks = *(*ops).txq.clbk.add(queue);
            if !callbacks.is_null() {
                // a callback may have freed packets; the remaining ones are at the front
                n = self.callbacks(at, n, callbacks.cast());
                batch.set_len(n as usize);
            }
            let offered = if self.trusted { 0 } else { total_bytes(batch.as_slice()) };
            let send = (*ops).tx_pkt_burst.unwrap_unchecked();
            let n = send(*(*ops).txq.data.add(queue), at, n) as usize;
            batch.forget_front(n);
            if !self.trusted {
                self.bytes += offered - total_bytes(batch.as_slice());
            }
            n
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn callbacks(&self, at: *mut *mut sys::rte_mbuf, n: u16, callbacks: *mut c_void) -> u16 {
        // SAFETY: the arguments of the burst, and the callback list of the table.
        unsafe { sys::rte_eth_call_tx_callbacks(self.device.id, self.queue, at, n, callbacks) }
    }

    /// Returns the bytes sent, without FCS; 0 for rings, whose packets are counted elsewhere.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl PortHandle {
    /// Returns DPDK's number of the port.
    pub fn id(&self) -> u16 {
        self.device.id
    }

    /// Returns the handle to a receive queue to which there is none, if there is such a queue.
    pub fn unused_rx(&self) -> Option<RxQueue> {
        let queue = self.device.unused_rx.lock().unwrap_or_else(PoisonError::into_inner).pop_first()?;
        Some(RxQueue::new(&self.device, queue))
    }

    /// Returns the handle to a transmit queue to which there is none, if there is such a queue.
    pub fn unused_tx(&self) -> Option<TxQueue> {
        let queue = self.device.unused_tx.lock().unwrap_or_else(PoisonError::into_inner).pop_first()?;
        Some(TxQueue::new(&self.device, queue))
    }

    /// Returns the counts of the whole port.
    pub fn stats(&self) -> PortStats {
        self.device.stats()
    }

    /// Returns the MAC address of the port, if it has one.
    pub fn mac(&self) -> Option<[u8; 6]> {
        let mut mac = [0; 6];
        // SAFETY: the call writes six bytes.
        (unsafe { sys::bs_port_mac(self.device.id, mac.as_mut_ptr()) } == 0).then_some(mac)
    }

    /// Returns true if the link is up.
    pub fn link_up(&self) -> bool {
        // SAFETY: the port is started.
        unsafe { sys::bs_port_link(self.device.id) == 1 }
    }
}

#[cfg(test)]
mod tests;
