//! The surroundings that a driver starts a device in: a work directory, CPUs, the expected traffic, and a record of the
//! configuration.

use super::spec::{DutSpec, Env};
use crate::traffic_spec::TRACE_SEED;
use report::Environment;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use traffic::nfpa::tables::Tables;
use traffic::nfpa::{Direction, Name};
use wire::MacAddr;

/// Prefix of the names of work directories; the process id follows.
pub(crate) const WORK_DIR_PREFIX: &str = "bondstone-dut-";

/// Bytes of an Ethernet header, which an MTU does not include.
const ETHERNET_HEADER: usize = 14;

/// An error of a device under test.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{dut}: {problem}\n  help: {remedy}")]
pub struct DutError {
    /// Name of the device.
    pub dut: String,
    /// Problem.
    pub problem: String,
    /// Remedy.
    pub remedy: String,
}

/// Traffic that a device has to be configured for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedTraffic {
    /// Destination MAC address of the packets: the device's own where it routes.
    pub dst_mac: MacAddr,
    /// Destination prefixes of the packets.
    pub destinations: Vec<String>,
    /// NFPA trace that is sent, if any; the device needs its addresses.
    pub trace: Option<Name>,
    /// Bytes of the longest packet, without FCS.
    pub longest_frame: usize,
}

/// Description of a started device for the result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Version as the device reports it.
    pub version: Option<String>,
    /// Complete configuration: commands, arguments, files.
    pub configuration: String,
    /// Remarks for readers of the result.
    pub remarks: Vec<String>,
    /// Environment of the remote host; none for a device on this machine.
    pub environment: Option<Box<Environment>>,
}

/// Context of one device under test. Its work directory is removed on drop.
pub struct DutContext {
    name: String,
    work_dir: PathBuf,
    cpus: Vec<usize>,
    ports: usize,
    interfaces: Vec<String>,
    env: Env,
    pub(crate) traffic: ExpectedTraffic,
    configuration: Vec<String>,
    remarks: Vec<String>,
    /// Process ids that differ between runs and are replaced in the recorded configuration.
    masked_pids: Vec<u32>,
    /// Names that differ between runs, and their replacements.
    masked_names: Vec<(String, &'static str)>,
}

impl DutContext {
    /// Creates the context of a device called `name` that has to forward `traffic`.
    ///
    /// # Errors
    /// If the work directory cannot be created.
    pub fn new(name: &str, spec: &DutSpec, traffic: ExpectedTraffic) -> Result<DutContext, DutError> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let work_dir = std::env::temp_dir().join(format!("{WORK_DIR_PREFIX}{}-{serial}", std::process::id()));
        fs::create_dir(&work_dir).map_err(|e| DutError {
            dut: name.to_owned(),
            problem: format!("cannot create work directory {}: {e}", work_dir.display()),
            remedy: "set TMPDIR to a directory that this user can write".to_owned(),
        })?;
        Ok(DutContext {
            name: name.to_owned(),
            work_dir,
            cpus: spec.cpus.clone(),
            ports: spec.ports.count(),
            interfaces: spec.interfaces.clone(),
            env: spec.env,
            traffic,
            configuration: vec![],
            remarks: vec![],
            masked_pids: vec![],
            masked_names: vec![],
        })
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of a file or socket in the work directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.work_dir.join(name)
    }

    /// Returns the CPUs that the device may use.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Returns the number of ports between generator and device.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// Returns the existing interfaces that the device uses; empty if its ports are created.
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    /// Returns where the device's programs run.
    pub fn env(&self) -> Env {
        self.env
    }

    /// Returns the MTU that the packets need, if it is larger than that of Ethernet with a VLAN tag.
    pub fn jumbo_mtu(&self) -> Option<usize> {
        /// Longest frame without FCS that every device forwards.
        const ORDINARY: usize = 1518;
        (self.traffic.longest_frame > ORDINARY).then(|| self.traffic.longest_frame - ETHERNET_HEADER)
    }

    /// Returns the CPU mask in hexadecimal, in groups of 32 bits, highest first, joined by `separator`.
    fn mask(&self, separator: &str) -> String {
        let highest = self.cpus.iter().max().copied().unwrap_or(0) / 32;
        let group =
            |n: usize| self.cpus.iter().filter(|cpu| **cpu / 32 == n).fold(0u32, |mask, cpu| mask | 1 << (cpu % 32));
        let first = format!("{:x}", group(highest));
        let lower = (0..highest).rev().map(|n| format!("{separator}{:08x}", group(n)));
        [first].into_iter().chain(lower).collect()
    }

    /// Returns the CPUs as a hexadecimal mask such as `0x6`.
    pub fn cpu_mask(&self) -> String {
        format!("0x{}", self.mask(""))
    }

    /// Returns the CPUs as a mask in the format of sysfs, such as `1,00000002`.
    pub fn cpu_mask_sysfs(&self) -> String {
        self.mask(",")
    }

