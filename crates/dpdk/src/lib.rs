//! DPDK behind safe types.
//!
//! [`Eal`] is started once per process and chooses its own mode; [`Mempool`] makes packets; [`Port`] opens any device that
//! DPDK has a driver for and hands out its queues, each with one owner. A pool outlives its packets, and a port its queues,
//! by construction. No privilege is needed: without huge pages everything works, slower.
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
//! assert_eq!(queues.rx[0].receive(&mut batch), 32);
//! assert_eq!(batch.as_slice()[0].len(), 64);
//! assert_eq!(queues.tx[0].send(&mut batch), 32);
//! # Ok::<(), dpdk::Error>(())
//! ```

mod eal;
pub mod kernel;
mod layout;
mod listener;
mod loan;
mod pool;
mod port;

pub use eal::{Eal, LcoreGuard, Memory, close_inherited};
pub use loan::{Borrowed, Borrower, Lender, Lending, Returned, Returning};
pub use pool::Mempool;
pub use port::{Port, PortConfig, PortHandle, PortInfo, PortStats, Queues, RxQueue, TxQueue};

use core::ffi::CStr;

/// What DPDK refused, why, and what it logged meanwhile.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {}{}", reason(*errno), tail(log))]
pub struct Error {
    /// What was attempted.
    pub what: String,
    /// The positive `errno` it gave.
    pub errno: i32,
    /// What DPDK logged during the attempt; may be empty.
    pub log: String,
}

/// What DPDK calls return, made ours.
pub type Result<T> = core::result::Result<T, Error>;

fn reason(errno: i32) -> String {
    // SAFETY: rte_strerror returns a NUL-terminated per-thread buffer for any number.
    unsafe { CStr::from_ptr(dpdk_sys::rte_strerror(errno)) }.to_string_lossy().into_owned()
}

fn tail(log: &str) -> String {
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

/// Release of the libdpdk in use, such as `DPDK 22.11.11`.
pub fn version() -> String {
    // SAFETY: a static string.
    unsafe { CStr::from_ptr(dpdk_sys::rte_version()) }.to_string_lossy().into_owned()
}
