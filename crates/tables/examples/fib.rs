//! Measures the exact-match table beside what memory allows: a FIB of keys of 48 bits.
//!
//! `cargo run --release -p bondstone-tables --example fib -- [--entries N]... [--readers N] [--rounds N] [--seconds S]
//! [--pages hugetlb|transparent|ordinary] [--key 48|64|144]
//! [--only hits|misses|zipf|random] [--json]`
//!
//! Without `--entries` tables of 1 and of 16 million. In each round every kind of look-up runs for a while in turn, and in
//! between random loads of lines of an equal-sized table (a smaller one where memory is short, and it says so), in groups of 32 and of which one is fetched while another is
//! loaded, as look-ups are; the median of rounds counts, and beside it the best, in million per second of the processor time of all readers. Keys are
//! drawn in advance, hits and misses evenly, Zipf with exponent 1 over all entries.

use rustix::mm::{Advice, madvise};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tables::exact::{Error, ExactTable, Key, Key48, Key64, Key144, Reader, Settings};
use tables::{Backing, Pages};

/// Keys of a call: a burst, and as many as fill the memory's queue.
const BURSTS: [usize; 2] = [32, 256];

struct Options {
    entries: Vec<u64>,
    readers: usize,
    rounds: usize,
    seconds: f64,
    pages: Pages,
    key: u32,
    /// Begin of the name of the only kind of look-up to measure.
    only: String,
    json: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        entries: Vec::new(),
        readers: std::thread::available_parallelism().map_or(1, usize::from).min(2),
        rounds: 20,
        seconds: 0.03,
        pages: Pages::Transparent,
        key: 48,
        only: String::new(),
        json: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--json" {
            options.json = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name}: no such option, or its value is missing"))?;
        let bad = |_| format!("{name} {value}: not a number");
        match name.as_str() {
            "--entries" => options.entries.push(value.parse().map_err(bad)?),
            "--readers" => options.readers = value.parse().map_err(bad)?,
            "--rounds" => options.rounds = value.parse::<usize>().map_err(bad)?.max(1),
            "--seconds" => options.seconds = value.parse().map_err(|_| format!("{name} {value}: not a number"))?,
            "--key" => options.key = value.parse().map_err(bad)?,
            "--only" => options.only = value,
            "--pages" => {
                options.pages = match value.as_str() {
                    "hugetlb" => Pages::Hugetlb,
                    "transparent" => Pages::Transparent,
                    "ordinary" => Pages::Ordinary,
                    _ => return Err(format!("--pages {value}: one of hugetlb, transparent, ordinary")),
                }
            }
            _ => return Err(format!("{name}: no such option")),
        }
    }
    if options.entries.is_empty() {
        options.entries = vec![1_000_000, 16_000_000];
    }
    Ok(options)
}

/// xorshift64*.
struct Random(u64);

impl Random {
    /// Another stream each time.
    fn new() -> Self {
        static STREAMS: AtomicU64 = AtomicU64::new(1);
        Self(STREAMS.fetch_add(2, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[inline(always)]
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(n)) >> 64) as u64
    }
}

/// Entries by number, computed, so that only the table is fetched from memory.
trait Numbered: Key {
    fn number(n: u64) -> Self;
    fn value_of(n: u64) -> Self::Value;
}

/// A million addresses in each of some routing instances.
impl Numbered for Key48 {
    #[inline(always)]
    fn number(n: u64) -> Self {
        Key48::vrf_ipv4((n >> 20) as u16, 0x0a00_0000 | n as u32 & 0xf_ffff)
    }

    fn value_of(n: u64) -> u16 {
        (n % 1000) as u16
    }
}

impl Numbered for Key64 {
    #[inline(always)]
    fn number(n: u64) -> Self {
        Key64::new((0x5254 << 32 | n >> 4) << 16 | n & 15)
    }

    fn value_of(n: u64) -> u32 {
        (n % 1000) as u32
    }
}

impl Numbered for Key144 {
    #[inline(always)]
    fn number(n: u64) -> Self {
        Key144::vrf_ipv6((n >> 20) as u16, 0x2001_0db8 << 96 | u128::from(n as u32 & 0xf_ffff) << 64 | 1)
    }

