//! Next hops and groups of them, as long as routes use them.

use super::adjacency::AdjacencyKind;
use super::groups::{GROUPS_MAX, Member};
use super::installed::Installed;
use super::route_tables::Writer;
use super::{Control, Fib, NeighbourKey, OWN, REUSE_DELAY, ROUTE_NEXT_HOPS_MAX, is_connected};
use crate::l3fwd::config::Interface;
use ipnet::IpNet;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Maximum number of different next hops and groups of them.
const TARGETS_MAX: usize = 1 << 15;

/// The next hops and groups that routes use.
pub(in crate::l3fwd) struct NextHops {
    /// Adjacency numbers by members.
    values: HashMap<Vec<Member>, u32>,
    targets: HashMap<u32, Target>,
    /// Lowest number of a group that was never used.
    next_group: u32,
    /// Groups that no route uses, and the time from which each is used again.
    unused_groups: VecDeque<(Duration, u32)>,
    /// Routes of the routing daemon of each VRF.
    pub(in crate::l3fwd) installed: Vec<Installed>,
}

struct Target {
    members: Vec<Member>,
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
        if let Some(target) = self.targets.get_mut(&value) {
            target.routes += 1;
        }
        Ok(value)
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
        self.values.remove(&target.members);
        let mut tables = fib.tables(vrf_of(fib, &target.members));
        let mut control = fib.control();
        if let Some(group) = target.group {
            self.unused_groups.push_back((fib.now() + REUSE_DELAY, group));
            control.retire(fib, value);
        }
        for (key, _) in &target.members {
            control.release_next_hop(*key, fib.now(), &mut tables);
        }
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

    fn value(&mut self, fib: &Fib, interfaces: &[Interface], mut members: Vec<Member>) -> Result<u32, String> {
        // the order means nothing, nor does the weight of one
        match &mut members[..] {
            [(_, weight)] => *weight = 1,
            members => members.sort_unstable(),
        }
        if let Some(value) = self.values.get(&members) {
            return Ok(*value);
        }
        if self.values.len() >= TARGETS_MAX {
            return Err(format!("exceeds the maximum of {TARGETS_MAX} different next hops"));
        }
        let mut tables = fib.tables(vrf_of(fib, &members));
        let mut control = fib.control();
        let mut numbers = vec![];
        for (key, _) in &members {
            match control.hold_next_hop(fib, interfaces, *key, &mut tables) {
                Some(number) => numbers.push(number),
                None => {
                    let held = &members[..numbers.len()];
                    held.iter().for_each(|(key, _)| control.release_next_hop(*key, fib.now(), &mut tables));
                    return Err("exceeds the maximum number of next hops".to_owned());
                }
            }
        }
        let group = match numbers.len() {
            1 => None,
            _ => match self.group(fib, &mut control) {
                Some(group) => Some(group),
                None => {
                    members.iter().for_each(|(key, _)| control.release_next_hop(*key, fib.now(), &mut tables));
                    return Err(format!("exceeds the maximum of {GROUPS_MAX} groups of next hops"));
                }
            },
        };
        // workers wait for it
        drop(control);
        drop(tables);
        let value = match group {
            None => numbers[0],
            Some((number, group)) => {
                fib.groups.set(group, &members, &numbers);
                fib.adjacencies[number as usize].set_group(group);
                number
            }
        };
        let group = group.map(|(_, group)| group);
        self.values.insert(members.clone(), value);
        self.targets.insert(value, Target { members, group, routes: 0, stays: false });
        Ok(value)
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

impl Control {
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
