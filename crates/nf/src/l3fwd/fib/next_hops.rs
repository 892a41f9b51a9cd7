//! Next hops and groups of them, as long as routes use them.

use super::adjacency::AdjacencyKind;
use super::groups::{GROUPS_MAX, Member};
use super::installed::Installed;
use super::route_tables::Writer;
use super::{Control, Fib, NeighbourKey, OWN, REUSE_DELAY, ROUTE_NEXT_HOPS_MAX, is_connected};
use crate::l3fwd::interface::Interface;
use ipnet::IpNet;
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::PoisonError;
use std::time::Duration;

/// Maximum number of different next hops and groups of them.
const TARGETS_MAX: usize = 1 << 15;

/// VRF and number of a next-hop object.
pub(super) type ObjectKey = (usize, u32);

/// The next hops and groups that routes use.
pub(in crate::l3fwd) struct NextHops {
    /// Adjacency numbers by members.
    values: HashMap<Vec<Member>, u32>,
    targets: HashMap<u32, Target>,
    /// Adjacency numbers of the groups of next-hop objects, whose members change in place, by number of the object.
    objects: HashMap<ObjectKey, u32>,
    /// Lowest number of a group that was never used.
    next_group: u32,
    /// Groups that no route uses, and the time from which each is used again.
    unused_groups: VecDeque<(Duration, u32)>,
    /// Routes of the routing daemon of each VRF.
    pub(in crate::l3fwd) installed: Vec<Installed>,
}

struct Target {
    members: Vec<Member>,
    /// The next-hop object, of which all routes that use this are.
    object: Option<ObjectKey>,
    group: Option<u32>,
    /// Number of routes that use it, besides those of the settings and of commands.
    routes: usize,
    /// True if it stays without routes, as routes of the settings and of commands are not counted.
    stays: bool,
}

impl NextHops {
    /// Returns none, for a number of VRFs.
    pub(super) fn new(vrfs: usize) -> Self {
        NextHops {
            values: HashMap::new(),
            targets: HashMap::new(),
            objects: HashMap::new(),
            next_group: 0,
            unused_groups: VecDeque::new(),
            installed: (0..vrfs).map(|_| Installed::default()).collect(),
        }
    }

    /// Returns the value of routes to these next hops, 1 to 64, which stays.
    ///
    /// # Errors
    /// There are too many different next hops, as text that continues the name of a route.
    pub(super) fn keep(&mut self, fib: &Fib, interfaces: &[Interface], members: Vec<Member>) -> Result<u32, String> {
        let value = self.value(fib, interfaces, members)?;
        if let Some(target) = self.targets.get_mut(&value) {
            target.stays = true;
        }
        Ok(value)
    }

    /// Returns the value of a further route to these next hops, 1 to 64, for which [`NextHops::release`] is called when
    /// the route is gone.
    ///
    /// # Errors
    /// As for [`NextHops::keep`].
    pub(super) fn acquire(&mut self, fib: &Fib, interfaces: &[Interface], members: Vec<Member>) -> Result<u32, String> {
        let value = self.value(fib, interfaces, members)?;
        self.count_route(value);
        Ok(value)
    }

    /// As [`NextHops::acquire`], for a route of a next-hop object with these members, to which the group of the object is
    /// changed. An object that never had more than one has no group.
    ///
    /// # Errors
    /// As for [`NextHops::keep`].
    pub(super) fn acquire_object(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        object: ObjectKey,
        members: Vec<Member>,
    ) -> Result<u32, String> {
        if let Some(value) = self.objects.get(&object).copied() {
            self.change(fib, interfaces, value, members)?;
            self.count_route(value);
            return Ok(value);
        }
        if members.len() == 1 {
            return self.acquire(fib, interfaces, members);
        }
        let value = self.create(fib, interfaces, normalized(members), Some(object))?;
        self.objects.insert(object, value);
        self.count_route(value);
        Ok(value)
    }

    /// Changes the group of a next-hop object for all routes that use it. Returns their number; 0 if it has no group.
    ///
    /// # Errors
    /// As for [`NextHops::keep`]; nothing has changed then.
    pub(super) fn change_object(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        object: ObjectKey,
        members: Vec<Member>,
    ) -> Result<usize, String> {
        let Some(value) = self.objects.get(&object).copied() else { return Ok(0) };
        self.change(fib, interfaces, value, members)?;
        Ok(self.targets.get(&value).map_or(0, |target| target.routes))
    }

