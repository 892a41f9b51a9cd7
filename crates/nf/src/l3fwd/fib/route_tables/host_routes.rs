//! Exact-match tables of routes to single addresses, one for the VRFs of a router together: keys contain the VRF.

use super::TableError;
use crate::large_table::{settings, warn_small_pages};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tables::cuckoo::{self, CuckooTable, Key, Key48, Key144};

/// Tables of the routes of all VRFs.
struct Tables {
    v4: CuckooTable<Key48>,
    v6: CuckooTable<Key144>,
}

/// Writer of the routes of a VRF.
#[derive(Clone)]
pub(in crate::l3fwd::fib) struct HostRoutes {
    vrf: u16,
    tables: Arc<Mutex<Tables>>,
}

/// Reader of the routes of all VRFs.
pub(super) struct Reader {
    pub(super) v4: cuckoo::Reader<Key48>,
    pub(super) v6: cuckoo::Reader<Key144>,
}

impl HostRoutes {
    /// Returns empty tables with the given capacities for IPv4 and IPv6.
    pub(in crate::l3fwd::fib) fn new(capacity: [u64; 2]) -> Result<Self, TableError> {
        let v4 = CuckooTable::new(&settings::<Key48>(capacity[0]))?;
        let v6 = CuckooTable::new(&settings::<Key144>(capacity[1]))?;
        warn_small_pages("l3fwd", &[v4.backing(), v6.backing()]);
        Ok(HostRoutes { vrf: 0, tables: Arc::new(Mutex::new(Tables { v4, v6 })) })
    }

    /// Returns the writer for another VRF of the same tables.
    pub(in crate::l3fwd::fib) fn of(&self, vrf: u16) -> Self {
        HostRoutes { vrf, ..self.clone() }
    }

    pub(super) fn reader(&self) -> Reader {
        let tables = self.tables();
        Reader { v4: tables.v4.reader(), v6: tables.v6.reader() }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a value fits into an entry for an address.
    pub(super) fn fits(address: IpAddr, value: u32) -> bool {
        value <= if address.is_ipv4() { Key48::MAX_VALUE } else { Key144::MAX_VALUE }
    }

    /// Inserts a route or replaces its value, which [fits](Self::fits).
    pub(super) fn insert(&self, address: IpAddr, value: u32) -> Result<(), TableError> {
        let mut tables = self.tables();
        match address {
            IpAddr::V4(a) => drop(tables.v4.insert(Key48::vrf_ipv4(self.vrf, a.to_bits()), Key48::value(value))?),
            IpAddr::V6(a) => drop(tables.v6.insert(Key144::vrf_ipv6(self.vrf, a.to_bits()), value)?),
        }
        Ok(())
    }

    /// Inserts routes to `count` addresses from `first` on, with `values` in turn, each of which [fits](Self::fits).
    /// `progress` is called repeatedly with the number of inserted routes.
    pub(super) fn extend(
        &self,
        first: IpAddr,
        count: u64,
        values: &[u32],
        progress: impl FnMut(u64),
    ) -> Result<(), TableError> {
        let turns = (0..count).zip(values.iter().cycle());
        let mut tables = self.tables();
        match first {
            IpAddr::V4(a) => {
                let key = |n| Key48::vrf_ipv4(self.vrf, a.to_bits() + n as u32);
                tables.v4.extend(turns.map(|(n, value)| (key(n), Key48::value(*value))), progress)?;
            }
            IpAddr::V6(a) => {
                let key = |n| Key144::vrf_ipv6(self.vrf, a.to_bits() + u128::from(n));
                tables.v6.extend(turns.map(|(n, value)| (key(n), *value)), progress)?;
            }
        }
        Ok(())
    }

    /// Removes a route.
    pub(super) fn remove(&self, address: IpAddr) {
        let mut tables = self.tables();
        match address {
            IpAddr::V4(a) => drop(tables.v4.remove(Key48::vrf_ipv4(self.vrf, a.to_bits()))),
            IpAddr::V6(a) => drop(tables.v6.remove(Key144::vrf_ipv6(self.vrf, a.to_bits()))),
        }
    }

    /// Returns the value of a route.
    pub(super) fn get(&self, address: IpAddr) -> Option<u32> {
        let tables = self.tables();
        match address {
            IpAddr::V4(a) => tables.v4.get(Key48::vrf_ipv4(self.vrf, a.to_bits())).map(u32::from),
            IpAddr::V6(a) => tables.v6.get(Key144::vrf_ipv6(self.vrf, a.to_bits())),
        }
    }

    /// Returns the number of routes of all VRFs, or `None` while they are locked.
    pub(in crate::l3fwd::fib) fn len(&self) -> Option<u64> {
        self.tables.try_lock().ok().map(|tables| tables.v4.len() + tables.v6.len())
    }
}
