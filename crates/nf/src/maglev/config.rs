//! Settings, read and checked.

use super::{Backend as Written, Forward, Health, Service as WrittenService, Settings};
use diagnostics::Diagnostic;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use tables::maglev::{self, Member, Ring};
use wire::IpProtocol;

/// Virtual addresses at most.
const VIPS_MOST: usize = 4096;
/// Pairs of a virtual address and a backend at most.
const TARGETS_MOST: usize = 1 << 20;

/// A transport address: what a service is known by.
pub(super) type Place = (IpAddr, u16, IpProtocol);

/// A virtual address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vip {
    pub(super) place: Place,
    /// Number of its service.
    pub(super) service: usize,
}

/// A service: its backends are a part of all.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: String,
    pub(super) forward: Forward,
    pub(super) dscp: u8,
    pub(super) backends: Range<usize>,
    pub(super) health: Health,
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
    /// Where it is asked for its health.
    pub(super) check: SocketAddr,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) vips: Vec<Vip>,
    pub(super) services: Vec<Service>,
    pub(super) backends: Vec<Backend>,
    pub(super) source: Vec<IpAddr>,
    pub(super) size: usize,
}

fn fault(problem: impl Into<String>, key: &'static str, value: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new(problem).key(key).value(value)
}

/// A virtual address as it is written.
fn vip(text: &str) -> Option<Place> {
    let (protocol, rest) = text.split_once(' ')?;
    let protocol = match protocol {
        "tcp" => IpProtocol::TCP,
        "udp" => IpProtocol::UDP,
        _ => return None,
    };
    let at: SocketAddr = rest.trim().parse().ok()?;
    (at.port() != 0).then_some((at.ip(), at.port(), protocol))
}

