//! A router.

mod adjacency;
mod config;
mod fib;
mod forward;
mod fragment;
pub(crate) mod icmp;
mod local;
mod neighbours;
mod routes;
mod tables;

use config::Config;
use diagnostics::Diagnostic;
use fib::Fib;
use forward::Router;
use graph::{BuildContext, Nf, Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::{Mac, Net};

/// `l3fwd`: an IPv4 and IPv6 router (RFC 1812, RFC 8200).
pub struct L3fwd;

/// Settings of [`L3fwd`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Interfaces by name. Each is an input and an output; an output leads to the port of the same name.
    interface: BTreeMap<String, Interface>,
    /// Routes: { prefix, via = [next hops] }, or { prefix, to = "unreachable" | "blackhole" }.
    route: Vec<Route>,
    /// A file of further routes, plain or gzipped: a line is PREFIX, or PREFIX via ADDRESS..., or PREFIX unreachable.
    routes: Option<PathBuf>,
    /// Next hops of the file's lines that name none, taken in turn.
    via: Vec<IpAddr>,
    /// What holds routes to single addresses: "lpm", as all others, or "exact", a table of their own, looked up first, which takes
    /// 9 bytes for each IPv4 address and 29 for each IPv6 address.
    table: Table,
    /// MAC addresses of neighbours that need not be asked: "10.0.0.2" = "02:00:00:00:00:02".
    neighbour: BTreeMap<IpAddr, Mac>,
    /// Neighbours that are remembered at most, over all interfaces.
    neighbours: u32,
    /// Seconds after which a neighbour that has not been heard of is asked for again.
    lifetime: u32,
    /// Packets that wait at most for a neighbour's answer, for each core.
    queue: u16,
    /// ICMP messages a second at most, for each core.
    icmp_rate: u32,
}

/// An interface of the router.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Interface {
    /// Its addresses, each with the length of its network: "10.0.0.1/24".
    addresses: Vec<Net>,
    /// Its MAC address; one is made up of the names if there is none.
    mac: Option<Mac>,
    /// Largest IP packet that it sends, in bytes.
    mtu: u16,
}

impl Default for Interface {
    fn default() -> Self {
        Interface { addresses: vec![], mac: None, mtu: 1500 }
    }
}

/// A route.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Route {
    /// Destinations: "0.0.0.0/0".
    prefix: Net,
    /// Next hops, on networks of the interfaces; flows are spread over several.
    #[serde(default)]
    via: Vec<IpAddr>,
    /// Where packets go if not to a next hop.
    to: Option<Nowhere>,
    /// A route for each address of the prefix instead of one for all, next hops in turn.
    #[serde(default)]
    hosts: bool,
}

/// What holds routes to single addresses.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Table {
    /// Longest prefix match, as for all others.
    #[default]
    Lpm,
    /// Exact match, before the others.
    Exact,
}

/// What becomes of packets that a route leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Nowhere {
    /// Dropped, and the sender is told.
    Unreachable,
    /// Dropped without a word.
    Blackhole,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            interface: BTreeMap::new(),
            route: vec![],
            routes: None,
            via: vec![],
            table: Table::default(),
            neighbour: BTreeMap::new(),
            neighbours: 4096,
            lifetime: 60,
            queue: 16,
            icmp_rate: 100,
        }
    }
}

impl Nf for L3fwd {
    type Settings = Settings;
    const KIND: &'static str = "l3fwd";
    const ABOUT: &'static str = "Routes IPv4 and IPv6 by longest prefix match over its interfaces, answers and asks ARP and neighbor discovery, and \
         tells senders by ICMP what cannot be delivered.";
    const INPUTS: &'static [&'static str] = &[];
    const OUTPUTS: &'static [&'static str] = &["local"];
    const EXAMPLE: &'static str = "interface.lan = { addresses = [\"10.0.0.1/24\", \"2001:db8::1/64\"] }\n\
         interface.wan = { addresses = [\"192.0.2.2/24\"] }\n\
         route = [{ prefix = \"0.0.0.0/0\", via = [\"192.0.2.1\"] }]";

    fn interfaces(settings: &Settings) -> Vec<String> {
        settings.interface.keys().cloned().collect()
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let config = Config::new(settings, cx)?;
        let fib = cx.common(|| Fib::new(&config, settings, cx))?;
        Ok(Router::new(config, fib, cx.copy.0))
    }
}

#[cfg(test)]
mod tests;
