//! Detects faults that cannot be contained: NFs that do not finish a batch, exhaustion of packet buffers and of memory.
//!
//! The graph of a worker publishes the current hop, with a sequence number that changes with each batch. A worker that
//! stays in one hop with the same sequence number is reported; nothing in the process can stop it. Faults that end the
//! process at once are reported by [`crash`].

use crate::faults::attribution::{MemoryAccounts, NfActivity};
use crate::faults::run_errors::RunErrors;
use crash::{Activity, ThreadClock};
use dpdk::Mempool;
use graph::{CurrentHop, Hop, NodeStats};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// CPU time of its worker after which an unfinished batch is reported. Time in which others use the CPU does not count.
const BATCH_TIMEOUT: Duration = Duration::from_secs(1);
/// Time after which an unfinished batch is reported whose worker waits, or gets no CPU time.
const WAITING_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks of the workers.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Three quarters of the checks within `WAITING_TIMEOUT`. Fewer checks mean that the whole process was stopped.
const MIN_CHECKS: u32 = 150;

/// A worker as the watchdog sees it.
#[derive(Clone)]
pub(crate) struct WatchedWorker {
    pub(crate) cpu: usize,
    /// Time of the worker's last read of the clock, in cycles.
    pub(crate) heartbeat: Arc<AtomicU64>,
    pub(crate) running: CurrentHop,
    /// CPU clock of the worker, once its thread runs.
    pub(crate) clock: Arc<OnceLock<ThreadClock>>,
    /// Name and activity of the NF of each hop.
    pub(crate) hops: Arc<[(String, NfActivity)]>,
}

impl WatchedWorker {
    fn hop(&self) -> Option<&(String, NfActivity)> {
        let Hop(hop) = self.running.hop()?;
        self.hops.get(usize::from(hop))
    }

    /// Returns the name of the NF that is running, if any.
    pub(crate) fn current_nf(&self) -> Option<&str> {
        self.hop().map(|(name, _)| name.as_str())
    }

    /// Returns the CPU time that the worker has used.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.clock.get().and_then(|clock| clock.time()).unwrap_or_default()
    }
}

// SAFETY: the methods read atomic counters and call those of `NfActivity`.
#[expect(unsafe_code, reason = "called by signal handlers and the allocator")]
unsafe impl Activity for WatchedWorker {
    fn description(&self) -> Option<&str> {
        self.hop().and_then(|(_, activity)| activity.description())
    }

    fn record_allocation(&self, bytes: i64) {
        if let Some((_, activity)) = self.hop() {
            activity.record_allocation(bytes);
        }
    }
}

/// The batch in which a worker was last seen.
struct BatchState {
    sequence: u64,
    /// Time of the first check that found this batch.
    since: Instant,
    /// CPU time of the worker at that check.
    cpu_time: Duration,
    /// Checks since then.
    checks: u32,
    /// The NF, once the batch has been reported.
    reported: Option<String>,
}

/// The part of the watchdog's state that a reload changes.
#[derive(Clone, Default)]
pub(crate) struct Watched {
    pub(crate) workers: Vec<WatchedWorker>,
    /// Statistics of each node of each worker, with the index of its NF.
    pub(crate) nodes: Vec<(usize, Arc<NodeStats>)>,
    /// Names of the NFs.
    pub(crate) names: Vec<String>,
}

/// The state that the watchdog checks.
pub(crate) struct Watchdog {
    pub(crate) watched: Arc<Mutex<Watched>>,
    pub(crate) pool: Arc<Mempool>,
    pub(crate) accounts: MemoryAccounts,
    /// Bytes of memory above which the run is stopped.
    pub(crate) memory_limit: u64,
    /// Ends the watchdog; set by it to stop the run.
    pub(crate) stop: Arc<AtomicBool>,
    /// Set while a worker exceeds `BATCH_TIMEOUT`.
    pub(crate) stuck: Arc<AtomicBool>,
    pub(crate) errors: RunErrors,
}

/// Starts the watchdog thread.
///
/// # Errors
/// The system cannot create a thread.
pub(crate) fn start(watchdog: Watchdog) -> std::io::Result<JoinHandle<()>> {
    Builder::new().name("watchdog".into()).spawn(move || watchdog.run())
}

