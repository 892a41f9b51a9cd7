//! Packets on the heap, counted and bounded, for tests, fuzzers and tools.

use crate::{HEADROOM, Mbuf, Packet, Pool};
use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const ROOM: usize = 2048;
const LAYOUT: Layout = match Layout::from_size_align(size_of::<Mbuf>() + HEADROOM + ROOM, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("a constant"),
};

/// A pool of heap packets: at most `capacity` at a time, each with [`HEADROOM`] and 2048 bytes of room.
/// Packets may outlive the pool.
pub struct HeapPool {
    capacity: usize,
    in_use: Arc<AtomicUsize>,
}

/// Whether this process has ever made a heap packet.
static USED: AtomicBool = AtomicBool::new(false);

/// Whether there can be heap packets: a driver, which can only free what has a pool, must not be given one.
#[inline(always)]
pub fn heap_packets_possible() -> bool {
    USED.load(Ordering::Relaxed)
}

impl HeapPool {
    /// A pool of at most `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        HeapPool { capacity, in_use: Arc::default() }
    }

    /// Packets that are out of the pool now.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }
}

impl Pool for HeapPool {
    fn alloc(&self) -> Option<Packet> {
        USED.store(true, Ordering::Relaxed);
        self.in_use.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| (n < self.capacity).then_some(n + 1)).ok()?;
        // SAFETY: LAYOUT has a size; the result is checked; zeros are a valid Mbuf; the buffer follows the header.
        unsafe {
            let raw = alloc_zeroed(LAYOUT);
            let Some(mbuf) = NonNull::new(raw.cast::<Mbuf>()) else { std::alloc::handle_alloc_error(LAYOUT) };
            let m = &mut *mbuf.as_ptr();
            m.buf_addr = raw.add(size_of::<Mbuf>());
            m.buf_len = (HEADROOM + ROOM) as u16;
            m.data_off = HEADROOM as u16;
            m.refcnt = 1;
            m.nb_segs = 1;
            m.shinfo = Arc::into_raw(self.in_use.clone()).cast_mut().cast();
            Some(Packet::from_raw(mbuf))
        }
    }
}

/// # Safety
/// `mbuf` came from [`HeapPool::alloc`] and nobody uses it any more.
#[cold]
pub(crate) unsafe fn free(mbuf: NonNull<Mbuf>) {
    // SAFETY: the caller's promise; shinfo was made by Arc::into_raw in alloc.
    unsafe {
        let in_use = Arc::from_raw((*mbuf.as_ptr()).shinfo.cast::<AtomicUsize>());
        in_use.fetch_sub(1, Ordering::AcqRel);
        dealloc(mbuf.as_ptr().cast(), LAYOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_bounded_and_gets_everything_back() {
        let pool = HeapPool::new(2);
        let (a, b) = (pool.alloc().unwrap(), pool.alloc().unwrap());
        assert!(pool.alloc().is_none());
        drop(a);
        let c = pool.alloc().unwrap();
        std::thread::spawn(move || drop((b, c))).join().unwrap();
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn packets_outlive_it() {
        let mut packet = HeapPool::new(1).alloc().unwrap();
        packet.append(4).unwrap().copy_from_slice(b"safe");
        assert_eq!(packet.data(), b"safe");
    }

    #[test]
    fn a_frame_too_long_for_a_packet_is_refused() {
        let pool = HeapPool::new(1);
        assert!(pool.alloc_from(&[0; ROOM]).is_some());
        assert!(pool.alloc_from(&[0; ROOM + 1]).is_none());
        assert_eq!(pool.in_use(), 0);
    }
}
