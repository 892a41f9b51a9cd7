//! Checked configuration that `nat44` and `nat64` share.

use super::flow::{Flow, hash_to_index};
use super::log::target::LogTarget;
use super::settings::{Allocation, Filtering, Mapping, Settings, Unmatched};
use diagnostics::Diagnostic;
use foldhash::HashMap;
use graph::BuildContext;
use ipnet::Ipv4Net;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;
use tables::flow::CAPACITY_MOST;
use wire::IpProtocol;

/// Largest number of external addresses.
const MAX_EXTERNAL_ADDRESSES: usize = 4096;

/// The session tables count time in units of 2^8 ms, so that their clock spans eleven days.
pub(crate) const TICK_SHIFT: u32 = 8;

/// Idle timeouts in units of 2^[`TICK_SHIFT`] ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) udp: u32,
    pub(crate) established: u32,
    pub(crate) transitory: u32,
    pub(crate) icmp: u32,
}

/// A static port forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Forward {
    pub(crate) protocol: u8,
    /// Index of the external address.
    pub(crate) external: usize,
    pub(crate) port: u16,
    pub(crate) inside: u32,
    pub(crate) inside_port: u16,
}

/// Checked settings, the same for all cores.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// All external addresses, in the order of the settings.
    pub(crate) external: Vec<u32>,
    by_address: HashMap<u32, usize>,
    /// Lowest and highest external address.
    external_range: (u32, u32),
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
    pub(crate) timeouts: Timeouts,
    pub(crate) forward: Vec<Forward>,
    /// External address of each subscriber that has a forward: that of the forward.
    forward_external: HashMap<u32, usize>,
    pub(crate) hairpin: bool,
    pub(crate) unmatched: Unmatched,
    pub(crate) fragments: usize,
    pub(crate) log: Option<LogTarget>,
}

fn invalid(key: &'static str, value: impl std::fmt::Display, problem: &str, remedy: impl Into<String>) -> Diagnostic {
    Diagnostic::new(problem).key(key).value(value).remedy(remedy)
}

fn parse_networks(key: &'static str, list: &[String]) -> Result<Vec<Ipv4Net>, Diagnostic> {
    let net = |text: &String| {
        let one = text.parse::<Ipv4Addr>().ok().and_then(|a| Ipv4Net::new(a, 32).ok());
        one.or_else(|| text.parse().ok()).ok_or_else(|| {
            invalid(key, text, "is not an IPv4 address or network", "write \"203.0.113.1\" or \"203.0.113.16/28\"")
        })
    };
    list.iter().map(net).collect()
}

