//! Forwarding information base: routes and neighbours, shared by the copies of a router.
//!
//! Workers look up addresses and load adjacencies without a lock. For changes of neighbours they take the lock of
//! [`Control`], and that of the tables if it is free. A change of routes of a VRF takes that of its [`NextHops`], then that
//! of its tables, then that of [`Control`], and waits for no other lock while holding that which workers wait for. Only
//! [`Control`] and the exact-match tables, which are locked last, are shared by VRFs: they are held for a moment, and changes
//! of routes in one VRF do not wait for those in others.

pub(super) mod adjacency;
mod groups;
mod installed;
pub(super) mod installed_routes;
mod live_changes;
mod next_hops;
pub(super) mod route_file;
pub(super) mod route_tables;
mod saved_neighbours;
mod share;

use super::config::Config;
use super::interface::{Interface, mask4, mask6};
use super::settings::{HostTable, RouteSettings, RouteType, Settings, TenantSettings};
use crate::large_table::Progress;
pub(super) use adjacency::NeighbourKey;
use adjacency::{Adjacency, AdjacencyKind};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use diagnostics::Diagnostic;
use graph::BuildContext;
use groups::Groups;
pub(super) use groups::Member;
use ipnet::IpNet;
pub(super) use next_hops::NextHops;
use route_file::RouteTarget;
use route_tables::{HostRoutes, Readers, TableError, Writer};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use wire::{MacAddr, ndp};

/// Numbers of the fixed adjacencies.
const UNREACHABLE: u32 = 1;
const BLACKHOLE: u32 = 2;
const MARTIAN: u32 = 3;
const BROADCAST: u32 = 4;
const LOCAL: u32 = 5;
const PROHIBITED: u32 = 6;
/// Adjacency of the first interface's network; those of the other interfaces follow.
const CONNECTED: u32 = 7;

/// Number of the VRF of the router itself.
pub(super) const OWN: usize = 0;

/// VRF and prefix of a route.
pub(super) type RouteKey = (usize, IpNet);

/// Neighbours that workers add, as a multiple of those that there may be at a time: one that never answers is removed after
/// 3 s, and its number is free after [`REUSE_DELAY`].
const NEIGHBOUR_NUMBERS: usize = 3;
/// Maximum number of next hops of a route.
pub(super) const NEXT_HOPS_MAX: usize = 64;
/// Time after which a neighbour request is unanswered.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of unanswered requests after which a neighbour is unreachable.
pub(super) const REQUESTS_MAX: u32 = 3;
/// Time after which the adjacency number of a removed neighbour is reused: no worker holds it any more, nor packets that
/// wait for the neighbour.
const REUSE_DELAY: Duration = Duration::from_secs(4);

/// Lower bits of the numbers for which tables are widened.
const WIDENING_STEP: u32 = 0xfff;

/// Neighbours that are checked for expiry while workers may wait for the lock.
const NEIGHBOURS_PER_LOCK: usize = 1024;

/// Maximum number of host routes of one entry of the settings.
const HOST_ROUTES_MAX: u64 = 1 << 32;

/// Prefixes of addresses that are not forwarded to (RFC 1812 §5.3.7).
const MARTIANS: &str = "0.0.0.0/8 127.0.0.0/8 224.0.0.0/4 240.0.0.0/4 ::/128 ::1/128 ff00::/8 fe80::/10";

/// Forwarding information base.
pub(super) struct Fib {
    adjacencies: Box<[Adjacency]>,
    groups: Groups,
    /// Time of the graph in nanoseconds, for those who change routes.
    now: AtomicU64,
    /// Next hops of the routes of each VRF.
    next_hops: Box<[Mutex<NextHops>]>,
    /// Number of routes that routing daemons have installed.
    installed: AtomicUsize,
    /// Highest adjacency number that the tables of all VRFs hold without being widened.
    widened_for: AtomicU32,
    control: Mutex<Control>,
    /// Tables of each VRF.
    tables: Box<[Mutex<Writer>]>,
    /// Routes to single addresses of all VRFs, if they have a table of their own.
    hosts: Option<HostRoutes>,
    /// Number of the VRF of each interface.
    vrfs: Box<[usize]>,
}

/// State that changes at run time.
pub(super) struct Control {
    neighbours: BTreeMap<NeighbourKey, Neighbour>,
    /// Keys of neighbours by adjacency number.
    keys: HashMap<u32, NeighbourKey>,
    /// Maximum number of neighbours that are not next hops of routes, in all VRFs.
    neighbours_max: usize,
    /// The same of each VRF.
    neighbours_share: usize,
    /// Number of these neighbours in each VRF.
    others: Vec<usize>,
    /// Neighbour with which the next part of [`Control::age`] begins.
    age_from: Option<NeighbourKey>,
    /// Lowest adjacency number that has never been allocated.
    next_unused: u32,
    /// Number of neighbours that are next hops of routes.
    held: usize,
    /// Adjacency numbers of removed neighbours, and the time from which each is reused.
    retired: VecDeque<(Duration, u32)>,
    /// Lowest number of a group that was never used.
    next_group: u32,
    /// Groups that no route uses, and the time from which each is used again.
    unused_groups: VecDeque<(Duration, u32)>,
}

