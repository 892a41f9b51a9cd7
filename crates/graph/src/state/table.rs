//! The hash table of [`Bounded`](super::Bounded) and [`Strict`](super::Strict).

use super::Hasher;
use core::hash::{BuildHasher, Hash};
use hashbrown::HashTable;

/// Slots that each insertion or removal moves during a rehash, which completes within fewer operations than an eighth
/// of the capacity.
const REHASH_STEP: usize = 32;

/// Returns the capacity to reserve for `capacity` entries, so that at most half of the slots are occupied.
fn reserve_for(capacity: usize) -> usize {
    capacity.saturating_add(capacity / 4 * 3).saturating_add(4)
}

/// A hash table of bounded size with incremental rehashing.
///
/// A `HashMap` marks the slots of removed entries, and rehashes all entries at once when no free slots are left, which
/// takes tens of milliseconds for a million. This table moves its entries to a second one before that, some slots with
/// each operation. A table without removals has no second one.
pub(super) struct Table<K, V> {
    current: HashTable<(K, V)>,
    /// Entries still to be moved; empty memory for the next rehash otherwise.
    previous: HashTable<(K, V)>,
    /// Number of slots of `previous` that are moved, during a rehash.
    rehash_position: Option<usize>,
    /// Number of rehashes.
    generation: u64,
    capacity: usize,
    hasher: Hasher,
}

impl<K, V> Table<K, V> {
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.current.len() + self.previous.len()
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// Creates a table that never has more than `capacity` entries.
    pub(super) fn new(capacity: usize, hasher: Hasher) -> Self {
        let current = HashTable::with_capacity(reserve_for(capacity));
        Table { current, previous: HashTable::new(), rehash_position: None, generation: 0, capacity, hasher }
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &K) -> u64 {
        self.hasher.hash_one(key)
    }

    #[inline(always)]
    pub(super) fn find(&self, hash: u64, key: &K) -> Option<&V> {
        let is_key = |(k, _): &(K, V)| k == key;
        let entry = match self.current.find(hash, is_key) {
            None if self.rehash_position.is_some() => self.previous.find(hash, is_key),
            entry => entry,
        };
        entry.map(|(_, value)| value)
    }

    #[inline(always)]
    pub(super) fn find_mut(&mut self, hash: u64, key: &K) -> Option<&mut V> {
        let is_key = |(k, _): &(K, V)| k == key;
        let entry = match self.current.find_mut(hash, is_key) {
            None if self.rehash_position.is_some() => self.previous.find_mut(hash, is_key),
            entry => entry,
        };
        entry.map(|(_, value)| value)
    }