    fn value_of(n: u64) -> u32 {
        (n % 1000) as u32
    }
}

/// What readers do in a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Work {
    Lines,
    Hits,
    Misses,
    Zipf,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Lines => "random lines",
            Work::Hits => "hits",
            Work::Misses => "misses",
            Work::Zipf => "zipf",
        }
    }
}

/// Keys drawn in advance for each kind of look-up: of so many the buckets do not stay in any cache.
const STREAM: usize = 1 << 22;

/// As much memory as a table has, in pages of the same kind, and what to look up.
struct Inputs<K> {
    lines: Vec<[u64; 8]>,
    hits: Vec<K>,
    misses: Vec<K>,
    zipf: Vec<K>,
}

/// Memory that can be had without taking what others need: all but 5 GiB of what is available.
fn spare() -> usize {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available =
        info.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse().ok());
    (available.unwrap_or(0usize) << 10).saturating_sub(5 << 30)
}

/// Has a line come near.
#[inline(always)]
fn prefetch(line: &[u64; 8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect but on the cache.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    black_box(line);
}

impl<K: Numbered> Inputs<K> {
    fn new(bytes: usize, entries: u64, pages: Pages) -> Self {
        // aligned to a page at best: a line that is not aligned would be two
        let mut lines: Vec<[u64; 8]> = Vec::with_capacity(bytes / 64 + (4 << 20) / 64);
        let (at, room) = (lines.as_mut_ptr(), lines.capacity() * 64);
        let front = at.addr().next_multiple_of(2 << 20) - at.addr();
        if pages > Pages::Ordinary && front < room {
            let whole = (room - front) / (2 << 20) * (2 << 20);
            // SAFETY: within the vector's memory, which holds nothing yet; the advice changes nothing that can be seen.
            let _ = unsafe { madvise(at.cast::<u8>().add(front).cast(), whole, Advice::LinuxHugepage) };
        }
        lines.resize(lines.capacity(), [1; 8]);
        let mut random = Random::new();
        let mut draw =
            |number: &dyn Fn(&mut Random) -> u64| (0..STREAM).map(|_| K::number(number(&mut random))).collect();
        let zipf = |random: &mut Random| {
            let even = random.below(1 << 53) as f64 / (1u64 << 53) as f64;
            ((entries as f64).powf(even) as u64).min(entries) - 1
        };
        Self {
            lines,
            hits: draw(&|random| random.below(entries)),
            // beyond what updates bring
            misses: draw(&|random| 2 * entries + random.below(entries)),
            zipf: draw(&zipf),
        }
    }

    /// The keys for a kind of work.
    fn keys(&self, work: Work) -> &[K] {
        match work {
            Work::Lines | Work::Hits => &self.hits,
            Work::Misses => &self.misses,
            Work::Zipf => &self.zipf,
        }
    }

    /// Loads so many random lines: all fetched before the first is loaded; or, of more than 32, 64 in advance.
    #[inline(always)]
    fn load(&self, random: &mut Random, count: usize) {
        // the vector begins in the middle of a line where the allocator keeps its own before it
        let skip = (64 - self.lines.as_ptr().addr() % 64) % 64 / 8;
        let words = &self.lines.as_flattened()[skip..];
        let lines = words.as_chunks::<8>().0;
        let mut ahead = [0; 64];
        let depth = count.min(64);
        let mut sum = 0;
        let mut draw = |slot: &mut usize| {
            *slot = random.below(lines.len() as u64) as usize;
            prefetch(&lines[*slot]);
        };
        ahead[..depth].iter_mut().for_each(&mut draw);
        for n in depth..count {
            sum += lines[ahead[n % 64]][0];
            draw(&mut ahead[n % 64]);
        }
        ahead[..depth].iter().for_each(|&line| sum += lines[line][0]);
        black_box(sum);
    }
}

/// Seconds that this thread has run: what others take from it does not count.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Works in bursts until the time is over: how many per second of this thread.
fn run<K: Numbered>(reader: &mut Reader<K>, inputs: &Inputs<K>, kind: Kind, over: &AtomicBool) -> f64 {
    let Kind { work, burst, .. } = kind;
    let mut random = Random::new();
    let mut values = vec![None; burst];
    let keys = inputs.keys(work);
    let mut from = random.below((STREAM / BURSTS[1]) as u64) as usize * BURSTS[1];
    let (mut done, start) = (0u64, cpu_seconds());
    while !over.load(Relaxed) {
        for _ in 0..4096 / burst {
            if work == Work::Lines {
                inputs.load(&mut random, burst);
                continue;
            }
            reader.get_batch(&keys[from..from + burst], &mut values);
            assert_eq!(values[0].is_some(), work != Work::Misses);
            black_box(&values);
            from = (from + burst) % STREAM;
        }
        done += (4096 / burst * burst) as u64;
    }
    done as f64 / (cpu_seconds() - start)
}

/// Inserts and removes keys, and says how many per second.
fn update<K: Numbered>(table: &mut ExactTable<K>, entries: u64, over: &AtomicBool) -> Result<f64, Error> {
    let mut random = Random::new();
    let (mut done, start) = (0u64, cpu_seconds());
    while !over.load(Relaxed) {
        for _ in 0..64 {
            // one of the last sixteenth goes and comes: readers may miss it, and do not ask for it among their hits
            let n = entries + random.below(entries / 16 + 1);
            if table.remove(K::number(n)).is_none() {
                table.insert(K::number(n), K::value_of(n))?;
            }
        }
        done += 64;
    }
    Ok(done as f64 / (cpu_seconds() - start))
}

/// One kind of sample.
#[derive(Clone, Copy)]
struct Kind {
    work: Work,
    burst: usize,
    readers: usize,
    updates: bool,
}

/// What a sample has measured, per second.
#[derive(Clone, Copy, Default)]
struct Rates {
    look_ups: f64,
    updates: f64,
    restarts: f64,
}

/// Runs so many readers for a while, with a writer or without.
fn sample<K: Numbered>(
    table: &mut ExactTable<K>,
    inputs: &Inputs<K>,
    kind: Kind,
    entries: u64,
    time: Duration,
) -> Result<Rates, Error> {
    let over = AtomicBool::new(false);
    let start = Barrier::new(kind.readers + 1);
    std::thread::scope(|scope| {
        let (over, start) = (&over, &start);
        let readers: Vec<_> = (0..kind.readers)
            .map(|_| {
                let mut reader = table.reader();
                scope.spawn(move || {
                    start.wait();
                    let look_ups = run(&mut reader, inputs, kind, over);
                    (look_ups, reader.restarts())
                })
            })
            .collect();
        start.wait();
        scope.spawn(move || {
            std::thread::sleep(time);
            over.store(true, Relaxed);
        });
        let updates = if kind.updates { update(table, entries, over) } else { Ok(0.0) };
        let mut rates = Rates { updates: updates?, ..Rates::default() };
        for reader in readers {
            let (look_ups, restarts) = reader.join().expect("a reader found what there is");
            rates.look_ups += look_ups;
            rates.restarts += restarts as f64 / time.as_secs_f64();
        }
        Ok(rates)
    })
}

/// All kinds, those to be compared side by side.
fn kinds(most: usize) -> Vec<Kind> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut kinds = Vec::new();
    for readers in 1..=most {
        for burst in BURSTS {
            for work in [Work::Lines, Work::Hits, Work::Misses, Work::Zipf] {
                kinds.push(Kind { work, burst, readers, updates: false });
                // a core for the writer
                if readers < cores && work != Work::Lines {
                    kinds.push(Kind { work, burst, readers, updates: true });
                }
            }
        }
    }
    kinds
}

