use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u8, u32),
    Remove(u8),
    Flush,
    CatchUp(usize),
    Join,
    Leave(usize),
    /// The writer goes, and the next one comes.
    Succeed,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (any::<u8>(), any::<u32>()).prop_map(|(k, v)| Step::Insert(k, v)),
        30 => any::<u8>().prop_map(Step::Remove),
        10 => Just(Step::Flush),
        20 => (0..4usize).prop_map(Step::CatchUp),
        2 => Just(Step::Join),
        1 => (0..4usize).prop_map(Step::Leave),
        1 => Just(Step::Succeed),
    ]
}

/// A reader, and whether it must be exact from the beginning.
struct Follower(Reader<u8, u32>, bool);

type Model = BTreeMap<u8, u32>;

fn seen(reader: &Reader<u8, u32>) -> Model {
    reader.iter().map(|(k, v)| (*k, *v)).collect()
}

/// Updates that may wait in a pile.
fn pile_most(n: usize, capacity: usize) -> usize {
    capacity + 2 * n + 3
}

fn run<const N: usize>(capacity: usize, keys: u8, steps: &[Step]) -> Result<(), TestCaseError> {
    let bounded = Bounded::<N, u8, u32>::new(capacity);
    let mut writer = bounded.writer();
    prop_assert!(bounded.writer().is_none(), "there is one already");
    let mut followers = vec![Follower(bounded.reader(), true)];
    // what stood after each update; how many updates may be unknown; keys refused
    let (mut history, mut pending, mut refused) = (vec![Model::new()], 0, 0);
    for step in steps {
        let now = &mut writer;
        let there = now.as_mut().expect("always succeeded");
        let mut model = history.last().expect("the first is there").clone();
        let updated = match *step {
            Step::Insert(key, value) => {
                let key = key % keys;
                let known = model.contains_key(&key);
                if known || model.len() < capacity {
                    prop_assert_eq!(there.insert(key, value), Ok(model.insert(key, value)));
                    true
                } else {
                    refused += 1;
                    prop_assert_eq!(there.insert(key, value), Err(Full { capacity }));
                    false
                }
            }
            Step::Remove(key) => {
                let key = key % keys;
                let old = model.remove(&key);
                prop_assert_eq!(there.remove(&key), old);
                old.is_some()
            }
            Step::Flush => {
                there.flush();
                pending = 0;
                false
            }
            Step::CatchUp(n) => {
                let n = n % followers.len();
                let Follower(reader, exact) = &mut followers[n];
                let before = reader.version();
                let came = reader.catch_up();
                prop_assert_eq!(reader.version(), before + came);
                *exact |= reader.joined();
                if *exact {
                    prop_assert!(there.version() - reader.version() <= N as u64, "at most N behind");
                    prop_assert_eq!(reader.version(), there.version() - pending, "and as the writer has handed out");
                    prop_assert_eq!(
                        &seen(reader),
                        &history[reader.version() as usize],
                        "all up to there, nothing else"
                    );
                } else {
                    prop_assert!(reader.is_empty());
                }
                false
            }
            Step::Join => {
                if followers.len() < 4 {
                    followers.push(Follower(bounded.reader(), there.version() == 0));
                }
                false
            }
            Step::Leave(n) => {
                // the first stays, so that there always is a reader
                if n != 0 && n < followers.len() {
                    followers.remove(n);
                }
                false
            }
            Step::Succeed => {
                drop(writer.take());
                let reader = bounded.reader();
                prop_assert!(reader.joined());
                prop_assert_eq!(&seen(&reader), &model, "with no writer a reader has all at once");
                for Follower(reader, exact) in &mut followers {
                    reader.catch_up();
                    prop_assert_eq!(&seen(reader), &model, "and the writer left nothing undone");
                    *exact = true;
                }
                if followers.len() < 4 {
                    followers.push(Follower(reader, true));
                }
                writer = bounded.writer();
                pending = 0;
                false
            }
        };
        if updated {
            history.push(model);
            pending = if pending as usize == N { 0 } else { pending + 1 };
        }
        let there = writer.as_ref().expect("always succeeded");
        let last = history.last().expect("the first is there");
        prop_assert_eq!(there.version() as usize, history.len() - 1);
        prop_assert_eq!(there.len(), last.len());
        prop_assert!(there.iter().all(|(key, value)| last.get(key) == Some(value)));
        prop_assert!(there.waiting() <= pile_most(N, capacity), "{} wait", there.waiting());
        for link in &there.master().links {
            prop_assert!(link.made.1 <= 3, "{} tables", link.made.1);
        }
    }
    prop_assert_eq!(bounded.refused().get(), refused);
    // whoever came late has all after some more flushes
    let there = writer.as_mut().expect("always succeeded");
    (0..3 + 5 * capacity / FLUSH_STEP).for_each(|_| there.flush());
    for Follower(reader, _) in &mut followers {
        reader.catch_up();
        prop_assert!(reader.joined() || there.version() == 0);
        prop_assert_eq!(&seen(reader), history.last().expect("the first is there"));
    }
    prop_assert_eq!(there.readers(), followers.len(), "those who left are forgotten");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_reader_is_never_further_behind(
        capacity in prop_oneof![0..4usize, 4..40usize, 200..300usize],
        steps in prop::collection::vec(step(), 0..600),
        n in 0..5usize,
        keys in prop_oneof![1..8u8, 8..=255u8],
    ) {
        match n {
            0 => run::<0>(capacity, keys, &steps)?,
            1 => run::<1>(capacity, keys, &steps)?,
            2 => run::<3>(capacity, keys, &steps)?,
            3 => run::<16>(capacity, keys, &steps)?,
            _ => run::<500>(capacity, keys, &steps)?,
        }
    }
}

