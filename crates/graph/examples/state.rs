//! Measures the three kinds of state: TSC cycles for a read and for a write, in bursts of 32 with random keys, beside a
//! `HashMap` with the same hash and a `Mutex` around one.
//!
//! `cargo run --release -p bondstone-graph --example state`
//!
//! Reading and writing alone, both by one thread; then reading while a thread on another core writes a million times a
//! second, and as fast as it can. A `Bounded` reader catches up before each burst, and what that takes is counted as
//! reading. Making the keys is in all figures; the first line says what it takes. Where machines share processors, a
//! thread is not always running: only those samples count during which the other one wrote, and their share is printed
//! beside the rate at which it did.

use core::hint::black_box;
use graph::state::{Reader, Writer};
use graph::{Bounded, BuildCx, PerCore, Strict};
use packet::clock;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const BURST: usize = 32;
/// Cycles in a sample: some 0.1 ms.
const SAMPLE: u64 = 300_000;
/// Time for a figure.
const TIME: Duration = Duration::from_millis(300);

type Map = HashMap<u64, u64, foldhash::fast::RandomState>;

/// Numbers without a pattern below `below`.
struct Keys {
    state: u64,
    below: u64,
}

impl Keys {
    fn burst(&mut self) -> [u64; BURST] {
        core::array::from_fn(|_| {
            self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            ((self.state >> 32) * self.below) >> 32
        })
    }
}

/// Cycles for one operation, in each of many samples. Each burst is timed; what `after` does is not counted.
fn sample(below: u64, mut burst: impl FnMut([u64; BURST]), mut after: impl FnMut()) -> Vec<f64> {
    let mut keys = Keys { state: 88_172_645_463_325_252, below };
    let (mut samples, start) = (Vec::new(), Instant::now());
    while start.elapsed() < TIME {
        let (mut spent, mut bursts) = (0, 0);
        while spent < SAMPLE {
            let from = clock::cycles();
            burst(keys.burst());
            spent += clock::cycles() - from;
            bursts += 1;
            after();
        }
        samples.push(spent as f64 / (bursts * BURST) as f64);
    }
    samples
}

/// Median and fifth percentile.
fn figure(mut samples: Vec<f64>) -> String {
    samples.sort_by(f64::total_cmp);
    match samples.len() {
        0 => "none".into(),
        n => format!("{:.1} ({:.1})", samples[n / 2], samples[n / 20]),
    }
}

fn measure(below: u64, burst: impl FnMut([u64; BURST]), after: impl FnMut()) -> String {
    figure(sample(below, burst, after))
}

fn sum(found: impl Iterator<Item = Option<u64>>) {
    black_box(found.map(Option::unwrap_or_default).fold(0, u64::wrapping_add));
}

/// Processors that this program may use.
fn processors() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Keeps the calling thread on one of them; without a second one nothing is measured on two.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("a processor that may be used");
}

/// Measures reading while another core writes, at most `pace` cycles for a write: figure, and million writes a second
/// and share of the samples.
fn beside(
    cpus: &[usize],
    below: u64,
    pace: u64,
    mut write: impl FnMut([u64; BURST]) + Send,
    mut read: impl FnMut([u64; BURST]),
) -> [String; 2] {
    let [.., first, second] = *cpus else { return ["one processor".into(), "-".into()] };
    let (stop, started, writes) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            pin(second);
            let mut keys = Keys { state: 7, below };
            let (mut due, mut done) = (clock::cycles(), 0u64);
            started.store(true, Ordering::Release);
            while !stop.load(Ordering::Relaxed) {
                let now = clock::cycles();
                if now < due {
                    std::hint::spin_loop();
                    continue;
                }
                // what was missed while it did not run is not made up for
                due = (due + pace * BURST as u64).max(now);
                write(keys.burst());
                done += BURST as u64;
                writes.store(done, Ordering::Relaxed);
            }
        });
        pin(first);
        while !started.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let (mut keys, mut all, mut samples, start) = (Keys { state: 3, below }, 0u64, Vec::new(), Instant::now());
        let (mut written, mut took) = (0, 0);
        while start.elapsed() < 2 * TIME {
            let (before, from, mut bursts) = (writes.load(Ordering::Relaxed), clock::cycles(), 0);
            while clock::cycles() - from < SAMPLE {
                read(keys.burst());
                bursts += 1;
            }
            let spent = clock::cycles() - from;
            let wrote = writes.load(Ordering::Relaxed) - before;
            all += 1;
            if wrote > 0 {
                (written, took) = (written + wrote, took + spent);
                samples.push(spent as f64 / (bursts * BURST) as f64);
            }
        }
        stop.store(true, Ordering::Relaxed);
        let share = 100 * samples.len() as u64 / all;
        let rate = written as f64 / took.max(1) as f64 * clock::hz() as f64 / 1e6;
        [figure(samples), format!("{rate:.2} {share:3}%")]
    })
}

