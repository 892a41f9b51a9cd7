//! The routes and neighbours of a router, shared by its copies.
//!
//! Workers look up addresses and load adjacencies without a lock; what changes them takes the lock of [`Control`].

use super::adjacency::{Adjacency, Kind};
use super::config::{Config, Face, mask4, mask6};
use super::routes::{self, To};
use super::tables::{Full, Reader, Writer};
use super::{Nowhere, Route, Settings, Table};
use crate::exact::Progress;
use diagnostics::Diagnostic;
use graph::BuildContext;
use ipnet::IpNet;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::{MacAddr, flow, ndp};

/// Numbers of the adjacencies that every router has.
const UNREACHABLE: u32 = 1;
const BLACKHOLE: u32 = 2;
const MARTIAN: u32 = 3;
const BROADCAST: u32 = 4;
const LOCAL: u32 = 5;
/// Of the first interface's network; the others follow.
const CONNECTED: u32 = 6;

/// Different next hops and groups of them that routes may have.
const MOST_HOPS: usize = 1 << 16;
/// Next hops of one route.
pub(super) const MOST_WAYS: usize = 64;
/// How long an unanswered question is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Questions that a neighbour may leave unanswered.
pub(super) const TRIES: u32 = 3;
/// How long the number of a forgotten neighbour is not given to another: no worker has it in its hands any more.
const COOLING: Duration = Duration::from_secs(2);

/// Addresses of a network that may each have a route of their own.
const MOST_HOSTS: u64 = 1 << 32;

/// See the module.
pub(super) struct Fib {
    adjacencies: Box<[Adjacency]>,
    /// Adjacencies of each group.
    groups: Box<[Box<[u32]>]>,
    control: Mutex<Control>,
}

/// The side of the FIB that changes.
pub(super) struct Control {
    tables: Writer,
    neighbours: BTreeMap<(usize, IpAddr), Neighbour>,
    /// Whose adjacency it is, by number.
    who: HashMap<u32, (usize, IpAddr)>,
    /// Neighbours found because somebody sent to them; the others are next hops of routes.
    found: usize,
    most: usize,
    fresh: u32,
    cooling: VecDeque<(Duration, u32)>,
}

/// What is known of a neighbour.
struct Neighbour {
    adjacency: u32,
    mac: Option<MacAddr>,
    /// When it was last heard of.
    heard: Duration,
    /// When it was last asked for, and how often in vain.
    asked: Option<Duration>,
    tries: u32,
    /// Named in the settings: never asked, never forgotten.
    fixed: bool,
    /// A next hop of routes: never forgotten.
    gateway: bool,
}

/// What a packet's neighbour has to be sent first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) face: usize,
    pub(super) address: IpAddr,
    /// Where to, if it was known before.
    pub(super) mac: Option<MacAddr>,
}

impl Fib {
    /// The FIB of the settings.
    pub(super) fn new(config: &Config, s: &Settings, cx: &BuildContext) -> Result<Fib, Diagnostic> {
        let room = CONNECTED as usize + config.faces.len() + MOST_HOPS + config.neighbours;
        let adjacencies: Box<[Adjacency]> = (0..room).map(|_| Adjacency::default()).collect();
        for (n, kind) in [
            (UNREACHABLE, Kind::Unreachable),
            (BLACKHOLE, Kind::Blackhole),
            (MARTIAN, Kind::Martian),
            (BROADCAST, Kind::Broadcast),
            (LOCAL, Kind::Local),
        ] {
            adjacencies[n as usize].set(kind, 0, 0);
        }
        for (n, face) in config.faces.iter().enumerate() {
            adjacencies[connected(n) as usize].set(Kind::Connected, n as u8 + 1, face.mtu);
        }
        let hosts = match s.table {
            Table::Lpm => [1; 2],
            Table::Exact => hosts(s, config, cx)?,
        };
        let no_memory = |e: Full| Diagnostic::new(e.to_string()).key("table").value(&cx.name);
        let control = Control {
            tables: Writer::new(s.table, hosts).map_err(no_memory)?,
            neighbours: BTreeMap::new(),
            who: HashMap::new(),
            found: 0,
            most: config.neighbours,
            fresh: CONNECTED + config.faces.len() as u32,
            cooling: VecDeque::new(),
        };
        let mut fib = Fib { adjacencies, groups: Box::default(), control: Mutex::new(control) };
        fib.fill(config, s, cx)?;
        Ok(fib)
    }

