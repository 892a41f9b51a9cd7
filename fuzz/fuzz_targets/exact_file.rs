//! Saved exact-match tables: any input is rejected or becomes a consistent table within the memory limit, and a loaded
//! table survives saving and loading. The first byte selects the key type and whether the checksum is corrected first.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use tables::cuckoo::{CuckooTable, Key, Key48, Key64, Key144, Seed, Settings};

const MAX_ENTRIES: u64 = 512;

fn settings() -> Settings {
    let entries = 16;
    Settings { most: MAX_ENTRIES, seed: Seed::fixed(7), pages: tables::Pages::Ordinary, ..Settings::new(entries) }
}

fn check_file<K: Key>(bytes: &[u8]) {
    let Ok(mut table) = CuckooTable::<K>::load(&settings(), bytes, |_| {}) else { return };
    let all: HashMap<K, K::Value> = table.iter().collect();
    assert!(all.len() as u64 == table.len() && table.len() <= MAX_ENTRIES);
    let mut saved = vec![];
    table.save(&mut saved).expect("writing to a vector");
    assert_eq!(saved.len(), bytes.len());
    let again = CuckooTable::<K>::load(&settings(), &saved[..], |_| {}).expect("a saved table");
    let mut reader = again.reader();
    for (key, value) in all {
        assert_eq!((reader.get(key), table.remove(key)), (Some(value), Some(value)));
    }
    assert!(table.is_empty());
}

fuzz_target!(|bytes: &[u8]| {
    let Some((selector, rest)) = bytes.split_first() else { return };
    let mut rest = rest.to_vec();
    if selector & 4 != 0
        && let Some(end) = rest.len().checked_sub(8)
    {
        // FNV-1a
        let fnv = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let sum = rest[..end].iter().fold(0xcbf2_9ce4_8422_2325, fnv);
        rest[end..].copy_from_slice(&sum.to_le_bytes());
    }
    match selector & 3 {
        0 | 1 => check_file::<Key48>(&rest),
        2 => check_file::<Key64>(&rest),
        _ => check_file::<Key144>(&rest),
    }
});
