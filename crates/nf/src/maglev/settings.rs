//! Settings of the load balancer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Settings of `maglev`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Services by name: { vip = ["tcp 192.0.2.10:80"], forward = "gre" | "ipip" | "l3dsr" | "nat", backend.NAME = {
    /// address, port, weight, drain, check_address }, dscp, health = { kind = "none" | "tcp" | "http", port, path,
    /// interval, timeout, rise, fall, drain_on_404 } }.
    pub(super) service: BTreeMap<String, ServiceSettings>,
    /// Source addresses of tunnels, one for each IP version of the backends of "gre" and "ipip" services.
    pub(super) source: Vec<IpAddr>,
    /// Slots of each service's table, a prime number of at least a hundred times the number of backends.
    pub(super) table: u32,
    /// Seed of the flow hash, the same on all load balancers of a fleet.
    pub(super) seed: u64,
    /// Maximum number of tracked connections per core and IP version, 64 bytes each for IPv4 and 128 for IPv6. Further
    /// connections are assigned by the table of slots only.
    pub(super) connections: u32,
    /// Seconds without a packet after which a connection expires, 1 to 1000000.
    pub(super) idle: u32,
    /// Maximum number of tracked fragmented datagrams per core, each for up to 30 s. If the table is full, the oldest
    /// of sixteen is replaced.
    pub(super) fragments: u32,
    /// Largest IP packet with the headers of a tunnel, 1280 to 65535 bytes.
    pub(super) mtu: u16,
    /// Action for IP packets that are for no service: "pass" or "drop". Other frames always pass.
    pub(super) unmatched: Unmatched,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            service: BTreeMap::new(),
            source: vec![],
            table: 65_537,
            seed: 0,
            connections: 262_144,
            idle: 300,
            fragments: 4096,
            mtu: 1500,
            unmatched: Unmatched::Pass,
        }
    }
}

/// Settings of a service.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceSettings {
    /// Virtual addresses: "tcp 192.0.2.10:80", "udp [2001:db8::10]:53".
    pub(super) vip: Vec<String>,
    /// Forwarding of packets to a backend.
    pub(super) forward: Forward,
    /// Backends by name. The slots of a backend depend on its name.
    pub(super) backend: BTreeMap<String, BackendSettings>,
    /// With "l3dsr": the DSCP by which backends recognise the virtual address, 1 to 63.
    #[serde(default)]
    pub(super) dscp: u8,
    /// Health checks of the backends.
    #[serde(default)]
    pub(super) health: HealthSettings,
}

/// Settings of a backend.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BackendSettings {
    /// Address.
    pub(super) address: IpAddr,
    /// With "nat": port, 1 to 65535; the default is that of the virtual address.
    #[serde(default)]
    pub(super) port: Option<u16>,
    /// Share of new connections relative to the other backends, 0 to 256.
    #[serde(default = "one")]
    pub(super) weight: u32,
    /// Keeps existing connections and receives no new ones.
    #[serde(default)]
    pub(super) drain: bool,
    /// Address of health checks; the default is `address`.
    #[serde(default)]
    pub(super) check_address: Option<IpAddr>,
}

fn one() -> u32 {
    1
}

/// Settings of health checks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HealthSettings {
    /// Kind of check: "none", "tcp" or "http".
    pub(super) kind: CheckKind,
    /// Port to connect to; 0 is that of the backend, or else of the first virtual address.
    pub(super) port: u16,
    /// Path of the page that an HTTP check requests.
    pub(super) path: String,
    /// Milliseconds between checks, 1 to 3600000.
    pub(super) interval: u32,
    /// Maximum duration of a check in milliseconds, 1 to 60000.
    pub(super) timeout: u32,
    /// Consecutive successful checks after which a backend is up, 1 or more.
    pub(super) rise: u32,
    /// Consecutive failed checks after which a backend is down, 1 or more.
    pub(super) fall: u32,
    /// With "http": a backend that responds with status 404 is draining.
    pub(super) drain_on_404: bool,
}

impl Default for HealthSettings {
    fn default() -> Self {
        HealthSettings {
            kind: CheckKind::None,
            port: 0,
            path: "/".to_owned(),
            interval: 1000,
            timeout: 1000,
            rise: 2,
            fall: 3,
            drain_on_404: false,
        }
    }
}

/// Kind of health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckKind {
    /// None: backends are always up.
    None,
    /// A TCP connection.
    Tcp,
    /// An HTTP request, which succeeds with a status of 200 to 399.
    Http,
}

/// ForwardAction a packet reaches a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Forward {
    /// Encapsulation in GRE (RFC 2784).
    Gre,
    /// Encapsulation in IP (RFC 2003, RFC 2473, RFC 4213).
    Ipip,
    /// Direct server return: the destination is rewritten, and a DSCP stands for the virtual address.
    L3dsr,
    /// Network address translation; replies return through the load balancer by the input `backends`.
    Nat,
}

/// Action for packets that are for no service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unmatched {
    /// Pass unchanged.
    Pass,
    /// Drop.
    Drop,
}