    fn fill(&mut self, config: &Config, s: &Settings, cx: &BuildContext) -> Result<(), Diagnostic> {
        let martians = "0.0.0.0/8 127.0.0.0/8 224.0.0.0/4 240.0.0.0/4 ::/128 ::1/128 ff00::/8 fe80::/10";
        for net in martians.split(' ').filter_map(|m| m.parse().ok()) {
            self.insert(net, MARTIAN)?;
        }
        let mut values = HashMap::new();
        let mut groups = vec![];
        if let Some(file) = &s.routes {
            let of = |ipv4: bool| s.via.iter().filter(move |via| via.is_ipv4() == ipv4).cycle();
            let (mut spare4, mut spare6) = (of(true), of(false));
            let mut all = vec![];
            routes::read(&cx.path(file), |net, to| {
                let to = match to {
                    To::Default => match if net.addr().is_ipv4() { spare4.next() } else { spare6.next() } {
                        Some(via) => To::Via(vec![*via]),
                        None => return Err(format!("{net} has no next hop, and via names none of its IP version")),
                    },
                    to => to,
                };
                all.push((net, self.value(config, net, &to, &mut values, &mut groups)?));
                Ok(())
            })?;
            let full = |e: Full| Diagnostic::new(e.to_string()).key("routes").value(file.display());
            self.control().tables.extend(all).map_err(full)?;
        }
        for route in &s.route {
            if route.hosts {
                self.fill_hosts(config, route, cx, &mut values, &mut groups)?;
                continue;
            }
            let to = match (route.to, route.via.as_slice()) {
                (Some(Nowhere::Unreachable), []) => To::Unreachable,
                (Some(Nowhere::Blackhole), []) => To::Blackhole,
                (None, via @ [_, ..]) => To::Via(via.to_vec()),
                _ => return Err(neither(route.prefix.0)),
            };
            let value = self.value(config, route.prefix.0, &to, &mut values, &mut groups).map_err(|problem| {
                Diagnostic::new(format!("the route to {} {problem}", route.prefix.0)).key("route").value(route.prefix.0)
            })?;
            self.insert(route.prefix.0, value)?;
        }
        self.groups = groups.into();
        for (n, face) in config.faces.iter().enumerate() {
            self.connect(n, face)?;
        }
        self.control().lead_to_gateways().map_err(|e| Diagnostic::new(e.to_string()).key("route"))?;
        for (address, mac) in &s.neighbour {
            let Some(face) = config.face_to(*address) else {
                let d = Diagnostic::new("is on no interface's network").key("neighbour").value(address);
                return Err(d.remedy("add its network to an interface's addresses"));
            };
            let mut control = self.control();
            if let Some(LOCAL | BROADCAST) = control.tables.host(*address) {
                let d = Diagnostic::new("is the router itself, or all of a network").key("neighbour").value(address);
                return Err(d.remedy("write the address of another host"));
            }
            let Some(number) = control.next_hop(self, &config.faces, (face, *address), Duration::ZERO) else {
                return Err(Diagnostic::new("there are more neighbours than that")
                    .key("neighbours")
                    .value(s.neighbours));
            };
            // a route to this very address stays; shorter ones give way to what the settings say of one host
            if control.tables.host(*address).is_none() {
                let full = |e: Full| Diagnostic::new(e.to_string()).key("neighbour").value(address);
                control.lead(*address, number).map_err(full)?;
            }
            if let Some(n) = control.neighbours.get_mut(&(face, *address)) {
                (n.fixed, n.mac) = (true, Some(mac.0));
            }
            let f = &config.faces[face];
            self.adjacencies[number as usize].resolve(face as u8 + 1, f.mtu, mac.0, f.mac);
        }
        Ok(())
    }

