//! Memory that somebody else has taken away.
//!
//! Whoever shares a file of memory with this process, as the other side of a vhost port does, may make it shorter. To touch what
//! is gone raises SIGBUS. It becomes zeros here, which are as good as anything else that such a side may write.

use std::sync::atomic::{AtomicBool, Ordering};

/// What the kernel says of an address behind the end of a file (`BUS_ADRERR`).
const GONE: libc::c_int = 2;
/// Bytes of a page, and of a huge one, of which no part can be replaced alone.
const PAGES: [usize; 2] = [4096, 2 << 20];

/// Puts zeros where a signal says that memory is gone; whether that is so now. Called from a signal handler.
pub(crate) fn mend(signal: libc::c_int, code: libc::c_int, at: usize) -> bool {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if signal != libc::SIGBUS || code != GONE {
        return false;
    }
    let put = |size: usize| {
        let base = std::ptr::without_provenance_mut(at & !(size - 1));
        let (rights, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: the page was mapped, of a file that does not reach so far any more: nothing of it is lost.
        unsafe { libc::mmap(base, size, rights, kind, -1, 0) != libc::MAP_FAILED }
    };
    let mended = PAGES.into_iter().any(put);
    if mended && !TOLD.swap(true, Ordering::Relaxed) {
        let line = b"warning: somebody has taken away memory that is shared with this process; it reads zeros there\n";
        // SAFETY: reads the line.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
    mended
}
