//! Listing and changing the routes of a running router.

use super::config::Config;
use super::fib::adjacency::AdjacencyKind;
use super::fib::route_file::{self, RouteTarget};
use super::fib::{Fib, Member, NextHops, interface_of};
use super::route_source::RouteSource;
use control::{NextHop, Route, RouteChange, RoutesChanged, RoutesPage};
use diagnostics::Diagnostic;
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Once, OnceLock, Weak};

/// Most routes of a page.
const PAGE: usize = 500;
/// Routes whose neighbours are read while workers may wait for the lock.
const ROUTES_PER_LOCK: usize = 32;

/// The routes of a router, those of its tenants among them, which all copies share.
pub struct LiveRoutes {
    pub(super) fib: Arc<Fib>,
    pub(super) config: Config,
    /// Names of the representors.
    pub(super) representors: Vec<String>,
    /// The router that is to replace this one, which gets the same changes of installed routes.
    pub(super) next: Mutex<Option<NextRouter>>,
    /// Done when the installed routes of the router before are taken over.
    pub(super) taken_over: Once,
    /// Of each VRF.
    pub(super) lineages: Vec<OnceLock<u64>>,
}

/// A router that is to replace another one.
#[derive(Clone)]
pub(super) struct NextRouter {
    pub(super) router: Weak<LiveRoutes>,
    /// Numbers that it has for the interfaces of the other one.
    pub(super) same: Arc<[Option<usize>]>,
}

/// The routes of a tenant, or of the router itself.
#[derive(Clone)]
pub struct LiveVrf {
    pub(super) router: Arc<LiveRoutes>,
    pub(super) vrf: usize,
}

/// A parsed change.
enum Change {
    Add(IpNet, RouteTarget),
    Remove(IpNet),
}

impl LiveRoutes {
    pub(super) fn new(fib: Arc<Fib>, config: Config, representors: Vec<String>) -> Self {
        let lineages = config.vrfs.iter().map(|_| OnceLock::new()).collect();
        LiveRoutes { fib, config, representors, next: Mutex::default(), taken_over: Once::new(), lineages }
    }
}

impl LiveVrf {
    /// Returns a page of the routes from a position on, without those to neighbours and to the router itself.
    ///
    /// # Errors
    /// An invalid position.
    pub fn page(&self, cursor: Option<&str>) -> Result<RoutesPage, Diagnostic> {
        let mut position = Position::parse(cursor)?;
        // no route changes meanwhile, and workers do not wait for the tables
        let fib = &self.router.fib;
        let hops = fib.next_hops(self.vrf);
        let mut found = vec![];
        while let Some((ipv6, len, skip)) = position.0 {
            let page = fib.tables(self.vrf).page((ipv6, len), skip, PAGE - found.len());
            position = match page.len() {
                n if n == PAGE - found.len() => Position(Some((ipv6, len, skip + n))),
                _ => Position::after(ipv6, len),
            };
            found.extend(page);
            if found.len() >= PAGE {
                break;
            }
        }
        let routes = found.chunks(ROUTES_PER_LOCK).flat_map(|part| self.routes(&hops, part)).collect();
        let tenant = self.tenant().map(str::to_owned);
        Ok(RoutesPage { nf: String::new(), tenant, routes, next: position.to_text() })
    }

    /// Describes routes with these values.
    fn routes(&self, hops: &NextHops, routes: &[(IpNet, u32)]) -> Vec<Route> {
        let LiveRoutes { fib, config, .. } = &*self.router;
        let installed = self.source().map_or("", RouteSource::name);
        let name = |interface: usize| config.interfaces.get(interface).map(|interface| interface.name.clone());
        let described = |&(net, value): &(IpNet, u32)| {
            let adjacency = fib.adjacency(value).load();
            let is_installed = fib.is_installed((self.vrf, net));
            let (target, via, interface) = match adjacency.kind() {
                AdjacencyKind::NoRoute | AdjacencyKind::Local | AdjacencyKind::Martian | AdjacencyKind::Broadcast => {
                    return None;
                }
                AdjacencyKind::Unreachable => ("unreachable", vec![], None),
                AdjacencyKind::Prohibited => ("prohibit", vec![], None),
                AdjacencyKind::Blackhole => ("blackhole", vec![], None),
                AdjacencyKind::Connected => ("connected", vec![], name(interface_of(value))),
                AdjacencyKind::Resolved | AdjacencyKind::Unresolved
                    if !is_installed && fib.is_neighbour_route(net, value) =>
                {
                    return None;
                }
                AdjacencyKind::Resolved | AdjacencyKind::Unresolved | AdjacencyKind::Group => {
                    ("via", hops.members(value).to_vec(), None)
                }
            };
            let source = if is_installed {
                installed
            } else if target == "connected" {
                "connected"
            } else {
                "static"
            };
            Some((net, target, source, via, interface))
        };
        let described: Vec<_> = routes.iter().filter_map(described).collect();
        let control = fib.control();
        let hop = |(key, weight): Member| {
            let (state, mac) = control.neighbour(key)?;
            Some(NextHop {
                address: key.1.to_string(),
                interface: name(key.0).unwrap_or_default(),
                weight,
                state: state.to_owned(),
                mac: mac.map(|mac| mac.to_string()),
            })
        };
        let route = |(net, target, source, via, interface): (IpNet, &str, &str, Vec<Member>, Option<String>)| Route {
            prefix: net.to_string(),
            target: target.to_owned(),
            source: source.to_owned(),
            interface,
            via: via.into_iter().filter_map(hop).collect(),
        };
        described.into_iter().map(route).collect()
    }

