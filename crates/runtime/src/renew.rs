//! Building NFs anew after a panic, off the workers.
//!
//! A worker hands over the node that has panicked and goes on with a stand-in. A thread of its own drops the old node, which
//! may panic once more or take its time, builds a new copy by the same settings and sends it back; the worker looks for it
//! with every poll while it waits for one.

use crate::blame::Blame;
use crate::faults::Faults;
use graph::caught::{be_quiet, caught};
use graph::{BuildContext, Factory, Graph, Panicked, Ready};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long the end of a run waits for an NF that is being built.
const PATIENCE: Duration = Duration::from_secs(5);

/// How one node of a worker is built.
pub(crate) struct Recipe {
    pub(crate) factory: Arc<dyn Factory>,
    pub(crate) cx: BuildContext,
    /// Whose fault it is when the process dies meanwhile.
    pub(crate) blame: Arc<Blame>,
}

/// A worker's way to new copies of its nodes.
pub(crate) struct Renewals {
    worker: usize,
    broken: Sender<(usize, Panicked)>,
    new: Receiver<(u16, Copy)>,
    pending: usize,
}

/// A new copy of a node, if there is one. Nobody may ever want it: then it is dropped, and may panic at that.
struct Copy(Option<Ready>);

impl Drop for Copy {
    fn drop(&mut self) {
        drop(caught(|| drop(self.0.take())));
    }
}

impl Renewals {
    /// Asks for a new copy of the node.
    pub(crate) fn ask(&mut self, panicked: Panicked) {
        // without that thread the stand-in stays
        self.pending += usize::from(self.broken.send((self.worker, panicked)).is_ok());
    }

    /// Whether a copy is waited for.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending != 0
    }

    /// Puts into the graph what has come.
    pub(crate) fn settle(&mut self, graph: &mut Graph) {
        while let Ok((node, mut new)) = self.new.try_recv() {
            self.pending -= 1;
            if let Some(new) = new.0.take() {
                graph.renew(node, new);
            }
        }
    }
}

/// The thread that builds.
pub(crate) struct Renewing {
    thread: JoinHandle<()>,
    /// Which NF it builds now, or drops.
    at_work: Arc<Mutex<Option<String>>>,
}

impl Renewing {
    /// Waits until it has ended, which it does when all workers' ways to it are gone. An NF that keeps it for long is told,
    /// and left alone.
    pub(crate) fn end(self, faults: &Faults) {
        let until = Instant::now() + PATIENCE;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.thread.is_finished() {
            if self.thread.join().is_err() {
                faults.report("the thread that builds NFs anew died; this is a bug in Bondstone".to_owned());
            }
            return;
        }
        let nf = self.at_work.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        faults.report(format!("nf {nf:?} is being built anew after a panic, or dropped, and that does not end"));
    }
}

/// Starts the thread, given for each worker how each of its nodes is built: each worker's way to it.
///
/// # Errors
/// The system's, when it has no thread more.
pub(crate) fn start(recipes: Vec<Vec<Recipe>>, faults: Faults) -> std::io::Result<(Vec<Renewals>, Renewing)> {
    let (broken, all) = channel::<(usize, Panicked)>();
    let (mut ways, mut back) = (vec![], vec![]);
    for worker in 0..recipes.len() {
        let (to, new) = channel();
        back.push(to);
        ways.push(Renewals { worker, broken: broken.clone(), new, pending: 0 });
    }
    let at_work = Arc::new(Mutex::new(None));
    let told = at_work.clone();
    let work = move || {
        be_quiet();
        for (worker, panicked) in all {
            let node = panicked.node;
            let recipe = &recipes[worker][usize::from(node)];
            let tell = |nf| *told.lock().unwrap_or_else(PoisonError::into_inner) = nf;
            tell(Some(recipe.cx.name.clone()));
            let new = crash::within(recipe.blame.clone(), || anew(recipe, panicked, &faults));
            tell(None);
            // a worker that has ended needs none
            let _ = back[worker].send((node, Copy(new)));
        }
    };
    let thread = Builder::new().name("renewals".into()).spawn(work)?;
    Ok((ways, Renewing { thread, at_work }))
}

/// Drops what is left of a node, and builds another, if that can be done.
fn anew(recipe: &Recipe, panicked: Panicked, faults: &Faults) -> Option<Ready> {
    let say = |what: &str| faults.report(format!("nf {:?} {what}", recipe.cx.name));
    let Panicked { message, old, .. } = panicked;
    say(&format!("panicked: {message}"));
    if let Err(message) = caught(|| drop(old)) {
        say(&format!("panicked when it was dropped after a panic: {message}"));
    }
    match caught(|| recipe.factory.build(&recipe.cx).map(Ready::new)) {
        Ok(Ok(new)) => return Some(new),
        Ok(Err(d)) => say(&format!("could not be built anew after a panic: {}", d.problem)),
        Err(message) => say(&format!("panicked again when it was built anew: {message}")),
    }
    None
}
