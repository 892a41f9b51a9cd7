//! Numbers of inside hosts. Sessions refer to a host by number, so that their tables are as small as those of NAT44.

use crate::nat::statistics::Subscribers;
use diagnostics::Diagnostic;
use graph::{InvalidState, StateReader, StateWriter};
use std::net::{IpAddr, Ipv6Addr};
use tables::flow::{FlowTable, Lookup, Settings};

struct Host {
    address: u128,
    /// Number of sessions. A host without sessions loses its number unless it is fixed.
    sessions: u32,
}

/// The inside hosts of one core.
pub(super) struct Hosts {
    numbers: FlowTable<u128, u32>,
    hosts: Vec<Host>,
    free: Vec<u32>,
    /// Numbers below this one are fixed: hosts with forwards.
    fixed: u32,
    capacity: usize,
    /// Hosts that may have no session.
    idle: Vec<u32>,
}

impl Hosts {
    /// Creates a table for `capacity` hosts besides the fixed ones, whose numbers are their indices.
    ///
    /// # Errors
    /// The table cannot be allocated.
    pub(super) fn new(fixed: &[u128], capacity: usize) -> Result<Self, Diagnostic> {
        let numbers = FlowTable::new(&Settings::new(capacity + fixed.len())).map_err(|e| {
            let d = Diagnostic::new(e.to_string()).key("subscribers").value(capacity);
            d.remedy("write a smaller number of subscribers, or free memory")
        })?;
        let mut it = Hosts {
            numbers,
            hosts: vec![],
            free: vec![],
            fixed: fixed.len() as u32,
            capacity: capacity + fixed.len(),
            idle: vec![],
        };
        for address in fixed {
            it.add(*address);
        }
        Ok(it)
    }

    /// Prefetches the entry of a host.
    #[inline(always)]
    pub(super) fn prefetch(&self, address: u128) {
        self.numbers.prepare(address);
    }

    fn add(&mut self, address: u128) -> Option<u32> {
        let Hosts { numbers, hosts, free, capacity, .. } = self;
        let new = free.last().copied().or_else(|| (hosts.len() < *capacity).then_some(hosts.len() as u32))?;
        let mut number = None;
        numbers.look_up_or_insert(
            &[numbers.prepare(address)],
            0,
            |_, _| {},
            |_, found| {
                if let Lookup::New(place) = found {
                    *place = new;
                    number = Some(new);
                }
            },
        );
        let (number, host) = (number?, Host { address, sessions: 0 });
        match free.pop() {
            Some(_) => hosts[number as usize] = host,
            None => hosts.push(host),
        }
        Some(number)
    }

    /// Returns the number of a host, if it has one.
    #[inline(always)]
    pub(super) fn get(&self, address: u128) -> Option<u32> {
        self.numbers.get(&address).copied()
    }

    /// Returns the number of a host, which gets one if necessary; `None` if the table is full.
    pub(super) fn get_or_add(&mut self, address: u128) -> Option<u32> {
        if let Some(number) = self.get(address) {
            return Some(number);
        }
        let number = self.add(address)?;
        self.idle.push(number);
        Some(number)
    }

    /// Returns the address of a host that has a session.
    #[inline(always)]
    pub(super) fn address(&self, number: u32) -> u128 {
        self.hosts.get(number as usize).map_or(0, |host| host.address)
    }

    /// Counts one more session of a host.
    pub(super) fn session_created(&mut self, number: u32) {
        if let Some(host) = self.hosts.get_mut(number as usize) {
            host.sessions += 1;
        }
    }

    /// Removes hosts without sessions. Called when no pending event refers to them.
    pub(super) fn remove_idle(&mut self) {
        let Hosts { numbers, hosts, free, fixed, idle, .. } = self;
        for number in idle.drain(..) {
            let host = &hosts[number as usize];
            // a host may be listed twice
            if host.sessions == 0 && number >= *fixed && numbers.get(&host.address) == Some(&number) {
                numbers.remove(&host.address);
                free.push(number);
            }
        }
    }

