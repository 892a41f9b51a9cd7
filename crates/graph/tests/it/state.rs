//! State of several cores: against plain maps, and on several threads.

use graph::state::{Full, Reader, Writer};
use graph::{Bounded, BuildContext, PerCore, Strict};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Numbers with no pattern.
fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ n >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) >> 13
}

#[test]
fn each_copy_has_state_of_its_own() {
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
    let states = threads.map(|thread| thread.join().expect("it does not panic"));
    assert_eq!(states, [(0, 33, 1000), (1, 33, 1000), (2, 34, 1000)]);
}

/// The contract of `Bounded<N>` as it stands: of the updates that were completed before a reader caught up, it lacks at
/// most `N`; and what it sees is what stood after some update, not before the one it saw last.
fn readers_on_threads<const N: usize>(capacity: u64, pause: u64) {
    const UPDATES: u64 = 300_000;
    // update number u puts u at key u % capacity, and removes the key that is half way round
    let value = |key: u64, version: u64| {
        let pairs = version / 2;
        let last = (pairs > key).then(|| pairs - 1 - (pairs - 1 - key) % capacity)?;
        let removed = last + capacity / 2;
        (removed >= pairs).then_some(last)
    };
    let bounded = Bounded::<N, u64, u64>::new(capacity as usize);
    let mut writer: Writer<N, u64, u64> = bounded.writer().expect("the first");
    let readers: [Reader<u64, u64>; 2] = [bounded.reader(), bounded.reader()];
    let (completed, start) = (AtomicU64::new(0), Barrier::new(3));
    std::thread::scope(|threads| {
        for (slow, mut reader) in readers.into_iter().enumerate() {
            let (completed, start) = (&completed, &start);
            threads.spawn(move || {
                start.wait();
                let (mut seen, mut batches) = (0, 0u64);
                while seen < UPDATES {
                    let least = completed.load(Ordering::Acquire);
                    let came = reader.catch_up();
                    assert_eq!(reader.version(), seen + came);
                    seen = reader.version();
                    assert!(seen + N as u64 >= least, "{seen} of {least}");
                    batches += 1;
                    // now and then all of it, else some
                    let keys = if batches.is_multiple_of(256) {
                        0..capacity
                    } else {
                        batches % capacity..batches % capacity + 1
                    };
                    // between the two updates of a pair, the one key is there and the other still too
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
            // from the first on, so that there are two updates to a pair
            if pair < capacity / 2 {
                writer.insert(pair % capacity, pair).expect("it is there");
            } else {
                assert_eq!(writer.remove(&((pair - capacity / 2) % capacity)), Some(pair - capacity / 2));
            }
            completed.store(2 * pair + 2, Ordering::Release);
        }
        writer.flush();
    });
}

#[test]
fn no_thread_is_further_behind_than_it_may_be() {
    readers_on_threads::<0>(1000, 0);
    readers_on_threads::<16>(64, 20_000);
    readers_on_threads::<300>(1000, 200_000);
}

#[test]
fn readers_come_and_go_while_the_writer_writes() {
    let bounded = Bounded::<4, u64, u64>::new(500);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let (bounded, done) = (&bounded, &done);
        threads.spawn(move || {
            let mut writer = bounded.writer().expect("the first");
            let mut n = 0;
            while !done.load(Ordering::Relaxed) || n < 10_000 {
                // key k holds its square, always
                let key = mixed(n) % 500;
                if mixed(n + 7).is_multiple_of(3) {
                    writer.remove(&key);
                } else {
                    writer.insert(key, key * key).expect("there are no more keys than that");
                }
                n += 1;
                if n.is_multiple_of(64) {
                    writer.flush();
                }
            }
        });
        for _ in 0..300 {
            let mut reader = bounded.reader();
            while !reader.joined() {
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
    let writer = bounded.writer().expect("the first has gone");
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
    fn strict_is_a_map(capacity in 0..50usize, steps in prop::collection::vec(step(), 0..300)) {
        let strict = Strict::<u8, u32>::new(capacity);
        let (mut model, mut refused) = (HashMap::new(), 0);
        let full = Full { capacity };
        for step in steps {
            match step {
                Step::Get(key) => prop_assert_eq!(strict.get(&key), model.get(&key).copied()),
                Step::Update(key, value) => {
                    let old = strict.update(&key, |there| there.map(|there| core::mem::replace(there, value)));
                    prop_assert_eq!(old, model.get_mut(&key).map(|there| core::mem::replace(there, value)));
                }
                Step::Insert(key, value) => {
                    let room = model.contains_key(&key) || model.len() < capacity;
                    let expected = if room { Ok(model.insert(key, value)) } else { Err(full) };
                    refused += u64::from(!room);
                    prop_assert_eq!(strict.insert(key, value), expected);
                }
                Step::InsertWith(key, value) => {
                    let room = model.contains_key(&key) || model.len() < capacity;
                    let expected = if room {
                        let there = model.entry(key).or_insert(value);
                        *there = there.wrapping_add(1);
                        Ok(*there)
                    } else {
                        Err(full)
                    };
                    refused += u64::from(!room);
                    let got = strict.insert_with(key, || value, |there| { *there = there.wrapping_add(1); *there });
                    prop_assert_eq!(got, expected);
                }
                Step::Remove(key) => prop_assert_eq!(strict.remove(&key), model.remove(&key)),
                Step::Swap(keys) => {
                    // the first one's value to the second, a sum to the third, whatever of them are the same
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
                Step::Retain(most) => {
                    strict.retain(|_, value| *value < most);
                    model.retain(|_, value| *value < most);
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

/// Accounts between which threads move what there is. Whoever looks at all of them at once finds nothing lost.
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
                    let dice = mixed(n * 4 + thread);
                    let (from, to, amount) = (dice % ACCOUNTS, dice / 8 % ACCOUNTS, dice / 64 % 50);
                    if n.is_multiple_of(16) {
                        assert_eq!(sum(), ACCOUNTS * EACH);
                        continue;
                    }
                    accounts.atomically([&from, &to], |both| {
                        // an account that is empty is closed, one that gets something is opened
                        let there = both.get(0).copied().unwrap_or(0);
                        let moved = there.min(amount);
                        match there - moved {
                            0 => drop(both.remove(0)),
                            rest => drop(both.insert(0, rest)),
                        }
                        if moved > 0 {
                            let there = both.get(1).copied().unwrap_or(0);
                            both.insert(1, there + moved).expect("there is room for all accounts");
                        }
                    });
                }
            });
        }
    });
    assert_eq!(sum(), ACCOUNTS * EACH);
}

/// Operations on one key at a time are in one order for all: a counter loses nothing, and whoever has seen it at `n`
/// never sees it lower, on whatever thread.
#[test]
fn updates_of_one_key_are_in_one_order() {
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
                            .expect("there is room")
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

/// However many threads insert, there are never more entries than may be, and each refusal is counted.
#[test]
fn a_full_map_is_full_for_all() {
    let strict = Strict::<u64, u64>::new(100);
    let (took, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for thread in 0..4u64 {
            let (strict, took, refused) = (&strict, &took, &refused);
            threads.spawn(move || {
                for n in 0..5000 {
                    match strict.insert(n * 4 + thread, n) {
                        Ok(old) => {
                            assert_eq!(old, None);
                            took.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(full) => {
                            assert_eq!(full, Full { capacity: 100 });
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    assert!(strict.len() <= 100);
                    if n % 3 == 0 && strict.remove(&(n * 4 + thread)).is_some() {
                        took.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(strict.len() as u64, took.load(Ordering::Relaxed));
    assert_eq!(strict.refused(), refused.load(Ordering::Relaxed));
    let mut entries = 0;
    strict.retain(|_, _| {
        entries += 1;
        true
    });
    assert_eq!(entries, strict.len());
}

#[test]
fn a_panic_in_a_closure_leaves_the_map_in_order() {
    let strict = Strict::<u8, u64>::new(3);
    let caught = |f: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err();
    strict.insert(1, 1).expect("there is room");
    strict.insert(2, 2).expect("there is room");
    assert!(caught(&|| strict.update(&1, |_| panic!("told to"))));
    assert!(caught(&|| _ = strict.insert_with(9, || panic!("told to"), |_| ())));
    assert!(caught(&|| strict.atomically([&1, &2], |both| {
        both.remove(0);
        panic!("told to")
    })));
    assert_eq!((strict.len(), strict.get(&1), strict.get(&2), strict.get(&9)), (1, None, Some(2), None));
    assert!(caught(&|| strict.retain(|_, _| panic!("told to"))));
    assert_eq!(strict.len(), 1);
    assert_eq!(
        (strict.insert(3, 3), strict.insert(4, 4), strict.insert(5, 5)),
        (Ok(None), Ok(None), Err(Full { capacity: 3 }))
    );
}