/// Whether packets can have it as destination, and are then one host's.
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
            size: s.table as usize,
        };
        if !maglev::is_prime(config.size) || config.size > maglev::SIZE_MOST {
            let next = (config.size.clamp(2, 65_537)..).find(|n| maglev::is_prime(*n)).unwrap_or(65_537);
            let d = fault("is no size for a table", "table", s.table);
            return Err(d.remedy(format!("write a prime number up to {}, such as {next}", maglev::SIZE_MOST)));
        }
        if s.idle == 0 || s.idle > 1_000_000 {
            let d = fault("is no time after which to forget a connection", "idle", s.idle);
            return Err(d.remedy("write 1 to 1000000 seconds"));
        }
        if s.mtu < 1280 {
            let d = fault("is shorter than what every link carries", "mtu", s.mtu);
            return Err(d.remedy("write 1280 or more"));
        }
        for (n, address) in s.source.iter().enumerate() {
            if !is_host(*address) || s.source[..n].iter().any(|a| a.is_ipv4() == address.is_ipv4()) {
                let d = fault("is no source for tunnels", "source", address);
                return Err(d.remedy("write one address of a host for each IP version"));
            }
        }
        for (name, service) in &s.service {
            config.add(name, service)?;
        }
        let targets: usize = config.vips.iter().map(|v| config.services[v.service].backends.len()).sum();
        if config.vips.len() > VIPS_MOST || targets > TARGETS_MOST {
            let d = fault("are too many virtual addresses or backends of them", "service", targets);
            return Err(d.remedy(format!("write {VIPS_MOST} addresses and {TARGETS_MOST} pairs at most")));
        }
        config.replies()?;
        // with all of them, so that what is written is found wrong now
        for n in 0..config.services.len() {
            config.ring(n, |_, backend| backend.weight).map_err(|e| {
                fault(e.to_string(), "service", &config.services[n].name)
                    .remedy("give table more slots, or the service fewer backends, of weights up to 256")
            })?;
        }
        Ok(config)
    }

    fn add(&mut self, name: &str, service: &WrittenService) -> Result<(), Diagnostic> {
        let number = self.services.len();
        let bad = |problem: &str, remedy: &str| {
            Err(fault(format!("service {name:?}: {problem}"), "service", name).remedy(remedy.to_owned()))
        };
        let WrittenService { vip: vips, forward, backend, dscp, health } = service;
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
        let Health { every, timeout, rise, fall, path, .. } = health;
        if [*every, *timeout, *rise, *fall].contains(&0) || *timeout > 60_000 || *every > 3_600_000 {
            return bad(
                "has checks that never come or never end",
                "write every, timeout, rise and fall, none of them 0; every up to 3600000, timeout up to 60000",
            );
        }
        if !path.starts_with('/') || path.bytes().any(|b| b <= b' ' || b == 127) {
            return bad(&format!("has no page {path:?}"), "write a path that begins with / and has no blanks");
        }
        for text in vips {
            let Some(place) = vip(text).filter(|(address, ..)| is_host(*address)) else {
                let d = fault(format!("service {name:?}: is no virtual address"), "service", text);
                return Err(d.remedy("write one like \"tcp 192.0.2.10:80\" or \"udp [2001:db8::10]:53\""));
            };
            if self.vips.iter().any(|v| v.place == place) {
                return bad(&format!("{text} is there twice"), "give each virtual address to one service, once");
            }
            self.vips.push(Vip { place, service: number });
            for Written { address, .. } in backend.values() {
                self.reachable(name, *forward, place.0, *address)?;
            }
        }
        let first = self.backends.len();
        let port = vips.iter().find_map(|text| vip(text)).map_or(0, |(_, port, _)| port);
        for (backend_name, b) in backend {
            if b.port == Some(0) || (b.port.is_some() && *forward != Forward::Nat) {
                return bad("has a backend with a port", "ports go with forward = \"nat\", from 1 up");
            }
            let port = if health.port != 0 { health.port } else { b.port.unwrap_or(port) };
            self.backends.push(Backend {
                name: backend_name.clone(),
                service: number,
                address: b.address,
                port: b.port,
                weight: b.weight,
                drain: b.drain,
                check: (b.check.unwrap_or(b.address), port).into(),
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

    fn reachable(&self, name: &str, forward: Forward, vip: IpAddr, to: IpAddr) -> Result<(), Diagnostic> {
        let remedy = match forward {
            _ if !is_host(to) => "write the address of a host",
            Forward::Gre | Forward::Ipip if self.source.iter().any(|s| s.is_ipv4() == to.is_ipv4()) => return Ok(()),
            Forward::Gre | Forward::Ipip => "write a source of its IP version",
            Forward::L3dsr | Forward::Nat if vip.is_ipv4() == to.is_ipv4() => return Ok(()),
            Forward::L3dsr | Forward::Nat => "write a backend of the virtual address's IP version, or use a tunnel",
        };
        Err(fault(format!("service {name:?}: cannot be reached from {vip}"), "service", to).remedy(remedy))
    }

    /// With NAT: which virtual address answers belong to, by where they come from.
    pub(super) fn replies(&self) -> Result<HashMap<Place, usize>, Diagnostic> {
        let mut replies = HashMap::new();
        for (number, Vip { place: (_, port, protocol), service }) in self.vips.iter().enumerate() {
            let Service { forward: Forward::Nat, backends, name, .. } = &self.services[*service] else { continue };
            for b in &self.backends[backends.clone()] {
                let from = (b.address, b.port.unwrap_or(*port), *protocol);
                if replies.insert(from, number).is_some() {
                    let d = fault(
                        format!(
                            "service {name:?}: answers of {} port {} could be two virtual addresses'",
                            from.0, from.1
                        ),
                        "service",
                        &b.name,
                    );
                    return Err(d.remedy("give the backend another port for each virtual address"));
                }
            }
        }
        Ok(replies)
    }

    /// The ring of a service, whose backends, each with its number, have these weights.
    pub(super) fn ring(&self, service: usize, weight: impl Fn(usize, &Backend) -> u32) -> Result<Ring, maglev::Error> {
        let member = |at: usize| {
            let b = &self.backends[at];
            Member { name: &b.name, weight: weight(at, b) }
        };
        let members: Vec<_> = self.services[service].backends.clone().map(member).collect();
        Ring::build(self.size, &members)
    }
}
