//! What can be set, and what it comes to.

use super::flow::Flow;
use super::log::To;
use diagnostics::Diagnostic;
use foldhash::HashMap;
use graph::BuildContext;
use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};
use tables::flow::CAPACITY_MOST;
use wire::IpProtocol;

/// External addresses at most.
const MOST_ADDRESSES: usize = 4096;
/// Ports below this one are not given out.
const FIRST_PORT: u16 = 1024;

/// Settings of [`Nat44`](super::Nat44).
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// External addresses, each "203.0.113.1" or "203.0.113.16/28". A subscriber keeps one for all its sessions. With several
    /// cores each has its own of them, so there are at least as many.
    pub(crate) external: Vec<String>,
    /// Networks of the subscribers; empty: all. Packets from inside with another source pass as they are.
    pub(crate) inside: Vec<String>,
    /// What of an inside address and port keeps one external port: endpoint-independent (all its sessions) or
    /// endpoint-dependent (each session has its own, and one port serves many destinations).
    pub(crate) mapping: Mapping,
    /// Who may answer to a mapped port: endpoint-independent (anyone), address-dependent (addresses that were sent to) or
    /// address-and-port-dependent (exactly what was sent to).
    pub(crate) filtering: Filtering,
    /// How subscribers get ports: dynamic (any of their address), blocks (of block_size, as many as they need up to
    /// max_blocks) or deterministic (one block each, computed from the address; needs inside).
    pub(crate) allocation: Allocation,
    /// Ports of a block, 8 to 32768.
    pub(crate) block_size: u16,
    /// Blocks of one subscriber at most.
    pub(crate) max_blocks: u16,
    /// The first port that is given out; those up to 65535 follow.
    pub(crate) first_port: u16,
    /// Sessions at most, for each core; about 128 bytes each. One more is refused.
    pub(crate) sessions: u32,
    /// Subscribers at most, for each core.
    pub(crate) subscribers: u32,
    /// Sessions of one subscriber at most; 0: no limit.
    pub(crate) subscriber_sessions: u32,
    /// Seconds without a packet after which a session is forgotten.
    pub(crate) timers: Timers,
    /// Ports that lead inside whoever asks: "tcp 203.0.113.1:8080 -> 10.0.0.5:80".
    pub(crate) forward: Vec<String>,
    /// Whether subscribers reach each other by their external addresses.
    pub(crate) hairpin: bool,
    /// What becomes of packets to an external address that belong to no session: drop, or pass to whoever has that address.
    pub(crate) unmatched: Unmatched,
    /// Fragmented datagrams that are remembered at most.
    pub(crate) fragments: u32,
    /// Where begin and end of blocks and sessions are told over UDP: "192.0.2.1:514" as syslog, "ipfix://192.0.2.1:4739" as
    /// IPFIX; empty: nowhere. With blocks only the blocks are told, and with deterministic allocation nothing has to be.
    pub(crate) log: String,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            external: vec![],
            inside: vec![],
            mapping: Mapping::EndpointIndependent,
            filtering: Filtering::AddressAndPortDependent,
            allocation: Allocation::Dynamic,
            block_size: 512,
            max_blocks: 4,
            first_port: FIRST_PORT,
            sessions: 65_536,
            subscribers: 65_536,
            subscriber_sessions: 8192,
            timers: Timers::default(),
            forward: vec![],
            hairpin: true,
            unmatched: Unmatched::Drop,
            fragments: 4096,
            log: String::new(),
        }
    }
}

/// RFC 4787 §4.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mapping {
    /// All sessions of an inside address and port have one external port.
    EndpointIndependent,
    /// Each session has its own.
    EndpointDependent,
}

/// RFC 4787 §5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Filtering {
    /// Anyone may answer.
    EndpointIndependent,
    /// Whoever has an address that was sent to.
    AddressDependent,
    /// Only what was sent to.
    AddressAndPortDependent,
}

/// How subscribers get ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Allocation {
    /// Any port of their address.
    Dynamic,
    /// Blocks of ports (RFC 6888 REQ-14, RFC 7422).
    Blocks,
    /// One block each, computed (RFC 7422).
    Deterministic,
}

/// What becomes of packets from outside that nobody has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unmatched {
    /// They are dropped.
    Drop,
    /// They go on as they are.
    Pass,
}

