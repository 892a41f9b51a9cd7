//! States of backends and the rings that follow from them, shared by the copies of a load balancer and its health
//! checks.

use super::config::{Backend, Config};
use super::destination_numbers::DestinationNumbers;
use super::settings::CheckKind;
use diagnostics::Diagnostic;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tables::maglev::Ring;

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

graph::named_enum! {
    /// State of a backend.
    #[derive(Serialize, Deserialize)]
    pub(super) enum BackendState {
        /// Receives new connections.
        Up = "up",
        /// Receives packets of its existing connections only.
        Draining = "draining",
        /// Receives no packets.
        Down = "down",
    }
}

/// Causes of the states. Its lock serialises changes.
struct Changes {
    /// States by health checks.
    health: Vec<BackendState>,
    /// True for backends that the settings or a request drains.
    drained: Vec<bool>,
    /// Replaced rings that copies may still use; they are freed here, not by a worker.
    retired: Vec<Arc<Ring>>,
}

impl Changes {
    fn state(&self, backend: usize) -> BackendState {
        match self.health[backend] {
            BackendState::Up if self.drained[backend] => BackendState::Draining,
            state => state,
        }
    }

    /// Takes over the states of backends that another load balancer has as well: those by health checks where the check
    /// is of the same address, and those by requests where `drain` has not changed.
    fn take_over(&mut self, config: &Config, before: &[KnownBackend]) {
        let known: HashMap<_, _> = before.iter().map(|b| ((&*b.service, &*b.name, b.address, b.port), b)).collect();
        for (n, b) in config.backends.iter().enumerate() {
            let identity = (&*config.services[b.service].name, &*b.name, b.address, b.port);
            let Some(before) = known.get(&identity) else { continue };
            if before.drain == b.drain {
                self.drained[n] = before.drained;
            }
            if before.checked.is_some() && before.checked == checked(config, b) {
                self.health[n] = before.health;
            }
        }
        // requests never drain all backends of a service
        for service in &config.services {
            if service.backends.clone().all(|n| self.drained[n]) {
                service.backends.clone().for_each(|n| self.drained[n] = config.backends[n].drain);
            }
        }
    }
}

/// A backend and its state, as another load balancer takes it over.
#[derive(Serialize, Deserialize)]
pub(super) struct KnownBackend {
    service: String,
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
    /// The setting.
    drain: bool,
    /// Address of its health checks.
    checked: Option<SocketAddr>,
    drained: bool,
    health: BackendState,
}

/// Returns the address of the health checks of a backend, if there are any.
fn checked(config: &Config, backend: &Backend) -> Option<SocketAddr> {
    let kind = config.services[backend.service].health.kind;
    (kind != CheckKind::None).then_some(backend.check_address)
}

/// Backends of all services.
pub(super) struct BackendPool {
    pub(super) config: Arc<Config>,
    pub(super) numbers: DestinationNumbers,
    /// True if rewrites of replies have the numbers that they had before a reload.
    pub(super) same_replies: bool,
    version: AtomicU64,
    snapshot: Mutex<PoolSnapshot>,
    changes: Mutex<Changes>,
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
    /// Returns the backends of a configuration, all of them up or draining unless the load balancer before a reload has
    /// them in another state.
    pub(super) fn new(config: Arc<Config>, before: Option<&BackendPool>) -> Result<Self, Diagnostic> {
        let backends = config.backends.len();
        let drained = config.backends.iter().map(|b| b.drain).collect();
        let mut changes = Changes { health: vec![BackendState::Up; backends], drained, retired: vec![] };
        if let Some(before) = before {
            changes.take_over(&config, &before.known());
        }
        let states: Vec<_> = (0..backends).map(|backend| changes.state(backend)).collect();
        let rings = (0..config.services.len())
            .map(|n| ring(&config, n, &states).map(Arc::new))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Diagnostic::new("cannot build the table of slots").key("table").value(config.table_size))?;
        let snapshot = PoolSnapshot { rings, states, ring_changes: 0, slots_disrupted: 0, slots_reassigned: 0 };
        let numbers = DestinationNumbers::new(&config, before.map(|old| (&*old.config, &old.numbers)));
        let same_replies = match before {
            Some(before) => config.sorted_replies()? == before.config.sorted_replies()?,
            None => false,
        };
        Ok(PoolHandle(Arc::new(BackendPool {
            config,
            numbers,
            same_replies,
            version: AtomicU64::new(0),
            snapshot: Mutex::new(snapshot),
            changes: Mutex::new(changes),
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

    /// Returns the current states and rings.
    pub(super) fn current(&self) -> PoolSnapshot {
        lock(&self.snapshot).clone()
    }

    /// Returns the backends with their states.
    pub(super) fn known(&self) -> Vec<KnownBackend> {
        let changes = lock(&self.changes);
        let known = |(n, b): (usize, &Backend)| KnownBackend {
            service: self.config.services[b.service].name.clone(),
            name: b.name.clone(),
            address: b.address,
            port: b.port,
            drain: b.drain,
            checked: checked(&self.config, b),
            drained: changes.drained[n],
            health: changes.health[n],
        };
        self.config.backends.iter().enumerate().map(known).collect()
    }

    /// Takes over the states of the backends of another process. Each copy does so.
    pub(super) fn restore(&self, before: &[KnownBackend]) {
        let mut changes = lock(&self.changes);
        changes.take_over(&self.config, before);
        let mut snapshot = lock(&self.snapshot);
        for (number, service) in self.config.services.iter().enumerate() {
            let mut states = snapshot.states.clone();
            service.backends.clone().for_each(|n| states[n] = changes.state(n));
            if states != snapshot.states
                && let Some(ring) = ring(&self.config, number, &states)
            {
                changes.retired.push(std::mem::replace(&mut snapshot.rings[number], Arc::new(ring)));
                snapshot.states = states;
            }
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns the state of a backend by health checks.
    pub(super) fn health(&self, backend: usize) -> BackendState {
        lock(&self.changes).health[backend]
    }

    /// Sets the state of a backend that health checks have found.
    pub(super) fn set(&self, backend: usize, state: BackendState) {
        let mut changes = lock(&self.changes);
        changes.health[backend] = state;
        self.apply(&mut changes, backend);
    }

    /// Drains a backend, or ends that; returns its state, or `None` if no backend of the service would receive new
    /// connections although one does now. Then nothing changes.
    pub(super) fn drain(&self, backend: usize, drain: bool) -> Option<BackendState> {
        let mut changes = lock(&self.changes);
        let service = &self.config.services[self.config.backends[backend].service];
        let others_up = || service.backends.clone().any(|n| n != backend && changes.state(n) == BackendState::Up);
        if drain && changes.state(backend) == BackendState::Up && !others_up() {
            return None;
        }
        changes.drained[backend] = drain;
        self.apply(&mut changes, backend);
        Some(changes.state(backend))
    }

    /// Publishes the state of a backend and rebuilds the ring of its service.
    fn apply(&self, changes: &mut Changes, backend: usize) {
        let state = changes.state(backend);
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
        changes.retired.retain(|ring| Arc::strong_count(ring) > 1);
        changes.retired.push(old);
    }
}

#[cfg(test)]
impl BackendPool {
    /// Returns true once the health checks are to stop.
    pub(super) fn is_stopped(&self) -> bool {
        *lock(&self.stop)
    }
}
