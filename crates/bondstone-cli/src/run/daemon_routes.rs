//! Routes of a routing daemon: changes of routes and next-hop objects to those of routers.

mod route_objects;
mod router;
mod tables;
#[cfg(test)]
pub(super) mod testing;

use core::ops::{AddAssign, Sub};
use core::sync::atomic::{AtomicBool, Ordering};
use fpm::{Hop, Message, MessageError, NextHop, NextHops, Target, Verdict};
use ipnet::IpNet;
use nf::live::{InstalledHop, InstalledTarget, LiveVrf};
use route_objects::{Key, RouteObjects, Use};
pub(super) use router::Router;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
pub(super) use tables::Tables;

/// Maximum number of next-hop objects of a connection, with the members of groups.
const NEXT_HOPS_MAX: usize = 1 << 17;
/// Maximum number of routes that wait for their next-hop object, and of the bytes of each.
const WAITING_MAX: usize = 1 << 14;
const WAITING_BYTES_MAX: usize = 1024;

/// Numbers of the messages of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Changes of routes that were made.
    pub(super) changed: u64,
    /// Changes of routes and next hops that were not made.
    pub(super) refused: u64,
    /// Messages and frames that are not valid.
    pub(super) malformed: u64,
}

impl Sub for Counts {
    type Output = Counts;
    fn sub(self, before: Counts) -> Counts {
        let Counts { changed, refused, malformed } = before;
        Counts {
            changed: self.changed - changed,
            refused: self.refused - refused,
            malformed: self.malformed - malformed,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, Counts { changed, refused, malformed }: Counts) {
        self.changed += changed;
        self.refused += refused;
        self.malformed += malformed;
    }
}

/// State of the routes of a connection, or of a kernel.
pub(super) struct DaemonRoutes {
    next_hops: NextHops,
    /// Next-hop objects of installed and waiting routes.
    pub(super) objects: RouteObjects,
    /// A route that is to be removed. Versions of zebra change a route by removing and adding it, between which packets
    /// are to find it.
    removed: Option<Key>,
    /// Answers to routes whose next-hop object has not arrived yet.
    pub(super) waiting: HashMap<Key, Vec<u8>>,
    pub(super) counts: Counts,
    source: Source,
    /// Routers, for messages.
    names: String,
}

/// Sender of the messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Fpm,
    Kernel,
}

/// An interface that a routing daemon names by the number that its kernel has for it.
pub(super) enum Netdev {
    /// The interface of this name.
    Named(String),
    /// None of the namespace.
    Missing,
    /// One of another kernel, such as that of a virtual machine.
    Elsewhere,
}

/// Numbers that routers have for interfaces, by that of the kernel and of the routing table.
pub(super) struct Interfaces<'a> {
    netdev: &'a dyn Fn(u32) -> Netdev,
    numbers: HashMap<(u32, u32), Option<usize>>,
}

/// When a change takes effect.
enum Changed {
    Now,
    /// With the next-hop object that has not arrived yet.
    Deferred,
}

/// Appends the answer to a route.
pub(super) type Answer<'a> = &'a dyn Fn(Verdict, &mut Vec<u8>);

impl DaemonRoutes {
    /// Returns the state of a new source of routes of routers with these names.
    pub(super) fn new(source: Source, names: String) -> DaemonRoutes {
        DaemonRoutes {
            next_hops: NextHops::new(NEXT_HOPS_MAX),
            objects: RouteObjects::default(),
            removed: None,
            waiting: HashMap::new(),
            counts: Counts::default(),
            source,
            names,
        }
    }

    fn warn(&self, cause: &str, problem: &str) {
        let cause = format!("{cause} of {}", self.names);
        match self.source {
            Source::Kernel => tracing::warn!(target: "kernel", cause = cause.as_str(), "{}: {problem}", self.names),
            Source::Fpm => tracing::warn!(target: "fpm", cause = cause.as_str(), "{}: {problem}", self.names),
        }
    }

    /// Counts and logs a message that is not valid.
    pub(super) fn malformed(&mut self, error: &MessageError) {
        self.counts.malformed += 1;
        self.warn("malformed message", &error.to_string());
    }

