//! `fib-bench`: the exact-match table beside what memory allows, and beside DPDK's hash table.

mod inputs;
mod rte;
mod sample;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use dpdk::{Eal, Memory};
use inputs::{Inputs, Numbered};
use rte::RteHash;
use sample::{Kind, Rates, Tables, cpu_seconds, kinds, sample};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tables::exact::{ExactTable, Key48, Key64, Key144, Settings};
use tables::{Backing, Pages};

/// Measures the exact-match table as a FIB: look-ups of one reader and of several, with a writer and without, beside random
/// loads of lines of as much memory, and beside DPDK's rte_hash.
///
/// In each round every kind of look-up runs for a while in turn. Printed is the median of rounds, and the best, in million
/// per second of the processor time of all readers. Keys are drawn in advance: hits and misses evenly, Zipf with exponent 1
/// over all entries. Random lines are loaded as keys are: so many fetched before the first is loaded; of more than 32, 64 in
/// advance.
#[derive(Parser)]
struct Args {
    /// Entries of a table; several times for several.
    #[arg(long, default_values_t = [1_000_000, 16_000_000, 64_000_000])]
    entries: Vec<u64>,
    /// Readers at most; by default two, if there are two CPUs.
    #[arg(long)]
    readers: Option<usize>,
    /// How often each kind is measured.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.03)]
    seconds: f64,
    /// Bits of a key: 48, 64, 144.
    #[arg(long, default_value_t = 48)]
    key: u32,
    /// Pages of the table: the best to try for.
    #[arg(long, value_enum, default_value_t = Kept::Hugetlb)]
    pages: Kept,
    /// Beside no rte_hash.
    #[arg(long)]
    alone: bool,
    /// Only kinds whose name begins so: hits, misses, zipf, random.
    #[arg(long, default_value = "")]
    only: String,
    /// Where the rows are written as JSON.
    #[arg(long, default_value = "target/bench/fib.json")]
    json: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kept {
    Hugetlb,
    Transparent,
    Ordinary,
}

/// A table, as `fib.json` has it.
#[derive(Serialize)]
struct Measured {
    entries: u64,
    key_bits: u32,
    bytes: usize,
    hugetlb_bytes: usize,
    transparent_bytes: usize,
    ordinary_bytes: usize,
    /// Of slots, those taken.
    load: f64,
    /// Of entries, those that cost a reader one bucket.
    at_home: f64,
    /// Seconds until all entries were there, and those of the processor.
    fill_s: f64,
    fill_cpu_s: f64,
    random_lines_bytes: usize,
    /// Why nothing stands beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    alone: Option<String>,
    rows: Vec<Row>,
}

/// One kind of look-up, in numbers per second of the readers' processor time.
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
    /// With updates: of the rate without, median of rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<f64>,
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn rows(kinds: &[Kind], taken: &[Vec<Rates>]) -> Vec<Row> {
    let of = |rates: &[Rates], what: fn(&Rates) -> f64| median(rates.iter().map(what).collect());
    let row = |n: usize| {
        let (Kind { work, burst, readers, updates, rte }, rates) = (kinds[n], &taken[n]);
        let left = updates.then(|| {
            let ratios = rates.iter().zip(&taken[n - 1]).map(|(with, without)| with.look_ups / without.look_ups);
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
            left,
        }
    };
    (0..kinds.len()).map(row).collect()
}

fn measure<K: Numbered>(args: &Args, eal: Option<Eal>, entries: u64) -> anyhow::Result<Measured> {
    let pages = match args.pages {
        Kept::Hugetlb => Pages::Hugetlb,
        Kept::Transparent => Pages::Transparent,
        Kept::Ordinary => Pages::Ordinary,
    };
    let started = Instant::now();
    let beside = match eal {
        None => Err("not asked for, or no huge pages for it".to_owned()),
        Some(_) if entries > RTE_MOST => Err(format!("more than {RTE_MOST} entries: too long, too much memory")),
        Some(_) => RteHash::new::<K>(entries).map_err(|e| e.to_string()),
    };
    if beside.is_ok() {
        eprintln!("rte_hash: {entries} entries in {:.1} s", started.elapsed().as_secs_f64());
    }
    let mut table = ExactTable::<K>::new(&Settings { pages, ..Settings::new(entries) })?;
    let (start, from, mut told) = (Instant::now(), cpu_seconds(), Instant::now());
    table.extend((0..entries).map(|n| (K::number(n), K::value_of(n))), |done| {
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            eprintln!("{done} of {entries} entries in {:.1} s", start.elapsed().as_secs_f64());
        }
    })?;
    let (fill_s, fill_cpu_s) = (start.elapsed().as_secs_f64(), cpu_seconds() - from);
    let Backing { hugetlb, transparent, ordinary } = table.backing();
    let bytes = hugetlb + transparent + ordinary;
    let (len, load, at_home) = (table.len() as f64, table.len() as f64 / table.slots() as f64, table.at_home() as f64);
    let inputs = Inputs::<K>::new(bytes, entries, pages.min(Pages::Transparent));
    let most = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    let mut kinds = kinds(args.readers.unwrap_or(most), beside.is_ok());
    kinds.retain(|kind| kind.work.name().starts_with(&args.only));
    let alone = beside.as_ref().err().cloned();
    let mut tables = Tables { ours: table, rte: beside.ok(), entries };
    let mut taken = vec![Vec::new(); kinds.len()];
    for round in 1..=args.rounds.max(1) {
        for (&kind, taken) in kinds.iter().zip(&mut taken) {
            taken.push(sample(&mut tables, &inputs, kind, Duration::from_secs_f64(args.seconds))?);
        }
        eprintln!("round {round} of {}", args.rounds);
    }
    Ok(Measured {
        entries,
        key_bits: K::BITS,
        bytes,
        hugetlb_bytes: hugetlb,
        transparent_bytes: transparent,
        ordinary_bytes: ordinary,
        load,
        at_home: at_home / len,
        fill_s,
        fill_cpu_s,
        random_lines_bytes: inputs.bytes(),
        alone,
        rows: rows(&kinds, &taken),
    })
}

/// Entries above which no `rte_hash` is made: it takes more than 24 bytes for each.
const RTE_MOST: u64 = 1 << 26;

fn print(m: &Measured) {
    println!(
        "\n{} entries of {} bits in {:.2} s, {:.2} of the processor ({:.2} M/s); {:.2} bytes each; {:.1} % of slots taken; \
         {:.1} % of entries cost one bucket",
        m.entries,
        m.key_bits,
        m.fill_s,
        m.fill_cpu_s,
        m.entries as f64 / m.fill_cpu_s / 1e6,
        m.bytes as f64 / m.entries as f64,
        m.load * 100.0,
        m.at_home * 100.0,
    );
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    println!(
        "  {:.0} MiB in huge pages set aside, {:.0} in transparent ones, {:.1} in pages of 4 KiB; random lines of {:.0} MiB",
        mib(m.hugetlb_bytes),
        mib(m.transparent_bytes),
        mib(m.ordinary_bytes),
        mib(m.random_lines_bytes)
    );
    if let Some(why) = &m.alone {
        println!("  beside no rte_hash: {why}");
    }
    println!("  readers burst  kind          table        M/s    best  updates M/s   left  restarts/s");
    for row in &m.rows {
        let left = row.left.map_or(String::new(), |left| format!("{:.0} %", left * 100.0));
        let table = if row.kind == "random lines" { "" } else { row.table };
        println!(
            "  {:>7} {:>5}  {:<12}  {table:<9} {:>6.1}  {:>6.1}  {:>11.2} {left:>6} {:>11.0}",
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
        Memory::Huge if !args.alone => Some(Eal::start(memory, &[])?),
        _ => None,
    };
    let mut all = vec![];
    for &entries in &args.entries {
        let measured = match args.key {
            48 => measure::<Key48>(&args, eal, entries),
            64 => measure::<Key64>(&args, eal, entries),
            144 => measure::<Key144>(&args, eal, entries),
            other => anyhow::bail!("--key {other}: one of 48, 64, 144"),
        }?;
        print(&measured);
        all.push(measured);
        if let Some(folder) = args.json.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&args.json, serde_json::to_string_pretty(&all)?)
            .with_context(|| args.json.display().to_string())?;
    }
    println!("\nwritten to {}", args.json.display());
    Ok(())
}
