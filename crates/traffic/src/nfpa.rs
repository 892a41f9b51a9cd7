//! NFPA's traces by name (Csikor et al., NFV-SDN 2015), generated: what the device under test is offered, and the tables
//! that it needs for it.
//!
//! NFPA ships pcaps; as these are not published, the fields below are ours, and NFPA's statements are kept: how many flows,
//! and what differs between them. All are UDP over IPv4.
//!
//! | name | flows | what differs | frames go to |
//! |---|---|---|---|
//! | `simple` | 1 | nothing: one packet repeated | one MAC and IP address |
//! | `tr2e`, `tr2i` | 100 | destination MAC (`e`) or IP (`i`) | 100 addresses in a row |
//! | `tr3e`, `tr3i` | 10,000 | as before | 10,000 |
//! | `tr4e` | 500,000 | destination MAC | 500,000 |
//! | `tr5ul` | 64,500 | source IP, each another | 6,450 IP addresses in turn |
//! | `tr5dl` | 64,500 | 6,450 source IPs with 10 source ports each | one IP address |
//! | `l2-N` | N | destination MAC, random | N MAC addresses, the table's entries |
//! | `l3-N` | N | destination IP, source MAC, random | an address in each of N random prefixes of /16 to /24 |
//! | `lb-N` | 2·N | destination IP, half of the Internet of the source | port 80 of N services, each from either half |
//! | `gw-N` | N | source MAC and IP of 200 users, destination IP | random addresses in 10,000 prefixes |
//!
//! N is 1 to 100,000. Forward frames go from 198.18.0.0/16 and 02:00:00:00:00:01 to 198.19.0.0/16 and 02:00:00:00:00:02,
//! ports 10000 to 50000, unless the table says otherwise. The reverse direction swaps the roles, and its addresses are others:
//! of `tr2i` reversed, 198.19.255.1 sends to 198.18.0.1 and what follows. Addresses that vary in a row count from .0.1 on,
//! MAC addresses from 02:00:01:00:00:00 forward and from 02:00:02:00:00:00 reverse. What is random comes from the seed.
//! Flows take turns in the order of the list.
//!
//! ```
//! use traffic::nfpa::{Direction, Name, tables};
//!
//! let name: Name = "l2-1000".parse()?;
//! let flows = name.flows(Direction::Forward, 7)?;
//! let mut file = Vec::new();
//! tables::openflow(&name.tables(Direction::Forward, 7), 2, &mut file)?;
//! assert_eq!((flows.count(), file.iter().filter(|byte| **byte == b'\n').count()), (1000, 1000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod families;
mod prefixes;
pub mod tables;

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use wire::flow::FiveTuple;
use wire::{IpProtocol, MacAddr, build};

use crate::flows::{Flow, FlowError, FlowSettings, Flows};
pub use tables::Tables;

/// Most entries of a family's table.
pub const MAX_ENTRIES: u32 = 100_000;
/// NFPA's frame sizes, bytes with FCS.
pub const SIZES: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1500];
/// Ports, source and destination.
pub(crate) const PORTS: (u16, u16) = (10_000, 50_000);

/// A trace's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Name {
    /// One packet repeated.
    Simple,
    /// 100 flows of different destinations.
    Tr2(Vary),
    /// 10,000 flows of different destinations.
    Tr3(Vary),
    /// 500,000 flows of different destination MAC addresses.
    Tr4e,
    /// 64,500 sources to 6,450 destinations.
    Tr5Ul,
    /// 6,450 sources with ten ports each to one destination.
    Tr5Dl,
    /// A switch with that many MAC addresses.
    L2(u32),
    /// A router with that many prefixes.
    L3(u32),
    /// A load balancer with that many services.
    LoadBalancer(u32),
    /// An access gateway with that many flows of 200 users.
    Gateway(u32),
}

/// Fields that vary between flows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Vary {
    /// The destination MAC address, suffix `e`.
    Mac,
    /// The destination IP address, suffix `i`.
    Ip,
}

