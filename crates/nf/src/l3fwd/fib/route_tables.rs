//! Route tables: longest prefix match, and optionally an exact-match table for routes to single addresses that is
//! looked up first.
//!
//! A changed route to a single address stays in its table, so that concurrent look-ups find it. Only a route whose new
//! value exceeds an entry of 48 bits moves from the exact-match table to the other one.

use crate::l3fwd::settings::HostTable;
use crate::large_table::{settings, warn_small_pages};
use core::array;
use ipnet::IpNet;
use packet::BURST;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tables::cuckoo::{self, CuckooTable, Key, Key48, Key144};
use tables::{lpm, lpm4, lpm6};

/// Error of inserting a route.
#[derive(Debug, thiserror::Error)]
pub(super) enum TableError {
    #[error(transparent)]
    Prefixes(#[from] lpm::Error),
    #[error(transparent)]
    Hosts(#[from] cuckoo::Error),
}

/// Writer of the tables.
pub(in crate::l3fwd) struct Writer {
    pub(super) v4: lpm4::Writer,
    pub(super) v6: lpm6::Writer,
    hosts: Option<(CuckooTable<Key48>, CuckooTable<Key144>)>,
}

/// Reader of the tables, one for each worker.
pub(crate) struct Reader {
    v4: lpm4::Reader,
    v6: lpm6::Reader,
    hosts: Option<Box<(cuckoo::Reader<Key48>, cuckoo::Reader<Key144>)>>,
}

fn key4(address: u32) -> Key48 {
    Key48::vrf_ipv4(0, address)
}

fn key6(address: u128) -> Key144 {
    Key144::vrf_ipv6(0, address)
}

impl Writer {
    /// Returns empty tables. The exact-match tables have the given capacities for IPv4 and IPv6; `Lpm` ignores them.
    pub(super) fn new(table: HostTable, hosts: [u64; 2]) -> Result<Self, TableError> {
        let hosts = match table {
            HostTable::Lpm => None,
            HostTable::Exact => {
                let v4 = CuckooTable::new(&settings::<Key48>(hosts[0]))?;
                let v6 = CuckooTable::new(&settings::<Key144>(hosts[1]))?;
                warn_small_pages("l3fwd", &[v4.backing(), v6.backing()]);
                Some((v4, v6))
            }
        };
        Ok(Writer { v4: lpm4::new()?.0, v6: lpm6::new()?.0, hosts })
    }

    pub(super) fn reader(&self) -> Reader {
        Reader {
            v4: self.v4.table().reader(),
            v6: self.v6.table().reader(),
            hosts: self.hosts.as_ref().map(|(v4, v6)| Box::new((v4.reader(), v6.reader()))),
        }
    }

    /// Makes values up to `highest` fit, so that no later insertion takes the time for that.
    pub(super) fn widen_for(&mut self, highest: u32) -> Result<(), TableError> {
        let highest = highest.min(lpm::MAX_VALUE);
        self.v4.widen_for(highest)?;
        Ok(self.v6.widen_for(highest)?)
    }

    /// Returns true if a value fits without [`widen_for`](Self::widen_for), which takes milliseconds.
    pub(super) fn fits(&self, value: u32) -> bool {
        self.v4.fits(value) && self.v6.fits(value)
    }

    /// Inserts a route or replaces its value.
    pub(super) fn insert(&mut self, net: IpNet, value: u32) -> Result<(), TableError> {
        let Writer { v4, v6, hosts } = self;
        match (net, hosts) {
            (IpNet::V4(net), Some((exact, _))) if net.prefix_len() == 32 => {
                let (address, key) = (net.network(), key4(net.network().to_bits()));
                let fits = u16::try_from(value).ok().filter(|value| u32::from(*value) <= Key48::MAX_VALUE);
                match fits.filter(|_| v4.get(address, 32).is_none()) {
                    Some(value) => drop(exact.insert(key, value)?),
                    None => {
                        v4.insert(address, 32, value)?;
                        exact.remove(key);
                    }
                }
            }
            (IpNet::V6(net), Some((_, exact))) if net.prefix_len() == 128 => {
                exact.insert(key6(net.network().to_bits()), value)?;
                v6.remove(net.network(), 128);
            }
            (IpNet::V4(net), _) => drop(v4.insert(net.network(), net.prefix_len(), value)?),
            (IpNet::V6(net), _) => drop(v6.insert(net.network(), net.prefix_len(), value)?),
        }
        Ok(())
    }

    /// Inserts a route with a tag that is not 0, or replaces one. It is in the longest-prefix-match table in any case.
    pub(super) fn insert_tagged(&mut self, net: IpNet, value: u32, tag: u8) -> Result<(), TableError> {
        let Writer { v4, v6, hosts } = self;
        match net {
            IpNet::V4(net) => {
                v4.insert_tagged(net.network(), net.prefix_len(), value, tag)?;
                if let (32, Some((exact, _))) = (net.prefix_len(), hosts) {
                    exact.remove(key4(net.network().to_bits()));
                }
            }
            IpNet::V6(net) => {
                v6.insert_tagged(net.network(), net.prefix_len(), value, tag)?;
                if let (128, Some((_, exact))) = (net.prefix_len(), hosts) {
                    exact.remove(key6(net.network().to_bits()));
                }
            }
        }
        Ok(())
    }

    /// Inserts many routes; of routes with equal prefixes the last one is used.
    pub(super) fn extend(&mut self, routes: Vec<(IpNet, u32)>) -> Result<(), TableError> {
        let (mut v4, mut v6) = (vec![], vec![]);
        for (net, value) in routes {
            match net {
                _ if self.hosts.is_some() && net.prefix_len() == net.max_prefix_len() => self.insert(net, value)?,
                IpNet::V4(net) => v4.push((net.network(), net.prefix_len(), value)),
                IpNet::V6(net) => v6.push((net.network(), net.prefix_len(), value)),
            }
        }
        self.v4.extend(v4)?;
        Ok(self.v6.extend(v6)?)
    }

    /// Inserts routes to the first `count` addresses of a network, with `values` in turn, each of which fits into an
    /// entry of 48 bits. `progress` is called repeatedly with the number of inserted routes.
    pub(super) fn insert_hosts(
        &mut self,
        net: IpNet,
        count: u64,
        values: &[u32],
        mut progress: impl FnMut(u64),
    ) -> Result<(), TableError> {
        let turns = || (0..count).zip(values.iter().cycle());
        match (net, &mut self.hosts) {
            (IpNet::V4(net), Some((exact, _))) => {
                let first = net.network().to_bits();
                let entries = turns().map(|(n, value)| (key4(first + n as u32), Key48::value(*value)));
                exact.extend(entries, progress)?;
            }
            (IpNet::V6(net), Some((_, exact))) => {
                let first = net.network().to_bits();
                let entries = turns().map(|(n, value)| (key6(first + u128::from(n)), *value));
                exact.extend(entries, progress)?;
            }
            (IpNet::V4(net), None) => {
                let first = net.network().to_bits();
                let entries = turns().map(|(n, value)| (Ipv4Addr::from_bits(first + n as u32), 32, *value));
                self.v4.extend(entries)?;
                progress(count);
            }
            (IpNet::V6(net), None) => {
                let first = net.network().to_bits();
                let entries = turns().map(|(n, value)| (Ipv6Addr::from_bits(first + u128::from(n)), 128, *value));
                self.v6.extend(entries)?;
                progress(count);
            }
        }
        Ok(())
    }

    /// Removes the route to a single address.
    pub(super) fn remove(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(a) => {
                self.v4.remove(a, 32);
                self.hosts.as_mut().map(|(exact, _)| exact.remove(key4(a.to_bits())));
            }
            IpAddr::V6(a) => {
                self.v6.remove(a, 128);
                self.hosts.as_mut().map(|(_, exact)| exact.remove(key6(a.to_bits())));
            }
        }
    }

    /// Removes a route.
    pub(super) fn remove_net(&mut self, net: IpNet) {
        match net {
            _ if net.prefix_len() == net.max_prefix_len() => self.remove(net.addr()),
            IpNet::V4(net) => drop(self.v4.remove(net.network(), net.prefix_len())),
            IpNet::V6(net) => drop(self.v6.remove(net.network(), net.prefix_len())),
        }
    }

    /// Returns the value of a route.
    pub(super) fn get(&self, net: IpNet) -> Option<u32> {
        match net {
            _ if net.prefix_len() == net.max_prefix_len() => self.host_route(net.addr()),
            IpNet::V4(net) => self.v4.get(net.network(), net.prefix_len()),
            IpNet::V6(net) => self.v6.get(net.network(), net.prefix_len()),
        }
    }

    /// Returns the value of a route and its tag.
    pub(super) fn get_tagged(&self, net: IpNet) -> Option<(u32, u8)> {
        let exact = match (net, &self.hosts) {
            (IpNet::V4(net), Some((exact, _))) if net.prefix_len() == 32 => {
                exact.get(key4(net.network().to_bits())).map(u32::from)
            }
            (IpNet::V6(net), Some((_, exact))) if net.prefix_len() == 128 => exact.get(key6(net.network().to_bits())),
            _ => None,
        };
        exact.map(|value| (value, 0)).or_else(|| match net {
            IpNet::V4(net) => self.v4.get_tagged(net.network(), net.prefix_len()),
            IpNet::V6(net) => self.v6.get_tagged(net.network(), net.prefix_len()),
        })
    }

    /// Returns the routes with a tag that is not 0.
    pub(super) fn of_tag(&self, tag: u8) -> impl Iterator<Item = (IpNet, u32)> {
        let v4 =
            self.v4.of_tag(tag).map(|(a, len, value)| (IpNet::new_assert(Ipv4Addr::from_bits(a).into(), len), value));
        let v6 =
            self.v6.of_tag(tag).map(|(a, len, value)| (IpNet::new_assert(Ipv6Addr::from_bits(a).into(), len), value));
        v4.chain(v6)
    }

    /// Returns at most `most` routes of an IP version and length after the first `skip`, without those of the exact-match
    /// tables.
    pub(in crate::l3fwd) fn page(&self, (ipv6, len): (bool, u8), skip: usize, most: usize) -> Vec<(IpNet, u32)> {
        let net = |address: IpAddr, value| (IpNet::new_assert(address, len), value);
        if ipv6 {
            let all = self.v6.of_length(len).skip(skip).take(most);
            all.map(|(address, value)| net(Ipv6Addr::from_bits(address).into(), value)).collect()
        } else {
            let all = self.v4.of_length(len).skip(skip).take(most);
            all.map(|(address, value)| net(Ipv4Addr::from_bits(address).into(), value)).collect()
        }
    }

    /// Returns the value of the route to a single address.
    pub(super) fn host_route(&self, address: IpAddr) -> Option<u32> {
        match (address, &self.hosts) {
            (IpAddr::V4(a), Some((exact, _))) => {
                exact.get(key4(a.to_bits())).map(u32::from).or_else(|| self.v4.get(a, 32))
            }
            (IpAddr::V6(a), Some((_, exact))) => exact.get(key6(a.to_bits())),
            (IpAddr::V4(a), None) => self.v4.get(a, 32),
            (IpAddr::V6(a), None) => self.v6.get(a, 128),
        }
    }

    /// Returns the value of the longest prefix that contains an address.
    pub(super) fn longest(&self, address: IpAddr) -> Option<u32> {
        self.host_route(address).or_else(|| match address {
            IpAddr::V4(a) => self.v4.longest(a).map(|(_, value)| value),
            IpAddr::V6(a) => self.v6.longest(a).map(|(_, value)| value),
        })
    }

    /// Returns the number of entries of the exact-match tables.
    pub(super) fn host_routes(&self) -> u64 {
        self.hosts.as_ref().map_or(0, |(v4, v6)| v4.len() + v6.len())
    }
}

impl Reader {
    /// Looks up at most a burst of addresses; `values` receives those of the longest matching prefixes, or 0.
    #[inline(always)]
    pub(crate) fn look_up4(&mut self, addresses: &[u32], values: &mut [u32]) {
        match &mut self.hosts {
            None => self.v4.look_up(addresses, values),
            Some(hosts) => exact_first(&mut hosts.0, key4, addresses, values, |addresses, values| {
                self.v4.look_up(addresses, values);
            }),
        }
    }

