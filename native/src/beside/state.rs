//! The three kinds of state beside a `HashMap` with the same hash and a `Mutex` around one: reading and writing in bursts
//! with random keys, by one thread, and reading while a thread on another core writes, a million times a second or as fast
//! as it can.
//!
//! Every burst is timed alone. A `Bounded` reader catches up before each burst, and what that takes counts as reading; what
//! it takes after bursts of writes counts as neither. Making the keys is in all figures, some three cycles each.

use super::{Keys, Table, What};
use crate::sample::{Compared, compare_costs};
use anyhow::ensure;
use core::cell::RefCell;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use graph::state::{Reader, Writer};
use graph::{Bounded, BuildContext, PerCore, Strict};
use packet::{BURST, clock};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Bursts in a sample.
const BURSTS: usize = 256;
/// Cycles in a sample beside a writer: some 0.1 ms.
const SAMPLE: u64 = 300_000;
/// Updates that a `Bounded` reader may be behind.
const BEHIND: usize = 16;

type Map = HashMap<u64, u64, foldhash::fast::RandomState>;
type Burst = [u64; BURST];

/// Cycles for one operation of a sample; what `after` does is not counted.
fn cost(keys: &mut Keys, mut burst: impl FnMut(Burst), mut after: impl FnMut()) -> Option<f64> {
    let mut spent = 0;
    for _ in 0..BURSTS {
        let from = clock::cycles();
        burst(keys.burst());
        spent += clock::cycles() - from;
        after();
    }
    Some(spent as f64 / (BURSTS * BURST) as f64)
}

fn sum(found: impl Iterator<Item = Option<u64>>) -> u64 {
    found.map(Option::unwrap_or_default).fold(0, u64::wrapping_add)
}

/// Something with a value for each key below a number.
trait Keeps {
    fn sum(&mut self, burst: Burst) -> u64;
    fn write(&mut self, burst: Burst, value: u64);
    /// What does not count as writing.
    fn after_write(&mut self) {}
    /// Has reading give what was written, all of it.
    fn settle(&mut self) {}
}

impl Keeps for Map {
    fn sum(&mut self, burst: Burst) -> u64 {
        sum(burst.iter().map(|key| self.get(key).copied()))
    }
    fn write(&mut self, burst: Burst, value: u64) {
        burst.iter().for_each(|key| _ = black_box(self.insert(*key, value)));
    }
}

/// A core's own map, as an NF has it.
struct Own<'a>(&'a RefCell<PerCore<Map>>);

impl Keeps for Own<'_> {
    fn sum(&mut self, burst: Burst) -> u64 {
        let map = self.0.borrow();
        sum(burst.iter().map(|key| map.get(key).copied()))
    }
    fn write(&mut self, burst: Burst, value: u64) {
        let mut map = self.0.borrow_mut();
        burst.iter().for_each(|key| _ = black_box(map.insert(*key, value)));
    }
}

/// The very same map without its wrapping: another one would lie on other pages, which decides at a million keys.
struct Plain<'a>(&'a RefCell<PerCore<Map>>);

impl Keeps for Plain<'_> {
    fn sum(&mut self, burst: Burst) -> u64 {
        let map: &Map = &self.0.borrow();
        sum(burst.iter().map(|key| map.get(key).copied()))
    }
    fn write(&mut self, burst: Burst, value: u64) {
        let map: &mut Map = &mut self.0.borrow_mut();
        burst.iter().for_each(|key| _ = black_box(map.insert(*key, value)));
    }
}

/// Shared, as several cores have it.
impl Keeps for &Mutex<Map> {
    fn sum(&mut self, burst: Burst) -> u64 {
        sum(burst.iter().map(|key| self.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()))
    }
    fn write(&mut self, burst: Burst, value: u64) {
        burst.iter().for_each(|key| {
            _ = black_box(self.lock().unwrap_or_else(PoisonError::into_inner).insert(*key, value));
        });
    }
}

