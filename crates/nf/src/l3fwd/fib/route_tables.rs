//! Route tables: longest prefix match for each VRF, and optionally an exact-match table for routes to single addresses
//! of all VRFs that is looked up first.
//!
//! A changed route to a single address stays in its table, so that concurrent look-ups find it. Only a route whose new
//! value exceeds an entry of 48 bits moves from the exact-match table to the other one.

mod host_routes;
mod readers;

pub(super) use host_routes::HostRoutes;
use ipnet::IpNet;
pub(crate) use readers::Readers;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tables::{cuckoo, lpm, lpm4, lpm6};

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
    hosts: Option<HostRoutes>,
}

impl Writer {
    /// Returns empty tables. Routes to single addresses are in `hosts`, if there are any.
    pub(super) fn new(hosts: Option<HostRoutes>) -> Result<Self, TableError> {
        Ok(Writer { v4: lpm4::new()?.0, v6: lpm6::new()?.0, hosts })
    }

    /// Returns readers of the longest-prefix-match tables.
    pub(super) fn readers(&self) -> (lpm4::Reader, lpm6::Reader) {
        (self.v4.table().reader(), self.v6.table().reader())
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
        if let Some(hosts) = self.hosts_for(net)
            && HostRoutes::fits(net.addr(), value)
            && self.prefix_value(net).is_none()
        {
            match hosts.insert(net.addr(), value) {
                // next hops of daemons may be more than it has room for
                Err(TableError::Hosts(_)) => {}
                inserted => return inserted,
            }
        }
        self.insert_prefix(net, value)?;
        if let Some(hosts) = self.hosts_for(net) {
            hosts.remove(net.addr());
        }
        Ok(())
    }

    /// Returns the exact-match table for routes to a network: of a single address, if there is one.
    fn hosts_for(&self, net: IpNet) -> Option<&HostRoutes> {
        self.hosts.as_ref().filter(|_| net.prefix_len() == net.max_prefix_len())
    }

    fn insert_prefix(&mut self, net: IpNet, value: u32) -> Result<(), TableError> {
        match net {
            IpNet::V4(net) => drop(self.v4.insert(net.network(), net.prefix_len(), value)?),
            IpNet::V6(net) => drop(self.v6.insert(net.network(), net.prefix_len(), value)?),
        }
        Ok(())
    }

    /// Returns the value of a route in the longest-prefix-match table.
    fn prefix_value(&self, net: IpNet) -> Option<u32> {
        match net {
            IpNet::V4(net) => self.v4.get(net.network(), net.prefix_len()),
            IpNet::V6(net) => self.v6.get(net.network(), net.prefix_len()),
        }
    }

    /// Inserts a route with a tag that is not 0, or replaces one. It is in the longest-prefix-match table in any case.
    pub(super) fn insert_tagged(&mut self, net: IpNet, value: u32, tag: u8) -> Result<(), TableError> {
        match net {
            IpNet::V4(net) => drop(self.v4.insert_tagged(net.network(), net.prefix_len(), value, tag)?),
            IpNet::V6(net) => drop(self.v6.insert_tagged(net.network(), net.prefix_len(), value, tag)?),
        }
        if let Some(hosts) = self.hosts_for(net) {
            hosts.remove(net.addr());
        }
        Ok(())
    }

    /// Inserts many routes; of routes with equal prefixes the last one is used.
    pub(super) fn extend(&mut self, routes: Vec<(IpNet, u32)>) -> Result<(), TableError> {
        let (mut v4, mut v6) = (vec![], vec![]);
        for (net, value) in routes {
            match net {
                _ if self.hosts_for(net).is_some() => self.insert(net, value)?,
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
        if let Some(hosts) = &self.hosts {
            return hosts.extend(net.network(), count, values, progress);
        }
        let turns = (0..count).zip(values.iter().cycle());
        match net {
            IpNet::V4(net) => {
                let address = |n| Ipv4Addr::from_bits(net.network().to_bits() + n as u32);
                self.v4.extend(turns.map(|(n, value)| (address(n), 32, *value)))?;
            }
            IpNet::V6(net) => {
                let address = |n| Ipv6Addr::from_bits(net.network().to_bits() + u128::from(n));
                self.v6.extend(turns.map(|(n, value)| (address(n), 128, *value)))?;
            }
        }
        progress(count);
        Ok(())
    }

    /// Removes the route to a single address.
    pub(super) fn remove(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(a) => drop(self.v4.remove(a, 32)),
            IpAddr::V6(a) => drop(self.v6.remove(a, 128)),
        }
        if let Some(hosts) = &self.hosts {
            hosts.remove(address);
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
            _ => self.prefix_value(net),
        }
    }

    /// Returns the value of a route and its tag.
    pub(super) fn get_tagged(&self, net: IpNet) -> Option<(u32, u8)> {
        let exact = self.hosts_for(net).and_then(|hosts| hosts.get(net.addr()));
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
        let exact = self.hosts.as_ref().and_then(|hosts| hosts.get(address));
        exact.or_else(|| self.prefix_value(IpNet::from(address)))
    }

    /// Returns the value of the longest prefix that contains an address.
    pub(super) fn longest(&self, address: IpAddr) -> Option<u32> {
        self.host_route(address).or_else(|| match address {
            IpAddr::V4(a) => self.v4.longest(a).map(|(_, value)| value),
            IpAddr::V6(a) => self.v6.longest(a).map(|(_, value)| value),
        })
    }
}

#[cfg(test)]
mod tests;