/// Parses the text of a [`Forward`]: protocol, external endpoint, inside endpoint.
pub(super) fn parse_forward<A: FromStr>(text: &str) -> Option<(u8, SocketAddrV4, A)> {
    let (protocol, endpoints) = text.split_once(' ')?;
    let (outside, inside) = endpoints.split_once("->")?;
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
    /// Returns the first invalid setting.
    pub(crate) fn new(s: &Settings) -> Result<Self, Diagnostic> {
        let mut external = vec![];
        for (net, text) in parse_networks("external", &s.external)?.iter().zip(&s.external) {
            if external.len() + (1usize << (32 - net.prefix_len()).min(20)) > MAX_EXTERNAL_ADDRESSES {
                return Err(invalid(
                    "external",
                    text,
                    "exceeds the largest number of external addresses",
                    format!("write at most {MAX_EXTERNAL_ADDRESSES} addresses in all"),
                ));
            }
            // network and broadcast address included: the pool is routed here and is not a link
            let first = net.network().to_bits();
            external.extend((0..1u32 << (32 - net.prefix_len())).map(|n| first + n));
        }
        if external.is_empty() {
            return Err(invalid(
                "external",
                "",
                "is missing",
                "write at least one address, as in external = [\"203.0.113.1\"]",
            ));
        }
        let by_address: HashMap<u32, usize> = external.iter().copied().zip(0..).collect();
        if by_address.len() < external.len() {
            return Err(invalid(
                "external",
                s.external.join(", "),
                "contains an address twice",
                "write each address once",
            ));
        }
        let inside = parse_networks("inside", &s.inside)?;
        if let Some(net) = inside.iter().find(|net| external.iter().any(|a| net.contains(&Ipv4Addr::from_bits(*a)))) {
            let problem = "contains an external address";
            return Err(invalid("inside", net, problem, "inside networks and external addresses must not overlap"));
        }
        let ports = |remedy: &str| invalid("block_size", s.block_size, "is not a valid block size", remedy);
        if !(8..=32_768).contains(&s.block_size) {
            return Err(ports("write 8 to 32768 ports"));
        }
        if s.first_port == 0 || s.first_port > 65_535 - s.block_size {
            return Err(invalid(
                "first_port",
                s.first_port,
                "leaves no room for a block of ports",
                "write 1 to 65535 - block_size, such as 1024",
            ));
        }
        if s.max_blocks == 0 {
            return Err(invalid("max_blocks", 0, "is not a valid number of blocks", "write 1 or more"));
        }
        if s.sessions == 0 || s.sessions as usize > CAPACITY_MOST {
            return Err(invalid(
                "sessions",
                s.sessions,
                "is not a valid number of sessions",
                format!("write 1 to {CAPACITY_MOST}"),
            ));
        }
        if s.subscribers == 0 {
            return Err(invalid("subscribers", 0, "is not a valid number of subscribers", "write 1 or more"));
        }
        let units = |key: &'static str, seconds: u32| {
            if (1..=1_000_000).contains(&seconds) {
                // one more, because the clock may advance right after the last packet
                return Ok((u64::from(seconds) * 1000).div_ceil(1 << TICK_SHIFT) as u32 + 1);
            }
            Err(invalid(key, seconds, "is not a valid idle timeout", "write 1 to 1000000 seconds"))
        };
        let t = &s.timers;
        let timeouts = Timeouts {
            udp: units("timers.udp", t.udp)?,
            established: units("timers.tcp_established", t.tcp_established)?,
            transitory: units("timers.tcp_transitory", t.tcp_transitory)?,
            icmp: units("timers.icmp", t.icmp)?,
        };
        let log = match s.log.as_str() {
            "" => None,
            text => Some(LogTarget::parse(text).ok_or_else(|| {
                let remedy =
                    "write \"192.0.2.1:514\" for syslog, \"ipfix://192.0.2.1:4739\" for IPFIX, or \"\" for no log";
                invalid("log", text, "is not an address and port", remedy)
            })?),
        };
        let mut config = Config {
            external_range: (*external.iter().min().unwrap_or(&0), *external.iter().max().unwrap_or(&0)),
            by_address,
            external,
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
            timeouts,
            forward: vec![],
            forward_external: HashMap::default(),
            hairpin: s.hairpin,
            unmatched: s.unmatched,
            fragments: (s.fragments as usize).clamp(1, 1 << 20),
            log,
        };
        config.add_forwards(s)?;
        config.check_deterministic()?;
        Ok(config)
    }

    fn add_forwards(&mut self, s: &Settings) -> Result<(), Diagnostic> {
        for text in &s.forward {
            let Some((protocol, outside, inside)) = parse_forward::<SocketAddrV4>(text) else {
                return Err(invalid(
                    "forward",
                    text,
                    "is not a port forward",
                    "write \"tcp 203.0.113.1:8080 -> 10.0.0.5:80\"",
                ));
            };
            self.add_forward(text, protocol, outside, (inside.ip().to_bits(), inside.port()))?;
            if !self.is_inside(inside.ip().to_bits()) {
                let problem = "forwards to an address that is not inside";
                return Err(invalid("forward", text, problem, "add its network to inside"));
            }
        }
        Ok(())
    }

    /// Adds a forward to a subscriber and port. `text` is the setting, for messages.
    ///
    /// # Errors
    /// The outside address is not external, or the forward conflicts with another.
    pub(crate) fn add_forward(
        &mut self,
        text: &str,
        protocol: u8,
        outside: SocketAddrV4,
        (inside, inside_port): (u32, u16),
    ) -> Result<(), Diagnostic> {
        let invalid = |problem: &str, remedy: &str| invalid("forward", text, problem, remedy);
        let Some(external) = self.external_index(outside.ip().to_bits()) else {
            return Err(invalid(
                "forwards from an address that is not external",
                "write one of the addresses of external",
            ));
        };
        let new = Forward { protocol, external, port: outside.port(), inside, inside_port };
        let same = |f: &Forward| {
            let begin = (f.external, f.port) == (new.external, new.port);
            f.protocol == new.protocol && (begin || (f.inside, f.inside_port) == (new.inside, new.inside_port))
        };
        if self.forward.iter().any(same) {
            return Err(invalid("uses an endpoint of another forward", "write one forward for each port"));
        }
        if *self.forward_external.entry(inside).or_insert(external) != external {
            let remedy = "use one external address for all forwards of a host: all its sessions have that address";
            return Err(invalid("has another external address than an earlier forward of the same host", remedy));
        }
        self.forward.push(new);
        Ok(())
    }

    fn check_deterministic(&self) -> Result<(), Diagnostic> {
        if self.allocation != Allocation::Deterministic {
            return Ok(());
        }
        if self.inside.is_empty() {
            let remedy = "write the networks of the subscribers; each of their addresses gets a block";
            return Err(invalid("inside", "", "is required for deterministic allocation", remedy));
        }
        let subscribers: u64 = self.inside.iter().map(|net| 1 << (32 - net.prefix_len())).sum();
        let room = self.external.len() as u64 * u64::from(self.blocks());
        if subscribers > room {
            let remedy = format!("add external addresses or reduce block_size: there are {room} blocks");
            return Err(invalid("inside", subscribers, "more subscribers than port blocks", remedy));
        }
        let block = |port: u16| port.checked_sub(self.first_port).map(|above| above / self.block_size);
        let own = |f: &&Forward| match (self.deterministic_block(f.inside), block(f.port)) {
            // ports above the last block are never allocated and may be forwarded by any subscriber of the address
            (Some((external, own)), Some(block)) => {
                external == f.external && (own == block || u32::from(block) >= self.blocks())
            }
            (Some((external, _)), None) => external == f.external,
            (None, _) => false,
        };
        if let Some(f) = self.forward.iter().find(|f| !own(f)) {
            let remedy = "write the external address and a port of the block that is computed for the host";
            return Err(invalid(
                "forward",
                Ipv4Addr::from_bits(f.inside),
                "does not match the external address or block computed for the host",
                remedy,
            ));
        }
        Ok(())
    }

    /// Returns the number of blocks per external address.
    pub(crate) fn blocks(&self) -> u32 {
        (65_536 - u32::from(self.first_port)) / u32::from(self.block_size)
    }

    /// Returns the external address and block of a subscriber under deterministic allocation.
    pub(crate) fn deterministic_block(&self, subscriber: u32) -> Option<(usize, u16)> {
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

    /// Returns the index of an external address.
    #[inline]
    pub(crate) fn external_index(&self, address: u32) -> Option<usize> {
        let (lowest, highest) = self.external_range;
        if address < lowest || address > highest { None } else { self.by_address.get(&address).copied() }
    }

    /// Returns true if packets with this source are translated.
    pub(crate) fn is_inside(&self, address: u32) -> bool {
        let address = Ipv4Addr::from_bits(address);
        if self.inside.is_empty() { true } else { self.inside.iter().any(|net| net.contains(&address)) }
    }

    /// Returns true if a packet cannot come from outside: its source is inside or external, or its destination is
    /// inside. Inside addresses are not checked if `inside` is empty.
    pub(crate) fn is_spoofed(&self, src: u32, dst: u32) -> bool {
        let inside = |address| !self.inside.is_empty() && self.is_inside(address);
        inside(src) || inside(dst) || self.external_index(src).is_some()
    }

    /// Returns the index of the external address that a subscriber must use, if there is such a requirement.
    pub(crate) fn required_external(&self, subscriber: u32) -> Option<usize> {
        match self.allocation {
            Allocation::Deterministic => self.deterministic_block(subscriber).map(|(external, _)| external),
            _ => self.forward_external.get(&subscriber).copied(),
        }
    }

    /// Returns the indices of this core's external addresses.
    ///
    /// # Errors
    /// There are fewer addresses than cores.
    pub(crate) fn own_externals(&self, cx: &BuildContext) -> Result<Vec<usize>, Diagnostic> {
        let (copy, copies) = (cx.copy.0, cx.copy.1.max(1));
        if copies > self.external.len() {
            let remedy = format!("write at least {copies} addresses, or give the chain fewer cores");
            return Err(invalid("external", self.external.len(), "fewer addresses than cores", remedy));
        }
        Ok((0..self.external.len()).filter(|n| n % copies == copy).collect())
    }

    /// Returns the copy that processes a packet: by the subscriber on the inside, by the external address on the
    /// outside.
    pub(crate) fn copy_of(&self, inside: bool, flow: &Flow, copies: usize) -> usize {
        // packets that pass are steered by the inside host too, those of the router itself by its external address
        let host = if inside { flow.src } else { flow.dst };
        let external = self.external_index(host).or_else(|| self.required_external(host));
        external.map_or_else(|| hash_to_index(host, copies), |external| external % copies)
    }
}