    /// Writes the hosts that have sessions and no fixed number, by number.
    pub(super) fn save(&self, state: &mut StateWriter) {
        let with_sessions =
            || (0u32..).zip(&self.hosts).skip(self.fixed as usize).filter(|(_, host)| host.sessions > 0);
        state.push(&with_sessions().count());
        with_sessions().for_each(|(number, host)| state.push(&(number, host.address.to_be_bytes())));
    }

    /// Adds hosts with the numbers that another table with the same fixed hosts has saved. They are removed like others
    /// if none of their sessions follows.
    ///
    /// # Errors
    /// The state is not valid.
    pub(super) fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        for _ in 0..state.read::<usize>()?.ok_or(InvalidState)? {
            let (number, address): (u32, [u8; 16]) = state.read()?.ok_or(InvalidState)?;
            let address = u128::from_be_bytes(address);
            // numbers ascend
            let next = self.hosts.len() as u32;
            if number < next || number as usize >= self.capacity || self.get(address).is_some() {
                return Err(InvalidState);
            }
            self.free.extend(next..number);
            self.hosts.resize_with(number as usize, || Host { address: 0, sessions: 0 });
            let free = core::mem::take(&mut self.free);
            let added = self.add(address);
            self.free = free;
            if added != Some(number) {
                return Err(InvalidState);
            }
            self.idle.push(number);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }
}

impl Subscribers for Hosts {
    fn ip(&self, number: u32) -> IpAddr {
        Ipv6Addr::from_bits(self.address(number)).into()
    }

    fn is_known(&self, number: u32) -> bool {
        self.hosts.get(number as usize).is_some_and(|host| self.numbers.get(&host.address) == Some(&number))
    }

    fn session_restored(&mut self, number: u32) {
        self.session_created(number);
    }

    fn session_ended(&mut self, number: u32) {
        if let Some(host) = self.hosts.get_mut(number as usize) {
            host.sessions -= 1;
            if host.sessions == 0 {
                self.idle.push(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn hosts_keep_their_numbers_while_they_have_sessions(
            steps in prop::collection::vec((0..4u8, 0..6u128), 0..200), capacity in 1..5usize
        ) {
            let mut hosts = Hosts::new(&[100, 101], capacity).unwrap();
            // the model: number and sessions of each host
            let mut model: BTreeMap<u128, (u32, u32)> = BTreeMap::new();
            let mut tried = std::collections::BTreeSet::new();
            for (step, address) in steps {
                let address = if address == 5 { 100 } else { address };
                match step {
                    0 | 1 => match hosts.get_or_add(address) {
                        Some(number) => {
                            prop_assert_eq!(hosts.address(number), address);
                            if step == 0 {
                                hosts.session_created(number);
                                let (known, sessions) = model.entry(address).or_insert((number, 0));
                                prop_assert_eq!(*known, number);
                                *sessions += 1;
                            } else if !model.contains_key(&address) && address < 100 {
                                tried.insert(address);
                            }
                        }
                        None => {
                            let known = model.keys().filter(|a| **a < 100).chain(&tried).collect::<std::collections::BTreeSet<_>>();
                            prop_assert!(known.len() >= capacity);
                        }
                    },
                    2 => if let Some((number, sessions)) = model.get_mut(&address) {
                        hosts.session_ended(*number);
                        *sessions -= 1;
                        if *sessions == 0 {
                            model.remove(&address);
                            if address < 100 {
                                tried.insert(address);
                            }
                        }
                    },
                    _ => {
                        hosts.remove_idle();
                        tried.clear();
                        let with = model.keys().filter(|a| **a < 100).count();
                        prop_assert_eq!(hosts.len(), with + 2);
                    }
                }
                for (address, (number, _)) in &model {
                    prop_assert_eq!(hosts.get(*address), Some(*number));
                    prop_assert_eq!(hosts.address(*number), *address);
                }
            }
        }
    }
}