    /// The networks and own addresses of an interface.
    fn connect(&mut self, n: usize, face: &Face) -> Result<(), Diagnostic> {
        let connected = connected(n);
        for (own, len) in &face.v4 {
            let network = mask4(*own, *len);
            self.insert(net(network.into(), *len), connected)?;
            if *len < 31 {
                let last = network | u32::MAX.checked_shr((*len).into()).unwrap_or(0);
                self.insert(net(network.into(), 32), BROADCAST)?;
                self.insert(net(last.into(), 32), BROADCAST)?;
            }
        }
        for (own, len) in &face.v6 {
            self.insert(net6(mask6(*own, *len).into(), *len), connected)?;
        }
        for (own, _) in &face.v4 {
            self.insert(net(*own, 32), LOCAL)?;
        }
        for own in face.v6.iter().map(|(own, _)| *own).chain([ndp::link_local(face.mac)]) {
            self.insert(net6(own, 128), LOCAL)?;
        }
        Ok(())
    }

    /// A route for each address of a network, next hops in turn.
    fn fill_hosts(
        &self,
        config: &Config,
        route: &Route,
        cx: &BuildContext,
        values: &mut HashMap<Vec<IpAddr>, u32>,
        groups: &mut Vec<Box<[u32]>>,
    ) -> Result<(), Diagnostic> {
        let net = route.prefix.0;
        let wrong = |problem: String| Diagnostic::new(problem).key("route").value(net);
        let count = hosts_of(net).ok_or_else(|| {
            let remedy = format!("write a network of at most {MOST_HOSTS} addresses");
            wrong("has more addresses than routes of their own are made for".to_owned()).remedy(remedy)
        })?;
        let ways = match (route.to, route.via.as_slice()) {
            (Some(Nowhere::Unreachable), []) => vec![UNREACHABLE],
            (Some(Nowhere::Blackhole), []) => vec![BLACKHOLE],
            (None, via @ [_, ..]) => via
                .iter()
                .map(|hop| self.value(config, net, &To::Via(vec![*hop]), values, groups))
                .collect::<Result<_, _>>()
                .map_err(|problem| wrong(format!("each route in {net} {problem}")))?,
            _ => return Err(neither(net)),
        };
        if cx.checks {
            return Ok(());
        }
        let mut progress = Progress::new("l3fwd", count);
        let filled = self.control().tables.insert_hosts(net, count, &ways, |done| progress.tell(done));
        filled.map_err(|e| wrong(e.to_string()))
    }

    fn insert(&self, net: IpNet, value: u32) -> Result<(), Diagnostic> {
        self.control().tables.insert(net, value).map_err(|e| Diagnostic::new(e.to_string()).key("route").value(net))
    }

