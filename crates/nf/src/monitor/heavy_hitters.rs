//! Keys with most bytes in bounded memory, with bounds of the error.

use foldhash::{HashMap, HashMapExt};
use std::hash::Hash;

/// Bytes and packets of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeavyHitter<V> {
    /// Upper bound of its bytes.
    pub(super) bytes: u64,
    /// Largest difference between the upper bound and its bytes.
    pub(super) error: u64,
    /// Lower bound of its packets: those of `bytes - error`.
    pub(super) packets: u64,
    /// Value of the key.
    pub(super) value: V,
}

/// Counters of the keys with most bytes, by the algorithm of Misra and Gries ("Finding repeated elements", 1982), with
/// weights, and with the smaller half of the counters removed at once (Anderson et al., "A high-performance algorithm
/// for identifying frequent items in data streams", IMC 2017).
///
/// Of keys with `total` bytes together, each with more than `total / capacity` has a counter, and no error is larger.
pub(super) struct HeavyHitters<K, V> {
    /// Number of counters that remain when the others are removed; there are at most twice as many.
    capacity: usize,
    counters: HashMap<K, HeavyHitter<V>>,
    /// Upper bound of the bytes of a key without a counter.
    absent: u64,
    /// Upper bounds of all keys, to find the median.
    bounds: Vec<u64>,
}

impl<K: Copy + Eq + Hash, V: Copy + Default> HeavyHitters<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        HeavyHitters { capacity, counters: HashMap::new(), absent: 0, bounds: vec![] }
    }

    /// Counts packets of a key and updates its value, which is the default before.
    pub(super) fn add(&mut self, key: K, bytes: u64, packets: u64, update: impl FnOnce(&mut V)) {
        let absent = HeavyHitter { bytes: self.absent, error: self.absent, packets: 0, value: V::default() };
        let counter = self.counters.entry(key).or_insert(absent);
        counter.bytes += bytes;
        counter.packets += packets;
        update(&mut counter.value);
        if self.counters.len() > 2 * self.capacity {
            self.remove_smaller();
        }
    }

    /// Removes all but the `capacity` largest counters. The excess of a counter over `absent` is bytes of its packets.
    /// `absent` grows to the largest removed counter, so that the excess of more than `capacity` counters falls by as
    /// much: `absent` is less than `total / capacity`.
    fn remove_smaller(&mut self) {
        self.bounds.clear();
        self.bounds.extend(self.counters.values().map(|counter| counter.bytes));
        let (_, bound, _) = self.bounds.select_nth_unstable_by(self.capacity, |a, b| b.cmp(a));
        self.absent = *bound;
        self.counters.retain(|_, counter| counter.bytes > self.absent);
    }

    /// Returns all keys that have a counter.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, HeavyHitter<V>)> {
        self.counters.iter().map(|(key, counter)| (*key, *counter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn bounds_contain_the_counts_of_a_map(
            capacity in 1..20usize,
            // some keys are frequent
            packets in prop::collection::vec((prop_oneof![0..8u32, 0..400u32], 1..1500u64), 0..2000),
        ) {
            let mut heavy = HeavyHitters::new(capacity);
            let mut model = HashMap::<u32, (u64, u64)>::new();
            for &(key, bytes) in &packets {
                heavy.add(key, bytes, 1, |last| *last = bytes);
                let flow = model.entry(key).or_default();
                *flow = (flow.0 + bytes, flow.1 + 1);
            }
            let total: u64 = packets.iter().map(|(_, bytes)| bytes).sum();
            let found: HashMap<u32, HeavyHitter<u64>> = heavy.iter().collect();
            prop_assert!(found.len() <= 2 * capacity);
            for (key, counter) in &found {
                let (bytes, packets) = model[key];
                prop_assert!(counter.bytes - counter.error <= bytes && bytes <= counter.bytes, "{counter:?} {bytes}");
                prop_assert!(counter.error <= total / capacity as u64 && counter.packets <= packets);
                prop_assert!(counter.error != 0 || (counter.bytes, counter.packets) == (bytes, packets));
            }
            for (key, (bytes, _)) in &model {
                prop_assert!(found.contains_key(key) || *bytes <= total / capacity as u64, "{key}: {bytes} of {total}");
            }
            if model.len() <= 2 * capacity {
                prop_assert!(found.len() == model.len() && found.values().all(|counter| counter.error == 0));
            }
        }
    }
}
