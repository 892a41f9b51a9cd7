//! Messages to the service manager that has started the program (`sd_notify(3)`); none without one.

use sd_notify::NotifyState;
use std::time::{Duration, Instant};

/// The service manager of a run. It is notified that the run stops when this is dropped.
pub(crate) struct ServiceManager {
    /// Half of the time after which the manager considers the run hung.
    interval: Option<Duration>,
    last: Instant,
}

impl ServiceManager {
    /// Notifies it that the run has started.
    pub(crate) fn ready() -> ServiceManager {
        if let Err(e) = sd_notify::notify(&[NotifyState::Ready]) {
            tracing::warn!(target: "run", "the service manager cannot be notified: {e}");
        }
        ServiceManager::of_successor()
    }

    /// Returns the service manager of a process that replaces another one, which has notified it.
    pub(crate) fn of_successor() -> ServiceManager {
        ServiceManager { interval: sd_notify::watchdog_enabled().map(|limit| limit / 2), last: Instant::now() }
    }

    /// Notifies it that another process is the main one from now on.
    pub(crate) fn replaced_by(self, pid: u32) {
        if let Err(e) = sd_notify::notify(&[NotifyState::MainPid(pid)]) {
            tracing::warn!(target: "run", "the service manager cannot be notified: {e}");
        }
        // the run goes on
        std::mem::forget(self);
    }

    /// Notifies it, once per interval, that the run is not hung.
    pub(crate) fn alive(&mut self) {
        if self.interval.is_some_and(|interval| self.last.elapsed() >= interval) {
            self.last = Instant::now();
            // ignore errors: the manager restarts a run that it does not hear from
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
    }
}

impl Drop for ServiceManager {
    fn drop(&mut self) {
        // ignore errors: it has no effect on how the run ends
        let _ = sd_notify::notify(&[NotifyState::Stopping]);
    }
}
