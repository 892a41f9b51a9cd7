//! Network namespaces of control planes.

use super::lock::Lock;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A named network namespace that this process has locked. It is removed with this if a supervisor has created it.
pub(super) struct Namespace {
    name: String,
    created: Option<u64>,
    _lock: Lock,
}

impl Namespace {
    /// Opens a namespace, or creates it. If another run has locked it, waits until `deadline` for its end.
    ///
    /// # Errors
    /// It cannot be created, or is that of another run.
    pub(super) fn open(name: &str, deadline: Instant) -> Result<Namespace, String> {
        let mut lock = Lock::take(name, deadline)?;
        let existing = number(name);
        let before = lock.created_before();
        let created = match existing {
            // that of a supervisor that was killed, or of the administrator
            Some(existing) => before.filter(|before| *before == existing),
            None => {
                ip(&["netns", "add", name]).map_err(|e| {
                    format!("network namespace {name} cannot be created: {e}; run as root, and install iproute2")
                })?;
                number(name)
            }
        };
        let recorded = lock.record(created);
        let namespace = Namespace { name: name.to_owned(), created, _lock: lock };
        recorded.map_err(|e| format!("lock of network namespace {name}: {e}"))?;
        if created.is_some() {
            // ignore errors: it may be up
            let _ = ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        Ok(namespace)
    }

    /// Returns its number if a supervisor has created it.
    pub(super) fn created(&self) -> Option<u64> {
        self.created
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that runs a program in it.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // another one of this name is not removed
        if self.created.is_some() && self.created == number(&self.name) {
            // ignore errors: another program has removed it
            let _ = ip(&["netns", "del", &self.name]);
        }
    }
}

/// Returns the number of a namespace, if it exists.
fn number(name: &str) -> Option<u64> {
    std::fs::metadata(Path::new("/run/netns").join(name)).ok().map(|found| found.ino())
}

/// Runs `ip`.
fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
