//! Messages between Bondstone and its agent on a host, one line of JSON each, and events of the run.

use crate::exit::Exit;
use remote::Files;
use runtime::Summary;
use serde::{Deserialize, Serialize};

/// Name of the hidden command that runs the part of a host for another one.
pub(crate) const AGENT_COMMAND: &str = "host-agent";
/// Largest message of a host in bytes: a summary.
pub(super) const MAX_RESPONSE_BYTES: u64 = 4 << 20;

/// A request to the agent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Run the part of a host; the first request, sent once.
    Start(Box<Start>),
    /// Stop the run.
    Stop,
    /// Nothing; shows that the sender still runs.
    KeepAlive,
}

/// A chain file whose part is to be run.
#[derive(Serialize, Deserialize)]
pub(super) struct Start {
    /// Name of the host.
    pub(super) host: String,
    /// Name of the file.
    pub(super) file: String,
    /// Text of the file.
    pub(super) text: String,
    /// Files that its settings name.
    pub(super) files: Files,
    /// Further arguments of `run`.
    pub(super) arguments: Vec<String>,
}

/// A message of the agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Response {
    /// Version of the agent.
    Hello(remote::Hello),
    /// The part forwards packets.
    Ready,
    /// The run has ended with this exit status, if no signal ended it.
    Ended {
        status: Option<i32>,
        /// Absent if it has not begun.
        summary: Option<Box<Summary>>,
    },
    /// The run cannot be started.
    Failed(String),
}

/// An event of a run on several hosts.
pub(super) enum Event {
    /// SIGINT or SIGTERM.
    Interrupt,
    /// A message of the host with this index.
    Message(usize, Box<Response>),
    /// The end of the connection to the host with this index.
    Lost(usize),
}

/// Reason for the early end of a run.
pub(super) enum Failure {
    Interrupted,
    /// Problem, remedy and exit status.
    Error(String, String, Exit),
}
