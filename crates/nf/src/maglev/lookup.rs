//! Few keys, found in one or two steps.

/// A table that is written once: open addressing, three slots in four free.
pub(super) struct Lookup {
    /// Keys and what they lead to. No key is 0.
    slots: Box<[(u64, u32)]>,
    shift: u32,
}

/// Address and port as they stand in an IPv4 packet, and the protocol; never 0.
#[inline(always)]
pub(super) fn key4(address: [u8; 4], port: [u8; 2], protocol: u8) -> u64 {
    let port = u16::from_le_bytes(port);
    u64::from(u32::from_le_bytes(address)) | u64::from(port) << 32 | u64::from(protocol) << 48
}

impl Lookup {
    pub(super) fn new(all: impl ExactSizeIterator<Item = (u64, u32)>) -> Self {
        let bits = (all.len() * 4).next_power_of_two().trailing_zeros().max(4);
        let mut table = Lookup { slots: vec![(0, 0); 1 << bits].into(), shift: 64 - bits };
        for (key, value) in all {
            let mut at = table.home(key);
            while table.slots[at].0 != 0 {
                at = (at + 1) & (table.slots.len() - 1);
            }
            table.slots[at] = (key, value);
        }
        table
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline(always)]
    pub(super) fn get(&self, key: u64) -> Option<u32> {
        let home = self.home(key);
        // where it is nearly always, or would be
        let (there, value) = *self.slots.get(home)?;
        if there == key {
            return Some(value);
        }
        if there == 0 { None } else { self.further(key, home) }
    }

    #[cold]
    fn further(&self, key: u64, home: usize) -> Option<u32> {
        let (before, after) = self.slots.split_at(home);
        let all = after.iter().chain(before);
        all.take_while(|(there, _)| *there != 0).find(|(there, _)| *there == key).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::{Lookup, key4};
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn finds_what_a_hash_map_finds(all in prop::collection::hash_map(1..2000u64, any::<u32>(), 0..200)) {
            let table = Lookup::new(all.iter().map(|(key, value)| (*key, *value)));
            for key in 1..2000 {
                prop_assert_eq!(table.get(key), all.get(&key).copied());
            }
        }
    }

    #[test]
    fn no_key_is_like_another() {
        let keys = [
            ([1, 0, 0, 0], [0, 0], 6),
            ([0, 0, 0, 0], [1, 0], 6),
            ([0, 0, 0, 1], [0, 0], 6),
            ([1, 0, 0, 0], [0, 0], 17),
        ];
        let all: HashMap<_, _> = keys.map(|(a, p, n)| (key4(a, p, n), ())).into();
        assert_eq!(all.len(), 4);
    }
}
