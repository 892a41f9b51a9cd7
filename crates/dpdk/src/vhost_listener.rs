//! DPDK's thread that accepts connections on vhost sockets. It adds a new socket to its poll set when an event occurs
//! on an older one, or once a second. Writing to its wake-up pipe is such an event, and saves the wait of up to a
//! second.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_link, read_to_string};
use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The write end of the thread's wake-up pipe.
static WAKE_PIPE: Mutex<Option<std::fs::File>> = Mutex::new(None);

/// Opens a vhost socket by calling `start`, and wakes the thread.
pub(crate) fn start_and_wake<T>(start: impl FnOnce() -> T) -> T {
    let mut wake_pipe = WAKE_PIPE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = if wake_pipe.is_none() { pipes() } else { BTreeMap::new() };
    let result = start();
    if wake_pipe.is_none() {
        // DPDK creates the pipe with the first socket
        let new = pipes().into_iter().find(|(pipe, _)| !before.contains_key(pipe));
        *wake_pipe = new.and_then(|(_, end)| duplicate(end)).map(Into::into);
    }
    if let Some(pipe) = &mut *wake_pipe {
        // errors: the thread finds the socket a second later
        let _ = pipe.write(&[0]);
    }
    result
}

fn duplicate(end: RawFd) -> Option<OwnedFd> {
    // SAFETY: it was open a moment ago, and DPDK never closes it; duplicating another descriptor would be harmless.
    unsafe { BorrowedFd::borrow_raw(end) }.try_clone_to_owned().ok()
}

/// Returns the write ends of the pipes of which this process has both ends.
fn pipes() -> BTreeMap<PathBuf, RawFd> {
    let mut ends: BTreeMap<PathBuf, Vec<RawFd>> = BTreeMap::new();
    for entry in read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let to = read_link(entry.path()).ok().filter(|to| to.to_string_lossy().starts_with("pipe:"));
        if let (Some(number), Some(to)) = (number, to) {
            ends.entry(to).or_default().push(number);
        }
    }
    let is_write_end = |end: &RawFd| {
        let flags = read_to_string(format!("/proc/self/fdinfo/{end}")).unwrap_or_default();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
        flags.is_some_and(|flags| {
            i32::from_str_radix(flags.trim(), 8).is_ok_and(|flags| flags & libc::O_ACCMODE == libc::O_WRONLY)
        })
    };
    let both = ends.into_iter().filter(|(_, ends)| ends.len() == 2);
    both.filter_map(|(pipe, ends)| Some((pipe, ends.into_iter().find(is_write_end)?))).collect()
}
