//! `fib-bench`: the exact-match table compared with the memory bandwidth for random loads and with DPDK's hash table.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

mod inputs;
mod rte;
mod sample;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use dpdk::{Eal, Memory};
use inputs::{Inputs, Numbered};
use rte::RteHash;
use sample::{LookUpKind, Rates, Tables, cpu_seconds, kinds, sample};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tables::cuckoo::{CuckooTable, Key48, Key64, Key144, Settings};
use tables::{Backing, Pages};

/// Measures the exact-match table as a FIB: look-ups of one and of several readers, with and without a writer, compared
/// with loads of random cache lines of the same amount of memory and with DPDK's rte_hash.
///
/// In each round every kind of look-up runs for a while. Median and best of the rounds are printed in million look-ups
/// per second of processor time of all readers. Keys are drawn in advance: hits and misses uniformly, Zipf with
/// exponent 1 over all entries. Random lines are prefetched like keys: all of a burst before the first is loaded, or 64
/// ahead in bursts of more than 32.
#[derive(Parser)]
struct Args {
    /// Entries of a table; repeat the option for several tables.
    #[arg(long, default_values_t = [1_000_000, 16_000_000, 64_000_000])]
    entries: Vec<u64>,
    /// Maximum number of readers; the default is two, if two CPUs are available.
    #[arg(long)]
    readers: Option<usize>,
    /// Number of measurements of each kind.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Duration of each measurement in seconds.
    #[arg(long, default_value_t = 0.03)]
    seconds: f64,
    /// Bits of a key: 48, 64 or 144.
    #[arg(long, default_value_t = 48)]
    key: u32,
    /// Best kind of pages to try for the table.
    #[arg(long, value_enum, default_value_t = PageKind::Hugetlb)]
    pages: PageKind,
    /// Omits rte_hash.
    #[arg(long)]
    no_rte_hash: bool,
    /// Measures only kinds whose name starts with this text: hits, misses, zipf, random.
    #[arg(long, default_value = "")]
    only: String,
    /// JSON file for the results.
    #[arg(long, default_value = "target/bench/fib.json")]
    json: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum PageKind {
    Hugetlb,
    Transparent,
    Ordinary,
}

/// Results of a table in `fib.json`.
#[derive(Serialize)]
struct TableResult {
    entries: u64,
    key_bits: u32,
    bytes: usize,
    hugetlb_bytes: usize,
    transparent_bytes: usize,
    ordinary_bytes: usize,
    /// Share of slots in use.
    load: f64,
    /// Share of entries in their primary bucket, which readers find in one bucket.
    in_primary: f64,
    /// Seconds for inserting all entries.
    fill_s: f64,
    /// Seconds of processor time for inserting all entries.
    fill_cpu_s: f64,
    random_lines_bytes: usize,
    /// Reason for omitting rte_hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_rte_hash: Option<String>,
    rows: Vec<Row>,
}

/// Results of a kind of look-up, per second of processor time of the readers.
#[derive(Serialize)]
struct Row {
    table: &'static str,
    kind: &'static str,
    readers: usize,
    burst: usize,
    updates: bool,
    median: f64,
    best: f64,
    updates_median: f64,
    restarts_median: f64,
    /// With updates: median of the ratios to the rate without updates.
    #[serde(skip_serializing_if = "Option::is_none")]
    relative: Option<f64>,
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn rows(kinds: &[LookUpKind], samples: &[Vec<Rates>]) -> Vec<Row> {
    let of = |rates: &[Rates], what: fn(&Rates) -> f64| median(rates.iter().map(what).collect());
    let row = |n: usize| {
        let (LookUpKind { work, burst, readers, updates, rte }, rates) = (kinds[n], &samples[n]);
        let relative = updates.then(|| {
            let ratios = rates.iter().zip(&samples[n - 1]).map(|(with, without)| with.look_ups / without.look_ups);
            median(ratios.collect())
        });
        Row {
            table: if rte { "rte_hash" } else { "bondstone" },
            kind: work.name(),
            readers,
            burst,
            updates,
            median: of(rates, |r| r.look_ups),
            best: rates.iter().map(|r| r.look_ups).fold(0.0, f64::max),
            updates_median: of(rates, |r| r.updates),
            restarts_median: of(rates, |r| r.restarts),
            relative,
        }
    };
    (0..kinds.len()).map(row).collect()
}

fn measure<K: Numbered>(args: &Args, eal: Option<Eal>, entries: u64) -> anyhow::Result<TableResult> {
    let pages = match args.pages {
        PageKind::Hugetlb => Pages::Hugetlb,
        PageKind::Transparent => Pages::Transparent,
        PageKind::Ordinary => Pages::Ordinary,
    };
    let started = Instant::now();
    let rte_hash = match eal {
        None => Err("omitted, or no huge pages".to_owned()),
        Some(_) if entries > RTE_HASH_MAX => {
            Err(format!("more than {RTE_HASH_MAX} entries take too much time and memory"))
        }
        Some(_) => RteHash::new::<K>(entries).map_err(|e| e.to_string()),
    };
    if rte_hash.is_ok() {
        eprintln!("rte_hash: {entries} entries in {:.1} s", started.elapsed().as_secs_f64());
    }
    let mut table = CuckooTable::<K>::new(&Settings { pages, ..Settings::new(entries) })?;
    let (start, cpu_start, mut last_report) = (Instant::now(), cpu_seconds(), Instant::now());
    table.extend((0..entries).map(|n| (K::number(n), K::value_of(n))), |done| {
        if last_report.elapsed() > Duration::from_secs(5) {
            last_report = Instant::now();
            eprintln!("{done} of {entries} entries in {:.1} s", start.elapsed().as_secs_f64());
        }
    })?;
    let (fill_s, fill_cpu_s) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu_start);
    let Backing { hugetlb, transparent, ordinary } = table.backing();
    let bytes = hugetlb + transparent + ordinary;
    let (len, load, in_primary) =
        (table.len() as f64, table.len() as f64 / table.slots() as f64, table.in_primary() as f64);
    let inputs = Inputs::<K>::new(bytes, entries, pages.min(Pages::Transparent));
    let default_readers = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    let mut kinds = kinds(args.readers.unwrap_or(default_readers), rte_hash.is_ok());
    kinds.retain(|kind| kind.work.name().starts_with(&args.only));
    let no_rte_hash = rte_hash.as_ref().err().cloned();
    let mut tables = Tables { ours: table, rte: rte_hash.ok(), entries };
    let mut samples = vec![Vec::new(); kinds.len()];
    for round in 1..=args.rounds.max(1) {
        for (&kind, samples) in kinds.iter().zip(&mut samples) {
            samples.push(sample(&mut tables, &inputs, kind, Duration::from_secs_f64(args.seconds))?);
        }
        eprintln!("round {round} of {}", args.rounds);
    }
    Ok(TableResult {
        entries,
        key_bits: K::BITS,
        bytes,
        hugetlb_bytes: hugetlb,
        transparent_bytes: transparent,
        ordinary_bytes: ordinary,
        load,
        in_primary: in_primary / len,
        fill_s,
        fill_cpu_s,
        random_lines_bytes: inputs.bytes(),
        no_rte_hash,
        rows: rows(&kinds, &samples),
    })
}

/// Maximum number of entries of an `rte_hash`, which takes more than 24 bytes per entry.
const RTE_HASH_MAX: u64 = 1 << 26;

fn print(m: &TableResult) {
    println!(
        "\n{} entries of {} bits in {:.2} s, {:.2} of the processor ({:.2} M/s); {:.2} bytes each; {:.1} % of slots in use; \
         {:.1} % of entries in their primary bucket",
        m.entries,
        m.key_bits,
        m.fill_s,
        m.fill_cpu_s,
        m.entries as f64 / m.fill_cpu_s / 1e6,
        m.bytes as f64 / m.entries as f64,
        m.load * 100.0,
        m.in_primary * 100.0,
    );
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    println!(
        "  {:.0} MiB in preallocated huge pages, {:.0} in transparent ones, {:.1} in 4 KiB pages; random lines of {:.0} MiB",
        mib(m.hugetlb_bytes),
        mib(m.transparent_bytes),
        mib(m.ordinary_bytes),
        mib(m.random_lines_bytes)
    );
    if let Some(reason) = &m.no_rte_hash {
        println!("  no rte_hash: {reason}");
    }
    println!("  readers burst  kind          table        M/s    best  updates M/s relative  restarts/s");
    for row in &m.rows {
        let relative = row.relative.map_or(String::new(), |relative| format!("{:.0} %", relative * 100.0));
        let table = if row.kind == "random lines" { "" } else { row.table };
        println!(
            "  {:>7} {:>5}  {:<12}  {table:<9} {:>6.1}  {:>6.1}  {:>11.2} {relative:>8} {:>11.0}",
            row.readers,
            row.burst,
            row.kind,
            row.median / 1e6,
            row.best / 1e6,
            row.updates_median / 1e6,
            row.restarts_median
        );
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let memory = Memory::best();
    let eal = match memory {
        Memory::Huge if !args.no_rte_hash => Some(Eal::start(memory, &[])?),
        _ => None,
    };
    let mut results = vec![];
    for &entries in &args.entries {
        let measured = match args.key {
            48 => measure::<Key48>(&args, eal, entries),
            64 => measure::<Key64>(&args, eal, entries),
            144 => measure::<Key144>(&args, eal, entries),
            other => anyhow::bail!("--key {other}: one of 48, 64, 144"),
        }?;
        print(&measured);
        results.push(measured);
        if let Some(folder) = args.json.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&args.json, serde_json::to_string_pretty(&results)?)
            .with_context(|| args.json.display().to_string())?;
    }
    println!("\nwritten to {}", args.json.display());
    Ok(())
}