/// A generator of keys and values with no pattern.
fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ n >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) >> 13
}

/// Ever new keys come, change, and go again; now and then there is no room.
fn change<const N: usize>(writer: &mut Writer<N, u64, u64>, n: u64) {
    let _ = writer.insert(n, n);
    if let Some(key) = n.checked_sub(1 + mixed(n) % 900) {
        if n.is_multiple_of(3) {
            writer.remove(&key);
        } else {
            let _ = writer.insert(key, n);
        }
    }
    if let Some(key) = n.checked_sub(1200) {
        writer.remove(&key);
    }
}

fn same<const N: usize>(writer: &Writer<N, u64, u64>, reader: &Reader<u64, u64>) {
    assert_eq!((reader.version(), reader.len()), (writer.version(), writer.len()));
    assert!(writer.iter().all(|(key, value)| reader.get(key) == Some(value)));
}

#[test]
fn a_reader_that_never_looks_costs_bounded_memory() {
    const CAPACITY: usize = 1000;
    fn sleep<const N: usize>() {
        let bounded = Bounded::<N, u64, u64>::new(CAPACITY);
        let mut writer = bounded.writer().expect("the first");
        let (mut sleeper, mut other, mut late) = (bounded.reader(), bounded.reader(), bounded.reader());
        for n in 0..100_000 {
            change(&mut writer, n);
            if n.is_multiple_of(10) {
                other.catch_up();
            }
            // this one gets a copy of everything and what came after it, mostly
            if mixed(n + 1).is_multiple_of(1500) {
                late.catch_up();
                assert!(writer.version() - late.version() <= N as u64);
                writer.flush();
                late.catch_up();
                same(&writer, &late);
            }
            let most = pile_most(N, CAPACITY);
            for link in &writer.master().links {
                assert!(link.waiting <= most, "{} wait", link.waiting);
                // one pile is given, one is cleared out while the next is made
                assert!(link.made.0 <= 2 * most + 2, "{} deltas", link.made.0);
                assert!(link.made.1 <= 3, "{} tables", link.made.1);
            }
        }
        assert!(sleeper.is_empty() && bounded.refused().get() > 0 && writer.master().map.layout() > 0);
        writer.flush();
        for reader in [&mut sleeper, &mut other] {
            reader.catch_up();
            same(&writer, reader);
        }
        // and again, now that it is awake and the tables have gone round
        for n in 100_000..200_000 {
            change(&mut writer, n);
            if mixed(n).is_multiple_of(4096) {
                sleeper.catch_up();
            }
        }
        let made = writer.master().links.iter().map(|link| link.made).max();
        assert!(
            made.is_some_and(|(deltas, tables)| deltas <= 2 * pile_most(N, CAPACITY) + 2 && tables <= 3),
            "{made:?}"
        );
    }
    sleep::<0>();
    sleep::<7>();
    sleep::<300>();
}

/// A copy of everything is right although the table was renewed while it was made, or waited to be handed over.
#[test]
fn a_copy_outlives_a_renewal() {
    fn renewed<const N: usize>() {
        let bounded = Bounded::<N, u64, u64>::new(1000);
        let mut reader = bounded.reader();
        let mut writer = bounded.writer().expect("the first");
        let (mut n, mut both) = (0, 0);
        while both < 10 {
            // until a copy and a renewal come together
            while !writer.master().links[0].is_copying() || writer.master().map.is_settled() {
                change(&mut writer, n);
                n += 1;
            }
            // and the copy is handed over
            while writer.master().links[0].is_copying() {
                change(&mut writer, n);
                n += 1;
            }
            writer.flush();
            reader.catch_up();
            same(&writer, &reader);
            both += 1;
        }
    }
    renewed::<0>();
    renewed::<300>();
}

#[test]
fn readers_that_keep_up_cost_no_allocation() {
    let bounded = Bounded::<8, u64, u64>::new(1000);
    let mut writer = bounded.writer().expect("the first");
    let mut readers = [bounded.reader(), bounded.reader()];
    let mut batch = |writer: &mut Writer<8, u64, u64>, n: u64| {
        (n * 32..n * 32 + 32).for_each(|n| change(writer, n));
        for reader in &mut readers {
            reader.catch_up();
        }
    };
    (0..1000).for_each(|n| batch(&mut writer, n));
    let made: Vec<_> = writer.master().links.iter().map(|link| link.made).collect();
    (1000..20_000).for_each(|n| batch(&mut writer, n));
    assert_eq!(writer.master().links.iter().map(|link| link.made).collect::<Vec<_>>(), made);
    assert!(made.iter().all(|&(deltas, tables)| deltas < 32 && tables == 2), "{made:?}");
}