/// State of a neighbour.
struct Neighbour {
    adjacency: u32,
    mac: Option<MacAddr>,
    /// Time of the last message from it.
    confirmed: Duration,
    /// Time of the last unanswered request.
    requested: Option<Duration>,
    /// Number of unanswered requests.
    requests: u32,
    /// True for a neighbour of the settings, which is never probed or removed.
    is_static: bool,
    /// Number of next hops and groups that it is part of, as which it is not removed.
    held: u32,
}

/// ARP request or neighbor solicitation to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct NeighbourRequest {
    pub(super) interface: usize,
    pub(super) address: IpAddr,
    /// Known MAC address for a unicast probe; `None` for a broadcast or multicast.
    pub(super) mac: Option<MacAddr>,
}

impl Fib {
    /// Builds the FIB of the settings.
    pub(super) fn new(config: &Config, s: &Settings, cx: &BuildContext) -> Result<Fib, Diagnostic> {
        // so that what one VRF uses never lacks for another
        let next_hops_max: usize = config.vrfs.iter().map(|vrf| vrf.next_hops_max).sum();
        let neighbours = NEIGHBOUR_NUMBERS * config.neighbours_max;
        let room = CONNECTED as usize + config.interfaces.len() + next_hops_max + neighbours;
        let adjacencies: Box<[Adjacency]> = (0..room).map(|_| Adjacency::default()).collect();
        for (n, kind) in [
            (UNREACHABLE, AdjacencyKind::Unreachable),
            (BLACKHOLE, AdjacencyKind::Blackhole),
            (MARTIAN, AdjacencyKind::Martian),
            (BROADCAST, AdjacencyKind::Broadcast),
            (LOCAL, AdjacencyKind::Local),
            (PROHIBITED, AdjacencyKind::Prohibited),
        ] {
            adjacencies[n as usize].set(kind, 0, 0);
        }
        for (n, interface) in config.interfaces.iter().enumerate() {
            adjacencies[connected(n) as usize].set(AdjacencyKind::Connected, interface.output, interface.mtu);
        }
        let no_memory = |e: TableError| Diagnostic::new(e.to_string()).key("table").value(&cx.name);
        let hosts = match s.table {
            HostTable::Lpm => None,
            HostTable::Exact => Some(HostRoutes::new(count_host_routes(s, config, cx)?).map_err(no_memory)?),
        };
        let tables = |vrf: u16| Ok(Mutex::new(Writer::new(hosts.as_ref().map(|hosts| hosts.of(vrf)))?));
        let tables = (0..config.vrfs.len() as u16).map(tables).collect::<Result<_, _>>().map_err(no_memory)?;
        let control = Control {
            neighbours: BTreeMap::new(),
            keys: HashMap::new(),
            neighbours_max: config.neighbours_max,
            neighbours_share: config.neighbours_share(),
            others: vec![0; config.vrfs.len()],
            age_from: None,
            next_unused: CONNECTED + config.interfaces.len() as u32,
            held: 0,
            retired: VecDeque::new(),
            next_group: 0,
            unused_groups: VecDeque::new(),
        };
        let no_room = || Diagnostic::new("no memory for groups of next hops").key("table").value(&cx.name);
        let mut fib = Fib {
            adjacencies,
            groups: Groups::new(next_hops_max).ok_or_else(no_room)?,
            now: AtomicU64::new(0),
            next_hops: config.vrfs.iter().map(|vrf| Mutex::new(NextHops::new(vrf.next_hops_max))).collect(),
            installed: AtomicUsize::new(0),
            widened_for: AtomicU32::new(0),
            control: Mutex::new(control),
            tables,
            hosts,
            vrfs: config.interfaces.iter().map(|interface| interface.vrf).collect(),
        };
        fib.fill(config, s, cx)?;
        // workers add neighbours, and must not wait for it
        let highest = fib.control().highest_soon();
        fib.widen_for(highest).map_err(no_memory)?;
        Ok(fib)
    }

