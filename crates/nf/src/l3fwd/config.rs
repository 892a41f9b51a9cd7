//! Checked configuration of a router.

use super::interface::Interface;
use super::ports::{MacEntry, MacTable, OUTPUTS, PortInterfaces};
use super::punt::class::PuntClass;
use super::route_source::RouteSource;
use super::settings::{InterfaceSettings, Settings};
use diagnostics::Diagnostic;
use graph::{BuildContext, Rate, Representor};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;
use wire::MacAddr;

/// Maximum number of interfaces.
const INTERFACES_MAX: usize = 128;
/// Maximum number of tenants: with the router itself, numbers of VRFs are bytes.
const TENANTS_MAX: usize = 255;
/// Maximum number of outputs, whose numbers are bytes: `local`, the ports and the representors.
const OUTPUTS_MAX: usize = 256;
/// Maximum of the setting `neighbours_max`.
const NEIGHBOURS_MAX: u32 = 1 << 20;

/// Maximum of the settings `next_hops_max`, and of their sum.
const NEXT_HOPS_MAX: usize = 1 << 16;
const ALL_NEXT_HOPS_MAX: usize = 1 << 20;

/// Maximum of the settings `routes_max`: the routes that a table holds.
const INSTALLED_ROUTES_MAX: usize = 1 << 22;

/// Routes for some of the interfaces: those of a tenant, or of the router itself.
#[derive(Clone, Debug)]
pub(super) struct Vrf {
    /// Name of the tenant.
    pub(super) tenant: Option<String>,
    /// Source of the routes of its routing daemon.
    pub(super) source: Option<RouteSource>,
    /// Maximum number of next hops of its routes and groups of them.
    pub(super) next_hops_max: usize,
}

impl Vrf {
    /// Returns true if a routing daemon may install a route to a prefix.
    pub(super) fn is_allowed(&self, net: IpNet) -> bool {
        let prefixes = self.source.as_ref().map_or(&[][..], RouteSource::prefixes);
        prefixes.is_empty() || prefixes.iter().any(|allowed| allowed.0.contains(&net))
    }
}

/// Configuration of the router.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) interfaces: Vec<Interface>,
    /// Interfaces of each port, in the order of inputs and outputs.
    pub(super) ports: Vec<PortInterfaces>,
    /// Interfaces of the representors.
    pub(super) representors: Vec<usize>,
    /// Packets per second to a representor, by class.
    pub(super) punt: [u64; PuntClass::COUNT],
    pub(super) reachable_time: Duration,
    pub(super) neighbour_queue: usize,
    pub(super) icmp_rate: u32,
    pub(super) neighbours_max: usize,
    /// VRFs: that of the router itself, and those of the tenants.
    pub(super) vrfs: Vec<Vrf>,
}

fn invalid(key: &'static str, value: impl Display, problem: &str, remedy: &str) -> Diagnostic {
    Diagnostic::new(problem).key(key).value(value).remedy(remedy)
}

impl Config {
    pub(super) fn new(s: &Settings, cx: &BuildContext) -> Result<Config, Diagnostic> {
        if s.interface.is_empty() {
            let remedy = "add interface.NAME = { addresses = [\"10.0.0.1/24\"] }, with the name of a port";
            return Err(invalid("interface", &cx.name, "router has no interfaces", remedy));
        }
        if s.interface.len() > INTERFACES_MAX {
            let remedy = format!("use {INTERFACES_MAX} or fewer");
            return Err(invalid("interface", s.interface.len(), "too many interfaces", &remedy));
        }
        if s.neighbours_max == 0 || s.neighbours_max > NEIGHBOURS_MAX {
            let remedy = format!("write 1 to {NEIGHBOURS_MAX}");
            return Err(invalid("neighbours_max", s.neighbours_max, "number of neighbours is out of range", &remedy));
        }
        if s.reachable_time == 0 {
            return Err(invalid("reachable_time", 0, "neighbours would expire at once", "write seconds, such as 60"));
        }
        let vrfs = vrfs(s)?;
        for (vrf, source) in vrfs.iter().filter_map(|vrf| Some((vrf, vrf.source.as_ref()?))) {
            if source.routes_max() > INSTALLED_ROUTES_MAX {
                let remedy = format!("write at most {INSTALLED_ROUTES_MAX}");
                let key = match (&vrf.tenant, source) {
                    (Some(_), _) => "tenant",
                    (None, RouteSource::Fpm(_)) => "fpm",
                    (None, RouteSource::Kernel(_)) => "kernel_routes",
                };
                return Err(invalid(key, source.routes_max(), "maximum number of routes is out of range", &remedy));
            }
        }
        let mut interfaces: Vec<Interface> =
            s.interface.iter().map(|(name, i)| interface(name, i, &vrfs, cx)).collect::<Result<_, _>>()?;
        let ports = ports(s, &mut interfaces)?;
        let vrf_count = vrfs_with(&interfaces);
        if (s.neighbours_max as usize) < vrf_count {
            let remedy = format!("write {vrf_count} or more, one for each tenant");
            return Err(invalid("neighbours_max", s.neighbours_max, "number of neighbours is out of range", &remedy));
        }
        check_tenants(s)?;
        check_representors(s)?;
        let mut representors = vec![];
        for (n, _) in s.interface.keys().enumerate().filter(|(_, name)| s.representor_of(name).is_some()) {
            interfaces[n].representor = Some(representors.len());
            representors.push(n);
        }
        let outputs = OUTPUTS.len() + ports.len() + representors.len();
        if outputs > OUTPUTS_MAX {
            let problem = format!("router has more than {OUTPUTS_MAX} ports and representors, with its output local");
            return Err(invalid("interface", outputs, &problem, "let interfaces share ports: port = \"NAME\""));
        }
        Ok(Config {
            interfaces,
            ports,
            representors,
            punt: punt_rates(s)?,
            reachable_time: Duration::from_secs(s.reachable_time.into()),
            neighbour_queue: s.neighbour_queue.into(),
            icmp_rate: s.icmp_rate,
            neighbours_max: s.neighbours_max as usize,
            vrfs,
        })
    }

