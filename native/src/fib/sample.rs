//! Samples of look-ups.

use crate::inputs::{Inputs, Numbered, Random, STREAM};
use crate::rte::RteHash;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tables::cuckoo::{CuckooTable, Error, Reader};

/// Keys per call: a packet burst, and a number that saturates the memory.
pub(crate) const BURSTS: [usize; 2] = [32, 256];

/// Work of readers in a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Work {
    Lines,
    Hits,
    Misses,
    Zipf,
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::Lines => "random lines",
            Work::Hits => "hits",
            Work::Misses => "misses",
            Work::Zipf => "zipf",
        }
    }
}

/// Returns the processor time of this thread in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Looks up bursts until `stop` is set, and returns the number of look-ups per second of processor time.
fn run(stop: &AtomicBool, burst: usize, mut look_up: impl FnMut(usize, &mut Random)) -> f64 {
    let mut random = Random::new();
    let mut from = random.below((STREAM / BURSTS[1]) as u64) as usize * BURSTS[1];
    let (mut done, start) = (0u64, cpu_seconds());
    while !stop.load(Relaxed) {
        for _ in 0..4096 / burst {
            look_up(from, &mut random);
            from = (from + burst) % STREAM;
        }
        done += (4096 / burst * burst) as u64;
    }
    done as f64 / (cpu_seconds() - start)
}

fn read<K: Numbered>(reader: &mut Reader<K>, inputs: &Inputs<K>, kind: LookUpKind, stop: &AtomicBool) -> f64 {
    let LookUpKind { work, burst, .. } = kind;
    if work == Work::Lines {
        return run(stop, burst, |_, random| inputs.load(random, burst));
    }
    let (keys, mut values) = (inputs.keys(work), vec![None; burst]);
    run(stop, burst, |from, _| {
        reader.get_batch(&keys[from..from + burst], &mut values);
        assert_eq!(values[0].is_some(), work != Work::Misses);
        black_box(&values);
    })
}

fn read_rte(hash: &RteHash, keys: &[u64], kind: LookUpKind, stop: &AtomicBool) -> f64 {
    let mut sum = 0;
    let rate = run(stop, kind.burst, |from, _| {
        let found = hash.look_up(&keys[from..from + kind.burst], &mut sum);
        assert_eq!(found, if kind.work == Work::Misses { 0 } else { kind.burst });
    });
    black_box(sum);
    rate
}

/// Inserts and removes keys, and returns the number of updates per second.
fn update<K: Numbered>(table: &mut CuckooTable<K>, entries: u64, stop: &AtomicBool) -> Result<f64, Error> {
    let mut random = Random::new();
    let (mut done, start) = (0u64, cpu_seconds());
    while !stop.load(Relaxed) {
        for _ in 0..64 {
            // keys beyond those of the hits, which readers do not look up
            let n = entries + random.below(entries / 16 + 1);
            if table.remove(K::number(n)).is_none() {
                table.insert(K::number(n), K::value_of(n))?;
            }
        }
        done += 64;
    }
    Ok(done as f64 / (cpu_seconds() - start))
}

/// LookUpKind of a sample.
#[derive(Clone, Copy)]
pub(crate) struct LookUpKind {
    pub(crate) work: Work,
    pub(crate) burst: usize,
    pub(crate) readers: usize,
    pub(crate) updates: bool,
    /// True for `rte_hash`.
    pub(crate) rte: bool,
}

/// Results of a sample per second.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rates {
    pub(crate) look_ups: f64,
    pub(crate) updates: f64,
    pub(crate) restarts: f64,
}

/// Tables with the same entries.
pub(crate) struct Tables<K: Numbered> {
    pub(crate) ours: CuckooTable<K>,
    pub(crate) rte: Option<RteHash>,
    pub(crate) entries: u64,
}

/// Runs the readers of a sample for a while, with or without a writer.
pub(crate) fn sample<K: Numbered>(
    tables: &mut Tables<K>,
    inputs: &Inputs<K>,
    kind: LookUpKind,
    time: Duration,
) -> Result<Rates, Error> {
    let Tables { ours, rte, entries } = tables;
    let rte = rte.as_ref().filter(|_| kind.rte);
    let stop = AtomicBool::new(false);
    let start = Barrier::new(kind.readers + 1);
    std::thread::scope(|scope| {
        let (stop, start) = (&stop, &start);
        let readers: Vec<_> = (0..kind.readers)
            .map(|_| {
                let mut reader = ours.reader();
                scope.spawn(move || {
                    start.wait();
                    let look_ups = match rte {
                        Some(hash) => read_rte(hash, inputs.words(kind.work), kind, stop),
                        None => read(&mut reader, inputs, kind, stop),
                    };
                    (look_ups, reader.restarts())
                })
            })
            .collect();
        start.wait();
        scope.spawn(move || {
            std::thread::sleep(time);
            stop.store(true, Relaxed);
        });
        let updates = if kind.updates { update(ours, *entries, stop) } else { Ok(0.0) };
        let mut rates = Rates { updates: updates?, ..Rates::default() };
        for reader in readers {
            let (look_ups, restarts) = reader.join().expect("readers do not panic");
            rates.look_ups += look_ups;
            rates.restarts += restarts as f64 / time.as_secs_f64();
        }
        Ok(rates)
    })
}

/// Returns all kinds of samples; a kind with updates follows the same one without.
pub(crate) fn kinds(max_readers: usize, rte: bool) -> Vec<LookUpKind> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut kinds = Vec::new();
    for readers in 1..=max_readers {
        for burst in BURSTS {
            for work in [Work::Lines, Work::Hits, Work::Misses, Work::Zipf] {
                let kind = LookUpKind { work, burst, readers, updates: false, rte: false };
                kinds.push(kind);
                // the writer needs a core
                if readers < cores && work != Work::Lines {
                    kinds.push(LookUpKind { updates: true, ..kind });
                }
                if rte && burst == BURSTS[0] && work != Work::Lines {
                    kinds.push(LookUpKind { rte, ..kind });
                }
            }
        }
    }
    kinds
}
