//! The sources of the routes of routing daemons.

use super::fpm_servers::FpmServers;
use super::kernel_routes::KernelRoutes;
use super::taps::Taps;
use sandbox::SandboxedEngine;

/// The servers and readers of a run.
#[derive(Default)]
pub(super) struct RouteSources {
    pub(super) fpm: FpmServers,
    kernel: KernelRoutes,
    taps: Taps,
}

impl RouteSources {
    /// Starts and ends servers and readers so that they are those of the routers that run.
    pub(super) fn update(&mut self, chains: &SandboxedEngine) {
        let (nfs, file) = (chains.engine().live_nfs(), chains.engine().file());
        self.taps.update(file);
        self.fpm.update(nfs, file, &self.taps);
        self.kernel.update(nfs, &self.taps);
    }

    /// As [`update`](Self::update), after a reload.
    pub(super) fn reloaded(&mut self, chains: &SandboxedEngine) {
        self.update(chains);
        self.kernel.reloaded();
    }
}
