//! Where a device under test lives: a folder, CPUs, what it is to forward.

use super::{DutError, Env, Plan, container};
use crate::sent::SEED;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use traffic::nfpa::tables::Tables;
use traffic::nfpa::{Direction, Name};
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
    /// Which of NFPA's traces is sent, if one is: the device has to know its addresses.
    pub trace: Option<Name>,
}

/// A place for one device under test. Its folder is removed with it.
pub struct Site {
    name: String,
    folder: PathBuf,
    cpus: Vec<usize>,
    ports: usize,
    /// Interfaces that it is given.
    inner: Vec<String>,
    env: Env,
    /// What it is to forward.
    pub(crate) sent: SentTo,
    log: Vec<String>,
    remarks: Vec<String>,
    /// Numbers that differ from run to run.
    hidden: Vec<u32>,
    /// Names that differ so, and what stands for them.
    called: Vec<(String, &'static str)>,
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
            remedy: "set TMPDIR to a folder where this user may write".to_owned(),
        })?;
        Ok(Site {
            name: name.to_owned(),
            folder,
            cpus: plan.cpus.clone(),
            ports: plan.ports.count(),
            inner: plan.inner.clone(),
            env: plan.env,
            sent,
            log: vec![],
            remarks: vec![],
            hidden: vec![],
            called: vec![],
        })
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

    /// Interfaces that it is given; none where they are made for it.
    pub fn inner(&self) -> &[String] {
        &self.inner
    }

    /// What its programs run in.
    pub fn env(&self) -> Env {
        self.env
    }

    /// Its CPUs as a mask, hexadecimal, in groups of 32 bits, the highest first, with `between` between them.
    fn mask(&self, between: &str) -> String {
        let highest = self.cpus.iter().max().copied().unwrap_or(0) / 32;
        let group =
            |n: usize| self.cpus.iter().filter(|cpu| **cpu / 32 == n).fold(0u32, |mask, cpu| mask | 1 << (cpu % 32));
        let first = format!("{:x}", group(highest));
        let rest = (0..highest).rev().map(|n| format!("{between}{:08x}", group(n)));
        [first].into_iter().chain(rest).collect()
    }

    /// Its CPUs as a mask, hexadecimal.
    pub fn cpu_mask(&self) -> String {
        format!("0x{}", self.mask(""))
    }

    /// Its CPUs as the kernel's files have them.
    pub fn cpu_groups(&self) -> String {
        self.mask(",")
    }

    /// Its CPUs as a list.
    pub fn cpu_list(&self) -> String {
        self.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Keeps a line of how it was configured.
    pub fn note(&mut self, line: impl Into<String>) {
        // numbers of this run would make every configuration another one
        let own = self.folder.file_name().unwrap_or_default().to_string_lossy();
        let line = line.into().replace(&*self.folder.to_string_lossy(), "FOLDER").replace(&*own, "FOLDER");
        let line = self.called.iter().fold(line, |line, (name, other)| line.replace(name, other));
        let line = self.hidden.iter().fold(line, |line, number| {
            line.replace(&format!("bs{number}p"), "OUTSIDEp")
                .replace(&format!("-t {number} "), "-t NAMESPACE ")
                .replace(&format!(" netns {number}"), " netns NAMESPACE")
        });
        self.log.push(line);
    }

    /// Keeps what a reader of a result has to know, once.
    pub(crate) fn remark(&mut self, remark: String) {
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Those remarks.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Keeps the number of a namespace's process out of the notes.
    pub(crate) fn hide(&mut self, number: u32) {
        self.hidden.push(number);
    }

    /// Has something else stand for a name in the notes.
    pub(crate) fn call(&mut self, name: &str, other: &'static str) {
        self.called.push((name.to_owned(), other));
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
        let Some(trace) = self.sent.trace else { return Ok(None) };
        let tables = trace.tables(Direction::Forward, SEED);
        let path = self.path(name);
        let written = fs::File::create(&path).and_then(|file| {
            let mut file = io::BufWriter::new(file);
            write(&tables, &mut file)?;
            file.flush()
        });
        written.map_err(|e| self.file_error(&path, &e))?;
        Ok(Some(path))
    }

    /// An error of this device.
    pub fn wrong(&self, problem: impl Into<String>, remedy: impl Into<String>) -> DutError {
        DutError { dut: self.name.clone(), problem: problem.into(), remedy: remedy.into() }
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
            container::remove_leftovers(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_many_cpus() {
        let site = |cpus: &[usize]| Site {
            name: String::new(),
            folder: PathBuf::from("/nowhere/bondstone-dut-test"),
            cpus: cpus.to_vec(),
            ports: 2,
            inner: vec![],
            sent: SentTo { dst_mac: MacAddr([0; 6]), destinations: vec![], trace: None },
            env: Env::Native,
            log: vec![],
            remarks: vec![],
            hidden: vec![7055],
            called: vec![],
        };
        assert_eq!((site(&[0]).cpu_mask(), site(&[1, 2]).cpu_groups()), ("0x1".to_owned(), "6".to_owned()));
        let many = site(&[0, 33, 64]);
        assert_eq!(many.cpu_mask(), "0x10000000200000001");
        assert_eq!(many.cpu_groups(), "1,00000002,00000001");
        let mut site = site(&[0]);
        site.note("nsenter -t 7055 -n ip link add bs7055p0 type veth peer name p0 netns 7055");
        assert_eq!(
            site.notes(),
            "nsenter -t NAMESPACE -n ip link add OUTSIDEp0 type veth peer name p0 netns NAMESPACE"
        );
    }
}
