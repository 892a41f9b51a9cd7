//! `native-bench`: every NF in Rust and in C, in turn, on the same packets, in one process on one core.

mod beside;
mod chains;
mod conntrack;
mod firewall;
mod fixture;
mod fresh;
mod hosts;
mod maglev;
mod monitor;
mod nat;
mod router;
mod router6;
mod routes;
mod rows;
mod sample;
mod spread;
mod stations;
mod testpmd;
mod verify;

use anyhow::Context;
use clap::Parser;
use dpdk::{Eal, Memory, Mempool};
use serde::Serialize;
use std::path::PathBuf;

/// Measures the shipped NFs beside their C baselines, in cycles of the time-stamp counter per 64-byte packet
/// (66 bytes in IPv6).
///
/// Samples of about 0.3 ms alternate between the two on one pinned core. The ratio is the median over pairs of samples,
/// with the bounds of its 95 % confidence interval; above it, both sides are shown to turn the same packets into the same
/// packets.
#[derive(Parser)]
struct Args {
    /// CPU to run on; the last one by default.
    #[arg(long)]
    core: Option<usize>,
    /// Pairs of samples for each row.
    #[arg(long, default_value_t = 1500)]
    pairs: usize,
    /// Only rows whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
    /// Where the rows are written as JSON.
    #[arg(long, default_value = "target/bench/native.json")]
    json: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let cpus = runtime::allowed_cpus();
    let core = args.core.or(cpus.last().copied()).context("no CPU")?;
    runtime::pin(core).with_context(|| format!("CPU {core}; there are {cpus:?}"))?;
    let memory = Memory::best();
    if memory == Memory::Ordinary {
        eprintln!("warning: no huge pages: these figures say nothing; echo 512 > /proc/sys/vm/nr_hugepages");
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
    let slopes = chains::slopes(&rows.rows);
    chains::print(&slopes);
    let other = cpus.iter().copied().find(|cpu| *cpu != core);
    let beside = beside::run(&args.only, args.pairs, (core, other), &pool)?;
    rows.compare(core, &cpus)?;
    let written = Written { nfs: &rows.rows, slopes: &slopes, beside: &beside };
    if let Some(dir) = args.json.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::write(&args.json, serde_json::to_string_pretty(&written)?)
        .with_context(|| args.json.display().to_string())?;
    println!("\nwritten to {}", args.json.display());
    Ok(())
}

/// `native.json`.
#[derive(Serialize)]
struct Written<'a> {
    /// NFs beside C.
    nfs: &'a [rows::Row],
    /// What one more function costs.
    slopes: &'a [chains::Slope],
    /// Tables, state, links, streams and timers beside what one would take instead.
    beside: &'a [beside::Row],
}