    /// Returns the next-hop object whose group has this number.
    pub(super) fn object(&self, value: u32) -> Option<u32> {
        self.targets.get(&value)?.object.map(|(_, id)| id)
    }

    /// Forgets the numbers of the next-hop objects of a VRF: the routing daemon may give them to others. Routes keep their next hops.
    pub(super) fn forget_objects(&mut self, vrf: usize) {
        for (_, value) in self.objects.extract_if(|(of, _), _| *of == vrf) {
            if let Some(target) = self.targets.get_mut(&value) {
                target.object = None;
                if target.members.len() > 1 {
                    self.values.entry(target.members.clone()).or_insert(value);
                }
            }
        }
    }

    fn count_route(&mut self, value: u32) {
        if let Some(target) = self.targets.get_mut(&value) {
            target.routes += 1;
        }
    }

    /// Counts a route less that uses a value, which may also be that of no next hops. Numbers that no route uses are
    /// reused after a time.
    pub(super) fn release(&mut self, fib: &Fib, value: u32) {
        let Some(target) = self.targets.get_mut(&value) else { return };
        target.routes = target.routes.saturating_sub(1);
        if target.routes > 0 || target.stays {
            return;
        }
        let Some(target) = self.targets.remove(&value) else { return };
        if let Some(object) = target.object {
            self.objects.remove(&object);
        } else if self.values.get(&target.members) == Some(&value) {
            self.values.remove(&target.members);
        }
        if let Some(group) = target.group {
            self.unused_groups.push_back((fib.now() + REUSE_DELAY, group));
            fib.control().retire(fib, value);
        }
        release_all(fib, &target.members);
    }

    /// Returns the number of different next hops and groups.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.targets.len()
    }

    /// Returns the next hops of a value with their weights.
    pub(in crate::l3fwd) fn members(&self, value: u32) -> &[Member] {
        self.targets.get(&value).map_or(&[], |target| &target.members)
    }

    fn value(&mut self, fib: &Fib, interfaces: &[Interface], members: Vec<Member>) -> Result<u32, String> {
        let members = normalized(members);
        if let Some(value) = self.values.get(&members) {
            return Ok(*value);
        }
        let value = self.create(fib, interfaces, members.clone(), None)?;
        self.values.insert(members, value);
        Ok(value)
    }

    /// Returns the value of a new target with these next hops, of a next-hop object if one is given.
    fn create(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        members: Vec<Member>,
        object: Option<ObjectKey>,
    ) -> Result<u32, String> {
        if self.targets.len() >= TARGETS_MAX {
            return Err(format!("exceeds the maximum of {TARGETS_MAX} different next hops"));
        }
        let numbers = hold_all(fib, interfaces, &members)?;
        let group = match numbers.len() {
            1 => None,
            _ => match self.group(fib, &mut fib.control()) {
                Some(group) => Some(group),
                None => {
                    release_all(fib, &members);
                    return Err(format!("exceeds the maximum of {GROUPS_MAX} groups of next hops"));
                }
            },
        };
        let value = match group {
            None => numbers[0],
            Some((number, group)) => {
                fib.groups.set(group, &members, &numbers);
                fib.adjacencies[number as usize].set_group(group);
                number
            }
        };
        let group = group.map(|(_, group)| group);
        self.targets.insert(value, Target { members, object, group, routes: 0, stays: false });
        Ok(value)
    }

    /// Gives other members to a group that an object has.
    fn change(&mut self, fib: &Fib, interfaces: &[Interface], value: u32, members: Vec<Member>) -> Result<(), String> {
        let members = normalized(members);
        let Some(target) = self.targets.get_mut(&value).filter(|target| target.members != members) else {
            return Ok(());
        };
        let numbers = hold_all(fib, interfaces, &members)?;
        if let Some(group) = target.group {
            fib.groups.set(group, &members, &numbers);
        }
        // after the buckets: workers that still hold a number find its adjacency, as it is not reused at once
        release_all(fib, &mem::replace(&mut target.members, members));
        Ok(())
    }

    /// Returns an adjacency number and the number of a group.
    fn group(&mut self, fib: &Fib, control: &mut Control) -> Option<(u32, u32)> {
        let now = fib.now();
        let group = match self.unused_groups.front() {
            Some((reusable_from, group)) if *reusable_from <= now => *group,
            _ if (self.next_group as usize) < GROUPS_MAX => self.next_group,
            _ => return None,
        };
        let number = control.allocate(fib, now)?;
        match group == self.next_group {
            true => self.next_group += 1,
            false => drop(self.unused_groups.pop_front()),
        }
        Some((number, group))
    }
}

