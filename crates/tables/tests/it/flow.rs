//! The flow table against a map, full tables, and keys that collide on purpose.

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use tables::Pages;
use tables::flow::{CAPACITY_MOST, Error, FlowKey, FlowTable, Full, Lookup, Prepared, Seed, Settings, Tuple4, Tuple6};
use wire::IpProtocol;
use wire::flow::FiveTuple;

/// A key with a hash as bad as `DIFFERENT` values can be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Poor<const DIFFERENT: u64>(u32);

impl<const DIFFERENT: u64> FlowKey for Poor<DIFFERENT> {
    type Packed = [u8; 4];

    fn pack(&self) -> [u8; 4] {
        self.0.to_ne_bytes()
    }

    fn unpack(packed: &[u8; 4]) -> Self {
        Self(u32::from_ne_bytes(*packed))
    }

    fn is(&self, packed: &[u8; 4]) -> bool {
        self.pack() == *packed
    }

    fn flow_hash(&self, _: &Seed) -> u64 {
        (u64::from(self.0) % DIFFERENT + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

trait Numbered: FlowKey + Eq + Hash + Debug {
    fn number(n: u32) -> Self;
}

impl<const DIFFERENT: u64> Numbered for Poor<DIFFERENT> {
    fn number(n: u32) -> Self {
        Self(n)
    }
}

impl Numbered for Tuple4 {
    fn number(n: u32) -> Self {
        Tuple4::new(
            0x0a00_0000 + n / 7,
            0xc000_0200 + n % 7,
            1024u16.wrapping_add(n as u16),
            443,
            if n.is_multiple_of(5) { 17 } else { 6 },
        )
    }
}

impl Numbered for Tuple6 {
    fn number(n: u32) -> Self {
        let net = 0x2001_0db8 << 96;
        Tuple6::new(net + u128::from(n / 3), net + u128::from(n % 3), n as u16, 53, 17)
    }
}

fn settings(capacity: usize, full: Full) -> Settings {
    Settings { capacity, full, seed: Seed::fixed(capacity as u64), pages: Pages::Ordinary }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u32>, When),
    LookUp(Vec<u32>, When),
    Remove(u32),
    Age { buckets: usize, idle: u32 },
    Pass(u32),
}

/// Time at which keys are prepared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    Now,
    /// Before the step before.
    Long,
}

fn steps(keys: u32) -> impl Strategy<Value = Vec<Step>> {
    let when = || prop_oneof![Just(When::Now), Just(When::Long)];
    let step = prop_oneof![
        5 => (vec(0..keys, 0..80), when()).prop_map(|(keys, when)| Step::Insert(keys, when)),
        2 => (vec(0..keys, 0..=32), when()).prop_map(|(keys, when)| Step::LookUp(keys, when)),
        1 => (0..keys).prop_map(Step::Remove),
        1 => (0..12usize, 0..20u32).prop_map(|(buckets, idle)| Step::Age { buckets, idle }),
        3 => (0..10u32).prop_map(Step::Pass),
    ];
    vec(step, 1..60)
}

/// A value and when it was last seen.
type Model<K> = HashMap<K, (u64, u32)>;

/// Does the same to a table and a map. Every new flow gets a number of its own as its value, so that a slot that leads to
/// the wrong flow shows.
fn run<K: Numbered>(capacity: usize, full: Full, start: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut table: FlowTable<K, u64> = FlowTable::new(&settings(capacity, full)).unwrap();
    let mut model: Model<K> = HashMap::new();
    let (mut now, mut id) = (start, 0);
    let (mut refused, mut evicted, mut expired, mut removed) = (0, 0, 0, 0);
    // keys prepared ahead, by their step
    let mut ahead: HashMap<usize, Vec<Prepared<K>>> = HashMap::new();
    for (at, step) in steps.iter().enumerate() {
        if let Some(Step::Insert(numbers, When::Long) | Step::LookUp(numbers, When::Long)) = steps.get(at + 1) {
            ahead.insert(at + 1, numbers.iter().map(|&n| table.prepare(K::number(n))).collect());
        }
        let mut prepare = |table: &FlowTable<K, u64>, keys: &[K]| {
            ahead.remove(&at).unwrap_or_else(|| keys.iter().map(|&key| table.prepare(key)).collect())
        };
        match step {
            Step::Insert(numbers, _) => {
                let keys: Vec<K> = numbers.iter().map(|&n| K::number(n)).collect();
                let prepared = prepare(&table, &keys);
                let (mut lost, mut gave) = (Vec::new(), vec![None; keys.len()]);
                let before = table.len();
                let first = id;
                table.look_up_or_insert(
                    &prepared,
                    now,
                    |key, value| lost.push((*key, *value)),
                    |i, found| {
                        let old = gave[i].replace(match found {
                            Lookup::Known(value) => (false, *value),
                            Lookup::New(value) => {
                                assert_eq!(*value, 0, "a new value is the default");
                                id += 1;
                                *value = id;
                                (true, id)
                            }
                            Lookup::Refused => (false, 0),
                        });
                        assert_eq!(old, None, "each key once");
                    },
                );
                let had_room = before + keys.len() <= capacity;
                for (key, value) in &lost {
                    let (was, seen) = model.remove(key).expect("what is lost was there");
                    prop_assert_eq!(was, *value);
                    prop_assert_ne!(seen, now, "what was seen now is not evicted");
                }
                evicted += lost.len() as u64;
                let mut new = HashMap::new();
                for (key, gave) in keys.iter().zip(&gave) {
                    if let Some((true, value)) = *gave {
                        prop_assert!(!model.contains_key(key) && value > first);
                        prop_assert_eq!(new.insert(*key, (value, now)), None, "new only once");
                    }
                }
                model.extend(new);
                for (key, gave) in keys.iter().zip(&gave) {
                    let (_, value) = gave.expect("each key is told of");
                    if value == 0 {
                        prop_assert!(!model.contains_key(key), "{:?} is there", key);
                        refused += 1;
                        continue;
                    }
                    prop_assert_eq!(model.get(key).map(|m| m.0), Some(value), "{:?}", key);
                    model.get_mut(key).unwrap().1 = now;
                }
                if had_room && std::any::type_name::<K>().contains("Tuple") {
                    prop_assert!(lost.is_empty() && gave.iter().all(|g| *g != Some((false, 0))), "there was room");
                }
            }
            Step::LookUp(numbers, _) => {
                let keys: Vec<K> = numbers.iter().map(|&n| K::number(n)).collect();
                let prepared = prepare(&table, &keys);
                for (key, prepared) in keys.iter().zip(&prepared) {
                    prop_assert_eq!(table.read(prepared).copied(), model.get(key).map(|m| m.0));
                }
                let mut gave = vec![None; keys.len()];
                let absent = table.look_up(&prepared, now, |i, value| assert_eq!(gave[i].replace(*value), None));
                for (i, (key, gave)) in keys.iter().zip(gave).enumerate() {
                    prop_assert_eq!(gave, model.get(key).map(|m| m.0));
                    prop_assert_eq!(absent >> i & 1 != 0, gave.is_none());
                    model.entry(*key).and_modify(|m| m.1 = now);
                }
            }
            Step::Remove(n) => {
                let gone = table.remove(&K::number(*n));
                prop_assert_eq!(gone, model.remove(&K::number(*n)).map(|m| m.0));
                removed += u64::from(gone.is_some());
            }
            Step::Age { buckets, idle } => {
                let mut visited = Vec::new();
                let gone = table.age(now, *buckets, |key, value, was_idle| {
                    visited.push((*key, *value, was_idle));
                    was_idle >= *idle
                });
                for (key, value, was_idle) in &visited {
                    prop_assert_eq!((*value, now.wrapping_sub(*was_idle)), model[key], "visited once, {:?}", key);
                    if was_idle >= idle {
                        model.remove(key);
                    }
                }
                if *buckets >= table.buckets() {
                    prop_assert_eq!(model.len(), visited.len() - gone, "all were visited");
                }
                prop_assert_eq!(gone, visited.iter().filter(|v| v.2 >= *idle).count());
                expired += gone as u64;
            }
            Step::Pass(time) => now = now.wrapping_add(*time),
        }
        prop_assert_eq!(table.len(), model.len());
        prop_assert!(table.len() <= capacity);
    }
    let all: HashMap<K, u64> = table.iter(0..table.buckets()).map(|(k, &v)| (k, v)).collect();
    prop_assert_eq!(all, model.iter().map(|(&k, &(v, _))| (k, v)).collect());
    for (key, value) in &model {
        prop_assert_eq!(table.get(key), Some(&value.0));
    }
    let counted = table.counters();
    prop_assert_eq!((counted.refused, counted.evicted), (refused, evicted));
    prop_assert_eq!((counted.expired, counted.removed), (expired, removed));
    prop_assert_eq!(counted.inserted, id);
    prop_assert_eq!(counted.inserted - evicted - expired - removed, table.len() as u64);
    Ok(())
}

fn full() -> impl Strategy<Value = Full> {
    prop_oneof![Just(Full::Refuse), Just(Full::EvictOldest)]
}

/// Times that are about to wrap, and others.
fn start() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(u32::MAX - 30), Just((1 << 23) - 30), any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn is_a_map_for_ipv4(capacity in 1..300usize, full in full(), start in start(), steps in steps(400)) {
        run::<Tuple4>(capacity, full, start, &steps)?;
    }

