//! Hosts inside, each with a number: sessions know it by that, so that their tables are as small as those of IPv4.

use crate::nat44::ledger::Subscribers;
use diagnostics::Diagnostic;
use std::net::{IpAddr, Ipv6Addr};
use tables::flow::{FlowTable, Found, Settings};

struct Host {
    address: u128,
    /// Sessions; a host with none loses its number, but for those that are there for good.
    sessions: u32,
}

/// The hosts of one copy.
pub(super) struct Hosts {
    numbers: FlowTable<u128, u32>,
    hosts: Vec<Host>,
    free: Vec<u32>,
    /// Numbers below this one stay: of hosts with forwards.
    fixed: u32,
    most: usize,
    /// Those that had no session when they were looked at last, and may have none.
    idle: Vec<u32>,
}

impl Hosts {
    /// At most so many besides those that are there for good, whose numbers are their places.
    ///
    /// # Errors
    /// There is no memory for so many.
    pub(super) fn new(fixed: &[u128], most: usize) -> Result<Self, Diagnostic> {
        let numbers = FlowTable::new(&Settings::new(most + fixed.len())).map_err(|e| {
            let d = Diagnostic::new(e.to_string()).key("subscribers").value(most);
            d.remedy("ask for fewer hosts, as far as memory goes")
        })?;
        let mut it = Hosts {
            numbers,
            hosts: vec![],
            free: vec![],
            fixed: fixed.len() as u32,
            most: most + fixed.len(),
            idle: vec![],
        };
        for address in fixed {
            it.add(*address);
        }
        Ok(it)
    }

    /// Has memory bring where a host's number stands.
    #[inline(always)]
    pub(super) fn fetch(&self, address: u128) {
        self.numbers.prepare(address);
    }

    fn add(&mut self, address: u128) -> Option<u32> {
        let Hosts { numbers, hosts, free, most, .. } = self;
        let new = free.last().copied().or_else(|| (hosts.len() < *most).then_some(hosts.len() as u32))?;
        let mut number = None;
        numbers.look_up_or_insert(
            &[numbers.prepare(address)],
            0,
            |_, _| {},
            |_, found| {
                if let Found::New(place) = found {
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

    /// The number of a host, if it has one.
    #[inline(always)]
    pub(super) fn get(&self, address: u128) -> Option<u32> {
        self.numbers.get(&address).copied()
    }

    /// The number of a host that begins a session, or tries to; `None` if there are too many.
    pub(super) fn enter(&mut self, address: u128) -> Option<u32> {
        if let Some(number) = self.get(address) {
            return Some(number);
        }
        let number = self.add(address)?;
        self.idle.push(number);
        Some(number)
    }

    /// The address of a host that has a session.
    #[inline(always)]
    pub(super) fn address(&self, number: u32) -> u128 {
        self.hosts.get(number as usize).map_or(0, |host| host.address)
    }

    /// It has one more session.
    pub(super) fn begun(&mut self, number: u32) {
        if let Some(host) = self.hosts.get_mut(number as usize) {
            host.sessions += 1;
        }
    }

    /// Forgets those without sessions, once nothing that is still to be told names them.
    pub(super) fn settle(&mut self) {
        let Hosts { numbers, hosts, free, fixed, idle, .. } = self;
        for number in idle.drain(..) {
            let host = &hosts[number as usize];
            // it may stand here twice
            if host.sessions == 0 && number >= *fixed && numbers.get(&host.address) == Some(&number) {
                numbers.remove(&host.address);
                free.push(number);
            }
        }
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

    fn ended(&mut self, number: u32) {
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
        fn numbers_are_one_hosts_as_long_as_it_has_sessions(
            steps in prop::collection::vec((0..4u8, 0..6u128), 0..200), most in 1..5usize
        ) {
            let mut hosts = Hosts::new(&[100, 101], most).unwrap();
            // the model: sessions by host
            let mut model: BTreeMap<u128, (u32, u32)> = BTreeMap::new();
            let mut tried = std::collections::BTreeSet::new();
            for (step, address) in steps {
                let address = if address == 5 { 100 } else { address };
                match step {
                    0 | 1 => match hosts.enter(address) {
                        Some(number) => {
                            prop_assert_eq!(hosts.address(number), address);
                            if step == 0 {
                                hosts.begun(number);
                                let (known, sessions) = model.entry(address).or_insert((number, 0));
                                prop_assert_eq!(*known, number);
                                *sessions += 1;
                            } else if !model.contains_key(&address) && address < 100 {
                                tried.insert(address);
                            }
                        }
                        None => {
                            let known = model.keys().filter(|a| **a < 100).chain(&tried).collect::<std::collections::BTreeSet<_>>();
                            prop_assert!(known.len() >= most);
                        }
                    },
                    2 => if let Some((number, sessions)) = model.get_mut(&address) {
                        hosts.ended(*number);
                        *sessions -= 1;
                        if *sessions == 0 {
                            model.remove(&address);
                            if address < 100 {
                                tried.insert(address);
                            }
                        }
                    },
                    _ => {
                        hosts.settle();
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
