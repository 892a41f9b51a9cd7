//! Replacing the graph of a running worker.

use super::output::Output;
use super::rebuild::NodeBuilder;
use super::schedule::Schedule;
use crate::faults::watchdog::WatchedWorker;
use crate::observe::WorkerNames;
use graph::{Replacement, Target};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// A graph that is to replace the one of a worker, with all that refers to its hops. The inputs stay.
pub(crate) struct Exchange {
    pub(crate) replacement: Replacement,
    /// Entry of each input.
    pub(crate) entries: Vec<Target>,
    /// Outputs by the number of their port or link.
    pub(crate) outputs: Vec<NewOutput>,
    /// Schedule of the chains, with the indices of the inputs of each; none if they are served in turn.
    pub(crate) schedule: Option<(Schedule, Vec<Vec<usize>>)>,
    pub(crate) builders: Vec<Arc<NodeBuilder>>,
    pub(crate) watched: WatchedWorker,
    /// Names of the places in the graph.
    pub(crate) names: Arc<WorkerNames>,
    /// Receives the time that the change took the worker.
    pub(crate) replaced: Sender<Duration>,
}

/// An output of a worker after an exchange.
pub(crate) enum NewOutput {
    None,
    /// The output of this number, with the entry of packets that stay on the core.
    Kept(usize, Target),
    Added(Output),
}
