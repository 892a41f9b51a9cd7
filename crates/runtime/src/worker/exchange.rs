//! Replacing the graph of a running worker.

use super::rebuild::NodeBuilder;
use super::schedule::Schedule;
use super::{Output, Scheduled, ServiceOrder, Worker};
use crate::faults::run_errors::RunErrors;
use crate::faults::watchdog::WatchedWorker;
use graph::{Replacement, Target};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

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

impl Worker {
    /// Replaces the graph between two batches; returns the worker as the watchdog sees it from now on.
    pub(super) fn replace_graph(&mut self, exchange: Exchange, errors: &RunErrors) -> WatchedWorker {
        let start = Instant::now();
        let Exchange { replacement, entries, outputs, schedule, builders, watched, replaced } = exchange;
        let (graph, panics) = self.graph.replace(replacement);
        for (nf, message) in panics {
            errors.report(format!("nf {nf:?} panicked when it took over the state before a reload: {message}"));
        }
        self.inputs.iter_mut().zip(entries).for_each(|(input, entry)| input.entry = entry);
        let before = &mut self.outputs.ports;
        let new = outputs.into_iter().map(|output| match output {
            NewOutput::None => None,
            NewOutput::Added(output) => Some(output),
            NewOutput::Kept(number, entry) => {
                let mut output = before[number].take();
                if let Some(local) = output.as_mut().and_then(|output| output.local.as_mut()) {
                    local.entry = entry;
                }
                output
            }
        });
        let new = new.collect();
        let outputs = core::mem::replace(before, new);
        match (schedule, &self.order) {
            (_, ServiceOrder::Timestamps(_)) => {}
            (Some((schedule, inputs)), _) => self.order = ServiceOrder::Scheduled(Scheduled { schedule, inputs }),
            (None, _) => self.order = ServiceOrder::RoundRobin,
        }
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.retire(graph, outputs);
            rebuild.set_builders(builders);
        }
        // ignore errors: the thread that waited for it has given up
        let _ = replaced.send(start.elapsed());
        watched
    }
}
