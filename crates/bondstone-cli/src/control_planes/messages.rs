//! Messages between a run and its supervisor of control planes: JSON, one per line.

use graph::ControlPlane;
use serde::{Deserialize, Serialize};
use std::io::Write as _;

/// An order of the run, each of which is replied to.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    /// Create the namespaces of these control planes.
    Prepare(Vec<ControlPlane>),
    /// Run the daemons of these control planes on these CPUs, and end all others.
    Run(Vec<ControlPlane>, Vec<usize>),
    /// End the daemons of all control planes.
    EndDaemons,
    /// Report the states of the daemons.
    States,
}

/// A message of the supervisor.
#[derive(Serialize, Deserialize)]
pub(super) enum Said {
    /// The result of an order, and the states of the daemons.
    Reply(Result<Vec<DaemonState>, String>),
    /// An event.
    Info { cause: String, text: String },
    /// A problem.
    Warning { cause: String, text: String },
}

/// The state of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DaemonState {
    /// Name of the tenant.
    pub(crate) tenant: String,
    /// Name of the daemon.
    pub(crate) daemon: String,
    /// Number of the process; `None` while it does not run.
    pub(crate) pid: Option<u32>,
    /// Seconds since its last start.
    pub(crate) seconds: u64,
    /// Number of times that it has ended and was started again.
    pub(crate) restarts: u64,
    /// Reason for which it has ended last.
    pub(crate) ended: Option<String>,
}

/// Sends a message to the run.
pub(super) fn say(said: &Said) {
    if let Ok(mut line) = serde_json::to_vec(said) {
        line.push(b'\n');
        // ignore errors: the run has ended
        let _ = std::io::stdout().lock().write_all(&line);
    }
}
