//! One connection of zebra: bytes to changes of routes, and answers.

use fpm::{FrameError, FrameReader, Hop, Message, NextHop, NextHops, Route, Target, Verdict};
use ipnet::IpNet;
use nf::live::{InstalledHop, InstalledTarget, LiveRoutes, RouteUpdate};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Maximum number of next-hop objects of a connection, with the members of groups.
const NEXT_HOPS_MAX: usize = 1 << 17;

/// Maximum number of routes that wait for their next-hop object.
const WAITING_MAX: usize = 1 << 16;

/// The routers whose routes a connection brings, by number of the routing table.
pub(super) struct Tables {
    pub(super) routers: Vec<(u32, Arc<LiveRoutes>)>,
}

/// Numbers of what a connection has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Changes of routes that were made.
    pub(super) changed: u64,
    /// Changes of routes that were not made.
    pub(super) refused: u64,
    /// Messages that are not valid.
    pub(super) malformed: u64,
}

/// When a change takes effect.
enum Changed {
    Now,
    /// With the next-hop object that has not arrived yet.
    Later,
}

/// State of a connection.
pub(super) struct Session {
    reader: FrameReader,
    next_hops: NextHops,
    /// Routes by the next-hop object that they use.
    users: HashMap<u32, BTreeSet<(u32, IpNet)>>,
    /// Next-hop objects of routes.
    objects: HashMap<(u32, IpNet), u32>,
    /// A route that is to be removed. Versions of zebra change a route by removing and adding it, between which packets
    /// are to find it.
    removed: Option<(u32, IpNet)>,
    /// Answers to routes whose next-hop object has not arrived yet.
    waiting: HashMap<(u32, IpNet), Vec<u8>>,
    pub(super) counts: Counts,
}