    #[inline(always)]
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.find(self.hash(key), key)
    }

    /// Inserts an entry whose key is new. The table must not be full.
    #[inline(always)]
    pub(super) fn insert(&mut self, hash: u64, key: K, value: V) -> &mut V {
        self.maintain();
        let entry = self.current.insert_unique(hash, (key, value), |(key, _)| self.hasher.hash_one(key));
        &mut entry.into_mut().1
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, hash: u64, key: &K) -> Option<(K, V)> {
        self.maintain();
        let is_key = |(k, _): &(K, V)| k == key;
        if let Ok(entry) = self.current.find_entry(hash, is_key) {
            return Some(entry.remove().0);
        }
        self.rehash_position?;
        Some(self.previous.find_entry(hash, is_key).ok()?.remove().0)
    }

    /// Continues a rehash, or starts one when free slots become few.
    #[inline(always)]
    fn maintain(&mut self) {
        // `capacity` counts the entries and the insertions that are possible before `HashTable` rehashes
        if self.rehash_position.is_some() || self.current.capacity() - self.current.len() <= self.capacity / 4 {
            self.rehash_step();
        }
    }

    #[cold]
    fn rehash_step(&mut self) {
        let from = self.rehash_position.unwrap_or_else(|| {
            core::mem::swap(&mut self.current, &mut self.previous);
            // first rehash
            if self.current.capacity() < reserve_for(self.capacity) {
                self.current = HashTable::with_capacity(reserve_for(self.capacity));
            }
            self.generation += 1;
            0
        });
        let to = (from + REHASH_STEP).min(self.previous.num_buckets());
        for slot in from..to {
            if let Ok(entry) = self.previous.get_bucket_entry(slot) {
                let (entry, _) = entry.remove();
                self.current.insert_unique(self.hasher.hash_one(&entry.0), entry, |(key, _)| self.hasher.hash_one(key));
            }
        }
        self.rehash_position = Some(to);
        if to == self.previous.num_buckets() {
            // `clear` would keep the marks of removed entries in an empty table
            drop(self.previous.drain());
            self.rehash_position = None;
        }
    }

    /// Removes the entries for which `keep` returns false.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.previous.retain(|(key, value)| keep(key, value));
        self.current.retain(|(key, value)| keep(key, value));
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        drop(self.current.drain());
        drop(self.previous.drain());
        self.rehash_position = None;
    }

    pub(super) fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.current.iter().chain(self.previous.iter()).map(|(key, value)| (key, value))
    }

    /// Returns true if no rehash is in progress: entries then keep their slots until the next
    /// [generation](Table::generation).
    #[inline(always)]
    pub(super) fn is_stable(&self) -> bool {
        self.rehash_position.is_none()
    }

    /// Returns a number that changes when a rehash starts.
    #[inline(always)]
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.current.num_buckets()
    }

    /// Returns the entry in a slot.
    #[inline(always)]
    pub(super) fn slot_entry(&self, slot: usize) -> Option<&(K, V)> {
        self.current.get_bucket(slot)
    }

    /// Returns the slot of a key, if no rehash is in progress.
    pub(super) fn find_slot(&self, hash: u64, key: &K) -> Option<usize> {
        self.current.find_bucket_index(hash, |(k, _)| k == key)
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
        /// Starts or continues a rehash.
        Rehash,
    }

    /// Returns true if the next insertion would rehash all entries at once, or allocate.
    fn is_exhausted(table: &Table<u32, u32>) -> bool {
        table.current.capacity() == table.current.len()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn behaves_like_a_hash_map(
            capacity in prop_oneof![1..8usize, 100..200usize],
            steps in prop::collection::vec(prop_oneof![
                600 => (0..400u32).prop_map(Step::Insert),
                600 => any::<u16>().prop_map(Step::Remove),
                2 => (1..9u32).prop_map(Step::Retain),
                1 => Just(Step::Clear),
                20 => Just(Step::Rehash),
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
                            Some(value) => *value = n,
                            None if model.len() == capacity => continue,
                            None => prop_assert_eq!(table.insert(hash, key, n), &n),
                        }
                        model.insert(key, n);
                    }
                    Step::Remove(which) => {
                        // mostly an existing key
                        let existing = table.iter().nth(usize::from(which) % (model.len() + 1)).map(|(key, _)| *key);
                        let key = existing.unwrap_or_else(|| which.into());
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
                        prop_assert!(table.is_stable());
                    }
                    Step::Rehash => table.rehash_step(),
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert!(!is_exhausted(&table));
                prop_assert_eq!(table.slots(), slots);
                // memory for the next rehash is allocated
                let allocated = table.previous.capacity() >= reserve_for(capacity);
                prop_assert!(!table.is_stable() || table.generation() == 0 || allocated);
                if table.is_stable() && let Some((key, value)) = model.iter().next() {
                    let slot = table.find_slot(table.hash(key), key).expect("the key exists");
                    prop_assert_eq!(table.slot_entry(slot), Some(&(*key, *value)));
                }
            }
            prop_assert_eq!(table.iter().map(|(k, v)| (*k, *v)).collect::<HashMap<_, _>>(), model.clone());
            prop_assert!((0..400).all(|key| table.get(&key) == model.get(&key)));
        }
    }

    /// Inserts and removes entries of a table that is as full as its slots allow.
    #[test]
    fn rehashes_before_free_slots_run_out() {
        // reserves exactly 7/8 of a power of two
        const CAPACITY: usize = 4 * 1022;
        let mut table = Table::new(CAPACITY, Hasher::default());
        let slots = table.slots();
        assert!(CAPACITY as f64 / slots as f64 > 0.498);
        let (mut keys, mut random) = (vec![], 1u64);
        let mut random_below = |below: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            ((random >> 32) as usize * below) >> 32
        };
        for key in 0..5_000_000 {
            // alternately full and half full
            let target = if key / 500_000 % 2 == 0 { CAPACITY } else { CAPACITY / 2 };
            while keys.len() >= target {
                let removed: u32 = keys.swap_remove(random_below(keys.len()));
                assert_eq!(table.remove(table.hash(&removed), &removed), Some((removed, removed)));
            }
            table.insert(table.hash(&key), key, key);
            keys.push(key);
            assert!(!is_exhausted(&table), "at {key}");
            assert!(
                !table.is_stable() || table.generation() == 0 || table.previous.capacity() >= reserve_for(CAPACITY),
                "at {key}"
            );
        }
        assert_eq!((table.slots(), table.len()), (slots, keys.len()));
        assert!(keys.iter().all(|key| table.get(key) == Some(key)));
        assert!((10..1000).contains(&table.generation()), "rehashed {} times", table.generation());
    }
}
