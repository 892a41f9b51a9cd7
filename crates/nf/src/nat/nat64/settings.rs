//! Settings of `nat64`; those that `nat44` has as well are checked there.

use super::prefix::{Prefix, WELL_KNOWN_PREFIX};
use crate::nat::config::{Config as NatConfig, parse_forward};
use crate::nat::flow::hash_to_index;
use crate::nat::settings::{Allocation, Filtering, Mapping, Settings as NatSettings, Timers, Unmatched};
use diagnostics::Diagnostic;
use foldhash::HashMap;
use ipnet::Ipv6Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{Ipv6Addr, SocketAddrV6};

/// Smallest MTU of an IPv6 link in bytes (RFC 8200 §5).
pub(super) const MIN_MTU: usize = 1280;

/// Settings of [`Nat64`](super::Nat64).
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Prefix of the IPv4-embedded IPv6 addresses (RFC 6052), of length 32, 40, 48, 56, 64 or 96.
    prefix: String,
    /// External IPv4 addresses, each "203.0.113.1" or "203.0.113.16/28". All sessions of an inside host use the same
    /// one. Each core has its own addresses, so there must be at least as many addresses as cores.
    external: Vec<String>,
    /// IPv6 networks whose hosts are translated; empty: all.
    inside: Vec<String>,
    /// Filtering behaviour (RFC 6146 §3), that is, which outside endpoints may send to a mapped port:
    /// endpoint-independent (any), address-dependent (addresses that the inside host has sent to) or
    /// address-and-port-dependent (only the endpoint of the session).
    filtering: Filtering,
    /// Port allocation: dynamic (any port of the host's external address) or blocks (of block_size ports, up to
    /// max_blocks per host).
    allocation: PortSharing,
    /// Ports per block, 8 to 32768.
    block_size: u16,
    /// Largest number of blocks per host, at least 1.
    max_blocks: u16,
    /// Lowest port that is allocated, at least 1; the highest is 65535.
    first_port: u16,
    /// Largest number of sessions per core, at least 1; each takes about 128 bytes.
    sessions: u32,
    /// Largest number of hosts with sessions per core, at least 1.
    subscribers: u32,
    /// Largest number of sessions per host; 0: unlimited.
    subscriber_sessions: u32,
    /// Idle timeouts of sessions.
    timers: Timers,
    /// Static port forwards, open to all outside hosts: "tcp 203.0.113.1:8080 -> [2001:db8::5]:80".
    forward: Vec<String>,
    /// Enables sessions between inside hosts through their external addresses.
    hairpin: bool,
    /// MTU of the inside link in bytes, 1280 to 9700. Longer packets with "don't fragment" are dropped, and their
    /// sender receives an ICMP error.
    mtu: u16,
    /// Largest fragment in bytes, 1280 to mtu, of packets to the inside that may be fragmented. Larger values than 1280
    /// are safe only if all inside links have that MTU, as the sender receives no ICMP error.
    fragment_size: u16,
    /// Largest number of fragmented datagrams, per core, that are tracked at the same time.
    fragments: u32,
    /// Server that receives the log of sessions, or of port blocks if allocation is blocks: "192.0.2.1:514" for syslog
    /// over UDP, "ipfix://192.0.2.1:4739" for IPFIX over UDP; empty: no log.
    log: String,
}

/// Port allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum PortSharing {
    /// Any port of the external address.
    Dynamic,
    /// Blocks of block_size ports, up to max_blocks per host.
    Blocks,
}

impl Default for Settings {
    fn default() -> Self {
        let s = NatSettings::default();
        Settings {
            prefix: WELL_KNOWN_PREFIX.into(),
            external: vec![],
            inside: vec![],
            filtering: s.filtering,
            allocation: PortSharing::Dynamic,
            block_size: s.block_size,
            max_blocks: s.max_blocks,
            first_port: s.first_port,
            sessions: s.sessions,
            subscribers: s.subscribers,
            subscriber_sessions: s.subscriber_sessions,
            timers: s.timers,
            forward: vec![],
            hairpin: s.hairpin,
            mtu: 1500,
            fragment_size: MIN_MTU as u16,
            fragments: s.fragments,
            log: String::new(),
        }
    }
}

/// Checked settings, the same for all cores.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// Configuration of sessions and ports; its subscribers are numbers of hosts.
    pub(super) nat: std::sync::Arc<NatConfig>,
    pub(super) prefix: Prefix,
    inside: Vec<Ipv6Net>,
    /// Hosts with forwards, by number.
    pub(super) fixed: Vec<u128>,
    numbers: HashMap<u128, u32>,
    pub(super) mtu: usize,
    pub(super) fragment_size: usize,
}

