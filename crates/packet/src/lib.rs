//! Packets and batches with one owner.
//!
//! | type | purpose |
//! |---|---|
//! | [`Packet`] | one packet: a buffer that its owner can read, change, extend and send |
//! | [`Batch`] | up to [`BURST`] packets that are processed together |
//! | [`Pool`], [`HeapPool`] | sources of packets; `dpdk` has the pools of NICs |
//! | [`Meta`], [`MetaMut`] | the buffer header: port, hash, time stamp |
//! | [`Metadata`] | a typed value that one node stores with a packet for a later one |
//!
//! A [`Packet`] has the layout of DPDK's `rte_mbuf`. One from a DPDK pool *is* an mbuf, one from a [`HeapPool`] is a
//! heap allocation. It is neither `Clone` nor `Copy`: code that has sent a packet can no longer access it, and dropping
//! a packet frees its buffer to the pool. This crate does not need DPDK: tests, fuzzers and Miri run on heap packets.
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
//! A packet cannot be used after it was sent:
//! ```compile_fail,E0382
//! use packet::{Batch, HeapPool, Pool};
//! let (pool, mut batch) = (HeapPool::new(1), Batch::new());
//! let packet = pool.alloc().unwrap();
//! batch.push(packet).unwrap();
//! packet.data();
//! ```
//! A packet cannot be cloned:
//! ```compile_fail,E0599
//! use packet::{HeapPool, Pool};
//! let pool = HeapPool::new(1);
//! let packet = pool.alloc().unwrap();
//! let copy = packet.clone();
//! ```
//! References into a packet do not outlive the batch that holds it:
//! ```compile_fail,E0502
//! use packet::{Batch, HeapPool, Pool};
//! let (pool, mut batch) = (HeapPool::new(1), Batch::new());
//! batch.push(pool.alloc().unwrap()).unwrap();
//! let kept = batch.iter().next().unwrap().data();
//! batch.clear();
//! assert!(kept.is_empty());
//! ```

mod batch;
mod buffer;
pub mod clock;
mod mbuf;
mod metadata;
mod packet;
mod permute;
mod pool;

pub use batch::{BURST, Batch, Drain};
pub use buffer::{FreeHook, HEADROOM, MAX_FRAME, MAX_JUMBO_FRAME, data_room, set_free_hook};
pub use mbuf::{METADATA_FLAG, Mbuf, TIMESTAMP_FLAG};
pub use metadata::{METADATA_MAX, Metadata};
pub use packet::{CaptureInfo, Meta, MetaMut, Packet};
pub use permute::permute16;
pub use pool::{HeapPool, Pool, heap_packets_exist};
