//! Saved exact-match tables. Any bytes are refused or become a table that holds together, within the memory the settings
//! allow; what was loaded is the same after it was saved and loaded again. The first byte says of which keys, and whether the
//! checksum is put right first, so that what stands before it is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use tables::exact::{ExactTable, Key, Key48, Key64, Key144, Seed, Settings};

const MOST: u64 = 512;

fn settings() -> Settings {
    let entries = 16;
    Settings { most: MOST, seed: Seed::fixed(7), pages: tables::Pages::Ordinary, ..Settings::new(entries) }
}

fn holds<K: Key>(bytes: &[u8]) {
    let Ok(mut table) = ExactTable::<K>::load(&settings(), bytes, |_| {}) else { return };
    let all: HashMap<K, K::Value> = table.iter().collect();
    assert!(all.len() as u64 == table.len() && table.len() <= MOST);
    let mut saved = vec![];
    table.save(&mut saved).expect("a vector takes all");
    assert_eq!(saved.len(), bytes.len());
    let again = ExactTable::<K>::load(&settings(), &saved[..], |_| {}).expect("what was saved is loaded");
    let mut reader = again.reader();
    for (key, value) in all {
        assert_eq!((reader.get(key), table.remove(key)), (Some(value), Some(value)));
    }
    assert!(table.is_empty());
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    let mut rest = rest.to_vec();
    if which & 4 != 0
        && let Some(end) = rest.len().checked_sub(8)
    {
        // FNV-1a
        let fnv = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let sum = rest[..end].iter().fold(0xcbf2_9ce4_8422_2325, fnv);
        rest[end..].copy_from_slice(&sum.to_le_bytes());
    }
    match which & 3 {
        0 | 1 => holds::<Key48>(&rest),
        2 => holds::<Key64>(&rest),
        _ => holds::<Key144>(&rest),
    }
});