/// Direction of frames through the DUT.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Direction {
    /// From the first port to the second.
    #[default]
    Forward,
    /// From the second to the first.
    Reverse,
}

/// There is no trace of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no trace; give `simple`, `tr2e`, `tr2i`, `tr3e`, `tr3i`, `tr4e`, `tr5ul`, `tr5dl`, or `l2-1000`, `l3-1000`, `lb-1000`, \
     `gw-1000` with 1 to {MAX_ENTRIES} entries"
)]
pub struct NotTrace(String);

/// Sources and destinations of the frames of a direction.
struct Ends {
    src_mac: MacAddr,
    dst_mac: MacAddr,
    /// Networks /16 of sources and destinations.
    src: [u8; 2],
    dst: [u8; 2],
    /// Host part of an address that does not vary.
    host: [u8; 2],
    /// Third byte of MAC addresses that vary.
    varied: u8,
}

impl Ends {
    fn of(direction: Direction) -> Self {
        let (near, far) = ([198, 18], [198, 19]);
        let (src_mac, dst_mac) = (build::SRC_MAC, build::DST_MAC);
        match direction {
            Direction::Forward => Self { src_mac, dst_mac, src: near, dst: far, host: [0, 1], varied: 1 },
            Direction::Reverse => {
                Self { src_mac: dst_mac, dst_mac: src_mac, src: far, dst: near, host: [255, 1], varied: 2 }
            }
        }
    }

    /// Returns the address that does not vary of a network.
    fn fixed(&self, [a, b]: [u8; 2]) -> Ipv4Addr {
        Ipv4Addr::new(a, b, self.host[0], self.host[1])
    }

    /// Address number `n` of a network, from .0.1 on.
    fn nth([a, b]: [u8; 2], n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(Ipv4Addr::new(a, b, 0, 0).to_bits() + (n + 1) % 65_536)
    }

    fn nth_mac(&self, n: u32) -> MacAddr {
        let [_, d, e, f] = n.to_be_bytes();
        MacAddr([2, 0, self.varied, d, e, f])
    }

    /// Returns a flow whose addresses do not vary.
    fn flow(&self) -> Flow {
        udp(self.src_mac, self.dst_mac, self.fixed(self.src), self.fixed(self.dst), PORTS)
    }
}

/// Returns a flow of UDP.
fn udp(src_mac: MacAddr, dst_mac: MacAddr, src: Ipv4Addr, dst: Ipv4Addr, ports: (u16, u16)) -> Flow {
    Flow { src_mac, dst_mac, tuple: FiveTuple::v4(src, dst, ports.0, ports.1, IpProtocol::UDP) }
}

impl Name {
    /// Returns its flows, in their order.
    pub fn list(self, direction: Direction, seed: u64) -> Vec<Flow> {
        let ends = Ends::of(direction);
        let plain = ends.flow();
        let vary = |count: u32, vary: Vary| {
            let flow = |n: u32| match vary {
                Vary::Mac => Flow { dst_mac: ends.nth_mac(n), ..plain },
                Vary::Ip => Flow { tuple: FiveTuple { dst: Ends::nth(ends.dst, n).into(), ..plain.tuple }, ..plain },
            };
            (0..count).map(flow).collect()
        };
        let between = |src: u32, dst: Option<u32>, src_port: u16| {
            let dst = dst.map_or(ends.fixed(ends.dst), |n| Ends::nth(ends.dst, n));
            udp(ends.src_mac, ends.dst_mac, Ends::nth(ends.src, src), dst, (src_port, PORTS.1))
        };
        match self {
            Self::Simple => vec![plain],
            Self::Tr2(what) => vary(100, what),
            Self::Tr3(what) => vary(10_000, what),
            Self::Tr4e => vary(500_000, Vary::Mac),
            Self::Tr5Ul => (0..64_500).map(|n| between(n, Some(n % 6_450), PORTS.0)).collect(),
            Self::Tr5Dl => (0..64_500).map(|n| between(n % 6_450, None, PORTS.0 + (n / 6_450) as u16)).collect(),
            Self::L2(n) => families::l2(&ends, n, seed),
            Self::L3(n) => families::l3(&ends, n, seed),
            Self::LoadBalancer(n) => families::load_balancer(&ends, n, seed),
            Self::Gateway(n) => families::gateway(&ends, n, seed),
        }
    }

