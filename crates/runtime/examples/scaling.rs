//! One chain on one core, on two, and so on up to all that this process may use: how much of the sum is left.
//!
//! Every core takes blank frames from a queue of its own, changes and counts them, and gives them back; nothing is shared
//! but the memory's bandwidth and the processor's power. Rounds take turns, so that a busy machine slows all alike.
//!
//! `--rounds N`, 5 by default, of 0.3 s for each number of cores; `--json FILE` writes the figures.

use config::ChainFile;
use runtime::{Engine, Topology, allowed_cpus};
use std::path::Path;
use std::time::Duration;

const ROUND: Duration = Duration::from_millis(300);

#[derive(serde::Serialize)]
struct Row {
    cores: usize,
    /// Median over the rounds.
    mpps: f64,
    /// Of the slowest core in that round, and of the fastest.
    least_mpps: f64,
    most_mpps: f64,
    /// Of as many times what one core does.
    efficiency: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1));
    let rounds: usize = after("--rounds").map_or(Ok(5), |n| n.parse())?;
    let cpus = allowed_cpus();
    let siblings = Topology::read().cores.iter().filter(|core| core.len() > 1).count();
    println!("{} CPUs seen; {siblings} of the cores behind them have more than one", cpus.len());
    let mut seen: Vec<Vec<(f64, f64, f64)>> = vec![vec![]; cpus.len()];
    for _ in 0..rounds {
        for (cores, seen) in (1..=cpus.len()).zip(&mut seen) {
            seen.push(round(&cpus[..cores])?);
        }
    }
    let median = |seen: &[(f64, f64, f64)]| {
        let mut seen = seen.to_vec();
        seen.sort_by(|a, b| a.0.total_cmp(&b.0));
        seen[seen.len() / 2]
    };
    let one = median(&seen[0]).0;
    println!("\n  cores      Mpps  slowest core  fastest  of one core's times n");
    let mut rows = vec![];
    for (n, seen) in seen.iter().enumerate() {
        let (cores, (mpps, least_mpps, most_mpps)) = (n + 1, median(seen));
        let efficiency = mpps / (one * cores as f64);
        println!("  {cores:>5}{mpps:>10.2}{least_mpps:>14.2}{most_mpps:>9.2}{:>22.0} %", efficiency * 100.0);
        rows.push(Row { cores, mpps, least_mpps, most_mpps, efficiency });
    }
    if let Some(file) = after("--json") {
        std::fs::write(file, serde_json::to_string_pretty(&serde_json::json!({ "cpus": cpus, "rows": rows }))?)?;
        println!("\nwritten {file}");
    }
    Ok(())
}

/// Mpps of all these cores, and of the slowest and the fastest of them.
fn round(cpus: &[usize]) -> Result<(f64, f64, f64), Box<dyn std::error::Error>> {
    // a chain for each core, so that each is counted apart
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
        return Err("the counts of packets do not add up".into());
    }
    let mpps: Vec<f64> = before.iter().zip(&after).map(|(b, a)| (a - b) as f64 / (to - from) / 1e6).collect();
    let least = mpps.iter().copied().fold(f64::INFINITY, f64::min);
    Ok((mpps.iter().sum(), least, mpps.iter().copied().fold(0.0, f64::max)))
}