impl Watchdog {
    fn run(&self) {
        let now = Instant::now();
        let new = |_| BatchState { sequence: 0, since: now, cpu_time: Duration::ZERO, checks: 0, reported: None };
        let mut states: Vec<BatchState> = self.watched().workers.iter().map(new).collect();
        let mut pool_reported = false;
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(CHECK_INTERVAL);
            self.check_batches(&mut states);
            self.stuck.store(states.iter().any(|state| state.reported.is_some()), Ordering::Relaxed);
            if !pool_reported && self.pool.in_use() > self.pool.size() / 10 * 9 {
                pool_reported = true;
                self.report_pool_exhaustion();
            }
            if crash::resident_bytes().is_some_and(|bytes| bytes > self.memory_limit) {
                self.report_memory_limit();
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_batches(&self, states: &mut [BatchState]) {
        for (worker, BatchState { sequence, since, cpu_time, checks, reported }) in
            self.watched().workers.iter().zip(states)
        {
            let (current, nf) = (worker.running.sequence(), worker.current_nf());
            if current != *sequence || nf.is_none() {
                if let Some(nf) = reported.take() {
                    let seconds = since.elapsed().as_secs();
                    self.errors.report(format!("nf {nf:?} finished its batch after {seconds} s"));
                }
                (*sequence, *since, *cpu_time, *checks) = (current, Instant::now(), worker.cpu_time(), 0);
                continue;
            }
            *checks += 1;
            let used = worker.cpu_time().saturating_sub(*cpu_time);
            let (runs, waits) = (used >= BATCH_TIMEOUT, since.elapsed() >= WAITING_TIMEOUT && *checks >= MIN_CHECKS);
            let Some(nf) = nf.filter(|_| reported.is_none() && (runs || waits)) else { continue };
            *reported = Some(nf.to_owned());
            let problem = if runs {
                "1 s of CPU time, perhaps in an endless loop".to_owned()
            } else {
                format!("{WAITING_TIMEOUT:?}, with {used:.0?} of CPU time: it waits, or others use the CPU")
            };
            self.errors.report(format!(
                "nf {nf:?} on CPU {} has not finished a batch for {problem}; the chains of this CPU are stalled",
                worker.cpu
            ));
        }
    }

    fn report_pool_exhaustion(&self) {
        let (in_use, all) = (self.pool.in_use(), self.pool.size());
        let who = self.watched().describe_holders(true);
        let who = if who.is_empty() { "no NF holds them, so they are in queues".to_owned() } else { who };
        self.errors.report(format!("{in_use} of {all} packet buffers are in use, and few are left to receive: {who}"));
    }

    fn report_memory_limit(&self) {
        let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
        let who = match self.accounts.largest() {
            Some((nf, bytes)) => format!("nf {:?} holds {}", self.watched().names[nf], mib(bytes)),
            None if crash::is_counting() => "no NF has allocated much since the start".to_owned(),
            None => {
                let watched = self.watched();
                let running = watched.workers.iter().filter_map(WatchedWorker::current_nf);
                let running: Vec<_> = running.map(|nf| format!("{nf:?}")).collect();
                let running = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
                format!("NFs running: {running}; memory is attributed to NFs with bondstone::Memory as the allocator")
            }
        };
        self.errors
            .report(format!("the process exceeds {} of memory, so the run is stopped: {who}", mib(self.memory_limit)));
    }
}

impl Watched {
    /// Describes which NFs have packets unaccounted for, and, if `holders` is true, which hold packets.
    pub(crate) fn describe_holders(&self, holders: bool) -> String {
        let sum = |nf: usize, value: &dyn Fn(&NodeStats) -> u64| -> u64 {
            self.nodes.iter().filter(|(n, _)| *n == nf).map(|(_, stats)| value(stats)).sum()
        };
        let unaccounted = self.names.iter().enumerate().filter_map(|(nf, name)| {
            let n = sum(nf, &|stats| stats.vanished());
            (n != 0).then(|| format!("nf {name:?} neither sent, dropped nor held {n} of its packets"))
        });
        let held = self.names.iter().enumerate().filter(|_| holders).filter_map(|(nf, name)| {
            let n = sum(nf, &|stats| stats.held.get());
            (n != 0).then(|| format!("nf {name:?} holds {n}"))
        });
        unaccounted.chain(held).collect::<Vec<_>>().join(", ")
    }
}
