//! Commands of the engine to a running worker.

use super::exchange::Exchange;
use crate::observe::{Tap, WorkerNames};
use std::sync::Arc;

/// A command to a worker, which executes it between two batches.
pub(crate) enum Command {
    /// Replaces the graph.
    Replace(Box<Exchange>),
    /// Begins a capture or trace, with the names of the places in the graph.
    Observe(Tap, Arc<WorkerNames>),
    /// Receives no more from inputs that are not polled after a stop; timers and other inputs continue.
    CloseInputs,
}
