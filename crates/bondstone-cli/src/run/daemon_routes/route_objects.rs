//! Next-hop objects of routes, for full tables of many tenants in few bytes per route.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Routing table and prefix of a route.
pub(super) type Key = (u32, IpNet);

/// Number of a next-hop object, and routing table of routes that use it.
pub(super) type Use = (u32, u32);

/// Next-hop objects by routing table and prefix.
#[derive(Default)]
pub(in crate::run) struct RouteObjects {
    tables: HashMap<u32, Table>,
    /// Numbers of routes that are not 0.
    users: HashMap<Use, usize>,
}

/// Numbers of objects by address and prefix length, as bytes, which need no padding.
#[derive(Default)]
struct Table {
    ipv4: HashMap<([u8; 4], u8), [u8; 4]>,
    ipv6: HashMap<([u8; 16], u8), [u8; 4]>,
}

impl RouteObjects {
    /// Returns the number of routes.
    pub(in crate::run) fn len(&self) -> usize {
        self.tables.values().map(|table| table.ipv4.len() + table.ipv6.len()).sum()
    }

    /// Adds a route that has no object yet.
    pub(super) fn insert(&mut self, (table, prefix): Key, object: u32) {
        let of = self.tables.entry(table).or_default();
        match prefix {
            IpNet::V4(net) => of.ipv4.insert((net.addr().octets(), net.prefix_len()), object.to_ne_bytes()),
            IpNet::V6(net) => of.ipv6.insert((net.addr().octets(), net.prefix_len()), object.to_ne_bytes()),
        };
        *self.users.entry((object, table)).or_default() += 1;
    }

    /// Removes a route, if there is one.
    pub(super) fn remove(&mut self, (table, prefix): Key) {
        let Some(of) = self.tables.get_mut(&table) else { return };
        let object = match prefix {
            IpNet::V4(net) => of.ipv4.remove(&(net.addr().octets(), net.prefix_len())),
            IpNet::V6(net) => of.ipv6.remove(&(net.addr().octets(), net.prefix_len())),
        };
        let used = object.map(|object| (u32::from_ne_bytes(object), table));
        if let Some((used, users)) = used.and_then(|used| Some((used, self.users.get_mut(&used)?))) {
            *users -= 1;
            if *users == 0 {
                self.users.remove(&used);
            }
        }
    }

    /// Returns the number of routes of a table that use an object.
    pub(super) fn users(&self, used: Use) -> usize {
        self.users.get(&used).copied().unwrap_or_default()
    }

    /// Returns the routes of each of these uses, in order of their prefixes.
    pub(super) fn routes_of(&self, uses: &BTreeSet<Use>) -> BTreeMap<Use, BTreeSet<IpNet>> {
        let mut found: BTreeMap<Use, BTreeSet<IpNet>> = BTreeMap::new();
        let tables: BTreeSet<u32> = uses.iter().map(|(_, table)| *table).collect();
        for (number, table) in tables.iter().filter_map(|number| Some((*number, self.tables.get(number)?))) {
            let ipv4 = table.ipv4.iter().map(|((addr, len), object)| {
                (IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from_octets(*addr), *len)), object)
            });
            let ipv6 = table.ipv6.iter().map(|((addr, len), object)| {
                (IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from_octets(*addr), *len)), object)
            });
            for (prefix, object) in ipv4.chain(ipv6) {
                let used = (u32::from_ne_bytes(*object), number);
                if uses.contains(&used) {
                    found.entry(used).or_default().insert(prefix);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_found_by_object_and_table() {
        let mut objects = RouteObjects::default();
        let mut model: BTreeMap<Key, u32> = BTreeMap::new();
        for n in 0..2000u32 {
            // every combination of a table and a prefix is set to several objects and removed several times
            let (table, object, k) = (n % 3, n % 5, n % 7);
            let prefix = if n % 2 == 0 { format!("10.{k}.0.0/{}", 16 + k) } else { format!("fd00:{k}::/{}", 32 + k) };
            let key = (table, prefix.parse().unwrap());
            objects.remove(key);
            model.remove(&key);
            if n % 11 < 8 {
                objects.insert(key, object);
                model.insert(key, object);
            }
            assert_eq!(objects.len(), model.len());
        }
        let all: BTreeSet<Use> = (0..5).flat_map(|object| (0..3).map(move |table| (object, table))).collect();
        let found = objects.routes_of(&all);
        for used in all {
            let of = |((table, prefix), object): (&Key, &u32)| ((*object, *table) == used).then_some(*prefix);
            let expected: BTreeSet<IpNet> = model.iter().filter_map(of).collect();
            assert_eq!(objects.users(used), expected.len());
            assert_eq!(found.get(&used).cloned().unwrap_or_default(), expected);
        }
        let one = BTreeSet::from([(1, 2)]);
        assert!(objects.routes_of(&one).keys().eq(&one));
        model.keys().for_each(|key| objects.remove(*key));
        assert!(objects.len() == 0 && objects.users.is_empty());
    }
}
