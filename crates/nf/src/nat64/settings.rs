//! What can be set, and what it comes to: what `nat44` has as well is checked there.

use super::prefix::{Prefix, WELL_KNOWN};
use crate::nat44::flow::spread;
use crate::nat44::settings as nat44;
use crate::nat44::settings::{Allocation, Filtering, Mapping, Timers, Unmatched};
use diagnostics::Diagnostic;
use foldhash::HashMap;
use ipnet::Ipv6Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{Ipv6Addr, SocketAddrV4, SocketAddrV6};
use wire::IpProtocol;

/// The least that every link of IPv6 carries (RFC 8200 §5).
pub(super) const LEAST: usize = 1280;

/// Settings of [`Nat64`](super::Nat64).
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The IPv6 prefix behind which the IPv4 addresses stand, of length 32, 40, 48, 56, 64 or 96 (RFC 6052).
    prefix: String,
    /// External IPv4 addresses, each "203.0.113.1" or "203.0.113.16/28". A host inside keeps one for all its sessions. With
    /// several cores each has its own of them, so there are at least as many.
    external: Vec<String>,
    /// IPv6 networks whose hosts are translated; empty: all.
    inside: Vec<String>,
    /// Who may answer to a mapped port: endpoint-independent (anyone), address-dependent (addresses that were sent to) or
    /// address-and-port-dependent (exactly what was sent to).
    filtering: Filtering,
    /// How hosts get ports.
    allocation: Shares,
    /// Ports of a block, 8 to 32768.
    block_size: u16,
    /// Blocks of one host at most.
    max_blocks: u16,
    /// The first port that is given out; those up to 65535 follow.
    first_port: u16,
    /// Sessions at most, for each core; about 128 bytes each. One more is refused.
    sessions: u32,
    /// Hosts with sessions at most, for each core.
    subscribers: u32,
    /// Sessions of one host at most; 0: no limit.
    subscriber_sessions: u32,
    /// Seconds without a packet after which a session is forgotten.
    timers: Timers,
    /// Ports that lead inside whoever asks: "tcp 203.0.113.1:8080 -> [2001:db8::5]:80".
    forward: Vec<String>,
    /// Whether hosts inside reach each other by their external addresses.
    hairpin: bool,
    /// Largest packet, in bytes, that the next link inside carries; whoever sends more without leave to fragment is told.
    mtu: u16,
    /// Largest piece, in bytes, into which what may be fragmented is cut on its way in; as nobody tells its sender of a
    /// smaller link, the least that all links carry if not set.
    fragment: u16,
    /// Fragmented datagrams that are remembered at most.
    fragments: u32,
    /// Where begin and end of blocks and sessions are told over UDP: "192.0.2.1:514" as syslog, "ipfix://192.0.2.1:4739" as
    /// IPFIX; empty: nowhere. With blocks only the blocks are told.
    log: String,
}

/// How hosts get ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Shares {
    /// Any port of their address.
    Dynamic,
    /// Blocks of ports, of block_size, as many as they need up to max_blocks.
    Blocks,
}

impl Default for Settings {
    fn default() -> Self {
        let s = nat44::Settings::default();
        Settings {
            prefix: WELL_KNOWN.into(),
            external: vec![],
            inside: vec![],
            filtering: s.filtering,
            allocation: Shares::Dynamic,
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
            fragment: LEAST as u16,
            fragments: s.fragments,
            log: String::new(),
        }
    }
}

/// What the settings come to: the same for all copies.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// What the machinery of `nat44` goes by; its subscribers are numbers of hosts.
    pub(super) nat: std::sync::Arc<nat44::Config>,
    pub(super) prefix: Prefix,
    inside: Vec<Ipv6Net>,
    /// Hosts with forwards, by number.
    pub(super) fixed: Vec<u128>,
    numbers: HashMap<u128, u32>,
    pub(super) mtu: usize,
    pub(super) fragment: usize,
}

fn wrong(key: &'static str, value: impl std::fmt::Display, problem: &str, remedy: &str) -> Diagnostic {
    Diagnostic::new(problem).key(key).value(value).remedy(remedy)
}

