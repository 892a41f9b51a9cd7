//! Sees NFs that do not give a batch back.
//!
//! A worker says with every look at the clock that it is alive; its graph says which hop runs. What has been silent in one
//! hop for long is told by name: nothing in the process can stop it.

use crate::faults::Faults;
use graph::{Hop, Running};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long an NF may take for a batch before it is told.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// How often workers are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// A worker, as it is watched.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) cpu: usize,
    /// Counts on with every look at the clock.
    pub(crate) beat: Arc<AtomicU64>,
    pub(crate) running: Running,
    /// Names of the NFs, by hop.
    pub(crate) names: Arc<[String]>,
}

impl Watched {
    /// Name of the NF that runs, if one does.
    pub(crate) fn nf(&self) -> Option<&str> {
        let Hop(hop) = self.running.hop()?;
        self.names.get(usize::from(hop)).map(String::as_str)
    }
}

/// Watches workers until `stop`.
///
/// # Errors
/// The system's, when it has no thread more.
pub(crate) fn start(workers: Vec<Watched>, stop: Arc<AtomicBool>, faults: Faults) -> std::io::Result<JoinHandle<()>> {
    let watch = move || {
        let now = Instant::now();
        let mut seen: Vec<(u64, Instant, bool)> = workers.iter().map(|_| (u64::MAX, now, false)).collect();
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            for (worker, (beat, since, told)) in workers.iter().zip(&mut seen) {
                let (now, nf) = (worker.beat.load(Ordering::Relaxed), worker.nf());
                if now != *beat || nf.is_none() {
                    (*beat, *since, *told) = (now, Instant::now(), false);
                } else if let Some(nf) = nf.filter(|_| !*told && since.elapsed() >= PATIENCE) {
                    *told = true;
                    faults.report(format!(
                        "nf {nf:?} on CPU {} has not given a batch back for a second: an endless loop? The chains of this \
                         CPU stand still, and only the end of the process ends it",
                        worker.cpu
                    ));
                }
            }
        }
    };
    Builder::new().name("watchdog".into()).spawn(watch)
}
