//! Settings of the router.

use super::punt::class::PuntClass;
use super::route_source::{FpmSettings, KernelRoutesSettings, RouteSource};
use crate::{Mac, Net};
use graph::{ControlPlane, Frr, Rate, RouteServer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

/// Settings of `l3fwd`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Interfaces by name, 1 to 128. Their ports are inputs and outputs, connected to the ports of the same names.
    pub(super) interface: BTreeMap<String, InterfaceSettings>,
    /// Routes: { prefix, via = [next hops] }, or { prefix, to = "unreachable" | "prohibit" | "blackhole" }.
    pub(super) route: Vec<RouteSettings>,
    /// File of further routes, plain or gzipped, with lines of the form PREFIX, PREFIX via ADDRESS..., PREFIX
    /// unreachable, PREFIX prohibit or PREFIX blackhole.
    pub(super) routes: Option<PathBuf>,
    /// Next hops of lines of the file without one, assigned in turn.
    pub(super) via: Vec<IpAddr>,
    /// Table of routes to single addresses: "lpm", the same as for other routes, or "exact", an exact-match table that
    /// is looked up first and takes 9 bytes for an IPv4 address and 29 for an IPv6 address.
    pub(super) table: HostTable,
    /// Static neighbours and their MAC addresses: "10.0.0.2" = "02:00:00:00:00:02".
    pub(super) neighbour: BTreeMap<IpAddr, Mac>,
    /// Maximum number of neighbours on all interfaces, 1 to 1048576. Tenants and the router itself have equal shares of it.
    pub(super) neighbours_max: u32,
    /// Maximum number of next hops of routes and groups of them, in use or not for 4 s, 1 to 65536. Those of tenants are
    /// not among them.
    pub(super) next_hops_max: u32,
    /// Seconds for which a neighbour is reachable after its last message; then it is probed again (RFC 4861 §7.3.2). 1
    /// or more.
    pub(super) reachable_time: u32,
    /// Maximum number of packets that wait for the MAC address of a neighbour, per neighbour and core.
    pub(super) neighbour_queue: u16,
    /// Maximum number of ICMP errors per second and core.
    pub(super) icmp_rate: u32,
    /// Accepts the routes of a routing daemon by the Forwarding Plane Manager protocol of FRR.
    pub(super) fpm: Option<FpmSettings>,
    /// Reads the routes of a routing daemon from the kernel, instead of `fpm`.
    pub(super) kernel_routes: Option<KernelRoutesSettings>,
    /// Tenants by name: each has routes of its own (a VRF) for the interfaces that name it.
    pub(super) tenant: BTreeMap<String, TenantSettings>,
    /// Maximum rates of packets to the control plane, per class and interface: arp, nd, bgp, ospf, bfd, dhcp, icmp
    /// and other.
    pub(super) punt: PuntSettings,
}

/// Settings of an interface.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct InterfaceSettings {
    /// Addresses with prefix lengths: "10.0.0.1/24".
    pub(super) addresses: Vec<Net>,
    /// Port, by default that with the name of the interface. Several interfaces may have one port: a frame is for that with
    /// its destination MAC address.
    pub(super) port: Option<String>,
    /// MAC address. The default is a locally administered address derived from the names of router and interface.
    pub(super) mac: Option<Mac>,
    /// Largest IP packet that is sent, 68 to 9700 bytes.
    pub(super) mtu: u16,
    /// Port of the control plane, usually a tap: it receives the packets to the router itself, and what it sends leaves
    /// by the interface.
    pub(super) representor: Option<String>,
    /// Tenant whose routes packets follow that arrive here; without it, those of the router itself.
    pub(super) tenant: Option<String>,
}

/// Settings of a tenant.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TenantSettings {
    /// Routes, as those of the router; next hops are on networks of the tenant's interfaces.
    pub(super) route: Vec<RouteSettings>,
    /// Static neighbours on networks of the tenant's interfaces.
    pub(super) neighbour: BTreeMap<IpAddr, Mac>,
    /// Maximum number of next hops of its routes and groups of them, as that of the router.
    pub(super) next_hops_max: u32,
    /// Network namespace of its control plane, which is created if it does not exist. It has a tap for each of the
    /// tenant's interfaces without a representor, with the name of the interface, and FPM is served in it.
    pub(super) namespace: Option<String>,
    /// Runs daemons of FRR in the namespace.
    pub(super) frr: Option<FrrSettings>,
    /// Accepts the routes of its routing daemon; with a namespace and without `kernel_routes` this is the default.
    pub(super) fpm: Option<FpmSettings>,
    /// Reads the routes of its routing daemon from the kernel, instead of `fpm`.
    pub(super) kernel_routes: Option<KernelRoutesSettings>,
}

