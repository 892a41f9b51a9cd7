//! `bondstone top` on running instances, and what `doctor --running` finds in the same counts.

use crate::common::instance::{CHAIN, command, program, start};
use crate::common::{Running, Scratch, alone, sandboxed_run::demo, sandboxed_run::until};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A chain that always has packets, and one whose peer never connects, on CPUs of their own.
fn two_cpus(scratch: &Scratch) -> PathBuf {
    scratch.write(
        "edge.toml",
        format!(
            "bondstone = 1\n[port]\nin.device = \"null\"\nout.device = \"null\"\nidle.device = \"memif:{}\"\n\
             [nf.hops]\nkind = \"ttl\"\n[nf.quiet]\nkind = \"count\"\n\
             [[chain]]\nname = \"full\"\npath = [\"in\", \"hops\", \"out\"]\ncores = [0]\n\
             [[chain]]\nname = \"empty\"\npath = [\"idle\", \"quiet\", \"out\"]\ncores = [1]\n",
            scratch.path("idle.sock").display()
        ),
    )
}

fn json(dir: &Path, arguments: &[&str]) -> Value {
    let said = command(dir, arguments);
    assert_eq!(said.status, Some(0), "{arguments:?}: {}", said.err);
    serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {}", said.out))
}

fn top(dir: &Path) -> Value {
    json(dir, &["top", "--once", "--json", "--interval", "200ms"])
}

/// Returns the element with this name.
fn named<'v>(all: &'v Value, key: &str, name: &str) -> &'v Value {
    all.as_array().unwrap().iter().find(|one| one[key] == name).unwrap_or_else(|| panic!("{name} in {all}"))
}

fn end(running: Running) {
    assert_eq!(running.interrupt().status, Some(130));
}

#[test]
fn workers_are_busy_if_they_have_packets() {
    let _alone = alone();
    if runtime::allowed_cpus().len() < 2 {
        return eprintln!("skipped: one CPU");
    }
    let scratch = Scratch::new();
    let dir = scratch.path("sockets");
    let running = start(&dir, &two_cpus(&scratch), &[]);
    let rates = top(&dir);
    let busy: Vec<f64> = rates["cpus"].as_array().unwrap().iter().map(|cpu| cpu["busy"].as_f64().unwrap()).collect();
    assert!(busy[0] > 0.9 && busy[1] < 0.5, "{rates}");
    assert_eq!(
        (&rates["cpus"][0]["chains"][0], &rates["cpus"][1]["received"]),
        (&"full".into(), &0.0.into()),
        "{rates}"
    );
    assert!(rates["pool"]["used"].as_u64() < rates["pool"]["capacity"].as_u64(), "{rates}");
    let stats = json(&dir, &["stats", "--json"]);
    let cycles = |cpu: &str| stats["workers"][cpu]["busy_cycles"].as_u64().unwrap();
    assert!(cycles("0") > cycles("1"), "{stats}");
    let findings = json(&dir, &["doctor", "--json", "--running"]);
    let full = named(&findings, "at", "CPU 0 (full)");
    assert!(full["problem"] == "busy 100 % of the time" && full["remedy"].is_string(), "{findings}");
    assert!(!findings.to_string().contains("CPU 1"), "{findings}");
    end(running);
}

