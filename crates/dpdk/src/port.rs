//! Ports and their queues.

use crate::{Eal, Mempool, Result, check, listener};
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

/// What a device is and can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// DPDK's name of the driver.
    pub driver: String,
    /// Receive queues it can have.
    pub max_rx_queues: u16,
    /// Transmit queues it can have.
    pub max_tx_queues: u16,
    /// Whether it spreads flows over its receive queues by itself.
    pub rss: bool,
    /// NUMA node, or -1.
    pub socket: i32,
}

/// How a port is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Receive queues.
    pub rx_queues: u16,
    /// Transmit queues.
    pub tx_queues: u16,
    /// Descriptors in each queue; the driver rounds to what it can.
    pub descriptors: u16,
    /// Whether receive queues have bells ([`RxQueue::bell`]); of software ports `virtio-user` alone has them.
    pub bells: bool,
}

impl Default for PortConfig {
    fn default() -> Self {
        PortConfig { rx_queues: 1, tx_queues: 1, descriptors: 1024, bells: false }
    }
}

/// The queues of a started port. The port stops, closes and is removed when the last of them is dropped.
pub struct Queues {
    /// Receive queues.
    pub rx: Vec<RxQueue>,
    /// Transmit queues.
    pub tx: Vec<TxQueue>,
    /// The port itself, to watch it.
    pub port: PortHandle,
}

/// A started port, for whoever watches it.
#[derive(Clone)]
pub struct PortHandle {
    device: Arc<Device>,
}

/// The driver's own counts since the port started.
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
    /// Packets that the device lost because its queue was full.
    pub rx_missed: u64,
    /// Packets received broken.
    pub rx_errors: u64,
    /// Packets accepted for sending that did not leave.
    pub tx_errors: u64,
    /// Times the pool had no packet for the device.
    pub rx_no_buffer: u64,
    /// Packets that came in several segments, or in a buffer that somebody else holds as well, and were copied into one of
    /// their own. Counted here, not by the driver.
    pub rx_copied: u64,
}

/// The rings between two ports. They go with the second of them, and what nobody has taken out of them goes home.
struct Wire([*mut sys::rte_ring; 2]);

// SAFETY: nobody reads the rings but who drops the wire; the ports' drivers have them, each with its one thread for each end.
unsafe impl Send for Wire {}
// SAFETY: as above.
unsafe impl Sync for Wire {}

impl Drop for Wire {
    fn drop(&mut self) {
        // SAFETY: each port has a handle of this, let go only when it has closed.
        unsafe { sys::bs_wire_free(self.0.as_mut_ptr()) };
    }
}

struct Device {
    id: u16,
    name: String,
    // goes before the pool, after the port has closed
    _wire: Option<Arc<Wire>>,
    // what the driver holds in its rings goes home when it closes, so the pool has to be there then
    pool: Option<Arc<Mempool>>,
    copied: AtomicU64,
    /// Whether it is memif's side that listens.
    is_server: bool,
}

/// Bytes of the longest packet that memif's server sends, which is what a buffer has room for: a descriptor that has said once
/// that its packet goes on in the next says so for ever (DPDK 22.11).
const LONGEST_BY_SERVER: u32 = 2048;

