//! Writes a report of synthetic results: `cargo run -p bondstone-report --example sample -- [SET] FILE.html`, or the
//! documents with FILE.json. SET is `all` (default), `one` result, a study of `chain` lengths, or repetitions
//! (`repeated`).
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

mod samples;

use report::{Frames, NfInstance, Result};
use std::error::Error;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (which, file) = match arguments.as_slice() {
        [file] => ("all", file),
        [which, file] => (which.as_str(), file),
        _ => return Err("specify one file to write".into()),
    };
    let results = match which {
        "all" => sizes(),
        "one" => vec![samples::result("bondstone", Frames::FrameBytes(64), 210.0)],
        "chain" => chains()?,
        "repeated" => repeated()?,
        other => return Err(format!("unknown set `{other}`; valid: all, one, chain, repeated").into()),
    };
    if file.ends_with(".json") {
        let texts: std::result::Result<Vec<String>, _> =
            results.iter().map(|r| Ok(r.verify()?.text().to_owned())).collect();
        let texts: Vec<String> = texts.map_err(|e: report::Error| e)?;
        std::fs::write(file, texts.join("\n"))?;
    } else {
        std::fs::write(file, report::html(&results))?;
    }
    print!("{}", report::table(&results));
    Ok(())
}

fn sizes() -> Vec<Result> {
    let results =
        |kind: &'static str, cycles: f64| samples::sizes().into_iter().map(move |f| samples::result(kind, f, cycles));
    results("bondstone", 208.0).chain(results("native", 196.0)).collect()
}

/// Chains of 1 to 8 NFs with three types of isolation.
fn chains() -> std::result::Result<Vec<Result>, report::Error> {
    let mut out = Vec::new();
    for (isolation, first, each) in [("inproc", 180.0, 32.0), ("process", 320.0, 260.0), ("vm", 420.0, 480.0)] {
        for length in 1..=8u32 {
            let mut r = samples::result("bondstone", Frames::FrameBytes(64), first + each * f64::from(length - 1));
            r.cell.insert("isolation".to_owned(), isolation.to_owned());
            r.cell.insert("chain length".to_owned(), length.to_string());
            r.dut.nfs = vec![NfInstance { name: "guard".to_owned(), kind: "ttl".to_owned() }];
            r.assign_id()?;
            out.push(r);
        }
    }
    Ok(out)
}

/// Two DUTs and two frame sizes, seven repetitions each.
fn repeated() -> std::result::Result<Vec<Result>, report::Error> {
    let mut out = Vec::new();
    for n in 0..7u32 {
        for (kind, cycles) in [("bondstone", 310.0), ("native", 290.0)] {
            for bytes in [64, 512] {
                let noise = f64::from(n * 5 % 7) * if kind == "native" { 2.0 } else { 5.0 };
                let mut r = samples::result(kind, Frames::FrameBytes(bytes), cycles + noise);
                r.environment.date = format!("2026-03-{:02}T12:00:00Z", n + 1);
                r.assign_id()?;
                out.push(r);
            }
        }
    }
    Ok(out)
}