    /// Returns the number of neighbours that each VRF with interfaces may have, besides next hops of its routes: equal
    /// shares, so that none uses those of another.
    pub(super) fn neighbours_share(&self) -> usize {
        self.neighbours_max / vrfs_with(&self.interfaces).max(1)
    }

    /// Returns the interfaces with the same control plane as an interface: those of its tenant.
    pub(super) fn control_plane_of(&self, interface: usize) -> impl Iterator<Item = &Interface> {
        let vrf = self.interfaces[interface].vrf;
        self.interfaces.iter().filter(move |other| other.vrf == vrf)
    }

    /// Returns the numbers of the interfaces of another configuration that this one has, too, with the same tenant.
    pub(super) fn same_interfaces(&self, other: &Config) -> Vec<Option<usize>> {
        let tenant = |config: &Config, interface: &Interface| config.vrfs[interface.vrf].tenant.clone();
        let same = |old: &Interface| {
            let is_same = |new: &Interface| new.name == old.name && tenant(self, new) == tenant(other, old);
            self.interfaces.iter().position(is_same)
        };
        other.interfaces.iter().map(same).collect()
    }

    /// Returns true if a VRF has at least the interfaces of one of another configuration, with the same addresses.
    pub(super) fn keeps_interfaces(&self, vrf: usize, other: &Config, old: usize) -> bool {
        let same = self.same_interfaces(other);
        let mut interfaces = other.interfaces.iter().zip(same).filter(|(before, _)| before.vrf == old);
        interfaces.all(|(before, now)| {
            now.map(|n| &self.interfaces[n]).is_some_and(|now| {
                now.vrf == vrf && (&now.v4, &now.v6, now.mac) == (&before.v4, &before.v6, before.mac)
            })
        })
    }

    /// Returns the number of the VRF of a tenant, or of the router itself.
    pub(super) fn vrf(&self, tenant: Option<&str>) -> Option<usize> {
        self.vrfs.iter().position(|vrf| vrf.tenant.as_deref() == tenant)
    }

    /// Returns the interface of a VRF whose prefix contains an address: the longest prefix, as in the FIB, and of equal
    /// ones the last.
    pub(super) fn interface_to(&self, vrf: usize, address: IpAddr) -> Option<usize> {
        let link_local = matches!(address, IpAddr::V6(a) if a.is_unicast_link_local());
        let interfaces = self.interfaces.iter().enumerate().filter(|(_, f)| f.vrf == vrf);
        let networks = interfaces.filter_map(|(n, f)| Some((f.prefix_len(address)?, n)));
        networks.max().map(|(_, n)| n).filter(|_| !link_local)
    }
}

/// Returns the number of VRFs with interfaces.
fn vrfs_with(interfaces: &[Interface]) -> usize {
    interfaces.iter().map(|interface| interface.vrf).collect::<BTreeSet<_>>().len()
}