    fn fill(&mut self, config: &Config, s: &Settings, cx: &BuildContext) -> Result<(), Diagnostic> {
        for vrf in 0..self.tables.len() {
            for net in MARTIANS.split(' ').filter_map(|m| m.parse().ok()) {
                self.insert(vrf, net, MARTIAN)?;
            }
        }
        if let Some(file) = &s.routes {
            let default_next_hops = |ipv4: bool| s.via.iter().filter(move |via| via.is_ipv4() == ipv4).cycle();
            let (mut default4, mut default6) = (default_next_hops(true), default_next_hops(false));
            let mut routes = vec![];
            route_file::read(cx, file, |net, to| {
                let to = match to {
                    RouteTarget::Default => {
                        match if net.addr().is_ipv4() { default4.next() } else { default6.next() } {
                            Some(via) => RouteTarget::Via(vec![*via]),
                            None => return Err(format!("{net} has no next hop, and `via` has none of its IP version")),
                        }
                    }
                    to => to,
                };
                routes.push((net, self.value(config, (OWN, net), &to, &mut self.next_hops(OWN))?));
                Ok(())
            })?;
            let full = |e: TableError| Diagnostic::new(e.to_string()).key("routes").value(file.display());
            self.tables(OWN).extend(routes).map_err(full)?;
        }
        for (vrf, route) in in_vrfs(&s.route, s, |tenant| &tenant.route) {
            self.insert_route(config, vrf, route, cx)?;
        }
        for (n, interface) in config.interfaces.iter().enumerate() {
            self.insert_connected(n, interface)?;
        }
        self.control().insert_gateway_routes(self).map_err(|e| Diagnostic::new(e.to_string()).key("route"))?;
        for (vrf, (address, mac)) in in_vrfs(&s.neighbour, s, |tenant| &tenant.neighbour) {
            self.insert_static_neighbour(config, vrf, (*address, mac.0))?;
        }
        Ok(())
    }

    /// Inserts a route of the settings.
    fn insert_route(
        &self,
        config: &Config,
        vrf: usize,
        route: &RouteSettings,
        cx: &BuildContext,
    ) -> Result<(), Diagnostic> {
        let net = route.prefix.0;
        let to = match (route.to, route.via.as_slice()) {
            (Some(RouteType::Unreachable), []) => RouteTarget::Unreachable,
            (Some(RouteType::Prohibit), []) => RouteTarget::Prohibited,
            (Some(RouteType::Blackhole), []) => RouteTarget::Blackhole,
            (None, via @ [_, ..]) => RouteTarget::Via(via.to_vec()),
            _ => return Err(invalid_target(net)),
        };
        if route.hosts {
            return self.insert_host_routes(config, (vrf, net), &to, cx);
        }
        let value = self.value(config, (vrf, net), &to, &mut self.next_hops(vrf));
        let value =
            value.map_err(|problem| Diagnostic::new(format!("route to {net} {problem}")).key("route").value(net))?;
        self.insert(vrf, net, value)
    }

    /// Inserts a neighbour of the settings.
    fn insert_static_neighbour(
        &self,
        config: &Config,
        vrf: usize,
        (address, mac): (IpAddr, MacAddr),
    ) -> Result<(), Diagnostic> {
        let Some(interface) = config.interface_to(vrf, address) else {
            let d = Diagnostic::new("not on a network of an interface").key("neighbour").value(address);
            return Err(d.remedy("add its network to an interface's addresses"));
        };
        let mut control = self.control();
        if let Some(LOCAL | BROADCAST) = self.tables(vrf).host_route(address) {
            let d = Diagnostic::new("address of the router itself, or a broadcast address");
            let d = d.key("neighbour").value(address);
            return Err(d.remedy("write the address of another host"));
        }
        let key = (interface, address);
        let Some(number) = control.add_static(self, &config.interfaces, key) else {
            let d = Diagnostic::new("more neighbours than the maximum").key("neighbours_max");
            let remedy = "write a larger number; tenants and the router itself have equal shares of it";
            return Err(d.value(config.neighbours_max).remedy(remedy));
        };
        // a route to the same address takes precedence over the neighbour, shorter prefixes do not
        let mut tables = self.tables(vrf);
        if tables.host_route(address).is_none() {
            let full = |e: TableError| Diagnostic::new(e.to_string()).key("neighbour").value(address);
            tables.insert(IpNet::from(address), number).map_err(full)?;
        }
        if let Some(n) = control.neighbours.get_mut(&key) {
            (n.is_static, n.mac) = (true, Some(mac));
        }
        let f = &config.interfaces[interface];
        self.adjacencies[number as usize].resolve(f.output, f.mtu, mac, f.mac);
        Ok(())
    }