fn measure<K: Numbered>(options: &Options, entries: u64) -> Result<(), Error> {
    let mut table = ExactTable::<K>::new(&Settings { pages: options.pages, ..Settings::new(entries) })?;
    let (start, from) = (Instant::now(), cpu_seconds());
    table.extend((0..entries).map(|n| (K::number(n), K::value_of(n))), |done| {
        if done % (64 << 20) == 0 {
            eprintln!("{done} of {entries} entries in {:.1} s", start.elapsed().as_secs_f64());
        }
    })?;
    let (fill, fill_cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - from);
    let Backing { hugetlb, transparent, ordinary } = table.backing();
    let bytes = hugetlb + transparent + ordinary;
    let (len, load, at_home) = (table.len() as f64, table.len() as f64 / table.slots() as f64, table.at_home() as f64);
    let inputs = Inputs::<K>::new(bytes.min(spare().max(64 << 20)), entries, options.pages);
    let mut kinds = kinds(options.readers);
    kinds.retain(|kind| kind.work.name().starts_with(&options.only));
    let mut taken = vec![Vec::new(); kinds.len()];
    for round in 1..=options.rounds {
        for (&kind, taken) in kinds.iter().zip(&mut taken) {
            taken.push(sample(&mut table, &inputs, kind, entries, Duration::from_secs_f64(options.seconds))?);
        }
        eprintln!("round {round} of {}", options.rounds);
    }
    let median = |of: fn(&Rates) -> f64, rates: &[Rates]| {
        let mut all: Vec<f64> = rates.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let rows = kinds.iter().zip(&taken).map(|(kind, taken)| {
        let of = |of| median(of, taken);
        let best = taken.iter().map(|rates| rates.look_ups).fold(0.0, f64::max);
        (*kind, Rates { look_ups: of(|r| r.look_ups), updates: of(|r| r.updates), restarts: of(|r| r.restarts) }, best)
    });
    if options.json {
        let rows: Vec<String> = rows
            .map(|(Kind { work, burst, readers, updates }, rates, best)| {
                format!(
                    "{{\"kind\":\"{}\",\"readers\":{readers},\"batch\":{burst},\"updates\":{updates},\"per_s\":{:.0},\"best_per_s\":{best:.0},\
                     \"updates_per_s\":{:.0},\"restarts_per_s\":{:.0}}}",
                    work.name(),
                    rates.look_ups,
                    rates.updates,
                    rates.restarts,
                )
            })
            .collect();
        println!(
            "{{\"key_bits\":{},\"entries\":{entries},\"bytes\":{bytes},\"hugetlb_bytes\":{hugetlb},\
             \"transparent_bytes\":{transparent},\"ordinary_bytes\":{ordinary},\"random_lines_bytes\":{},\"load\":{load:.4},\"at_home\":{:.4},\
             \"fill_s\":{fill:.3},\"fill_cpu_s\":{fill_cpu:.3},\"rates\":[{}]}}",
            K::BITS,
            inputs.lines.len() * 64,
            at_home / len,
            rows.join(",")
        );
        return Ok(());
    }
    println!(
        "\n{entries} entries of {} bits in {fill:.2} s, {fill_cpu:.2} of the processor ({:.2} M/s); {:.2} bytes each; {:.1} % of slots taken; {:.1} % of \
         entries cost one bucket",
        K::BITS,
        len / fill_cpu / 1e6,
        bytes as f64 / len,
        load * 100.0,
        at_home / len * 100.0,
    );
    let mib = [hugetlb, transparent, ordinary].map(|bytes| bytes as f64 / f64::from(1 << 20));
    println!("  {:.0} MiB hugetlb, {:.0} transparent, {:.1} ordinary", mib[0], mib[1], mib[2]);
    println!("  random lines of {:.0} MiB", inputs.lines.len() as f64 / 16384.0);
    println!("  readers batch  kind            M/s    best   updates M/s  restarts/s");
    for (Kind { work, burst, readers, .. }, rates, best) in rows {
        let [look_ups, updates] = [rates.look_ups, rates.updates].map(|rate| rate / 1e6);
        println!(
            "  {readers:>7} {burst:>5}  {:<12} {look_ups:>6.1}  {:>6.1}  {updates:>12.2} {:>11.0}",
            work.name(),
            best / 1e6,
            rates.restarts
        );
    }
    Ok(())
}

fn main() {
    let options = options().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    });
    for &entries in &options.entries {
        let measured = match options.key {
            48 => measure::<Key48>(&options, entries),
            64 => measure::<Key64>(&options, entries),
            144 => measure::<Key144>(&options, entries),
            other => {
                eprintln!("--key {other}: one of 48, 64, 144");
                std::process::exit(2);
            }
        };
        if let Err(error) = measured {
            eprintln!("{error}");
            std::process::exit(3);
        }
    }
}
