//! What a wall's process is told, and what it says.

use config::{Isolation, Part};
use runtime::Summary;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What it is told before it begins: the content of a file.
///
/// A program that is older than the one that has written it says so, and does not run half of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// The wall's name.
    pub(crate) wall: String,
    /// What it is made of.
    pub(crate) isolation: Isolation,
    /// The chain file: its path, absolute, and what of it is behind the wall.
    pub(crate) file: PathBuf,
    pub(crate) part: Part,
    /// Files that it may read.
    pub(crate) files: Vec<PathBuf>,
    /// Where sockets are, those of each wall in a folder of its name.
    pub(crate) folder: PathBuf,
    /// Sockets that it is shown one by one, in a folder where it may write, which memif asks for; none: all in their folder.
    pub(crate) sockets: Vec<PathBuf>,
    /// PCI addresses of devices that it is handed.
    pub(crate) devices: Vec<String>,
    /// What runs in the place of this program, and its arguments, where something else does.
    pub(crate) program: Vec<String>,
    /// CPUs that it may use.
    pub(crate) cpus: Vec<usize>,
    /// Whether it gives them away as soon as nothing comes.
    pub(crate) sleepy: bool,
    /// Whom it becomes, where it begins as root.
    pub(crate) user: u32,
    /// Another group that it is in, for a device.
    pub(crate) group: Option<u32>,
    /// MiB of memory of its own that NFs may have, whatever control groups say.
    pub(crate) heap_mib: u64,
}

/// What it is told later, a line each. The end of these is the same as [`STOP`].
pub(crate) const REPORT: &str = "report";
/// To take nothing more by its own ports, but what comes from before the wall.
pub(crate) const CLOSE: &str = "close";
pub(crate) const STOP: &str = "stop";

/// What it says, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// Packets move.
    Ready,
    /// Nothing more is taken by its own ports.
    Closed,
    /// What it has done so far.
    Report(Box<Summary>),
    /// What it has done, at its end.
    Last(Box<Summary>),
    /// Why it does not begin.
    Fault(String),
}

/// The longest line, in bytes: who says more is not listened to any more.
pub(crate) const LONGEST: u64 = 4 << 20;