    /// Installs and answers a route, or removes it if it has no target. Returns false if it is refused.
    pub(super) fn route(
        &mut self,
        key: Key,
        target: Option<&Target>,
        tables: &Tables,
        interfaces: &mut Interfaces<'_>,
        answers: &mut Vec<u8>,
        answer: Answer<'_>,
    ) -> bool {
        match self.change(key, target, tables, interfaces, answer) {
            Ok(Changed::Now) => {
                self.counts.changed += 1;
                answer(Verdict::Offloaded, answers);
                true
            }
            Ok(Changed::Deferred) => true,
            Err(problem) => {
                self.forget(key);
                tables.remove(key);
                self.refused(key.1, &problem);
                answer(Verdict::Failed, answers);
                false
            }
        }
    }

    /// Counts and logs a route that is not installed.
    pub(super) fn refused(&mut self, prefix: IpNet, problem: &str) {
        self.counts.refused += 1;
        self.warn("route refused", &format!("route to {prefix} refused: {problem}"));
    }

    fn change(
        &mut self,
        key: Key,
        target: Option<&Target>,
        tables: &Tables,
        interfaces: &mut Interfaces<'_>,
        answer: Answer<'_>,
    ) -> Result<Changed, String> {
        tables.router(key.0)?;
        self.forget(key);
        if let Some(before) = self.removed.take_if(|before| *before != key) {
            tables.remove(before);
        }
        let Some(target) = target else {
            self.removed = Some(key);
            return Ok(Changed::Now);
        };
        self.removed = None;
        let (target, object) = match target {
            Target::Object(_) if self.objects.len() >= tables.routes_max() => {
                return Err("too many routes with next-hop objects".to_owned());
            }
            Target::Object(id) => {
                let resolved = self.next_hops.resolve(*id).map_err(|e| e.to_string());
                if let Err(problem) = &resolved {
                    self.wait(key, answer, problem)?;
                }
                self.objects.insert(key, *id);
                match resolved {
                    Ok(target) => (target, Some(*id)),
                    Err(_) => {
                        tables.remove(key);
                        return Ok(Changed::Deferred);
                    }
                }
            }
            target => (target.clone(), None),
        };
        install(key, Ok(target), object, tables, interfaces).map(|()| Changed::Now)
    }

    /// Keeps the answer to a route until its next-hop object arrives.
    fn wait(&mut self, key: Key, answer: Answer<'_>, problem: &str) -> Result<(), String> {
        let mut kept = vec![];
        answer(Verdict::Offloaded, &mut kept);
        if self.waiting.len() >= WAITING_MAX || kept.len() > WAITING_BYTES_MAX {
            return Err(problem.to_owned());
        }
        self.waiting.insert(key, kept);
        Ok(())
    }

    /// Installs the routes of changed next-hop objects again, until `end` is set.
    pub(super) fn change_objects(
        &mut self,
        changed: &BTreeSet<u32>,
        tables: &Tables,
        interfaces: &mut Interfaces<'_>,
        answers: &mut Vec<u8>,
        end: &AtomicBool,
    ) {
        let groups: BTreeSet<u32> = changed.iter().flat_map(|id| self.next_hops.groups_of(*id)).collect();
        let mut again = BTreeSet::new();
        for id in changed.union(&groups) {
            let target = self.next_hops.resolve(*id);
            again.extend(self.change_object(*id, target.as_ref().ok(), tables, interfaces));
        }
        if again.is_empty() {
            return;
        }
        for ((id, table), prefixes) in self.objects.routes_of(&again) {
            let target = self.next_hops.resolve(id).map_err(|e| e.to_string());
            for prefix in prefixes {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                self.install_again((table, prefix), id, target.clone(), tables, interfaces, answers);
            }
        }
    }

    /// Makes the last change, after which nothing has been received for a while.
    pub(super) fn flush(&mut self, tables: &Tables) {
        if let Some(key) = self.removed.take() {
            tables.remove(key);
        }
    }

    /// Forgets the next-hop object of a route.
    fn forget(&mut self, key: Key) {
        self.waiting.remove(&key);
        self.objects.remove(key);
    }

    /// Changes a next-hop object and returns its number.
    pub(super) fn next_hop(&mut self, next_hop: NextHop) -> u32 {
        match next_hop {
            NextHop::Add { id, value } => {
                if let Err(e) = self.next_hops.insert(id, value) {
                    self.counts.refused += 1;
                    self.warn("next hop refused", &e.to_string());
                }
                id
            }
            NextHop::Remove { id } => {
                self.next_hops.remove(id);
                id
            }
        }
    }

