//! Packets, ports in memory, and the C functions.

use core::ffi::c_void;
use core::net::Ipv6Addr;
use core::ptr::NonNull;
use dpdk::{Mempool, Port, PortConfig, Queues};
use packet::{BURST, Batch, Mbuf, Packet, Pool};
use runtime::{Receive, Transmit};
use std::sync::Arc;

/// `struct port` of forward.h.
#[repr(C)]
pub(crate) struct CPort {
    pub(crate) ethdev: u16,
    pub(crate) slots: *mut *mut Mbuf,
    pub(crate) mask: u32,
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) fresh: *const c_void,
    pub(crate) fresh_mask: u32,
    pub(crate) at: u32,
    pub(crate) frame_start: u64,
    pub(crate) ip_start: u64,
}

/// `struct counts` of forward.h.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) tx_full: u64,
    pub(crate) dropped: [u64; 4],
}

/// `struct cells` of cells.c.
#[repr(C)]
pub(crate) struct CellsState {
    pub(crate) n: u32,
    pub(crate) array: *mut u64,
}

pub(crate) type CLoop = unsafe extern "C" fn(*mut CPort, *mut CPort, u32, *mut Counts, *mut c_void);

unsafe extern "C" {
    pub(crate) fn native_io(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_l2fwd(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_ttl(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_ttl2(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_ttl4(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_ttl8(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_ttl_composed(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_filter1(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_filter2(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_filter4(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_filter8(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_filter_composed(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_router(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_router_exact(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_router6(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_mac_table(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_bridge(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_spread(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_cells(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_firewall(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_monitor(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_io_flow(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_nat(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_police(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_conntrack(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_maglev(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
    pub(crate) fn native_firewall_acl(a: *mut CPort, b: *mut CPort, bursts: u32, c: *mut Counts, state: *mut c_void);
}

/// Port in memory: sent packets are received again, in order. Both sides use the same structure.
pub(crate) struct Memory {
    pub(crate) port: NonNull<CPort>,
}

// SAFETY: the benchmark has one thread; workers require Send as they may be started on another one.
unsafe impl Send for Memory {}

impl Memory {
    /// Returns a port for `room` packets, a power of two, which lives as long as the process.
    pub(crate) fn new(room: usize) -> Memory {
        let slots: &'static mut [*mut Mbuf] = Box::leak(vec![core::ptr::null_mut(); room].into_boxed_slice());
        let port = CPort {
            ethdev: 0,
            slots: slots.as_mut_ptr(),
            mask: room as u32 - 1,
            head: 0,
            tail: 0,
            fresh: core::ptr::null(),
            fresh_mask: 0,
            at: 0,
            frame_start: 0,
            ip_start: 0,
        };
        Memory { port: NonNull::from(Box::leak(Box::new(port))) }
    }

    /// Restarts the list of destinations.
    pub(crate) fn rewind(&self) {
        // SAFETY: one thread.
        unsafe { (*self.port.as_ptr()).at = 0 }
    }

    /// Panics unless all packets are in the port, as further samples require.
    pub(crate) fn assert_full(&self, packets: usize, side: &str) {
        // SAFETY: one thread.
        let held = unsafe { (*self.port.as_ptr()).tail - (*self.port.as_ptr()).head };
        assert_eq!(held as usize, packets, "{side} has dropped packets of known flows");
    }

    /// Returns another handle of the port.
    pub(crate) fn handle(&self) -> Memory {
        Memory { port: self.port }
    }

    /// Adds a packet.
    pub(crate) fn push(&self, packet: Packet) {
        // SAFETY: one thread; the mask keeps the slot in bounds, and the caller adds no more packets than fit.
        unsafe {
            let port = &mut *self.port.as_ptr();
            *port.slots.add((port.tail & port.mask) as usize) = packet.into_raw().as_ptr();
            port.tail += 1;
        }
    }

    /// Resets an empty port: after dropped packets its bursts are not aligned.
    pub(crate) fn reset(&self) {
        // SAFETY: one thread.
        unsafe { ((*self.port.as_ptr()).head, (*self.port.as_ptr()).tail) = (0, 0) }
    }

    /// Removes and returns all packets, in order.
    pub(crate) fn take(&self) -> Vec<Packet> {
        // SAFETY: the slots between head and tail own their packets.
        unsafe {
            let port = &mut *self.port.as_ptr();
            let taken = (port.head..port.tail)
                .map(|at| Packet::from_raw(NonNull::new_unchecked(*port.slots.add((at & port.mask) as usize))))
                .collect();
            port.head = port.tail;
            taken
        }
    }
}

/// Copies a burst of pointers as C's `rte_memcpy` does, in the widest registers; a call of `memcpy` would cost more.
///
/// # Safety
/// A burst can be read at `from` and written at `to`.
#[inline(always)]
unsafe fn copy_burst(from: *const *mut Mbuf, to: *mut *mut Mbuf) {
    #[cfg(target_feature = "avx")]
    // SAFETY: as required of the caller; four pointers at a time, unaligned.
    unsafe {
        use core::arch::x86_64::{_mm256_loadu_si256, _mm256_storeu_si256};
        for i in (0..BURST).step_by(4) {
            _mm256_storeu_si256(to.add(i).cast(), _mm256_loadu_si256(from.add(i).cast()));
        }
    }
    #[cfg(not(target_feature = "avx"))]
    // SAFETY: as required of the caller.
    unsafe {
        core::ptr::copy_nonoverlapping(from, to, BURST);
    }
}

impl Receive for Memory {
    #[inline]
    fn receive(&mut self, batch: &mut Batch) -> usize {
        // SAFETY: the worker's batch is empty, and a burst of packets is at head.
        unsafe {
            let port = &mut *self.port.as_ptr();
            let from = port.slots.add((port.head & port.mask) as usize);
            copy_burst(from, batch.buffers().cast());
            port.head = port.head.wrapping_add(BURST as u32);
            batch.set_len(BURST);
        }
        BURST
    }
}

impl Transmit for Memory {
    #[inline]
    fn send(&mut self, batch: &mut Batch) -> usize {
        let n = batch.len();
        // SAFETY: these slots are behind head, and tail is a multiple of the burst while no packet is dropped.
        unsafe {
            let port = &mut *self.port.as_ptr();
            let to = port.slots.add((port.tail & port.mask) as usize);
            if n == BURST {
                copy_burst(batch.buffers().cast(), to);
            } else {
                core::ptr::copy_nonoverlapping(batch.buffers().cast(), to, n);
            }
            port.tail = port.tail.wrapping_add(n as u32);
            batch.forget_front(n);
        }
        n
    }
}

/// Opens a port on a DPDK ring.
pub(crate) fn ring(eal: dpdk::Eal, name: &str, pool: &Arc<Mempool>) -> dpdk::Result<Queues> {
    Port::open(eal, &format!("net_ring_{name}"), "")?.start(&PortConfig::default(), pool)
}

/// Packets that are rewritten before each sample: 60 bytes (64 with FCS), UDP over IPv4, with different source ports.
pub(crate) struct Packets {
    all: Vec<NonNull<Mbuf>>,
    frames: Vec<Vec<u8>>,
}

/// Returns a packet of 60 bytes, UDP over IPv4, without a UDP checksum.
pub(crate) fn packet_to(dst: [u8; 4]) -> Vec<u8> {
    let mut frame = wire::build::udp4([10, 0, 0, 1], dst, 0, 9).ttl(255).pad_to(60).to_vec();
    frame[40..42].fill(0);
    frame
}

/// Returns a packet of 62 bytes, UDP over IPv6. Its UDP checksum is wrong for other destinations, but routers do not
/// verify it.
pub(crate) fn packet6_to(dst: Ipv6Addr) -> Vec<u8> {
    wire::build::udp6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), dst, 0, 9).ttl(255).to_vec()
}

/// As [`packet_to`], with all addresses and ports.
pub(crate) fn packet_of(src: u32, dst: u32, src_port: u16, dst_port: u16) -> Vec<u8> {
    let frame = wire::build::udp4(src.to_be_bytes(), dst.to_be_bytes(), src_port, dst_port);
    let mut frame = frame.ttl(255).pad_to(60).to_vec();
    frame[40..42].fill(0);
    frame
}

/// Random numbers that are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

/// Returns the mask of a prefix length.
pub(crate) fn mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

/// Returns `n` different packets.
pub(crate) fn frames(n: usize) -> Vec<Vec<u8>> {
    let mut random = 88_172_645_463_325_252u64;
    let frame = |_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut frame = packet_to([10, 1, (random >> 8) as u8, random as u8]);
        frame[34..36].copy_from_slice(&((random >> 16) as u16).to_be_bytes());
        frame
    };
    (0..n).map(frame).collect()
}

impl Packets {
    /// Allocates a packet for each frame, and passes it with its number to `push`.
    pub(crate) fn new(pool: &Mempool, frames: Vec<Vec<u8>>, mut push: impl FnMut(usize, Packet)) -> Packets {
        let mut all = vec![];
        for (i, frame) in frames.iter().enumerate() {
            let packet = pool.alloc_from(frame).expect("the pool has enough buffers");
            let raw = packet.into_raw();
            all.push(raw);
            // SAFETY: the pointer was released above and is owned again here.
            push(i, unsafe { Packet::from_raw(raw) });
        }
        Packets { all, frames }
    }

    /// Restores the initial bytes of every packet.
    pub(crate) fn reset(&self) {
        for (mbuf, frame) in self.all.iter().zip(&self.frames) {
            // SAFETY: between samples nothing else accesses packets, and none of them is freed.
            unsafe {
                let m = &mut *mbuf.as_ptr();
                // the data of a packet with prepended headers starts elsewhere
                (m.data_off, m.data_len, m.pkt_len) = (packet::HEADROOM as u16, frame.len() as u16, frame.len() as u32);
                core::slice::from_raw_parts_mut(m.buf_addr.add(m.data_off as usize), frame.len())
                    .copy_from_slice(frame);
            }
        }
    }

    /// Writes a frame, which is not longer than the packets, into all packets, until the next reset.
    pub(crate) fn fill(&self, frame: &[u8]) {
        for (mbuf, own) in self.all.iter().zip(&self.frames) {
            assert!(frame.len() <= own.len(), "the frame fits");
            // SAFETY: as in `reset`.
            unsafe {
                let m = mbuf.as_ref();
                core::slice::from_raw_parts_mut(m.buf_addr.add(m.data_off as usize), frame.len())
                    .copy_from_slice(frame);
            }
        }
    }

    /// Returns the current bytes of every packet.
    pub(crate) fn bytes(&self) -> Vec<Vec<u8>> {
        let bytes = |mbuf: &NonNull<Mbuf>| {
            // SAFETY: as in `reset`.
            unsafe {
                let m = mbuf.as_ref();
                core::slice::from_raw_parts(m.buf_addr.add(m.data_off as usize), m.data_len as usize).to_vec()
            }
        };
        self.all.iter().map(bytes).collect()
    }
}
