//! What a wall costs: one NF, before and behind each kind of wall, packets of two lengths; both sides have a CPU of their own.
//!
//! ```console
//! cargo run --release -p bondstone-cli --example crossings
//! ```
//!
//! Runs alternate; medians are printed. Cycles are those of this side for one packet, there and back, with the copy each
//! way, and those of the other for taking it, in the NF, and for giving it back; the rate is what both sides can do together. `ring` is another CPU and no wall: packets are handed over as they are,
//! and nothing is copied. Who names isolations, as in `crossings process`, has only these measured.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, ExitCode};

/// What is measured, and by what packets get there.
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
/// Runs of each kind, and how long one takes.
const RUNS: usize = 5;
const TIME: &str = "2s";

/// What a run has shown.
#[derive(Clone, Copy)]
struct Seen {
    mpps: f64,
    there: f64,
    back: f64,
    inner_take: f64,
    inner_hand: f64,
    nf: f64,
}

fn run(program: &Path, folder: &Path, (isolation, by): (&str, &str), size: u32) -> Option<Seen> {
    let file = folder.join(format!("{isolation}-{by}-{size}.toml"));
    let ports = format!("port.in.device = \"null,size={size}\"\nport.out.device = \"null\"\n");
    let rest = match isolation {
        "ring" => {
            "port.ring.device = \"ring\"\n[nf.mac]\nkind = \"l2fwd\"\n[[chain]]\npath = [\"in\", \"ring\"]\ncores = [1]\n\
             [[chain]]\npath = [\"ring\", \"mac\", \"out\"]\ncores = [0]\n"
                .to_owned()
        }
        _ => {
            let wall = if by.is_empty() { String::new() } else { format!("[wall.mac]\ntransport = \"{by}\"\n") };
            format!(
                "[nf.mac]\nkind = \"l2fwd\"\nisolation = \"{isolation}\"\n{wall}[[chain]]\npath = [\"in\", \"mac\", \"out\"]\n"
            )
        }
    };
    let text = format!("bondstone = 1\n{ports}{rest}");
    std::fs::write(&file, text).ok()?;
    let ran = Command::new(program).arg("run").arg(&file).args(["--for", TIME, "--json"]).output().ok()?;
    let summary: Value = serde_json::from_slice(&ran.stdout).ok()?;
    let number = |of: &Value| of.as_f64().unwrap_or_default();
    let per_packet = |of: &Value| number(&of["cycles"]) / number(&of["packets"]).max(1.0);
    let (wall, nf) = (&summary["walls"][0], &summary["nfs"][0]);
    let out = summary["ports"].as_array()?.iter().find(|port| port["name"] == "out")?;
    Some(Seen {
        mpps: number(&out["sent"]) / number(&summary["seconds"]) / 1e6,
        there: per_packet(&wall["hand"]),
        back: per_packet(&wall["take"]),
        inner_take: per_packet(&wall["inner_take"]),
        inner_hand: per_packet(&wall["inner_hand"]),
        nf: per_packet(&nf["cycles"]),
    })
}

fn median(all: &[Seen], of: fn(&Seen) -> f64) -> f64 {
    let mut all: Vec<f64> = all.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() -> ExitCode {
    let own = std::env::current_exe().expect("a program has a path");
    let program = own.ancestors().nth(2).map(|folder| folder.join("bondstone")).filter(|program| program.exists());
    let Some(program) = program else {
        eprintln!("the program is not there: cargo build --release -p bondstone");
        return ExitCode::from(3);
    };
    let folder = std::env::temp_dir().join(format!("crossings-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for chain files");
    println!(
        "{:<9} {:<15} {:>6} {:>7} {:>13} {:>12} {:>10} {:>10} {:>10}",
        "isolation",
        "transport",
        "bytes",
        "Mpps",
        "cycles there",
        "cycles back",
        "its taking",
        "in the NF",
        "its giving"
    );
    // all, or those whose isolation is named
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |kind: &(&str, &str)| named.is_empty() || named.iter().any(|name| name == kind.0);
    let kinds: Vec<_> = [60, 1500]
        .map(|size| KINDS.into_iter().filter(is_wanted).map(move |kind| (kind, size)))
        .into_iter()
        .flatten()
        .collect();
    let mut all = vec![vec![]; kinds.len()];
    let mut failed = vec![];
    for _ in 0..RUNS {
        for ((kind, size), seen) in kinds.iter().zip(&mut all) {
            match run(&program, &folder, *kind, *size) {
                Some(one) => seen.push(one),
                None => failed.push(format!("{} {}", kind.0, kind.1).trim().to_owned()),
            }
        }
    }
    for (((isolation, by), size), seen) in kinds.iter().zip(&all).filter(|(_, seen)| !seen.is_empty()) {
        let (mpps, nf) = (median(seen, |s| s.mpps), median(seen, |s| s.nf));
        let (there, back) = (median(seen, |s| s.there), median(seen, |s| s.back));
        let (taking, giving) = (median(seen, |s| s.inner_take), median(seen, |s| s.inner_hand));
        println!(
            "{isolation:<9} {by:<15} {size:>6} {mpps:>7.2} {there:>13.1} {back:>12.1} {taking:>10.1} {nf:>10.1} {giving:>10.1}"
        );
    }
    // errors: it is a folder for passing files
    let _ = std::fs::remove_dir_all(folder);
    if !failed.is_empty() {
        eprintln!("error: no summary of {}; try one: bondstone run, with this isolation", failed.join(", "));
        return ExitCode::from(4);
    }
    ExitCode::SUCCESS
}
