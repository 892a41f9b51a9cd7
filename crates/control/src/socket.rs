//! Files of UNIX sockets that are accessible to their owner, or a group, alone from the start, and that survive neither their
//! process nor a replacement.

use crate::group::Group;
use diagnostics::Diagnostic;
use std::fs::{DirBuilder, Permissions, remove_dir, remove_file, rename, set_permissions, symlink_metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Checks the path of the control socket.
pub fn check(socket: &Path) -> Result<(), Diagnostic> {
    let invalid = |what: &str, remedy: &str| Err(Diagnostic::new(what).value(socket.display()).remedy(remedy));
    match socket.parent() {
        Some(dir) if dir.as_os_str().is_empty() || dir.is_dir() => {}
        _ => return invalid("is in a directory that does not exist", "name a path in an existing directory"),
    }
    // the limit of the kernel, for the final and the temporary path
    if socket.as_os_str().len().max(staging_dir(socket).as_os_str().len() + 2) > 107 {
        return invalid("is too long", "write a path of 90 bytes or fewer");
    }
    if symlink_metadata(socket).is_ok_and(|file| !file.file_type().is_socket()) {
        return invalid("is not a socket", "name a path that does not exist yet");
    }
    Ok(())
}

/// Returns the directory in which the socket is created, so that it is accessible to its owner alone from the start.
fn staging_dir(socket: &Path) -> PathBuf {
    socket.with_file_name(format!(".{}", std::process::id()))
}

/// Device and inode of a socket.
pub(crate) type SocketId = (u64, u64);

fn socket_id(socket: &Path) -> Option<SocketId> {
    symlink_metadata(socket).ok().map(|file| (file.dev(), file.ino()))
}

/// Listens on the path, accessible to the owner alone or to a group as well, unless another process does.
pub(crate) fn listen(socket: &Path, group: Option<Group>) -> std::io::Result<(UnixListener, SocketId)> {
    match symlink_metadata(socket) {
        Ok(file) if !file.file_type().is_socket() => return Err(ErrorKind::AlreadyExists.into()),
        Ok(_) => match UnixStream::connect(socket) {
            Ok(_) => return Err(ErrorKind::AddrInUse.into()),
            // left behind by a process that was killed
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
            Err(e) => return Err(e),
        },
        Err(_) => {}
    }
    let dir = staging_dir(socket);
    DirBuilder::new().mode(0o700).create(&dir)?;
    let staged = dir.join("s");
    let bound = UnixListener::bind(&staged).and_then(|listener| {
        match group {
            Some(group) => group.set(&staged, 0o660)?,
            None => set_permissions(&staged, Permissions::from_mode(0o600))?,
        }
        rename(&staged, socket)?;
        let id = socket_id(socket).ok_or(ErrorKind::NotFound)?;
        Ok((listener, id))
    });
    // ignore errors: the socket was not created, or has been moved
    let _ = remove_file(&staged);
    let _ = remove_dir(&dir);
    bound
}

/// Removes the socket and wakes the thread that accepts connections.
pub(crate) fn close(socket: &Path, was: SocketId) {
    // another process may have replaced it
    if socket_id(socket) == Some(was) {
        // ignore errors: the listener may be closed already
        drop(UnixStream::connect(socket));
        let _ = remove_file(socket);
    }
}
