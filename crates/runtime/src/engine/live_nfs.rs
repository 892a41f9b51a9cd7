//! Access to the running NFs from other threads, for live operations.

use super::WorkerHandle;
use config::ChainFile;
use graph::SharedState;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The NFs of the chain file that runs now, also after a reload. Clones refer to the same NFs.
#[derive(Clone, Default)]
pub struct LiveNfs(Arc<Mutex<Vec<LiveNf>>>);

struct LiveNf {
    name: String,
    kind: &'static str,
    shared: SharedState,
}

impl LiveNfs {
    /// Returns the names of the NFs of a kind.
    #[must_use]
    pub fn of_kind(&self, kind: &str) -> Vec<String> {
        self.lock().iter().filter(|nf| nf.kind == kind).map(|nf| nf.name.clone()).collect()
    }

    /// Returns the kind of an NF.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<&'static str> {
        self.lock().iter().find(|nf| nf.name == name).map(|nf| nf.kind)
    }

    /// Returns the `T` that the copies of an NF [share](graph::BuildContext::shared).
    #[must_use]
    pub fn shared<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>> {
        self.lock().iter().find(|nf| nf.name == name).and_then(|nf| nf.shared.get(name))
    }

    /// Replaces the NFs by those that workers run.
    pub(super) fn update(&self, file: &ChainFile, workers: &[WorkerHandle]) {
        let mut all: Vec<LiveNf> = vec![];
        for worker in workers {
            for (&nf, builder) in worker.plan.nfs.iter().zip(&worker.builders) {
                let nf = &file.nfs[nf];
                if all.iter().all(|other| other.name != nf.name) {
                    let shared = builder.context.shared.clone();
                    all.push(LiveNf { name: nf.name.clone(), kind: nf.kind.name, shared });
                }
            }
        }
        // dropped once the lock is free: state may be large
        let before = std::mem::replace(&mut *self.lock(), all);
        drop(before);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LiveNf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