/// Reads a forward as it is written.
fn forward(text: &str) -> Option<(u8, SocketAddrV4, SocketAddrV6)> {
    let (protocol, rest) = text.split_once(' ')?;
    let (outside, inside) = rest.split_once("->")?;
    let protocol = match protocol {
        "tcp" => IpProtocol::TCP,
        "udp" => IpProtocol::UDP,
        _ => return None,
    };
    Some((protocol.0, outside.trim().parse().ok()?, inside.trim().parse().ok()?))
}

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first that makes no sense.
    pub(super) fn new(s: &Settings) -> Result<Self, Diagnostic> {
        let prefix = s.prefix.parse().ok().and_then(Prefix::new).ok_or_else(|| {
            let remedy = "write \"64:ff9b::/96\", or a network of yours of length 32, 40, 48, 56, 64 or 96 whose bits 64 to 71 are 0";
            wrong("prefix", &s.prefix, "is no prefix for IPv4 addresses (RFC 6052)", remedy)
        })?;
        let net = |text: &String| {
            let one = text.parse::<Ipv6Addr>().ok().and_then(|a| Ipv6Net::new(a, 128).ok());
            one.or_else(|| text.parse().ok()).ok_or_else(|| {
                let remedy = "write \"2001:db8::1\" or \"2001:db8::/32\"";
                wrong("inside", text, "is neither an IPv6 address nor a network", remedy)
            })
        };
        let inside = s.inside.iter().map(net).collect::<Result<Vec<_>, _>>()?;
        for (key, bytes) in [("mtu", s.mtu), ("fragment", s.fragment)] {
            if !(LEAST..=9700).contains(&usize::from(bytes)) {
                return Err(wrong(key, bytes, "is no MTU of IPv6", "write 1280 to 9700 bytes"));
            }
        }
        if s.fragment > s.mtu {
            return Err(wrong("fragment", s.fragment, "is more than mtu", "write mtu or less"));
        }
        let mut nat = nat44::Config::new(&nat44::Settings {
            external: s.external.clone(),
            inside: vec![],
            mapping: Mapping::EndpointIndependent,
            filtering: s.filtering,
            allocation: match s.allocation {
                Shares::Dynamic => Allocation::Dynamic,
                Shares::Blocks => Allocation::Blocks,
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
            let Some((protocol, outside, to)) = forward(text) else {
                let remedy = "write \"tcp 203.0.113.1:8080 -> [2001:db8::5]:80\"";
                return Err(wrong("forward", text, "is no forward", remedy));
            };
            let host = to.ip().to_bits();
            if prefix.has(host) || !inside.is_empty() && !inside.iter().any(|net| net.contains(to.ip())) {
                let problem = "leads to an address that is not inside";
                return Err(wrong("forward", text, problem, "add its network to inside"));
            }
            let number = *numbers.entry(host).or_insert_with(|| {
                fixed.push(host);
                fixed.len() as u32 - 1
            });
            nat.lead(text, protocol, outside, (number, to.port()))?;
        }
        Ok(Config { nat: nat.into(), prefix, inside, fixed, numbers, mtu: s.mtu.into(), fragment: s.fragment.into() })
    }

    /// Whether a host may be translated.
    #[inline(always)]
    pub(super) fn is_inside(&self, address: u128) -> bool {
        let host = Ipv6Addr::from_bits(address);
        let none = host.is_multicast() || host.is_unspecified() || host.is_loopback();
        !none && (self.inside.is_empty() || self.inside.iter().any(|net| net.contains(&host)))
    }

    /// Whether an IPv4 address may be the other end of a session: that of one host, and behind the well-known prefix of one
    /// that means the same everywhere (RFC 6052 §3.1, RFC 6146 §3.5).
    #[inline(always)]
    pub(super) fn is_host(&self, address: u32) -> bool {
        let [a, b, ..] = address.to_be_bytes();
        let none = a == 0 || a == 127 || a >= 224 || (a, b) == (169, 254);
        let private = a == 10 || (a, b & 0xf0) == (172, 16) || (a, b) == (192, 168) || (a, b & 0xc0) == (100, 64);
        !(none || private && self.prefix.is_well_known())
    }

    /// Which of several copies has what a host inside sends.
    pub(super) fn lane_inside(&self, host: u128, copies: usize) -> usize {
        let bound = self.numbers.get(&host).and_then(|number| self.nat.bound_to(*number));
        let mixed = (host as u64 ^ (host >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bound.map_or_else(|| spread((mixed >> 32) as u32, copies), |external| external % copies)
    }

    /// Which of several copies has what comes to an IPv4 address.
    pub(super) fn lane_outside(&self, external: u32, copies: usize) -> usize {
        self.nat.number(external).map_or(0, |number| number % copies)
    }
}
