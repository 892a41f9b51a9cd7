//! The exact-match table under readers on real threads: what is in it all the time is never missed, what changes is found
//! as it was at some time during the look-up.
//!
//! `CUCKOO_OPERATIONS` look-ups and updates together, 10,000,000 by default.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tables::Pages;
use tables::cuckoo::{CuckooTable, Error, Key, Key48, Key64, Key144, Reader, Seed, Settings};

fn operations() -> u64 {
    match std::env::var("CUCKOO_OPERATIONS") {
        Ok(text) => text.parse().expect("CUCKOO_OPERATIONS is a number"),
        Err(_) => 10_000_000,
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(n)) >> 64) as u64
    }
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
        Key64::new(n << 32 | n)
    }
}

impl Numbered for Key144 {
    /// All three parts differ, so that a mixture of two keys is neither.
    fn number(n: u64) -> Self {
        Key144::vrf_ipv6(n as u16, u128::from(n) << 64 | u128::from(!n))
    }
}

/// The value that a key always has, but for its changing part: 16 of them.
fn value_of<K: Key>(n: u64, change: u64) -> K::Value {
    K::value((n % 4000 * 16 + change % 16) as u32)
}

fn is_of<K: Key>(n: u64, value: K::Value) -> bool {
    u64::from(value.into()) / 16 == n % 4000
}

/// Ends the readers, also when the writer fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Looks for permanent keys, which are even numbers below `keys`, flapping ones, which are odd, and keys that are never
/// there.
fn read<K: Numbered>(mut reader: Reader<K>, keys: u64, seed: u64, over: &AtomicBool, done: &AtomicU64) -> u64 {
    let mut random = Random::new(seed);
    let (mut numbers, mut ask, mut values) = (Vec::new(), Vec::new(), Vec::new());
    while !over.load(Relaxed) {
        let count = 1 + random.below(100) as usize;
        numbers.clear();
        numbers.extend((0..count).map(|_| random.below(keys + keys / 4)));
        ask.clear();
        ask.extend(numbers.iter().map(|&n| K::number(n)));
        values.clear();
        values.resize(count, None);
        if seed.is_multiple_of(3) {
            values.iter_mut().zip(&ask).for_each(|(value, &key)| *value = reader.get(key));
        } else {
            reader.get_batch(&ask, &mut values);
        }
        for (&n, value) in numbers.iter().zip(&values) {
            match value {
                Some(value) => assert!(n < keys && is_of::<K>(n, *value), "{n}: {value:?}"),
                None => assert!(n >= keys || n % 2 == 1, "{n} was missed"),
            }
        }
        done.fetch_add(count as u64, Relaxed);
    }
    reader.restarts()
}

/// One writer inserts, replaces and removes odd keys, and replaces even ones, as a map does, in a table as full as it gets;
/// or one that grows all the while.
fn churn<K: Numbered>(operations: u64, entries: u64, most: u64, keys: u64) {
    let settings = Settings { entries, most, seed: Seed::fixed(3), pages: Pages::Transparent };
    let mut table: CuckooTable<K> = CuckooTable::new(&settings).unwrap();
    let mut model: HashMap<u64, K::Value> = HashMap::new();
    table.extend((0..keys).step_by(2).map(|n| (K::number(n), value_of::<K>(n, 0))), |_| {}).unwrap();
    model.extend((0..keys).step_by(2).map(|n| (n, value_of::<K>(n, 0))));
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut refused, mut updates) = (0, 0);
    std::thread::scope(|scope| {
        let (over, done) = (&over, &done);
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                let reader = table.reader();
                scope.spawn(move || read(reader, keys, seed, over, done))
            })
            .collect();
        let end = End(over);
        let mut random = Random::new(99);
        // at least one of each hundred for the writer, and half as many at most
        while done.load(Relaxed) + updates < operations || updates < operations / 100 {
            for _ in 0..100 {
                let n = random.below(keys);
                let (key, value) = (K::number(n), value_of::<K>(n, updates));
                updates += 1;
                if n % 2 == 1 && random.below(2) == 0 {
                    assert_eq!(table.remove(key), model.remove(&n));
                } else {
                    match table.insert(key, value) {
                        Ok(old) => assert_eq!(old, model.insert(n, value)),
                        Err(Error::Full { .. }) => {
                            assert!(!model.contains_key(&n));
                            refused += 1;
                            // room for others
                            for _ in 0..50 {
                                let n = random.below(keys / 2) * 2 + 1;
                                assert_eq!(table.remove(K::number(n)), model.remove(&n));
                            }
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
        drop(end);
        let restarts: u64 = readers.into_iter().map(|reader| reader.join().expect("a reader")).sum();
        println!(
            "{} bits: {} look-ups and {updates} updates, {restarts} begun again, {refused} refused, {:?}, {:.1} % full",
            K::BITS,
            done.load(Relaxed),
            table.counters(),
            table.len() as f64 / table.slots() as f64 * 100.0
        );
    });
    assert!(table.counters().moved > 0, "entries moved");
    assert_eq!(table.counters().split > 0, most > entries, "the table grew where it may");
    assert_eq!(table.len(), model.len() as u64);
    assert!(
        table.iter().count() == model.len() && model.iter().all(|(&n, &value)| table.get(K::number(n)) == Some(value))
    );
}

/// Few keys in a table that they do not fit in: every insertion moves others.
#[test]
fn nothing_is_missed_in_a_full_table() {
    let operations = operations() / 6;
    churn::<Key48>(operations, 7000, 0, 10_300);
    churn::<Key64>(operations, 7000, 0, 10_000);
    churn::<Key144>(operations, 7000, 0, 10_000);
}

/// From nearly nothing to what it holds in the end.
#[test]
fn nothing_is_missed_while_it_grows() {
    let operations = operations() / 6;
    churn::<Key48>(operations, 64, 1 << 20, 300_000);
    churn::<Key64>(operations, 64, 1 << 20, 300_000);
    churn::<Key144>(operations, 64, 1 << 20, 300_000);
}

/// Entries go to and fro between full buckets all the time, of a table so small that readers meet them.
#[test]
fn an_entry_that_moves_is_never_missed() {
    let operations = operations() / 20;
    churn::<Key48>(operations, 56, 0, 80);
    churn::<Key64>(operations, 56, 0, 80);
    churn::<Key144>(operations, 56, 0, 80);
}
