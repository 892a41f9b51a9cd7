//! `bondstone bench` as a user runs it: what it prints, what it keeps, what it refuses.

mod common;

use common::{Scratch, bondstone};
use serde_json::Value;

const ROUTER: &str = r#"
bondstone = 1
port.lan.device = "tap:lan0"
port.wan.device = "tap:wan0"

[nf.fw]
kind = "firewall"
rules = ["drop proto tcp", "accept src 10.0.0.0/8"]

[nf.router]
kind = "l3fwd"
interface.lan = { addresses = ["10.0.0.1/8"], mac = "02:00:00:00:01:00" }
interface.wan = { addresses = ["192.0.2.2/24"] }
route = [{ prefix = "0.0.0.0/0", via = ["192.0.2.1"] }]
neighbour = { "192.0.2.1" = "02:00:00:00:02:01" }

[[chain]]
path = ["lan", "fw", "router"]
cores = [0]

[traffic]
into = "lan"
dst_mac = "02:00:00:00:01:00"
src = "10.0.0.0/16"
"#;

/// Whether there is a CPU for the generator; says so where not.
fn possible() -> bool {
    let cpus = runtime::allowed_cpus();
    let enough = cpus.len() > 1 && cpus.contains(&0);
    if !enough {
        eprintln!("skipped: needs CPU 0 and one more");
    }
    enough
}

fn bench(scratch: &Scratch, chain: &str, arguments: &[&str]) -> common::Said {
    let file = scratch.write("chain.toml", chain);
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let fixed = ["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--report", page.to_str().unwrap()];
    bondstone(fixed.iter().chain(arguments).copied())
}

fn results(said: &common::Said) -> Vec<Value> {
    let results: Vec<Value> = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {}", said.out));
    // a busy machine loses packets at any rate
    let met = results.iter().all(|r| r["summary"]["lower_pps"].as_f64() > Some(0.0));
    assert_eq!(said.status, Some(i32::from(!met)), "{}", said.err);
    results
}

#[test]
fn every_packet_of_a_trial_is_accounted_for_and_every_result_kept() {
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let arguments = ["--frames", "64,imix,(64:1,1518:1)", "--flows", "100", "--rate", "100000", "--json"];
    let said = bench(&scratch, ROUTER, &[&arguments[..], &["--goal", "quick,final=20ms,sum=60ms,first=20ms"]].concat());
    let results = results(&said);
    assert_eq!(results.len(), 3);
    for result in &results {
        let document = report::Document::read(&result.to_string()).expect("it is what its id says");
        let result = document.result();
        // spoilt ones are made again
        assert!((3..=6).contains(&result.trials.len()), "{}", result.trials.len());
        for t in &result.trials {
            assert_eq!(t.intended, 2000);
            assert_eq!((t.sent + t.unsent, t.received + t.lost), (t.intended, t.sent));
            assert_eq!((t.duplicate, t.corrupt), (0, 0));
        }
        let received: u64 = result.trials.iter().map(|t| t.received).sum();
        assert!(received > 0, "nothing came back");
        let router = result.nodes.iter().find(|n| n.kind == "l3fwd").expect("the router is among the nodes");
        assert!(router.packets >= received);
        assert!(result.latency.iter().all(|l| l.p50_ns > 0.0));
    }
    let mix = results[2]["traffic"]["frames"]["mix"]["parts"].as_array().expect("a mix");
    assert_eq!(mix.len(), 2);
    let store = results::Store::open(&scratch.path("results.sqlite")).unwrap();
    assert_eq!(store.list(&results::Filter::default()).unwrap().len(), 3);
    let page = std::fs::read_to_string(scratch.path("report.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("l3fwd"));
}

#[test]
fn a_search_ends_with_a_table() {
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let goal = ["--goal", "quick,loss=50%,final=10ms,sum=10ms,first=10ms,width=50%", "--frames", "512"];
    let said = bench(&scratch, ROUTER, &goal);
    assert!(matches!(said.status, Some(0 | 1)), "{}", said.err);
    for word in ["512", "Mpps", "p99.9", "limited by", "cycles per packet", "results.sqlite", "report.html"] {
        assert!(said.out.contains(word), "{word}: {}", said.out);
    }
}

#[test]
fn traffic_that_the_chain_drops_is_explained() {
    if !possible() {
        return;
    }
    let scratch = Scratch::new();
    let chain = ROUTER.replace("dst_mac = \"02:00:00:00:01:00\"", "dst_mac = \"02:00:00:00:99:99\"");
    let goal = ["--goal", "quick,final=10ms,sum=10ms,first=10ms,width=50%", "--frames", "64"];
    let said = bench(&scratch, &chain, &goal);
    assert!(said.err.contains("other_mac") && said.err.contains("dst_mac"), "{}", said.err);
    assert_eq!(said.status, Some(1), "no rate meets the goal: {}", said.err);
}

#[test]
fn wrong_input_is_named() {
    let scratch = Scratch::new();
    for (chain, arguments, words) in [
        (ROUTER.to_owned(), &["--frames", "63"][..], &["--frames", "63"][..]),
        (ROUTER.to_owned(), &["--frames", "imax"], &["--frames", "imax"]),
        (ROUTER.to_owned(), &["--flows", "0"], &["--flows", "0"]),
        (ROUTER.to_owned(), &["--loss", "lots"], &["--loss", "lots"]),
        (ROUTER.replace("into = \"lan\"", "into = \"wan\""), &[], &["wan", "lan"]),
        (ROUTER.replace("src = \"10.0.0.0/16\"", "src = \"10.0.0.0/99\""), &[], &["10.0.0.0/99"]),
        (ROUTER.replace("src = \"10.0.0.0/16\"", "prefixes = \"absent.txt\""), &[], &["absent.txt"]),
        (ROUTER.replace("src = ", "source = "), &[], &["source"]),
    ] {
        let said = bench(&scratch, &chain, arguments);
        assert_eq!(said.status, Some(2), "{arguments:?}: {}", said.err);
        for word in words {
            assert!(said.err.contains(word), "{word}: {}", said.err);
        }
    }
}

#[test]
fn a_database_that_is_none_is_refused_before_anything_runs() {
    let scratch = Scratch::new();
    let file = scratch.write("chain.toml", ROUTER);
    let db =
        scratch.write("results.sqlite", "no database at all, but some text that is long enough to be one".repeat(20));
    let said = bondstone(["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--frames", "64"]);
    assert!(said.status != Some(0) && said.err.contains("results.sqlite"), "{}", said.err);
}
