//! Table entries that a DUT needs for a trace, and files that configure them.
//!
//! | writer | who reads it |
//! |---|---|
//! | [`openflow`] | `ovs-ofctl add-flows BRIDGE FILE` |
//! | [`ip_batch`] | `ip -batch FILE`: routes, neighbours |
//! | [`bridge_batch`] | `bridge -batch FILE`: MAC addresses of a Linux bridge |
//! | [`routes`] | Bondstone's `l3fwd`, `routes = "FILE"` |
//! | [`neighbours`] | Bondstone's `l3fwd`, to be put below `[nf.NAME]` |
//! | [`rules`] | Bondstone's `firewall`, `file = "FILE"` |

use std::io::{self, Write};
use std::net::Ipv4Addr;

use wire::MacAddr;

/// The entries of a device's tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tables {
    /// MAC table of a switch; all addresses are behind the output port.
    pub hosts: Vec<MacEntry>,
    /// Routes, none a part of another.
    pub routes: Vec<Route>,
    /// Next hops, all behind the output port.
    pub neighbours: Vec<Neighbour>,
    /// Services of a load balancer.
    pub services: Vec<Service>,
    /// Users of an access gateway.
    pub users: Vec<User>,
}

/// A MAC table entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MacEntry {
    /// Its address.
    pub mac: MacAddr,
}

/// A route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Route {
    /// Destination prefix.
    pub prefix: Ipv4Addr,
    /// Length of the prefix.
    pub len: u8,
    /// The next hop.
    pub via: Ipv4Addr,
}

/// A next hop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Neighbour {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its MAC address.
    pub mac: MacAddr,
}

/// A service that is spread over two backends by the first bit of the source address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Service {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its UDP port.
    pub port: u16,
    /// Backend of sources in 0.0.0.0/1.
    pub lower: Ipv4Addr,
    /// Backend of sources in 128.0.0.0/1.
    pub upper: Ipv4Addr,
}

/// A user whose address is translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct User {
    /// MAC address of the customer equipment.
    pub customer: MacAddr,
    /// Address behind it.
    pub private: Ipv4Addr,
    /// Address on the Internet, this user's alone.
    pub public: Ipv4Addr,
}

impl Tables {
    /// Returns the number of rules of the DUT: MAC table entries, routes, two per service, users.
    pub fn entries(&self) -> usize {
        self.hosts.len() + self.routes.len() + 2 * self.services.len() + self.users.len()
    }

    fn mac(&self, hop: Ipv4Addr) -> Option<MacAddr> {
        self.neighbours.iter().find(|neighbour| neighbour.address == hop).map(|neighbour| neighbour.mac)
    }
}

/// OpenFlow flows for Open vSwitch, everything leaving by port number `out`; users are translated in table 0 and routed in
/// table 1. One flow that outputs everything where the tables are empty.
///
/// # Errors
/// Errors of writing to `file`.
pub fn openflow(tables: &Tables, out: u16, file: &mut impl Write) -> io::Result<()> {
    if tables.entries() == 0 {
        return writeln!(file, "table=0,priority=1,actions=output:{out}");
    }
    for MacEntry { mac } in &tables.hosts {
        writeln!(file, "table=0,priority=10,dl_dst={mac},actions=output:{out}")?;
    }
    for User { customer, private, public } in &tables.users {
        let to = format!("mod_nw_src:{public},resubmit(,1)");
        writeln!(file, "table=0,priority=100,ip,dl_src={customer},nw_src={private},actions={to}")?;
    }
    let table = u8::from(!tables.users.is_empty());
    for Route { prefix, len, via } in &tables.routes {
        let to = tables.mac(*via).map_or(String::new(), |mac| format!("mod_dl_dst:{mac},"));
        let priority = 100 + u16::from(*len);
        writeln!(file, "table={table},priority={priority},ip,nw_dst={prefix}/{len},actions={to}dec_ttl,output:{out}")?;
    }
    for Service { address, port, lower, upper } in &tables.services {
        for (half, backend) in [("0.0.0.0/1", lower), ("128.0.0.0/1", upper)] {
            let to = format!("mod_nw_dst:{backend},output:{out}");
            writeln!(file, "table=0,priority=100,udp,nw_src={half},nw_dst={address},tp_dst={port},actions={to}")?;
        }
    }
    Ok(())
}

/// Writes neighbours and routes for `ip -batch`, behind `device`, which needs an address such as 10.255.0.1/24.
///
/// # Errors
/// Errors of writing to `file`.
pub fn ip_batch(tables: &Tables, device: &str, file: &mut impl Write) -> io::Result<()> {
    for Neighbour { address, mac } in &tables.neighbours {
        writeln!(file, "neighbour replace {address} lladdr {mac} nud permanent dev {device}")?;
    }
    for Route { prefix, len, via } in &tables.routes {
        writeln!(file, "route replace {prefix}/{len} via {via} dev {device} onlink")?;
    }
    Ok(())
}

/// Writes MAC table entries for `bridge -batch`, behind `device`, a port of a Linux bridge.
///
/// # Errors
/// Errors of writing to `file`.
pub fn bridge_batch(tables: &Tables, device: &str, file: &mut impl Write) -> io::Result<()> {
    tables.hosts.iter().try_for_each(|MacEntry { mac }| writeln!(file, "fdb replace {mac} dev {device} master static"))
}

/// Returns a file of routes for Bondstone's `l3fwd`, which also serves as `prefixes` of `[traffic]`.
///
/// # Errors
/// Errors of writing to `file`.
pub fn routes(tables: &Tables, file: &mut impl Write) -> io::Result<()> {
    tables.routes.iter().try_for_each(|Route { prefix, len, via }| writeln!(file, "{prefix}/{len} via {via}"))
}

/// Returns the setting `neighbour` of Bondstone's `l3fwd`.
///
/// # Errors
/// Errors of writing to `file`.
pub fn neighbours(tables: &Tables, file: &mut impl Write) -> io::Result<()> {
    let all = tables.neighbours.iter().map(|Neighbour { address, mac }| format!("\"{address}\" = \"{mac}\""));
    writeln!(file, "neighbour = {{ {} }}", all.collect::<Vec<_>>().join(", "))
}

/// Rules for Bondstone's `firewall` that accept what goes to the services, two for each, and what users send; `firewall`
/// translates nothing.
///
/// # Errors
/// Errors of writing to `file`.
pub fn rules(tables: &Tables, file: &mut impl Write) -> io::Result<()> {
    for Service { address, port, .. } in &tables.services {
        for half in ["0.0.0.0/1", "128.0.0.0/1"] {
            writeln!(file, "accept proto udp src {half} dst {address}/32 dport {port}")?;
        }
    }
    tables.users.iter().try_for_each(|user| writeln!(file, "accept src {}/32", user.private))
}
