//! `native-bench`: compares every NF in Rust with its C baseline, on the same packets, in one process and on one core.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

mod components;
mod fixture;
mod fresh;
mod nfs;
mod pair;
mod rows;
mod sample;
mod testpmd;
mod verify;

use anyhow::Context;
use clap::Parser;
use dpdk::{Eal, Memory, Mempool};
use serde::Serialize;
use std::path::PathBuf;

/// Compares the shipped NFs with their C baselines, in cycles of the time-stamp counter per 64-byte packet (66 bytes
/// with IPv6).
///
/// Samples of about 0.3 ms alternate between both on one pinned core. The ratio is the median over pairs of samples,
/// with the bounds of its 95 % confidence interval. Before measuring, both sides are verified to produce the same
/// packets.
#[derive(Parser)]
struct Args {
    /// CPU to run on; the default is the last one.
    #[arg(long)]
    core: Option<usize>,
    /// Pairs of samples per row.
    #[arg(long, default_value_t = 1500)]
    pairs: usize,
    /// Measures only rows whose name contains this text.
    #[arg(long, default_value = "")]
    only: String,
    /// JSON file for the results.
    #[arg(long, default_value = "target/bench/native.json")]
    json: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let cpus = runtime::allowed_cpus();
    let core = args.core.or(cpus.last().copied()).context("no CPU")?;
    runtime::pin(core).with_context(|| format!("CPU {core}; available: {cpus:?}"))?;
    let memory = Memory::best();
    if memory == Memory::Ordinary {
        eprintln!("warning: no huge pages: results are not meaningful\nhelp: echo 512 > /proc/sys/vm/nr_hugepages");
    }
    let eal = Eal::start(memory, &[])?;
    runtime::pin(core)?;
    let _lcore = eal.register_thread()?;
    println!(
        "CPU {core}, {:.0} MHz time-stamp counter, {}, bursts of {}, {} pairs of samples a row",
        packet::clock::hz() as f64 / 1e6,
        if memory == Memory::Huge { "huge pages" } else { "ordinary pages" },
        packet::BURST,
        args.pairs
    );
    println!("{:<34} {:>6} {:>15} {:>15} {:>7} {:>7}", "", "", "bondstone", "C", "ratio", "upper");
    println!("{:<34} {:>7} {:>7} {:>7} {:>7} {:>7}", "nf", "flows", "p05", "median", "p05", "median");
    let pool = Mempool::new(eal, (1 << 16) - 1)?;
    let rows = rows::run(eal, &pool, &args.only, args.pairs)?;
    let slopes = nfs::chains::slopes(&rows.rows);
    nfs::chains::print(&slopes);
    let other = cpus.iter().copied().find(|cpu| *cpu != core);
    let components = components::run(&args.only, args.pairs, (core, other), &pool)?;
    rows.compare_testpmd(core, &cpus)?;
    let results = Results { nfs: &rows.rows, slopes: &slopes, components: &components };
    if let Some(dir) = args.json.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(&args.json, serde_json::to_string_pretty(&results)?)
        .with_context(|| args.json.display().to_string())?;
    println!("\nwritten to {}", args.json.display());
    Ok(())
}

/// Contents of `native.json`.
#[derive(Serialize)]
struct Results<'a> {
    /// NFs compared with C.
    nfs: &'a [pair::Row],
    /// Cost of one more function in a chain.
    slopes: &'a [nfs::chains::Slope],
    /// Tables, state, links, streams and timers compared with alternatives.
    components: &'a [components::ComponentRow],
}
