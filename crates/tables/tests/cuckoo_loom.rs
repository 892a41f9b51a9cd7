//! Look-ups in the exact-match table beside its writer, under every interleaving and every reordering that the memory model
//! allows, with at most so many switches between threads as [`model`] says.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p bondstone-tables --test cuckoo_loom`
#![allow(unexpected_cfgs, reason = "`cfg(loom)` is set by hand")]
#![cfg(loom)]

use loom::thread;
use tables::Pages;
use tables::cuckoo::{CuckooTable, Key, Key48, Key64, Key144, Seed, Settings};

/// A bound on switches keeps the time of models of many loads within seconds.
fn model(switches: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.max_branches = 100_000;
    model.check(run);
}

trait Numbered: Key {
    fn number(n: u64) -> Self;
}

impl Numbered for Key48 {
    fn number(n: u64) -> Self {
        Key48::new(n)
    }
}

impl Numbered for Key64 {
    fn number(n: u64) -> Self {
        Key64::new(n)
    }
}

impl Numbered for Key144 {
    fn number(n: u64) -> Self {
        Key144::vrf_ipv6(n as u16, u128::from(n) << 64 | u128::from(n))
    }
}

fn settings(entries: u64, most: u64) -> Settings {
    Settings { entries, most, seed: Seed::fixed(5), pages: Pages::Ordinary }
}

/// A table with the keys of `there`, each with its number as its value.
fn table<K: Numbered>(settings: &Settings, there: &[u64]) -> CuckooTable<K> {
    let mut table = CuckooTable::new(settings).unwrap();
    for &n in there {
        assert_eq!(table.insert(K::number(n), K::value(n as u32)).unwrap(), None);
    }
    table
}

fn value<K: Key>(n: u64) -> Option<K::Value> {
    Some(K::value(n as u32))
}

/// Keys of which inserting one more moves one, in a table of so many entries.
#[derive(Clone, Default)]
struct Moving {
    /// Inserted in this order.
    there: Vec<u64>,
    /// Removed again.
    gone: u64,
    last: u64,
}

impl Moving {
    fn table<K: Numbered>(&self, settings: &Settings) -> CuckooTable<K> {
        let mut table = table(settings, &[&self.there[..], &[self.gone]].concat());
        table.remove(K::number(self.gone)).unwrap();
        table
    }

    /// Returns keys from a number on if one moves: out of its first bucket, or back to it from the second.
    fn from<K: Numbered>(settings: &Settings, from: u64, keys: u64, home: bool) -> Option<Self> {
        let found = Self { there: (from..from + keys).collect(), gone: from + keys, last: from + keys + 1 };
        let mut table: CuckooTable<K> = CuckooTable::new(settings).unwrap();
        for n in found.there.iter().copied().chain([found.gone]) {
            table.insert(K::number(n), K::value(n as u32)).ok()?;
        }
        table.remove(K::number(found.gone));
        let (before, moved) = (table.in_primary(), table.counters().moved);
        table.insert(K::number(found.last), K::value(found.last as u32)).ok()?;
        let right = if home { table.in_primary() > before + 1 } else { table.in_primary() <= before };
        (right && table.counters().moved > moved).then_some(found)
    }

    /// Tries keys until one moves.
    fn new<K: Numbered>(settings: &Settings, keys: u64, home: bool) -> Self {
        let found = std::sync::Arc::new(std::sync::Mutex::new(None));
        // a model for each, as loom counts the accesses of a model in 16 bits
        for from in (0..100_000).step_by(10) {
            let (here, to) = (found.clone(), settings.clone());
            model(0, move || *here.lock().unwrap() = Self::from::<K>(&to, from, keys, home));
            if let Some(found) = found.lock().unwrap().take() {
                return found;
            }
        }
        panic!("no key moves");
    }
}

/// Readers find what is there all the time, wherever it goes.
fn never_missed<K: Numbered>(settings: &Settings, keys: u64, switches: usize) {
    for home in [false, true] {
        let moving = Moving::new::<K>(settings, keys, home);
        for &asked in &moving.there {
            let (settings, moving) = (settings.clone(), moving.clone());
            model(switches, move || {
                let mut table = moving.table::<K>(&settings);
                let mut reader = table.reader();
                let reading = thread::spawn(move || {
                    assert_eq!(reader.get(K::number(asked)), value::<K>(asked));
                });
                table.insert(K::number(moving.last), K::value(moving.last as u32)).unwrap();
                reading.join().unwrap();
            });
        }
    }
}

#[test]
fn an_entry_that_moves_is_found() {
    // three entries and then a fourth in two buckets of two
    never_missed::<Key48>(&settings(3, 0), 3, 4);
}

