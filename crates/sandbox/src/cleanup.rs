//! Removal of a sandbox's containers, files and control groups at the end, also if this process is killed.

use runtime::CleanupProcess;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Removes the containers in a directory (`$1`) and in those of processes that reloads have started, the directory, in
/// which others may be writing still, and the control groups (`$2`, ...) once they are empty.
const SCRIPT: &str = r#"exec 2>/dev/null
for container in "$1"/.runc/*/ "$1"/.[0-9]*/.runc/*/; do
    [ -d "$container" ] && runc --root "$(dirname "$container")" delete --force "$(basename "$container")"
done
tries=0
until rm -rf "$1" || [ $tries -ge 500 ]; do tries=$((tries + 1)); sleep 0.01; done
shift
for group; do
    tries=0
    while [ -d "$group" ] && ! rmdir "$group" && [ $tries -lt 500 ]; do tries=$((tries + 1)); sleep 0.01; done
done"#;

/// Starts a cleanup process for a directory and control groups.
///
/// # Errors
/// No shell can be started.
pub(crate) fn start_cleanup(folder: &Path, groups: &[PathBuf]) -> std::io::Result<CleanupProcess> {
    CleanupProcess::start(SCRIPT, std::iter::once(folder).chain(groups.iter().map(PathBuf::as_path)), None)
}

/// Returns the folder for the folders of runs, which contain sockets.
pub(crate) fn runtime_folder() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/run".into();
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Removes folders of processes of this user whose cleanup process was killed, too.
pub(crate) fn remove_orphans() {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(runtime_folder()).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let id = name.to_str().and_then(|name| name.strip_prefix("bondstone-")).and_then(|id| id.parse::<u32>().ok());
        let is_own = path.symlink_metadata().is_ok_and(|of| of.is_dir() && of.uid() == own);
        let Some(id) = id.filter(|_| is_own) else { continue };
        let is_there = id != std::process::id() && Path::new(&format!("/proc/{id}")).exists();
        // a process in another namespace may use it
        if !is_there && File::open(&path).is_ok_and(|folder| folder.try_lock().is_ok()) {
            // errors: the rest is removed
            drop(start_cleanup(&path, &[]));
        }
    }
}
