//! Rebuilding NFs after a panic, on a thread of its own.
//!
//! A worker sends the node that panicked to the rebuilder and continues with a placeholder. The rebuilder drops the
//! node, which may panic again or take long, builds a new one with the same settings and sends it back. The worker
//! checks for it with every poll.

use crate::faults::attribution::NfActivity;
use crate::faults::run_errors::RunErrors;
use graph::panics::{catch, suppress_output};
use graph::{BuildContext, Factory, Graph, NodePanic, PreparedNode};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Longest time that the end of a run waits for an NF that is being built or dropped.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The arguments of building one node of a worker.
pub(crate) struct NodeBuilder {
    pub(crate) factory: Arc<dyn Factory>,
    pub(crate) context: BuildContext,
    /// The activity to which a crash is attributed meanwhile.
    pub(crate) activity: Arc<NfActivity>,
}

/// A worker's connection to the rebuilder.
pub(crate) struct RebuildClient {
    worker: usize,
    requests: Sender<(usize, NodePanic)>,
    rebuilt: Receiver<(u16, Rebuilt)>,
    outstanding: usize,
}

/// A new node, if it could be built. If the worker has ended, it is dropped here, which may panic.
struct Rebuilt(Option<PreparedNode>);

impl Drop for Rebuilt {
    fn drop(&mut self) {
        drop(catch(|| drop(self.0.take())));
    }
}

impl RebuildClient {
    /// Requests a new node.
    pub(crate) fn request(&mut self, panicked: NodePanic) {
        // if the rebuilder has ended, the placeholder stays
        self.outstanding += usize::from(self.requests.send((self.worker, panicked)).is_ok());
    }

    /// Returns true if a requested node has not arrived.
    pub(crate) fn is_pending(&self) -> bool {
        self.outstanding != 0
    }

    /// Installs the nodes that have arrived.
    pub(crate) fn install(&mut self, graph: &mut Graph) {
        while let Ok((node, mut new)) = self.rebuilt.try_recv() {
            self.outstanding -= 1;
            if let Some(new) = new.0.take() {
                graph.rebuild(node, new);
            }
        }
    }
}

/// The rebuilder thread.
pub(crate) struct Rebuilder {
    thread: JoinHandle<()>,
    /// Name of the NF that is being built or dropped.
    current_nf: Arc<Mutex<Option<String>>>,
}

impl Rebuilder {
    /// Waits until the thread has ended, which it does after all clients have disconnected. An NF that keeps it busy
    /// for too long is reported, and the thread is abandoned.
    pub(crate) fn join(self, errors: &RunErrors) {
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.thread.is_finished() {
            if self.thread.join().is_err() {
                errors.report("the rebuilder ended by a panic, which is a bug in Bondstone".to_owned());
            }
            return;
        }
        let nf = self.current_nf.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        errors.report(format!("nf {nf:?} is still being rebuilt or dropped after a panic"));
    }
}

/// Starts the rebuilder with the builders of each worker's nodes; returns the connection of each worker.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) fn start(
    builders: Vec<Vec<NodeBuilder>>,
    errors: RunErrors,
) -> std::io::Result<(Vec<RebuildClient>, Rebuilder)> {
    let (requests, incoming) = channel::<(usize, NodePanic)>();
    let (mut clients, mut replies) = (vec![], vec![]);
    for worker in 0..builders.len() {
        let (reply, rebuilt) = channel();
        replies.push(reply);
        clients.push(RebuildClient { worker, requests: requests.clone(), rebuilt, outstanding: 0 });
    }
    let current_nf = Arc::new(Mutex::new(None));
    let current = current_nf.clone();
    let run = move || {
        suppress_output();
        for (worker, panicked) in incoming {
            let node = panicked.node;
            let builder = &builders[worker][usize::from(node)];
            let set_current = |nf| *current.lock().unwrap_or_else(PoisonError::into_inner) = nf;
            set_current(Some(builder.context.name.clone()));
            let new = crash::with_activity(builder.activity.clone(), || rebuild(builder, panicked, &errors));
            set_current(None);
            // errors: the worker has ended
            let _ = replies[worker].send((node, Rebuilt(new)));
        }
    };
    let thread = Builder::new().name("rebuilder".into()).spawn(run)?;
    Ok((clients, Rebuilder { thread, current_nf }))
}

/// Drops a node that panicked, and builds a new one if possible.
fn rebuild(builder: &NodeBuilder, panicked: NodePanic, errors: &RunErrors) -> Option<PreparedNode> {
    let report = |event: &str| errors.report(format!("nf {:?} {event}", builder.context.name));
    let NodePanic { message, old, .. } = panicked;
    report(&format!("panicked: {message}"));
    if let Err(message) = catch(|| drop(old)) {
        report(&format!("panicked when it was dropped after a panic: {message}"));
    }
    match catch(|| builder.factory.build(&builder.context).map(PreparedNode::new)) {
        Ok(Ok(new)) => return Some(new),
        Ok(Err(d)) => report(&format!("could not be rebuilt after a panic: {}", d.problem)),
        Err(message) => report(&format!("panicked again when it was rebuilt: {message}")),
    }
    None
}
