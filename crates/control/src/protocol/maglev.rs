//! Backends of load balancers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MaglevBackend {
    /// Name of its service.
    pub service: String,
    /// Name of the backend.
    pub backend: String,
    /// Its address.
    pub address: String,
    /// `up`, `draining` or `down`.
    pub state: String,
    /// Slots of the service's table.
    pub slots: usize,
    /// Connections in the tables of all copies.
    pub connections: u64,
    /// Packets that were forwarded to it.
    pub packets: u64,
}

/// The backends of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MaglevBackends {
    /// Name of the NF.
    pub nf: String,
    /// Backends of all services.
    pub backends: Vec<MaglevBackend>,
}

/// The result of draining a backend, or of the reverse.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MaglevDrained {
    /// Name of the NF.
    pub nf: String,
    /// Name of the service.
    pub service: String,
    /// Name of the backend.
    pub backend: String,
    /// State of the backend now.
    pub state: String,
}
