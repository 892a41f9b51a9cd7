//! States of backends and the rings that follow from them, shared by the copies of a load balancer and its health
//! checks.

use super::config::{Backend, Config};
use diagnostics::Diagnostic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tables::maglev::Ring;

/// State of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BackendState {
    /// Receives new connections.
    Up,
    /// Receives packets of its existing connections only.
    Draining,
    /// Receives no packets.
    Down,
}

/// States and rings as used from one batch on.
#[derive(Clone)]
pub(super) struct PoolSnapshot {
    /// Ring of each service.
    pub(super) rings: Vec<Arc<Ring>>,
    /// State of each backend.
    pub(super) states: Vec<BackendState>,
    /// Number of replaced rings.
    pub(super) ring_changes: u64,
    /// Slots that changed although their backends were up.
    pub(super) slots_disrupted: u64,
    /// Slots that changed because their backends were not up.
    pub(super) slots_reassigned: u64,
}

/// Backends of all services.
pub(super) struct BackendPool {
    pub(super) config: Arc<Config>,
    version: AtomicU64,
    snapshot: Mutex<PoolSnapshot>,
    /// Replaced rings that copies may still use; they are freed here, not by a worker.
    retired: Mutex<Vec<Arc<Ring>>>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

/// Handle of the copies: dropping the last one stops the health checks.
pub(super) struct PoolHandle(pub(super) Arc<BackendPool>);

impl Drop for PoolHandle {
    fn drop(&mut self) {
        *lock(&self.0.stop) = true;
        self.0.stopped.notify_all();
    }
}

/// Locks a mutex; a poisoned one is used, as its data is consistent at all times.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ring(config: &Config, service: usize, states: &[BackendState]) -> Option<Ring> {
    config.ring(service, |at, b| if states[at] == BackendState::Up { b.weight } else { 0 }).ok()
}

impl PoolHandle {
    /// Returns the backends of a configuration, all of them up or draining.
    pub(super) fn new(config: Arc<Config>) -> Result<Self, Diagnostic> {
        let initial = |b: &Backend| if b.drain { BackendState::Draining } else { BackendState::Up };
        let states: Vec<_> = config.backends.iter().map(initial).collect();
        let rings = (0..config.services.len())
            .map(|n| ring(&config, n, &states).map(Arc::new))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Diagnostic::new("cannot build the table of slots").key("table").value(config.table_size))?;
        let snapshot = PoolSnapshot { rings, states, ring_changes: 0, slots_disrupted: 0, slots_reassigned: 0 };
        Ok(PoolHandle(Arc::new(BackendPool {
            config,
            version: AtomicU64::new(0),
            snapshot: Mutex::new(snapshot),
            retired: Mutex::default(),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
        })))
    }
}

impl BackendPool {
    /// Returns a number that increases with every change.
    #[inline(always)]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the current states and rings, or `None` while they are being changed.
    pub(super) fn snapshot(&self) -> Option<PoolSnapshot> {
        self.snapshot.try_lock().ok().map(|snapshot| snapshot.clone())
    }

    /// Waits and returns true, or returns false once the health checks are to stop.
    pub(super) fn wait(&self, duration: Duration) -> bool {
        let stop = self.stopped.wait_timeout_while(lock(&self.stop), duration, |stop| !*stop);
        !*stop.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sets the state of a backend and rebuilds the ring of its service.
    pub(super) fn set(&self, backend: usize, state: BackendState) {
        // serialises changes by several health check threads
        let mut retired = lock(&self.retired);
        let service = self.config.backends[backend].service;
        let (mut states, old) = {
            let snapshot = lock(&self.snapshot);
            (snapshot.states.clone(), snapshot.rings[service].clone())
        };
        if std::mem::replace(&mut states[backend], state) == state {
            return;
        }
        let Some(ring) = ring(&self.config, service, &states) else { return };
        let changed = old.disruption(&ring);
        let ring = Arc::new(ring);
        {
            let mut snapshot = lock(&self.snapshot);
            snapshot.states = states;
            snapshot.rings[service] = ring;
            snapshot.ring_changes += 1;
            snapshot.slots_disrupted += changed.moved as u64;
            snapshot.slots_reassigned += changed.bereft as u64;
        }
        self.version.fetch_add(1, Ordering::Release);
        // frees the rings that no copy uses any more; copies replace theirs within a batch
        retired.retain(|ring| Arc::strong_count(ring) > 1);
        retired.push(old);
    }
}

#[cfg(test)]
impl BackendPool {
    /// Returns true once the health checks are to stop.
    pub(super) fn is_stopped(&self) -> bool {
        *lock(&self.stop)
    }
}
