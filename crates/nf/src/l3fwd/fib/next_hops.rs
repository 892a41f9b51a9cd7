//! Next hops and groups of them, as long as routes use them.

use super::adjacency::AdjacencyKind;
use super::groups::Member;
use super::installed::Installed;
use super::route_tables::Writer;
use super::share::Share;
use super::{Control, Fib, NEIGHBOUR_NUMBERS, NeighbourKey, OWN, REUSE_DELAY, is_connected};
use crate::l3fwd::interface::Interface;
use ipnet::IpNet;
use std::collections::HashMap;
use std::mem;
use std::time::Duration;

/// The next hops and groups that routes of a VRF use.
pub(in crate::l3fwd) struct NextHops {
    /// Adjacency numbers by members.
    values: HashMap<Vec<Member>, u32>,
    targets: HashMap<u32, Target>,
    /// Adjacency numbers of the groups of next-hop objects, whose members change in place, by number of the object.
    objects: HashMap<u32, u32>,
    share: Share,
    /// Routes of the routing daemon.
    pub(in crate::l3fwd) installed: Installed,
}

struct Target {
    members: Vec<Member>,
    /// The next-hop object, of which all routes that use this are.
    object: Option<u32>,
    group: Option<u32>,
    /// Number of routes that use it, besides those of the settings and of commands.
    routes: usize,
    /// True if it stays without routes, as routes of the settings and of commands are not counted.
    stays: bool,
}

