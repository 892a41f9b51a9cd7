//! Routes that a routing daemon installs into a running router.

use super::fib::installed_routes::{InstalledHop, InstalledTarget, Refused};
use super::operations::LiveRoutes;
use super::settings::FpmSettings;
use core::sync::atomic::{AtomicU64, Ordering};
use ipnet::IpNet;
use std::sync::{Arc, PoisonError, Weak};

/// The last number of a lineage.
static LINEAGES: AtomicU64 = AtomicU64::new(0);

impl LiveRoutes {
    /// Returns the setting `fpm`.
    #[must_use]
    pub fn fpm(&self) -> Option<&FpmSettings> {
        self.config.fpm.as_ref()
    }

    /// Returns the number of the interface with a name, or with a representor of this name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<usize> {
        let n = self.interfaces.iter().position(|own| own == name)?;
        match n.checked_sub(self.config.interfaces.len()) {
            None => Some(n),
            Some(representor) => self.config.representors.get(representor).copied(),
        }
    }

    /// Installs a route or replaces it. When this returns, workers find it.
    ///
    /// # Errors
    /// The route is not installed; one that was before is removed.
    pub fn install(&self, prefix: IpNet, target: &InstalledTarget) -> Result<(), Refused> {
        let mut hops = self.fib.next_hops();
        let installed = self.fib.install(&self.config, &mut hops, prefix, target);
        if let Some(next) = self.next() {
            // ignore errors: it has other limits, perhaps
            let _ = next.install(prefix, target);
        }
        installed
    }

    /// Changes the next hops of a next-hop object for its routes ([`InstalledTarget::Object`]) that were installed while it
    /// had several, in a time that does not depend on their number. Each packet finds the old next hops or the new ones.
    ///
    /// Returns the number of these routes, and 0 if the next hops are refused. If the object has others, all are to be
    /// installed again.
    pub fn change_object(&self, id: u32, via: &[InstalledHop]) -> usize {
        let mut hops = self.fib.next_hops();
        let changed = self.fib.change_object(&self.config, &mut hops, id, via);
        self.next().map_or(changed, |next| next.change_object(id, via).min(changed))
    }

    /// Removes a route that was installed; does nothing if there is none.
    pub fn uninstall(&self, prefix: IpNet) {
        let mut hops = self.fib.next_hops();
        self.fib.uninstall(&mut hops, prefix);
        if let Some(next) = self.next() {
            next.uninstall(prefix);
        }
    }

    /// Makes all installed routes stale, as the connection to the routing daemon has ended: those that are not installed
    /// again go with [`LiveRoutes::remove_stale`].
    pub fn mark_stale(&self) {
        let mut hops = self.fib.next_hops();
        self.fib.mark_stale(&mut hops);
        if let Some(next) = self.next() {
            next.mark_stale();
        }
    }

    /// Removes stale routes and returns their number.
    pub fn remove_stale(&self) -> usize {
        let mut hops = self.fib.next_hops();
        let removed = self.fib.remove_stale(&mut hops);
        if let Some(next) = self.next() {
            next.remove_stale();
        }
        removed
    }

    /// Returns a number that routers have in common which have taken over the routes of each other.
    #[must_use]
    pub fn lineage(&self) -> u64 {
        *self.lineage.get_or_init(|| LINEAGES.fetch_add(1, Ordering::Relaxed))
    }

    /// Installs the routes of a router that this one is to replace, and from now on all further ones. Only the first call
    /// does anything. Both have the same interfaces.
    pub(super) fn take_over(self: &Arc<Self>, before: &LiveRoutes) {
        self.taken_over.call_once(|| {
            // changes wait for this lock, and then arrive at both
            let old = before.fib.next_hops();
            let mut hops = self.fib.next_hops();
            self.fib.set_now(before.fib.now());
            before.fib.for_each_installed(&old, |net, target, is_stale| {
                // ignore errors: a route that does not fit into the new settings is left out
                if self.fib.install(&self.config, &mut hops, net, &target).is_ok() && is_stale {
                    self.fib.make_stale(&mut hops, net);
                }
            });
            // next hops that are only known now
            self.fib.control().take_over(&self.fib, &self.config.interfaces, &before.fib.control());
            // ignore errors: it is set once
            let _ = self.lineage.set(before.lineage());
            *before.next.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(self);
        });
    }

    /// Returns the router that is to replace this one.
    fn next(&self) -> Option<Arc<LiveRoutes>> {
        Weak::upgrade(&self.next.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