    /// As [`look_up4`](Self::look_up4).
    #[inline(always)]
    pub(crate) fn look_up6(&mut self, addresses: &[u128], values: &mut [u32]) {
        match &mut self.hosts {
            None => self.v6.look_up(addresses, values),
            Some(hosts) => exact_first(&mut hosts.1, key6, addresses, values, |addresses, values| {
                self.v6.look_up(addresses, values);
            }),
        }
    }

    /// Looks up one address.
    #[inline(always)]
    pub(crate) fn look_up4_one(&mut self, address: u32) -> u32 {
        let exact = self.hosts.as_mut().and_then(|hosts| one(&mut hosts.0, key4(address)));
        exact.unwrap_or_else(|| self.v4.look_up_one(address))
    }

    /// As [`look_up4_one`](Self::look_up4_one).
    #[inline(always)]
    pub(crate) fn look_up6_one(&mut self, address: u128) -> u32 {
        let exact = self.hosts.as_mut().and_then(|hosts| one(&mut hosts.1, key6(address)));
        exact.unwrap_or_else(|| self.v6.look_up_one(address))
    }

    /// Declares that no looked-up value is in use until the next look-up.
    pub(crate) fn idle(&mut self) {
        self.v4.idle();
        self.v6.idle();
    }
}

/// Looks up one key in an exact-match table.
fn one<K: Key + Default>(exact: &mut cuckoo::Reader<K>, key: K) -> Option<u32> {
    let mut found = [None];
    exact.get_batch(&[key], &mut found);
    found[0].map(Into::into)
}

/// Looks up addresses in an exact-match table, and those that are not in it by `look_up_prefixes`.
#[inline(never)]
fn exact_first<A: Copy + Default, K: Key + Default>(
    exact: &mut cuckoo::Reader<K>,
    key: impl Fn(A) -> K,
    addresses: &[A],
    values: &mut [u32],
    mut look_up_prefixes: impl FnMut(&[A], &mut [u32]),
) {
    let n = addresses.len().min(BURST);
    let keys: [K; BURST] = array::from_fn(|i| if i < n { key(addresses[i]) } else { K::default() });
    let mut found = [None; BURST];
    exact.get_batch(&keys[..n], &mut found[..n]);
    let (mut others, mut missing, mut at) = ([A::default(); BURST], [0u8; BURST], 0);
    for (i, (value, found)) in values.iter_mut().zip(&found[..n]).enumerate() {
        match found {
            Some(found) => *value = (*found).into(),
            None => {
                (others[at & (BURST - 1)], missing[at & (BURST - 1)]) = (addresses[i], i as u8);
                at += 1;
            }
        }
    }
    if at > 0 {
        let mut by_prefix = [0; BURST];
        look_up_prefixes(&others[..at], &mut by_prefix[..at]);
        for (&i, value) in missing.iter().zip(by_prefix).take(at) {
            values[usize::from(i)] = value;
        }
    }
}

#[cfg(test)]
mod tests;
