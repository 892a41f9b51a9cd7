//! Next-hop objects of a connection.

use std::collections::HashMap;

use crate::next_hop::NextHopValue;
use crate::route::{Hop, Target};

/// Next-hop objects of one connection, bounded in number.
#[derive(Debug)]
pub struct NextHops {
    objects: HashMap<u32, NextHopValue>,
    /// Objects and members of groups.
    used: usize,
    limit: usize,
}

/// The limit of [`NextHops`] is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("next hop {id}: more than {limit} next hops and members of groups; increase the limit")]
pub struct NextHopsFull {
    /// Number of the object that was not added.
    pub id: u32,
    /// The limit.
    pub limit: usize,
}

/// A route or group refers to an object that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "next hop {id}: not received; if zebra sends no next hops, set `no fpm use-next-hop-groups` in its configuration"
)]
pub struct UnknownNextHop {
    /// Number of the missing object.
    pub id: u32,
}

impl NextHops {
    /// Returns an empty set for at most `limit` objects, with the members of groups counted as well. A member takes 8
    /// bytes of memory, an object about 60.
    pub fn new(limit: usize) -> Self {
        NextHops { objects: HashMap::new(), used: 0, limit }
    }

    /// Adds or replaces an object.
    ///
    /// # Errors
    ///
    /// If the limit is reached. The object does not exist then, with neither its new nor its old content.
    pub fn insert(&mut self, id: u32, value: NextHopValue) -> Result<(), NextHopsFull> {
        self.remove(id);
        let used = self.used + size(&value);
        if used > self.limit {
            return Err(NextHopsFull { id, limit: self.limit });
        }
        self.used = used;
        self.objects.insert(id, value);
        Ok(())
    }

    /// Removes an object; returns false if it does not exist.
    pub fn remove(&mut self, id: u32) -> bool {
        let old = self.objects.remove(&id);
        self.used -= old.as_ref().map_or(0, size);
        old.is_some()
    }

