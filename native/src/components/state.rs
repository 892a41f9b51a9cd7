//! The three kinds of state compared with a `HashMap` with the same hash and with a `Mutex<HashMap>`: reads and writes
//! in bursts with random keys by one thread, and reads while a thread on another core writes, a million times a second
//! or at full rate.
//!
//! Every burst is timed separately. A `Bounded` reader synchronises before each burst, which is included in the cost of
//! reads; after bursts of writes it is not included. All costs include that of generating keys, about three cycles
//! each.

use super::table::{ComponentTable, Measurement, RandomKeys};
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

/// Bursts of a sample.
const BURSTS: usize = 256;
/// Cycles of a sample with a concurrent writer, about 0.1 ms.
const SAMPLE_CYCLES: u64 = 300_000;
/// Maximum number of updates that a `Bounded` reader lags behind.
const LAG_MAX: usize = 16;

type Map = HashMap<u64, u64, foldhash::fast::RandomState>;
type Burst = [u64; BURST];

/// Returns the cycles per operation of a sample, without those of `after`.
fn cost(keys: &mut RandomKeys, mut burst: impl FnMut(Burst), mut after: impl FnMut()) -> Option<f64> {
    let mut cycles = 0;
    for _ in 0..BURSTS {
        let from = clock::cycles();
        burst(keys.burst());
        cycles += clock::cycles() - from;
        after();
    }
    Some(cycles as f64 / (BURSTS * BURST) as f64)
}

fn sum(found: impl Iterator<Item = Option<u64>>) -> u64 {
    found.map(Option::unwrap_or_default).fold(0, u64::wrapping_add)
}

/// State with a value for each key below a number.
trait KeyedState {
    fn sum(&mut self, burst: Burst) -> u64;
    fn write(&mut self, burst: Burst, value: u64);
    /// Work after a burst of writes that is not included in their cost.
    fn after_write(&mut self) {}
    /// Makes all writes visible to reads.
    fn flush(&mut self) {}
}

impl KeyedState for Map {
    fn sum(&mut self, burst: Burst) -> u64 {
        sum(burst.iter().map(|key| self.get(key).copied()))
    }
    fn write(&mut self, burst: Burst, value: u64) {
        burst.iter().for_each(|key| _ = black_box(self.insert(*key, value)));
    }
}

/// Per-core map, as used by an NF.
struct PerCoreMap<'a>(&'a RefCell<PerCore<Map>>);

impl KeyedState for PerCoreMap<'_> {
    fn sum(&mut self, burst: Burst) -> u64 {
        let map = self.0.borrow();
        sum(burst.iter().map(|key| map.get(key).copied()))
    }
    fn write(&mut self, burst: Burst, value: u64) {
        let mut map = self.0.borrow_mut();
        burst.iter().for_each(|key| _ = black_box(map.insert(*key, value)));
    }
}

/// The same map without its wrapper: another map would be on other pages, which matters with a million keys.
struct PlainMap<'a>(&'a RefCell<PerCore<Map>>);

impl KeyedState for PlainMap<'_> {
    fn sum(&mut self, burst: Burst) -> u64 {
        let map: &Map = &self.0.borrow();
        sum(burst.iter().map(|key| map.get(key).copied()))
    }
    fn write(&mut self, burst: Burst, value: u64) {
        let map: &mut Map = &mut self.0.borrow_mut();
        burst.iter().for_each(|key| _ = black_box(map.insert(*key, value)));
    }
}

/// Map shared by several cores.
impl KeyedState for &Mutex<Map> {
    fn sum(&mut self, burst: Burst) -> u64 {
        sum(burst.iter().map(|key| self.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()))
    }
    fn write(&mut self, burst: Burst, value: u64) {
        burst.iter().for_each(|key| {
            _ = black_box(self.lock().unwrap_or_else(PoisonError::into_inner).insert(*key, value));
        });
    }
}

