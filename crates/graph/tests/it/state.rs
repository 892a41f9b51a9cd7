//! State of several cores: compared with plain maps, and on several threads.

use graph::state::{Full, Reader, Writer};
use graph::{Bounded, BuildContext, PerCore, Strict};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A hash of `n`.
fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ n >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) >> 13
}

#[test]
fn each_copy_has_its_own_state() {
    let copies = [0, 1, 2].map(|copy| {
        let cx = BuildContext { name: "nf".into(), copy: (copy, 3), ..Default::default() };
        PerCore::new(&cx, |share| (share.copy, share.of(0..100).count(), 0u64))
    });
    let threads = copies.map(|mut state| {
        std::thread::spawn(move || {
            (0..1000).for_each(|_| state.2 += 1);
            state.into_inner()
        })
    });
    let states = threads.map(|thread| thread.join().expect("no panic"));
    assert_eq!(states, [(0, 33, 1000), (1, 33, 1000), (2, 34, 1000)]);
}

/// Checks the contract of `Bounded<N>`: a reader lacks at most `N` of the updates that were completed before it caught
/// up, and has the state after some update, never one before the last that it had.
fn readers_on_threads<const N: usize>(capacity: u64, pause: u64) {
    const UPDATES: u64 = 300_000;
    // pair p of updates inserts p at key p % capacity and removes the key half the capacity away
    let value = |key: u64, version: u64| {
        let pairs = version / 2;
        let last = (pairs > key).then(|| pairs - 1 - (pairs - 1 - key) % capacity)?;
        let removed = last + capacity / 2;
        (removed >= pairs).then_some(last)
    };
    let bounded = Bounded::<N, u64, u64>::new(capacity as usize);
    let mut writer: Writer<N, u64, u64> = bounded.take_writer().expect("the first");
    let readers: [Reader<u64, u64>; 2] = [bounded.reader(), bounded.reader()];
    let (completed, start) = (AtomicU64::new(0), Barrier::new(3));
    std::thread::scope(|threads| {
        for (slow, mut reader) in readers.into_iter().enumerate() {
            let (completed, start) = (&completed, &start);
            threads.spawn(move || {
                start.wait();
                let (mut seen, mut batches) = (0, 0u64);
                while seen < UPDATES {
                    let min = completed.load(Ordering::Acquire);
                    let applied = reader.catch_up();
                    assert_eq!(reader.version(), seen + applied);
                    seen = reader.version();
                    assert!(seen + N as u64 >= min, "{seen} of {min}");
                    batches += 1;
                    // all keys every 256 batches, one key otherwise
                    let keys = if batches.is_multiple_of(256) {
                        0..capacity
                    } else {
                        batches % capacity..batches % capacity + 1
                    };
                    // between the two updates of a pair, both keys exist
                    let odd = seen % 2;
                    for key in keys {
                        let (before, after) = (value(key, seen - odd), value(key, seen + odd));
                        let found = reader.get(&key).copied();
                        assert!(found == before || odd == 1 && found == after, "{key} at {seen}: {found:?}");
                    }
                    if slow == 1 {
                        (0..pause).for_each(|_| core::hint::spin_loop());
                    }
                }
            });
        }
        let completed = &completed;
        start.wait();
        for pair in 0..UPDATES / 2 {
            writer.insert(pair % capacity, pair).expect("half of the capacity is free");
            completed.store(2 * pair + 1, Ordering::Release);
            // nothing to remove yet: insert again, so that a pair has two updates
            if pair < capacity / 2 {
                writer.insert(pair % capacity, pair).expect("the key exists");
            } else {
                assert_eq!(writer.remove(&((pair - capacity / 2) % capacity)), Some(pair - capacity / 2));
            }
            completed.store(2 * pair + 2, Ordering::Release);
        }
        writer.flush();
    });
}

#[test]
fn staleness_on_threads_is_bounded() {
    readers_on_threads::<0>(1000, 0);
    readers_on_threads::<16>(64, 20_000);
    readers_on_threads::<300>(1000, 200_000);
}

