//! Removal of work directories and containers of killed processes.

use super::container;
use crate::dut::context::WORK_DIR_PREFIX;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Removes work directories and containers that this user's ended processes left behind.
pub(crate) fn remove_leftovers() {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix(WORK_DIR_PREFIX)?.split('-').next()?.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()) else { continue };
        let is_own = fs::symlink_metadata(entry.path()).is_ok_and(|m| m.is_dir() && m.uid() == own);
        if is_own && pid != std::process::id() {
            container::remove_leftovers(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
