//! Routes that a routing daemon installs into a running router.

use super::config::Vrf;
use super::fib::installed_routes::{InstalledHop, InstalledTarget, Refused};
use super::operations::{LiveRoutes, LiveVrf, NextRouter};
use super::route_source::RouteSource;
use core::sync::atomic::{AtomicU64, Ordering};
use ipnet::IpNet;
use std::sync::{Arc, PoisonError};

/// Stale routes that are changed while other changes wait.
const ROUTES_PER_LOCK: usize = 256;

/// The last number of a lineage.
static LINEAGES: AtomicU64 = AtomicU64::new(0);

impl LiveRoutes {
    /// Returns the routes of a tenant, or of the router itself.
    #[must_use]
    pub fn vrf(self: &Arc<Self>, tenant: Option<&str>) -> Option<LiveVrf> {
        Some(LiveVrf { router: self.clone(), vrf: self.config.vrf(tenant)? })
    }

    /// Returns the routes of the router itself and of each tenant.
    pub fn vrfs(self: &Arc<Self>) -> impl Iterator<Item = LiveVrf> {
        (0..self.config.vrfs.len()).map(|vrf| LiveVrf { router: self.clone(), vrf })
    }

    /// Takes over the neighbours and installed routes of a router that this one is to replace, and from now on all further
    /// routes. Only the first call does anything.
    pub(super) fn take_over(self: &Arc<Self>, before: &LiveRoutes) {
        self.taken_over.call_once(|| {
            let same: Arc<[_]> = self.config.same_interfaces(&before.config).into();
            self.fib.set_now(before.fib.now());
            self.fib.control().take_over(&self.fib, &self.config.interfaces, &before.fib.control(), &same);
            // a change that arrives at both before the routes of its VRF are taken over is made again with them
            let next = NextRouter { router: Arc::downgrade(self), same: same.clone() };
            *before.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
            for (vrf, Vrf { tenant, .. }) in self.config.vrfs.iter().enumerate() {
                let Some(old) = before.config.vrf(tenant.as_deref()) else { continue };
                // changes wait for this lock, and then arrive at both
                let old_hops = before.fib.next_hops(old);
                let mut hops = self.fib.next_hops(vrf);
                hops.installed.refused = old_hops.installed.refused;
                before.fib.for_each_installed(&old_hops, old, |net, target, is_stale| {
                    let target = renumbered(target, &same);
                    // ignore errors: a route that does not fit into the new settings is left out
                    if self.fib.install(&self.config, &mut hops, (vrf, net), &target).is_ok() && is_stale {
                        self.fib.make_stale(&mut hops, (vrf, net));
                    }
                });
                if self.config.keeps_interfaces(vrf, &before.config, old) {
                    // ignore errors: it is set once
                    let _ = self.lineages[vrf].set(before.lineage(old));
                }
            }
            // next hops that are only known now
            self.fib.control().take_over(&self.fib, &self.config.interfaces, &before.fib.control(), &same);
        });
    }

    fn lineage(&self, vrf: usize) -> u64 {
        *self.lineages[vrf].get_or_init(|| LINEAGES.fetch_add(1, Ordering::Relaxed))
    }
}

