//! Buffer pools.

use crate::buffer;
use crate::packet::Packet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A buffer pool, from which packets are allocated. Dropping a packet returns its buffer to the pool.
pub trait Pool: Sync {
    /// Allocates an empty packet with [`HEADROOM`](crate::HEADROOM) bytes before its data; returns `None` if the pool
    /// is exhausted.
    fn alloc(&self) -> Option<Packet>;

    /// Allocates a packet with a copy of `frame`; returns `None` if the pool is exhausted or `frame` does not fit in a
    /// buffer.
    fn alloc_from(&self, frame: &[u8]) -> Option<Packet> {
        let mut packet = self.alloc()?;
        packet.append(frame.len())?.copy_from_slice(frame);
        Some(packet)
    }
}

/// A pool of packets on the heap, for tests, fuzzers and tools.
///
/// At most `capacity` packets exist at a time, each with [`HEADROOM`](crate::HEADROOM) and [`MAX_FRAME`](crate::MAX_FRAME) bytes for data. Packets
/// may outlive the pool.
///
/// ```
/// use packet::{HeapPool, Pool};
///
/// let pool = HeapPool::new(1);
/// let packet = pool.alloc_from(b"a frame").unwrap();
/// assert!(pool.alloc().is_none());
/// drop(packet);
/// assert_eq!(pool.in_use(), 0);
/// ```
pub struct HeapPool {
    capacity: usize,
    in_use: Arc<AtomicUsize>,
}

/// True once this process has allocated a heap packet.
static HEAP_USED: AtomicBool = AtomicBool::new(false);

/// Returns true if heap packets may exist. Drivers, which can only free buffers with a pool, check their packets then.
#[inline(always)]
pub fn heap_packets_exist() -> bool {
    HEAP_USED.load(Ordering::Relaxed)
}

impl HeapPool {
    /// Creates a pool of at most `capacity` packets.
    pub fn new(capacity: usize) -> Self {
        HeapPool { capacity, in_use: Arc::default() }
    }

    /// Returns the number of packets in use.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Acquire)
    }
}

impl Pool for HeapPool {
    fn alloc(&self) -> Option<Packet> {
        HEAP_USED.store(true, Ordering::Relaxed);
        self.in_use.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| (n < self.capacity).then_some(n + 1)).ok()?;
        // SAFETY: the buffer is new, initialised and exclusive, and has no pool.
        Some(unsafe { Packet::from_raw(buffer::alloc_heap(&self.in_use)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::MAX_FRAME;

    #[test]
    fn is_bounded_and_frees_on_any_thread() {
        let pool = HeapPool::new(2);
        let (a, b) = (pool.alloc().unwrap(), pool.alloc().unwrap());
        assert!(pool.alloc().is_none());
        drop(a);
        let c = pool.alloc().unwrap();
        std::thread::spawn(move || drop((b, c))).join().unwrap();
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn packets_outlive_the_pool() {
        let mut packet = HeapPool::new(1).alloc().unwrap();
        packet.append(4).unwrap().copy_from_slice(b"safe");
        assert_eq!(packet.data(), b"safe");
    }

    #[test]
    fn refuses_frames_larger_than_a_buffer() {
        let pool = HeapPool::new(1);
        assert!(pool.alloc_from(&[0; MAX_FRAME]).is_some());
        assert!(pool.alloc_from(&[0; MAX_FRAME + 1]).is_none());
        assert_eq!(pool.in_use(), 0);
    }
}