    /// Returns the CPUs as a list such as `0,2`.
    pub fn cpu_list(&self) -> String {
        self.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Appends a command or file to the recorded configuration; values that differ between runs are masked.
    pub fn record(&mut self, line: impl Into<String>) {
        let dir_name = self.work_dir.file_name().unwrap_or_default().to_string_lossy();
        let line = line.into().replace(&*self.work_dir.to_string_lossy(), "FOLDER").replace(&*dir_name, "FOLDER");
        let line = self.masked_names.iter().fold(line, |line, (name, replacement)| line.replace(name, replacement));
        let line = self.masked_pids.iter().fold(line, |line, pid| {
            line.replace(&format!("bs{pid}p"), "OUTSIDEp")
                .replace(&format!("-t {pid} "), "-t NAMESPACE ")
                .replace(&format!(" netns {pid}"), " netns NAMESPACE")
        });
        self.configuration.push(line);
    }

    /// Returns the recorded configuration.
    pub fn configuration(&self) -> String {
        self.configuration.join("\n")
    }

    /// Adds a remark for readers of the result, once.
    pub(crate) fn add_remark(&mut self, remark: String) {
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Returns the remarks.
    pub(crate) fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Masks the process id of a namespace in the recorded configuration.
    pub(crate) fn mask_pid(&mut self, pid: u32) {
        self.masked_pids.push(pid);
    }

    /// Replaces a name in the recorded configuration.
    pub(crate) fn mask_name(&mut self, name: &str, replacement: &'static str) {
        self.masked_names.push((name.to_owned(), replacement));
    }

    /// Writes the forwarding table of the expected trace to a file and returns its path; none if no trace is sent.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write_table(
        &self,
        name: &str,
        write: impl Fn(&Tables, &mut io::BufWriter<fs::File>) -> io::Result<()>,
    ) -> Result<Option<PathBuf>, DutError> {
        let Some(trace) = self.traffic.trace else { return Ok(None) };
        let tables = trace.tables(Direction::Forward, TRACE_SEED);
        self.write_file(name, |file| write(&tables, file)).map(|(path, ())| Some(path))
    }

    /// Writes a file of the work directory; returns its path, and what `write` returns.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write_file<T>(
        &self,
        name: &str,
        write: impl FnOnce(&mut io::BufWriter<fs::File>) -> io::Result<T>,
    ) -> Result<(PathBuf, T), DutError> {
        let path = self.path(name);
        let written = fs::File::create(&path).and_then(|file| {
            let mut file = io::BufWriter::new(file);
            let result = write(&mut file)?;
            file.flush().map(|()| result)
        });
        let result = written.map_err(|e| self.file_error(&path, &e))?;
        Ok((path, result))
    }

    /// Creates an error of this device.
    pub fn error(&self, problem: impl Into<String>, remedy: impl Into<String>) -> DutError {
        DutError { dut: self.name.clone(), problem: problem.into(), remedy: remedy.into() }
    }

    /// Creates an error about a file.
    pub fn file_error(&self, path: &Path, e: &io::Error) -> DutError {
        self.error(format!("{}: {e}", path.display()), "check free space and permissions")
    }

    /// Creates an error of a program that cannot be started.
    pub(crate) fn program_error(&self, program: &str, cause: &dyn std::fmt::Display) -> DutError {
        let remedy = match Path::new(program).file_name().and_then(|n| n.to_str()).unwrap_or_default() {
            "dpdk-testpmd" => "install it: apt-get install dpdk-dev",
            "ovsdb-tool" | "ovsdb-server" | "ovs-vsctl" | "ovs-ofctl" | "ovs-vswitchd-dpdk" => {
                "install it: apt-get install openvswitch-switch-dpdk"
            }
            "ip" | "bridge" | "tc" => "install it: apt-get install iproute2",
            "nft" => "install it: apt-get install nftables",
            "vpp" | "vppctl" => "install VPP from the packages of fd.io",
            "runc" => "install it: apt-get install runc; or set env = \"native\"",
            "ssh" => "install it: apt-get install openssh-client",
            _ => "install it, or add its directory to PATH",
        };
        self.error(format!("cannot run {program}: {cause}"), remedy)
    }

    /// Returns the path of the running executable.
    ///
    /// # Errors
    /// If the system does not report it.
    pub(crate) fn own_program(&self) -> Result<PathBuf, DutError> {
        std::env::current_exe()
            .map_err(|e| self.error(format!("cannot find the path of this program: {e}"), "start it by its path"))
    }
}

impl Drop for DutContext {
    fn drop(&mut self) {
        // on failure the next run removes it
        let _ = fs::remove_dir_all(&self.work_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_masks_of_many_cpus() {
        let context = |cpus: &[usize]| DutContext {
            name: String::new(),
            work_dir: PathBuf::from("/nonexistent/bondstone-dut-test"),
            cpus: cpus.to_vec(),
            ports: 2,
            interfaces: vec![],
            traffic: ExpectedTraffic { dst_mac: MacAddr([0; 6]), destinations: vec![], trace: None, longest_frame: 0 },
            env: Env::Native,
            configuration: vec![],
            remarks: vec![],
            masked_pids: vec![7055],
            masked_names: vec![],
        };
        assert_eq!((context(&[0]).cpu_mask(), context(&[1, 2]).cpu_mask_sysfs()), ("0x1".to_owned(), "6".to_owned()));
        let many = context(&[0, 33, 64]);
        assert_eq!(many.cpu_mask(), "0x10000000200000001");
        assert_eq!(many.cpu_mask_sysfs(), "1,00000002,00000001");
        let mut context = context(&[0]);
        context.record("nsenter -t 7055 -n ip link add bs7055p0 type veth peer name p0 netns 7055");
        assert_eq!(
            context.configuration(),
            "nsenter -t NAMESPACE -n ip link add OUTSIDEp0 type veth peer name p0 netns NAMESPACE"
        );
    }
}