#[test]
fn full_tables_are_named() {
    let _alone = alone();
    let scratch = Scratch::new();
    let file = scratch.write(
        "edge.toml",
        format!(
            "bondstone = 1\n[port]\nin.device = \"pcap:{}\"\nout.device = \"null\"\nidle.device = \"memif:{}\"\n\
             [nf.fw]\nkind = \"firewall\"\nrules = [\"accept proto udp\"]\ndefault = \"drop\"\n\
             track = {{ connections = 2 }}\n[nf.flows]\nkind = \"monitor\"\n\
             [[chain]]\npath = [\"in\", \"flows\", \"fw\", \"out\"]\n[[chain]]\npath = [\"idle\", \"out\"]\n",
            demo(),
            scratch.path("idle.sock").display()
        ),
    );
    let dir = scratch.path("sockets");
    let running = start(&dir, &file, &[]);
    let mut rates = Value::Null;
    until("a full table", || {
        rates = top(&dir);
        named(&rates["tables"], "table", "connections_ipv4")["used"] == 2
    });
    assert_eq!(named(&rates["tables"], "table", "connections_ipv4")["capacity"], 2);
    let flows = named(&rates["tables"], "table", "flows_ipv4");
    assert!(flows["nf"] == "flows" && flows["used"].as_u64() > Some(2) && flows["capacity"] == 65_536, "{flows}");

    let screen = command(&dir, &["top", "--once", "--interval", "100ms", "--filter", "fw"]);
    let lines: Vec<&str> = screen.out.lines().collect();
    let warning = lines.iter().find(|line| line.starts_with("warning: ")).unwrap_or_else(|| panic!("{}", screen.out));
    assert!(
        warning.contains("fw connections_ipv4 100 % full") && warning.contains("port idle has no link"),
        "{warning}"
    );
    let row = lines.iter().find(|line| line.trim_start().starts_with("fw  connections_ipv4"));
    let cells: Vec<&str> = row.unwrap_or_else(|| panic!("{}", screen.out)).split_whitespace().collect();
    assert_eq!(cells, ["fw", "connections_ipv4", "100", "%", "!", "2", "2"]);
    assert!(!screen.out.contains("flows_ipv4"), "{}", screen.out);

    let findings = json(&dir, &["doctor", "--json", "--running"]);
    let fw = named(&findings, "at", "nf fw");
    assert_eq!(fw["problem"], "table connections_ipv4 is 100 % full: 2 of 2");
    assert!(fw["remedy"].as_str().unwrap().contains("increase the size of the table"), "{fw}");
    end(running);
}

#[test]
fn json_is_one_object_per_interval() {
    let _alone = alone();
    let scratch = Scratch::new();
    let dir = scratch.path("sockets");
    let running = start(&dir, &scratch.write("edge.toml", CHAIN), &[]);
    let mut top = program(&dir);
    let mut top = top.args(["top", "--json", "--interval", "50ms"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut uptimes = vec![];
    for line in BufReader::new(top.stdout.take().unwrap()).lines().take(3) {
        let rates: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert!(rates["received"].as_f64() > Some(0.0) && rates["nfs"][0]["per_batch"].is_number(), "{rates}");
        uptimes.push(rates["uptime"].as_f64().unwrap());
    }
    top.kill().unwrap();
    top.wait().unwrap();
    assert_eq!(uptimes.len(), 3);
    assert!(uptimes.is_sorted_by(|a, b| a < b), "{uptimes:?}");
    end(running);
}

#[test]
fn links_between_cpus_have_queues() {
    let _alone = alone();
    if runtime::allowed_cpus().len() < 2 {
        return eprintln!("skipped: one CPU");
    }
    let scratch = Scratch::new();
    let file = scratch.write(
        "edge.toml",
        "bondstone = 1\n[port]\nin.device = \"null\"\nout.device = \"null\"\n[nf.hops]\nkind = \"ttl\"\n\
         [[chain]]\npath = [\"in\", \"hops\"]\ncores = [0]\n\
         [[chain]]\npath = [\"hops.out\", \"out\"]\ncores = [1]\n",
    );
    let dir = scratch.path("sockets");
    let running = start(&dir, &file, &[]);
    let rates = top(&dir);
    let queue = named(&rates["queues"], "name", "link hops.out");
    assert!(queue["capacity"] == 1024 && queue["used"].as_u64() <= Some(1024), "{rates}");
    assert!(rates["cpus"][1]["received"].as_f64() > Some(0.0), "{rates}");
    end(running);
}
