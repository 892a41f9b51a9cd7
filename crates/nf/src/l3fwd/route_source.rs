//! Where the routes of a routing daemon come from.

use crate::Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Settings of the server that FRR's zebra sends routes to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FpmSettings {
    /// Address and port at which it listens.
    pub listen: SocketAddr,
    /// Network namespace in which it listens, by name; the default is that of the process.
    pub namespace: Option<String>,
    /// Number of the routing table whose routes are this router's: 254, the main one, or that of a VRF. Routers with the
    /// same namespace and address share a server.
    pub table: u32,
    /// Seconds for which routes stay after the connection has ended; those that the routing daemon has not sent again
    /// then are removed.
    pub stale_time: u32,
    /// Maximum number of its routes, up to 4194304. Those beyond are answered as failed.
    pub routes_max: usize,
    /// Prefixes that contain its routes; others are answered as failed. The default is any.
    pub prefixes: Vec<Net>,
}

impl Default for FpmSettings {
    fn default() -> Self {
        FpmSettings {
            listen: SocketAddr::from(([127, 0, 0, 1], 2620)),
            namespace: None,
            table: 254,
            stale_time: 300,
            routes_max: 2_000_000,
            prefixes: vec![],
        }
    }
}

/// Settings of routes that are read from the main table of the kernel, in which BIRD, other daemons and `ip route` add
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KernelRoutesSettings {
    /// Network namespace of the kernel's table, by name; the default is that of the tenant, or of the process.
    pub namespace: Option<String>,
    /// Maximum number of routes, up to 4194304. Those beyond are not used.
    pub routes_max: usize,
    /// Prefixes that contain the routes; others are not used. The default is any.
    pub prefixes: Vec<Net>,
}

impl Default for KernelRoutesSettings {
    fn default() -> Self {
        KernelRoutesSettings { namespace: None, routes_max: 2_000_000, prefixes: vec![] }
    }
}

/// Source of the routes of a routing daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// zebra sends them.
    Fpm(FpmSettings),
    /// They are read from the kernel.
    Kernel(KernelRoutesSettings),
}

impl RouteSource {
    /// Returns its name: `fpm` or `kernel`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            RouteSource::Fpm(_) => "fpm",
            RouteSource::Kernel(_) => "kernel",
        }
    }

    /// Returns the network namespace of the routing daemon; `None` if it is that of the process.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            RouteSource::Fpm(fpm) => fpm.namespace.as_deref(),
            RouteSource::Kernel(kernel) => kernel.namespace.as_deref(),
        }
    }

    /// Returns the maximum number of its routes.
    #[must_use]
    pub fn routes_max(&self) -> usize {
        match self {
            RouteSource::Fpm(fpm) => fpm.routes_max,
            RouteSource::Kernel(kernel) => kernel.routes_max,
        }
    }

    /// Returns the prefixes that contain its routes; any if there are none.
    #[must_use]
    pub fn prefixes(&self) -> &[Net] {
        match self {
            RouteSource::Fpm(fpm) => &fpm.prefixes,
            RouteSource::Kernel(kernel) => &kernel.prefixes,
        }
    }
}
