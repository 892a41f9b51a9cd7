use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u8, u32),
    Remove(u8),
    Flush,
    CatchUp(usize),
    AddReader,
    DropReader(usize),
    ReplaceWriter,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (any::<u8>(), any::<u32>()).prop_map(|(k, v)| Step::Insert(k, v)),
        30 => any::<u8>().prop_map(Step::Remove),
        10 => Just(Step::Flush),
        20 => (0..4usize).prop_map(Step::CatchUp),
        2 => Just(Step::AddReader),
        1 => (0..4usize).prop_map(Step::DropReader),
        1 => Just(Step::ReplaceWriter),
    ]
}

/// A reader, and true if it has all entries.
struct TestReader(Reader<u8, u32>, bool);

type Model = BTreeMap<u8, u32>;

fn entries(reader: &Reader<u8, u32>) -> Model {
    reader.iter().map(|(k, v)| (*k, *v)).collect()
}

/// Maximum number of queued updates.
fn max_backlog(n: usize, capacity: usize) -> usize {
    capacity + 2 * n + 3
}

fn run<const N: usize>(capacity: usize, keys: u8, steps: &[Step]) -> Result<(), TestCaseError> {
    let bounded = Bounded::<N, u8, u32>::new(capacity);
    let mut writer = bounded.take_writer();
    prop_assert!(bounded.take_writer().is_none(), "a second writer");
    let mut readers = vec![TestReader(bounded.reader(), true)];
    // state after each update, number of updates that may be missing, refused keys
    let (mut history, mut pending, mut refused) = (vec![Model::new()], 0, 0);
    for step in steps {
        let now = &mut writer;
        let current = now.as_mut().expect("always replaced");
        let mut model = history.last().expect("not empty").clone();
        let updated = match *step {
            Step::Insert(key, value) => {
                let key = key % keys;
                let known = model.contains_key(&key);
                if known || model.len() < capacity {
                    prop_assert_eq!(current.insert(key, value), Ok(model.insert(key, value)));
                    true
                } else {
                    refused += 1;
                    prop_assert_eq!(current.insert(key, value), Err(Full { capacity }));
                    false
                }
            }
            Step::Remove(key) => {
                let key = key % keys;
                let old = model.remove(&key);
                prop_assert_eq!(current.remove(&key), old);
                old.is_some()
            }
            Step::Flush => {
                current.flush();
                pending = 0;
                false
            }
            Step::CatchUp(n) => {
                let n = n % readers.len();
                let TestReader(reader, exact) = &mut readers[n];
                let before = reader.version();
                let came = reader.catch_up();
                prop_assert_eq!(reader.version(), before + came);
                *exact |= reader.is_synced();
                if *exact {
                    prop_assert!(current.version() - reader.version() <= N as u64, "at most N updates behind");
                    prop_assert_eq!(reader.version(), current.version() - pending, "as far as the writer has sent");
                    prop_assert_eq!(
                        &entries(reader),
                        &history[reader.version() as usize],
                        "exactly the state of its version"
                    );
                } else {
                    prop_assert!(reader.is_empty());
                }
                false
            }
            Step::AddReader => {
                if readers.len() < 4 {
                    readers.push(TestReader(bounded.reader(), current.version() == 0));
                }
                false
            }
            Step::DropReader(n) => {
                // keep the first, so that there always is a reader
                if n != 0 && n < readers.len() {
                    readers.remove(n);
                }
                false
            }
            Step::ReplaceWriter => {
                drop(writer.take());
                let reader = bounded.reader();
                prop_assert!(reader.is_synced());
                prop_assert_eq!(&entries(&reader), &model, "complete without a writer");
                for TestReader(reader, exact) in &mut readers {
                    reader.catch_up();
                    prop_assert_eq!(&entries(reader), &model, "the writer has sent everything");
                    *exact = true;
                }
                if readers.len() < 4 {
                    readers.push(TestReader(reader, true));
                }
                writer = bounded.take_writer();
                pending = 0;
                false
            }
        };
        if updated {
            history.push(model);
            pending = if pending as usize == N { 0 } else { pending + 1 };
        }
        let current = writer.as_ref().expect("always replaced");
        let last = history.last().expect("not empty");
        prop_assert_eq!(current.version() as usize, history.len() - 1);
        prop_assert_eq!(current.len(), last.len());
        prop_assert!(current.iter().all(|(key, value)| last.get(key) == Some(value)));
        prop_assert!(current.backlog() <= max_backlog(N, capacity), "{} queued", current.backlog());
        for link in &current.state().readers {
            prop_assert!(link.allocated.1 <= 3, "{} tables", link.allocated.1);
        }
    }
    prop_assert_eq!(bounded.refused().get(), refused);
    // late readers are complete after some more flushes
    let current = writer.as_mut().expect("always replaced");
    (0..3 + 5 * capacity / FLUSH_COPY_STEP).for_each(|_| current.flush());
    for TestReader(reader, _) in &mut readers {
        reader.catch_up();
        prop_assert!(reader.is_synced() || current.version() == 0);
        prop_assert_eq!(&entries(reader), history.last().expect("not empty"));
    }
    prop_assert_eq!(current.readers(), readers.len(), "dropped readers are forgotten");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn staleness_is_bounded(
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

/// A hash of `n`.
fn mixed(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ n >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) >> 13
}

/// Inserts, changes and removes ever new keys; the map is full at times.
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

fn assert_same<const N: usize>(writer: &Writer<N, u64, u64>, reader: &Reader<u64, u64>) {
    assert_eq!((reader.version(), reader.len()), (writer.version(), writer.len()));
    assert!(writer.iter().all(|(key, value)| reader.get(key) == Some(value)));
}

#[test]
fn a_stopped_reader_costs_bounded_memory() {
    const CAPACITY: usize = 1000;
    fn sleep<const N: usize>() {
        let bounded = Bounded::<N, u64, u64>::new(CAPACITY);
        let mut writer = bounded.take_writer().expect("the first");
        let (mut sleeper, mut other, mut late) = (bounded.reader(), bounded.reader(), bounded.reader());
        for n in 0..100_000 {
            change(&mut writer, n);
            if n.is_multiple_of(10) {
                other.catch_up();
            }
            // mostly gets a full copy and later updates
            if mixed(n + 1).is_multiple_of(1500) {
                late.catch_up();
                assert!(writer.version() - late.version() <= N as u64);
                writer.flush();
                late.catch_up();
                assert_same(&writer, &late);
            }
            let max = max_backlog(N, CAPACITY);
            for link in &writer.state().readers {
                assert!(link.backlog <= max, "{} queued", link.backlog);
                // one list is sent, one is recycled while the next is filled
                assert!(link.allocated.0 <= 2 * max + 2, "{} deltas", link.allocated.0);
                assert!(link.allocated.1 <= 3, "{} tables", link.allocated.1);
            }
        }
        assert!(sleeper.is_empty() && bounded.refused().get() > 0 && writer.state().map.generation() > 0);
        writer.flush();
        for reader in [&mut sleeper, &mut other] {
            reader.catch_up();
            assert_same(&writer, reader);
        }
        // again, with a reader that catches up and recycled tables
        for n in 100_000..200_000 {
            change(&mut writer, n);
            if mixed(n).is_multiple_of(4096) {
                sleeper.catch_up();
            }
        }
        let allocated = writer.state().readers.iter().map(|link| link.allocated).max();
        assert!(
            allocated.is_some_and(|(deltas, tables)| deltas <= 2 * max_backlog(N, CAPACITY) + 2 && tables <= 3),
            "{allocated:?}"
        );
    }
    sleep::<0>();
    sleep::<7>();
    sleep::<300>();
}

/// A full copy is correct although the table is rehashed while the copy is allocated or before it is sent.
#[test]
fn a_full_copy_survives_a_rehash() {
    fn check<const N: usize>() {
        let bounded = Bounded::<N, u64, u64>::new(1000);
        let mut reader = bounded.reader();
        let mut writer = bounded.take_writer().expect("the first");
        let (mut n, mut both) = (0, 0);
        while both < 10 {
            // until a copy and a rehash coincide
            while !writer.state().readers[0].is_copying() || writer.state().map.is_stable() {
                change(&mut writer, n);
                n += 1;
            }
            // until the copy is sent
            while writer.state().readers[0].is_copying() {
                change(&mut writer, n);
                n += 1;
            }
            writer.flush();
            reader.catch_up();
            assert_same(&writer, &reader);
            both += 1;
        }
    }
    check::<0>();
    check::<300>();
}

#[test]
fn readers_that_keep_up_need_no_allocation() {
    let bounded = Bounded::<8, u64, u64>::new(1000);
    let mut writer = bounded.take_writer().expect("the first");
    let mut readers = [bounded.reader(), bounded.reader()];
    let mut batch = |writer: &mut Writer<8, u64, u64>, n: u64| {
        (n * 32..n * 32 + 32).for_each(|n| change(writer, n));
        for reader in &mut readers {
            reader.catch_up();
        }
    };
    (0..1000).for_each(|n| batch(&mut writer, n));
    let allocated: Vec<_> = writer.state().readers.iter().map(|link| link.allocated).collect();
    (1000..20_000).for_each(|n| batch(&mut writer, n));
    assert_eq!(writer.state().readers.iter().map(|link| link.allocated).collect::<Vec<_>>(), allocated);
    assert!(allocated.iter().all(|&(deltas, tables)| deltas < 32 && tables == 2), "{allocated:?}");
}