/// Settings of the daemons of FRR that are run for a tenant.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FrrSettings {
    /// Daemons besides zebra and staticd: bgpd, ospfd, ospf6d, bfdd, ...
    pub(super) daemons: Vec<FrrDaemon>,
    /// File with the configuration of all daemons. @NAME@ in it stands for a value of `values`, and @tenant@ for the name
    /// of the tenant.
    pub(super) config: Option<PathBuf>,
    /// Values of the configuration by name.
    pub(super) values: BTreeMap<String, String>,
}

/// A daemon of FRR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FrrDaemon {
    /// BGP.
    Bgpd,
    /// OSPF version 2.
    Ospfd,
    /// OSPF version 3.
    Ospf6d,
    /// RIP.
    Ripd,
    /// RIPng.
    Ripngd,
    /// BFD.
    Bfdd,
    /// Babel.
    Babeld,
    /// EIGRP.
    Eigrpd,
}

impl FrrDaemon {
    /// Returns the name of its program.
    pub(super) fn name(self) -> &'static str {
        match self {
            FrrDaemon::Bgpd => "bgpd",
            FrrDaemon::Ospfd => "ospfd",
            FrrDaemon::Ospf6d => "ospf6d",
            FrrDaemon::Ripd => "ripd",
            FrrDaemon::Ripngd => "ripngd",
            FrrDaemon::Bfdd => "bfdd",
            FrrDaemon::Babeld => "babeld",
            FrrDaemon::Eigrpd => "eigrpd",
        }
    }
}

impl Default for InterfaceSettings {
    fn default() -> Self {
        InterfaceSettings { addresses: vec![], port: None, mac: None, mtu: 1500, representor: None, tenant: None }
    }
}

/// Rates of packets to the control plane.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PuntSettings {
    /// ARP replies.
    arp: Rate,
    /// Neighbor discovery: advertisements, router solicitations and advertisements, redirects.
    nd: Rate,
    /// TCP port 179.
    bgp: Rate,
    /// Protocol 89.
    ospf: Rate,
    /// UDP ports 3784, 3785, 4784 and 6784.
    bfd: Rate,
    /// UDP ports 67, 68, 546 and 547.
    dhcp: Rate,
    /// Other ICMP and ICMPv6 messages.
    icmp: Rate,
    /// All other packets.
    other: Rate,
}

impl PuntSettings {
    /// Returns the rates in the order of the classes.
    pub(super) fn rates(&self) -> [Rate; PuntClass::COUNT] {
        let PuntSettings { arp, nd, bgp, ospf, bfd, dhcp, icmp, other } = *self;
        [arp, nd, bgp, ospf, bfd, dhcp, icmp, other]
    }
}

impl Default for PuntSettings {
    fn default() -> Self {
        let kpps = |n: f64| Rate::Packets(n * 1000.0);
        PuntSettings {
            arp: kpps(1.0),
            nd: kpps(1.0),
            bgp: kpps(10.0),
            ospf: kpps(2.0),
            bfd: kpps(10.0),
            dhcp: kpps(1.0),
            icmp: kpps(1.0),
            other: kpps(1.0),
        }
    }
}

/// Settings of a route.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteSettings {
    /// Destination prefix: "0.0.0.0/0".
    pub(super) prefix: Net,
    /// Next hops on networks of the interfaces, up to 64. Flows are spread over several next hops by hash.
    #[serde(default)]
    pub(super) via: Vec<IpAddr>,
    /// Type of a route without next hops: "unreachable", "prohibit" or "blackhole".
    pub(super) to: Option<RouteType>,
    /// Inserts a route for each address of the prefix, with the next hops in turn, instead of one for the prefix.
    #[serde(default)]
    pub(super) hosts: bool,
}

/// Table of routes to single addresses.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum HostTable {
    /// The longest-prefix-match table.
    #[default]
    Lpm,
    /// An exact-match table, looked up before the longest-prefix-match table.
    Exact,
}

/// Type of a route without next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RouteType {
    /// Packets are dropped, and senders receive an ICMP error.
    Unreachable,
    /// As `Unreachable`, and the error says that it is prohibited.
    Prohibit,
    /// Packets are dropped silently.
    Blackhole,
}

