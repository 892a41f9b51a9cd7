//! Shipped scenarios: two of each study in their quick form, and devices at a load that all carry.

use crate::common::sandboxed_run::{leftovers_of, possible, sandbox_processes, until};
use crate::common::{Running, Said, Scratch, bondstone};
use report::{Document, Result};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    let file = scenarios().join(format!("{name}.toml"));
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

/// Reproduces scenarios in their quick form and returns their documents, which have a verdict on each claim.
fn reproduce(arguments: &[&str]) -> Vec<Value> {
    let scratch = Scratch::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bondstone"));
    command.arg("reproduce").args(arguments).args(["--quick", "--json"]);
    command.env("BONDSTONE_SCENARIOS", scenarios());
    command.arg("--db").arg(scratch.path("results.sqlite")).arg("--report").arg(scratch.path("report.html"));
    let output: Said = command.output().unwrap().into();
    // 3: a device needs what this machine lacks, such as huge pages
    assert!(matches!(output.status, Some(0 | 3)), "{arguments:?}: {}", output.err);
    let documents: Vec<Value> = serde_json::from_str(&output.out).unwrap_or_else(|e| panic!("{e}: {}", output.err));
    for document in &documents {
        for finding in document["findings"].as_array().unwrap() {
            let (verdict, reason) = (finding["verdict"].as_str().unwrap(), finding["reason"].as_str());
            assert_eq!(verdict == "not testable here", reason.is_some_and(|reason| !reason.is_empty()), "{finding}");
        }
    }
    let page = std::fs::read_to_string(scratch.path("report.html")).unwrap_or_default();
    let is_shown = |document: &Value| page.contains(document["scenario"].as_str().unwrap());
    let measured = |document: &Value| document["results"].as_array().is_some_and(|all| !all.is_empty());
    assert!(documents.iter().filter(|document| measured(document)).all(is_shown));
    documents
}

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

#[test]
fn two_scenarios_of_each_study_run_in_quick_form() {
    let _one = crate::common::alone();
    if runtime::allowed_cpus().len() < 2 {
        eprintln!("skipped: needs two CPUs");
        return;
    }
    for name in [
        "netbricks/latency",
        "netbricks/ttl",
        "dataplanes/fig3",
        "dataplanes/table1",
        "nfv-scale/fig3",
        "nfv-scale/fig8",
        "multi-vnf/features",
        "multi-vnf/fig8",
        "nfpa/fig2",
        "nfpa/traces",
    ] {
        let [document] = &reproduce(&[name])[..] else { panic!("{name}") };
        assert!(!document["findings"].as_array().unwrap().is_empty(), "{document}");
        // chains in this process need nothing else
        let needs_more = ["dataplanes/table1", "dataplanes/fig3", "nfpa/fig2", "nfpa/traces"].contains(&name);
        assert!(needs_more || !document["results"].as_array().unwrap().is_empty(), "{document}");
    }
}

#[test]
#[ignore = "half an hour: make soak"]
fn all_scenarios_run_in_quick_form() {
    let _one = crate::common::alone();
    let documents = reproduce(&["--all"]);
    let studies: BTreeSet<&str> = documents.iter().filter_map(|d| d["scenario"].as_str()?.split('/').next()).collect();
    assert_eq!(studies.len(), 5, "{studies:?}");
}

#[test]
fn nothing_is_left_of_63_vnfs_after_a_kill() {
    let _one = crate::common::alone();
    if !possible("process") {
        return;
    }
    let text = std::fs::read_to_string(scenarios().join("nfv-scale/chain-vnfs.toml")).unwrap();
    let text = text.replace("${vnfs}", "63").replace("${isolation}", "process").replace("${idle}", "sleep");
    let text = text.replace("ring:lan", "null").replace("ring:wan", "null");
    let scratch = Scratch::new();
    let mut running = Running::run(&scratch.write("vnfs.toml", text), &[]);
    running.started();
    let id = running.id();
    assert!(sandbox_processes(id).len() >= 63, "{:?}", sandbox_processes(id));
    running.signal(Signal::KILL);
    until("the end of all processes", || leftovers_of(id).is_empty());
}
