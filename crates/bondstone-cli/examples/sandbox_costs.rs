//! Measures the cost of sandboxes: one NF in this process and in each kind of sandbox, with two packet sizes. Host side
//! and sandbox each have a CPU.
//!
//! ```console
//! cargo run --release -p bondstone-cli --example sandbox_costs
//! ```
//!
//! Runs are interleaved; the medians are printed: the rate, the host side's cycles per packet for sending and
//! receiving, with copies, and the sandbox's cycles for receiving, in the NF, and for sending. `ring` is a ring to
//! another CPU of the same process, without copies. Arguments select isolations: `sandbox_costs process`.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Isolation and transport.
const KINDS: [(&str, &str); 8] = [
    ("inproc", ""),
    ("ring", ""),
    ("process", "vhost"),
    ("process", "memif"),
    ("process", "memif-zero-copy"),
    ("process", "rings"),
    ("container", "vhost"),
    ("vm", "vhost"),
];
/// Runs of each kind.
const RUNS: usize = 5;
/// Duration of a run.
const DURATION: &str = "2s";

/// Rate, and cycles per packet of a run.
#[derive(Clone, Copy)]
struct Sample {
    mpps: f64,
    host_send: f64,
    host_receive: f64,
    sandbox_receive: f64,
    sandbox_send: f64,
    nf: f64,
}

fn run(program: &Path, folder: &Path, (isolation, transport): (&str, &str), size: u32) -> Option<Sample> {
    let file = folder.join(format!("{isolation}-{transport}-{size}.toml"));
    let ports = format!("port.in.device = \"null,size={size}\"\nport.out.device = \"null\"\n");
    let nodes = match isolation {
        "ring" => {
            "port.ring.device = \"ring\"\n[nf.mac]\nkind = \"l2fwd\"\n[[chain]]\npath = [\"in\", \"ring\"]\ncores = [1]\n\
             [[chain]]\npath = [\"ring\", \"mac\", \"out\"]\ncores = [0]\n"
                .to_owned()
        }
        _ => {
            let sandbox = match transport {
                "" => String::new(),
                _ => format!("[sandbox.mac]\ntransport = \"{transport}\"\n"),
            };
            format!(
                "[nf.mac]\nkind = \"l2fwd\"\nisolation = \"{isolation}\"\n{sandbox}[[chain]]\npath = [\"in\", \"mac\", \"out\"]\n"
            )
        }
    };
    let text = format!("bondstone = 1\n{ports}{nodes}");
    std::fs::write(&file, text).ok()?;
    let output = Command::new(program).arg("run").arg(&file).args(["--for", DURATION, "--json"]).output().ok()?;
    let summary: Value = serde_json::from_slice(&output.stdout).ok()?;
    let number = |of: &Value| of.as_f64().unwrap_or_default();
    let per_packet = |of: &Value| number(&of["cycles"]) / number(&of["packets"]).max(1.0);
    let (sandbox, nf) = (&summary["sandboxes"][0], &summary["nfs"][0]);
    let out = summary["ports"].as_array()?.iter().find(|port| port["name"] == "out")?;
    Some(Sample {
        mpps: number(&out["sent"]) / number(&summary["seconds"]) / 1e6,
        host_send: per_packet(&sandbox["send"]),
        host_receive: per_packet(&sandbox["receive"]),
        sandbox_receive: per_packet(&sandbox["inner_receive"]),
        sandbox_send: per_packet(&sandbox["inner_send"]),
        nf: per_packet(&nf["cycles"]),
    })
}

fn median(all: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    let mut all: Vec<f64> = all.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() -> ExitCode {
    let own = std::env::current_exe().expect("the path of this program");
    let program = own.ancestors().nth(2).map(|folder| folder.join("bondstone")).filter(|program| program.exists());
    let Some(program) = program else {
        eprintln!("error: bondstone is not built\nhelp: cargo build --release -p bondstone-cli");
        return ExitCode::from(3);
    };
    let folder = std::env::temp_dir().join(format!("sandbox-costs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a directory for chain files");
    println!(
        "{:<9} {:<15} {:>6} {:>7} {:>8} {:>8} {:>10} {:>8} {:>10}",
        "isolation", "transport", "bytes", "Mpps", "host tx", "host rx", "sandbox rx", "NF", "sandbox tx"
    );
    let names: Vec<String> = std::env::args().skip(1).collect();
    let is_selected = |kind: &(&str, &str)| names.is_empty() || names.iter().any(|name| name == kind.0);
    let kinds: Vec<_> = [60, 1500]
        .map(|size| KINDS.into_iter().filter(is_selected).map(move |kind| (kind, size)))
        .into_iter()
        .flatten()
        .collect();
    let mut all = vec![vec![]; kinds.len()];
    let mut failed = vec![];
    for _ in 0..RUNS {
        for ((kind, size), samples) in kinds.iter().zip(&mut all) {
            match run(&program, &folder, *kind, *size) {
                Some(sample) => samples.push(sample),
                None => failed.push(format!("{} {}", kind.0, kind.1).trim().to_owned()),
            }
        }
    }
    for (((isolation, transport), size), samples) in kinds.iter().zip(&all).filter(|(_, samples)| !samples.is_empty()) {
        let (mpps, nf) = (median(samples, |s| s.mpps), median(samples, |s| s.nf));
        let (host_tx, host_rx) = (median(samples, |s| s.host_send), median(samples, |s| s.host_receive));
        let (rx, tx) = (median(samples, |s| s.sandbox_receive), median(samples, |s| s.sandbox_send));
        println!(
            "{isolation:<9} {transport:<15} {size:>6} {mpps:>7.2} {host_tx:>8.1} {host_rx:>8.1} {rx:>10.1} {nf:>8.1} {tx:>10.1}"
        );
    }
    // a leftover temporary directory is harmless
    let _ = std::fs::remove_dir_all(folder);
    if !failed.is_empty() {
        eprintln!("error: no result of {}\nhelp: check `bondstone run` with this isolation", failed.join(", "));
        return ExitCode::from(4);
    }
    ExitCode::SUCCESS
}