    /// Inserts the routes to the networks and own addresses of an interface.
    fn insert_connected(&mut self, n: usize, interface: &Interface) -> Result<(), Diagnostic> {
        let connected = connected(n);
        for (own, len) in &interface.v4 {
            let network = mask4(*own, *len);
            self.insert(interface.vrf, net(network.into(), *len), connected)?;
            if *len < 31 {
                let last = network | u32::MAX.checked_shr((*len).into()).unwrap_or(0);
                self.insert(interface.vrf, net(network.into(), 32), BROADCAST)?;
                self.insert(interface.vrf, net(last.into(), 32), BROADCAST)?;
            }
        }
        for (own, len) in &interface.v6 {
            self.insert(interface.vrf, net6(mask6(*own, *len).into(), *len), connected)?;
        }
        for (own, _) in &interface.v4 {
            self.insert(interface.vrf, net(*own, 32), LOCAL)?;
        }
        for own in interface.v6.iter().map(|(own, _)| *own).chain([ndp::link_local(interface.mac)]) {
            self.insert(interface.vrf, net6(own, 128), LOCAL)?;
        }
        Ok(())
    }

    /// Inserts a route for each address of a network, with the next hops in turn.
    fn insert_host_routes(
        &self,
        config: &Config,
        (vrf, net): RouteKey,
        to: &RouteTarget,
        cx: &BuildContext,
    ) -> Result<(), Diagnostic> {
        let invalid = |problem: String| Diagnostic::new(problem).key("route").value(net);
        let count = address_count(net).ok_or_else(|| {
            let remedy = format!("write a network of at most {HOST_ROUTES_MAX} addresses");
            invalid("too many addresses for host routes".to_owned()).remedy(remedy)
        })?;
        let targets = match to {
            RouteTarget::Via(via) => via.iter().map(|hop| RouteTarget::Via(vec![*hop])).collect(),
            to => vec![to.clone()],
        };
        let values = targets.iter().map(|to| self.value(config, (vrf, net), to, &mut self.next_hops(vrf)));
        let adjacencies: Vec<u32> =
            values.collect::<Result<_, _>>().map_err(|problem| invalid(format!("each route in {net} {problem}")))?;
        if cx.check_only {
            return Ok(());
        }
        let mut progress = Progress::new("l3fwd", count);
        let inserted = self.tables(vrf).insert_hosts(net, count, &adjacencies, |done| progress.report(done));
        inserted.map_err(|e| invalid(e.to_string()))
    }

    fn insert(&self, vrf: usize, net: IpNet, value: u32) -> Result<(), Diagnostic> {
        self.tables(vrf).insert(net, value).map_err(|e| Diagnostic::new(e.to_string()).key("route").value(net))
    }

    /// Returns the adjacency number of a route's target, which is allocated if necessary.
    fn value(&self, config: &Config, of: RouteKey, to: &RouteTarget, known: &mut NextHops) -> Result<u32, String> {
        match to {
            RouteTarget::Unreachable => Ok(UNREACHABLE),
            RouteTarget::Prohibited => Ok(PROHIBITED),
            RouteTarget::Blackhole => Ok(BLACKHOLE),
            RouteTarget::Default => Err("has no next hop".to_owned()),
            RouteTarget::Via(hops) => {
                let members = Self::check_hops(config, of, hops)?.into_iter().map(|key| (key, 1)).collect();
                known.keep(self, &config.interfaces, members)
            }
        }
    }

    /// Returns the next hops of a route with their interfaces.
    fn check_hops(config: &Config, (vrf, net): RouteKey, hops: &[IpAddr]) -> Result<Vec<NeighbourKey>, String> {
        if hops.len() > NEXT_HOPS_MAX {
            return Err(format!("has {} next hops; {NEXT_HOPS_MAX} are allowed", hops.len()));
        }
        let hop = |&hop: &IpAddr| {
            if hop.is_ipv4() != net.addr().is_ipv4() {
                return Err(format!("has the next hop {hop}, which is of the other IP version"));
            }
            match config.interface_to(vrf, hop) {
                None => Err(format!("has the next hop {hop}, which is not on a network of an interface")),
                Some(interface) if config.interfaces[interface].has(hop) => {
                    Err(format!("has the next hop {hop}, which is the router itself"))
                }
                Some(interface) => Ok((interface, hop)),
            }
        };
        hops.iter().map(hop).collect()
    }

    /// Returns readers of the tables of each VRF for a worker.
    pub(super) fn readers(&self) -> Readers {
        Readers::new((0..self.tables.len()).map(|vrf| self.tables(vrf).readers()), self.hosts.as_ref())
    }

    /// Returns the number of the VRF of an interface.
    pub(super) fn vrf_of(&self, interface: usize) -> usize {
        self.vrfs.get(interface).copied().unwrap_or(OWN)
    }

    /// Returns the adjacency of a number; that of no route if the number is unknown.
    #[inline(always)]
    pub(super) fn adjacency(&self, value: u32) -> &Adjacency {
        self.adjacencies.get(value as usize).unwrap_or(&self.adjacencies[0])
    }

