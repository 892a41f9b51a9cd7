//! The exact-match table against a map, every kind of key; full tables, growth, and how full they get.

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;
use tables::cuckoo::{CuckooTable, ENTRIES_MOST, Error, Key, Key48, Key64, Key144, LoadError, Seed, Settings};
use tables::{Backing, Pages};

/// Keys and values by number: zero and all ones among them.
trait Numbered: Key {
    fn number(n: u64) -> Self;
    fn value_of(n: u64) -> Self::Value;
}

/// Numbers near zero are near zero, numbers near the end near all ones.
fn spread(n: u64) -> u64 {
    if n.is_multiple_of(2) { n / 2 } else { !(n / 2) }
}

impl Numbered for Key48 {
    fn number(n: u64) -> Self {
        Key48::new(spread(n))
    }

    fn value_of(n: u64) -> u16 {
        (n % 65_535) as u16
    }
}

impl Numbered for Key64 {
    fn number(n: u64) -> Self {
        Key64::new(spread(n))
    }

    fn value_of(n: u64) -> u32 {
        (n % 0xffff_ffff) as u32
    }
}

impl Numbered for Key144 {
    /// Each part alone makes a difference.
    fn number(n: u64) -> Self {
        let (part, n) = (n % 3, if n == 0 { 0 } else { spread((n - 1) / 3 + 1) });
        match part {
            0 => Key144::vrf_ipv6((n % 65_535) as u16, u128::from(n / 65_535) << 32),
            1 => Key144::vrf_ipv6(0, u128::from(n) << 64),
            _ => Key144::vrf_ipv6(0, u128::from(n)),
        }
    }

    fn value_of(n: u64) -> u32 {
        (n % 0xffff_ffff) as u32
    }
}

fn settings(entries: u64, most: u64) -> Settings {
    Settings { entries, most, seed: Seed::fixed(entries), pages: Pages::Ordinary }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<(u64, u64)>),
    Extend(Vec<(u64, u64)>),
    Remove(Vec<u64>),
    LookUp(Vec<u64>),
    Clear,
}

fn steps(keys: u64) -> impl Strategy<Value = Vec<Step>> {
    let pairs = move || vec((0..keys, prop_oneof![0..70_000u64, Just(u64::MAX - 1)]), 0..80);
    let step = prop_oneof![
        8 => pairs().prop_map(Step::Insert),
        4 => pairs().prop_map(Step::Extend),
        6 => vec(0..keys, 0..80).prop_map(Step::Remove),
        6 => vec(0..keys, 0..150).prop_map(Step::LookUp),
        1 => Just(Step::Clear),
    ];
    vec(step, 1..50)
}