    #[test]
    fn is_a_map_for_ipv6(capacity in 1..300usize, full in full(), start in start(), steps in steps(400)) {
        run::<Tuple6>(capacity, full, start, &steps)?;
    }

    #[test]
    fn is_a_map_for_keys_that_collide(capacity in 1..300usize, full in full(), start in start(), steps in steps(400)) {
        run::<Poor<1>>(capacity, full, start, &steps)?;
        run::<Poor<5>>(capacity, full, start, &steps)?;
        run::<Poor<50>>(capacity, full, start, &steps)?;
    }
}

/// Inserts `n` flows one burst after another; how many were refused.
fn fill<K: Numbered>(table: &mut FlowTable<K, u64>, numbers: std::ops::Range<u32>, now: u32) -> usize {
    let mut refused = 0;
    let numbers: Vec<u32> = numbers.collect();
    for burst in numbers.chunks(32) {
        let keys: Vec<_> = burst.iter().map(|&n| table.prepare(K::number(n))).collect();
        table.look_up_or_insert(&keys, now, |_, _| {}, |_, found| refused += usize::from(found == Lookup::Refused));
    }
    refused
}

#[test]
fn a_full_table_holds_its_capacity_and_no_more() {
    for capacity in [1, 25, 26, 1000, 100_000] {
        for seed in 0..4 {
            let settings = Settings { seed: Seed::fixed(seed), ..settings(capacity, Full::Refuse) };
            let mut table: FlowTable<Tuple4, u64> = FlowTable::new(&settings).unwrap();
            assert_eq!(fill(&mut table, 0..capacity as u32, 1), 0, "seed {seed} of {capacity}");
            assert_eq!(table.len(), capacity);
            assert_eq!(fill(&mut table, capacity as u32..capacity as u32 + 100, 1), 100);
            assert_eq!(fill(&mut table, 0..capacity as u32, 1), 0, "what was there still is");
            let counted = table.counters();
            assert_eq!((counted.inserted, counted.refused), (capacity as u64, 100));
            assert_eq!((table.capacity(), table.is_empty()), (capacity, false));
        }
    }
}