impl Keeps for &Strict<u64, u64> {
    fn sum(&mut self, burst: Burst) -> u64 {
        sum(burst.iter().map(|key| self.get(key)))
    }
    fn write(&mut self, burst: Burst, value: u64) {
        burst.iter().for_each(|key| self.update(key, |old| *old.expect("it is there") = value));
    }
}

/// A writer and one reader, on one core.
struct Both<const N: usize> {
    writer: Writer<N, u64, u64>,
    reader: Reader<u64, u64>,
}

impl<const N: usize> Both<N> {
    fn new(keys: usize) -> Self {
        let map = Bounded::<N, u64, u64>::new(keys);
        let mut writer: Writer<N, u64, u64> = map.writer().expect("the first");
        (0..keys as u64).for_each(|key| _ = writer.insert(key, key).expect("there is room"));
        drop(writer);
        // made while there is no writer, it has all there is at once
        let reader = map.reader();
        Both { reader, writer: map.writer().expect("the first has gone") }
    }
}

impl<const N: usize> Keeps for Both<N> {
    fn sum(&mut self, burst: Burst) -> u64 {
        caught_up(&mut self.reader, burst)
    }
    fn write(&mut self, burst: Burst, value: u64) {
        write(&mut self.writer, burst, value);
    }
    fn after_write(&mut self) {
        self.reader.catch_up();
    }
    fn settle(&mut self) {
        self.writer.flush();
        self.reader.catch_up();
    }
}

fn caught_up(reader: &mut Reader<u64, u64>, burst: Burst) -> u64 {
    reader.catch_up();
    sum(burst.iter().map(|key| reader.get(key).copied()))
}

fn write<const N: usize>(writer: &mut Writer<N, u64, u64>, burst: Burst, value: u64) {
    burst.iter().for_each(|key| _ = black_box(writer.insert(*key, value)));
}

