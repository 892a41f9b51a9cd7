//! Packet pools.

use crate::{Eal, Error, Memory, Result, eal};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use dpdk_sys as sys;
use packet::{BURST, Batch, Packet, Pool};
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};

/// Data bytes per packet, headroom included: a 2,048-byte frame fits.
const ROOM: u16 = 2048 + packet::HEADROOM as u16;
/// Packets that each worker keeps at hand.
const CACHE: u32 = 256;

/// A pool of packets. Its memory stays for the process's life: packets may outlive every handle, and nobody can tell
/// when the last thread is done giving the last one back. A pool that nobody has a handle of any more is handed out again,
/// once all its packets are home.
pub struct Mempool {
    raw: NonNull<sys::rte_mempool>,
    size: u32,
}

// SAFETY: DPDK's pools are made for use from all threads.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}

/// Pools that nobody has a handle of.
static IDLE: Mutex<Vec<Mempool>> = Mutex::new(vec![]);

impl Drop for Mempool {
    fn drop(&mut self) {
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(Mempool { raw: self.raw, size: self.size });
    }
}

impl Mempool {
    /// The smallest idle pool with room for so many that has all its packets.
    fn idle(size: u32) -> Option<Self> {
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        let fit = |pool: &&Mempool| pool.size >= size && pool.in_use() == 0;
        let best = idle.iter().filter(fit).min_by_key(|pool| pool.size)?.raw;
        let at = idle.iter().position(|pool| pool.raw == best)?;
        Some(idle.swap_remove(at))
    }

    /// A pool of `size` packets (best one less than a power of two), or of more.
    ///
    /// # Errors
    /// Without memory for it.
    pub fn new(eal: Eal, size: u32) -> Result<Arc<Self>> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        if let Some(idle) = Self::idle(size) {
            return Ok(Arc::new(idle));
        }
        let name = CString::new(format!("bondstone{}", SERIAL.fetch_add(1, Ordering::Relaxed))).expect("no NUL");
        let cache = CACHE.min(size * 2 / 3);
        // one that lies in two ordinary pages has no address for a device
        let spread = eal.memory() == Memory::Ordinary && !eal.devices();
        // SAFETY: the name is NUL-terminated; the EAL runs.
        let raw = unsafe { sys::bs_pool_create(name.as_ptr(), size, cache, ROOM, spread.into()) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Arc::new(Mempool { raw, size })),
            None => Err(Error {
                what: format!("a pool of {size} packets ({} MiB)", u64::from(size) * 2432 / (1 << 20)),
                // SAFETY: reads this thread's errno.
                errno: unsafe { sys::bs_errno() },
                log: eal::take_log(),
            }),
        }
    }

    /// Packets in it when all are home.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// Packets that are out now: in queues, batches and drivers.
    pub fn in_use(&self) -> usize {
        // SAFETY: the pool is live.
        self.size as usize - unsafe { sys::rte_mempool_avail_count(self.raw.as_ptr()) } as usize
    }

    /// Fills the batch up with empty packets; false, and no change, when the pool has too few.
    #[inline]
    pub fn fill(&self, batch: &mut Batch) -> bool {
        let have = batch.len();
        // SAFETY: slots have .. BURST are free, and on success hold fresh buffers that are ours alone.
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
        // SAFETY: a fresh mbuf is direct, single and ours; pool memory is initialised (it came zeroed from the kernel).
        unsafe { NonNull::new(sys::bs_alloc(self.raw.as_ptr())).map(|m| Packet::from_raw(m.cast())) }
    }
}