    /// The value that the FIB holds for a route's way.
    fn value(
        &self,
        config: &Config,
        net: IpNet,
        to: &To,
        values: &mut HashMap<Vec<IpAddr>, u32>,
        groups: &mut Vec<Box<[u32]>>,
    ) -> Result<u32, String> {
        let hops = match to {
            To::Unreachable => return Ok(UNREACHABLE),
            To::Blackhole => return Ok(BLACKHOLE),
            To::Default => return Err("names no next hop".to_owned()),
            To::Via(hops) => hops,
        };
        if let Some(other) = hops.iter().find(|hop| hop.is_ipv4() != net.addr().is_ipv4()) {
            return Err(format!("leads to {other}, which is of the other IP version"));
        }
        if let Some(value) = values.get(hops) {
            return Ok(*value);
        }
        if hops.len() > MOST_WAYS {
            return Err(format!("has {} next hops; {MOST_WAYS} are allowed", hops.len()));
        }
        if values.len() >= MOST_HOPS / 2 {
            return Err(format!("has the next hop that is more than the {} allowed", MOST_HOPS / 2));
        }
        let mut numbers = vec![];
        for hop in hops {
            let Some(face) = config.face_to(*hop) else {
                return Err(format!("leads to {hop}, which is on no interface's network"));
            };
            if config.faces[face].has(*hop) {
                return Err(format!("leads to {hop}, which is the router itself"));
            }
            let mut control = self.control();
            control.most += usize::from(!control.neighbours.contains_key(&(face, *hop)));
            let number = control
                .next_hop(self, &config.faces, (face, *hop), Duration::ZERO)
                .ok_or("has one next hop too many")?;
            if let Some(n) = control.neighbours.get_mut(&(face, *hop)) {
                n.gateway = true;
            }
            numbers.push(number);
        }
        let value = match numbers[..] {
            [one] => one,
            _ => {
                let mut control = self.control();
                let number = control.take(self, Duration::ZERO).ok_or("has one group of next hops too many")?;
                self.adjacencies[number as usize].set_group(groups.len() as u32);
                groups.push(numbers.into());
                number
            }
        };
        values.insert(hops.clone(), value);
        Ok(value)
    }

    /// A worker's side of the tables.
    pub(super) fn reader(&self) -> Reader {
        self.control().tables.reader()
    }

    /// What a value stands for.
    #[inline(always)]
    pub(super) fn adjacency(&self, value: u32) -> &Adjacency {
        self.adjacencies.get(value as usize).unwrap_or(&self.adjacencies[0])
    }

    /// What all values stand for: one at least, for no route.
    #[inline(always)]
    pub(super) fn adjacencies(&self) -> &[Adjacency] {
        &self.adjacencies
    }

    /// The value of a group's member for a flow with this hash.
    pub(super) fn member(&self, group: usize, hash: u32) -> u32 {
        match self.groups.get(group).map(AsRef::as_ref) {
            Some(members @ [_, ..]) => members[flow::share(hash, members.len() as u32) as usize],
            _ => 0,
        }
    }

    /// Entries of the exact-match tables, as far as nobody is changing them.
    pub(super) fn hosts(&self) -> Option<u64> {
        self.control.try_lock().ok().map(|control| control.tables.hosts())
    }

    pub(super) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// Whether packets to this address go to the network of an interface, and to nothing longer in it.
    fn is_connected(&self, face: usize, address: IpAddr) -> bool {
        self.tables.longest(address) == Some(connected(face))
    }

    /// Leads packets to this address alone to an adjacency.
    fn lead(&mut self, address: IpAddr, number: u32) -> Result<(), Full> {
        self.tables.insert(IpNet::from(address), number)
    }

    /// Leads to the next hops of routes, once the networks they are on are there.
    fn lead_to_gateways(&mut self) -> Result<(), Full> {
        let numbers: Vec<_> = self.neighbours.iter().map(|(who, n)| (*who, n.adjacency)).collect();
        for ((face, address), number) in numbers {
            if self.is_connected(face, address) {
                self.lead(address, number)?;
            }
        }
        Ok(())
    }

    /// The number of an adjacency that nobody has; `None` when there are no more.
    fn take(&mut self, fib: &Fib, now: Duration) -> Option<u32> {
        if let Some((_, number)) = self.cooling.pop_front_if(|(cool, _)| *cool <= now) {
            return Some(number);
        }
        let number = self.fresh;
        ((number as usize) < fib.adjacencies.len()).then(|| self.fresh += 1)?;
        Some(number)
    }