    /// Returns its flows, to be sent in their order.
    ///
    /// # Errors
    /// [`FlowError::Count`] for a family with no entries.
    pub fn flows(self, direction: Direction, seed: u64) -> Result<Flows, FlowError> {
        Flows::listed(&self.list(direction, seed), FlowSettings { seed, ..FlowSettings::v4() })
    }

    /// Returns the table entries that the DUT needs so that each flow has one: only the output port for the traces
    /// that are no family.
    pub fn tables(self, direction: Direction, seed: u64) -> Tables {
        let ends = Ends::of(direction);
        match self {
            Self::L2(n) => families::l2_tables(&ends, n, seed),
            Self::L3(n) => families::l3_tables(n, seed),
            Self::LoadBalancer(n) => families::load_balancer_tables(n),
            Self::Gateway(_) => families::gateway_tables(&ends, seed),
            _ => Tables::default(),
        }
    }

    /// SHA-256 of the flows in their order, hexadecimal: of each destination and source MAC address, addresses and ports as
    /// they stand in a frame. Two traces with the same are the same packets, sizes aside.
    pub fn sha256(self, direction: Direction, seed: u64) -> String {
        let mut hash = Sha256::new();
        for Flow { src_mac, dst_mac, tuple } in self.list(direction, seed) {
            hash.update(dst_mac.0);
            hash.update(src_mac.0);
            for address in [tuple.src, tuple.dst] {
                match address {
                    std::net::IpAddr::V4(address) => hash.update(address.octets()),
                    std::net::IpAddr::V6(address) => hash.update(address.octets()),
                }
            }
            hash.update(tuple.src_port.to_be_bytes());
            hash.update(tuple.dst_port.to_be_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = |vary: &Vary| if *vary == Vary::Mac { 'e' } else { 'i' };
        match self {
            Self::Simple => f.write_str("simple"),
            Self::Tr2(vary) => write!(f, "tr2{}", suffix(vary)),
            Self::Tr3(vary) => write!(f, "tr3{}", suffix(vary)),
            Self::Tr4e => f.write_str("tr4e"),
            Self::Tr5Ul => f.write_str("tr5ul"),
            Self::Tr5Dl => f.write_str("tr5dl"),
            Self::L2(n) => write!(f, "l2-{n}"),
            Self::L3(n) => write!(f, "l3-{n}"),
            Self::LoadBalancer(n) => write!(f, "lb-{n}"),
            Self::Gateway(n) => write!(f, "gw-{n}"),
        }
    }
}

impl FromStr for Name {
    type Err = NotTrace;

    fn from_str(text: &str) -> Result<Self, NotTrace> {
        let unknown = || NotTrace(text.chars().take(80).collect());
        Ok(match text.trim() {
            "simple" => Self::Simple,
            "tr2e" => Self::Tr2(Vary::Mac),
            "tr2i" => Self::Tr2(Vary::Ip),
            "tr3e" => Self::Tr3(Vary::Mac),
            "tr3i" => Self::Tr3(Vary::Ip),
            "tr4e" => Self::Tr4e,
            "tr5ul" => Self::Tr5Ul,
            "tr5dl" => Self::Tr5Dl,
            other => {
                let (family, entries) = other.split_once('-').ok_or_else(unknown)?;
                let n = entries.parse().ok().filter(|n| (1..=MAX_ENTRIES).contains(n)).ok_or_else(unknown)?;
                match family {
                    "l2" => Self::L2(n),
                    "l3" => Self::L3(n),
                    "lb" => Self::LoadBalancer(n),
                    "gw" => Self::Gateway(n),
                    _ => return Err(unknown()),
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