#[test]
fn flows_move_to_make_room() {
    // a quarter of the hashes only: their first buckets are few and their second ones many
    let mut table: FlowTable<Poor<40>, u64> = FlowTable::new(&settings(2000, Full::Refuse)).unwrap();
    let refused = fill(&mut table, 0..2000, 1);
    assert!(table.counters().moved > 0);
    assert_eq!(table.len() + refused, 2000);
    let there = (0..2000).filter(|&n| table.get(&Poor(n)).is_some()).count();
    assert_eq!(there, table.len());
}

#[test]
fn the_flow_idle_longest_gives_way() {
    // one bucket: the oldest of it is the oldest of all
    let mut table: FlowTable<Tuple4, u64> = FlowTable::new(&settings(4, Full::EvictOldest)).unwrap();
    assert_eq!(table.buckets(), 1);
    for n in 0..4 {
        assert_eq!(fill(&mut table, n..n + 1, 100 + (n * 7) % 4), 0);
    }
    let by_age = {
        let mut numbers: Vec<u32> = (0..4).collect();
        numbers.sort_by_key(|n| n * 7 % 4);
        numbers
    };
    for (step, &oldest) in by_age.iter().enumerate() {
        let mut lost = Vec::new();
        let key = table.prepare(Tuple4::number(1000 + step as u32));
        table.look_up_or_insert(&[key], 200, |key, _| lost.push(*key), |_, _| {});
        assert_eq!(lost, [Tuple4::number(oldest)]);
    }
    // now all were seen at 200
    assert_eq!(fill(&mut table, 2000..2001, 200), 1);
    assert_eq!(fill(&mut table, 2000..2001, 201), 0);
    assert_eq!((table.counters().evicted, table.counters().refused, table.len()), (5, 1, 4));
}

#[test]
fn keys_that_all_collide_take_two_buckets_and_no_more() {
    let mut table: FlowTable<Poor<1>, u64> = FlowTable::new(&settings(100_000, Full::Refuse)).unwrap();
    let refused = fill(&mut table, 0..50_000, 1);
    assert_eq!((table.len(), refused), (16, 50_000 - 16));
    assert_eq!((0..50_000).filter(|&n| table.get(&Poor(n)).is_some()).count(), table.len());
}

