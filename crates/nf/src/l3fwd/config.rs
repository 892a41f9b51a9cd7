//! Checked configuration of a router.

use super::punt::class::PuntClass;
use super::settings::{FpmSettings, InterfaceSettings, Settings};
use diagnostics::Diagnostic;
use graph::{BuildContext, Rate, Representor};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use wire::{MacAddr, ndp};

/// Maximum number of interfaces: output numbers are bytes, and the first output is not an interface.
const INTERFACES_MAX: usize = 64;
/// Maximum of the setting `neighbours_max`.
const NEIGHBOURS_MAX: u32 = 1 << 20;

/// Maximum of the setting `fpm.routes_max`: the routes that a table holds.
const FPM_ROUTES_MAX: usize = 1 << 22;

/// An interface.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) mac: MacAddr,
    pub(super) mtu: u16,
    /// Own addresses with prefix lengths.
    pub(super) v4: Vec<(Ipv4Addr, u8)>,
    pub(super) v6: Vec<(Ipv6Addr, u8)>,
    /// Number of its representor, if it has one.
    pub(super) representor: Option<usize>,
}

impl Interface {
    /// Returns the own address on the network of `other`, or else the first.
    pub(super) fn source4(&self, other: Ipv4Addr) -> Option<Ipv4Addr> {
        self.own4(other).or(self.v4.first().map(|(a, _)| *a))
    }

    /// As [`source4`](Self::source4); the link-local address if the interface has no other.
    pub(super) fn source6(&self, other: Ipv6Addr) -> Ipv6Addr {
        self.own6(other).or(self.v6.first().map(|(a, _)| *a)).unwrap_or(self.link_local())
    }

    pub(super) fn link_local(&self) -> Ipv6Addr {
        ndp::link_local(self.mac)
    }

    fn own4(&self, other: Ipv4Addr) -> Option<Ipv4Addr> {
        self.v4.iter().find(|(own, len)| mask4(*own, *len) == mask4(other, *len)).map(|(own, _)| *own)
    }

    fn own6(&self, other: Ipv6Addr) -> Option<Ipv6Addr> {
        if other.is_unicast_link_local() {
            return Some(self.link_local());
        }
        self.v6.iter().find(|(own, len)| mask6(*own, *len) == mask6(other, *len)).map(|(own, _)| *own)
    }

    /// Returns true if an address is on a network of this interface.
    pub(super) fn reaches(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.own4(a).is_some(),
            IpAddr::V6(a) => self.own6(a).is_some(),
        }
    }

    /// Returns the length of the longest of its prefixes that contains an address.
    fn prefix_len(&self, address: IpAddr) -> Option<u8> {
        match address {
            IpAddr::V4(a) => self.v4.iter().filter(|(own, l)| mask4(*own, *l) == mask4(a, *l)).map(|(_, l)| *l).max(),
            IpAddr::V6(a) => self.v6.iter().filter(|(own, l)| mask6(*own, *l) == mask6(a, *l)).map(|(_, l)| *l).max(),
        }
    }

    /// Returns true if an address is one of the interface's own.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.v4.iter().any(|(own, _)| *own == a),
            IpAddr::V6(a) => self.v6.iter().any(|(own, _)| *own == a) || a == self.link_local(),
        }
    }
}

/// Configuration of the router.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) interfaces: Vec<Interface>,
    /// Interfaces of the representors.
    pub(super) representors: Vec<usize>,
    /// Packets per second to a representor, by class.
    pub(super) punt: [u64; PuntClass::COUNT],
    pub(super) reachable_time: Duration,
    pub(super) neighbour_queue: usize,
    pub(super) icmp_rate: u32,
    pub(super) neighbours_max: usize,
    pub(super) fpm: Option<FpmSettings>,
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
        if let Some(fpm) = s.fpm.as_ref().filter(|fpm| fpm.routes_max > FPM_ROUTES_MAX) {
            let remedy = format!("write at most {FPM_ROUTES_MAX}");
            return Err(invalid("fpm", fpm.routes_max, "maximum number of routes is out of range", &remedy));
        }
        let mut interfaces: Vec<Interface> =
            s.interface.iter().map(|(name, i)| interface(name, i, cx)).collect::<Result<_, _>>()?;
        check_representors(s)?;
        let mut representors = vec![];
        for (n, _) in s.interface.values().enumerate().filter(|(_, i)| i.representor.is_some()) {
            interfaces[n].representor = Some(representors.len());
            representors.push(n);
        }
        Ok(Config {
            interfaces,
            representors,
            punt: punt_rates(s)?,
            reachable_time: Duration::from_secs(s.reachable_time.into()),
            neighbour_queue: s.neighbour_queue.into(),
            icmp_rate: s.icmp_rate,
            neighbours_max: s.neighbours_max as usize,
            fpm: s.fpm.clone(),
        })
    }

    /// Returns the interfaces with the same control plane as an interface: all.
    pub(super) fn control_plane_of(&self, _interface: usize) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter()
    }

    /// Returns true if a routing daemon may install a route to a prefix.
    pub(super) fn is_allowed(&self, net: IpNet) -> bool {
        let prefixes = self.fpm.as_ref().map_or(&[][..], |fpm| &fpm.prefixes);
        prefixes.is_empty() || prefixes.iter().any(|allowed| allowed.0.contains(&net))
    }

    /// Returns the interface whose prefix contains an address: the longest prefix, as in the FIB, and of equal ones the
    /// last.
    pub(super) fn interface_to(&self, address: IpAddr) -> Option<usize> {
        let link_local = matches!(address, IpAddr::V6(a) if a.is_unicast_link_local());
        let networks = self.interfaces.iter().enumerate().filter_map(|(n, f)| Some((f.prefix_len(address)?, n)));
        networks.max().map(|(_, n)| n).filter(|_| !link_local)
    }
}

fn interface(name: &str, i: &InterfaceSettings, cx: &BuildContext) -> Result<Interface, Diagnostic> {
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
    let mut interface = Interface { mac, mtu: i.mtu, v4: vec![], v6: vec![], representor: None };
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

    /// Returns the kernel interface of the control plane, if there is one.
    pub(super) fn representor(&self, router: &str, interface: &str) -> Option<Representor> {
        Some(Representor {
            name: self.representor.clone()?,
            interface: interface.to_owned(),
            mac: self.mac_address(router, interface).0,
            mtu: self.mtu,
            addresses: self.addresses.iter().map(|net| (net.0.addr(), net.0.prefix_len())).collect(),
        })
    }
}

/// Checks that the names of the representors are different from each other and from those of the interfaces.
fn check_representors(s: &Settings) -> Result<(), Diagnostic> {
    let mut used = BTreeSet::new();
    for name in s.interface.values().filter_map(|i| i.representor.as_ref()) {
        let (problem, remedy) = match () {
            () if name == "local" => ("name is reserved for the output of packets to the router", "rename the port"),
            () if s.interface.contains_key(name) => {
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

pub(super) fn mask4(address: Ipv4Addr, len: u8) -> u32 {
    address.to_bits() & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

pub(super) fn mask6(address: Ipv6Addr, len: u8) -> u128 {
    address.to_bits() & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}
