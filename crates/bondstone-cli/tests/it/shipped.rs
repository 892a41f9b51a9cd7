//! Shipped scenarios with short trials: every cell is measured and forwards packets.

use crate::common::{Scratch, bondstone};
use report::{Document, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Huge pages of 2 MiB that Open vSwitch and the generator need.
const REQUIRED_PAGES: usize = 400;

/// Returns true if the requirements are met; prints what is missing.
fn has_requirements() -> bool {
    let missing = match () {
        () if runtime::allowed_cpus().len() < 2 => "two CPUs",
        () if !rustix::process::geteuid().is_root() => "root, for network namespaces",
        () if !Path::new("/usr/bin/ovs-vsctl").exists() => "Open vSwitch",
        () if dpdk::Memory::free_huge_pages() < REQUIRED_PAGES => "400 free huge pages of 2 MiB",
        () => return true,
    };
    eprintln!("skipped: needs {missing}");
    false
}

/// Measures the cells of a scenario at a load that all devices carry.
fn measure(name: &str) -> Vec<Result> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scenarios/{name}.toml"));
    let scratch = Scratch::new();
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let output = bondstone([
        "bench",
        file.to_str().unwrap(),
        "--frames",
        "64",
        "--rate",
        "2000",
        "--goal",
        "quick,final=100ms,sum=200ms,first=100ms",
        "--json",
        "--db",
        db.to_str().unwrap(),
        "--report",
        page.to_str().unwrap(),
    ]);
    // 1: host interference invalidated every trial
    assert!(matches!(output.status, Some(0 | 1)), "{name}: {}", output.err);
    let all: Vec<Value> =
        serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}\n{}\n{}", output.out, output.err));
    let all: Vec<Result> = all.iter().map(|r| Document::read(&r.to_string()).unwrap().into_result()).collect();
    for result in &all {
        let (sent, received): (u64, u64) = result.trials.iter().fold((0, 0), |(s, r), t| (s + t.sent, r + t.received));
        assert!(received > 0, "{name}, {:?}: none of {sent} packets was received: {}", result.cell, output.err);
    }
    all
}

fn values(all: &[Result], parameter: &str) -> BTreeSet<String> {
    all.iter().map(|r| r.cell[parameter].clone()).collect()
}

#[test]
#[ignore = "half a minute: make soak"]
fn measures_external_devices() {
    let _one = crate::common::alone();
    if !has_requirements() {
        return;
    }
    let all = measure("nfpa/traces");
    assert_eq!((values(&all, "dut").len(), values(&all, "trace").len(), all.len()), (2, 4, 8));
}

#[test]
fn measures_devices_of_custom_commands() {
    let _one = crate::common::alone();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, for network namespaces");
        return;
    }
    let all = measure("dataplanes/fig7");
    assert_eq!((values(&all, "dut").len(), all.len()), (2, 2));
}

#[test]
fn measures_chains_in_this_process() {
    let _one = crate::common::alone();
    if runtime::allowed_cpus().len() < 2 {
        eprintln!("skipped: needs two CPUs");
        return;
    }
    let all = measure("dataplanes/fig2");
    assert_eq!((values(&all, "nf").len(), all.len()), (2, 2));
}