#[test]
fn readers_can_be_created_and_dropped_while_the_writer_writes() {
    let bounded = Bounded::<4, u64, u64>::new(500);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let (bounded, done) = (&bounded, &done);
        threads.spawn(move || {
            let mut writer = bounded.take_writer().expect("the first");
            let mut n = 0;
            while !done.load(Ordering::Relaxed) || n < 10_000 {
                // the value of key k is always k²
                let key = mixed(n) % 500;
                if mixed(n + 7).is_multiple_of(3) {
                    writer.remove(&key);
                } else {
                    writer.insert(key, key * key).expect("500 keys at most");
                }
                n += 1;
                if n.is_multiple_of(64) {
                    writer.flush();
                }
            }
        });
        for _ in 0..300 {
            let mut reader = bounded.reader();
            while !reader.is_synced() {
                reader.catch_up();
                std::hint::spin_loop();
            }
            for _ in 0..20 {
                reader.catch_up();
                assert!(reader.iter().all(|(key, value)| *value == key * key));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let reader = bounded.reader();
    let writer = bounded.take_writer().expect("the first was dropped");
    assert_eq!((reader.version(), reader.len()), (writer.version(), writer.len()));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Get(u8),
    Update(u8, u32),
    Insert(u8, u32),
    InsertWith(u8, u32),
    Remove(u8),
    Swap([u8; 3]),
    Retain(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (key, value) = (0..40u8, any::<u32>());
    prop_oneof![
        key.clone().prop_map(Step::Get),
        (key.clone(), value).prop_map(|(k, v)| Step::Update(k, v)),
        (key.clone(), value).prop_map(|(k, v)| Step::Insert(k, v)),
        (key.clone(), value).prop_map(|(k, v)| Step::InsertWith(k, v)),
        key.clone().prop_map(Step::Remove),
        [key.clone(), key.clone(), key].prop_map(Step::Swap),
        value.prop_map(Step::Retain),
    ]
}

proptest! {
    #[test]
    fn strict_behaves_like_a_hash_map(capacity in 0..50usize, steps in prop::collection::vec(step(), 0..300)) {
        let strict = Strict::<u8, u32>::new(capacity);
        let (mut model, mut refused) = (HashMap::new(), 0);
        let full = Full { capacity };
        for step in steps {
            match step {
                Step::Get(key) => prop_assert_eq!(strict.get(&key), model.get(&key).copied()),
                Step::Update(key, value) => {
                    let old = strict.update(&key, |current| current.map(|current| core::mem::replace(current, value)));
                    prop_assert_eq!(old, model.get_mut(&key).map(|current| core::mem::replace(current, value)));
                }
                Step::Insert(key, value) => {
                    let fits = model.contains_key(&key) || model.len() < capacity;
                    let expected = if fits { Ok(model.insert(key, value)) } else { Err(full) };
                    refused += u64::from(!fits);
                    prop_assert_eq!(strict.insert(key, value), expected);
                }
                Step::InsertWith(key, value) => {
                    let fits = model.contains_key(&key) || model.len() < capacity;
                    let expected = if fits {
                        let current = model.entry(key).or_insert(value);
                        *current = current.wrapping_add(1);
                        Ok(*current)
                    } else {
                        Err(full)
                    };
                    refused += u64::from(!fits);
                    let increment = |current: &mut u32| { *current = current.wrapping_add(1); *current };
                    let got = strict.insert_with(key, || value, increment);
                    prop_assert_eq!(got, expected);
                }
                Step::Remove(key) => prop_assert_eq!(strict.remove(&key), model.remove(&key)),
                Step::Swap(keys) => {
                    // moves the first value to the second key and triples the third; keys may be equal
                    let [a, b, c] = keys;
                    let got = strict.atomically([&a, &b, &c], |all| {
                        let first = all.remove(0);
                        let second = all.get(1).copied();
                        let placed = first.map(|first| all.insert(1, first));
                        let third = all.get_mut(2).map(|third| { *third = third.wrapping_mul(3); *third });
                        (first, second, placed, third)
                    });
                    let first = model.remove(&a);
                    let second = model.get(&b).copied();
                    let placed = first.map(|first| Ok(model.insert(b, first)));
                    let third = model.get_mut(&c).map(|third| { *third = third.wrapping_mul(3); *third });
                    prop_assert_eq!(got, (first, second, placed, third));
                }
                Step::Retain(limit) => {
                    strict.retain(|_, value| *value < limit);
                    model.retain(|_, value| *value < limit);
                }
            }
            prop_assert_eq!(strict.len(), model.len());
            prop_assert_eq!(strict.is_empty(), model.is_empty());
        }
        prop_assert_eq!(strict.refused(), refused);
        let mut all = HashMap::new();
        strict.retain(|key, value| { all.insert(*key, *value); true });
        prop_assert_eq!(all, model);
    }
}

/// Threads move amounts between accounts; the sum of all accounts, read atomically, never changes.
#[test]
fn transfers_keep_the_sum() {
    const ACCOUNTS: u64 = 6;
    const EACH: u64 = 100;
    let accounts = Strict::<u64, u64>::new(ACCOUNTS as usize);
    (0..ACCOUNTS).for_each(|n| _ = accounts.insert(n, EACH));
    let names: [u64; ACCOUNTS as usize] = std::array::from_fn(|n| n as u64);
    let sum = || {
        accounts
            .atomically(names.each_ref(), |all| (0..names.len()).map(|n| all.get(n).copied().unwrap_or(0)).sum::<u64>())
    };
    std::thread::scope(|threads| {
        for thread in 0..4u64 {
            let (accounts, sum) = (&accounts, &sum);
            threads.spawn(move || {
                for n in 0..30_000 {
                    let random = mixed(n * 4 + thread);
                    let (from, to, amount) = (random % ACCOUNTS, random / 8 % ACCOUNTS, random / 64 % 50);
                    if n.is_multiple_of(16) {
                        assert_eq!(sum(), ACCOUNTS * EACH);
                        continue;
                    }
                    accounts.atomically([&from, &to], |both| {
                        // empty accounts are removed, and created again when needed
                        let current = both.get(0).copied().unwrap_or(0);
                        let moved = current.min(amount);
                        match current - moved {
                            0 => drop(both.remove(0)),
                            left => drop(both.insert(0, left)),
                        }
                        if moved > 0 {
                            let current = both.get(1).copied().unwrap_or(0);
                            both.insert(1, current + moved).expect("room for all accounts");
                        }
                    });
                }
            });
        }
    });
    assert_eq!(sum(), ACCOUNTS * EACH);
}

/// Operations on a key have one order on all threads: a counter loses no increments, and no thread sees it decrease.
#[test]
fn updates_of_a_key_have_one_order() {
    let strict = Strict::<u8, u64>::new(2);
    let seen = AtomicU64::new(0);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for n in 0..20_000 {
                    let before = seen.load(Ordering::SeqCst);
                    let now = if n % 2 == 0 {
                        strict
                            .insert_with(
                                7,
                                || 0,
                                |count| {
                                    *count += 1;
                                    *count
                                },
                            )
                            .expect("not full")
                    } else {
                        strict.get(&7).expect("never removed")
                    };
                    assert!(now >= before, "{now} after {before}");
                    seen.fetch_max(now, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(strict.get(&7), Some(40_000));
}

/// The capacity holds with several inserting threads, and each refusal is counted.
#[test]
fn capacity_holds_on_several_threads() {
    let strict = Strict::<u64, u64>::new(100);
    let (inserted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for thread in 0..4u64 {
            let (strict, inserted, refused) = (&strict, &inserted, &refused);
            threads.spawn(move || {
                for n in 0..5000 {
                    match strict.insert(n * 4 + thread, n) {
                        Ok(old) => {
                            assert_eq!(old, None);
                            inserted.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(full) => {
                            assert_eq!(full, Full { capacity: 100 });
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    assert!(strict.len() <= 100);
                    if n % 3 == 0 && strict.remove(&(n * 4 + thread)).is_some() {
                        inserted.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(strict.len() as u64, inserted.load(Ordering::Relaxed));
    assert_eq!(strict.refused(), refused.load(Ordering::Relaxed));
    let mut entries = 0;
    strict.retain(|_, _| {
        entries += 1;
        true
    });
    assert_eq!(entries, strict.len());
}

#[test]
fn a_panic_in_a_closure_keeps_the_map_consistent() {
    let strict = Strict::<u8, u64>::new(3);
    let caught = |f: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err();
    strict.insert(1, 1).expect("not full");
    strict.insert(2, 2).expect("not full");
    assert!(caught(&|| strict.update(&1, |_| panic!("on purpose"))));
    assert!(caught(&|| _ = strict.insert_with(9, || panic!("on purpose"), |_| ())));
    assert!(caught(&|| strict.atomically([&1, &2], |both| {
        both.remove(0);
        panic!("on purpose")
    })));
    assert_eq!((strict.len(), strict.get(&1), strict.get(&2), strict.get(&9)), (1, None, Some(2), None));
    assert!(caught(&|| strict.retain(|_, _| panic!("on purpose"))));
    assert_eq!(strict.len(), 1);
    assert_eq!(
        (strict.insert(3, 3), strict.insert(4, 4), strict.insert(5, 5)),
        (Ok(None), Ok(None), Err(Full { capacity: 3 }))
    );
}
