//! Hash table for few IPv4 endpoints, with one or two probes.

/// Hash table that is filled once: open addressing, three slots in four free.
pub(crate) struct EndpointMap {
    /// Keys and values; a free slot has the key 0.
    slots: Box<[(u64, u32)]>,
    shift: u32,
}

impl EndpointMap {
    /// Builds a table of entries with keys other than 0.
    pub(super) fn new(entries: impl ExactSizeIterator<Item = (u64, u32)>) -> Self {
        let bits = (entries.len() * 4).next_power_of_two().trailing_zeros().max(4);
        let mut table = EndpointMap { slots: vec![(0, 0); 1 << bits].into(), shift: 64 - bits };
        for (key, value) in entries {
            let mut at = table.primary_slot(key);
            while table.slots[at].0 != 0 {
                at = (at + 1) & (table.slots.len() - 1);
            }
            table.slots[at] = (key, value);
        }
        table
    }

    #[inline(always)]
    fn primary_slot(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// Returns the value of a key.
    #[inline(always)]
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        let slot = self.primary_slot(key);
        // most keys are in their primary slot
        let (found, value) = *self.slots.get(slot)?;
        if found == key {
            return Some(value);
        }
        if found == 0 { None } else { self.probe(key, slot) }
    }

    #[cold]
    fn probe(&self, key: u64, primary_slot: usize) -> Option<u32> {
        let (before, after) = self.slots.split_at(primary_slot);
        let slots = after.iter().chain(before);
        slots.take_while(|(found, _)| *found != 0).find(|(found, _)| *found == key).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::EndpointMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(entries in prop::collection::hash_map(1..2000u64, any::<u32>(), 0..200)) {
            let table = EndpointMap::new(entries.iter().map(|(key, value)| (*key, *value)));
            for key in 1..2000 {
                prop_assert_eq!(table.get(key), entries.get(&key).copied());
            }
        }
    }
}