/// Does the same to a table and a map. What the table refuses, it must refuse for want of room.
fn run<K: Numbered>(entries: u64, most: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut table: CuckooTable<K> = CuckooTable::new(&settings(entries, most)).unwrap();
    let mut reader = table.reader();
    let mut model: HashMap<K, K::Value> = HashMap::new();
    for step in steps {
        match step {
            Step::Insert(pairs) => {
                for &(key, value) in pairs {
                    let (key, value) = (K::number(key), K::value_of(value));
                    match table.insert(key, value) {
                        Ok(old) => prop_assert_eq!(old, model.insert(key, value)),
                        Err(Error::Full { len, .. }) => {
                            prop_assert!(len == model.len() as u64 && !model.contains_key(&key));
                            prop_assert_eq!(table.get(key), None);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            Step::Extend(pairs) => {
                let mut told = 0;
                let pairs: Vec<_> = pairs.iter().map(|&(k, v)| (K::number(k), K::value_of(v))).collect();
                match table.extend(pairs.iter().copied(), |done| told = done) {
                    Ok(done) => {
                        prop_assert!(done == pairs.len() as u64 && told == done);
                        model.extend(pairs);
                    }
                    Err(_) => {
                        for (key, value) in pairs {
                            if table.insert(key, value).is_ok() {
                                model.insert(key, value);
                            }
                        }
                    }
                }
            }
            Step::Remove(keys) => {
                for key in keys.iter().map(|&key| K::number(key)) {
                    prop_assert_eq!(table.remove(key), model.remove(&key));
                }
            }
            Step::LookUp(keys) => {
                let keys: Vec<K> = keys.iter().map(|&key| K::number(key)).collect();
                let mut values = vec![Some(K::value_of(5)); keys.len()];
                reader.get_batch(&keys, &mut values);
                for (key, value) in keys.into_iter().zip(values) {
                    prop_assert_eq!(value, model.get(&key).copied());
                    prop_assert_eq!(reader.get(key), value);
                    prop_assert_eq!(table.get(key), value);
                }
            }
            Step::Clear => {
                table.clear();
                model.clear();
            }
        }
        prop_assert_eq!(table.len(), model.len() as u64);
        let counters = table.counters();
        prop_assert_eq!(counters.inserted - counters.removed, table.len());
    }
    prop_assert_eq!(table.iter().collect::<HashMap<_, _>>(), model);
    prop_assert!(table.iter().count() as u64 == table.len() && table.len() <= table.slots());
    prop_assert_eq!(reader.restarts(), 0, "no concurrent writes");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn like_a_map_48(entries in 1..200u64, most in 0..600u64, steps in steps(400)) {
        run::<Key48>(entries, most, &steps)?;
    }

    #[test]
    fn like_a_map_64(entries in 1..200u64, most in 0..600u64, steps in steps(400)) {
        run::<Key64>(entries, most, &steps)?;
    }

    #[test]
    fn like_a_map_144(entries in 1..200u64, most in 0..600u64, steps in steps(400)) {
        run::<Key144>(entries, most, &steps)?;
    }
}

/// Inserts until the table is full and gives the part of its slots that is taken; all must still be there.
fn fill<K: Numbered>(settings: &Settings, number: impl Fn(u64) -> K) -> f64 {
    let mut table: CuckooTable<K> = CuckooTable::new(settings).unwrap();
    let mut n = 0;
    let full = loop {
        match table.insert(number(n), K::value_of(n)) {
            Ok(old) => assert_eq!(old, None),
            Err(error) => break error,
        }
        n += 1;
    };
    assert!(matches!(full, Error::Full { len, slots } if len == n && slots == table.slots()), "{full}");
    assert_eq!((table.len(), table.counters().refused), (n, 1));
    let mut reader = table.reader();
    assert!((0..n).all(|n| reader.get(number(n)) == Some(K::value_of(n))));
    // a full table still replaces, and takes another key for one removed from the same buckets
    assert!(table.insert(number(1), K::value_of(9)).unwrap().is_some());
    assert!(table.remove(number(0)).is_some() && table.insert(number(0), K::value_of(0)).unwrap().is_none());
    n as f64 / table.slots() as f64
}

#[test]
fn ninety_five_in_a_hundred_slots_are_taken_before_it_is_full() {
    for entries in [1000, 30_000, 500_000] {
        let settings = settings(entries, 0);
        for load in [
            fill(&settings, Key48::number),
            fill(&settings, |n| Key48::vrf_ipv4(7, (n << 8) as u32)),
            fill(&settings, |n| Key48::vrf_ipv4((n >> 3) as u16, n as u32 & 7 | (n >> 19 << 3) as u32)),
        ] {
            println!("48 bits, {entries}: {load:.4}");
            assert!(load >= 0.95, "{load}");
        }
        for load in [fill(&settings, Key64::number), fill(&settings, Key144::number)] {
            println!("wide, {entries}: {load:.4}");
            assert!(load >= 0.90, "{load}");
        }
    }
}

/// From one bucket to many: sizes between the powers of two as good as they are.
fn grows<K: Numbered>() {
    for entries in [1, 100] {
        let most = 100_000;
        let mut table: CuckooTable<K> = CuckooTable::new(&settings(entries, most)).unwrap();
        let mut reader = table.reader();
        for n in 0..most {
            assert_eq!(table.insert(K::number(n), K::value_of(n)).unwrap(), None);
            assert_eq!(reader.get(K::number(n / 2)), Some(K::value_of(n / 2)));
            if n > 1000 {
                let load = table.len() as f64 / table.slots() as f64;
                assert!((0.86..=0.88).contains(&load), "{n}: {load}");
            }
        }
        assert!((0..most).all(|n| reader.get(K::number(n)) == Some(K::value_of(n))));
        assert_eq!(reader.get(K::number(most)), None);
        assert!(table.counters().split > 0 && table.iter().count() as u64 == most);
    }
    let load = fill(&settings(100, 30_000), K::number);
    assert!(load > 0.90, "{load}");
}

#[test]
fn grows_48() {
    grows::<Key48>();
}

#[test]
fn grows_64() {
    grows::<Key64>();
}

#[test]
fn grows_144() {
    grows::<Key144>();
}

#[test]
fn the_greatest_value_is_one_less_than_the_types() {
    let mut table: CuckooTable<Key48> = CuckooTable::new(&settings(10, 0)).unwrap();
    let error = table.insert(Key48::new(0), 65_535).unwrap_err();
    assert_eq!(error.to_string(), "value 65535: 65534 is the greatest that a key of 48 bits can have");
    assert_eq!(table.insert(Key48::new(0), 65_534).unwrap(), None);
    assert_eq!((table.get(Key48::new(0)), table.len()), (Some(65_534), 1));
    let mut table: CuckooTable<Key144> = CuckooTable::new(&settings(10, 0)).unwrap();
    assert!(matches!(table.insert(Key144::default(), u32::MAX), Err(Error::Value { bits: 144, .. })));
    assert_eq!(table.insert(Key144::default(), u32::MAX - 1).unwrap(), None);
    assert_eq!(table.remove(Key144::default()), Some(u32::MAX - 1));
    assert!(table.is_empty());
}

#[test]
fn tables_that_cannot_be_are_refused() {
    let new = |entries, most| CuckooTable::<Key48>::new(&settings(entries, most)).map(|_| ());
    assert!(matches!(new(0, 0), Err(Error::Entries { entries: 0 })));
    assert!(matches!(new(0, 100), Err(Error::Entries { entries: 0 })));
    assert!(matches!(new(ENTRIES_MOST + 1, 0), Err(Error::Entries { .. })));
    assert!(matches!(new(1, u64::MAX), Err(Error::Entries { entries: u64::MAX })));
    let huge = new(ENTRIES_MOST, 0);
    assert!(matches!(huge, Err(Error::Memory { .. })), "{huge:?}");
}

#[test]
fn an_entry_takes_nine_bytes() {
    let mut table: CuckooTable<Key48> =
        CuckooTable::new(&Settings { pages: Pages::Transparent, ..settings(1_000_000, 0) }).unwrap();
    table.extend((0..1_000_000).map(|n| (Key48::number(n), 1)), |_| {}).unwrap();
    let Backing { hugetlb, transparent, ordinary } = table.backing();
    assert_eq!(hugetlb, 0);
    let all = transparent + ordinary;
    assert!((9_142_857..9_142_857 + (2 << 20) + 8192).contains(&all), "{all}");
    // most cost one line
    println!("{} in 1,000,000 in their primary bucket", table.in_primary());
    assert!(table.in_primary() > 800_000);
}

#[test]
fn readers_are_cloned_and_both_are_sent() {
    fn sent<T: Send>(_: &T) {}
    let mut table: CuckooTable<Key64> = CuckooTable::new(&settings(10, 0)).unwrap();
    let reader = table.reader();
    let mut other = reader.clone();
    sent(&table);
    sent(&reader);
    table.insert(Key64::new(3), 4).unwrap();
    // a reader has the memory as long as it needs it
    drop(table);
    assert_eq!((other.get(Key64::new(3)), other.get(Key64::new(4))), (Some(4), None));
    other.get_batch(&[], &mut []);
}

#[test]
fn keys_are_what_they_are_made_of() {
    assert_eq!(Key48::vrf_ipv4(0x1234, 0x0a00_0001).bits(), 0x1234_0a00_0001);
    assert_eq!(Key48::mac([0x52, 0x54, 0, 1, 2, 3]).bits(), 0x5254_0001_0203);
    assert_eq!(Key64::mac_vlan([0x52, 0x54, 0, 1, 2, 3], 100).bits(), 0x5254_0001_0203_0064);
    assert_eq!(Key48::new(u64::MAX).bits(), (1 << 48) - 1);
    let address = 0x2001_0db8 << 96 | 7;
    assert_eq!(Key144::vrf_ipv6(9, address).parts(), (9, address));
}

/// So many entries, saved.
fn saved<K: Numbered>(entries: u64) -> Vec<u8> {
    let mut table: CuckooTable<K> = CuckooTable::new(&settings(entries.max(1), 0)).unwrap();
    table.extend((0..entries).map(|n| (K::number(n), K::value_of(n))), |_| {}).unwrap();
    let mut bytes = Vec::new();
    table.save(&mut bytes).unwrap();
    bytes
}

fn round_trip<K: Numbered>(entry: usize) {
    for entries in [0, 1, 31, 32, 33, 5000] {
        let bytes = saved::<K>(entries);
        assert_eq!(bytes.len() as u64, 32 + entries * entry as u64);
        // another seed, other places
        let mut told = None;
        let settings = Settings { seed: Seed::fixed(77), ..settings(1, 10_000) };
        let loaded: CuckooTable<K> = CuckooTable::load(&settings, &bytes[..], |done| told = Some(done)).unwrap();
        assert_eq!((loaded.len(), told), (entries, Some(entries)));
        assert!((0..entries).all(|n| loaded.get(K::number(n)) == Some(K::value_of(n))));
    }
}

#[test]
fn saved_and_loaded() {
    round_trip::<Key48>(8);
    round_trip::<Key64>(12);
    round_trip::<Key144>(22);
}

/// Loads what may be anything, and gives the reason when it is refused.
fn load<K: Numbered>(bytes: &[u8]) -> Result<CuckooTable<K>, LoadError> {
    CuckooTable::load(&settings(10, 1000), bytes, |_| {})
}

#[test]
fn what_is_no_saved_table_is_refused_and_told_why() {
    let bytes = saved::<Key48>(100);
    let error = |bytes: &[u8]| load::<Key48>(bytes).unwrap_err().to_string();
    assert_eq!(error(b""), "the saved table is damaged: it ends early");
    assert_eq!(error(&[b'x'; 100]), "not a saved exact-match table: it begins otherwise");
    assert_eq!(error(&bytes[..bytes.len() - 1]), "the saved table is damaged: it ends early");
    assert_eq!(error(&[&bytes[..], &[0]].concat()), "the saved table is damaged: something follows its end");
    let with = |at: usize, what: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + what.len()].copy_from_slice(what);
        bytes
    };
    assert_eq!(error(&with(8, &[2])), "not a saved exact-match table: its version is not 1");
    assert_eq!(error(&with(12, &[64])), "the saved table has keys of 64 bits, not 48");
    let huge = error(&with(16, &[0xff; 8]));
    assert!(huge.contains("at most 1000 are allowed"), "{huge}");
    // 101 entries: the checksum is taken for one, and is too short for what follows
    assert_eq!(error(&with(16, &[101])), "the saved table is damaged: it ends early");
    assert_eq!(error(&with(24 + 7, &[0x17])), "the saved table is damaged: its checksum is wrong");
    let twice = with(24, &bytes[32..38]);
    assert_eq!(error(&twice), "the saved table is damaged: a key comes twice");
    assert!(matches!(load::<Key48>(&with(24 + 6, &[0xff, 0xff])), Err(LoadError::Table(Error::Value { .. }))));
    assert!(matches!(load::<Key64>(&saved::<Key48>(3)), Err(LoadError::Keys { found: 48, wanted: 64 })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// No byte of a saved table can change unnoticed, and nothing that can be loaded panics.
    #[test]
    fn changed_bytes_are_noticed(changes in vec((any::<prop::sample::Index>(), 1..=255u8), 1..4), cut in any::<prop::sample::Index>()) {
        let original = saved::<Key144>(20);
        let mut bytes = original.clone();
        for (at, change) in changes {
            bytes[at.index(original.len())] ^= change;
        }
        prop_assert_eq!(load::<Key144>(&bytes).is_ok(), bytes == original);
        let short = &original[..cut.index(original.len())];
        prop_assert!(load::<Key144>(short).is_err());
    }

    #[test]
    fn any_bytes_are_borne(bytes in vec(any::<u8>(), 0..200), count in 0..20u8) {
        let mut whole = saved::<Key48>(0);
        whole.truncate(24);
        whole[16] = count;
        whole.extend(&bytes);
        let _ = load::<Key48>(&whole);
        let _ = load::<Key64>(&bytes);
    }
}