/// Reads and writes both; first, that they have the same after the same writes.
fn alone<A: Keeps, B: Keeps>(
    table: &mut Table<'_>,
    keys: usize,
    names: (&str, &'static str),
    a: &mut A,
    b: &mut B,
) -> anyhow::Result<()> {
    let ((name, beside), pairs) = (names, table.pairs);
    let what = format!("state: {name}");
    if !table.wanted(&format!("{what} read")) && !table.wanted(&format!("{what} write")) {
        return Ok(());
    }
    let mut random = Keys::new(keys);
    for value in 0..64 {
        let burst = random.burst();
        a.write(burst, value);
        b.write(burst, value);
        a.after_write();
        b.after_write();
    }
    a.settle();
    b.settle();
    // what was written is read: the rest is from rows before
    let mut random = Keys::new(keys);
    for _ in 0..64 {
        let burst = random.burst();
        let (x, y) = (a.sum(burst), b.sum(burst));
        ensure!(x == y, "{what}: has {x} where {beside} has {y}");
    }
    let keys_of = || (Keys::new(keys), Keys { state: 7, below: keys as u64 });
    let (mut of_a, mut of_b) = keys_of();
    let read = compare_costs(
        pairs,
        || cost(&mut of_a, |burst| _ = black_box(a.sum(burst)), || ()),
        || cost(&mut of_b, |burst| _ = black_box(b.sum(burst)), || ()),
    );
    let (mut of_a, mut of_b) = keys_of();
    let (a, b) = (RefCell::new(a), RefCell::new(b));
    let write = compare_costs(
        pairs,
        || cost(&mut of_a, |burst| a.borrow_mut().write(burst, 1), || a.borrow_mut().after_write()),
        || cost(&mut of_b, |burst| b.borrow_mut().write(burst, 1), || b.borrow_mut().after_write()),
    );
    for (unit, compared) in [("read", read), ("write", write)] {
        let (what, compared) = (format!("{what} {unit}"), compared.expect("every sample counts"));
        if table.wanted(&what) {
            table.add(&What { what: &what, beside, size: keys, unit }, &compared);
        }
    }
    Ok(())
}

/// Who is written to.
const NOBODY: usize = 0;
const OURS: usize = 1;
const THEIRS: usize = 2;
const STOP: usize = 3;

/// What the two threads tell each other.
struct Turn {
    whose: AtomicUsize,
    writes: AtomicU64,
    started: AtomicBool,
    /// Writes in a second, if not as many as it can.
    rate: Option<u64>,
}

impl Turn {
    /// One side's sample: reads while its writer writes, or `None` when that did not run.
    fn cost(&self, whose: usize, keys: &mut Keys, mut read: impl FnMut(Burst)) -> Option<f64> {
        /// How long the writer may take to begin.
        const PATIENCE: Duration = Duration::from_millis(2);
        self.whose.store(whose, Ordering::Release);
        let (written, from) = (self.writes.load(Ordering::Relaxed), clock::cycles());
        while self.writes.load(Ordering::Relaxed) == written {
            if clock::cycles() - from > PATIENCE.as_micros() as u64 * clock::hz() / 1_000_000 {
                self.whose.store(NOBODY, Ordering::Release);
                return None;
            }
            core::hint::spin_loop();
        }
        let (written, from, mut bursts) = (self.writes.load(Ordering::Relaxed), clock::cycles(), 0);
        while clock::cycles() - from < SAMPLE {
            read(keys.burst());
            bursts += 1;
        }
        let spent = clock::cycles() - from;
        let wrote = self.writes.load(Ordering::Relaxed) - written;
        self.whose.store(NOBODY, Ordering::Release);
        // bursts at either end may be half in
        let due = self.rate.map_or(2 * BURST as u64, |rate| SAMPLE * rate / clock::hz());
        (wrote >= due / 2).then(|| spent as f64 / (bursts * BURST) as f64)
    }
}

/// The other thread: writes bursts to the side whose turn it is.
fn writes(turn: &Turn, keys: usize, mut ours: impl FnMut(Burst), mut theirs: impl FnMut(Burst)) {
    let pace = turn.rate.map_or(0, |rate| clock::hz() / rate * BURST as u64);
    let (mut keys, mut due) = (Keys { state: 11, below: keys as u64 }, clock::cycles());
    turn.started.store(true, Ordering::Release);
    loop {
        let whose = turn.whose.load(Ordering::Acquire);
        let now = clock::cycles();
        if whose == STOP {
            return;
        }
        if whose == NOBODY || now < due {
            core::hint::spin_loop();
            continue;
        }
        // what was missed while it did not run is not made up for
        due = (due + pace).max(now);
        if whose == OURS {
            ours(keys.burst())
        } else {
            theirs(keys.burst())
        }
        turn.writes.store(turn.writes.load(Ordering::Relaxed) + BURST as u64, Ordering::Relaxed);
    }
}

/// Reads both while another core writes to each in its turn.
fn beside_a_writer(
    (pairs, keys, other): (usize, usize, usize),
    rate: Option<u64>,
    (our_writes, their_writes): (impl FnMut(Burst) + Send, impl FnMut(Burst) + Send),
    (mut ours, mut theirs): (impl FnMut(Burst), impl FnMut(Burst)),
) -> Option<Compared> {
    let (whose, writes_done, started) = (AtomicUsize::new(NOBODY), AtomicU64::new(0), AtomicBool::new(false));
    let turn = Turn { whose, writes: writes_done, started, rate };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // where it may not be pinned, it writes from wherever it is
            let _ = runtime::pin(other);
            writes(&turn, keys, our_writes, their_writes);
        });
        while !turn.started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let (mut of_a, mut of_b) = (Keys::new(keys), Keys { state: 7, below: keys as u64 });
        let compared = compare_costs(
            pairs,
            || turn.cost(OURS, &mut of_a, &mut ours),
            || turn.cost(THEIRS, &mut of_b, &mut theirs),
        );
        turn.whose.store(STOP, Ordering::Release);
        compared
    })
}

