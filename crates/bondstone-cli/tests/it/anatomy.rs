//! `bondstone bench --anatomy`: the parts of the latency of traced probes.

use crate::common::sandboxed_run::possible;
use crate::common::{Scratch, bondstone, has_cpu_0_and_another};
use report::{LatencyAnatomy, LatencyPart, PartKind};
use std::collections::BTreeSet;

/// A chain of two NFs.
const CHAIN: &str = "bondstone = 1\nport.lan.device = \"ring:lan\"\nport.wan.device = \"ring:wan\"\n\
                     nf.hop.kind = \"ttl\"\nnf.counter.kind = \"count\"\n\
                     chain = [{ path = [\"lan\", \"hop\", \"counter\", \"wan\"], cores = [0] }]\n";

/// Measures a chain at one load; returns its result.
fn measure(chain: &str, arguments: &[&str]) -> report::Result {
    let scratch = Scratch::new();
    let file = scratch.write("chain.toml", chain);
    let db = scratch.path("results.sqlite");
    let fixed = ["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--frames", "64", "--json"];
    let said = bondstone(fixed.iter().chain(&["--anatomy"]).chain(arguments).copied());
    assert!(matches!(said.status, Some(0 | 1)), "{}", said.err);
    let mut results = said.results();
    assert_eq!(results.len(), 1, "{}", said.err);
    results.remove(0)
}

const AT_RATE: [&str; 4] = ["--rate", "100000", "--goal", "quick,final=20ms,sum=100ms,first=20ms"];

/// Asserts that every packet and every traced probe is accounted for, and that parts add up; returns the labels of the
/// parts.
#[track_caller]
fn parts(result: &report::Result) -> BTreeSet<String> {
    for t in &result.trials {
        assert_eq!((t.sent + t.unsent, t.received + t.lost), (t.intended, t.sent));
    }
    let sent: u64 = result.trials.iter().map(|t| t.sent).sum();
    let mut labels = BTreeSet::new();
    for anatomy in &result.anatomy {
        let LatencyAnatomy { probes, lost, incomplete, invalid, mean_ns, residual_max_ns, parts, .. } = anatomy;
        assert!(*probes > 0 && probes + lost + incomplete + invalid <= sent, "{anatomy:?}");
        // each part is rounded to a nanosecond
        assert!(*residual_max_ns <= parts.len() as f64, "{anatomy:?}");
        let sum: f64 = parts.iter().map(|part| part.mean_ns).sum();
        assert!((sum - mean_ns).abs() <= residual_max_ns + 1e-6, "{sum}: {anatomy:?}");
        assert!(parts.iter().all(|part| (1..=*probes).contains(&part.probes)), "{anatomy:?}");
        labels.extend(parts.iter().map(LatencyPart::label));
    }
    labels
}

fn set(labels: &[&str]) -> BTreeSet<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

#[test]
fn parts_of_a_chain_in_one_process_add_up() {
    if !has_cpu_0_and_another() {
        return;
    }
    let result = measure(CHAIN, &AT_RATE);
    assert_eq!(result.anatomy.len(), 1);
    assert_eq!(result.anatomy[0].load_pps, 100_000.0);
    assert_eq!(parts(&result), set(&["generator", "queue lan", "switch", "NF hop", "NF counter", "queue wan"]));
    // the probes pass everything, in this order
    let kinds = result.anatomy[0].parts.iter().map(|part| part.kind).collect::<Vec<_>>();
    use PartKind::{Generator, Nf, Queue, Switch};
    assert_eq!(kinds, [Generator, Queue, Switch, Nf, Nf, Queue]);
    let found = measure(CHAIN, &["--goal", "quick,loss=50%,final=10ms,sum=10ms,first=10ms,width=50%"]);
    let shares: Vec<_> = found.anatomy.iter().filter_map(|a| Some((a.share_of_throughput? * 100.0).round())).collect();
    assert!(shares == [25.0, 50.0, 80.0] || found.summary.lower_pps == 0.0, "{shares:?}");
    parts(&found);
}

#[test]
fn probes_are_traced_across_links_between_chains() {
    if !has_cpu_0_and_another() {
        return;
    }
    let chain = CHAIN.replace(
        "path = [\"lan\", \"hop\", \"counter\", \"wan\"], cores = [0]",
        "path = [\"lan\", \"hop\"], cores = [0] }, { path = [\"hop.out\", \"counter\", \"wan\"], cores = [0]",
    );
    let labels = parts(&measure(&chain, &AT_RATE));
    assert_eq!(labels, set(&["generator", "queue lan", "switch", "NF hop", "NF counter", "queue wan"]));
}

#[test]
fn parts_of_sandboxed_nfs_are_measured_inside() {
    for (isolation, transport) in [("process", "rings"), ("process", "vhost"), ("container", "vhost")] {
        if !has_cpu_0_and_another() || !possible(isolation) {
            continue;
        }
        let sandbox = format!(
            "nf.counter.isolation = \"{isolation}\"\n[sandbox.counter]\ntransport = \"{transport}\"\ncores = [0]\n"
        );
        let labels = parts(&measure(&format!("{CHAIN}{sandbox}"), &AT_RATE));
        let inside = ["crossing into counter", "switch counter", "NF counter", "crossing out of counter"];
        let outside = ["generator", "queue lan", "switch", "NF hop", "queue wan"];
        assert_eq!(labels, set(&[&inside[..], &outside].concat()), "{isolation}, {transport}");
    }
}

#[test]
fn methods_and_traffic_without_traced_probes_are_skipped() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.write("chain.toml", CHAIN);
    let db = scratch.path("results.sqlite");
    for (arguments, reason) in [(["--method", "loss"], "does not trace"), (["--tcp", "response=100"], "no probes")] {
        let said = bondstone(
            ["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--anatomy"].into_iter().chain(arguments),
        );
        assert!(said.status == Some(1) && said.err.contains(reason), "{arguments:?}: {}", said.err);
    }
}
