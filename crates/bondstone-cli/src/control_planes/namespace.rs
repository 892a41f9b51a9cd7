//! Network namespaces of control planes.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A named network namespace, which is removed with this if it was created here.
pub(super) struct Namespace {
    name: String,
    /// File that says which process has created it.
    marker: Option<PathBuf>,
}

impl Namespace {
    /// Opens a namespace, or creates it.
    ///
    /// # Errors
    /// It cannot be created, or is that of another run.
    pub(super) fn open(name: &str) -> Result<Namespace, String> {
        let name = name.to_owned();
        let exists = Path::new("/run/netns").join(&name).exists();
        let marker = Path::new("/run/bondstone").join(format!("namespace-{name}"));
        let owner = std::fs::read_to_string(&marker).ok().and_then(|text| text.trim().parse::<u32>().ok());
        let owner = owner.filter(|pid| *pid != std::process::id());
        match owner {
            Some(pid) if exists && Path::new("/proc").join(pid.to_string()).exists() => {
                return Err(format!("network namespace {name} is that of process {pid}; name another one"));
            }
            // one of a process that was killed
            Some(_) if exists => {}
            _ if exists => return Ok(Namespace { name, marker: None }),
            _ => {
                ip(&["netns", "add", &name]).map_err(|e| {
                    format!("network namespace {name} cannot be created: {e}; run as root, and install iproute2")
                })?;
            }
        }
        let write = || {
            std::fs::create_dir_all("/run/bondstone")?;
            std::fs::write(&marker, std::process::id().to_string())
        };
        if let Err(e) = write() {
            drop(Namespace { name, marker: Some(marker.clone()) });
            return Err(format!("{}: {e}", marker.display()));
        }
        // created before, perhaps: not an error if it is up
        let _ = ip(&["-n", &name, "link", "set", "lo", "up"]);
        Ok(Namespace { name, marker: Some(marker) })
    }

    /// Returns its number if a supervisor has made it.
    pub(super) fn made(&self) -> Option<u64> {
        self.marker.as_ref()?;
        std::fs::metadata(Path::new("/run/netns").join(&self.name)).ok().map(|found| found.ino())
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
        if let Some(marker) = &self.marker {
            // ignore errors: another program has removed it
            let _ = ip(&["netns", "del", &self.name]);
            let _ = std::fs::remove_file(marker);
        }
    }
}

/// Runs `ip`.
fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
