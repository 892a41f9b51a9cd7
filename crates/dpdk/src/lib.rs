//! Safe types for DPDK.
//!
//! [`Eal`] is started once per process; [`Mempool`] allocates packets; [`Port`] opens any device for which DPDK has a
//! driver and returns its queues, each with one owner. A pool outlives its packets, and a port its queues, by
//! construction. No privileges are required: everything works without huge pages, slower.
//!
//! ```
//! use dpdk::{Eal, Memory, Mempool, Port, PortConfig};
//! use packet::Batch;
//!
//! let eal = Eal::start(Memory::Ordinary, &[])?;
//! let _lcore = eal.register_thread()?;
//! let pool = Mempool::new(eal, 1023)?;
//! let mut queues = Port::open(eal, "net_null", "size=64")?.start(&PortConfig::default(), &pool)?;
//! let mut batch = Batch::new();
//! assert_eq!(queues.rx[0].receive(&mut batch), 64);
//! assert_eq!(batch.as_slice()[0].len(), 64);
//! assert_eq!(queues.tx[0].send(&mut batch), 64);
//! # Ok::<(), dpdk::Error>(())
//! ```

mod driver;
mod eal;
mod layout;
mod memory;
pub mod netdev;
mod packet_socket;
mod pool;
mod port;
mod shared_ring;
mod vhost_listener;

pub use driver::Driver;
pub use eal::{Eal, LcoreGuard, close_files_on_exec, close_inherited_fds};
pub use memory::{Memory, MemoryLock};
pub use packet_socket::PacketSocket;
pub use pool::Mempool;
pub use port::{Port, PortConfig, PortHandle, PortInfo, PortStats, Queues, RxQueue, TxQueue};
pub use shared_ring::{ClientRx, ClientTx, RingClient, RingServer, ServerRx, ServerTx};

use core::ffi::CStr;

/// A failed DPDK operation, with its error code and what DPDK logged meanwhile.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {}{}", error_text(*errno), log_tail(log))]
pub struct Error {
    /// The operation that failed.
    pub what: String,
    /// The positive `errno`.
    pub errno: i32,
    /// DPDK's log messages of the operation; may be empty.
    pub log: String,
}

/// The result of a DPDK operation.
pub type Result<T> = core::result::Result<T, Error>;

fn error_text(errno: i32) -> String {
    // SAFETY: rte_strerror returns a NUL-terminated per-thread buffer for any number.
    unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(errno)) }.to_string_lossy().into_owned()
}

fn log_tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(3)..].join("; ");
    if last.is_empty() { last } else { format!(" (DPDK: {last})") }
}

fn check(what: impl FnOnce() -> String, rc: i32) -> Result<i32> {
    if rc >= 0 {
        return Ok(rc);
    }
    Err(Error { what: what(), errno: -rc, log: eal::take_log() })
}

/// Returns the release of the linked DPDK, such as `DPDK 22.11.11`.
pub fn version() -> String {
    // SAFETY: a static string.
    unsafe { CStr::from_ptr(dpdk_sys::rte_version()) }.to_string_lossy().into_owned()
}
