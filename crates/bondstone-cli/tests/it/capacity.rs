//! `bondstone plan --capacity`.

use crate::common::{Scratch, alone, bondstone, has_cpu_0_and_another};
use serde_json::Value;
use std::path::Path;

fn plan(file: &Path) -> Value {
    let output = bondstone(["plan", "--capacity", file.to_str().unwrap(), "--json"]);
    assert_eq!(output.status, Some(0), "{}", output.err);
    serde_json::from_str(&output.out).unwrap()
}

#[test]
fn a_server_has_the_capacity_of_its_cpus_and_ports() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/capacity/server.toml");
    let printed = plan(&file);
    assert_eq!((&printed["vnfs_per_port"], &printed["vnfs_per_server"]), (&8.into(), &32.into()));
    let changes = printed["changes"].as_array().unwrap();
    let of = |name: &str| changes.iter().find(|change| change["change"] == name).unwrap();
    assert_eq!((&of("none")["vnfs"], &of("one more CPU")["vnfs"]), (&32.into(), &33.into()));
    assert_eq!(of("forwarding in one table of the host")["vnfs"], 252);
    let table = bondstone(["plan", "--capacity", file.to_str().unwrap()]);
    assert!(table.out.contains("8 per port") && table.out.contains("limited by"), "{}", table.out);
}

#[test]
fn a_wrong_description_is_refused() {
    let scratch = Scratch::new();
    let file = scratch.write("server.toml", "bondstone = 1\n[server]\ncpus = 0\n");
    let output = bondstone(["plan", "--capacity", file.to_str().unwrap()]);
    assert_eq!(output.status, Some(2));
    assert!(output.err.contains("server.toml:2"), "{}", output.err);
    let neither = bondstone(["plan"]);
    assert!(neither.status == Some(2) && neither.err.contains("<CHAIN>"), "{}", neither.err);
}

/// Returns the throughput in packets per second of a chain with this NF; `None` if others used the CPUs.
fn measured(scratch: &Scratch, nf: &str) -> Option<f64> {
    let text = format!(
        "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n[nf.vnf]\n{nf}\n\
         [[chain]]\npath = [\"in\", \"vnf\", \"out\"]\ncores = [0]\n"
    );
    let (file, db, page) = (scratch.write("chain.toml", text), scratch.path("db"), scratch.path("page.html"));
    let [file, db, page] = [&file, &db, &page].map(|path| path.to_str().unwrap());
    let goal = ["--goal", "quick,loss=1%", "--frames", "64", "--json"];
    let output = bondstone(["bench", file, "--db", db, "--report", page].iter().chain(&goal).copied());
    let results: Value = serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}: {}", output.err));
    results.pointer("/0/summary/lower_pps").and_then(Value::as_f64).filter(|rate| *rate > 0.0)
}

/// The throughput of a VNF in a process that shares its CPU with the switch, from the cycles of its parts.
#[test]
#[ignore = "measures times, half a minute: make soak"]
fn the_estimate_agrees_with_a_measurement() {
    const CLOCK: f64 = 2e9;
    let _alone = alone();
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let work = |cycles: u32| format!("kind = \"work\"\ncycles = {cycles}\n");
    let in_process = |nf: &str| format!("{nf}isolation = \"process\"\n[sandbox.vnf]\ncores = [0]\n");
    let mut errors = vec![];
    // repeated where others used the CPUs
    for _ in 0..5 {
        let cycles = |nf: &str| Some(CLOCK / measured(&scratch, nf)?);
        // the cost of a crossing depends on the cost of the NF, by the sizes of batches: that of an NF of similar cost
        let (Some(nf), Some(other)) = (cycles(&work(1000)), cycles(&work(500))) else { continue };
        let (Some(both), Some(other_both)) = (cycles(&in_process(&work(1000))), cycles(&in_process(&work(500)))) else {
            continue;
        };
        let crossing = (other_both - other).max(0.0);
        let text = format!(
            "bondstone = 1\n[server]\ncpus = 1\nclock_ghz = {}\nports = 1\nport_rate = \"100 Gbps\"\nvnfs_per_port = 1\n\
             [vnf]\ncycles = {nf}\ncrossing = {crossing}\npolls = false\n[traffic]\nframes = [64]\n",
            CLOCK / 1e9
        );
        let printed = plan(&scratch.write("server.toml", text));
        let estimate = printed.pointer("/frames/0/one/throughput_pps").and_then(Value::as_f64).unwrap();
        let error = estimate / (CLOCK / both) - 1.0;
        println!(
            "estimated {:.3} Mpps, measured {:.3} Mpps: {:+.1} %",
            estimate / 1e6,
            CLOCK / both / 1e6,
            error * 100.0
        );
        if error.abs() <= 0.2 {
            return;
        }
        errors.push(error);
    }
    panic!("errors of the estimates in five attempts: {errors:?}");
}