/// Numbers of the ports that are open.
static OPEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: no queue handle is left, so no thread polls the port.
        unsafe { sys::bs_port_stop(self.id) };
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl Port {
    /// Opens a device: a driver's virtual one (`net_null0`, with its arguments) or a PCI address.
    ///
    /// # Errors
    /// The driver's reason, with what it logged.
    pub fn open(_: Eal, name: &str, arguments: &str) -> Result<Port> {
        let what = || format!("opening device {name:?} ({arguments:?})");
        let string = if arguments.is_empty() { name.to_owned() } else { format!("{name},{arguments}") };
        let (Ok(string), Ok(c_name)) = (CString::new(string), CString::new(name)) else {
            return check(what, -libc::EINVAL).map(|_| unreachable!("an error code is an error"));
        };
        crate::eal::take_log();
        // SAFETY: both strings are NUL-terminated; the EAL runs.
        let id = check(what, unsafe { sys::bs_port_probe(string.as_ptr(), c_name.as_ptr()) })?;
        // DPDK gives the same port for a device that is open already
        if !OPEN.lock().unwrap_or_else(PoisonError::into_inner).insert(id as u16) {
            check(what, -libc::EBUSY)?;
        }
        let mut device = Device::new(id as u16, name.to_owned(), None);
        device.is_server = arguments.split(',').any(|argument| argument == "role=server");
        Ok(Port { device })
    }

    /// Two ports joined by a wire in memory: what one sends the other receives. In each direction `depth` packets may be
    /// under way; what is still there when both ports are closed goes back to its pool.
    ///
    /// # Errors
    /// Without memory for it.
    pub fn wire(_: Eal, depth: u32) -> Result<(Port, Port)> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|side| format!("wire{serial}{side}"));
        let [a, b] = names.clone().map(|name| CString::new(name).expect("no NUL"));
        let mut ids = [0; 2];
        let mut rings = [core::ptr::null_mut(); 2];
        // SAFETY: both names are NUL-terminated, there is room for two numbers and two rings, and the EAL runs.
        let rc = unsafe { sys::bs_wire(a.as_ptr(), b.as_ptr(), depth, ids.as_mut_ptr(), rings.as_mut_ptr()) };
        check(|| format!("making a wire for {depth} packets"), rc)?;
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
        let wire = Arc::new(Wire(rings));
        let [a, b] = names;
        let port = |id, name| Port { device: Device::new(id, name, Some(wire.clone())) };
        Ok((port(ids[0], a), port(ids[1], b)))
    }

    /// What it is and can do.
    ///
    /// # Errors
    /// When the device has gone.
    pub fn info(&self) -> Result<PortInfo> {
        // SAFETY: the structure is plain data, filled by the call.
        unsafe {
            let mut info: sys::bs_port_info = core::mem::zeroed();
            check(
                || format!("asking device {:?} what it is", self.device.name),
                sys::bs_port_info(self.device.id, &mut info),
            )?;
            Ok(PortInfo {
                driver: CStr::from_ptr(info.driver.as_ptr()).to_string_lossy().into_owned(),
                max_rx_queues: info.max_rx_queues,
                max_tx_queues: info.max_tx_queues,
                rss: info.rss != 0,
                socket: info.socket,
            })
        }
    }

    /// Configures and starts it. Each queue's only handle is in what returns.
    ///
    /// # Errors
    /// The driver's reason, with what it logged.
    pub fn start(mut self, config: &PortConfig, pool: &Arc<Mempool>) -> Result<Queues> {
        let PortConfig { rx_queues, tx_queues, descriptors, bells } = *config;
        let info = self.info()?;
        let rss = info.rss && rx_queues > 1;
        self.device.pool = Some(pool.clone());
        let (id, raw) = (self.device.id, pool.raw());
        // SAFETY: the pool is live and stays so while the device is; queue counts are checked by the driver.
        let start = || unsafe {
            sys::bs_port_start(id, rx_queues, tx_queues, descriptors, descriptors, rss.into(), bells.into(), raw)
        };
        let rc = if info.driver == "net_vhost" { listener::told_of(start) } else { start() };
        let what = || {
            format!("starting device {:?} with {rx_queues} receive and {tx_queues} transmit queues", self.device.name)
        };
        check(what, rc)?;
        if info.driver == "net_memif" {
            let longest = if self.device.is_server { LONGEST_BY_SERVER } else { u32::MAX };
            // SAFETY: the port is started, and nobody polls it yet.
            check(what, unsafe { sys::bs_gate(id, rx_queues, tx_queues, longest) })?;
        }
        // it hands on what it was given; what every other driver brings is checked packet by packet
        let plain = info.driver == "net_ring";
        let device = Arc::new(self.device);
        Ok(Queues {
            rx: (0..rx_queues)
                .map(|queue| RxQueue {
                    ops: Ops::of(device.id),
                    device: device.clone(),
                    queue,
                    plain,
                    // SAFETY: the port is started.
                    bell: bells.then(|| unsafe { sys::bs_rx_bell(device.id, queue) }).filter(|fd| *fd >= 0),
                    too_long: 0,
                    unusable: 0,
                    bytes: 0,
                })
                .collect(),
            tx: (0..tx_queues)
                .map(|queue| TxQueue { ops: Ops::of(device.id), device: device.clone(), queue, plain, bytes: 0 })
                .collect(),
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
        Device { id, name, _wire: wire, pool: None, copied: AtomicU64::new(0), is_server: false }
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

/// A receive queue's only handle.
pub struct RxQueue {
    ops: Ops,
    device: Arc<Device>,
    queue: u16,
    plain: bool,
    /// A descriptor of the driver's.
    bell: Option<i32>,
    too_long: u64,
    unusable: u64,
    bytes: u64,
}

/// A transmit queue's only handle.
pub struct TxQueue {
    ops: Ops,
    device: Arc<Device>,
    queue: u16,
    plain: bool,
    bytes: u64,
}

/// Takes out what no driver can give back to a pool.
#[cold]
#[inline(never)]
fn drop_heap_packets(batch: &mut Batch) {
    batch.extract_if(|packet| packet.is_heap().then_some(()), |(), packet| drop(packet));
}

/// Bytes in packets.
pub(crate) fn total(packets: &[Packet]) -> u64 {
    packets.iter().map(|p| p.len() as u64).sum()
}

/// A port's row in the function table that DPDK's inline burst functions read.
#[derive(Clone, Copy)]
struct Ops(*const sys::rte_eth_fp_ops);

// SAFETY: the table is static; DPDK writes a row only while its port is being started or stopped.
unsafe impl Send for Ops {}
// SAFETY: as above.
unsafe impl Sync for Ops {}

impl Ops {
    fn of(port: u16) -> Self {
        Ops((&raw const sys::rte_eth_fp_ops).cast::<sys::rte_eth_fp_ops>().wrapping_add(port as usize))
    }
}

impl RxQueue {
    /// Receives what is there, up to the room in the batch; how many came.
    #[inline(always)]
    pub fn receive(&mut self, batch: &mut Batch) -> usize {
        let have = batch.len();
        // SAFETY: rte_eth_rx_burst's body: the port is started while a handle lives, `&mut self` makes this the only
        // poller, and the slots behind `have` are free. Buffers that are not plain do not get past `tidy`.
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
            let n = if self.plain || n == 0 { n as usize } else { self.tidy(at.cast(), n) };
            batch.set_len(have + n);
            n
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn callbacks(&self, at: *mut *mut sys::rte_mbuf, n: u16, room: u16, callbacks: *mut c_void) -> u16 {
        // SAFETY: the caller's burst, and the chain that the table named.
        unsafe { sys::rte_eth_call_rx_callbacks(self.device.id, self.queue, at, n, room, callbacks) }
    }

    /// Makes sure that every buffer is one segment, held once and owns its bytes; counts bytes on the way.
    #[inline]
    unsafe fn tidy(&mut self, at: *mut *mut sys::rte_mbuf, n: u16) -> usize {
        /// RTE_MBUF_F_INDIRECT and RTE_MBUF_F_EXTERNAL.
        const BORROWED: u64 = 1 << 62 | 1 << 61;
        // whatever differs from a plain buffer leaves a bit, looked at once for the burst
        let (mut counts, mut flags, mut lengths, mut beyond, mut bytes) = (0, 0, 0, 0, 0);
        for i in 0..n as usize {
            // SAFETY: the driver wrote n buffer pointers; layout.rs proves the cast.
            let m = unsafe { &*(*at.add(i)).cast::<packet::Mbuf>() };
            counts |= (m.nb_segs ^ 1) | (m.refcnt ^ 1);
            flags |= m.ol_flags;
            // a peer's driver may believe its peer about lengths
            lengths |= m.pkt_len ^ u32::from(m.data_len);
            beyond |= i32::from(m.buf_len) - i32::from(m.data_off) - i32::from(m.data_len);
            bytes += u64::from(m.pkt_len);
        }
        self.bytes += bytes;
        if counts == 0 && flags & BORROWED == 0 && lengths == 0 && beyond >= 0 {
            return n as usize;
        }
        self.copy_odd(at, n)
    }

    /// Copies what came in several segments or borrowed into a buffer of its own, and drops what has no place in one.
    #[cold]
    #[inline(never)]
    fn copy_odd(&mut self, at: *mut *mut sys::rte_mbuf, n: u16) -> usize {
        let pool = self.device.pool.as_ref().expect("a started port has one").raw();
        // SAFETY: n buffers from the driver and the port's own pool.
        let sys::bs_tidied { kept, copied, too_long } = unsafe { sys::bs_tidy(at, n.into(), pool) };
        self.device.copied.fetch_add(copied.into(), Ordering::Relaxed);
        self.too_long += u64::from(too_long);
        self.unusable += u64::from(u32::from(n) - kept - too_long);
        kept as usize
    }

    /// What can be read once the other side has rung, which it does for a packet that comes while [`RxQueue::ring`] is on. None
    /// where the port has no bells.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the driver closes it with the device, of which this is a handle.
        self.bell.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether the other side is to ring for the next packet. It may not for one that came before: look once more.
    pub fn ring(&mut self, on: bool) {
        if self.bell.is_some() {
            // SAFETY: the port is started, and nobody else polls this queue. Errors: drivers with bells have none.
            unsafe { sys::bs_rx_ring(self.device.id, self.queue, on.into()) };
        }
    }

    /// Packets, since the start, that came in several segments, longer than a buffer together, and were dropped.
    #[inline(always)]
    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Packets, since the start, that had to be copied and for which the pool had no buffer, or whose lengths contradict
    /// each other; they were dropped.
    #[inline(always)]
    pub fn unusable(&self) -> u64 {
        self.unusable
    }

    /// Bytes received since the start, without FCS. Rings are not counted: what goes over them has been counted.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl TxQueue {
    /// Sends what the driver takes, from the front; how many. The others stay in the batch, in order.
    #[inline(always)]
    pub fn send(&mut self, batch: &mut Batch) -> usize {
        // SAFETY: rte_eth_tx_burst's body: the port is started while a handle lives and `&mut self` makes this the only
        // sender; the driver owns the buffers that it says it took.
        unsafe {
            let ops = self.ops.0;
            let queue = self.queue as usize;
            if packet::heap_packets_possible() {
                drop_heap_packets(batch);
            }
            let mut n = batch.len() as u16;
            let at = batch.buffers().cast();
            let callbacks = *(*ops).txq.clbk.add(queue);
            if !callbacks.is_null() {
                // a callback may have freed some; what it left stands at the front
                n = self.callbacks(at, n, callbacks.cast());
                batch.set_len(n as usize);
            }
            let offered = if self.plain { 0 } else { total(batch.as_slice()) };
            let send = (*ops).tx_pkt_burst.unwrap_unchecked();
            let n = send(*(*ops).txq.data.add(queue), at, n) as usize;
            batch.forget_front(n);
            if !self.plain {
                self.bytes += offered - total(batch.as_slice());
            }
            n
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn callbacks(&self, at: *mut *mut sys::rte_mbuf, n: u16, callbacks: *mut c_void) -> u16 {
        // SAFETY: the caller's burst, and the chain that the table named.
        unsafe { sys::rte_eth_call_tx_callbacks(self.device.id, self.queue, at, n, callbacks) }
    }

    /// Bytes sent since the start, without FCS. Rings are not counted: what goes over them has been counted.
    #[inline(always)]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl PortHandle {
    /// DPDK's number of the port.
    pub fn id(&self) -> u16 {
        self.device.id
    }

    /// The driver's own counts for the whole port.
    pub fn stats(&self) -> PortStats {
        self.device.stats()
    }

    /// The port's MAC address, where it has one.
    pub fn mac(&self) -> Option<[u8; 6]> {
        let mut mac = [0; 6];
        // SAFETY: six bytes, as the call writes.
        (unsafe { sys::bs_port_mac(self.device.id, mac.as_mut_ptr()) } == 0).then_some(mac)
    }

    /// Whether the other side is there.
    pub fn link_up(&self) -> bool {
        // SAFETY: the port is started.
        unsafe { sys::bs_port_link(self.device.id) == 1 }
    }
}

#[cfg(test)]
mod tests;