    /// Returns all adjacencies by number; the first is that of no route.
    #[inline(always)]
    pub(super) fn adjacencies(&self) -> &[Adjacency] {
        &self.adjacencies
    }

    /// Returns the adjacency number of the member of a group for a flow with this hash.
    #[inline(always)]
    pub(super) fn member(&self, group: usize, hash: u32) -> u32 {
        self.groups.member(group, hash)
    }

    /// Sets the time of the graph.
    pub(super) fn set_now(&self, now: Duration) {
        self.now.store(now.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the time of the graph when a timer ran last.
    pub(super) fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Relaxed))
    }

    /// Returns the number of entries of the exact-match tables, or `None` while they are locked.
    pub(super) fn host_routes(&self) -> Option<u64> {
        self.hosts.as_ref().map_or(Some(0), HostRoutes::len)
    }

    /// Returns the number of routes that routing daemons have installed.
    pub(super) fn installed_routes(&self) -> usize {
        self.installed.load(Ordering::Relaxed)
    }

    /// Returns the number of neighbours, or `None` while they are locked.
    pub(super) fn neighbour_count(&self) -> Option<usize> {
        self.control.try_lock().ok().map(|control| control.neighbours.len())
    }

    /// Describes the result of a look-up, for a trace: `adjacency` was found for an address in a VRF.
    #[cold]
    pub(super) fn describe(&self, vrf: usize, address: IpAddr, adjacency: u32) -> String {
        let neighbour = || Some(self.control.try_lock().ok()?.keys.get(&adjacency)?.1);
        let prefix = self.prefix_of(vrf, address).map_or_else(|| "unknown prefix".to_owned(), |net| net.to_string());
        let hop = |suffix: &str| match neighbour() {
            Some(host) if host == address => format!("connected network {prefix}{suffix}"),
            Some(hop) => format!("route {prefix} via {hop}{suffix}"),
            None => format!("route {prefix}{suffix}"),
        };
        match self.adjacency(adjacency).load().kind() {
            AdjacencyKind::NoRoute => "no route".to_owned(),
            AdjacencyKind::Resolved => hop(""),
            AdjacencyKind::Unresolved => hop(", whose MAC address is not known"),
            AdjacencyKind::Connected => format!("connected network {prefix}; the MAC address of the host is not known"),
            AdjacencyKind::Group => format!("route {prefix} via several next hops"),
            AdjacencyKind::Local => "the router itself".to_owned(),
            AdjacencyKind::Unreachable => format!("route {prefix} unreachable"),
            AdjacencyKind::Prohibited => format!("route {prefix} prohibit"),
            AdjacencyKind::Blackhole => format!("route {prefix} blackhole"),
            AdjacencyKind::Martian => format!("{prefix}, which is not forwarded to"),
            AdjacencyKind::Broadcast => "broadcast address of a network".to_owned(),
        }
    }

    /// Returns the longest prefix with a route to an address, without the host routes of neighbours. Returns `None` also
    /// while routes are being changed.
    fn prefix_of(&self, vrf: usize, address: IpAddr) -> Option<IpNet> {
        let (tables, control) = (self.try_tables(vrf)?, self.control.try_lock().ok()?);
        let is_own = |value: u32| control.keys.get(&value).is_some_and(|(_, neighbour)| *neighbour == address);
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefixes = (0..=longest).rev().map(|len| IpNet::new_assert(address, len).trunc());
        prefixes
            .into_iter()
            .find(|net| tables.get(*net).is_some_and(|value| net.prefix_len() < longest || !is_own(value)))
    }

    /// Locks the next hops of a VRF, for changes of its routes.
    pub(super) fn next_hops(&self, vrf: usize) -> MutexGuard<'_, NextHops> {
        self.next_hops[vrf].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes adjacency numbers up to `highest` fit into the tables of all VRFs, as workers add neighbours in all of them.
    fn widen_for(&self, highest: u32) -> Result<(), TableError> {
        if highest <= self.widened_for.load(Ordering::Acquire) {
            return Ok(());
        }
        // in steps, as the tables of other VRFs may be locked
        let highest = highest | WIDENING_STEP;
        (0..self.tables.len()).try_for_each(|vrf| self.tables(vrf).widen_for(highest))?;
        self.widened_for.fetch_max(highest, Ordering::Release);
        Ok(())
    }

    /// Locks the tables of a VRF. Workers use [`try_tables`](Fib::try_tables).
    pub(super) fn tables(&self, vrf: usize) -> MutexGuard<'_, Writer> {
        self.tables[vrf].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the tables of a VRF unless routes are being changed, which may take milliseconds.
    fn try_tables(&self, vrf: usize) -> Option<MutexGuard<'_, Writer>> {
        match self.tables[vrf].try_lock() {
            Ok(tables) => Some(tables),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    pub(super) fn neighbours_max(&self) -> usize {
        self.neighbours_max + self.held
    }

    /// Enters the neighbours whose MAC addresses another FIB has learned, whose interfaces have the numbers `same` here.
    pub(super) fn take_over(&mut self, fib: &Fib, interfaces: &[Interface], old: &Control, same: &[Option<usize>]) {
        for ((interface, address), known) in &old.neighbours {
            let Some(mac) = known.mac.filter(|_| !known.is_static) else { continue };
            let Some(interface) = same[*interface] else { continue };
            if let Some(n) = self.enter(fib, interfaces, (interface, *address), mac) {
                (n.confirmed, n.requested, n.requests) = (known.confirmed, None, 0);
            }
        }
    }

    /// Enters a neighbour that another FIB has learned. Returns `None` if it cannot be added, or is one of the settings.
    fn enter(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        key: NeighbourKey,
        mac: MacAddr,
    ) -> Option<&mut Neighbour> {
        self.get_or_add(fib, interfaces, key, Duration::ZERO);
        let n = self.neighbours.get_mut(&key).filter(|n| !n.is_static)?;
        n.mac = Some(mac);
        let interface = &interfaces[key.0];
        fib.adjacencies[n.adjacency as usize].resolve(interface.output, interface.mtu, mac, interface.mac);
        Some(n)
    }

    /// Inserts the host routes to the next hops of routes, after the networks of the interfaces.
    fn insert_gateway_routes(&self, fib: &Fib) -> Result<(), TableError> {
        for ((interface, address), neighbour) in &self.neighbours {
            let mut tables = fib.tables(fib.vrf_of(*interface));
            if is_connected(&tables, *interface, *address) {
                tables.insert(IpNet::from(*address), neighbour.adjacency)?;
            }
        }
        Ok(())
    }

    /// Allocates an adjacency number; returns `None` if all are in use.
    fn allocate(&mut self, fib: &Fib, now: Duration) -> Option<u32> {
        if let Some((_, number)) = self.retired.pop_front_if(|(reusable_from, _)| *reusable_from <= now) {
            return Some(number);
        }
        let number = self.next_unused;
        ((number as usize) < fib.adjacencies.len()).then(|| self.next_unused += 1)?;
        Some(number)
    }

    /// As [`allocate`](Self::allocate), for a neighbour on an interface, whose MAC address is not known.
    fn allocate_unresolved(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        interface: usize,
        now: Duration,
    ) -> Option<u32> {
        let number = self.allocate(fib, now)?;
        let Interface { output, mtu, .. } = interfaces[interface];
        fib.adjacencies[number as usize].set(AdjacencyKind::Unresolved, output, mtu);
        Some(number)
    }

    /// Returns the adjacency number of a neighbour. A new neighbour gets a host route if its address is in the network
    /// of the interface and no route is longer: a neighbour never replaces a route. Returns `None` if the neighbour
    /// cannot be added, or while routes are being changed.
    fn get_or_add(&mut self, fib: &Fib, interfaces: &[Interface], key: NeighbourKey, now: Duration) -> Option<u32> {
        if let Some(known) = self.neighbours.get(&key) {
            return Some(known.adjacency);
        }
        let (interface, address) = key;
        let mut tables = fib.try_tables(fib.vrf_of(interface))?;
        if !self.has_room(fib.vrf_of(interface)) || !is_connected(&tables, interface, address) {
            return None;
        }
        let number = self.allocate_unresolved(fib, interfaces, interface, now)?;
        if !tables.fits(number) || tables.insert(IpNet::from(address), number).is_err() {
            // no worker has found the number
            self.retired.push_front((Duration::ZERO, number));
            return None;
        }
        self.add(fib, key, number);
        Some(number)
    }

    /// Returns true if a further neighbour may be added to a VRF that is not a next hop of routes.
    fn has_room(&self, vrf: usize) -> bool {
        self.others[vrf] < self.neighbours_share
    }

    /// As [`get_or_add`](Self::get_or_add), for a neighbour of the settings, without a host route.
    fn add_static(&mut self, fib: &Fib, interfaces: &[Interface], key: NeighbourKey) -> Option<u32> {
        if !self.neighbours.contains_key(&key) && !self.has_room(fib.vrf_of(key.0)) {
            return None;
        }
        self.add_next_hop(fib, interfaces, key, Duration::ZERO)
    }

    /// As [`get_or_add`](Self::get_or_add), without a host route, and without a limit.
    fn add_next_hop(&mut self, fib: &Fib, interfaces: &[Interface], key: NeighbourKey, now: Duration) -> Option<u32> {
        if let Some(known) = self.neighbours.get(&key) {
            return Some(known.adjacency);
        }
        let number = self.allocate_unresolved(fib, interfaces, key.0, now)?;
        self.add(fib, key, number);
        Some(number)
    }

    fn add(&mut self, fib: &Fib, key: NeighbourKey, number: u32) {
        self.others[fib.vrf_of(key.0)] += 1;
        self.keys.insert(number, key);
        let neighbour = Neighbour {
            adjacency: number,
            mac: None,
            confirmed: Duration::ZERO,
            requested: None,
            requests: 0,
            is_static: false,
            held: 0,
        };
        self.neighbours.insert(key, neighbour);
    }

    /// Returns the neighbour of an adjacency number.
    pub(super) fn key_of(&self, number: u32) -> Option<NeighbourKey> {
        self.keys.get(&number).copied()
    }

    /// Returns the state of a neighbour (RFC 4861 §7.3.2), and its MAC address.
    pub(super) fn neighbour(&self, key: NeighbourKey) -> Option<(&'static str, Option<MacAddr>)> {
        let n = self.neighbours.get(&key)?;
        let state = match (n.mac, n.requested) {
            _ if n.is_static => "permanent",
            (Some(_), None) => "reachable",
            (Some(_), Some(_)) => "probe",
            (None, Some(_)) => "incomplete",
            (None, None) => "none",
        };
        Some((state, n.mac))
    }

    /// Starts or continues the resolution of a neighbour whose MAC address is not known. Returns its adjacency number,
    /// and the request to send if one is due; `None` if the neighbour cannot be added.
    pub(super) fn request_resolution(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        (interface, address): NeighbourKey,
        now: Duration,
    ) -> Option<(u32, Option<NeighbourRequest>)> {
        self.get_or_add(fib, interfaces, (interface, address), now)?;
        let n = self.neighbours.get_mut(&(interface, address))?;
        let due = n.requested.is_none_or(|requested| now >= requested + REQUEST_TIMEOUT) && !n.is_static;
        if due {
            n.requested = Some(now);
            n.requests += 1;
        }
        Some((n.adjacency, due.then_some(NeighbourRequest { interface, address, mac: None })))
    }

    /// Updates a neighbour from a message that it has sent. An unknown neighbour is added if the message was to the
    /// router.
    pub(super) fn learn(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        (interface, address): NeighbourKey,
        mac: MacAddr,
        to_router: bool,
        now: Duration,
    ) {
        let f = &interfaces[interface];
        // next hops of a routing daemon may be outside of the networks of their interface
        let is_known = self.neighbours.contains_key(&(interface, address));
        if !mac.is_unicast() || !is_known && !f.reaches(address) || f.has(address) {
            return;
        }
        // a host route to a link-local address would apply to packets from other links as well
        let link_local = matches!(address, IpAddr::V6(a) if a.is_unicast_link_local());
        if to_router && !link_local {
            self.get_or_add(fib, interfaces, (interface, address), now);
        }
        let Some(n) = self.neighbours.get_mut(&(interface, address)).filter(|n| !n.is_static) else { return };
        (n.confirmed, n.requested, n.requests) = (now, None, 0);
        if n.mac.replace(mac) != Some(mac) {
            fib.adjacencies[n.adjacency as usize].resolve(f.output, f.mtu, mac, f.mac);
        }
    }

    /// Confirms that a neighbour with a known MAC address is reachable (RFC 4861 §7.2.5).
    pub(super) fn confirm_reachable(&mut self, key: NeighbourKey, now: Duration) {
        if let Some(n) = self.neighbours.get_mut(&key).filter(|n| n.mac.is_some()) {
            (n.confirmed, n.requested, n.requests) = (now, None, 0);
        }
    }

    /// Returns probes for neighbours without a message within the reachable time, and removes those that do not answer, for
    /// a part of all: workers wait meanwhile. [`is_ageing`](Self::is_ageing) is true until all parts are done.
    pub(super) fn age(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        reachable_time: Duration,
        now: Duration,
    ) -> Vec<NeighbourRequest> {
        let mut requests = vec![];
        let mut unanswered = vec![];
        let from = self.age_from.take().map_or(Bound::Unbounded, Bound::Included);
        let mut part = self.neighbours.range_mut((from, Bound::Unbounded));
        for ((interface, address), n) in part.by_ref().take(NEIGHBOURS_PER_LOCK) {
            let pending = n.requested.is_some_and(|requested| now < requested + REQUEST_TIMEOUT);
            let fresh = n.requested.is_none() && (n.mac.is_none() || now < n.confirmed + reachable_time);
            if n.is_static || pending || fresh {
                continue;
            }
            if n.requests < REQUESTS_MAX {
                n.requested = Some(now);
                n.requests += 1;
                requests.push(NeighbourRequest { interface: *interface, address: *address, mac: n.mac });
            } else {
                unanswered.push((*interface, *address));
            }
        }
        self.age_from = part.next().map(|(key, _)| *key);
        for key in unanswered {
            // while routes are being changed, the next call does the work
            let Some(mut tables) = fib.try_tables(fib.vrf_of(key.0)) else { continue };
            let Some(n) = self.neighbours.get_mut(&key) else { continue };
            let Interface { output, mtu, .. } = interfaces[key.0];
            fib.adjacencies[n.adjacency as usize].set(AdjacencyKind::Unresolved, output, mtu);
            (n.mac, n.requested, n.requests) = (None, None, 0);
            if n.held == 0 {
                self.remove(fib, key, &mut tables, now);
            }
        }
        requests
    }

    /// Returns true if parts of the neighbours are still to be [aged](Self::age).
    pub(super) fn is_ageing(&self) -> bool {
        self.age_from.is_some()
    }

    /// Removes a neighbour that is not a next hop of routes. A route to its address stays.
    fn remove(&mut self, fib: &Fib, key: NeighbourKey, tables: &mut Writer, now: Duration) {
        let Some(n) = self.neighbours.remove(&key) else { return };
        self.others[fib.vrf_of(key.0)] -= 1;
        if tables.host_route(key.1) == Some(n.adjacency) {
            tables.remove(key.1);
        }
        self.keys.remove(&n.adjacency);
        self.retired.push_back((now + REUSE_DELAY, n.adjacency));
    }
}

