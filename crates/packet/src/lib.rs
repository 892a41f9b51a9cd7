//! Packets with one owner.
//!
//! A [`Packet`] is an owned message buffer: laid out as DPDK's `rte_mbuf`, it *is* one when it came from a DPDK pool, and
//! a plain heap allocation when it came from a [`HeapPool`]. It is neither `Clone` nor `Copy`: who has sent a packet can
//! no longer reach it, and a packet that goes out of scope goes home to its pool. A [`Batch`] owns up to [`BURST`] of them.
//!
//! Nothing here needs DPDK: tests, fuzzers and miri run on heap packets.
//!
//! ```
//! use packet::{Batch, HeapPool, Pool};
//!
//! let pool = HeapPool::new(64);
//! let mut batch = Batch::new();
//! batch.push(pool.alloc_from(b"sixty bytes or so").unwrap()).unwrap();
//! assert_eq!((batch.len(), pool.in_use()), (1, 1));
//! drop(batch);
//! assert_eq!(pool.in_use(), 0);
//! ```
//!
//! A packet that was sent is gone:
//! ```compile_fail,E0382
//! use packet::{Batch, HeapPool, Pool};
//! let (pool, mut batch) = (HeapPool::new(1), Batch::new());
//! let packet = pool.alloc().unwrap();
//! batch.push(packet).unwrap();
//! packet.data();
//! ```
//! A packet cannot be copied behind its owner's back:
//! ```compile_fail,E0599
//! use packet::{HeapPool, Pool};
//! let pool = HeapPool::new(1);
//! let packet = pool.alloc().unwrap();
//! let twin = packet.clone();
//! ```
//! What was borrowed from a packet does not outlive the batch that holds it:
//! ```compile_fail,E0502
//! use packet::{Batch, HeapPool, Pool};
//! let (pool, mut batch) = (HeapPool::new(1), Batch::new());
//! batch.push(pool.alloc().unwrap()).unwrap();
//! let kept = batch.iter().next().unwrap().data();
//! batch.clear();
//! assert!(kept.is_empty());
//! ```

mod batch;
pub mod clock;
mod heap;
mod lanes;
mod mbuf;
mod note;
mod packet;

pub use batch::{BURST, Batch, Drain};
pub use heap::{HeapPool, heap_packets_possible};
pub use lanes::permute16;
pub use mbuf::{FreeHook, Mbuf, NOTED, TIMESTAMPED, set_free_hook};
pub use note::{NOTE_MOST, Note};
pub use packet::{Meta, MetaMut, Packet, Stamp};

/// Where packets come from.
pub trait Pool: Sync {
    /// An empty packet with [`HEADROOM`] bytes before its data, or `None` when all are in use.
    fn alloc(&self) -> Option<Packet>;

    /// A packet with a copy of `frame`, or `None` when all are in use or `frame` does not fit.
    fn alloc_from(&self, frame: &[u8]) -> Option<Packet> {
        let mut packet = self.alloc()?;
        packet.append(frame.len())?.copy_from_slice(frame);
        Some(packet)
    }
}

/// Bytes that a fresh packet keeps free before its data (DPDK's `RTE_PKTMBUF_HEADROOM`).
pub const HEADROOM: usize = 128;