/// Returns the VRFs: that of the router itself, and those of the tenants.
fn vrfs(s: &Settings) -> Result<Vec<Vrf>, Diagnostic> {
    let own = Vrf { tenant: None, source: s.route_source(), next_hops_max: s.next_hops_max as usize };
    let tenants = s.tenant.iter().map(|(name, tenant)| Vrf {
        tenant: Some(name.clone()),
        source: tenant.route_source(),
        next_hops_max: tenant.next_hops_max as usize,
    });
    let vrfs: Vec<Vrf> = std::iter::once(own).chain(tenants).collect();
    for Vrf { tenant, next_hops_max, .. } in &vrfs {
        let key = if tenant.is_some() { "tenant" } else { "next_hops_max" };
        if !(1..=NEXT_HOPS_MAX).contains(next_hops_max) {
            let remedy = format!("write 1 to {NEXT_HOPS_MAX}");
            return Err(invalid(key, next_hops_max, "maximum number of next hops is out of range", &remedy));
        }
    }
    let sum: usize = vrfs.iter().map(|vrf| vrf.next_hops_max).sum();
    if sum > ALL_NEXT_HOPS_MAX {
        let problem = format!("`next_hops_max` of router and tenants are more than {ALL_NEXT_HOPS_MAX}");
        return Err(invalid("next_hops_max", sum, &problem, "write smaller numbers"));
    }
    Ok(vrfs)
}

fn interface(name: &str, i: &InterfaceSettings, vrfs: &[Vrf], cx: &BuildContext) -> Result<Interface, Diagnostic> {
    if name == "local" {
        let remedy = "rename the interface and its port";
        return Err(invalid("interface", name, "name is reserved for the output of packets to the router", remedy));
    }
    if !(68..=9700).contains(&i.mtu) {
        return Err(invalid("interface", i.mtu, "MTU is out of range", "write 68 to 9700 bytes (RFC 791 §3.2)"));
    }
    if i.addresses.is_empty() {
        let remedy = "write addresses = [\"10.0.0.1/24\"]";
        return Err(invalid("interface", name, "interface has no address", remedy));
    }
    let mac = i.mac_address(&cx.name, name);
    if mac.is_multicast() || mac == MacAddr([0; 6]) {
        let remedy = "write one whose first byte is even, such as 02:00:00:00:00:01";
        return Err(invalid("interface", mac, "not a unicast MAC address", remedy));
    }
    let Some(vrf) = vrfs.iter().position(|vrf| vrf.tenant == i.tenant) else {
        let tenant = i.tenant.as_deref().unwrap_or_default();
        let remedy = format!("add [nf.{}.tenant.{tenant}]", cx.name);
        return Err(invalid("interface", tenant, &format!("tenant of interface {name} is unknown"), &remedy));
    };
    let name = name.to_owned();
    let mut interface = Interface { name, output: 0, vrf, mac, mtu: i.mtu, v4: vec![], v6: vec![], representor: None };
    for net in i.addresses.iter().map(|n| n.0) {
        let own = net.addr();
        if own.is_multicast() || own.is_unspecified() || own.is_loopback() {
            let problem = "not a unicast address";
            return Err(invalid("interface", net, problem, "write a unicast address"));
        }
        if own.is_ipv4() && net.prefix_len() < 31 && (own == net.network() || own == net.broadcast()) {
            let remedy = format!("write a host address, such as {}", net.hosts().next().unwrap_or(own));
            return Err(invalid("interface", net, "address of a network, not of a host", &remedy));
        }
        match own {
            IpAddr::V4(a) => interface.v4.push((a, net.prefix_len())),
            IpAddr::V6(a) => interface.v6.push((a, net.prefix_len())),
        }
    }
    Ok(interface)
}

impl InterfaceSettings {
    /// Returns the MAC address: the written one, or a locally administered one derived from the names.
    pub(super) fn mac_address(&self, router: &str, interface: &str) -> MacAddr {
        if let Some(mac) = self.mac {
            return mac.0;
        }
        let mut hash = DefaultHasher::new();
        (router, interface).hash(&mut hash);
        let [a, b, c, d, e, ..] = hash.finish().to_be_bytes();
        MacAddr([2, a, b, c, d, e])
    }
}

impl Settings {
    /// Returns the representors of the interfaces.
    pub(super) fn representors(&self, router: &str) -> Vec<Representor> {
        let representor = |(interface, settings): (&String, &InterfaceSettings)| {
            Some(Representor {
                name: self.representor_of(interface)?,
                interface: interface.clone(),
                mac: settings.mac_address(router, interface).0,
                mtu: settings.mtu,
                addresses: settings.addresses.iter().map(|net| (net.0.addr(), net.0.prefix_len())).collect(),
                namespace: self.namespace_of(interface).map(str::to_owned),
            })
        };
        self.interface.iter().filter_map(representor).collect()
    }
}

