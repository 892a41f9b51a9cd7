//! Checked configuration of the load balancer.

use super::settings::{BackendSettings, Forward, HealthSettings, ServiceSettings, Settings};
use diagnostics::Diagnostic;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use tables::maglev::{self, Member, Ring};
use wire::IpProtocol;

/// Maximum number of virtual addresses.
const VIPS_MAX: usize = 4096;
/// Maximum number of pairs of a virtual address and a backend.
const DESTINATIONS_MAX: usize = 1 << 20;

/// Address, port and transport protocol.
pub(super) type Endpoint = (IpAddr, u16, IpProtocol);

/// A virtual address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vip {
    pub(super) endpoint: Endpoint,
    /// Number of the service.
    pub(super) service: usize,
}

/// A service, whose backends are a range of all backends.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) forward: Forward,
    pub(super) dscp: u8,
    pub(super) backends: Range<usize>,
    pub(super) health: HealthSettings,
}

/// A backend of one service.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) service: usize,
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
    pub(super) weight: u32,
    pub(super) drain: bool,
    /// Address and port of health checks.
    pub(super) check_address: SocketAddr,
}

/// Configuration of the load balancer.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) vips: Vec<Vip>,
    pub(super) services: Vec<Service>,
    pub(super) backends: Vec<Backend>,
    pub(super) source: Vec<IpAddr>,
    /// Slots of each service's table.
    pub(super) table_size: usize,
}

fn invalid(problem: impl Into<String>, key: &'static str, value: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new(problem).key(key).value(value)
}

/// Parses a virtual address.
fn parse_vip(text: &str) -> Option<Endpoint> {
    let (protocol, address) = text.split_once(' ')?;
    let protocol = match protocol {
        "tcp" => IpProtocol::TCP,
        "udp" => IpProtocol::UDP,
        _ => return None,
    };
    let address: SocketAddr = address.trim().parse().ok()?;
    (address.port() != 0).then_some((address.ip(), address.port(), protocol))
}

/// Returns true if the address can be that of one host.
fn is_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_multicast() || address.is_unspecified() || broadcast)
}

impl Config {
    pub(super) fn new(s: &Settings) -> Result<Self, Diagnostic> {
        let mut config = Config {
            vips: vec![],
            services: vec![],
            backends: vec![],
            source: s.source.clone(),
            table_size: s.table as usize,
        };
        if !maglev::is_prime(config.table_size) || config.table_size > maglev::SIZE_MOST {
            let next = (config.table_size.clamp(2, 65_537)..).find(|n| maglev::is_prime(*n)).unwrap_or(65_537);
            let d = invalid("table size is not a prime number in range", "table", s.table);
            return Err(d.remedy(format!("write a prime number up to {}, such as {next}", maglev::SIZE_MOST)));
        }
        if s.idle == 0 || s.idle > 1_000_000 {
            let d = invalid("idle timeout is out of range", "idle", s.idle);
            return Err(d.remedy("write 1 to 1000000 seconds"));
        }
        if s.mtu < 1280 {
            let d = invalid("MTU is smaller than the minimum of IPv6", "mtu", s.mtu);
            return Err(d.remedy("write 1280 or more"));
        }
        for (n, address) in s.source.iter().enumerate() {
            if !is_host(*address) || s.source[..n].iter().any(|a| a.is_ipv4() == address.is_ipv4()) {
                let d = invalid("not a source address for tunnels", "source", address);
                return Err(d.remedy("write one address of a host for each IP version"));
            }
        }
        for (name, service) in &s.service {
            config.add(name, service)?;
        }
        let destinations = config.destinations().count();
        if config.vips.len() > VIPS_MAX || destinations > DESTINATIONS_MAX {
            let d = invalid("too many virtual addresses or backends", "service", destinations);
            return Err(d.remedy(format!("write {VIPS_MAX} addresses and {DESTINATIONS_MAX} pairs at most")));
        }
        config.replies()?;
        // builds the rings with all backends up to find errors
        for n in 0..config.services.len() {
            config.ring(n, |_, backend| backend.weight).map_err(|e| {
                invalid(e.to_string(), "service", &config.services[n].name)
                    .remedy("give table more slots, or the service fewer backends, of weights up to 256")
            })?;
        }
        Ok(config)
    }