impl Session {
    pub(super) fn new() -> Session {
        Session {
            reader: FrameReader::new(),
            next_hops: NextHops::new(NEXT_HOPS_MAX),
            users: HashMap::new(),
            objects: HashMap::new(),
            removed: None,
            waiting: HashMap::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the buffer for received bytes.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.reader.room()
    }

    /// Executes the whole frames among what was received, with `n` bytes more. `interface` returns the name of the
    /// interface for the number that the kernel has for it.
    ///
    /// # Errors
    /// The stream cannot be read on.
    pub(super) fn received(
        &mut self,
        n: usize,
        tables: &Tables,
        interface: &mut dyn FnMut(u32) -> Option<String>,
        answers: &mut Vec<u8>,
    ) -> Result<(), FrameError> {
        self.reader.filled(n);
        let mut interfaces = Interfaces { name: interface, numbers: HashMap::new() };
        let Session { reader, next_hops, users, objects, removed, waiting, counts } = self;
        while let Some(frame) = reader.next_frame()? {
            let next_hops = &mut *next_hops;
            let mut routes =
                Routes { next_hops, users, objects, removed, waiting, tables, interfaces: &mut interfaces };
            for message in fpm::messages(frame) {
                match message {
                    Ok(Message::Route(route)) => match routes.change(&route) {
                        Ok(Changed::Now) => {
                            counts.changed += 1;
                            fpm::answer(&route, Verdict::Offloaded, answers);
                        }
                        Ok(Changed::Later) => {}
                        Err(problem) => {
                            counts.refused += 1;
                            refused(&route.prefix, &problem);
                            fpm::answer(&route, Verdict::Failed, answers);
                        }
                    },
                    Ok(Message::NextHop(next_hop)) => {
                        if let Err(problem) = routes.change_next_hop(next_hop, counts, answers) {
                            counts.refused += 1;
                            tracing::warn!(target: "fpm", cause = "next hop", "next hop refused: {problem}");
                        }
                    }
                    Ok(Message::Other { .. }) => {}
                    Err(e) => {
                        counts.malformed += 1;
                        tracing::warn!(target: "fpm", cause = "malformed", "{e}");
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the last change, after which nothing has been received for a while.
    pub(super) fn flush(&mut self, tables: &Tables) {
        if let Some(key) = self.removed.take() {
            tables.remove(key);
        }
    }
}

impl Tables {
    fn router(&self, table: u32) -> Result<&LiveRoutes, String> {
        let router = self.routers.iter().find(|(own, _)| *own == table);
        router.map(|(_, router)| &**router).ok_or_else(|| format!("no router has the routing table {table}"))
    }

    fn remove(&self, (table, prefix): (u32, IpNet)) {
        if let Ok(router) = self.router(table) {
            router.install(&[RouteUpdate { prefix, target: None }]);
        }
    }
}

fn refused(prefix: &IpNet, problem: &str) {
    tracing::warn!(target: "fpm", cause = problem, "route to {prefix} refused: {problem}");
}

/// Numbers that routers have for interfaces, by that of the kernel and of the table.
struct Interfaces<'a> {
    name: &'a mut dyn FnMut(u32) -> Option<String>,
    numbers: HashMap<(u32, u32), Option<usize>>,
}

/// What changes of routes need.
struct Routes<'a, 'b> {
    next_hops: &'a mut NextHops,
    users: &'a mut HashMap<u32, BTreeSet<(u32, IpNet)>>,
    objects: &'a mut HashMap<(u32, IpNet), u32>,
    removed: &'a mut Option<(u32, IpNet)>,
    waiting: &'a mut HashMap<(u32, IpNet), Vec<u8>>,
    tables: &'a Tables,
    interfaces: &'a mut Interfaces<'b>,
}

impl Routes<'_, '_> {
    fn change(&mut self, route: &Route<'_>) -> Result<Changed, String> {
        let key = (route.table, route.prefix);
        self.forget(key);
        self.waiting.remove(&key);
        if let Some(before) = self.removed.take_if(|before| *before != key) {
            self.tables.remove(before);
        }
        if route.removes {
            self.tables.router(key.0)?;
            *self.removed = Some(key);
            return Ok(Changed::Now);
        }
        *self.removed = None;
        let target = match &route.target {
            Target::Object(id) => {
                self.objects.insert(key, *id);
                self.users.entry(*id).or_default().insert(key);
                match self.next_hops.resolve(*id) {
                    Ok(target) => Ok(target),
                    Err(_) if self.waiting.len() < WAITING_MAX => {
                        fpm::answer(route, Verdict::Offloaded, self.waiting.entry(key).or_default());
                        self.tables.remove(key);
                        return Ok(Changed::Later);
                    }
                    Err(e) => Err(e.to_string()),
                }
            }
            target => Ok(target.clone()),
        };
        self.install(key, target).map(|()| Changed::Now)
    }

    /// Forgets the next-hop object of a route.
    fn forget(&mut self, key: (u32, IpNet)) {
        if let Some(id) = self.objects.remove(&key)
            && let Some(users) = self.users.get_mut(&id)
        {
            users.remove(&key);
            if users.is_empty() {
                self.users.remove(&id);
            }
        }
    }

    /// Changes a next-hop object, and the routes that use it or a group with it.
    fn change_next_hop(&mut self, next_hop: NextHop, counts: &mut Counts, answers: &mut Vec<u8>) -> Result<(), String> {
        let id = match next_hop {
            NextHop::Add { id, value } => {
                self.next_hops.insert(id, value).map_err(|e| e.to_string())?;
                id
            }
            NextHop::Remove { id } => {
                self.next_hops.remove(id);
                id
            }
        };
        let changed: Vec<u32> = std::iter::once(id).chain(self.next_hops.groups_of(id)).collect();
        for id in changed {
            let keys: Vec<_> = self.users.get(&id).into_iter().flatten().copied().collect();
            for key in keys {
                let target = self.next_hops.resolve(id).map_err(|e| e.to_string());
                match self.install(key, target) {
                    Ok(()) => {
                        if let Some(answer) = self.waiting.remove(&key) {
                            counts.changed += 1;
                            answers.extend(answer);
                        }
                    }
                    Err(problem) => refused(&key.1, &problem),
                }
            }
        }
        Ok(())
    }

    /// Installs a route. One with an error is not left with the target that it had before.
    fn install(&mut self, (table, prefix): (u32, IpNet), target: Result<Target, String>) -> Result<(), String> {
        let router = self.tables.router(table)?;
        match target.and_then(|target| self.target(table, router, target)) {
            Ok(target) => match router.install(&[RouteUpdate { prefix, target: Some(target) }]).pop() {
                Some(Err(refused)) => Err(refused.to_string()),
                _ => Ok(()),
            },
            Err(problem) => {
                self.tables.remove((table, prefix));
                Err(problem)
            }
        }
    }

    fn target(&mut self, table: u32, router: &LiveRoutes, target: Target) -> Result<InstalledTarget, String> {
        match target {
            Target::Unreachable => Ok(InstalledTarget::Unreachable),
            Target::Prohibit => Ok(InstalledTarget::Prohibited),
            Target::Blackhole => Ok(InstalledTarget::Blackhole),
            Target::Hops(hops) => {
                let hops: Result<_, String> = hops.iter().map(|hop| self.hop(table, router, hop)).collect();
                Ok(InstalledTarget::Via(hops?))
            }
            Target::Object(id) => Err(format!("next-hop object {id} is not known")),
            Target::Unsupported(reason) => Err(format!("{reason} is not supported")),
        }
    }

    fn hop(&mut self, table: u32, router: &LiveRoutes, hop: &Hop) -> Result<InstalledHop, String> {
        let Interfaces { name, numbers } = &mut self.interfaces;
        let mut number = |index| name(index).and_then(|name| router.interface(&name));
        let interface = match hop.interface {
            0 => None,
            index => *numbers.entry((table, index)).or_insert_with(|| number(index)),
        };
        match (hop.gateway, interface) {
            (None, None) => Err(format!("interface {} of the kernel is none of the router's", hop.interface)),
            (gateway, interface) => Ok(InstalledHop { gateway, interface, weight: hop.weight }),
        }
    }
}
