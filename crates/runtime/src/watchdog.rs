//! Sees what cannot be contained: NFs that do not give a batch back, packets that never come home, memory without end.
//!
//! A worker's graph says which hop runs, with a number that is another for each batch. What stays in one hop with one batch
//! for long is told by name: nothing in the process can stop it. What ends the process at once is told by [`crash`].

use crate::blame::{Blame, Ledger};
use crate::faults::Faults;
use crash::Doing;
use dpdk::Mempool;
use graph::{Hop, NodeStats, Running};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long an NF may take for a batch before it is told.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often workers are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Looks in that time on a machine that is not busy, less a few.
const LOOKS: u32 = 15;

/// A worker, as it is watched.
#[derive(Clone)]
pub(crate) struct Watched {
    pub(crate) cpu: usize,
    /// Counts on with every look at the clock.
    pub(crate) beat: Arc<AtomicU64>,
    pub(crate) running: Running,
    /// The NFs, by hop.
    pub(crate) hops: Arc<[(String, Blame)]>,
}

impl Watched {
    fn hop(&self) -> Option<&(String, Blame)> {
        let Hop(hop) = self.running.hop()?;
        self.hops.get(usize::from(hop))
    }

    /// Name of the NF that runs, if one does.
    pub(crate) fn nf(&self) -> Option<&str> {
        self.hop().map(|(name, _)| name.as_str())
    }
}

impl Doing for Watched {
    fn now(&self) -> Option<&str> {
        self.hop().and_then(|(_, blame)| blame.now())
    }

    fn book(&self, bytes: i64) {
        if let Some((_, blame)) = self.hop() {
            blame.book(bytes);
        }
    }
}

/// What was seen of a worker.
struct Seen {
    turn: u64,
    /// When it came to that, and how often it has been looked at since: a process that stood still as a whole blames nobody.
    since: Instant,
    looks: u32,
    /// The NF that was told to be long about it.
    told: Option<String>,
}

/// What is watched.
pub(crate) struct Watch {
    pub(crate) workers: Vec<Watched>,
    /// Each node of each worker, with the number of its NF.
    pub(crate) nodes: Vec<(usize, Arc<NodeStats>)>,
    /// Names of the NFs.
    pub(crate) names: Vec<String>,
    pub(crate) pool: Arc<Mempool>,
    pub(crate) ledger: Ledger,
    /// Bytes of memory at which the run is ended.
    pub(crate) enough: u64,
    /// Ends the watch; set by the watchdog when it ends the run.
    pub(crate) stop: Arc<AtomicBool>,
    /// Whether a worker has been in one batch for too long.
    pub(crate) hangs: Arc<AtomicBool>,
    pub(crate) faults: Faults,
}

/// Begins to watch.
///
/// # Errors
/// The system's, when it has no thread more.
pub(crate) fn start(watch: Watch) -> std::io::Result<JoinHandle<()>> {
    Builder::new().name("watchdog".into()).spawn(move || watch.run())
}

impl Watch {
    fn run(&self) {
        let now = Instant::now();
        let mut seen: Vec<Seen> =
            self.workers.iter().map(|_| Seen { turn: 0, since: now, looks: 0, told: None }).collect();
        let mut dry = false;
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            self.look_at_loops(&mut seen);
            self.hangs.store(seen.iter().any(|seen| seen.told.is_some()), Ordering::Relaxed);
            if !dry && self.pool.in_use() > self.pool.size() / 10 * 9 {
                dry = true;
                self.tell_packets();
            }
            if crash::resident().is_some_and(|bytes| bytes > self.enough) {
                self.tell_memory();
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn look_at_loops(&self, seen: &mut [Seen]) {
        for (worker, Seen { turn, since, looks, told }) in self.workers.iter().zip(seen) {
            let (now, nf) = (worker.running.turn(), worker.nf());
            if now != *turn || nf.is_none() {
                if let Some(nf) = told.take() {
                    let seconds = since.elapsed().as_secs();
                    self.faults.report(format!("nf {nf:?} has given the batch back after all, after {seconds} s"));
                }
                (*turn, *since, *looks) = (now, Instant::now(), 0);
                continue;
            }
            *looks += 1;
            let long = since.elapsed() >= PATIENCE && *looks >= LOOKS;
            if let Some(nf) = nf.filter(|_| told.is_none() && long) {
                *told = Some(nf.to_owned());
                self.faults.report(format!(
                    "nf {nf:?} on CPU {} has not given a batch back for a second: an endless loop? The chains of this \
                     CPU stand still, and only the end of the process ends it",
                    worker.cpu
                ));
            }
        }
    }

    fn tell_packets(&self) {
        let (out, all) = (self.pool.in_use(), self.pool.size());
        let who = culprits(&self.names, &self.nodes, true);
        let who = if who.is_empty() { "no NF holds them, so they are in queues".to_owned() } else { who };
        self.faults
            .report(format!("of {all} packet buffers {out} are in use, and few are left to receive with: {who}"));
    }

    fn tell_memory(&self) {
        let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
        let who = match self.ledger.most() {
            Some((nf, bytes)) => format!("nf {:?} has {} of it", self.names[nf], mib(bytes)),
            None if crash::is_counting() => "no NF has allocated much since the start".to_owned(),
            None => {
                let running: Vec<_> = self.workers.iter().filter_map(Watched::nf).map(|nf| format!("{nf:?}")).collect();
                let at_work = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
                format!("which NF has it is not known without bondstone::Memory as the allocator; at work: {at_work}")
            }
        };
        self.faults.report(format!(
            "the process has more than {} of memory, and the run is ended before the machine has none: {who}",
            mib(self.enough)
        ));
    }
}

/// Says which NFs have let go of packets without a word, and which hold some.
pub(crate) fn culprits(names: &[String], nodes: &[(usize, Arc<NodeStats>)], holders: bool) -> String {
    let of = |nf: usize, what: &dyn Fn(&NodeStats) -> u64| -> u64 {
        nodes.iter().filter(|(n, _)| *n == nf).map(|(_, stats)| what(stats)).sum()
    };
    let vanished = names.iter().enumerate().filter_map(|(nf, name)| {
        let n = of(nf, &|stats| stats.vanished());
        (n != 0).then(|| format!("nf {name:?} has let go of {n} without a word"))
    });
    let held = names.iter().enumerate().filter(|_| holders).filter_map(|(nf, name)| {
        let n = of(nf, &|stats| stats.held.get());
        (n != 0).then(|| format!("nf {name:?} holds {n}"))
    });
    vanished.chain(held).collect::<Vec<_>>().join(", ")
}
