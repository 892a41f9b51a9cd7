//! The launch spec of a sandboxed process, and the messages between it and its supervisor.

use config::{Isolation, Partition};
use runtime::{ProbeRecord, Summary};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Subcommand of the program as a sandboxed process.
pub const PROCESS_COMMAND: &str = "sandbox-process";
/// Subcommand of the program as the first process of a guest.
pub const GUEST_COMMAND: &str = "sandbox-guest";
/// Subcommand of the program that runs all sandboxes of a chain file at the ports of an external switch.
pub const EXTERNAL_SWITCH_COMMAND: &str = "sandbox-external-switch";

/// The launch spec of a sandboxed process: the content of a file that it reads first.
///
/// Unknown fields are errors, so that an older program does not run a part of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaunchSpec {
    /// Name of the sandbox.
    pub(crate) sandbox: String,
    /// Kind of isolation.
    pub(crate) isolation: Isolation,
    /// Absolute path of the chain file.
    pub(crate) file: PathBuf,
    /// The part of the chain file that runs in the sandbox.
    pub(crate) partition: Partition,
    /// Files that it may read.
    pub(crate) files: Vec<PathBuf>,
    /// Folder with the sockets of each sandbox in a folder of its name.
    pub(crate) folder: PathBuf,
    /// Sockets that are mounted one by one in a writable folder, for memif; empty: their folder is mounted.
    pub(crate) sockets: Vec<PathBuf>,
    /// PCI addresses of passthrough devices.
    pub(crate) devices: Vec<String>,
    /// Program and arguments that run instead of this program; may be empty.
    pub(crate) program: Vec<String>,
    /// Files and folders that this program reads or executes.
    pub(crate) program_files: Vec<PathBuf>,
    /// CPUs that it may use.
    pub(crate) cpus: Vec<usize>,
    /// True if it sleeps while it receives no packets.
    pub(crate) sleep_when_idle: bool,
    /// User ID that it changes to if it starts as root.
    pub(crate) user: u32,
    /// Further group ID, for a device.
    pub(crate) group: Option<u32>,
    /// Limit of its private memory in MiB, in addition to that of the control group.
    pub(crate) heap_mib: u64,
}

/// Request for a report. Requests are lines of text; the end of the input is the same as [`STOP`].
pub(crate) const REPORT: &str = "report";
/// Request to receive no more packets from passthrough ports, only from the host side.
pub(crate) const CLOSE: &str = "close";
/// Request to trace one probe in as many as the number behind it.
pub(crate) const TRACE_PROBES: &str = "trace-probes ";
/// Request to end the trace and to send its records.
pub(crate) const END_PROBES: &str = "end-probes";
/// Most records of a message.
pub(crate) const PROBES_PER_MESSAGE: usize = 1 << 13;
/// Request to end.
pub(crate) const STOP: &str = "stop";

/// A message of a sandboxed process: a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The chains run.
    Ready,
    /// The passthrough ports are closed.
    Closed,
    /// Statistics so far.
    Report(Box<Summary>),
    /// Statistics at the end.
    FinalReport(Box<Summary>),
    /// Records of traced probes, and true if these are the last.
    Probes(Vec<ProbeRecord>, bool),
    /// Reason why it cannot start.
    Error(String),
}

/// Longest message in bytes; a longer one ends the connection.
pub(crate) const MAX_MESSAGE: u64 = 4 << 20;