fn line(name: &str, keys: u64, cells: [String; 6]) {
    let [read, write, slow, slow_rate, fast, fast_rate] = cells;
    println!("{name:16} {keys:8} {read:>15} {write:>15} {slow:>17} {slow_rate:>11} {fast:>17} {fast_rate:>11}");
}

/// One line of the table: a thing that is read and written through shared references.
fn shared(
    name: &str,
    cpus: &[usize],
    keys: u64,
    read: impl Fn([u64; BURST]) + Sync,
    write: impl Fn([u64; BURST]) + Sync,
) {
    let alone = measure(keys, &read, || {});
    let writing = measure(keys, &write, || {});
    let [slow, slow_rate] = beside(cpus, keys, clock::hz() / 1_000_000, &write, &read);
    let [fast, fast_rate] = beside(cpus, keys, 0, &write, &read);
    line(name, keys, [alone, writing, slow, slow_rate, fast, fast_rate]);
}

fn plain(keys: u64) {
    let map: Map = (0..keys).map(|key| (key, key)).collect();
    let alone = measure(keys, |burst| sum(burst.iter().map(|key| map.get(key).copied())), || {});
    let mut map = PerCore::new(&BuildCx::default(), |_| map);
    let per_core = measure(keys, |burst| sum(burst.iter().map(|key| map.get(key).copied())), || {});
    let write =
        |map: &mut Map| measure(keys, |burst| burst.iter().for_each(|key| _ = black_box(map.insert(*key, 1))), || {});
    let writing = write(&mut map);
    let mut inner = map.into_inner();
    let plain_writing = write(&mut inner);
    let none = || String::from("-");
    line("HashMap", keys, [alone, plain_writing, none(), none(), none(), none()]);
    line("PerCore<HashMap>", keys, [per_core, writing, none(), none(), none(), none()]);
}

fn bounded<const N: usize>(cpus: &[usize], keys: u64) {
    let map = Bounded::<N, u64, u64>::new(keys as usize);
    let mut writer: Writer<N, u64, u64> = map.writer().expect("the first");
    (0..keys).for_each(|key| _ = writer.insert(key, key).expect("there is room"));
    drop(writer);
    let reader = RefCell::new(map.reader());
    let mut writer = map.writer().expect("the first has gone");
    let catch_up = || _ = reader.borrow_mut().catch_up();
    let read = |burst: [u64; BURST], reader: &mut Reader<u64, u64>| {
        reader.catch_up();
        sum(burst.iter().map(|key| reader.get(key).copied()));
    };
    let write = |burst: [u64; BURST], writer: &mut Writer<N, u64, u64>| {
        burst.iter().for_each(|key| _ = black_box(writer.insert(*key, 1)));
    };
    let alone = measure(keys, |burst| read(burst, &mut reader.borrow_mut()), || {});
    let writing = measure(keys, |burst| write(burst, &mut writer), catch_up);
    let mut own = reader.into_inner();
    let mut beside = |pace| beside(cpus, keys, pace, |burst| write(burst, &mut writer), |burst| read(burst, &mut own));
    let [slow, slow_rate] = beside(clock::hz() / 1_000_000);
    let [fast, fast_rate] = beside(0);
    line(&format!("Bounded<{N}>"), keys, [alone, writing, slow, slow_rate, fast, fast_rate]);
}

