//! The routes themselves: what was inserted, by prefix length.

use super::limits::VALUE_BITS;
use super::prefix::Prefix;
use super::{Address, MAX_VALUE};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// A hash table for each prefix length, of values with their tags, so that a route takes its address and value and little else: 900,000 IPv4 routes
/// fit in some 18 MB. The hash is seeded: the sender of routes cannot predict collisions.
pub(super) struct Rules<A: Address> {
    by_length: Box<[HashMap<A::Stored, u32, RandomState>]>,
    len: usize,
}

impl<A: Address> Rules<A> {
    pub(super) fn new() -> Self {
        Rules { by_length: (0..=A::BITS).map(|_| HashMap::default()).collect(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Makes room for `more` routes of one length.
    pub(super) fn reserve(&mut self, len: u8, more: usize) {
        self.by_length[usize::from(len)].reserve(more);
    }

    pub(super) fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        self.get_tagged(prefix).map(|(value, _)| value)
    }

    /// Returns the value of a route and its tag.
    pub(super) fn get_tagged(&self, prefix: Prefix<A>) -> Option<(u32, u8)> {
        self.by_length[usize::from(prefix.len)].get(&prefix.address.stored()).map(|rule| (value(*rule), tag(*rule)))
    }

    /// Stores a route with a tag of two bits; the old value if there was one.
    pub(super) fn insert(&mut self, prefix: Prefix<A>, value: u32, tag: u8) -> Option<u32> {
        let rule = value | u32::from(tag) << VALUE_BITS;
        let old = self.by_length[usize::from(prefix.len)].insert(prefix.address.stored(), rule);
        self.len += usize::from(old.is_none());
        old.map(self::value)
    }

    pub(super) fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let old = self.by_length[usize::from(prefix.len)].remove(&prefix.address.stored());
        self.len -= usize::from(old.is_some());
        old.map(value)
    }

    /// Returns the longest route that holds `address` and is shorter than `below`: its length and value.
    pub(super) fn longest(&self, address: A, below: u8) -> Option<(u8, u32)> {
        (0..below).rev().find_map(|len| {
            let routes = &self.by_length[usize::from(len)];
            // Few of 128 lengths are in use.
            if routes.is_empty() {
                return None;
            }
            routes.get(&address.truncated(len).stored()).map(|rule| (len, value(*rule)))
        })
    }

    /// Returns all routes, shortest first, in no order within a length.
    pub(super) fn iter(&self) -> impl Iterator<Item = (A, u8, u32)> {
        (0..=A::BITS).zip(&self.by_length).flat_map(|(len, routes)| {
            routes.iter().map(move |(address, rule)| (A::restored(*address), len, value(*rule)))
        })
    }

    /// Returns the routes of one length, in no order.
    pub(super) fn of_length(&self, len: u8) -> impl Iterator<Item = (A, u32)> {
        let routes = self.by_length.get(usize::from(len)).into_iter().flatten();
        routes.map(|(address, rule)| (A::restored(*address), value(*rule)))
    }

    /// Returns the routes with a tag (address, length, value), shortest first.
    pub(super) fn of_tag(&self, of: u8) -> impl Iterator<Item = (A, u8, u32)> {
        (0..=A::BITS).zip(&self.by_length).flat_map(move |(len, routes)| {
            let with_tag = routes.iter().filter(move |(_, rule)| tag(**rule) == of);
            with_tag.map(move |(address, rule)| (A::restored(*address), len, value(*rule)))
        })
    }

    /// Returns the bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        // The standard library's table keeps one byte beside each entry and an eighth of them free.
        let entry = size_of::<(A::Stored, u32)>() + 1;
        self.by_length.iter().map(|routes| routes.capacity().div_ceil(7) * 8 * entry).sum()
    }
}

fn value(rule: u32) -> u32 {
    rule & MAX_VALUE
}

fn tag(rule: u32) -> u8 {
    (rule >> VALUE_BITS) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_found_below_a_length() {
        let mut rules = Rules::<u32>::new();
        for (address, len, value) in [(0, 0, 1), (0x0a00_0000, 8, 2), (0x0a01_0000, 16, 3), (0x0a01_0200, 24, 4)] {
            assert_eq!(rules.insert(Prefix { address, len }, value, 0), None);
        }
        assert_eq!(rules.longest(0x0a01_0203, 33), Some((24, 4)));
        assert_eq!(rules.longest(0x0a01_0203, 24), Some((16, 3)));
        assert_eq!(rules.longest(0x0a02_0203, 24), Some((8, 2)));
        assert_eq!(rules.longest(0x0b00_0000, 33), Some((0, 1)));
        assert_eq!(rules.longest(0x0b00_0000, 0), None);
        let mut all: Vec<_> = rules.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [(0, 0, 1), (0x0a00_0000, 8, 2), (0x0a01_0000, 16, 3), (0x0a01_0200, 24, 4)]);
    }

    #[test]
    fn counts_what_it_holds() {
        let mut rules = Rules::<u128>::new();
        let prefix = Prefix { address: 5u128, len: 128 };
        assert_eq!((rules.insert(prefix, 1, 3), rules.insert(prefix, 2, 1), rules.len()), (None, Some(1), 1));
        assert_eq!(
            (rules.get_tagged(prefix), rules.remove(prefix), rules.remove(prefix), rules.len()),
            (Some((2, 1)), Some(2), None, 0)
        );
        assert_eq!(size_of::<(<u128 as super::super::address::Family>::Stored, u32)>(), 20);
    }
}
