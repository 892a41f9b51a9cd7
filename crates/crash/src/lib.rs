//! Crash reports: which activity ended the process.
//!
//! Safe code can end the process that it shares with others: by a stack overflow, by `abort`, by a panic during
//! unwinding, by `exit`. None of these can be contained, but the cause can be **attributed**. A thread declares its
//! activity with [`with_activity`]; if the process dies in that thread, the last line on standard error names the
//! activity and the cause, and the exit status is [`EXIT_STATUS`], whatever status the code passed to `exit`.
//!
//! One such fault has an external cause: another process truncates memory that it shares with this one. The lost pages
//! are replaced by zeros.
//!
//! Unbounded allocation also ends a process. With [`CountingAllocator`] as the global allocator, the bytes that a
//! thread allocates are recorded with its activity ([`Activity::record_allocation`]), and [`resident_bytes`] returns
//! the total.
//!
//! ```
//! use std::sync::Arc;
//!
//! struct Polling;
//! // SAFETY: returns a constant.
//! unsafe impl crash::Activity for Polling {
//!     fn description(&self) -> Option<&str> {
//!         Some("nf \"lookup\" on CPU 3")
//!     }
//! }
//!
//! crash::install();
//! let packets = crash::with_activity(Arc::new(Polling), || 32);
//! # assert_eq!(packets, 32);
//! ```
//! If that thread's stack overflows, the process ends with status 4 and
//! `error: nf "lookup" on CPU 3 overflowed its stack: the whole process has ended`.

mod activity;
mod allocator;
mod report;
mod sigbus;
mod thread_clock;

pub use activity::with_activity;
pub use allocator::{CountingAllocator, is_counting, resident_bytes};
pub use report::install;
pub use thread_clock::ThreadClock;

/// Exit status of a process that ended with a crash report.
pub const EXIT_STATUS: i32 = 4;

/// The activity of a thread.
///
/// # Safety
/// Signal handlers and the allocator call the methods: they must not allocate, lock, panic or block.
pub unsafe trait Activity: Send + Sync {
    /// Returns what runs at this moment, such as `nf "lookup" on CPU 3`; `None` if a fault could not be attributed.
    fn description(&self) -> Option<&str>;

    /// Records bytes that were allocated, or freed if negative, by what runs at this moment.
    fn record_allocation(&self, bytes: i64) {
        let _ = bytes;
    }
}
