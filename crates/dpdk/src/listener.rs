//! DPDK's thread that answers at vhost sockets. It finds a new socket when something happens at an older one, or once a second:
//! what waits to be started until somebody has answered would wait that long. So something is made to happen.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_link, read_to_string};
use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The end of that thread's own pipe by which it is woken.
static BELL: Mutex<Option<std::fs::File>> = Mutex::new(None);

/// Opens a vhost socket by `start`, and has the thread find it.
pub(crate) fn told_of<T>(start: impl FnOnce() -> T) -> T {
    let mut bell = BELL.lock().unwrap_or_else(PoisonError::into_inner);
    let before = if bell.is_none() { pipes() } else { BTreeMap::new() };
    let done = start();
    if bell.is_none() {
        // it is made with the first socket
        let new = pipes().into_iter().find(|(pipe, _)| !before.contains_key(pipe));
        *bell = new.and_then(|(_, end)| duplicate(end)).map(Into::into);
    }
    if let Some(bell) = &mut *bell {
        // errors: it finds the socket a second later
        let _ = bell.write(&[0]);
    }
    done
}

fn duplicate(end: RawFd) -> Option<OwnedFd> {
    // SAFETY: it was open a moment ago, and DPDK never closes it; another's would be duplicated just as well.
    unsafe { BorrowedFd::borrow_raw(end) }.try_clone_to_owned().ok()
}

/// Pipes of which this process has both ends, each by the end that is written to.
fn pipes() -> BTreeMap<PathBuf, RawFd> {
    let mut ends: BTreeMap<PathBuf, Vec<RawFd>> = BTreeMap::new();
    for entry in read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let to = read_link(entry.path()).ok().filter(|to| to.to_string_lossy().starts_with("pipe:"));
        if let (Some(number), Some(to)) = (number, to) {
            ends.entry(to).or_default().push(number);
        }
    }
    let is_written = |end: &RawFd| {
        let flags = read_to_string(format!("/proc/self/fdinfo/{end}")).unwrap_or_default();
        let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"));
        flags.is_some_and(|flags| {
            i32::from_str_radix(flags.trim(), 8).is_ok_and(|flags| flags & libc::O_ACCMODE == libc::O_WRONLY)
        })
    };
    let both = ends.into_iter().filter(|(_, ends)| ends.len() == 2);
    both.filter_map(|(pipe, ends)| Some((pipe, ends.into_iter().find(is_written)?))).collect()
}
