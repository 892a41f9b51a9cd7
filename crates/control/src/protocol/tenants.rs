//! Tenants of routers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tenants {
    /// Absolute path of the chain file that runs.
    pub file: String,
    /// The tenants, by router and name.
    pub tenants: Vec<Tenant>,
}

/// A tenant of a router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tenant {
    /// Name of the router.
    pub nf: String,
    /// Name.
    pub name: String,
    /// Network namespace of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Interfaces.
    pub interfaces: Vec<TenantInterface>,
    /// Source of the routes of its routing daemon: `fpm`, or `kernel` if they are read from the kernel of the namespace;
    /// none if no routing daemon may install any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Number of routes that its routing daemon has installed.
    pub installed_routes: usize,
    /// Maximum number of these routes; none if no routing daemon may install any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes_max: Option<usize>,
    /// Number of times that a route was refused, as limits or its next hops do not permit it.
    #[serde(default)]
    pub refused_routes: u64,
    /// Number of next hops of routes and groups of them that are in use or were in the last 4 s.
    #[serde(default)]
    pub next_hops: usize,
    /// Maximum number of these next hops and groups.
    #[serde(default)]
    pub next_hops_max: usize,
    /// Prefixes that contain these routes; if there are none, all do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
    /// Address of the routing daemon that is connected, if `source` is `fpm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Number of malformed messages and frames.
    #[serde(default)]
    pub malformed: u64,
    /// Daemons that Bondstone runs for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub daemons: Vec<TenantDaemon>,
}

/// An interface of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantInterface {
    /// Name.
    pub name: String,
    /// Addresses with prefix lengths.
    pub addresses: Vec<String>,
}

/// A daemon of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantDaemon {
    /// Name of the program.
    pub name: String,
    /// Number of the process; none while it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Seconds since its last start.
    pub seconds: u64,
    /// Number of times that it has ended and was started again.
    pub restarts: u64,
    /// Reason for which it has ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}
