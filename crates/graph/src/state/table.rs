//! The hash table inside.

use super::Hasher;
use core::hash::{BuildHasher, Hash};
use hashbrown::HashTable;

/// Slots that are cleared with each entry that comes or goes while a table is renewed: all in fewer than an eighth of
/// the capacity.
const STEP: usize = 32;

/// What to reserve for `capacity` entries: with that, at most half of the slots are taken.
fn room(capacity: usize) -> usize {
    capacity.saturating_add(capacity / 4 * 3).saturating_add(4)
}

/// A hash table of bounded size that never stops to put itself in order.
///
/// Where entries come and go, a `HashMap` marks their slots, and when it has no others left it lays all entries out
/// anew, at once, which takes tens of milliseconds for a million. This one moves to a second one instead, some slots at
/// a time, before it comes to that. Where entries only come, there is no second one.
pub(super) struct Table<K, V> {
    now: HashTable<(K, V)>,
    /// What is still to be moved; afterwards, memory for the next time.
    old: HashTable<(K, V)>,
    /// Slots of `old` that have been cleared, while it is renewed.
    cleared: Option<usize>,
    /// Times it was renewed.
    layout: u64,
    capacity: usize,
    hasher: Hasher,
}

impl<K, V> Table<K, V> {
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.now.len() + self.old.len()
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// With `capacity` or fewer entries in it at any time.
    pub(super) fn new(capacity: usize, hasher: Hasher) -> Self {
        let now = HashTable::with_capacity(room(capacity));
        Table { now, old: HashTable::new(), cleared: None, layout: 0, capacity, hasher }
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline(always)]
    pub(super) fn find(&self, hash: u64, key: &K) -> Option<&V> {
        let here = |(k, _): &(K, V)| k == key;
        let found = match self.now.find(hash, here) {
            None if self.cleared.is_some() => self.old.find(hash, here),
            found => found,
        };
        found.map(|(_, value)| value)
    }

    #[inline(always)]
    pub(super) fn find_mut(&mut self, hash: u64, key: &K) -> Option<&mut V> {
        let here = |(k, _): &(K, V)| k == key;
        let found = match self.now.find_mut(hash, here) {
            None if self.cleared.is_some() => self.old.find_mut(hash, here),
            found => found,
        };
        found.map(|(_, value)| value)
    }

