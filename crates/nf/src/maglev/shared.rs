//! What the copies have in common: who is healthy, and the rings that follow.

use super::config::{Backend, Config};
use super::health;
use diagnostics::Diagnostic;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tables::maglev::Ring;

/// What a backend may get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// New connections.
    Up,
    /// Packets of connections that it has.
    Draining,
    /// Nothing.
    Down,
}

/// What holds from one batch on.
#[derive(Clone)]
pub(super) struct View {
    /// Of each service.
    pub(super) rings: Vec<Arc<Ring>>,
    /// Of each backend.
    pub(super) conditions: Vec<Condition>,
    /// Rings that took the place of others, and the slots that moved then although their backends stayed.
    pub(super) changes: u64,
    pub(super) moved: u64,
    /// The same of slots whose backends were gone.
    pub(super) bereft: u64,
}

/// What the data path and the checks both see.
pub(super) struct State {
    pub(super) config: Arc<Config>,
    version: AtomicU64,
    view: Mutex<View>,
    /// Rings that copies may still have: so that none of these frees one.
    old: Mutex<Vec<Arc<Ring>>>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

/// The copies' hold on it: when the last one is gone, checks end.
pub(super) struct Shared(pub(super) Arc<State>);

impl Drop for Shared {
    fn drop(&mut self) {
        *lock(&self.0.stop) = true;
        self.0.stopped.notify_all();
    }
}

/// What is behind these locks is whole whenever it can be seen.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ring(config: &Config, service: usize, conditions: &[Condition]) -> Option<Ring> {
    config.ring(service, |at, b| if conditions[at] == Condition::Up { b.weight } else { 0 }).ok()
}

impl Shared {
    pub(super) fn start(config: Arc<Config>) -> Result<Self, Diagnostic> {
        let of = |b: &Backend| if b.drain { Condition::Draining } else { Condition::Up };
        let conditions: Vec<_> = config.backends.iter().map(of).collect();
        let rings = (0..config.services.len())
            .map(|n| ring(&config, n, &conditions).map(Arc::new))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Diagnostic::new("has a table that cannot be built").key("table").value(config.size))?;
        let view = View { rings, conditions, changes: 0, moved: 0, bereft: 0 };
        let state = Arc::new(State {
            config,
            version: AtomicU64::new(0),
            view: Mutex::new(view),
            old: Mutex::default(),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
        });
        // what has begun ends with this, also when the rest does not begin
        let shared = Shared(state);
        health::watch(&shared.0)?;
        Ok(shared)
    }
}

impl State {
    /// Counts up with every change.
    #[inline(always)]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// What holds now, if nobody is changing it.
    pub(super) fn view(&self) -> Option<View> {
        self.view.try_lock().ok().map(|view| view.clone())
    }

    /// Waits so long, or until nobody needs checks any more: then it is false.
    pub(super) fn wait(&self, long: Duration) -> bool {
        let stop = self.stopped.wait_timeout_while(lock(&self.stop), long, |stop| !*stop);
        !*stop.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Says what has become of a backend.
    pub(super) fn set(&self, backend: usize, condition: Condition) {
        // checks are on several threads; between this and the end nobody else makes rings
        let mut old = lock(&self.old);
        let (mut conditions, before) = {
            let view = lock(&self.view);
            (view.conditions.clone(), view.rings[self.config.backends[backend].service].clone())
        };
        if std::mem::replace(&mut conditions[backend], condition) == condition {
            return;
        }
        let service = self.config.backends[backend].service;
        let Some(ring) = ring(&self.config, service, &conditions) else { return };
        let changed = before.disruption(&ring);
        let ring = Arc::new(ring);
        {
            let mut view = lock(&self.view);
            view.conditions = conditions;
            view.rings[service] = ring;
            view.changes += 1;
            view.moved += changed.moved as u64;
            view.bereft += changed.bereft as u64;
        }
        self.version.fetch_add(1, Ordering::Release);
        // what a copy still has, it gives up within a batch; what only this list has can go
        old.retain(|ring| Arc::strong_count(ring) > 1);
        old.push(before);
    }
}

#[cfg(test)]
impl State {
    /// Ends as the last copy's end would have it end.
    pub(super) fn is_stopped(&self) -> bool {
        *lock(&self.stop)
    }
}
