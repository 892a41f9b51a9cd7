//! Routes of routers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A change of the routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteChange {
    /// Adds or replaces a route: `PREFIX via ADDRESS...`, `PREFIX unreachable` or `PREFIX blackhole`.
    Add(String),
    /// Removes the route to this prefix.
    Remove(String),
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Destination prefix.
    pub prefix: String,
    /// `via`, `connected`, `unreachable`, `prohibit` or `blackhole`.
    pub target: String,
    /// `connected`, `static` if the settings or a command have added it, `fpm` if a routing daemon has sent it, or `kernel`
    /// if it is one of the kernel's routes.
    pub source: String,
    /// Interface of a connected network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Next hops of `via`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<NextHop>,
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextHop {
    /// Address.
    pub address: String,
    /// Interface on whose network it is.
    pub interface: String,
    /// Share of flows in relation to that of the other next hops.
    pub weight: u16,
    /// State of the neighbour (RFC 4861 §7.3.2): `reachable`, `probe`, `incomplete`, `permanent` if the settings name its
    /// MAC address, or `none` if no packet needed it yet.
    pub state: String,
    /// MAC address, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// A part of the routes of a router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoutesPage {
    /// Name of the NF.
    pub nf: String,
    /// Name of the tenant, if they are those of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// At most 500 routes, by IP version and length of the prefix. Routes that change between two requests may be
    /// missing.
    pub routes: Vec<Route>,
    /// Position of the next route, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The result of changes of routes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoutesChanged {
    /// Name of the NF.
    pub nf: String,
    /// Name of the tenant, if they are those of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Number of routes that were added or replaced.
    pub added: usize,
    /// Number of routes that were removed.
    pub removed: usize,
}