    fn add(&mut self, name: &str, service: &ServiceSettings) -> Result<(), Diagnostic> {
        let number = self.services.len();
        let bad = |problem: &str, remedy: &str| {
            Err(invalid(format!("service {name:?}: {problem}"), "service", name).remedy(remedy.to_owned()))
        };
        let ServiceSettings { vip: vips, forward, backend, dscp, health } = service;
        if vips.is_empty() || backend.is_empty() {
            return bad(
                "has no virtual address or no backend",
                "write vip = [\"tcp 192.0.2.10:80\"] and backend.NAME.address",
            );
        }
        if (*forward == Forward::L3dsr) != (1..=63).contains(dscp) {
            return bad(
                &format!("has dscp = {dscp}"),
                "write 1 to 63 with forward = \"l3dsr\", and nothing with others",
            );
        }
        let HealthSettings { interval, timeout, rise, fall, path, .. } = health;
        if [*interval, *timeout, *rise, *fall].contains(&0) || *timeout > 60_000 || *interval > 3_600_000 {
            return bad(
                "has health checks with times or counts that are out of range",
                "write interval, timeout, rise and fall of 1 or more; interval up to 3600000, timeout up to 60000",
            );
        }
        if !path.starts_with('/') || path.bytes().any(|b| b <= b' ' || b == 127) {
            return bad(&format!("has the invalid path {path:?}"), "write a path that begins with / and has no blanks");
        }
        for text in vips {
            let Some(endpoint) = parse_vip(text).filter(|(address, ..)| is_host(*address)) else {
                let d = invalid(format!("service {name:?}: not a virtual address"), "service", text);
                return Err(d.remedy("write one like \"tcp 192.0.2.10:80\" or \"udp [2001:db8::10]:53\""));
            };
            if self.vips.iter().any(|v| v.endpoint == endpoint) {
                return bad(&format!("{text} is a duplicate"), "assign each virtual address to one service, once");
            }
            self.vips.push(Vip { endpoint, service: number });
            for BackendSettings { address, .. } in backend.values() {
                self.check_reachable(name, *forward, endpoint.0, *address)?;
            }
        }
        let first = self.backends.len();
        let port = vips.iter().find_map(|text| parse_vip(text)).map_or(0, |(_, port, _)| port);
        for (backend_name, b) in backend {
            if b.port == Some(0) || (b.port.is_some() && *forward != Forward::Nat) {
                return bad("has a backend with a port", "write ports of 1 or more with forward = \"nat\" only");
            }
            let port = if health.port != 0 { health.port } else { b.port.unwrap_or(port) };
            self.backends.push(Backend {
                name: backend_name.clone(),
                service: number,
                address: b.address,
                port: b.port,
                weight: b.weight,
                drain: b.drain,
                check_address: (b.check_address.unwrap_or(b.address), port).into(),
            });
        }
        self.services.push(Service {
            name: name.to_owned(),
            forward: *forward,
            dscp: *dscp,
            backends: first..self.backends.len(),
            health: health.clone(),
        });
        Ok(())
    }

    fn check_reachable(&self, name: &str, forward: Forward, vip: IpAddr, to: IpAddr) -> Result<(), Diagnostic> {
        let remedy = match forward {
            _ if !is_host(to) => "write the address of a host",
            Forward::Gre | Forward::Ipip if self.source.iter().any(|s| s.is_ipv4() == to.is_ipv4()) => return Ok(()),
            Forward::Gre | Forward::Ipip => "write a source of its IP version",
            Forward::L3dsr | Forward::Nat if vip.is_ipv4() == to.is_ipv4() => return Ok(()),
            Forward::L3dsr | Forward::Nat => "write a backend of the virtual address's IP version, or use a tunnel",
        };
        Err(invalid(format!("service {name:?}: backend cannot be reached from {vip}"), "service", to).remedy(remedy))
    }

    /// Returns all pairs of a virtual address and a backend, as numbers.
    pub(super) fn destinations(&self) -> impl Iterator<Item = (usize, usize)> {
        let vips = self.vips.iter().enumerate();
        vips.flat_map(|(vip, v)| self.services[v.service].backends.clone().map(move |backend| (vip, backend)))
    }

    /// Returns the virtual address of replies from backends of NAT services.
    fn replies(&self) -> Result<HashMap<Endpoint, usize>, Diagnostic> {
        let mut replies = HashMap::new();
        for (number, Vip { endpoint: (_, port, protocol), service }) in self.vips.iter().enumerate() {
            let Service { forward: Forward::Nat, backends, name, .. } = &self.services[*service] else { continue };
            for b in &self.backends[backends.clone()] {
                let from = (b.address, b.port.unwrap_or(*port), *protocol);
                if replies.insert(from, number).is_some() {
                    let (address, port, _) = from;
                    let problem =
                        format!("service {name:?}: replies of {address} port {port} match two virtual addresses");
                    let d = invalid(problem, "service", &b.name);
                    return Err(d.remedy("give the backend another port for each virtual address"));
                }
            }
        }
        Ok(replies)
    }

    /// As [`replies`](Self::replies), with the endpoints of the virtual addresses, in order.
    pub(super) fn sorted_replies(&self) -> Result<Vec<(Endpoint, Endpoint)>, Diagnostic> {
        let replies = self.replies()?.into_iter();
        let mut replies: Vec<_> = replies.map(|(from, vip)| (from, self.vips[vip].endpoint)).collect();
        replies.sort();
        Ok(replies)
    }

    /// Builds the ring of a service; `weight` returns the weight of a backend from its number and settings.
    pub(super) fn ring(&self, service: usize, weight: impl Fn(usize, &Backend) -> u32) -> Result<Ring, maglev::Error> {
        let member = |at: usize| {
            let b = &self.backends[at];
            Member { name: &b.name, weight: weight(at, b) }
        };
        let members: Vec<_> = self.services[service].backends.clone().map(member).collect();
        Ring::build(self.table_size, &members)
    }
}
