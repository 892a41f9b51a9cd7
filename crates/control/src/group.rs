//! The group that may use a control socket beside its owner.

use diagnostics::Diagnostic;
use std::fs::{Permissions, read_to_string, set_permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

/// A group of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(u32);

impl Group {
    /// Returns the group with a name of `/etc/group`, or a number.
    ///
    /// # Errors
    /// There is no such group.
    pub fn named(name: &str) -> Result<Group, Diagnostic> {
        let groups = read_to_string("/etc/group").unwrap_or_default();
        Group::find(&groups, name).ok_or_else(|| {
            let remedy = "name a group of /etc/group, or write the number of a group";
            Diagnostic::new("is not a group").value(name).remedy(remedy)
        })
    }

    fn find(groups: &str, name: &str) -> Option<Group> {
        let id = |line: &str| {
            let mut fields = line.split(':');
            (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
        };
        groups.lines().find_map(id).or_else(|| name.parse().ok()).map(Group)
    }

    /// Makes the group that of a file with these permissions.
    pub(crate) fn set(self, path: &Path, mode: u32) -> std::io::Result<()> {
        chown(path, None, Some(self.0))?;
        set_permissions(path, Permissions::from_mode(mode))
    }

    /// Checks whether the group can reach files in the directory of a socket.
    ///
    /// # Errors
    /// The directory is not passable for it.
    pub fn check_directory(self, socket: &Path) -> Result<(), Diagnostic> {
        let dir = match socket.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let passable =
            |file: std::fs::Metadata| file.mode() & 0o001 != 0 || file.gid() == self.0 && file.mode() & 0o010 != 0;
        if dir.metadata().is_ok_and(passable) {
            return Ok(());
        }
        let remedy = format!("run chgrp {} {dir} && chmod g+x {dir}", self.0, dir = dir.display());
        Err(Diagnostic::new("is not passable for the group of the control socket").value(dir.display()).remedy(remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_names_and_numbers() {
        let groups = "root:x:0:\nnet-ops:x:1042:alice,bob\nbroken\n";
        assert_eq!(Group::find(groups, "net-ops"), Some(Group(1042)));
        assert_eq!(Group::find(groups, "7"), Some(Group(7)));
        assert_eq!((Group::find(groups, "alice"), Group::find(groups, "broken")), (None, None));
        let error = Group::named("no such group").unwrap_err().to_string();
        assert!(error.contains("no such group") && error.contains("help:"), "{error}");
    }

    #[test]
    fn the_directory_must_be_passable() {
        let dir = tempfile::tempdir().unwrap();
        let group = Group(dir.path().metadata().unwrap().gid());
        let socket = dir.path().join("edge.sock");
        set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        assert!(group.check_directory(&socket).unwrap_err().remedy.unwrap().contains("chmod g+x"));
        set_permissions(dir.path(), Permissions::from_mode(0o710)).unwrap();
        assert!(group.check_directory(&socket).is_ok());
    }
}
