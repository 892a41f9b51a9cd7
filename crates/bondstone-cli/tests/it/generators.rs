//! Other generators: results contain their counts.

use crate::common::{Said, Scratch, bondstone};
use std::path::Path;

fn bench(scratch: &Scratch, generator: &str, methods: &str) -> Said {
    let scenario = format!(
        "bondstone = 1\n[scenario]\ntitle = \"another generator\"\n[generator]\n{generator}\n[dut]\nkind = \"testpmd\"\n\
         [traffic]\nframes = \"64,512\"\nbidirectional = true\n[goal]\nmethods = [\"{methods}\"]\n"
    );
    let file = scratch.write("scenario.toml", scenario);
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    bondstone([
        "bench",
        file.to_str().unwrap(),
        "--json",
        "--db",
        db.to_str().unwrap(),
        "--report",
        page.to_str().unwrap(),
    ])
}

/// Returns true if testpmd and two CPUs are available.
fn is_available() -> bool {
    if !Path::new("/usr/bin/dpdk-testpmd").exists() {
        eprintln!("skipped: needs dpdk-testpmd");
        return false;
    }
    let enough = runtime::allowed_cpus().len() >= 2;
    if !enough {
        eprintln!("skipped: needs two CPUs");
    }
    enough
}

#[test]
fn testpmd_sends_in_both_directions() {
    let _one = crate::common::alone();
    if !is_available() {
        return;
    }
    let scratch = Scratch::new();
    let said = bench(&scratch, "kind = \"testpmd\"", "receive-rate");
    assert_eq!(said.status, Some(0), "{}", said.err);
    let all = said.results();
    assert_eq!(all.len(), 2);
    for result in &all {
        assert_eq!((result.cell["generator"].as_str(), result.traffic.directions), ("testpmd", 2));
        let received: u64 = result.trials.iter().map(|t| t.received).sum();
        assert!(received > 0, "{}", said.err);
        assert!(result.trials.iter().all(|t| t.sent + t.unsent == t.intended && t.received + t.lost == t.sent));
        assert!(result.quantity("receive rate").unwrap().value > 0.0);
    }
}

#[test]
fn a_command_reads_its_settings_and_reports_counts() {
    let _one = crate::common::alone();
    if !is_available() {
        return;
    }
    let scratch = Scratch::new();
    // half of the packets return, the others are reported as lost
    let command = "test -n \"$BONDSTONE_PORT1\" -a \"$BONDSTONE_FRAME\" -ge 64 || exit 3; \
                   awk -v r=$BONDSTONE_RATE -v s=$BONDSTONE_SECONDS \
                   'BEGIN { n = int(r * s * 2); print \"working\"; printf \"{\\\"sent\\\": %d, \\\"received\\\": %d, \\\"directions\\\": 2}\\n\", n, n / 2 }'";
    let said = bench(&scratch, &format!("kind = \"command\"\ncommand = '''{command}'''"), "receive-rate");
    assert_eq!(said.status, Some(0), "{}", said.err);
    for result in said.results() {
        let (received, offered) = (result.quantity("receive rate").unwrap(), result.quantity("offered").unwrap());
        assert!((received.value * 2.0 / offered.value - 1.0).abs() < 1e-3, "{received:?} of {offered:?}");
        assert!(result.trials.iter().all(|t| t.lost >= t.received));
    }
    let silent = bench(&scratch, "kind = \"command\"\ncommand = \"echo nothing\"", "receive-rate");
    assert_ne!(silent.status, Some(0));
    assert!(silent.err.contains("\"nothing\"") && silent.err.contains("sent"), "{}", silent.err);
}
