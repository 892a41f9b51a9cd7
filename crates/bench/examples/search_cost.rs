//! The trial time of the search on simulated devices, and those devices for other searches; see `scripts/mlrsearch.sh`.
//!
//! ```sh
//! cargo run --release -p bondstone-bench --example search_cost -- ours 9
//! ```
//!
//! `ours SEEDS` prints a line of JSON for each device, goal and seed. `device TEXT` reads lines with a load in packets
//! per second and a duration in seconds, and answers each with the packets intended and lost.
#![allow(clippy::print_stdout, reason = "a program that prints its results")]

use bench::simulated::Simulated;
use bench::{Goal, Limits, Next, SearchKind};
use std::io::{BufRead, Write};

const MIN_PPS: f64 = 9_001.0;
const MAX_PPS: f64 = 14_880_952.0;
/// Devices with a hard limit, with a soft one, with noise, and with stalls.
const DEVICES: [(&str, &str); 14] = [
    ("hard", "capacity=9e5"),
    ("hard", "capacity=3.3e6"),
    ("hard", "capacity=8.17e6"),
    ("hard", "capacity=1.4e7"),
    ("soft", "capacity=3.3e6,buffer=5000"),
    ("soft", "capacity=8.17e6,buffer=30000"),
    ("soft", "capacity=3.3e6,noise=uniform:0.01"),
    ("noisy", "capacity=3.3e6,noise=uniform:0.05"),
    ("noisy", "capacity=8.17e6,noise=normal:0.01"),
    ("noisy", "capacity=3.3e6,noise=normal:0.03"),
    ("noisy", "capacity=3.3e6,noise=modes:0.05"),
    ("noisy", "capacity=3.3e6,noise=normal:0.005,flaw=0.1"),
    ("stalling", "capacity=8.17e6,buffer=1000,stall=0.005/20"),
    ("stalling", "capacity=3.3e6,buffer=1000,stall=0.005/10,noise=normal:0.005"),
];
const GOALS: [&str; 3] = ["ndr", "pdr", "quick"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["ours", seeds] => ours(seeds.parse()?),
        ["device", text] => serve(text.parse()?),
        _ => Err("usage: search_cost ours SEEDS | device TEXT".into()),
    }
}

fn ours(seeds: u64) -> Result<(), Box<dyn std::error::Error>> {
    for (kind, text) in DEVICES {
        for name in GOALS {
            let goal: Goal = name.parse()?;
            for seed in 1..=seeds {
                let text = format!("{text},seed={seed}");
                let mut device: Simulated = text.parse()?;
                let span = |probability| device.expected_throughput(SearchKind::Mlr, &goal, probability, MAX_PPS);
                let (low, high) = (span(0.99), span(0.01) + 1.0);
                let mut search = SearchKind::Mlr.start(goal, Limits::new(MIN_PPS, MAX_PPS)?)?;
                let summary = loop {
                    match search.next() {
                        Next::Measure { load_pps, duration_s } => search.record(device.offer(load_pps, duration_s))?,
                        Next::Done(summary) => break summary,
                    }
                };
                let result = &summary.results[0];
                println!(
                    "{}",
                    serde_json::json!({
                        "kind": kind, "device": text, "goal": name, "seed": seed,
                        "loss_ratio": goal.loss_ratio(), "exceed_ratio": goal.exceed_ratio(), "width": goal.width(),
                        "initial_s": goal.initial_s(), "final_s": goal.final_s(), "sum_s": goal.sum_s(),
                        "min_pps": MIN_PPS, "max_pps": MAX_PPS, "low": low, "high": high,
                        "lower": result.lower_pps, "upper": result.upper_pps, "regular": result.regular,
                        "trials": summary.trials, "traffic_s": summary.traffic_s,
                    })
                );
            }
        }
    }
    Ok(())
}

fn serve(mut device: Simulated) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (load, seconds) = line.split_once(' ').ok_or("not a load and a duration")?;
        let trial = device.offer(load.parse()?, seconds.parse()?);
        writeln!(out, "{} {}", trial.intended, trial.lost + trial.unsent)?;
        out.flush()?;
    }
    Ok(())
}
