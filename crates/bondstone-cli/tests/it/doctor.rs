//! `bondstone doctor`: invariants on any host.

use crate::common::instance::{command, start};
use crate::common::{Scratch, alone, bondstone};
use serde_json::Value;

#[test]
fn checks_are_complete_and_status_reports_dpdk() {
    let said = bondstone(["doctor", "--json"]);
    let checks: Vec<Value> = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    for check in &checks {
        let text = |key: &str| check[key].as_str().unwrap_or_else(|| panic!("{check}"));
        assert!(!text("check").is_empty() && !text("found").is_empty(), "{check}");
        match text("state") {
            "ok" => assert!(check["remedy"].is_null(), "{check}"),
            "degraded" | "missing" => assert!(!text("provides").is_empty() && !text("remedy").is_empty(), "{check}"),
            other => panic!("unknown state {other:?}"),
        }
    }
    let starts = checks.iter().find(|c| c["check"] == "DPDK starts").unwrap()["state"] == "ok";
    assert_eq!(said.status, Some(if starts { 0 } else { 3 }), "{said:?}");
}

#[test]
fn prints_a_table_and_a_verdict() {
    let said = bondstone(["doctor"]);
    let verdict = said.out.trim_end().lines().last().unwrap();
    assert!(said.out.contains("scheduling gaps") && verdict.ends_with('.'), "{said:?}");
}

/// Doctor and run use one probe.
#[test]
fn kvm_is_ok_if_it_creates_a_vm() {
    let checks: Vec<Value> = serde_json::from_str(&bondstone(["doctor", "--json"]).out).unwrap();
    let find = |name: &str| checks.iter().find(|check| check["check"] == name).unwrap();
    assert_eq!(find("KVM")["state"] == "ok", sandbox::probe_kvm().is_ok(), "{}", find("KVM"));
    let pages = find("huge pages of 1G");
    assert!(pages["state"] != "ok" || pages["found"] != "0 free of 0", "{pages}");
}

#[test]
fn names_what_is_wrong_with_a_running_instance() {
    let _alone = alone();
    let scratch = Scratch::new();
    let file = scratch.write(
        "edge.toml",
        format!(
            "bondstone = 1\n[port]\nin.device = \"null\"\nout.device = \"null\"\nidle.device = \"memif:{}\"\n\
             [nf.fw]\nkind = \"firewall\"\nrules = []\ndefault = \"drop\"\nother = \"drop\"\n\
             [[chain]]\npath = [\"in\", \"fw\", \"out\"]\n[[chain]]\npath = [\"idle\", \"out\"]\n",
            scratch.path("idle.sock").display()
        ),
    );
    let dir = scratch.path("sockets");
    let running = start(&dir, &file, &[]);
    let said = command(&dir, &["doctor", "--json", "--running"]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let findings: Vec<Value> = serde_json::from_str(&said.out).unwrap();
    let find = |at: &str| findings.iter().find(|f| f["at"] == at).unwrap_or_else(|| panic!("{at}: {}", said.out));
    let fw = find("nf fw");
    assert!(fw["problem"] == "drops: not_ip" && fw["rate"].as_f64() > Some(0.0), "{fw}");
    assert_eq!(fw["meaning"], "neither IPv4 nor IPv6");
    assert!(find("port idle")["problem"].as_str().unwrap().starts_with("no link (memif:"), "{}", said.out);
    let text = command(&dir, &["doctor", "--running", "edge"]);
    assert!(text.out.contains("nf fw: drops: not_ip (") && text.out.ends_with(" findings\n"), "{}", text.out);
    let other = command(&dir, &["doctor", "--running", "core"]);
    assert_eq!(other.status, Some(2), "{}", other.err);
    assert_eq!(running.interrupt().status, Some(130));
}