impl KeyedState for &Strict<u64, u64> {
    fn sum(&mut self, burst: Burst) -> u64 {
        sum(burst.iter().map(|key| self.get(key)))
    }
    fn write(&mut self, burst: Burst, value: u64) {
        burst.iter().for_each(|key| self.update(key, |old| *old.expect("the key exists") = value));
    }
}

/// A writer and a reader on one core.
struct WriterAndReader<const N: usize> {
    writer: Writer<N, u64, u64>,
    reader: Reader<u64, u64>,
}

impl<const N: usize> WriterAndReader<N> {
    fn new(keys: usize) -> Self {
        let map = Bounded::<N, u64, u64>::new(keys);
        let mut writer: Writer<N, u64, u64> = map.take_writer().expect("the only writer");
        (0..keys as u64).for_each(|key| _ = writer.insert(key, key).expect("capacity"));
        drop(writer);
        // a reader that is created without a writer has all entries at once
        let reader = map.reader();
        WriterAndReader { reader, writer: map.take_writer().expect("the first writer was dropped") }
    }
}

impl<const N: usize> KeyedState for WriterAndReader<N> {
    fn sum(&mut self, burst: Burst) -> u64 {
        synced_sum(&mut self.reader, burst)
    }
    fn write(&mut self, burst: Burst, value: u64) {
        write(&mut self.writer, burst, value);
    }
    fn after_write(&mut self) {
        self.reader.catch_up();
    }
    fn flush(&mut self) {
        self.writer.flush();
        self.reader.catch_up();
    }
}

fn synced_sum(reader: &mut Reader<u64, u64>, burst: Burst) -> u64 {
    reader.catch_up();
    sum(burst.iter().map(|key| reader.get(key).copied()))
}

fn write<const N: usize>(writer: &mut Writer<N, u64, u64>, burst: Burst, value: u64) {
    burst.iter().for_each(|key| _ = black_box(writer.insert(*key, value)));
}

/// Compares reads and writes of both, after verifying that the same writes have the same result.
fn compare_single_thread<A: KeyedState, B: KeyedState>(
    table: &mut ComponentTable<'_>,
    keys: usize,
    names: (&str, &'static str),
    a: &mut A,
    b: &mut B,
) -> anyhow::Result<()> {
    let ((name, baseline), pairs) = (names, table.pairs);
    let name = format!("state: {name}");
    if !table.is_selected(&format!("{name} read")) && !table.is_selected(&format!("{name} write")) {
        return Ok(());
    }
    let mut random = RandomKeys::new(keys);
    for value in 0..64 {
        let burst = random.burst();
        a.write(burst, value);
        b.write(burst, value);
        a.after_write();
        b.after_write();
    }
    a.flush();
    b.flush();
    // only these keys are compared: earlier rows have changed the others
    let mut random = RandomKeys::new(keys);
    for _ in 0..64 {
        let burst = random.burst();
        let (x, y) = (a.sum(burst), b.sum(burst));
        ensure!(x == y, "{name}: the values add up to {x}, in {baseline} to {y}");
    }
    let keys_of = || (RandomKeys::new(keys), RandomKeys { state: 7, below: keys as u64 });
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
        let (name, compared) = (format!("{name} {unit}"), compared.expect("every sample is valid"));
        if table.is_selected(&name) {
            table.add(&Measurement { name: &name, baseline, size: keys, unit }, &compared);
        }
    }
    Ok(())
}

/// Side that is written to.
const IDLE: usize = 0;
const OURS: usize = 1;
const BASELINE: usize = 2;
const STOP: usize = 3;

/// State shared with the writing thread.
struct WriterControl {
    /// Side that is written to.
    side: AtomicUsize,
    writes: AtomicU64,
    started: AtomicBool,
    /// Writes per second; `None` is full rate.
    rate: Option<u64>,
}