/// Returns the interfaces of each port, and sets their outputs.
fn ports(s: &Settings, interfaces: &mut [Interface]) -> Result<Vec<PortInterfaces>, Diagnostic> {
    let mut ports = vec![];
    for (n, port) in s.ports().into_iter().enumerate() {
        let (mut macs, mut used) = (vec![], vec![]);
        for (number, (name, settings)) in s.interface.iter().enumerate() {
            if settings.port_or(name) != port {
                continue;
            }
            let interface = &mut interfaces[number];
            interface.output = (OUTPUTS.len() + n) as u8;
            if macs.iter().any(|(mac, _)| *mac == interface.mac) {
                let remedy = "write another one: mac = \"02:00:00:00:00:01\"";
                let problem = format!("interface {name} has the MAC address of another interface of its port {port}");
                return Err(invalid("interface", interface.mac, &problem, remedy));
            }
            macs.push((interface.mac, MacEntry { interface: number as u8, vrf: interface.vrf as u8 }));
            let networks = settings.addresses.iter().map(|net| net.0.trunc());
            for net in networks.collect::<BTreeSet<_>>() {
                let overlaps = |(other, _): &&(IpNet, &String)| other.contains(&net) || net.contains(other);
                if let Some((_, other)) = used.iter().find(overlaps) {
                    let problem = format!("interfaces {other} and {name} of port {port} have networks in common");
                    let remedy = "use different networks or ports, or one interface with both addresses";
                    return Err(invalid("interface", net, &problem, remedy));
                }
            }
            used.extend(settings.addresses.iter().map(|net| (net.0.trunc(), name)));
        }
        ports.push(match macs[..] {
            [(_, entry)] => PortInterfaces::One(entry.interface.into()),
            _ => PortInterfaces::Several(MacTable::new(&macs)),
        });
    }
    Ok(ports)
}

/// Longest name of a kernel interface.
const NETDEV_NAME_MAX: usize = 15;
/// Longest name of a tenant's namespace.
const NAMESPACE_NAME_MAX: usize = 32;

/// Checks the control planes of tenants.
fn check_tenants(s: &Settings) -> Result<(), Diagnostic> {
    if s.tenant.len() > TENANTS_MAX {
        return Err(invalid("tenant", s.tenant.len(), "too many tenants", &format!("use {TENANTS_MAX} or fewer")));
    }
    let one_source = "keep fpm if FRR sends routes, or kernel_routes if a daemon adds them to the kernel";
    if s.kernel_routes.is_some() && s.fpm.is_some() {
        return Err(invalid("kernel_routes", "fpm", "routes have two sources", one_source));
    }
    for (name, tenant) in &s.tenant {
        let error = |value: &str, problem: &str, remedy: &str| {
            Err(invalid("tenant", value, &format!("tenant {name} {problem}"), remedy))
        };
        if tenant.kernel_routes.is_some() && tenant.fpm.is_some() {
            return error("kernel_routes", "has two sources of routes, as it has fpm, too", one_source);
        }
        if tenant.kernel_routes.is_some() && tenant.frr.is_some() {
            return error("kernel_routes", "has daemons of FRR, which send routes by fpm", "remove kernel_routes");
        }
        if tenant.frr.is_some() && tenant.namespace.is_none() {
            return error("frr", "has daemons, but no namespace", "add namespace = \"...\"");
        }
        let Some(namespace) = &tenant.namespace else { continue };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if namespace.is_empty() || namespace.len() > NAMESPACE_NAME_MAX || !namespace.chars().all(is_name) {
            let remedy = format!("use up to {NAMESPACE_NAME_MAX} letters, digits, - and _");
            return error(namespace, "has an invalid name of a namespace", &remedy);
        }
    }
    let taps = s.interface.keys().filter(|interface| s.namespace_of(interface).is_some());
    match taps.into_iter().find(|interface| interface.len() > NETDEV_NAME_MAX) {
        Some(interface) => {
            let remedy = format!("rename it, with up to {NETDEV_NAME_MAX} characters, or add a representor");
            Err(invalid("interface", interface, "name is too long for a tap", &remedy))
        }
        None => Ok(()),
    }
}

/// Checks that the names of the representors are different from each other and from those of the interfaces.
fn check_representors(s: &Settings) -> Result<(), Diagnostic> {
    let mut used = BTreeSet::new();
    for name in &s.representor_names().collect::<Vec<_>>() {
        let (problem, remedy) = match () {
            () if name == "local" => ("name is reserved for the output of packets to the router", "rename the port"),
            () if s.interface.contains_key(name) || s.ports().contains(&name) => {
                ("representor is also an interface", "name the port of the control plane, such as a tap of its own")
            }
            () if !used.insert(name) => ("two interfaces have this representor", "add a port for each interface"),
            () => continue,
        };
        return Err(invalid("interface", name, problem, remedy));
    }
    Ok(())
}

/// Returns the rates of the classes in packets per second.
fn punt_rates(s: &Settings) -> Result<[u64; PuntClass::COUNT], Diagnostic> {
    let mut rates = [0; PuntClass::COUNT];
    for (rate, written) in rates.iter_mut().zip(s.punt.rates()) {
        let Rate::Packets(written) = written else {
            let remedy = "write packets per second, such as \"10 kpps\"";
            return Err(invalid("punt", String::from(written), "rate is not in packets per second", remedy));
        };
        *rate = written.round() as u64;
    }
    Ok(rates)
}