    /// Changes an object in the routers. Returns those uses of it whose routes are to be installed again.
    fn change_object(
        &self,
        id: u32,
        target: Option<&Target>,
        tables: &Tables,
        interfaces: &mut Interfaces<'_>,
    ) -> Vec<Use> {
        let mut again = vec![];
        for (table, router) in &tables.routers {
            let users = self.objects.users((id, *table));
            if users == 0 {
                continue;
            }
            let changed = match target.map(|target| interfaces.target(*table, router, target.clone(), None)) {
                Some(Ok(InstalledTarget::Via(via))) => router.change_object(id, &via),
                _ => 0,
            };
            if changed != users {
                again.push((id, *table));
            }
        }
        again
    }

    /// Installs a route again whose next-hop object has changed.
    fn install_again(
        &mut self,
        key: Key,
        object: u32,
        target: Result<Target, String>,
        tables: &Tables,
        interfaces: &mut Interfaces<'_>,
        answers: &mut Vec<u8>,
    ) {
        let is_unknown = target.is_err();
        match install(key, target, Some(object), tables, interfaces) {
            Ok(()) => {
                if let Some(answer) = self.waiting.remove(&key) {
                    self.counts.changed += 1;
                    answers.extend(answer);
                }
            }
            // it still waits
            Err(_) if is_unknown && self.waiting.contains_key(&key) => {}
            // the kernel removes routes with their object
            Err(_) if is_unknown && self.source == Source::Kernel => {}
            Err(problem) => {
                let message = self.waiting.remove(&key).unwrap_or_default();
                if let Some(Ok(Message::Route(route))) = fpm::messages(message.get(4..).unwrap_or_default()).next() {
                    fpm::answer(&route, Verdict::Failed, answers);
                }
                self.refused(key.1, &problem);
                // one whose object is gone returns with it
                if !is_unknown {
                    self.forget(key);
                }
            }
        }
    }
}

/// Installs a route, of a next-hop object if one is given. One with an error is not left with the target that it had
/// before.
fn install(
    (table, prefix): Key,
    target: Result<Target, String>,
    object: Option<u32>,
    tables: &Tables,
    interfaces: &mut Interfaces<'_>,
) -> Result<(), String> {
    let router = tables.router(table)?;
    match target.and_then(|target| interfaces.target(table, router, target, object)) {
        Ok(target) => router.install(prefix, &target).map_err(|e| e.to_string()),
        Err(problem) => {
            router.uninstall(prefix);
            Err(problem)
        }
    }
}

impl<'a> Interfaces<'a> {
    /// Returns the interfaces that a function returns for the numbers that the kernel has for them.
    pub(super) fn new(netdev: &'a dyn Fn(u32) -> Netdev) -> Interfaces<'a> {
        Interfaces { netdev, numbers: HashMap::new() }
    }

    fn target(
        &mut self,
        table: u32,
        router: &LiveVrf,
        target: Target,
        object: Option<u32>,
    ) -> Result<InstalledTarget, String> {
        match target {
            Target::Unreachable => Ok(InstalledTarget::Unreachable),
            Target::Prohibit => Ok(InstalledTarget::Prohibited),
            Target::Blackhole => Ok(InstalledTarget::Blackhole),
            Target::Hops(hops) => {
                let via = hops.iter().map(|hop| self.hop(table, router, hop)).collect::<Result<_, String>>()?;
                Ok(match object {
                    Some(id) => InstalledTarget::Object { id, via },
                    None => InstalledTarget::Via(via),
                })
            }
            Target::Object(id) => Err(format!("next-hop object {id} is not known")),
            Target::Unsupported(reason) => Err(format!("{reason} is not supported")),
        }
    }

    fn hop(&mut self, table: u32, router: &LiveVrf, hop: &Hop) -> Result<InstalledHop, String> {
        let missing = |index| format!("interface {index} of the kernel is none of the router's");
        let interface = match hop.interface {
            0 => None,
            index => match self.numbers.entry((table, index)) {
                Entry::Occupied(known) => Some(known.get().ok_or_else(|| missing(index))?),
                Entry::Vacant(new) => match (self.netdev)(index) {
                    // found by the network that contains the next hop
                    Netdev::Elsewhere => None,
                    Netdev::Missing => Some(new.insert(None).ok_or_else(|| missing(index))?),
                    Netdev::Named(name) => Some(new.insert(router.interface(&name)).ok_or_else(|| missing(index))?),
                },
            },
        };
        Ok(InstalledHop { gateway: hop.gateway, interface, weight: hop.weight })
    }
}
