//! Where a device under test lives: a folder, CPUs, what it is to forward.

use super::{DutError, Plan};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use traffic::nfpa::tables::Tables;
use wire::MacAddr;

/// Beginning of the names of folders; the process's number follows.
const FOLDER: &str = "bondstone-dut-";

/// What a device is to forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentTo {
    /// MAC address that packets are sent to, the device's own where it routes.
    pub dst_mac: MacAddr,
    /// Destinations of the packets, prefixes.
    pub destinations: Vec<String>,
    /// What it has to know for one of NFPA's traces, if that is sent.
    pub tables: Option<Tables>,
}

/// A place for one device under test. Its folder is removed with it.
pub struct Site {
    name: String,
    folder: PathBuf,
    cpus: Vec<usize>,
    ports: usize,
    /// What it is to forward.
    pub(crate) sent: SentTo,
    log: Vec<String>,
}

impl Site {
    /// For a device called `name`, as its plan says, that is to forward what is `sent`. Removes folders
    /// that processes left behind which are gone.
    ///
    /// # Errors
    /// When no folder can be made.
    pub fn new(name: &str, plan: &Plan, sent: SentTo) -> Result<Site, DutError> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let all = std::env::temp_dir();
        remove_leftovers(&all);
        let folder = all.join(format!("{FOLDER}{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&folder).map_err(|e| DutError {
            dut: name.to_owned(),
            problem: format!("no folder {}: {e}", folder.display()),
            cure: "set TMPDIR to a folder where this user may write".to_owned(),
        })?;
        let cpus = plan.cpus.clone();
        Ok(Site { name: name.to_owned(), folder, cpus, ports: plan.ports.count(), sent, log: vec![] })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file or socket in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// CPUs that it may use.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Ports that the generator has, and it as well.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// Its CPUs as a mask, hexadecimal.
    pub fn cpu_mask(&self) -> String {
        format!("{:#x}", self.cpus.iter().fold(0u128, |mask, cpu| mask | 1u128.checked_shl(*cpu as u32).unwrap_or(0)))
    }

    /// Its CPUs as a list.
    pub fn cpu_list(&self) -> String {
        self.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Keeps a line of how it was configured.
    pub fn note(&mut self, line: impl Into<String>) {
        // a folder with a number in it would make every configuration another one
        self.log.push(line.into().replace(&*self.folder.to_string_lossy(), "FOLDER"));
    }

    /// Those lines.
    pub fn notes(&self) -> String {
        self.log.join("\n")
    }

    /// Writes what the device has to know into a file; where it is. None where nothing has a table.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn table(
        &self,
        name: &str,
        write: impl Fn(&Tables, &mut io::BufWriter<fs::File>) -> io::Result<()>,
    ) -> Result<Option<PathBuf>, DutError> {
        let Some(tables) = &self.sent.tables else { return Ok(None) };
        let path = self.path(name);
        let written = fs::File::create(&path).and_then(|file| {
            let mut file = io::BufWriter::new(file);
            write(tables, &mut file)?;
            file.flush()
        });
        written.map_err(|e| self.file_error(&path, &e))?;
        Ok(Some(path))
    }

    /// An error of this device.
    pub fn wrong(&self, problem: impl Into<String>, cure: impl Into<String>) -> DutError {
        DutError { dut: self.name.clone(), problem: problem.into(), cure: cure.into() }
    }

    /// An error about a file.
    pub fn file_error(&self, path: &Path, e: &io::Error) -> DutError {
        self.wrong(format!("{}: {e}", path.display()), "look at the free space and the rights there")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // errors: what is left is removed by the next
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes folders of this user's processes that are gone.
fn remove_leftovers(all: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix(FOLDER)?.split('-').next()?.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()) else { continue };
        let is_own = fs::symlink_metadata(entry.path()).is_ok_and(|m| m.is_dir() && m.uid() == own);
        if is_own && pid != std::process::id() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
