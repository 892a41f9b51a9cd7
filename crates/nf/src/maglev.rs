//! A load balancer.

mod config;
mod health;
mod look;
mod lookup;
mod node;
mod other;
mod rewrite;
mod shared;
mod target;

use config::Config;
use diagnostics::Diagnostic;
use graph::{BuildContext, Nf, Node, Spread};
use node::Balancer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shared::Shared;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// `maglev`: spreads connections over backends (Maglev, NSDI'16).
pub struct Maglev;

/// Settings of [`Maglev`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Services by name: { vip = ["tcp 192.0.2.10:80"], forward = "gre" | "ipip" | "l3dsr" | "nat", backend.NAME = { address,
    /// port, weight, drain, check }, dscp, health = { kind = "none" | "tcp" | "http", port, path, every, timeout, rise, fall,
    /// drain_on_404 } }.
    service: BTreeMap<String, Service>,
    /// Source addresses of tunnels, one of each IP version that backends behind them have.
    source: Vec<IpAddr>,
    /// Slots of each service's table, a prime number, a hundred times as many as backends at the least.
    table: u32,
    /// What flows are hashed with to find their slot: the same on all balancers of a fleet.
    seed: u64,
    /// Connections that are remembered at most, for each core and IP version; 64 bytes each with IPv4, 128 with IPv6. Beyond,
    /// the table of slots alone decides.
    connections: u32,
    /// Seconds without a packet after which a connection is forgotten.
    idle: u32,
    /// Fragmented datagrams that are remembered at most, for each core, up to 30 s. Beyond, the one idle longest among sixteen
    /// gives way.
    fragments: u32,
    /// Largest IP packet that leaves a tunnel's beginning, in bytes.
    mtu: u16,
    /// What becomes of IP packets that are for no service: pass or drop. Frames that are not IP always pass.
    other: Other,
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
            other: Other::Pass,
        }
    }
}

/// A service: what clients connect to, and who answers.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Service {
    /// Virtual addresses: "tcp 192.0.2.10:80", "udp [2001:db8::10]:53".
    vip: Vec<String>,
    /// How packets reach a backend.
    forward: Forward,
    /// Backends by name, from which their places in the table follow.
    backend: BTreeMap<String, Backend>,
    /// With l3dsr: the code point by which backends know the virtual address, 1 to 63.
    #[serde(default)]
    dscp: u8,
    /// How backends are watched.
    #[serde(default)]
    health: Health,
}

/// Who answers.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Backend {
    /// Its address.
    address: IpAddr,
    /// With nat: its port, that of the virtual address if there is none.
    #[serde(default)]
    port: Option<u16>,
    /// Its share, in proportion to the others'.
    #[serde(default = "one")]
    weight: u32,
    /// Keeps its connections and gets no new ones.
    #[serde(default)]
    drain: bool,
    /// Where it is asked for its health, its address if there is none.
    #[serde(default)]
    check: Option<IpAddr>,
}

fn one() -> u32 {
    1
}

/// How backends are watched.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Health {
    /// By a connection, by a page, or not at all.
    kind: Kind,
    /// The port that is asked, that of the backend or else of the first virtual address if it is 0.
    port: u16,
    /// The page.
    path: String,
    /// Milliseconds from one check to the next.
    every: u32,
    /// Milliseconds that a check may take.
    timeout: u32,
    /// Good checks in a row after which a backend is back.
    rise: u32,
    /// Failed checks in a row after which a backend is gone.
    fall: u32,
    /// With http: a backend that answers 404 is draining.
    drain_on_404: bool,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            kind: Kind::None,
            port: 0,
            path: "/".to_owned(),
            every: 1000,
            timeout: 1000,
            rise: 2,
            fall: 3,
            drain_on_404: false,
        }
    }
}

/// A kind of check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// None: backends are there.
    None,
    /// A TCP connection.
    Tcp,
    /// A page, which has to be answered with 200 to 399.
    Http,
}

/// How a packet reaches a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Forward {
    /// In GRE (RFC 2784).
    Gre,
    /// In IP (RFC 2003, RFC 2473, RFC 4213).
    Ipip,
    /// With the backend as destination and a code point that stands for the virtual address.
    L3dsr,
    /// With the backend as destination; answers come back this way, by the input `backends`.
    Nat,
}

/// What becomes of what is for no service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Other {
    /// It passes unchanged.
    Pass,
    /// It is dropped.
    Drop,
}

impl Nf for Maglev {
    type Settings = Settings;
    const KIND: &'static str = "maglev";
    const ABOUT: &'static str = "Spreads TCP and UDP connections to virtual addresses over backends by consistent hashing and a table of connections, and \
         sends them on by GRE, IP in IP, direct server return or NAT; watches the backends' health.";
    const SPREAD: Spread = Spread::Flow;
    const INPUTS: &'static [&'static str] = &["in", "backends"];
    const EXAMPLE: &'static str = "source = [\"10.0.0.1\"]\n\
         service.web = { vip = [\"tcp 192.0.2.10:80\"], forward = \"gre\", backend = { a = { address = \"10.0.0.11\" }, b = { address = \
         \"10.0.0.12\", weight = 2 } } }";

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let config = Arc::new(Config::new(settings)?);
        let shared = cx.common(|| Shared::start(config))?;
        Balancer::new(settings, shared)
    }
}

#[cfg(test)]
mod tests;
