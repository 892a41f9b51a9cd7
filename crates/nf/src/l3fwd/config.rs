//! What the settings of a router come to.

use super::{Interface, Settings};
use diagnostics::Diagnostic;
use graph::BuildContext;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use wire::{MacAddr, ndp};

/// Interfaces of one router at most: outputs are numbered in a byte, and the first is not an interface.
const MOST_INTERFACES: usize = 64;
/// Neighbours of one router at most.
const MOST_NEIGHBOURS: u32 = 1 << 20;

/// One of its interfaces.
#[derive(Clone, Debug)]
pub(super) struct Face {
    pub(super) mac: MacAddr,
    pub(super) mtu: u16,
    /// Own addresses and the lengths of their networks.
    pub(super) v4: Vec<(Ipv4Addr, u8)>,
    pub(super) v6: Vec<(Ipv6Addr, u8)>,
}

impl Face {
    /// The own address on the network of `other`, or else the first.
    pub(super) fn source4(&self, other: Ipv4Addr) -> Option<Ipv4Addr> {
        self.own4(other).or(self.v4.first().map(|(a, _)| *a))
    }

    /// As [`source4`](Self::source4); the link-local address if there is no other.
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

    /// Whether an address lies on a network of this interface.
    pub(super) fn reaches(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.own4(a).is_some(),
            IpAddr::V6(a) => self.own6(a).is_some(),
        }
    }

    /// The length of its longest network on which an address lies.
    fn network(&self, address: IpAddr) -> Option<u8> {
        match address {
            IpAddr::V4(a) => self.v4.iter().filter(|(own, l)| mask4(*own, *l) == mask4(a, *l)).map(|(_, l)| *l).max(),
            IpAddr::V6(a) => self.v6.iter().filter(|(own, l)| mask6(*own, *l) == mask6(a, *l)).map(|(_, l)| *l).max(),
        }
    }

    /// Whether an address is this interface's own.
    pub(super) fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.v4.iter().any(|(own, _)| *own == a),
            IpAddr::V6(a) => self.v6.iter().any(|(own, _)| *own == a) || a == self.link_local(),
        }
    }
}

/// All that a copy of the router has to know.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) faces: Vec<Face>,
    pub(super) lifetime: Duration,
    pub(super) queue: usize,
    pub(super) icmp_rate: u32,
    pub(super) neighbours: usize,
}

fn wrong(key: &'static str, value: impl Display, problem: &str, remedy: &str) -> Diagnostic {
    Diagnostic::new(problem).key(key).value(value).remedy(remedy)
}

impl Config {
    pub(super) fn new(s: &Settings, cx: &BuildContext) -> Result<Config, Diagnostic> {
        if s.interface.is_empty() {
            let remedy = "add interface.NAME = { addresses = [\"10.0.0.1/24\"] }, with the name of a port";
            return Err(wrong("interface", &cx.name, "a router without interfaces routes nothing", remedy));
        }
        if s.interface.len() > MOST_INTERFACES {
            let remedy = format!("use {MOST_INTERFACES} or fewer");
            return Err(wrong("interface", s.interface.len(), "are too many interfaces", &remedy));
        }
        if s.neighbours == 0 || s.neighbours > MOST_NEIGHBOURS {
            let remedy = format!("write 1 to {MOST_NEIGHBOURS}");
            return Err(wrong("neighbours", s.neighbours, "is no number of neighbours", &remedy));
        }
        if s.lifetime == 0 {
            return Err(wrong("lifetime", 0, "a neighbour would be forgotten at once", "write seconds, such as 60"));
        }
        let faces = s.interface.iter().map(|(name, i)| face(name, i, cx)).collect::<Result<_, _>>()?;
        Ok(Config {
            faces,
            lifetime: Duration::from_secs(s.lifetime.into()),
            queue: s.queue.into(),
            icmp_rate: s.icmp_rate,
            neighbours: s.neighbours as usize,
        })
    }

    /// The interface on whose network an address lies: the longest one, as the FIB has it, and of equal ones the last.
    pub(super) fn face_to(&self, address: IpAddr) -> Option<usize> {
        let link_local = matches!(address, IpAddr::V6(a) if a.is_unicast_link_local());
        let networks = self.faces.iter().enumerate().filter_map(|(n, f)| Some((f.network(address)?, n)));
        networks.max().map(|(_, n)| n).filter(|_| !link_local)
    }
}

fn face(name: &str, i: &Interface, cx: &BuildContext) -> Result<Face, Diagnostic> {
    if name == "local" {
        let remedy = "call the interface, and its port, otherwise";
        return Err(wrong("interface", name, "is the name of the output for the router's own packets", remedy));
    }
    if !(68..=9700).contains(&i.mtu) {
        return Err(wrong("interface", i.mtu, "is no MTU", "write 68 to 9700 bytes (RFC 791 §3.2)"));
    }
    if i.addresses.is_empty() {
        let remedy = "write addresses = [\"10.0.0.1/24\"]";
        return Err(wrong("interface", name, "has no address: nobody could send it anything", remedy));
    }
    let mac = i.mac.map_or_else(|| made_up(&cx.name, name), |m| m.0);
    if mac.is_multicast() || mac == MacAddr([0; 6]) {
        let remedy = "write one whose first byte is even, such as 02:00:00:00:00:01";
        return Err(wrong("interface", mac, "is not the address of one interface", remedy));
    }
    let mut face = Face { mac, mtu: i.mtu, v4: vec![], v6: vec![] };
    for net in i.addresses.iter().map(|n| n.0) {
        let own = net.addr();
        if own.is_multicast() || own.is_unspecified() || own.is_loopback() {
            let problem = "cannot be an interface's own address";
            return Err(wrong("interface", net, problem, "write a unicast address"));
        }
        if own.is_ipv4() && net.prefix_len() < 31 && (own == net.network() || own == net.broadcast()) {
            let remedy = format!("write an address in it, such as {}", net.hosts().next().unwrap_or(own));
            return Err(wrong("interface", net, "is the address of the whole network", &remedy));
        }
        match own {
            IpAddr::V4(a) => face.v4.push((a, net.prefix_len())),
            IpAddr::V6(a) => face.v6.push((a, net.prefix_len())),
        }
    }
    Ok(face)
}

/// A locally administered address, the same each time.
fn made_up(router: &str, interface: &str) -> MacAddr {
    let mut hash = DefaultHasher::new();
    (router, interface).hash(&mut hash);
    let [a, b, c, d, e, ..] = hash.finish().to_be_bytes();
    MacAddr([2, a, b, c, d, e])
}

pub(super) fn mask4(address: Ipv4Addr, len: u8) -> u32 {
    address.to_bits() & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

pub(super) fn mask6(address: Ipv6Addr, len: u8) -> u128 {
    address.to_bits() & u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}