    /// Removes all objects.
    pub fn clear(&mut self) {
        (self.objects, self.used) = (HashMap::new(), 0);
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns true if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns the treatment of packets that an object describes; never [`Target::Object`]. zebra sends some routes and groups
    /// before their objects, so a route that cannot be resolved must be resolved again when the object is added.
    ///
    /// # Errors
    ///
    /// If the object or a member of the group does not exist.
    pub fn resolve(&self, id: u32) -> Result<Target, UnknownNextHop> {
        let members = match self.get(id)? {
            NextHopValue::Hop(hop) => return Ok(Target::Hops(vec![*hop])),
            NextHopValue::Blackhole => return Ok(Target::Blackhole),
            NextHopValue::Unsupported(reason) => return Ok(Target::Unsupported(reason)),
            NextHopValue::Group(members) => members,
        };
        let mut hops = Vec::with_capacity(members.len());
        for (id, weight) in members {
            match self.get(*id)? {
                NextHopValue::Hop(hop) => hops.push(Hop { weight: *weight, ..*hop }),
                NextHopValue::Blackhole if members.len() == 1 => return Ok(Target::Blackhole),
                NextHopValue::Blackhole => return Ok(Target::Unsupported("group with a blackhole")),
                NextHopValue::Group(_) => return Ok(Target::Unsupported("group of groups")),
                NextHopValue::Unsupported(reason) => return Ok(Target::Unsupported(reason)),
            }
        }
        Ok(Target::Hops(hops))
    }

    /// Returns the numbers of the groups that contain an object, whose routes change with it. Searches all groups.
    pub fn groups_of(&self, id: u32) -> impl Iterator<Item = u32> {
        self.objects.iter().filter_map(move |(group, value)| match value {
            NextHopValue::Group(members) if members.iter().any(|(member, _)| *member == id) => Some(*group),
            _ => None,
        })
    }

    fn get(&self, id: u32) -> Result<&NextHopValue, UnknownNextHop> {
        self.objects.get(&id).ok_or(UnknownNextHop { id })
    }
}

/// Returns what an object adds to the count of the limit.
fn size(value: &NextHopValue) -> usize {
    match value {
        NextHopValue::Group(members) => 1 + members.len(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(last: u8) -> Hop {
        Hop { gateway: Some([192, 0, 2, last].into()), interface: 3, weight: 1 }
    }

    #[test]
    fn groups_are_resolved_once_their_members_are_known() {
        let mut objects = NextHops::new(10);
        objects.insert(9, NextHopValue::Group(vec![(1, 5), (2, 200)])).unwrap();
        assert_eq!(objects.resolve(9), Err(UnknownNextHop { id: 1 }));
        objects.insert(1, NextHopValue::Hop(hop(1))).unwrap();
        assert_eq!(objects.resolve(9), Err(UnknownNextHop { id: 2 }));
        objects.insert(2, NextHopValue::Hop(hop(2))).unwrap();
        let both = vec![Hop { weight: 5, ..hop(1) }, Hop { weight: 200, ..hop(2) }];
        assert_eq!(objects.resolve(9), Ok(Target::Hops(both)));
        assert_eq!(objects.resolve(2), Ok(Target::Hops(vec![hop(2)])));
        assert_eq!(objects.groups_of(2).collect::<Vec<_>>(), [9]);
        assert_eq!(objects.groups_of(9).count(), 0);

        objects.insert(2, NextHopValue::Hop(hop(7))).unwrap();
        let both = vec![Hop { weight: 5, ..hop(1) }, Hop { weight: 200, ..hop(7) }];
        assert_eq!(objects.resolve(9), Ok(Target::Hops(both)));
        assert!(objects.remove(2) && !objects.remove(2));
        assert_eq!(objects.resolve(9), Err(UnknownNextHop { id: 2 }));
        objects.clear();
        assert!(objects.is_empty() && objects.resolve(1) == Err(UnknownNextHop { id: 1 }));
    }

    #[test]
    fn objects_without_hops_are_resolved_to_the_treatment() {
        let mut objects = NextHops::new(100);
        objects.insert(1, NextHopValue::Blackhole).unwrap();
        objects.insert(2, NextHopValue::Unsupported("x")).unwrap();
        objects.insert(3, NextHopValue::Hop(hop(3))).unwrap();
        for (id, members, target) in [
            (10, vec![(1, 1)], Target::Blackhole),
            (11, vec![(3, 1), (1, 1)], Target::Unsupported("group with a blackhole")),
            (12, vec![(3, 1), (2, 1)], Target::Unsupported("x")),
            (13, vec![(13, 1)], Target::Unsupported("group of groups")),
        ] {
            objects.insert(id, NextHopValue::Group(members)).unwrap();
            assert_eq!(objects.resolve(id), Ok(target));
        }
        assert_eq!(objects.resolve(1), Ok(Target::Blackhole));
        assert_eq!(objects.resolve(2), Ok(Target::Unsupported("x")));
    }

    #[test]
    fn members_count_towards_the_limit() {
        let mut objects = NextHops::new(4);
        objects.insert(1, NextHopValue::Group(vec![(7, 1), (8, 1)])).unwrap();
        objects.insert(2, NextHopValue::Blackhole).unwrap();
        assert_eq!(objects.insert(3, NextHopValue::Blackhole), Err(NextHopsFull { id: 3, limit: 4 }));
        // the old content is gone
        let larger = NextHopValue::Group(vec![(7, 1), (8, 1), (9, 1)]);
        assert_eq!(objects.insert(1, larger), Err(NextHopsFull { id: 1, limit: 4 }));
        assert_eq!(objects.resolve(1), Err(UnknownNextHop { id: 1 }));
        for id in 3..6 {
            objects.insert(id, NextHopValue::Blackhole).unwrap();
        }
        assert_eq!(objects.len(), 4);
        // in place, at the limit
        objects.insert(5, NextHopValue::Hop(hop(1))).unwrap();
    }
}
