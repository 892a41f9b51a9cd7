//! Directories that no other user can change.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Bits of a mode that let other users write.
const OTHERS_WRITE: u32 = 0o022;
/// Bit of a mode by which only the owner of an entry may remove it.
const STICKY: u32 = 0o1000;

/// Creates a directory and its parents with mode 0700, as far as they are missing, and checks it.
///
/// # Errors
/// Those of [`check`].
pub(crate) fn create(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    check(path)
}

/// Checks that only root and this user can change an absolute path, where it leads, and what is in this directory.
///
/// # Errors
/// It is no directory, or another user may change it.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let refused = |at: &Path, problem: &str| {
        let problem = format!("{} {problem}", at.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
    };
    // a symbolic link of another user may lead anywhere, so the links are checked, and then their targets
    let real = path.canonicalize()?;
    let own = rustix::process::geteuid().as_raw();
    let is_writable = |of: &Metadata| !of.is_symlink() && of.mode() & OTHERS_WRITE != 0 && of.mode() & STICKY == 0;
    for at in path.ancestors().chain(real.ancestors()) {
        let of = at.symlink_metadata()?;
        if ![0, own].contains(&of.uid()) {
            return refused(at, &format!("belongs to user {}", of.uid()));
        }
        if is_writable(&of) {
            return refused(at, "can be changed by other users");
        }
    }
    let of = path.symlink_metadata()?;
    if !of.is_dir() || of.uid() != own || of.mode() & OTHERS_WRITE != 0 {
        return refused(path, "is not a directory that only this user can change");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    #[test]
    fn rejects_directories_that_others_can_change() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        create(&at("a/b")).unwrap();
        assert_eq!(at("a/b").metadata().unwrap().mode() & 0o777, 0o700);
        // a planted link to a directory of this user
        symlink(at("a"), at("link")).unwrap();
        assert!(create(&at("link")).is_err());
        create(&at("link/b")).unwrap();
        // below it, if another user owns the link
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(at("link"), Some(1234), None).unwrap();
            assert!(create(&at("link/b")).is_err());
            create_dir(at("foreign")).unwrap();
            chown(at("foreign"), Some(1234), None).unwrap();
            assert!(create(&at("foreign")).is_err() && create(&at("foreign/own")).is_err());
        }
        create_dir(at("open")).unwrap();
        set_permissions(at("open"), Permissions::from_mode(0o777)).unwrap();
        assert!(create(&at("open")).is_err() && create(&at("open/own")).is_err());
        // as in /tmp
        set_permissions(at("open"), Permissions::from_mode(0o1777)).unwrap();
        assert!(create(&at("open")).is_err());
        create(&at("open/own")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        assert!(create(&at("file")).is_err());
    }
}
