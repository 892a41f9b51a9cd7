//! The SIGBUS handler for truncated shared memory.
//!
//! A process that shares a memory file with this one, such as the other side of a vhost port, may truncate it. An
//! access beyond the new end raises SIGBUS. The lost page is replaced by zeros, which are as valid as any other content
//! that the other side may write.

use std::sync::atomic::{AtomicBool, Ordering};

/// `si_code` of an access beyond the end of a mapped file.
const BUS_ADRERR: libc::c_int = 2;
/// Page sizes in bytes: a huge page can only be replaced as a whole.
const PAGE_SIZES: [usize; 2] = [4096, 2 << 20];

/// Maps a zero page over the faulting address if the signal reports a truncated file; returns true if that succeeded.
/// Async-signal-safe.
pub(crate) fn replace_lost_page(signal: libc::c_int, code: libc::c_int, at: usize) -> bool {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if signal != libc::SIGBUS || code != BUS_ADRERR {
        return false;
    }
    let map_zeros = |size: usize| {
        let base = std::ptr::without_provenance_mut(at & !(size - 1));
        let (rights, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: the page belongs to a mapping whose file no longer reaches so far, so it holds no data.
        unsafe { libc::mmap(base, size, rights, kind, -1, 0) != libc::MAP_FAILED }
    };
    let replaced = PAGE_SIZES.into_iter().any(map_zeros);
    if replaced && !WARNED.swap(true, Ordering::Relaxed) {
        let line = b"warning: another process truncated memory shared with this one; the lost part reads as zeros\n";
        // SAFETY: the call only reads the line.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
    replaced
}