    /// As [`take`](Self::take), for one more neighbour on an interface, whose MAC address is not known.
    fn prepare(&mut self, fib: &Fib, faces: &[Face], face: usize, now: Duration) -> Option<u32> {
        if self.found >= self.most {
            return None;
        }
        let number = self.take(fib, now)?;
        fib.adjacencies[number as usize].set(Kind::Unresolved, face as u8 + 1, faces[face].mtu);
        Some(number)
    }

    /// The number of a neighbour's adjacency. If there is none one is made, and the FIB leads to it, but only instead of
    /// the interface's network: no neighbour takes the place of a route, whatever it sends. `None` when there are too many.
    fn neighbour(&mut self, fib: &Fib, faces: &[Face], who: (usize, IpAddr), now: Duration) -> Option<u32> {
        if let Some(known) = self.neighbours.get(&who) {
            return Some(known.adjacency);
        }
        let (face, address) = who;
        if !self.is_connected(face, address) {
            return None;
        }
        let number = self.prepare(fib, faces, face, now)?;
        if self.lead(address, number).is_err() {
            // no worker has seen it
            self.cooling.push_front((Duration::ZERO, number));
            return None;
        }
        self.remember(who, number);
        Some(number)
    }

    /// As [`neighbour`](Self::neighbour), of one that the settings name: the FIB does not lead to it yet.
    fn next_hop(&mut self, fib: &Fib, faces: &[Face], who: (usize, IpAddr), now: Duration) -> Option<u32> {
        if let Some(known) = self.neighbours.get(&who) {
            return Some(known.adjacency);
        }
        let number = self.prepare(fib, faces, who.0, now)?;
        self.remember(who, number);
        Some(number)
    }

    fn remember(&mut self, who: (usize, IpAddr), number: u32) {
        self.found += 1;
        self.who.insert(number, who);
        let neighbour = Neighbour {
            adjacency: number,
            mac: None,
            heard: Duration::ZERO,
            asked: None,
            tries: 0,
            fixed: false,
            gateway: false,
        };
        self.neighbours.insert(who, neighbour);
    }

    /// Who has the adjacency of this number.
    pub(super) fn who(&self, number: u32) -> Option<(usize, IpAddr)> {
        self.who.get(&number).copied()
    }

    /// A packet goes to a neighbour whose MAC address is not known: the number of its adjacency, and the question to send
    /// now. `None` when it cannot be remembered.
    pub(super) fn want(
        &mut self,
        fib: &Fib,
        faces: &[Face],
        (face, address): (usize, IpAddr),
        now: Duration,
    ) -> Option<(u32, Option<Question>)> {
        self.neighbour(fib, faces, (face, address), now)?;
        let n = self.neighbours.get_mut(&(face, address))?;
        let due = n.asked.is_none_or(|asked| now >= asked + PATIENCE) && !n.fixed;
        if due {
            n.asked = Some(now);
            n.tries += 1;
        }
        Some((n.adjacency, due.then_some(Question { face, address, mac: None })))
    }

    /// A neighbour has been heard of. One that is not known is remembered if it has spoken to the router (`to_us`).
    pub(super) fn heard(
        &mut self,
        fib: &Fib,
        faces: &[Face],
        (face, address): (usize, IpAddr),
        mac: MacAddr,
        to_us: bool,
        now: Duration,
    ) {
        let f = &faces[face];
        if !mac.is_unicast() || !f.reaches(address) || f.has(address) {
            return;
        }
        // a route to a link-local address would lead there from other links as well
        let link_local = matches!(address, IpAddr::V6(a) if a.is_unicast_link_local());
        if to_us && !link_local {
            self.neighbour(fib, faces, (face, address), now);
        }
        let Some(n) = self.neighbours.get_mut(&(face, address)).filter(|n| !n.fixed) else { return };
        (n.heard, n.asked, n.tries) = (now, None, 0);
        if n.mac.replace(mac) != Some(mac) {
            fib.adjacencies[n.adjacency as usize].resolve(face as u8 + 1, f.mtu, mac, f.mac);
        }
    }

