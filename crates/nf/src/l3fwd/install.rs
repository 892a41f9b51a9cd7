//! Routes that a routing daemon installs into a running router.

use super::fib::installed_routes::{InstalledHop, InstalledTarget, Refused};
use super::operations::LiveRoutes;
use super::settings::FpmSettings;
use ipnet::IpNet;
use std::sync::{Arc, PoisonError, Weak};

/// A change that a routing daemon makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteUpdate {
    /// Destination.
    pub prefix: IpNet,
    /// Target of the route that replaces the one before; `None` removes it.
    pub target: Option<InstalledTarget>,
}

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

    /// Makes changes in order, and returns for each whether it was made. When this returns, workers look up the routes.
    pub fn install(&self, updates: &[RouteUpdate]) -> Vec<Result<(), Refused>> {
        let mut hops = self.fib.next_hops();
        let install = |update: &RouteUpdate| match &update.target {
            Some(target) => {
                if !self.config.is_allowed(update.prefix) {
                    self.fib.uninstall(&mut hops, update.prefix);
                    return Err(Refused::NotAllowed);
                }
                let most = self.config.fpm.as_ref().map_or(0, |fpm| fpm.routes_max);
                self.fib.install(&self.config, &mut hops, update.prefix, target, most)
            }
            None => {
                self.fib.uninstall(&mut hops, update.prefix);
                Ok(())
            }
        };
        let installed = updates.iter().map(install).collect();
        if let Some(next) = self.next() {
            next.install(&updates.iter().map(|update| self.translated(update, &next)).collect::<Vec<_>>());
        }
        installed
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

    /// Returns the number of installed routes.
    #[must_use]
    pub fn installed(&self) -> usize {
        self.fib.next_hops().installed.routes()
    }

    /// Installs the routes of a router that this one is to replace, and from now on all further ones. Only the first call
    /// does anything.
    pub(super) fn take_over(self: &Arc<Self>, before: &LiveRoutes) {
        self.taken_over.call_once(|| {
            // changes wait for this lock, and then arrive at both
            let old = before.fib.next_hops();
            let mut hops = self.fib.next_hops();
            let most = self.config.fpm.as_ref().map_or(0, |fpm| fpm.routes_max);
            before.fib.for_each_installed(&old, |net, target, is_stale| {
                let update = before.translated(&RouteUpdate { prefix: net, target: Some(target) }, self);
                let Some(target) = update.target.filter(|_| self.config.is_allowed(net)) else { return };
                // ignore errors: a route that does not fit into the new settings is left out
                if self.fib.install(&self.config, &mut hops, net, &target, most).is_ok() && is_stale {
                    self.fib.make_stale(&mut hops, net);
                }
            });
            *before.next.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(self);
        });
    }

    /// Returns true if it has the routes that were installed into the router before a reload.
    #[must_use]
    pub fn has_taken_over(&self) -> bool {
        self.taken_over.is_completed()
    }

    /// Returns the router that is to replace this one.
    fn next(&self) -> Option<Arc<LiveRoutes>> {
        Weak::upgrade(&self.next.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a change with the numbers that another router has for the interfaces.
    fn translated(&self, update: &RouteUpdate, to: &LiveRoutes) -> RouteUpdate {
        let number = |n: usize| self.interfaces.get(n).and_then(|name| to.interface(name)).unwrap_or(usize::MAX);
        let hop = |hop: &InstalledHop| InstalledHop { interface: hop.interface.map(number), ..*hop };
        let target = update.target.as_ref().map(|target| match target {
            InstalledTarget::Via(via) => InstalledTarget::Via(via.iter().map(hop).collect()),
            other => other.clone(),
        });
        RouteUpdate { prefix: update.prefix, target }
    }
}