fn invalid(key: &'static str, value: impl std::fmt::Display, problem: &str, remedy: &str) -> Diagnostic {
    Diagnostic::new(problem).key(key).value(value).remedy(remedy)
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// Returns the first invalid setting.
    pub(super) fn new(s: &Settings) -> Result<Self, Diagnostic> {
        let prefix = s.prefix.parse().ok().and_then(Prefix::new).ok_or_else(|| {
            let remedy = "write \"64:ff9b::/96\", or a prefix of your own of length 32, 40, 48, 56, 64 or 96 whose bits 64 to 71 are 0";
            invalid("prefix", &s.prefix, "is not a valid prefix for IPv4-embedded addresses (RFC 6052)", remedy)
        })?;
        let net = |text: &String| {
            let one = text.parse::<Ipv6Addr>().ok().and_then(|a| Ipv6Net::new(a, 128).ok());
            one.or_else(|| text.parse().ok()).ok_or_else(|| {
                let remedy = "write \"2001:db8::1\" or \"2001:db8::/32\"";
                invalid("inside", text, "is not an IPv6 address or network", remedy)
            })
        };
        let inside = s.inside.iter().map(net).collect::<Result<Vec<_>, _>>()?;
        for (key, bytes) in [("mtu", s.mtu), ("fragment_size", s.fragment_size)] {
            if !(MIN_MTU..=9700).contains(&usize::from(bytes)) {
                return Err(invalid(key, bytes, "is not a valid IPv6 MTU", "write 1280 to 9700 bytes"));
            }
        }
        if s.fragment_size > s.mtu {
            return Err(invalid("fragment_size", s.fragment_size, "is larger than mtu", "write mtu or less"));
        }
        let mut nat = NatConfig::new(&NatSettings {
            external: s.external.clone(),
            inside: vec![],
            mapping: Mapping::EndpointIndependent,
            filtering: s.filtering,
            allocation: match s.allocation {
                PortSharing::Dynamic => Allocation::Dynamic,
                PortSharing::Blocks => Allocation::Blocks,
            },
            block_size: s.block_size,
            max_blocks: s.max_blocks,
            first_port: s.first_port,
            sessions: s.sessions,
            subscribers: s.subscribers,
            subscriber_sessions: s.subscriber_sessions,
            timers: s.timers.clone(),
            forward: vec![],
            hairpin: s.hairpin,
            unmatched: Unmatched::Drop,
            fragments: s.fragments,
            log: s.log.clone(),
        })?;
        let (mut fixed, mut numbers) = (vec![], HashMap::default());
        for text in &s.forward {
            let Some((protocol, outside, to)) = parse_forward::<SocketAddrV6>(text) else {
                let remedy = "write \"tcp 203.0.113.1:8080 -> [2001:db8::5]:80\"";
                return Err(invalid("forward", text, "is not a port forward", remedy));
            };
            let host = to.ip().to_bits();
            if prefix.contains(host) || !inside.is_empty() && !inside.iter().any(|net| net.contains(to.ip())) {
                let problem = "forwards to an address that is not inside";
                return Err(invalid("forward", text, problem, "add its network to inside"));
            }
            let number = *numbers.entry(host).or_insert_with(|| {
                fixed.push(host);
                fixed.len() as u32 - 1
            });
            nat.add_forward(text, protocol, outside, (number, to.port()))?;
        }
        Ok(Config {
            nat: nat.into(),
            prefix,
            inside,
            fixed,
            numbers,
            mtu: s.mtu.into(),
            fragment_size: s.fragment_size.into(),
        })
    }

    /// Returns true if the packets of an inside host are translated.
    #[inline(always)]
    pub(super) fn is_inside(&self, address: u128) -> bool {
        let host = Ipv6Addr::from_bits(address);
        let none = host.is_multicast() || host.is_unspecified() || host.is_loopback();
        !none && (self.inside.is_empty() || self.inside.iter().any(|net| net.contains(&host)))
    }

    /// Returns true if an IPv4 address may be the remote end of a session: a unicast address, and with the well-known
    /// prefix a global one (RFC 6052 §3.1, RFC 6146 §3.5).
    #[inline(always)]
    pub(super) fn is_unicast_host(&self, address: u32) -> bool {
        let [a, b, ..] = address.to_be_bytes();
        let none = a == 0 || a == 127 || a >= 224 || (a, b) == (169, 254);
        let private = a == 10 || (a, b & 0xf0) == (172, 16) || (a, b) == (192, 168) || (a, b & 0xc0) == (100, 64);
        !(none || private && self.prefix.is_well_known())
    }

    /// Returns the copy that processes packets of an inside host.
    pub(super) fn copy_for_inside(&self, host: u128, copies: usize) -> usize {
        let bound = self.numbers.get(&host).and_then(|number| self.nat.required_external(*number));
        let mixed = (host as u64 ^ (host >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bound.map_or_else(|| hash_to_index((mixed >> 32) as u32, copies), |external| external % copies)
    }

    /// Returns the copy that processes packets to an IPv4 address.
    pub(super) fn copy_for_outside(&self, external: u32, copies: usize) -> usize {
        self.nat.external_index(external).map_or(0, |number| number % copies)
    }
}
