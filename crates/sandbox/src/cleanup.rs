//! Removal of a sandbox's containers, files and control groups at the end, also if this process is killed.

use crate::error::{environment_error, not_writable};
use runtime::{CleanupProcess, Error};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
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

/// The folder of this process, which is removed at its end.
pub struct RunFolder {
    path: PathBuf,
    // dropped first: the script removes the folder
    _cleanup: CleanupProcess,
    /// Lock of the folder; an unlocked folder is an orphan.
    _lock: File,
}

impl RunFolder {
    /// Creates the folder with this mode, after removing those of killed processes.
    ///
    /// # Errors
    /// This user may not create it.
    pub fn create(mode: u32) -> Result<RunFolder, Error> {
        Self::create_with_groups(mode, &[])
    }

    /// As [`RunFolder::create`]; these control groups are removed at the end as well.
    pub(crate) fn create_with_groups(mode: u32, groups: &[PathBuf]) -> Result<RunFolder, Error> {
        remove_orphans();
        let path = run_folder();
        let failed = |e: std::io::Error| not_writable(&path, &e);
        // an existing folder belongs to another process
        DirBuilder::new().mode(mode).create(&path).map_err(failed)?;
        let lock = File::open(&path).and_then(|folder| folder.lock().map(|()| folder)).map_err(failed)?;
        // before anything else is created that has to be removed
        let cleanup = start_cleanup(&path, groups)
            .map_err(|e| environment_error(format!("no shell can be started: {e}"), "install a shell"))?;
        Ok(RunFolder { path, _cleanup: cleanup, _lock: lock })
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the folder of this process, which contains the sockets of its sandboxes.
pub(crate) fn run_folder() -> PathBuf {
    runtime_folder().join(format!("bondstone-{}", std::process::id()))
}

/// Starts a cleanup process for a directory and control groups.
pub(crate) fn start_cleanup(folder: &Path, groups: &[PathBuf]) -> std::io::Result<CleanupProcess> {
    CleanupProcess::start(SCRIPT, std::iter::once(folder).chain(groups.iter().map(PathBuf::as_path)), None)
}

/// Returns the folder for the folders of runs, which contain sockets.
fn runtime_folder() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/run".into();
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Removes folders of processes of this user whose cleanup process was killed, too.
fn remove_orphans() {
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
