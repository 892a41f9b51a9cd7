//! Building NFs anew after a panic, off the workers.
//!
//! A worker hands over the node that has panicked and goes on with a stand-in. A thread of its own drops the old node, which
//! may panic once more or take its time, builds a new copy by the same settings and sends it back; the worker looks for it
//! with every poll while it waits for one.

use crate::blame::Blame;
use crate::faults::Faults;
use graph::{BuildCx, Factory, Graph, Node, Panicked};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Once};
use std::thread::{Builder, JoinHandle};

/// How one node of a worker is built.
pub(crate) struct Recipe {
    pub(crate) factory: Arc<dyn Factory>,
    pub(crate) cx: BuildCx,
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
struct Copy(Option<Box<dyn Node>>);

impl Drop for Copy {
    fn drop(&mut self) {
        drop(catch_unwind(AssertUnwindSafe(|| drop(self.0.take()))));
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

/// Starts the thread, given for each worker how each of its nodes is built: each worker's way to it. It ends when all of
/// them are gone.
///
/// # Errors
/// The system's, when it has no thread more.
pub(crate) fn start(recipes: Vec<Vec<Recipe>>, faults: Faults) -> std::io::Result<(Vec<Renewals>, JoinHandle<()>)> {
    let (broken, all) = channel::<(usize, Panicked)>();
    let (mut ways, mut back) = (vec![], vec![]);
    for worker in 0..recipes.len() {
        let (to, new) = channel();
        back.push(to);
        ways.push(Renewals { worker, broken: broken.clone(), new, pending: 0 });
    }
    let work = move || {
        be_quiet();
        for (worker, Panicked { node, message, old, .. }) in all {
            let Recipe { factory, cx, blame } = &recipes[worker][usize::from(node)];
            let _here = crash::enter(blame.clone());
            let say = |what: &str| faults.report(format!("nf {:?} {what}", cx.name));
            if catch_unwind(AssertUnwindSafe(|| drop(old))).is_err() {
                say("panicked while it was dropped");
            }
            let new = match catch_unwind(AssertUnwindSafe(|| factory.build(cx))) {
                Ok(Ok(new)) => {
                    say(&format!("panicked: {message}; it was built anew"));
                    Some(new)
                }
                Ok(Err(d)) => {
                    say(&format!("panicked: {message}; it could not be built anew: {}", d.problem));
                    None
                }
                Err(_) => {
                    say(&format!("panicked: {message}; it panicked again while it was built anew"));
                    None
                }
            };
            // a worker that has ended needs none
            let _ = back[worker].send((node, Copy(new)));
        }
    };
    Ok((ways, Builder::new().name("renewals".into()).spawn(work)?))
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// From now on panics of this thread are not printed: whoever catches them tells.
pub(crate) fn be_quiet() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    QUIET.set(true);
}