fn map(keys: usize) -> Map {
    (0..keys as u64).map(|key| (key, key)).collect()
}

pub(super) fn rows(table: &mut Table<'_>, (core, other): (usize, Option<usize>)) -> anyhow::Result<()> {
    if !["PerCore", "Bounded<0>", "Bounded<16>", "Strict"]
        .iter()
        .flat_map(|name| ["read", "write", BESIDE[0].0, BESIDE[1].0].map(|of| format!("state: {name} {of}")))
        .any(|what| table.wanted(&what))
    {
        return Ok(());
    }
    for keys in [1000, 1_000_000] {
        let per_core = RefCell::new(PerCore::new(&BuildContext::default(), |_| map(keys)));
        alone(table, keys, ("PerCore", "HashMap, the same"), &mut Own(&per_core), &mut Plain(&per_core))?;
        drop(per_core);
        alone(table, keys, ("Bounded<0>", "HashMap"), &mut Both::<0>::new(keys), &mut map(keys))?;
        alone(table, keys, ("Bounded<16>", "HashMap"), &mut Both::<BEHIND>::new(keys), &mut map(keys))?;
        let mutex = Mutex::new(map(keys));
        alone(table, keys, ("Bounded<16>", "Mutex<HashMap>"), &mut Both::<BEHIND>::new(keys), &mut &mutex)?;
        let strict = Strict::<u64, u64>::new(keys);
        (0..keys as u64).for_each(|key| _ = strict.insert(key, key).expect("there is room"));
        alone(table, keys, ("Strict", "HashMap"), &mut &strict, &mut map(keys))?;
        alone(table, keys, ("Strict", "Mutex<HashMap>"), &mut &strict, &mut &mutex)?;
        match other {
            Some(other) => BESIDE.into_iter().for_each(|how| shared(table, keys, other, how, (&strict, &mutex))),
            None => println!("skipped: reading beside a writer needs two CPUs"),
        }
        runtime::pin(core)?;
    }
    Ok(())
}

/// Ways of reading beside a writer, and its rate.
const BESIDE: [(&str, Option<u64>); 2] =
    [("read beside a writer, 1 M/s", Some(1_000_000)), ("read beside one flat out", None)];

/// Reading while another core writes.
fn shared(
    table: &mut Table<'_>,
    keys: usize,
    other: usize,
    (how, rate): (&str, Option<u64>),
    (strict, mutex): (&Strict<u64, u64>, &Mutex<Map>),
) {
    let beside = "Mutex<HashMap>";
    let mut add = |name: &str, measured: &mut dyn FnMut(usize) -> Option<Compared>| {
        let what = format!("state: {name} {how}");
        if !table.wanted(&what) {
            return;
        }
        match measured(table.pairs) {
            Some(compared) => table.add(&What { what: &what, beside, size: keys, unit: "read" }, &compared),
            None => println!("{what}: skipped: the other CPU was never free for the writer"),
        }
    };
    let write_mutex = |burst| (&mut &*mutex).write(burst, 1);
    let read_mutex = |burst| _ = black_box((&mut &*mutex).sum(burst));
    add("Bounded<16>", &mut |pairs| {
        let Both { mut writer, mut reader } = Both::<BEHIND>::new(keys);
        let ours = |burst| write(&mut writer, burst, 1);
        let read = |burst| _ = black_box(caught_up(&mut reader, burst));
        beside_a_writer((pairs, keys, other), rate, (ours, write_mutex), (read, read_mutex))
    });
    add("Strict", &mut |pairs| {
        let ours = |burst| (&mut &*strict).write(burst, 1);
        let read = |burst| _ = black_box((&mut &*strict).sum(burst));
        beside_a_writer((pairs, keys, other), rate, (ours, write_mutex), (read, read_mutex))
    });
}
