//! The detection of deleted taps.

use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// The open descriptor of a tap, which distinguishes its deletion from a move into another network namespace.
#[derive(Clone)]
pub(super) struct TapDescriptor(PathBuf);

impl TapDescriptor {
    /// Finds a descriptor of this process that is attached to the tap.
    pub(super) fn find(interface: &str) -> Option<TapDescriptor> {
        let entries = read_dir("/proc/self/fdinfo").ok()?.flatten().map(|entry| entry.path());
        let mut attached = entries.filter(|path| attached_interface(path).as_deref() == Some(interface));
        attached.next().map(TapDescriptor)
    }

    /// Returns true if the interface was deleted.
    pub(super) fn is_detached(&self) -> bool {
        attached_interface(&self.0).is_some_and(|name| name.is_empty())
    }
}

/// Returns the interface that a descriptor of `/dev/net/tun` is attached to, empty if it was deleted; `None` for other
/// descriptors.
fn attached_interface(fdinfo: &Path) -> Option<String> {
    let text = read_to_string(fdinfo).ok()?;
    text.lines().find_map(|line| line.strip_prefix("iff:")).map(|name| name.trim().to_owned())
}