#[test]
fn ageing_goes_round_within_its_budget() {
    let mut table: FlowTable<Tuple4, u64> = FlowTable::new(&settings(10_000, Full::Refuse)).unwrap();
    fill(&mut table, 0..10_000, 5);
    fill(&mut table, 0..3_000, 50);
    let (mut calls, mut gone, mut most) = (0, 0, 0);
    while calls * 40 < table.buckets() {
        let mut visited = 0;
        gone += table.age(60, 40, |_, _, idle| {
            visited += 1;
            idle > 20
        });
        most = most.max(visited);
        calls += 1;
    }
    assert_eq!((gone, table.len()), (7_000, 3_000));
    assert!(most <= 320);
    assert_eq!(table.age(40, usize::MAX, |_, _, idle| idle > 0), 0, "seen later than now is seen now");
}

#[test]
fn seeds_are_secret_and_differ() {
    let key = Tuple4::number(7);
    assert_ne!(key.flow_hash(&Seed::random()), key.flow_hash(&Seed::random()));
    assert_eq!(key.flow_hash(&Seed::fixed(1)), key.flow_hash(&Seed::fixed(1)));
    assert_eq!(format!("{:?}", Seed::random()), "Seed(secret)");
}

#[test]
fn hashes_of_neighbours_spread() {
    // 100,000 neighbouring flows into 4096 cells, by either end of the hash: chi-squared within ten standard deviations
    for shift in [0, 16, 32, 52] {
        for seed in 0..8 {
            let seed = Seed::fixed(seed);
            let mut cells = vec![0f64; 4096];
            for n in 0..100_000 {
                cells[(Tuple4::number(n).flow_hash(&seed) >> shift) as usize % 4096] += 1.0;
            }
            let mean = 100_000.0 / 4096.0;
            let chi: f64 = cells.iter().map(|c| (c - mean) * (c - mean) / mean).sum();
            assert!((chi - 4095.0).abs() < 10.0 * (2.0 * 4095f64).sqrt(), "shift {shift}: {chi}");
        }
    }
}

#[test]
fn flows_that_differ_in_few_bits_fill_the_table() {
    /// Flows of one address by port, of one port by address, and of both.
    const SETS: [fn(u32) -> Tuple4; 4] = [
        |n| Tuple4::new(0xc612_0001, 0xcb00_7101, 53, n as u16, 17),
        |n| Tuple4::new(0x0a00_0000 | n, 0xcb00_7101, 1000, 53, 17),
        |n| Tuple4::new(0x0a00_0000 | n << 8, 0xcb00_7101, 1000, 53, 17),
        |n| Tuple4::new(0x0a00_0000 | n, 0xc612_0001, 2000 + (n % 50_000) as u16, 53, 17),
    ];
    const FLOWS: u32 = 1 << 16;
    for seed in 0..64 {
        for (set, flow) in SETS.iter().enumerate() {
            let settings = Settings { seed: Seed::fixed(seed), ..settings(FLOWS as usize, Full::Refuse) };
            let mut table = FlowTable::<Tuple4, u64>::new(&settings).unwrap();
            for burst in (0..FLOWS).step_by(32) {
                let keys: Vec<_> = (burst..burst + 32).map(|n| table.prepare(flow(n))).collect();
                table.look_up_or_insert(&keys, 0, |_, _| {}, |_, _| {});
            }
            assert_eq!(table.counters().refused, 0, "set {set}, seed {seed}");
            assert_eq!(table.len(), FLOWS as usize);
        }
    }
}

#[test]
fn tuples_are_five_tuples() {
    let four = Tuple4::new(0x0a00_0001, 0xc000_0207, 1234, 443, 6);
    let expected = FiveTuple::v4([10, 0, 0, 1].into(), [192, 0, 2, 7].into(), 1234, 443, IpProtocol::TCP);
    assert_eq!((four.five_tuple(), Tuple4::unpack(&four.pack())), (expected, four));
    let six = Tuple6::new(1, 0x2001_0db8 << 96, 5, 53, 17);
    let expected = FiveTuple::v6("::1".parse().unwrap(), "2001:db8::".parse().unwrap(), 5, 53, IpProtocol::UDP);
    assert_eq!((six.five_tuple(), Tuple6::unpack(&six.pack())), (expected, six));
}

#[test]
fn tables_that_cannot_be_are_refused() {
    for capacity in [0, CAPACITY_MOST + 1, usize::MAX] {
        let error = FlowTable::<Tuple4, u64>::new(&settings(capacity, Full::Refuse)).unwrap_err();
        assert_eq!(error, Error::Capacity { capacity });
    }
    /// So large that no address space holds a table of them.
    #[derive(Clone, Copy)]
    struct Large(#[expect(dead_code, reason = "only its size matters")] [u8; 1 << 20]);
    impl Default for Large {
        fn default() -> Self {
            Self([0; 1 << 20])
        }
    }
    let error = FlowTable::<Tuple4, Large>::new(&settings(CAPACITY_MOST, Full::Refuse)).unwrap_err();
    assert!(matches!(error, Error::Memory { .. }) && error.to_string().contains("1073741824 flows"), "{error}");
}