/// What the writer and a reader pay besides: taking in updates, and a reader that sleeps.
fn bounded_besides(keys: u64) {
    let map = Bounded::<16, u64, u64>::new(keys as usize);
    let mut writer = map.writer().expect("the first");
    (0..keys).for_each(|key| _ = writer.insert(key, key).expect("there is room"));
    drop(writer);
    let mut reader = map.reader();
    let mut writer = map.writer().expect("the first has gone");
    let mut random = Keys { state: 9, below: keys };
    let mut applied = Vec::new();
    let start = Instant::now();
    while start.elapsed() < TIME {
        (0..8).for_each(|_| random.burst().iter().for_each(|key| _ = writer.insert(*key, 2)));
        let from = clock::cycles();
        let updates = reader.catch_up();
        applied.push((clock::cycles() - from) as f64 / updates.max(1) as f64);
    }
    applied.sort_by(f64::total_cmp);
    // asleep: as many updates as it takes for some copies of everything
    let (mut asleep, mut all) = (Vec::new(), 0u64);
    let rounds = (6 * keys).max(1_000_000) / BURST as u64;
    for _ in 0..rounds {
        let burst = random.burst();
        let from = clock::cycles();
        burst.iter().for_each(|key| _ = black_box(writer.insert(*key, 3)));
        let spent = clock::cycles() - from;
        all += spent;
        asleep.push(spent);
    }
    asleep.sort_unstable();
    let at = |part: f64| asleep[((asleep.len() - 1) as f64 * part) as usize] as f64 / clock::hz() as f64 * 1e6;
    let from = clock::cycles();
    let behind = reader.catch_up();
    let awake = (clock::cycles() - from) as f64 / clock::hz() as f64 * 1e3;
    println!(
        "Bounded<16> with {keys} keys: taking in an update {:.1} ({:.1}); with a reader asleep a write takes {:.1} on average, a \
         burst of 32 of them {:.1} µs (median), {:.1} (p99), {:.1} (p99.9), {:.0} (most); waking up after {behind} updates {awake:.2} ms",
        applied[applied.len() / 2],
        applied[applied.len() / 20],
        all as f64 / (rounds * BURST as u64) as f64,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
    );
}

fn main() {
    let cpus = processors();
    if let [.., first, _] = *cpus {
        pin(first);
    }
    let making = measure(1000, |burst| _ = black_box(burst), || {});
    println!("cycles for one operation, median (p05); making its key: {making}; {} MHz", clock::hz() / 1_000_000);
    let seen = cpus.len();
    println!("processors seen: {seen}; with two or more, reader and writer are on one each: {cpus:?}");
    println!(
        "                     keys      read alone     write alone    beside a writer         M/s      one flat out         M/s"
    );
    for keys in [1000, 1_000_000] {
        plain(keys);
        bounded::<0>(&cpus, keys);
        bounded::<16>(&cpus, keys);
        let strict = Strict::<u64, u64>::new(keys as usize);
        (0..keys).for_each(|key| _ = strict.insert(key, key).expect("there is room"));
        shared(
            "Strict",
            &cpus,
            keys,
            |burst| sum(burst.iter().map(|key| strict.get(key))),
            |burst| burst.iter().for_each(|key| strict.update(key, |value| *value.expect("it is there") = 1)),
        );
        let mutex: Mutex<Map> = Mutex::new((0..keys).map(|key| (key, key)).collect());
        let lock = || mutex.lock().unwrap_or_else(PoisonError::into_inner);
        shared(
            "Mutex<HashMap>",
            &cpus,
            keys,
            |burst| sum(burst.iter().map(|key| lock().get(key).copied())),
            |burst| burst.iter().for_each(|key| _ = black_box(lock().insert(*key, 1))),
        );
    }
    [1000, 1_000_000].into_iter().for_each(bounded_besides);
}