    #[inline(always)]
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.find(self.hash(key), key)
    }

    /// Inserts an entry whose key is not there. There must be fewer than there may be.
    #[inline(always)]
    pub(super) fn insert(&mut self, hash: u64, key: K, value: V) -> &mut V {
        self.tend();
        let entry = self.now.insert_unique(hash, (key, value), |(key, _)| self.hasher.hash_one(key));
        &mut entry.into_mut().1
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, hash: u64, key: &K) -> Option<(K, V)> {
        self.tend();
        let here = |(k, _): &(K, V)| k == key;
        if let Ok(entry) = self.now.find_entry(hash, here) {
            return Some(entry.remove().0);
        }
        self.cleared?;
        Some(self.old.find_entry(hash, here).ok()?.remove().0)
    }

    /// Carries a renewal on, or begins one when free slots run short.
    #[inline(always)]
    fn tend(&mut self) {
        // `now.capacity` is what there is and what can come before it is laid out anew
        if self.cleared.is_some() || self.now.capacity() - self.now.len() <= self.capacity / 4 {
            self.renew();
        }
    }

    #[cold]
    fn renew(&mut self) {
        let from = self.cleared.unwrap_or_else(|| {
            core::mem::swap(&mut self.now, &mut self.old);
            // the first time
            if self.now.capacity() < room(self.capacity) {
                self.now = HashTable::with_capacity(room(self.capacity));
            }
            self.layout += 1;
            0
        });
        let to = (from + STEP).min(self.old.num_buckets());
        for slot in from..to {
            if let Ok(entry) = self.old.get_bucket_entry(slot) {
                let (entry, _) = entry.remove();
                self.now.insert_unique(self.hasher.hash_one(&entry.0), entry, |(key, _)| self.hasher.hash_one(key));
            }
        }
        self.cleared = Some(to);
        if to == self.old.num_buckets() {
            // not `clear`, which leaves the marks in a table that is empty
            drop(self.old.drain());
            self.cleared = None;
        }
    }

    /// Removes the entries for which `keep` says no.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.old.retain(|(key, value)| keep(key, value));
        self.now.retain(|(key, value)| keep(key, value));
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        drop(self.now.drain());
        drop(self.old.drain());
        self.cleared = None;
    }

    pub(super) fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.now.iter().chain(self.old.iter()).map(|(key, value)| (key, value))
    }

    /// Whether the entries are in numbered slots, in which they stay until the table is [renewed](Table::layout).
    #[inline(always)]
    pub(super) fn is_settled(&self) -> bool {
        self.cleared.is_none()
    }

    /// Changes when the table begins to be renewed.
    #[inline(always)]
    pub(super) fn layout(&self) -> u64 {
        self.layout
    }

    /// Slots there are.
    pub(super) fn slots(&self) -> usize {
        self.now.num_buckets()
    }

    /// What is in a slot.
    #[inline(always)]
    pub(super) fn in_slot(&self, slot: usize) -> Option<&(K, V)> {
        self.now.get_bucket(slot)
    }

    /// Where a key is, when the table is settled.
    pub(super) fn slot(&self, hash: u64, key: &K) -> Option<usize> {
        self.now.find_bucket_index(hash, |(k, _)| k == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u32),
        Remove(u16),
        Retain(u32),
        Clear,
        /// Begins a renewal, or carries one on.
        Renew,
    }

    /// Whether a table is about to lay itself out anew, at once, or to allocate.
    fn stops(table: &Table<u32, u32>) -> bool {
        table.now.capacity() == table.now.len()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn it_is_a_map(
            capacity in prop_oneof![1..8usize, 100..200usize],
            steps in prop::collection::vec(prop_oneof![
                600 => (0..400u32).prop_map(Step::Insert),
                600 => any::<u16>().prop_map(Step::Remove),
                2 => (1..9u32).prop_map(Step::Retain),
                1 => Just(Step::Clear),
                20 => Just(Step::Renew),
            ], 0..3000),
        ) {
            let mut table = Table::new(capacity, Hasher::default());
            let mut model = HashMap::new();
            let slots = table.slots();
            for (n, step) in (0..).zip(steps) {
                match step {
                    Step::Insert(key) => {
                        let hash = table.hash(&key);
                        prop_assert_eq!(table.find(hash, &key), model.get(&key));
                        match table.find_mut(hash, &key) {
                            Some(there) => *there = n,
                            None if model.len() == capacity => continue,
                            None => prop_assert_eq!(table.insert(hash, key, n), &n),
                        }
                        model.insert(key, n);
                    }
                    Step::Remove(which) => {
                        // mostly what is there
                        let there = table.iter().nth(usize::from(which) % (model.len() + 1)).map(|(key, _)| *key);
                        let key = there.unwrap_or_else(|| which.into());
                        let removed = table.remove(table.hash(&key), &key);
                        prop_assert_eq!(removed, model.remove(&key).map(|value| (key, value)));
                    }
                    Step::Retain(n) => {
                        table.retain(|key, value| { *value += 1; key % n != 0 });
                        model.retain(|key, value| { *value += 1; key % n != 0 });
                    }
                    Step::Clear => {
                        table.clear();
                        model.clear();
                        prop_assert!(table.is_settled());
                    }
                    Step::Renew => table.renew(),
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert!(!stops(&table));
                prop_assert_eq!(table.slots(), slots);
                // memory for the next time is ready, with nothing in it
                prop_assert!(!table.is_settled() || table.layout() == 0 || table.old.capacity() >= room(capacity));
                if table.is_settled() && let Some((key, value)) = model.iter().next() {
                    let slot = table.slot(table.hash(key), key).expect("it is there");
                    prop_assert_eq!(table.in_slot(slot), Some(&(*key, *value)));
                }
            }
            prop_assert_eq!(table.iter().map(|(k, v)| (*k, *v)).collect::<HashMap<_, _>>(), model.clone());
            prop_assert!((0..400).all(|key| table.get(&key) == model.get(&key)));
        }
    }

    /// In a table that is as full as can be for its slots, entries come and go, in full or on the whole.
    #[test]
    fn it_is_renewed_before_it_stops() {
        // for which just 7/8 of a power of two is reserved
        const CAPACITY: usize = 4 * 1022;
        let mut table = Table::new(CAPACITY, Hasher::default());
        let slots = table.slots();
        assert!(CAPACITY as f64 / slots as f64 > 0.498);
        let (mut there, mut random) = (vec![], 1u64);
        let mut dice = |below: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            ((random >> 32) as usize * below) >> 32
        };
        for key in 0..5_000_000 {
            // now full, now half empty
            let most = if key / 500_000 % 2 == 0 { CAPACITY } else { CAPACITY / 2 };
            while there.len() >= most {
                let gone: u32 = there.swap_remove(dice(there.len()));
                assert_eq!(table.remove(table.hash(&gone), &gone), Some((gone, gone)));
            }
            table.insert(table.hash(&key), key, key);
            there.push(key);
            assert!(!stops(&table), "at {key}");
            assert!(!table.is_settled() || table.layout() == 0 || table.old.capacity() >= room(CAPACITY), "at {key}");
        }
        assert_eq!((table.slots(), table.len()), (slots, there.len()));
        assert!(there.iter().all(|key| table.get(key) == Some(key)));
        assert!((10..1000).contains(&table.layout()), "renewed {} times", table.layout());
    }
}
