//! The directory of the sockets of one user.

use crate::client::Client;
use crate::group::Group;
use std::fs::{DirBuilder, read_dir};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Environment variable that names another directory.
const VARIABLE: &str = "BONDSTONE_RUNTIME_DIR";
/// Directory of the instances of root.
const ROOT_DIRECTORY: &str = "/run/bondstone";

/// Returns the directory of the sockets: `$BONDSTONE_RUNTIME_DIR`, `/run/bondstone` for root, otherwise `bondstone` in
/// `$XDG_RUNTIME_DIR`; `None` if a user has none of them.
pub fn runtime_directory() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(VARIABLE).filter(|dir| !dir.is_empty()) {
        return Some(dir.into());
    }
    if rustix::process::geteuid().is_root() {
        return Some(ROOT_DIRECTORY.into());
    }
    std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(|dir| Path::new(&dir).join("bondstone"))
}

/// Returns the directories in which a user finds the sockets of instances: its own, and that of root, which may be open to
/// a group of the user.
pub fn directories() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = runtime_directory().into_iter().collect();
    let own_is_named = std::env::var_os(VARIABLE).is_some_and(|dir| !dir.is_empty());
    if !own_is_named && !all.contains(&ROOT_DIRECTORY.into()) {
        all.push(ROOT_DIRECTORY.into());
    }
    all
}

/// Returns the socket of this process, which runs `file`: its name without extension and the number of the process.
/// Creates the directory, which `group` can then list and pass, and removes sockets that killed processes have left in it.
///
/// # Errors
/// The directory cannot be created.
pub fn own_socket(dir: &Path, file: &Path, group: Option<Group>) -> std::io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    if let Some(group) = group {
        group.set(dir, 0o750)?;
    }
    for socket in sockets(dir) {
        if matches!(std::os::unix::net::UnixStream::connect(&socket), Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused)
        {
            // ignore errors: it belongs to another user, or is gone
            let _ = std::fs::remove_file(&socket);
        }
    }
    remove_staging_directories(dir);
    let stem: String = file.file_stem().unwrap_or_default().to_string_lossy().chars().take(40).collect();
    Ok(dir.join(format!("{stem}-{}.sock", std::process::id())))
}

/// Removes what processes that were killed while they created their socket have left: directories `.PID`.
fn remove_staging_directories(dir: &Path) {
    for entry in read_dir(dir).into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.strip_prefix('.')?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // ignore errors: it belongs to another user, or is gone
            let _ = std::fs::remove_file(entry.path().join("s"));
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// Returns the sockets in a directory, in order.
fn sockets(dir: &Path) -> Vec<PathBuf> {
    let entries = read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<_> = entries.filter(|path| is_control_socket(path)).collect();
    all.sort();
    all
}

/// Returns true for a name of [`own_socket`]: sockets of ports may be in the same directory, and a connection would
/// reach their driver.
fn is_control_socket(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".sock"));
    name.and_then(|name| name.rsplit_once('-')).is_some_and(|(_, pid)| pid.parse::<u32>().is_ok())
}

/// Connects to all running instances whose sockets are in a directory.
pub fn instances(dir: &Path) -> Vec<(PathBuf, Client)> {
    let connect = |path: PathBuf| Client::connect(&path).ok().map(|client| (path, client));
    sockets(dir).into_iter().filter_map(connect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_ports_are_not_connected() {
        let dir = tempfile::tempdir().unwrap();
        let own = own_socket(dir.path(), Path::new("edge.toml"), None).unwrap();
        for socket in [&own, &dir.path().join("in.sock"), &dir.path().join("port-a.sock")] {
            std::fs::write(socket, "").unwrap();
        }
        assert_eq!(sockets(dir.path()), [own]);
    }

    #[test]
    fn what_killed_processes_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let own = format!(".{}", std::process::id());
        // above the greatest number of a process
        for name in [".4294967295", &own, ".other"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join(".4294967295/s"), "").unwrap();
        own_socket(dir.path(), Path::new("edge.toml"), None).unwrap();
        let mut left: Vec<_> =
            read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, [own, ".other".to_owned()]);
    }
}