    /// Changes routes; workers apply each with the next packet that they look up.
    ///
    /// # Errors
    /// The first invalid change; nothing has changed then. If a table is full, the changes before have been made.
    pub fn change(&self, changes: &[RouteChange]) -> Result<RoutesChanged, Diagnostic> {
        let changes: Vec<Change> = changes.iter().map(parse).collect::<Result<_, _>>()?;
        let LiveRoutes { fib, config, .. } = &*self.router;
        let mut hops = fib.next_hops(self.vrf);
        for change in &changes {
            match change {
                Change::Add(net, to) => fib.check_addition(config, (self.vrf, *net), to)?,
                Change::Remove(net) => fib.check_removal((self.vrf, *net))?,
            }
        }
        let tenant = self.tenant().map(str::to_owned);
        let mut changed = RoutesChanged { tenant, ..RoutesChanged::default() };
        for change in &changes {
            match change {
                Change::Add(net, to) => {
                    fib.add_route(config, &mut hops, (self.vrf, *net), to)?;
                    changed.added += 1;
                }
                Change::Remove(net) => {
                    fib.remove_route(&mut hops, (self.vrf, *net))?;
                    changed.removed += 1;
                }
            }
        }
        Ok(changed)
    }
}

fn parse(change: &RouteChange) -> Result<Change, Diagnostic> {
    match change {
        RouteChange::Add(text) => match route_file::parse(text) {
            Ok(Some((net, to))) => Ok(Change::Add(net, to)),
            parsed => {
                let problem = parsed.err().unwrap_or_else(|| "is empty".to_owned());
                let remedy = "write PREFIX via ADDRESS..., PREFIX unreachable or PREFIX blackhole";
                Err(Diagnostic::new(problem).value(text).remedy(remedy))
            }
        },
        RouteChange::Remove(text) => {
            let net = text.trim().parse::<IpNet>().ok().or_else(|| text.trim().parse::<IpAddr>().ok().map(IpNet::from));
            let invalid = || Diagnostic::new("is not a prefix").value(text).remedy("write a prefix such as 10.0.0.0/8");
            net.map(|net| Change::Remove(net.trunc())).ok_or_else(invalid)
        }
    }
}

/// IP version, length of the prefix and number of routes of this length that precede; none after the last route.
struct Position(Option<(bool, u8, usize)>);

impl Position {
    fn parse(cursor: Option<&str>) -> Result<Position, Diagnostic> {
        let Some(text) = cursor else { return Ok(Position(Some((false, 0, 0)))) };
        let parsed = || {
            let mut words = text.split(':');
            let ipv6 = match words.next()? {
                "4" => false,
                "6" => true,
                _ => return None,
            };
            let (len, skip) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            (len <= if ipv6 { 128 } else { 32 } && words.next().is_none()).then_some((ipv6, len, skip))
        };
        match parsed() {
            Some(position) => Ok(Position(Some(position))),
            None => {
                Err(Diagnostic::new("is not the next of a response").value(text).remedy("send it as it was received"))
            }
        }
    }

    /// Returns the position after the last route of a length.
    fn after(ipv6: bool, len: u8) -> Position {
        Position(match (ipv6, len) {
            (false, 32) => Some((true, 0, 0)),
            (true, 128) => None,
            _ => Some((ipv6, len + 1, 0)),
        })
    }

    fn to_text(&self) -> Option<String> {
        self.0.map(|(ipv6, len, skip)| format!("{}:{len}:{skip}", if ipv6 { 6 } else { 4 }))
    }
}
