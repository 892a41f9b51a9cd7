//! Rebuilding NFs after a panic, and dropping replaced graphs, on a thread of its own.
//!
//! A worker sends the node that panicked to the rebuilder and continues with a placeholder. The rebuilder drops the
//! node, which may panic again or take long, builds a new one with the same settings and sends it back. The worker
//! checks for it with every poll.

use crate::cpu::set_affinity;
use crate::faults::attribution::NfActivity;
use crate::faults::run_errors::RunErrors;
use diagnostics::Diagnostic;
use graph::panics::{catch, suppress_output};
use graph::{BuildContext, Factory, Graph, Node, NodePanic, PreparedNode};
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
    requests: Sender<Request>,
    /// Sent with requests, for the replies.
    reply: Sender<Reply>,
    rebuilt: Receiver<Reply>,
    outstanding: usize,
    /// Of the nodes of the worker's graph, in order.
    builders: Vec<Arc<NodeBuilder>>,
}

enum Request {
    /// A node that panicked, what to build instead, and where to send it.
    Rebuild(NodePanic, Arc<NodeBuilder>, Sender<Reply>),
    /// The graph of a worker that a reload has replaced, and the builders of its nodes.
    Retire(Box<Graph>, Vec<Arc<NodeBuilder>>),
}

/// The result of a request.
type Reply = (Arc<NodeBuilder>, Rebuilt);

/// A new node, if it could be built. If the worker has ended, it is dropped here, which may panic.
struct Rebuilt(Option<PreparedNode>);

impl Drop for Rebuilt {
    fn drop(&mut self) {
        drop(catch(|| drop(self.0.take())));
    }
}

impl NodeBuilder {
    /// Builds the node.
    ///
    /// # Errors
    /// As [`Factory::build`].
    pub(crate) fn build(&self) -> Result<Box<dyn Node>, Diagnostic> {
        crash::with_activity(self.activity.clone(), || self.factory.build(&self.context))
    }
}

impl RebuildClient {
    /// Returns the builders of the nodes of the worker's graph, in order.
    pub(crate) fn builders(&self) -> &[Arc<NodeBuilder>] {
        &self.builders
    }

    /// Requests a new node.
    pub(crate) fn request(&mut self, panicked: NodePanic) {
        let builder = self.builders[usize::from(panicked.node)].clone();
        // if the rebuilder has ended, the placeholder stays
        self.outstanding +=
            usize::from(self.requests.send(Request::Rebuild(panicked, builder, self.reply.clone())).is_ok());
    }

    /// Returns true if a requested node has not arrived.
    pub(crate) fn is_pending(&self) -> bool {
        self.outstanding != 0
    }

    /// Installs the nodes that have arrived.
    pub(crate) fn install(&mut self, graph: &mut Graph) {
        while let Ok((builder, mut new)) = self.rebuilt.try_recv() {
            self.outstanding -= 1;
            // none if a reload has replaced the node meanwhile
            if let Some(node) = self.builders.iter().position(|own| Arc::ptr_eq(own, &builder))
                && let Some(new) = new.0.take()
            {
                graph.rebuild(node as u16, new);
            }
        }
    }

    /// Sets the builders of the nodes of a graph that has replaced the one before.
    pub(crate) fn set_builders(&mut self, builders: Vec<Arc<NodeBuilder>>) {
        self.builders = builders;
    }
}

/// The rebuilder thread.
pub(crate) struct Rebuilder {
    requests: Sender<Request>,
    thread: JoinHandle<()>,
    /// The error to report if the thread does not end: what it builds or drops.
    current: Arc<Mutex<Option<String>>>,
}

impl Rebuilder {
    /// Returns the connection of a worker with the builders of its nodes.
    pub(crate) fn client(&self, builders: Vec<Arc<NodeBuilder>>) -> RebuildClient {
        let (reply, rebuilt) = channel();
        RebuildClient { requests: self.requests.clone(), reply, rebuilt, outstanding: 0, builders }
    }

    /// Drops a graph that a reload has replaced; `builders` are those of its nodes.
    pub(crate) fn retire(&self, graph: Graph, builders: Vec<Arc<NodeBuilder>>) {
        // errors: the thread has ended by a panic, which `join` reports
        let _ = self.requests.send(Request::Retire(Box::new(graph), builders));
    }

    /// Waits until the thread has ended, which it does after all clients have disconnected. An NF that keeps it busy
    /// for too long is reported, and the thread is abandoned.
    pub(crate) fn join(self, errors: &RunErrors) {
        drop(self.requests);
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
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        errors.report(current);
    }
}

/// Starts the rebuilder, on these CPUs if there are any.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) fn start(errors: RunErrors, cpus: Vec<usize>) -> std::io::Result<Rebuilder> {
    let (requests, incoming) = channel::<Request>();
    let current = Arc::new(Mutex::new(None));
    let in_thread = current.clone();
    let run = move || {
        suppress_output();
        // ignore errors: the thread may then run on any
        let _ = set_affinity(&cpus);
        let set_current = |what| *in_thread.lock().unwrap_or_else(PoisonError::into_inner) = what;
        for request in incoming {
            match request {
                Request::Rebuild(panicked, builder, reply) => {
                    let nf = &builder.context.name;
                    set_current(Some(format!("nf {nf:?} is still being rebuilt or dropped after a panic")));
                    let new = crash::with_activity(builder.activity.clone(), || rebuild(&builder, panicked, &errors));
                    // errors: the worker has ended
                    let _ = reply.send((builder, Rebuilt(new)));
                }
                Request::Retire(graph, builders) => {
                    let drop_node = |node: usize, drop: &mut dyn FnMut()| {
                        let nf = &builders[node].context.name;
                        set_current(Some(format!("nf {nf:?} is still being dropped after a reload")));
                        crash::with_activity(builders[node].activity.clone(), drop);
                    };
                    for (nf, message) in graph.retire(drop_node) {
                        errors.report(format!("nf {nf:?} panicked when it was dropped after a reload: {message}"));
                    }
                }
            }
            set_current(None);
        }
    };
    let thread = Builder::new().name("rebuilder".into()).spawn(run)?;
    Ok(Rebuilder { requests, thread, current })
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