impl LiveVrf {
    /// Returns the name of the tenant; `None` if the routes are those of the router itself.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.router.config.vrfs[self.vrf].tenant.as_deref()
    }

    /// Returns the source of the routes of its routing daemon: the setting `fpm` or `kernel_routes`.
    #[must_use]
    pub fn source(&self) -> Option<&RouteSource> {
        self.router.config.vrfs[self.vrf].source.as_ref()
    }

    /// Returns true if the settings allow routes of a routing daemon to a prefix.
    #[must_use]
    pub fn is_allowed(&self, prefix: IpNet) -> bool {
        self.router.config.vrfs[self.vrf].is_allowed(prefix)
    }

    /// Returns the names of its interfaces, and their addresses with prefix lengths.
    pub fn interfaces(&self) -> impl Iterator<Item = (String, Vec<String>)> {
        let own = self.router.config.interfaces.iter().filter(|interface| interface.vrf == self.vrf);
        own.map(|interface| {
            let v4 = interface.v4.iter().map(|(address, len)| format!("{address}/{len}"));
            let v6 = interface.v6.iter().map(|(address, len)| format!("{address}/{len}"));
            (interface.name.clone(), v4.chain(v6).collect())
        })
    }

    /// Returns the number of the interface of the router with a name, or with a representor of this name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<usize> {
        let LiveRoutes { representors, config, .. } = &*self.router;
        let own = config.interfaces.iter().position(|own| own.name == name);
        let representor = || representors.iter().position(|own| own == name);
        own.or_else(|| config.representors.get(representor()?).copied())
    }

    /// Installs a route or replaces it. When this returns, workers find it.
    ///
    /// # Errors
    /// The route is not installed; one that was before is removed.
    pub fn install(&self, prefix: IpNet, target: &InstalledTarget) -> Result<(), Refused> {
        let LiveRoutes { fib, config, .. } = &*self.router;
        let mut hops = fib.next_hops(self.vrf);
        let installed = fib.install(config, &mut hops, (self.vrf, prefix), target);
        if let Some((next, same)) = self.next() {
            // ignore errors: it has other limits, perhaps
            let _ = next.install(prefix, &renumbered(target.clone(), &same));
        }
        installed
    }

    /// Changes the next hops of a next-hop object for its routes ([`InstalledTarget::Object`]) that were installed while it
    /// had several, in a time that does not depend on their number. Each packet finds the old next hops or the new ones.
    ///
    /// Returns the number of these routes, and 0 if the next hops are refused. If the object has others, all are to be
    /// installed again.
    pub fn change_object(&self, id: u32, via: &[InstalledHop]) -> usize {
        let LiveRoutes { fib, config, .. } = &*self.router;
        let mut hops = fib.next_hops(self.vrf);
        let changed = fib.change_object(config, &mut hops, (self.vrf, id), via);
        let Some((next, same)) = self.next() else { return changed };
        let InstalledTarget::Via(via) = renumbered(InstalledTarget::Via(via.to_vec()), &same) else { return changed };
        next.change_object(id, &via).min(changed)
    }

    /// Removes a route that was installed; does nothing if there is none.
    pub fn uninstall(&self, prefix: IpNet) {
        let mut hops = self.router.fib.next_hops(self.vrf);
        self.router.fib.uninstall(&mut hops, (self.vrf, prefix));
        if let Some((next, _)) = self.next() {
            next.uninstall(prefix);
        }
    }

    /// Makes all installed routes stale, as the connection to the routing daemon has ended: those that are not installed
    /// again go with [`LiveVrf::remove_stale`].
    pub fn mark_stale(&self) {
        let fib = &self.router.fib;
        let stale = fib.stale(&fib.next_hops(self.vrf), self.vrf);
        // others change routes in between
        stale.chunks(ROUTES_PER_LOCK).for_each(|part| fib.retag_stale(&fib.next_hops(self.vrf), self.vrf, part));
        let mut hops = fib.next_hops(self.vrf);
        fib.mark_stale(&mut hops, self.vrf);
        if let Some((next, _)) = self.next() {
            next.mark_stale();
        }
    }

    /// Removes stale routes and returns their number.
    pub fn remove_stale(&self) -> usize {
        let fib = &self.router.fib;
        let stale = fib.stale(&fib.next_hops(self.vrf), self.vrf);
        // others change routes in between
        let removed =
            stale.chunks(ROUTES_PER_LOCK).map(|part| fib.remove_stale(&mut fib.next_hops(self.vrf), self.vrf, part));
        let removed = removed.sum();
        if let Some((next, _)) = self.next() {
            next.remove_stale();
        }
        removed
    }

    /// Returns the number of routes that a routing daemon has installed.
    #[must_use]
    pub fn installed_routes(&self) -> usize {
        self.router.fib.next_hops(self.vrf).installed.routes()
    }

    /// Returns the number of routes of a routing daemon that were not installed, as limits or their next hops do not permit
    /// it.
    #[must_use]
    pub fn refused_routes(&self) -> u64 {
        self.router.fib.next_hops(self.vrf).installed.refused
    }

    /// Returns the number of next hops and groups of them that are in use or were in the last 4 s, and the maximum.
    #[must_use]
    pub fn next_hops(&self) -> (usize, usize) {
        let fib = &self.router.fib;
        fib.next_hops(self.vrf).usage(fib.now())
    }

    /// Returns a number that routers have in common which have taken over the routes of each other, and whose interfaces
    /// are the same as far as both have them.
    #[must_use]
    pub fn lineage(&self) -> u64 {
        self.router.lineage(self.vrf)
    }

    /// Returns the same of the router that is to replace this one, and the numbers that it has for the interfaces.
    fn next(&self) -> Option<(LiveVrf, Arc<[Option<usize>]>)> {
        let NextRouter { router, same } = self.router.next.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some((router.upgrade()?.vrf(self.tenant())?, same))
    }
}

/// Returns a target with the numbers `same` for its interfaces, without next hops on interfaces that have none.
fn renumbered(mut target: InstalledTarget, same: &[Option<usize>]) -> InstalledTarget {
    if let InstalledTarget::Via(via) | InstalledTarget::Object { via, .. } = &mut target {
        via.retain_mut(|hop| {
            let Some(interface) = hop.interface else { return true };
            hop.interface = same.get(interface).copied().flatten();
            hop.interface.is_some()
        });
    }
    target
}