/// Seconds without a packet after which a session is forgotten.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Timers {
    /// UDP (RFC 4787 REQ-5).
    udp: u32,
    /// TCP, once both ends have answered (RFC 5382 REQ-5).
    tcp_established: u32,
    /// TCP, while it opens or closes.
    tcp_transitory: u32,
    /// ICMP queries (RFC 5508 REQ-2).
    icmp: u32,
}

impl Default for Timers {
    fn default() -> Self {
        Timers { udp: 300, tcp_established: 7440, tcp_transitory: 240, icmp: 60 }
    }
}

/// A unit of time is that power of two of milliseconds, so that the table's clock holds eleven days.
pub(crate) const UNIT: u32 = 8;

/// Timers in units of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) udp: u32,
    pub(crate) established: u32,
    pub(crate) transitory: u32,
    pub(crate) icmp: u32,
}

/// A port that leads inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) protocol: u8,
    /// Number of its address among all.
    pub(crate) external: usize,
    pub(crate) port: u16,
    pub(crate) inside: u32,
    pub(crate) inside_port: u16,
}

/// What the settings come to: the same for all copies.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// All external addresses, in the order of the settings.
    pub(crate) external: Vec<u32>,
    by_address: HashMap<u32, usize>,
    inside: Vec<Ipv4Net>,
    pub(crate) mapping: Mapping,
    pub(crate) filtering: Filtering,
    pub(crate) allocation: Allocation,
    pub(crate) block_size: u16,
    pub(crate) max_blocks: usize,
    pub(crate) first_port: u16,
    pub(crate) sessions: usize,
    pub(crate) subscribers: usize,
    pub(crate) subscriber_sessions: u32,
    pub(crate) limits: Limits,
    pub(crate) forward: Vec<Forward>,
    /// Addresses of subscribers with forwards, which keep the external address of these.
    pinned: HashMap<u32, usize>,
    pub(crate) hairpin: bool,
    pub(crate) unmatched: Unmatched,
    pub(crate) fragments: usize,
    pub(crate) log: Option<To>,
}

fn wrong(key: &'static str, value: impl std::fmt::Display, problem: &str, remedy: impl Into<String>) -> Diagnostic {
    Diagnostic::new(problem).key(key).value(value).remedy(remedy)
}

fn nets(key: &'static str, list: &[String]) -> Result<Vec<Ipv4Net>, Diagnostic> {
    let net = |text: &String| {
        let one = text.parse::<Ipv4Addr>().ok().and_then(|a| Ipv4Net::new(a, 32).ok());
        one.or_else(|| text.parse().ok()).ok_or_else(|| {
            wrong(key, text, "is neither an IPv4 address nor a network", "write \"203.0.113.1\" or \"203.0.113.16/28\"")
        })
    };
    list.iter().map(net).collect()
}

