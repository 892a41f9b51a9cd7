//! Scaling of one chain from one core to all cores that this process may use.
//!
//! Each core receives frames from a null port of its own, rewrites and counts them, and sends them. The cores share
//! only memory bandwidth and the power budget of the processor. Rounds are interleaved, so that other load affects all
//! alike.
//!
//! `--rounds N` (default 5) rounds of 0.3 s for each number of cores; `--json FILE` writes the results.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use config::ChainFile;
use runtime::{Engine, Topology, allowed_cpus};
use std::path::Path;
use std::time::Duration;

const ROUND: Duration = Duration::from_millis(300);

#[derive(serde::Serialize)]
struct Row {
    cores: usize,
    /// Median over all rounds.
    mpps: f64,
    /// Rate of the slowest core in the median round.
    min_mpps: f64,
    /// Rate of the fastest core in the median round.
    max_mpps: f64,
    /// Ratio to the rate of one core times the number of cores.
    efficiency: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let rounds: usize = after("--rounds").map_or(Ok(5), |n| n.parse())?;
    let cpus = allowed_cpus();
    let siblings = Topology::read().cores.iter().filter(|core| core.len() > 1).count();
    println!("{} CPUs; {siblings} cores have more than one of them", cpus.len());
    let mut results: Vec<Vec<(f64, f64, f64)>> = vec![vec![]; cpus.len()];
    for _ in 0..rounds {
        for (cores, results) in (1..=cpus.len()).zip(&mut results) {
            results.push(round(&cpus[..cores])?);
        }
    }
    let median = |rounds: &[(f64, f64, f64)]| {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        sorted[sorted.len() / 2]
    };
    let one = median(&results[0]).0;
    println!("\n  cores      Mpps  slowest core  fastest  efficiency");
    let mut rows = vec![];
    for (n, rounds) in results.iter().enumerate() {
        let (cores, (mpps, min_mpps, max_mpps)) = (n + 1, median(rounds));
        let efficiency = mpps / (one * cores as f64);
        println!("  {cores:>5}{mpps:>10.2}{min_mpps:>14.2}{max_mpps:>9.2}{:>10.0} %", efficiency * 100.0);
        rows.push(Row { cores, mpps, min_mpps, max_mpps, efficiency });
    }
    if let Some(file) = after("--json") {
        std::fs::write(file, serde_json::to_string_pretty(&serde_json::json!({ "cpus": cpus, "rows": rows }))?)?;
        println!("\nwrote {file}");
    }
    Ok(())
}

/// Measures the rate of all these cores together, and of the slowest and fastest core, in Mpps.
fn round(cpus: &[usize]) -> Result<(f64, f64, f64), Box<dyn std::error::Error>> {
    // one chain per core, so that each is counted separately
    let mut text = "bondstone = 1\n".to_owned();
    for cpu in cpus {
        text += &format!(
            "port.in{cpu}.device = \"null\"\nport.out{cpu}.device = \"null\"\nnf.mac{cpu}.kind = \"l2fwd\"\nnf.mac{cpu}.dst = \"02:00:00:00:00:01\"\n"
        );
    }
    for cpu in cpus {
        text += &format!("[[chain]]\npath = [\"in{cpu}\", \"mac{cpu}\", \"count\", \"out{cpu}\"]\ncores = [{cpu}]\n");
    }
    let file = ChainFile::parse(&text, Path::new("scaling.toml"), &nf::registry()).map_err(diagnostics::Diagnostics)?;
    let engine = Engine::start(&file)?;
    let sent = |engine: &Engine| {
        let snapshot = engine.snapshot();
        let of = |cpu: &usize| snapshot.ports.iter().find(|p| p.name == format!("out{cpu}")).map_or(0, |p| p.sent);
        (snapshot.seconds, cpus.iter().map(of).collect::<Vec<u64>>())
    };
    std::thread::sleep(ROUND / 10);
    let (from, before) = sent(&engine);
    std::thread::sleep(ROUND);
    let (to, after) = sent(&engine);
    let summary = engine.stop();
    if !summary.balanced {
        return Err("the packet counts do not balance".into());
    }
    let mpps: Vec<f64> = before.iter().zip(&after).map(|(b, a)| (a - b) as f64 / (to - from) / 1e6).collect();
    let min = mpps.iter().copied().fold(f64::INFINITY, f64::min);
    Ok((mpps.iter().sum(), min, mpps.iter().copied().fold(0.0, f64::max)))
}
