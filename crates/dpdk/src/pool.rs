//! Packet pools.

use crate::{Eal, Error, Memory, Result, eal};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use dpdk_sys as sys;
use packet::{BURST, Batch, Packet, Pool};
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};

/// Packets in the cache of each worker.
const CACHE_SIZE: u32 = 256;

/// A pool of packets. Its memory is never freed, because packets may outlive every handle. A pool without handles is
/// reused once all its packets have been returned.
pub struct Mempool {
    raw: NonNull<sys::rte_mempool>,
    size: u32,
    /// Bytes of data per packet, without headroom.
    data_room: usize,
}

// SAFETY: DPDK's pools may be used by all threads.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}

/// Pools without handles.
static IDLE: Mutex<Vec<Mempool>> = Mutex::new(vec![]);

impl Drop for Mempool {
    fn drop(&mut self) {
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(Mempool { ..*self });
    }
}

impl Mempool {
    /// Takes the smallest idle pool of at least `size` packets of this size to which all packets have been returned.
    fn take_idle(size: u32, data_room: usize) -> Option<Self> {
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let fit = |pool: &&Mempool| pool.size >= size && pool.data_room == data_room && pool.in_use() == 0;
        let best = idle.iter().filter(fit).min_by_key(|pool| pool.size)?.raw;
        let at = idle.iter().position(|pool| pool.raw == best)?;
        Some(idle.swap_remove(at))
    }

    /// Creates or reuses a pool of at least `size` packets; one less than a power of two is the best size.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(eal: Eal, size: u32) -> Result<Arc<Self>> {
        Self::for_frames(eal, size, packet::MAX_FRAME)
    }

    /// As [`new`](Self::new), with packets for frames of up to `max_frame` bytes, at most [`packet::MAX_JUMBO_FRAME`].
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn for_frames(eal: Eal, size: u32, max_frame: usize) -> Result<Arc<Self>> {
        let data_room = packet::data_room(max_frame.min(packet::MAX_JUMBO_FRAME));
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        if let Some(idle) = Self::take_idle(size, data_room) {
            return Ok(Arc::new(idle));
        }
        let name = CString::new(format!("bondstone{}", SERIAL.fetch_add(1, Ordering::Relaxed))).expect("no NUL");
        let cache = CACHE_SIZE.min(size * 2 / 3);
        // a device needs each packet within one page, as ordinary pages are not contiguous for DMA
        let spread = eal.memory() == Memory::Ordinary && !eal.uses_devices();
        let room = (data_room + packet::HEADROOM) as u16;
        // SAFETY: the name is NUL-terminated; the EAL runs.
        let raw = unsafe { sys::bs_pool_create(name.as_ptr(), size, cache, room, spread.into()) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Arc::new(Mempool { raw, size, data_room })),
            None => Err(Error {
                what: format!(
                    "creating a pool of {size} packets ({} MiB)",
                    u64::from(size) * Memory::packet_bytes(max_frame) / (1 << 20)
                ),
                // SAFETY: reads this thread's errno.
                errno: unsafe { sys::bs_errno() },
                log: eal::take_log(),
            }),
        }
    }

    /// Returns the number of packets of the pool.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Returns the number of packets that are allocated: in queues, batches and drivers.
    pub fn in_use(&self) -> usize {
        // SAFETY: the pool is live.
        self.size as usize - unsafe { sys::rte_mempool_avail_count(self.raw.as_ptr()) } as usize
    }

    /// Fills the batch with empty packets. Returns false and changes nothing if the pool has too few.
    #[inline]
    pub fn fill(&self, batch: &mut Batch) -> bool {
        let have = batch.len();
        // SAFETY: slots have .. BURST are free, and on success contain fresh buffers with no other owner.
        unsafe {
            let at = batch.buffers().add(have);
            let ok = sys::bs_alloc_bulk(self.raw.as_ptr(), at.cast(), (BURST - have) as u32) == 0;
            if ok {
                batch.set_len(BURST);
            }
            ok
        }
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_mempool {
        self.raw.as_ptr()
    }
}

impl Pool for Mempool {
    #[inline]
    fn alloc(&self) -> Option<Packet> {
        // SAFETY: a fresh mbuf is direct, single-segment and unshared; pool memory is initialised (zeroed by the
        // kernel).
        unsafe { NonNull::new(sys::bs_alloc(self.raw.as_ptr())).map(|m| Packet::from_raw(m.cast())) }
    }
}