/// Returns the number of addresses of a network, or `None` if it exceeds [`HOST_ROUTES_MAX`].
fn address_count(net: IpNet) -> Option<u64> {
    let bits = net.max_prefix_len() - net.prefix_len();
    1u64.checked_shl(bits.into()).filter(|count| *count <= HOST_ROUTES_MAX)
}

/// Passes the value of the router itself and those of tenants to `each`.
fn in_vrfs<'a, T: IntoIterator + 'a>(
    own: T,
    s: &'a Settings,
    of: impl Fn(&'a TenantSettings) -> T + 'a,
) -> impl Iterator<Item = (usize, T::Item)> + 'a {
    let all = std::iter::once(own).chain(s.tenant.values().map(of));
    all.enumerate().flat_map(|(vrf, values)| values.into_iter().map(move |value| (vrf, value)))
}

/// Returns the number of routes to single addresses that the settings need, for IPv4 and IPv6, including those to
/// neighbours.
fn count_host_routes(s: &Settings, config: &Config, cx: &BuildContext) -> Result<[u64; 2], Diagnostic> {
    let own = |interface: &Interface| 4 * (1 + interface.v4.len().max(interface.v6.len())) as u64;
    let neighbours = config.neighbours_max as u64 + config.interfaces.iter().map(own).sum::<u64>();
    let mut counts = [neighbours; 2];
    let mut add = |net: IpNet, count: u64| counts[usize::from(net.addr().is_ipv6())] += count;
    let is_host = |net: IpNet| u64::from(net.prefix_len() == net.max_prefix_len());
    if let Some(file) = &s.routes {
        route_file::read(cx, file, |net, _| {
            add(net, is_host(net));
            Ok(())
        })?;
    }
    for (_, route) in in_vrfs(&s.route, s, |tenant| &tenant.route) {
        let net = route.prefix.0;
        let addresses = if cx.check_only { 0 } else { address_count(net).unwrap_or(0) };
        add(net, if route.hosts { addresses } else { is_host(net) });
        route.via.iter().for_each(|hop| add(IpNet::from(*hop), 1));
    }
    s.via.iter().for_each(|hop| add(IpNet::from(*hop), 1));
    Ok(counts)
}

fn invalid_target(net: IpNet) -> Diagnostic {
    let d = Diagnostic::new("route has neither or both of next hops and a type");
    let remedy = "write via = [\"192.0.2.1\"], or to = \"unreachable\", \"prohibit\" or \"blackhole\"";
    d.key("route").value(net).remedy(remedy)
}

/// Returns true if the longest matching prefix of an address is the network of an interface.
fn is_connected(tables: &Writer, interface: usize, address: IpAddr) -> bool {
    tables.longest(address) == Some(connected(interface))
}

/// Returns the interface whose networks have an adjacency number.
pub(super) fn interface_of(number: u32) -> usize {
    number.saturating_sub(CONNECTED) as usize
}

/// Returns the adjacency number of an interface's networks.
fn connected(interface: usize) -> u32 {
    CONNECTED + interface as u32
}

fn net(address: Ipv4Addr, len: u8) -> IpNet {
    IpNet::new_assert(address.into(), len)
}

fn net6(address: Ipv6Addr, len: u8) -> IpNet {
    IpNet::new_assert(address.into(), len)
}

#[cfg(test)]
mod tests;