impl WriterControl {
    /// Returns the cost of reads of a sample of one side, or `None` if the writer did not run.
    fn cost(&self, side: usize, keys: &mut RandomKeys, mut read: impl FnMut(Burst)) -> Option<f64> {
        /// Time within which the writer must start.
        const START_TIMEOUT: Duration = Duration::from_millis(2);
        self.side.store(side, Ordering::Release);
        let (written, from) = (self.writes.load(Ordering::Relaxed), clock::cycles());
        while self.writes.load(Ordering::Relaxed) == written {
            if clock::cycles() - from > START_TIMEOUT.as_micros() as u64 * clock::hz() / 1_000_000 {
                self.side.store(IDLE, Ordering::Release);
                return None;
            }
            core::hint::spin_loop();
        }
        let (written, from, mut bursts) = (self.writes.load(Ordering::Relaxed), clock::cycles(), 0);
        while clock::cycles() - from < SAMPLE_CYCLES {
            read(keys.burst());
            bursts += 1;
        }
        let cycles = clock::cycles() - from;
        let wrote = self.writes.load(Ordering::Relaxed) - written;
        self.side.store(IDLE, Ordering::Release);
        // bursts at both ends may be partly included
        let due = self.rate.map_or(2 * BURST as u64, |rate| SAMPLE_CYCLES * rate / clock::hz());
        (wrote >= due / 2).then(|| cycles as f64 / (bursts * BURST) as f64)
    }
}

/// Writes bursts to the selected side, on the other thread.
fn run_writer(control: &WriterControl, keys: usize, mut ours: impl FnMut(Burst), mut baseline: impl FnMut(Burst)) {
    let pace = control.rate.map_or(0, |rate| clock::hz() / rate * BURST as u64);
    let (mut keys, mut due) = (RandomKeys { state: 11, below: keys as u64 }, clock::cycles());
    control.started.store(true, Ordering::Release);
    loop {
        let side = control.side.load(Ordering::Acquire);
        let now = clock::cycles();
        if side == STOP {
            return;
        }
        if side == IDLE || now < due {
            core::hint::spin_loop();
            continue;
        }
        // writes that were missed while the thread did not run are not made up for
        due = (due + pace).max(now);
        if side == OURS {
            ours(keys.burst())
        } else {
            baseline(keys.burst())
        }
        control.writes.store(control.writes.load(Ordering::Relaxed) + BURST as u64, Ordering::Relaxed);
    }
}

/// Compares reads of both sides while another core writes to the side that is read.
fn compare_with_writer(
    (pairs, keys, other): (usize, usize, usize),
    rate: Option<u64>,
    (our_writes, baseline_writes): (impl FnMut(Burst) + Send, impl FnMut(Burst) + Send),
    (mut ours, mut baseline): (impl FnMut(Burst), impl FnMut(Burst)),
) -> Option<Compared> {
    let (side, writes_done, started) = (AtomicUsize::new(IDLE), AtomicU64::new(0), AtomicBool::new(false));
    let control = WriterControl { side, writes: writes_done, started, rate };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            // the thread is not pinned if that is not permitted
            let _ = runtime::pin(other);
            run_writer(&control, keys, our_writes, baseline_writes);
        });
        while !control.started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let (mut of_a, mut of_b) = (RandomKeys::new(keys), RandomKeys { state: 7, below: keys as u64 });
        let compared = compare_costs(
            pairs,
            || control.cost(OURS, &mut of_a, &mut ours),
            || control.cost(BASELINE, &mut of_b, &mut baseline),
        );
        control.side.store(STOP, Ordering::Release);
        compared
    })
}

fn map(keys: usize) -> Map {
    (0..keys as u64).map(|key| (key, key)).collect()
}