impl NextHops {
    /// Returns none, of which there are at most so many.
    pub(super) fn new(max: usize) -> Self {
        NextHops {
            values: HashMap::new(),
            targets: HashMap::new(),
            objects: HashMap::new(),
            share: Share::new(max),
            installed: Installed::default(),
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
        object: u32,
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
        object: u32,
        members: Vec<Member>,
    ) -> Result<usize, String> {
        let Some(value) = self.objects.get(&object).copied() else { return Ok(0) };
        self.change(fib, interfaces, value, members)?;
        Ok(self.targets.get(&value).map_or(0, |target| target.routes))
    }

    /// Returns the next-hop object whose group has this number.
    pub(super) fn object(&self, value: u32) -> Option<u32> {
        self.targets.get(&value)?.object
    }

    /// Forgets the numbers of the next-hop objects: the routing daemon may give them to others. Routes keep their next hops.
    pub(super) fn forget_objects(&mut self) {
        for (_, value) in self.objects.drain() {
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
            self.share.retire(fib.now());
            fib.control().retire_group(fib, value, group);
        }
        self.release_all(fib, &target.members);
    }

    /// Returns the number of next hops and groups that are used or not reused yet, and the maximum.
    pub(in crate::l3fwd) fn usage(&self, now: Duration) -> (usize, usize) {
        (self.share.len(now), self.share.max())
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
        object: Option<u32>,
    ) -> Result<u32, String> {
        let numbers = self.hold_all(fib, interfaces, &members)?;
        let group = match numbers.len() {
            1 => None,
            _ => match self.group(fib) {
                Some(group) => Some(group),
                None => {
                    self.release_all(fib, &members);
                    return Err(self.full());
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
        if self.targets.get(&value).is_none_or(|target| target.members == members) {
            return Ok(());
        }
        let numbers = self.hold_all(fib, interfaces, &members)?;
        let Some(target) = self.targets.get_mut(&value) else { return Ok(()) };
        if let Some(group) = target.group {
            fib.groups.set(group, &members, &numbers);
        }
        // after the buckets: workers that still hold a number find its adjacency, as it is not reused at once
        let before = mem::replace(&mut target.members, members);
        self.release_all(fib, &before);
        Ok(())
    }

    /// Returns an adjacency number and the number of a group.
    fn group(&mut self, fib: &Fib) -> Option<(u32, u32)> {
        if !self.share.take(fib.now()) {
            return None;
        }
        let group = fib.control().allocate_group(fib);
        if group.is_none() {
            self.share.give();
        }
        group
    }

    /// Returns the adjacency numbers of members, which stay until [`release_all`](Self::release_all).
    fn hold_all(&mut self, fib: &Fib, interfaces: &[Interface], members: &[Member]) -> Result<Vec<u32>, String> {
        let highest = fib.control().highest_soon();
        fib.widen_for(highest).map_err(|e| e.to_string())?;
        let mut tables = fib.tables(vrf_of(fib, members));
        tables.widen_for(highest).map_err(|e| e.to_string())?;
        let mut numbers = vec![];
        for (n, (key, _)) in members.iter().enumerate() {
            // workers wait for the lock: for one member at a time
            let number = fib.control().hold_next_hop(fib, interfaces, *key, &mut tables, &mut self.share);
            let Some(number) = number else {
                drop(tables);
                self.release_all(fib, &members[..n]);
                return Err(self.full());
            };
            numbers.push(number);
        }
        Ok(numbers)
    }

    fn release_all(&mut self, fib: &Fib, members: &[Member]) {
        let mut tables = fib.tables(vrf_of(fib, members));
        for (key, _) in members {
            fib.control().release_next_hop(fib, *key, &mut tables, &mut self.share);
        }
    }

    fn full(&self) -> String {
        format!("exceeds the maximum of {} next hops and groups of next hops (next_hops_max)", self.share.max())
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

impl Control {
    /// Returns the highest adjacency number after changes of routes in all VRFs allocate more, and those that workers may
    /// allocate before routes are changed again.
    pub(super) fn highest_soon(&self) -> u32 {
        let of_routes = self.others.len() * (super::NEXT_HOPS_MAX + 1);
        let soon = NEIGHBOUR_NUMBERS * self.neighbours_max + of_routes;
        self.next_unused.saturating_add(u32::try_from(soon).unwrap_or(u32::MAX))
    }

    /// Returns the adjacency number of a next hop, which is added if it is unknown and stays as long as it is held; `None`
    /// if the share of the VRF is used.
    fn hold_next_hop(
        &mut self,
        fib: &Fib,
        interfaces: &[Interface],
        key: NeighbourKey,
        tables: &mut Writer,
        share: &mut Share,
    ) -> Option<u32> {
        let known = self.neighbours.get(&key);
        let (is_new, is_held) = (known.is_none(), known.is_some_and(|n| n.held > 0));
        if !is_held && !share.take(fib.now()) {
            return None;
        }
        let number = self.add_next_hop(fib, interfaces, key, fib.now());
        let Some(neighbour) = self.neighbours.get_mut(&key).filter(|_| number.is_some()) else {
            share.give();
            return None;
        };
        neighbour.held += 1;
        if is_new && is_connected(tables, key.0, key.1) {
            // without it, packets to the next hop itself resolve it on their own
            let _ = tables.insert(IpNet::from(key.1), neighbour.adjacency);
        }
        if !is_held {
            self.held += 1;
            self.others[fib.vrf_of(key.0)] -= 1;
        }
        number
    }

    /// Releases a next hop. One whose MAC address is not known is removed, others expire as other neighbours do, as far as
    /// the share of the VRF has room for them.
    fn release_next_hop(&mut self, fib: &Fib, key: NeighbourKey, tables: &mut Writer, share: &mut Share) {
        let has_room = self.has_room(fib.vrf_of(key.0));
        let Some(neighbour) = self.neighbours.get_mut(&key).filter(|n| n.held > 0) else { return };
        neighbour.held -= 1;
        if neighbour.held > 0 {
            return;
        }
        let stays = neighbour.is_static || neighbour.mac.is_some() && has_room;
        self.held -= 1;
        self.others[fib.vrf_of(key.0)] += 1;
        if stays {
            share.give();
        } else {
            share.retire(fib.now());
            self.remove(fib, key, tables, fib.now());
        }
    }

    /// Returns an adjacency number and the number of a group; `None` if all are in use.
    fn allocate_group(&mut self, fib: &Fib) -> Option<(u32, u32)> {
        let now = fib.now();
        let reusable = self.unused_groups.front().filter(|(reusable_from, _)| *reusable_from <= now);
        let group = reusable.map_or(self.next_group, |(_, group)| *group);
        if group as usize >= fib.groups.max() {
            return None;
        }
        let number = self.allocate(fib, now)?;
        match group == self.next_group {
            true => self.next_group += 1,
            false => drop(self.unused_groups.pop_front()),
        }
        Some((number, group))
    }

    /// Keeps the numbers of a group until no worker uses it any more.
    fn retire_group(&mut self, fib: &Fib, number: u32, group: u32) {
        let reusable_from = fib.now() + REUSE_DELAY;
        self.unused_groups.push_back((reusable_from, group));
        // packets of workers that still hold the number find its members
        self.retired.push_back((reusable_from, number));
        debug_assert_eq!(fib.adjacency(number).load().kind(), AdjacencyKind::Group);
    }
}