#[test]
fn a_wide_entry_that_moves_is_found() {
    never_missed::<Key64>(&settings(8, 0), 9, 2);
}

/// The same by the call for many keys.
#[test]
fn an_entry_that_moves_is_found_among_others() {
    let settings = settings(3, 0);
    for home in [false, true] {
        let (moving, settings) = (Moving::new::<Key48>(&settings, 3, home), settings.clone());
        model(3, move || {
            let mut table = moving.table::<Key48>(&settings);
            let (mut reader, asked) = (table.reader(), moving.there.clone());
            let reading = thread::spawn(move || {
                let keys: Vec<Key48> = asked.iter().map(|&n| Key48::new(n)).collect();
                let mut values = vec![None; keys.len()];
                reader.get_batch(&keys, &mut values);
                assert_eq!(values, asked.iter().map(|&n| value::<Key48>(n)).collect::<Vec<_>>());
            });
            table.insert(Key48::new(moving.last), moving.last as u16).unwrap();
            reading.join().unwrap();
        });
    }
}

/// An entry goes to the other bucket and perhaps back, while others come and go.
#[test]
fn an_entry_that_comes_back_is_found() {
    let settings = settings(3, 0);
    for home in [false, true] {
        let moving = Moving::new::<Key48>(&settings, 3, home);
        for &asked in &moving.there {
            let (settings, moving) = (settings.clone(), moving.clone());
            model(3, move || {
                let mut table = moving.table::<Key48>(&settings);
                let mut reader = table.reader();
                let reading = thread::spawn(move || {
                    assert_eq!(reader.get(Key48::new(asked)), value::<Key48>(asked));
                });
                table.insert(Key48::new(moving.last), moving.last as u16).unwrap();
                for &n in moving.there.iter().filter(|&&n| n != asked) {
                    table.remove(Key48::new(n)).unwrap();
                    // others may have taken its place
                    let _ = table.insert(Key48::new(n), n as u16);
                }
                reading.join().unwrap();
            });
        }
    }
}

/// A bucket is split under the reader.
#[test]
fn what_goes_to_a_new_bucket_is_found() {
    for asked in 0..4 {
        model(2, move || {
            // two buckets of two; the fifth entry brings a third
            let mut table = table::<Key48>(&settings(3, 12), &[asked, 10, 11]);
            let before = table.counters().split;
            let mut reader = table.reader();
            let reading = thread::spawn(move || {
                assert_eq!(reader.get(Key48::new(asked)), value::<Key48>(asked));
                reader
            });
            for n in 12..15 {
                table.insert(Key48::new(n), 1).unwrap();
            }
            let mut reader = reading.join().unwrap();
            assert_eq!(reader.get(Key48::new(asked)), value::<Key48>(asked));
            assert!(table.counters().split > before);
        });
    }
}

/// A slot that is used again for another key: no reader finds a mixture of the two.
#[test]
fn no_key_is_mixed_from_two() {
    model(3, || {
        let mut table = table::<Key144>(&settings(1, 0), &[]);
        let first = Key144::vrf_ipv6(1, 1 << 64 | 1);
        let second = Key144::vrf_ipv6(1, 1 << 64 | 2);
        table.insert(first, 7).unwrap();
        let mut reader = table.reader();
        let reading = thread::spawn(move || {
            let found = reader.get(second);
            assert!(found.is_none() || found == Some(8), "{found:?}");
        });
        table.remove(first);
        table.insert(second, 8).unwrap();
        reading.join().unwrap();
    });
    model(3, || {
        let mut table = table::<Key64>(&settings(1, 0), &[]);
        table.insert(Key64::new(1), 7).unwrap();
        let mut reader = table.reader();
        let reading = thread::spawn(move || {
            let found = reader.get(Key64::new(2));
            assert!(found.is_none() || found == Some(8), "{found:?}");
        });
        table.remove(Key64::new(1));
        table.insert(Key64::new(2), 8).unwrap();
        reading.join().unwrap();
    });
}

/// A reader that finds an entry sees the writes before its insertion.
#[test]
fn an_entry_publishes_what_it_leads_to() {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
    model(3, || {
        let mut table = table::<Key48>(&settings(1, 0), &[]);
        let (mut reader, next_hop) = (table.reader(), Arc::new(AtomicU64::new(0)));
        let seen = next_hop.clone();
        let reading = thread::spawn(move || {
            if reader.get(Key48::new(1)).is_some() {
                assert_eq!(seen.load(Relaxed), 5);
            }
        });
        next_hop.store(5, Relaxed);
        table.insert(Key48::new(1), 0).unwrap();
        reading.join().unwrap();
    });
}