impl Settings {
    /// Returns the source of the routes of the router's own routing daemon.
    pub(super) fn route_source(&self) -> Option<RouteSource> {
        let kernel = self.kernel_routes.clone().map(RouteSource::Kernel);
        kernel.or_else(|| self.fpm.clone().map(RouteSource::Fpm))
    }

    /// Returns the names of the ports of the interfaces, in the order of inputs and outputs.
    pub(super) fn ports(&self) -> Vec<&String> {
        let ports: BTreeSet<&String> = self.interface.iter().map(|(name, settings)| settings.port_or(name)).collect();
        ports.into_iter().collect()
    }

    /// Returns the names of the representors, in the order of their interfaces.
    pub(super) fn representor_names(&self) -> impl Iterator<Item = String> {
        self.interface.keys().filter_map(|interface| self.representor_of(interface))
    }

    /// Returns the name of the representor of an interface, if it has one.
    pub(super) fn representor_of(&self, interface: &str) -> Option<String> {
        let settings = self.interface.get(interface)?;
        let implicit = || self.namespace_of(interface).map(|_| format!("{interface}-rep"));
        settings.representor.clone().or_else(implicit)
    }

    /// Returns the servers for the routes of routing daemons.
    pub(super) fn route_servers(&self) -> Vec<RouteServer> {
        let of_tenants = self.tenant.iter().filter_map(|(name, tenant)| match tenant.route_source()? {
            RouteSource::Fpm(fpm) => Some(fpm.server(Some(name))),
            RouteSource::Kernel(_) => None,
        });
        self.fpm.iter().map(|fpm| fpm.server(None)).chain(of_tenants).collect()
    }

    /// Returns the namespace of the tap that is the representor of an interface, if the file has no port for it.
    pub(super) fn namespace_of(&self, interface: &str) -> Option<&str> {
        let settings = self.interface.get(interface).filter(|settings| settings.representor.is_none())?;
        self.tenant.get(settings.tenant.as_ref()?)?.namespace.as_deref()
    }
}

impl InterfaceSettings {
    /// Returns the name of the port, by default that of the interface.
    pub(super) fn port_or<'a>(&'a self, interface: &'a String) -> &'a String {
        self.port.as_ref().unwrap_or(interface)
    }
}

impl FpmSettings {
    fn server(&self, tenant: Option<&str>) -> RouteServer {
        let FpmSettings { listen, table, .. } = *self;
        RouteServer { tenant: tenant.map(str::to_owned), namespace: self.namespace.clone(), listen, table }
    }
}

impl TenantSettings {
    /// Returns the source of the routes of its routing daemon.
    pub(super) fn route_source(&self) -> Option<RouteSource> {
        let namespace = |own: Option<String>| own.or_else(|| self.namespace.clone());
        if let Some(kernel) = self.kernel_routes.clone() {
            return Some(RouteSource::Kernel(KernelRoutesSettings {
                namespace: namespace(kernel.namespace),
                ..kernel
            }));
        }
        let fpm = self.fpm.clone().or_else(|| self.namespace.as_ref().map(|_| FpmSettings::default()))?;
        Some(RouteSource::Fpm(FpmSettings { namespace: namespace(fpm.namespace), ..fpm }))
    }

    /// Returns its control plane, if it is in a namespace.
    pub(super) fn control_plane(&self, name: &str) -> Option<ControlPlane> {
        let frr = |frr: &FrrSettings| {
            let RouteSource::Fpm(FpmSettings { listen, .. }) = self.route_source()? else { return None };
            Some(Frr {
                daemons: frr.daemons.iter().map(|daemon| daemon.name().to_owned()).collect(),
                config: frr.config.clone(),
                values: frr.values.clone(),
                fpm: listen,
            })
        };
        let frr = self.frr.as_ref().and_then(frr);
        Some(ControlPlane { tenant: name.to_owned(), namespace: self.namespace.clone()?, frr })
    }
}

impl Default for TenantSettings {
    fn default() -> Self {
        TenantSettings {
            route: vec![],
            neighbour: BTreeMap::new(),
            next_hops_max: 4096,
            namespace: None,
            frr: None,
            fpm: None,
            kernel_routes: None,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            interface: BTreeMap::new(),
            route: vec![],
            routes: None,
            via: vec![],
            table: HostTable::default(),
            neighbour: BTreeMap::new(),
            neighbours_max: 4096,
            next_hops_max: 65_536,
            reachable_time: 60,
            neighbour_queue: 16,
            icmp_rate: 100,
            fpm: None,
            kernel_routes: None,
            tenant: BTreeMap::new(),
            punt: PuntSettings::default(),
        }
    }
}