/// Returns the number of the VRF of next hops, which are all of one.
fn vrf_of(fib: &Fib, members: &[Member]) -> usize {
    members.first().map_or(OWN, |((interface, _), _)| fib.vrf_of(*interface))
}

/// Returns members as they are compared: their order means nothing, nor does the weight of one.
fn normalized(mut members: Vec<Member>) -> Vec<Member> {
    match &mut members[..] {
        [(_, weight)] => *weight = 1,
        members => members.sort_unstable(),
    }
    members
}

/// Returns the adjacency numbers of members, which stay until [`release_all`].
fn hold_all(fib: &Fib, interfaces: &[Interface], members: &[Member]) -> Result<Vec<u32>, String> {
    // numbers are those of all VRFs, and workers wait for the lock of `Control`
    let highest = fib.control().highest_soon(members.len() + 1);
    for tables in &fib.tables {
        let mut tables = tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.widen_for(highest).map_err(|e| e.to_string())?;
    }
    let mut tables = fib.tables(vrf_of(fib, members));
    let mut control = fib.control();
    let mut numbers = vec![];
    for (key, _) in members {
        match control.hold_next_hop(fib, interfaces, *key, &mut tables) {
            Some(number) => numbers.push(number),
            None => {
                let held = &members[..numbers.len()];
                held.iter().for_each(|(key, _)| control.release_next_hop(*key, fib.now(), &mut tables));
                return Err("exceeds the maximum number of next hops".to_owned());
            }
        }
    }
    Ok(numbers)
}

fn release_all(fib: &Fib, members: &[Member]) {
    let mut tables = fib.tables(vrf_of(fib, members));
    let mut control = fib.control();
    members.iter().for_each(|(key, _)| control.release_next_hop(*key, fib.now(), &mut tables));
}

impl Control {
    /// Returns the highest adjacency number after so many more are allocated, and those that workers may allocate before
    /// routes are changed again: a number of a neighbour that never answers is used for 3 s and is free after 4 s more.
    pub(super) fn highest_soon(&self, more: usize) -> u32 {
        let of_workers = 3 * self.neighbours_max.saturating_sub(self.held);
        self.next_unused.saturating_add(u32::try_from(of_workers + more).unwrap_or(u32::MAX))
    }

    /// Returns the adjacency number of a next hop, which is added if it is unknown and stays as long as it is held.
    fn hold_next_hop(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        key: NeighbourKey,
        tables: &mut Writer,
    ) -> Option<u32> {
        if self.held >= ROUTE_NEXT_HOPS_MAX && self.neighbours.get(&key).is_none_or(|n| n.held == 0) {
            return None;
        }
        self.neighbours_max += 1;
        let is_new = !self.neighbours.contains_key(&key);
        let number = self.add_next_hop(fib, interfaces, key, fib.now());
        let Some(neighbour) = self.neighbours.get_mut(&key).filter(|_| number.is_some()) else {
            self.neighbours_max -= 1;
            return None;
        };
        neighbour.held += 1;
        match neighbour.held {
            1 => self.held += 1,
            _ => self.neighbours_max -= 1,
        }
        if is_new {
            let adjacency = neighbour.adjacency;
            if is_connected(tables, key.0, key.1) {
                // without it, packets to the next hop itself resolve it on their own
                let _ = tables.insert(IpNet::from(key.1), adjacency);
            }
        }
        number
    }

    /// Releases a next hop. One whose MAC address is not known is removed, others expire as other neighbours do.
    fn release_next_hop(&mut self, key: NeighbourKey, now: Duration, tables: &mut Writer) {
        let Some(neighbour) = self.neighbours.get_mut(&key) else { return };
        neighbour.held = neighbour.held.saturating_sub(1);
        if neighbour.held > 0 {
            return;
        }
        self.neighbours_max = self.neighbours_max.saturating_sub(1);
        self.held = self.held.saturating_sub(1);
        if neighbour.mac.is_none() && !neighbour.is_static {
            self.remove(key, tables, now);
        }
    }

    /// Keeps the number of a group until no worker uses it any more.
    fn retire(&mut self, fib: &Fib, number: u32) {
        // packets of workers that still hold the number find its members
        self.retired.push_back((fib.now() + REUSE_DELAY, number));
        debug_assert_eq!(fib.adjacency(number).load().kind(), AdjacencyKind::Group);
    }
}