pub(super) fn rows(table: &mut ComponentTable<'_>, (core, other): (usize, Option<usize>)) -> anyhow::Result<()> {
    if !["PerCore", "Bounded<0>", "Bounded<16>", "Strict"]
        .iter()
        .flat_map(|name| {
            ["read", "write", WRITER_RATES[0].0, WRITER_RATES[1].0].map(|of| format!("state: {name} {of}"))
        })
        .any(|name| table.is_selected(&name))
    {
        return Ok(());
    }
    for keys in [1000, 1_000_000] {
        let per_core = RefCell::new(PerCore::new(&BuildContext::default(), |_| map(keys)));
        compare_single_thread(
            table,
            keys,
            ("PerCore", "same HashMap"),
            &mut PerCoreMap(&per_core),
            &mut PlainMap(&per_core),
        )?;
        drop(per_core);
        compare_single_thread(
            table,
            keys,
            ("Bounded<0>", "HashMap"),
            &mut WriterAndReader::<0>::new(keys),
            &mut map(keys),
        )?;
        compare_single_thread(
            table,
            keys,
            ("Bounded<16>", "HashMap"),
            &mut WriterAndReader::<LAG_MAX>::new(keys),
            &mut map(keys),
        )?;
        let mutex = Mutex::new(map(keys));
        compare_single_thread(
            table,
            keys,
            ("Bounded<16>", "Mutex<HashMap>"),
            &mut WriterAndReader::<LAG_MAX>::new(keys),
            &mut &mutex,
        )?;
        let strict = Strict::<u64, u64>::new(keys);
        (0..keys as u64).for_each(|key| _ = strict.insert(key, key).expect("capacity"));
        compare_single_thread(table, keys, ("Strict", "HashMap"), &mut &strict, &mut map(keys))?;
        compare_single_thread(table, keys, ("Strict", "Mutex<HashMap>"), &mut &strict, &mut &mutex)?;
        match other {
            Some(other) => {
                WRITER_RATES.into_iter().for_each(|rate| concurrent(table, keys, other, rate, (&strict, &mutex)))
            }
            None => println!("skipped: reads with a concurrent writer need two CPUs"),
        }
        runtime::pin(core)?;
    }
    Ok(())
}

/// Names and rates of concurrent writers.
const WRITER_RATES: [(&str, Option<u64>); 2] =
    [("read, writer at 1 M/s", Some(1_000_000)), ("read, writer at full rate", None)];

/// Measures reads while another core writes.
fn concurrent(
    table: &mut ComponentTable<'_>,
    keys: usize,
    other: usize,
    (writer, rate): (&str, Option<u64>),
    (strict, mutex): (&Strict<u64, u64>, &Mutex<Map>),
) {
    let baseline = "Mutex<HashMap>";
    let mut add = |name: &str, measured: &mut dyn FnMut(usize) -> Option<Compared>| {
        let name = format!("state: {name} {writer}");
        if !table.is_selected(&name) {
            return;
        }
        match measured(table.pairs) {
            Some(compared) => table.add(&Measurement { name: &name, baseline, size: keys, unit: "read" }, &compared),
            None => println!("{name}: skipped: the writer never got the other CPU"),
        }
    };
    let write_mutex = |burst| (&mut &*mutex).write(burst, 1);
    let read_mutex = |burst| _ = black_box((&mut &*mutex).sum(burst));
    add("Bounded<16>", &mut |pairs| {
        let WriterAndReader { mut writer, mut reader } = WriterAndReader::<LAG_MAX>::new(keys);
        let ours = |burst| write(&mut writer, burst, 1);
        let read = |burst| _ = black_box(synced_sum(&mut reader, burst));
        compare_with_writer((pairs, keys, other), rate, (ours, write_mutex), (read, read_mutex))
    });
    add("Strict", &mut |pairs| {
        let ours = |burst| (&mut &*strict).write(burst, 1);
        let read = |burst| _ = black_box((&mut &*strict).sum(burst));
        compare_with_writer((pairs, keys, other), rate, (ours, write_mutex), (read, read_mutex))
    });
}