/// Reads one [`Forward`] as it is written.
fn forward(text: &str) -> Option<(u8, SocketAddrV4, SocketAddrV4)> {
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
    pub(crate) fn new(s: &Settings) -> Result<Self, Diagnostic> {
        let mut external = vec![];
        for (net, text) in nets("external", &s.external)?.iter().zip(&s.external) {
            if external.len() + (1usize << (32 - net.prefix_len()).min(20)) > MOST_ADDRESSES {
                return Err(wrong(
                    "external",
                    text,
                    "are too many addresses",
                    format!("name {MOST_ADDRESSES} or fewer"),
                ));
            }
            // all of them: a pool is routed here, it is no link with a broadcast address
            let first = net.network().to_bits();
            external.extend((0..1u32 << (32 - net.prefix_len())).map(|n| first + n));
        }
        if external.is_empty() {
            return Err(wrong(
                "external",
                "",
                "is missing",
                "name one address at least, as in external = [\"203.0.113.1\"]",
            ));
        }
        let by_address: HashMap<u32, usize> = external.iter().copied().zip(0..).collect();
        if by_address.len() < external.len() {
            return Err(wrong("external", s.external.join(", "), "names an address twice", "name each once"));
        }
        let inside = nets("inside", &s.inside)?;
        if let Some(net) = inside.iter().find(|net| external.iter().any(|a| net.contains(&Ipv4Addr::from_bits(*a)))) {
            let problem = "has an external address in it";
            return Err(wrong(
                "inside",
                net,
                problem,
                "keep the networks of subscribers and the external addresses apart",
            ));
        }
        let ports = |remedy: &str| wrong("block_size", s.block_size, "is no size of a block", remedy);
        if !(8..=32_768).contains(&s.block_size) {
            return Err(ports("write 8 to 32768 ports"));
        }
        if s.first_port == 0 || s.first_port > 65_535 - s.block_size {
            return Err(wrong("first_port", s.first_port, "leaves no block of ports", "write 1024, say"));
        }
        if s.max_blocks == 0 {
            return Err(wrong("max_blocks", 0, "gives nobody a port", "write 1 or more"));
        }
        if s.sessions == 0 || s.sessions as usize > CAPACITY_MOST {
            return Err(wrong(
                "sessions",
                s.sessions,
                "is no number of sessions",
                format!("write 1 to {CAPACITY_MOST}"),
            ));
        }
        if s.subscribers == 0 {
            return Err(wrong("subscribers", 0, "lets nobody through", "write 1 or more"));
        }
        let units = |key: &'static str, seconds: u32| {
            if (1..=1_000_000).contains(&seconds) {
                // the clock may have been about to step: never early
                return Ok((u64::from(seconds) * 1000).div_ceil(1 << UNIT) as u32 + 1);
            }
            Err(wrong(key, seconds, "is no time after which to forget a session", "write 1 to 1000000 seconds"))
        };
        let t = &s.timers;
        let limits = Limits {
            udp: units("timers.udp", t.udp)?,
            established: units("timers.tcp_established", t.tcp_established)?,
            transitory: units("timers.tcp_transitory", t.tcp_transitory)?,
            icmp: units("timers.icmp", t.icmp)?,
        };
        let log = match s.log.as_str() {
            "" => None,
            text => Some(To::read(text).ok_or_else(|| {
                let remedy =
                    "write \"192.0.2.1:514\" for syslog, \"ipfix://192.0.2.1:4739\" for IPFIX, or nothing for no log";
                wrong("log", text, "is no address and port", remedy)
            })?),
        };
        let mut config = Config {
            external,
            by_address,
            inside,
            mapping: s.mapping,
            filtering: s.filtering,
            allocation: s.allocation,
            block_size: s.block_size,
            max_blocks: s.max_blocks.into(),
            first_port: s.first_port,
            sessions: s.sessions as usize,
            subscribers: s.subscribers as usize,
            subscriber_sessions: if s.subscriber_sessions == 0 { u32::MAX } else { s.subscriber_sessions },
            limits,
            forward: vec![],
            pinned: HashMap::default(),
            hairpin: s.hairpin,
            unmatched: s.unmatched,
            fragments: (s.fragments as usize).clamp(1, 1 << 20),
            log,
        };
        config.forwards(s)?;
        config.deterministic()?;
        Ok(config)
    }

    fn forwards(&mut self, s: &Settings) -> Result<(), Diagnostic> {
        for text in &s.forward {
            let Some((protocol, outside, inside)) = forward(text) else {
                return Err(wrong("forward", text, "is no forward", "write \"tcp 203.0.113.1:8080 -> 10.0.0.5:80\""));
            };
            self.lead(text, protocol, outside, (inside.ip().to_bits(), inside.port()))?;
            if !self.is_inside(inside.ip().to_bits()) {
                let problem = "leads to an address that is not inside";
                return Err(wrong("forward", text, problem, "add its network to inside"));
            }
        }
        Ok(())
    }

    /// One more forward, to this subscriber and port; `text` is as it is written.
    ///
    /// # Errors
    /// It begins nowhere, or contradicts another.
    pub(crate) fn lead(
        &mut self,
        text: &str,
        protocol: u8,
        outside: SocketAddrV4,
        (inside, inside_port): (u32, u16),
    ) -> Result<(), Diagnostic> {
        let wrong = |problem: &str, remedy: &str| wrong("forward", text, problem, remedy);
        let Some(external) = self.number(outside.ip().to_bits()) else {
            return Err(wrong("begins with an address that is not external", "name one of external"));
        };
        let new = Forward { protocol, external, port: outside.port(), inside, inside_port };
        let same = |f: &Forward| {
            let begin = (f.external, f.port) == (new.external, new.port);
            f.protocol == new.protocol && (begin || (f.inside, f.inside_port) == (new.inside, new.inside_port))
        };
        if self.forward.iter().any(same) {
            return Err(wrong("has a side that another forward has", "give each port one forward"));
        }
        if *self.pinned.entry(inside).or_insert(external) != external {
            let remedy = "give a host's forwards one external address: it uses that for all it sends";
            return Err(wrong("has another external address than an earlier one of that host", remedy));
        }
        self.forward.push(new);
        Ok(())
    }

    fn deterministic(&self) -> Result<(), Diagnostic> {
        if self.allocation != Allocation::Deterministic {
            return Ok(());
        }
        if self.inside.is_empty() {
            let remedy = "name the networks of the subscribers: each of their addresses gets its block";
            return Err(wrong("inside", "", "is needed for deterministic allocation", remedy));
        }
        let subscribers: u64 = self.inside.iter().map(|net| 1 << (32 - net.prefix_len())).sum();
        let room = self.external.len() as u64 * u64::from(self.blocks());
        if subscribers > room {
            let remedy = format!("add external addresses or make block_size smaller: there are {room} blocks");
            return Err(wrong("inside", subscribers, "subscribers are more than blocks", remedy));
        }
        let block = |port: u16| port.checked_sub(self.first_port).map(|above| above / self.block_size);
        let own = |f: &&Forward| match (self.computed(f.inside), block(f.port)) {
            // ports that nobody is given may be forwarded to anyone who has the address
            (Some((external, own)), Some(block)) => {
                external == f.external && (own == block || u32::from(block) >= self.blocks())
            }
            (Some((external, _)), None) => external == f.external,
            (None, _) => false,
        };
        if let Some(f) = self.forward.iter().find(|f| !own(f)) {
            let remedy = "name the external address and a port of the block that the host has by computation";
            return Err(wrong("forward", Ipv4Addr::from_bits(f.inside), "has another external address or block", remedy));
        }
        Ok(())
    }

    /// Blocks of one address.
    pub(crate) fn blocks(&self) -> u32 {
        (65_536 - u32::from(self.first_port)) / u32::from(self.block_size)
    }

    /// External address and block of a subscriber under deterministic allocation.
    pub(crate) fn computed(&self, subscriber: u32) -> Option<(usize, u16)> {
        let mut before = 0u64;
        for net in &self.inside {
            if net.contains(&Ipv4Addr::from_bits(subscriber)) {
                let n = before + u64::from(subscriber - net.network().to_bits());
                let (external, block) = (n / u64::from(self.blocks()), n % u64::from(self.blocks()));
                return Some((external as usize, block as u16));
            }
            before += 1 << (32 - net.prefix_len());
        }
        None
    }

    /// Number of an external address.
    pub(crate) fn number(&self, address: u32) -> Option<usize> {
        self.by_address.get(&address).copied()
    }

    /// Whether packets from this source are translated.
    pub(crate) fn is_inside(&self, address: u32) -> bool {
        let address = Ipv4Addr::from_bits(address);
        if self.inside.is_empty() { true } else { self.inside.iter().any(|net| net.contains(&address)) }
    }

    /// Whether a packet cannot have come from outside: its source is inside or one of ours, or it knows the way to an inside
    /// address. Nothing is known of that where all addresses may be inside.
    pub(crate) fn is_foreign(&self, src: u32, dst: u32) -> bool {
        let inside = |address| !self.inside.is_empty() && self.is_inside(address);
        inside(src) || inside(dst) || self.number(src).is_some()
    }

    /// External address that a subscriber has to have, if it is not free to get any.
    pub(crate) fn bound_to(&self, subscriber: u32) -> Option<usize> {
        match self.allocation {
            Allocation::Deterministic => self.computed(subscriber).map(|(external, _)| external),
            _ => self.pinned.get(&subscriber).copied(),
        }
    }

    /// Which of the external addresses are this copy's.
    ///
    /// # Errors
    /// None is.
    pub(crate) fn own(&self, cx: &BuildContext) -> Result<Vec<usize>, Diagnostic> {
        let (copy, copies) = (cx.copy.0, cx.copy.1.max(1));
        if copies > self.external.len() {
            let remedy = format!("name {copies} addresses at least, or give the chain fewer cores");
            return Err(wrong("external", self.external.len(), "are fewer addresses than cores", remedy));
        }
        Ok((0..self.external.len()).filter(|n| n % copies == copy).collect())
    }

    /// Which of several copies has a packet: by the subscriber on the inside, by the external address on the outside.
    pub(crate) fn lane(&self, inside: bool, flow: &Flow, copies: usize) -> usize {
        // what passes as it is goes by the host inside, too
        let host = if inside { flow.src } else { flow.dst };
        let external = if inside { self.bound_to(host) } else { self.number(host).or(self.bound_to(host)) };
        external.map_or_else(|| super::flow::spread(host, copies), |external| external % copies)
    }
}
