//! What the engine asks of a running worker.

use super::exchange::Exchange;

/// A command to a worker, which executes it between two batches.
pub(crate) enum Command {
    /// Replaces the graph.
    Replace(Box<Exchange>),
    /// Receives no more from inputs that are not polled after a stop; timers and other inputs continue.
    CloseInputs,
}
