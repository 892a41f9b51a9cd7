//! Who brought the process down.
//!
//! Safe code can still end the process that it shares with others: by a stack that overflows, by `abort`, by a panic while
//! another unwinds, by `exit`. None of that can be contained; here it is **named**. A thread says by [`within`] what it is
//! doing, in a way that can be asked at any moment; when the process dies in that thread, the last line on standard error
//! says who it was and what happened, and the exit status is that of a failure, [`FAILED`], whatever the culprit asked for.
//!
//! One such fault is not that of a thread: memory that is shared with another process, which makes its file shorter. It reads as
//! zeros from then on.
//!
//! Memory without bound is the same kind of fault, only slower. With [`Counting`] as the allocator of the program, what a
//! thread allocates is booked to what it was doing ([`Doing::book`]), and [`resident`] tells how much the process has.
//!
//! ```
//! use std::sync::Arc;
//!
//! struct Polling;
//! impl crash::Doing for Polling {
//!     fn now(&self) -> Option<&str> {
//!         Some("nf \"lookup\" on CPU 3")
//!     }
//! }
//!
//! crash::install();
//! let packets = crash::within(Arc::new(Polling), || 32);
//! # assert_eq!(packets, 32);
//! ```
//! Should that thread's stack overflow meanwhile, the process ends with status 4 and
//! `error: nf "lookup" on CPU 3 overflowed its stack: the process has ended, and everything in it`.

mod here;
mod last_words;
mod memory;
mod shrunk;

pub use here::within;
pub use last_words::install;
pub use memory::{Counting, is_counting, resident};

/// Exit status of a process that was brought down.
pub const FAILED: i32 = 4;

/// What a thread is doing. It is asked while the process dies, in a signal handler: no method may allocate, lock, panic or
/// wait.
pub trait Doing: Send + Sync {
    /// Who runs at this moment, such as `nf "lookup" on CPU 3`; `None` while it is nobody to blame.
    fn now(&self) -> Option<&str>;

    /// Books bytes that were allocated, or given back when negative, to who runs at this moment. It is called from the
    /// allocator.
    fn book(&self, bytes: i64) {
        let _ = bytes;
    }
}