    /// A neighbour whose MAC address is known says that it is there (RFC 4861 §7.2.5).
    pub(super) fn confirmed(&mut self, who: (usize, IpAddr), now: Duration) {
        if let Some(n) = self.neighbours.get_mut(&who).filter(|n| n.mac.is_some()) {
            (n.heard, n.asked, n.tries) = (now, None, 0);
        }
    }

    /// Asks again for neighbours that have not been heard of for long, and forgets those that do not answer.
    pub(super) fn age(&mut self, fib: &Fib, faces: &[Face], lifetime: Duration, now: Duration) -> Vec<Question> {
        let mut questions = vec![];
        let mut gone = vec![];
        for ((face, address), n) in &mut self.neighbours {
            let waits = n.asked.is_some_and(|asked| now < asked + PATIENCE);
            if n.fixed || waits || (n.asked.is_none() && (n.mac.is_none() || now < n.heard + lifetime)) {
                continue;
            }
            if n.tries < TRIES {
                n.asked = Some(now);
                n.tries += 1;
                questions.push(Question { face: *face, address: *address, mac: n.mac });
                continue;
            }
            fib.adjacencies[n.adjacency as usize].set(Kind::Unresolved, *face as u8 + 1, faces[*face].mtu);
            (n.mac, n.asked, n.tries) = (None, None, 0);
            if !n.gateway {
                gone.push((*face, *address));
            }
        }
        for who in gone {
            let Some(n) = self.neighbours.remove(&who) else { continue };
            self.tables.remove(who.1);
            self.who.remove(&n.adjacency);
            self.found -= 1;
            self.cooling.push_back((now + COOLING, n.adjacency));
        }
        questions
    }
}

/// Addresses of a network, up to [`MOST_HOSTS`].
fn hosts_of(net: IpNet) -> Option<u64> {
    let bits = net.max_prefix_len() - net.prefix_len();
    1u64.checked_shl(bits.into()).filter(|hosts| *hosts <= MOST_HOSTS)
}

/// Routes to single addresses that the settings come to, of each IP version, and as many as may be learnt.
fn hosts(s: &Settings, config: &Config, cx: &BuildContext) -> Result<[u64; 2], Diagnostic> {
    let own = |face: &Face| 4 * (1 + face.v4.len().max(face.v6.len())) as u64;
    let learnt = config.neighbours as u64 + config.faces.iter().map(own).sum::<u64>();
    let mut hosts = [learnt; 2];
    let mut add = |net: IpNet, more: u64| hosts[usize::from(net.addr().is_ipv6())] += more;
    let is_host = |net: IpNet| u64::from(net.prefix_len() == net.max_prefix_len());
    if let Some(file) = &s.routes {
        routes::read(&cx.path(file), |net, _| {
            add(net, is_host(net));
            Ok(())
        })?;
    }
    for route in &s.route {
        let net = route.prefix.0;
        let each = if cx.checks { 0 } else { hosts_of(net).unwrap_or(0) };
        add(net, if route.hosts { each } else { is_host(net) });
        route.via.iter().for_each(|hop| add(IpNet::from(*hop), 1));
    }
    s.via.iter().for_each(|hop| add(IpNet::from(*hop), 1));
    Ok(hosts)
}

fn neither(net: IpNet) -> Diagnostic {
    let d = Diagnostic::new("a route has either next hops or no way at all");
    let remedy = "write via = [\"192.0.2.1\"], or to = \"unreachable\" or \"blackhole\"";
    d.key("route").value(net).remedy(remedy)
}

/// The value of an interface's networks.
fn connected(face: usize) -> u32 {
    CONNECTED + face as u32
}

fn net(address: Ipv4Addr, len: u8) -> IpNet {
    IpNet::new_assert(address.into(), len)
}

fn net6(address: Ipv6Addr, len: u8) -> IpNet {
    IpNet::new_assert(address.into(), len)
}

#[cfg(test)]
mod tests;
