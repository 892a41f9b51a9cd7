//! Routers that share a connection.

use ipnet::IpNet;
use nf::live::{LiveVrf, RouteSource};

/// The routers whose routes a connection brings, by number of the routing table.
pub(in crate::run) struct Tables {
    pub(in crate::run) routers: Vec<(u32, LiveVrf)>,
}

impl Tables {
    /// Returns the router of a routing table.
    ///
    /// # Errors
    /// There is none.
    pub(in crate::run) fn router(&self, table: u32) -> Result<&LiveVrf, String> {
        let router = self.routers.iter().find(|(own, _)| *own == table);
        router.map(|(_, router)| router).ok_or_else(|| format!("no router has the routing table {table}"))
    }

    /// Removes a route.
    pub(in crate::run) fn remove(&self, (table, prefix): (u32, IpNet)) {
        if let Ok(router) = self.router(table) {
            router.uninstall(prefix);
        }
    }

    /// Returns the maximum number of routes.
    pub(in crate::run) fn routes_max(&self) -> usize {
        self.routers.iter().filter_map(|(_, router)| router.source()).map(RouteSource::routes_max).sum()
    }

    /// Returns the lineages of the routers.
    pub(in crate::run) fn lineages(&self) -> Vec<u64> {
        self.routers.iter().map(|(_, router)| router.lineage()).collect()
    }
}
