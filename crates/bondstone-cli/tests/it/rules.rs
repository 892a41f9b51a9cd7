//! `bondstone rules`: the rules of a firewall change while it forwards.

use crate::common::gateway::accounted;
use crate::common::instance::{command, program, start};
use crate::common::{LIMIT, Said, Scratch, Summary, alone};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

/// Packets of two hosts in turn, without an end, through a firewall that accepts both.
fn chain(scratch: &Scratch, default: &str) -> String {
    let mut writer = pcap::Writer::create(scratch.path("in.pcap"), pcap::LinkType::ETHERNET).unwrap();
    for host in [1, 2] {
        let frame = wire::build::udp4([10, 0, 0, host], [192, 0, 2, 1], 1, 2).pad_to(60).to_vec();
        writer.write(0, 60, &frame).unwrap();
    }
    writer.finish().unwrap();
    format!(
        "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 0\n[port.out]\ndevice = \"null\"\n\
         [nf.fw]\nkind = \"firewall\"\nrules = [\"accept src 10.0.0.1\", \"accept src 10.0.0.2\"]\ndefault = \"{default}\"\n\
         [nf.hops]\nkind = \"ttl\"\n[[chain]]\npath = [\"in\", \"fw\", \"hops\", \"out\"]\n"
    )
}

fn json(dir: &Path, arguments: &[&str]) -> serde_json::Value {
    let said = command(dir, arguments);
    assert_eq!(said.status, Some(0), "{arguments:?}: {}", said.err);
    serde_json::from_str(&said.out).unwrap()
}

/// Returns the texts of the rules.
fn texts(dir: &Path) -> Vec<String> {
    let list = json(dir, &["rules", "list", "fw", "--json"]);
    list["rules"].as_array().unwrap().iter().map(|rule| rule["rule"].as_str().unwrap().to_owned()).collect()
}

/// Waits until a rule has matched packets.
fn wait_for_packets(dir: &Path, number: usize) {
    let deadline = Instant::now() + LIMIT;
    while json(dir, &["rules", "list", "--json"])["rules"][number - 1]["packets"] == 0 {
        assert!(Instant::now() < deadline, "rule {number} matches no packet");
    }
}

/// Runs `bondstone rules` with text as standard input.
fn with_input(dir: &Path, arguments: &[&str], text: &str) -> Said {
    let mut command = program(dir);
    let piped = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn a_rule_takes_effect_and_other_flows_lose_no_packet() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), scratch.write("edge.toml", chain(&scratch, "drop")));
    let running = start(&dir, &edge, &[]);
    let rules = ["accept src 10.0.0.1", "accept src 10.0.0.2"];
    assert_eq!(texts(&dir), rules);
    wait_for_packets(&dir, 2);
    // an error changes nothing, and names value and remedy
    let wrong = |said: Said, value: &str| {
        assert_eq!(said.status, Some(2), "{}", said.err);
        assert!(said.err.contains(value) && said.err.contains("help: "), "{}", said.err);
        assert_eq!(texts(&dir), rules);
    };
    wrong(command(&dir, &["rules", "add", "drop src nowhere"]), "nowhere");
    wrong(command(&dir, &["rules", "add", "drop", "--at", "4"]), "\"4\"");
    wrong(command(&dir, &["rules", "remove", "1", "3"]), "\"3\"");
    wrong(command(&dir, &["rules", "remove", "drop"]), "\"drop\"");
    wrong(command(&dir, &["rules", "add", "drop", "--nf", "hops"]), "\"hops\": is of kind ttl, not firewall");
    wrong(command(&dir, &["rules", "list", "other"]), "name one of fw");
    wrong(with_input(&dir, &["rules", "add", "-"], "drop dport 9\ndrop dport x\n"), "change 2 of 2");
    wrong(with_input(&dir, &["rules", "add", "-"], "# nothing\n"), "no lines");

    let said = command(&dir, &["rules", "add", "drop src 10.0.0.1", "--at", "1"]);
    assert_eq!((said.status, said.out.as_str()), (Some(0), "fw: 1 added, 0 removed, 3 in total\n"), "{}", said.err);
    wait_for_packets(&dir, 1);
    let said = with_input(&dir, &["rules", "add", "-", "--at", "2"], "drop dport 9 # none\n\ndrop dport 10\n");
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert_eq!(texts(&dir), ["drop src 10.0.0.1", "drop dport 9", "drop dport 10", rules[0], rules[1]]);
    let said = command(&dir, &["rules", "remove", "2", "3"]);
    assert_eq!((said.status, said.out.as_str()), (Some(0), "fw: 0 added, 2 removed, 3 in total\n"), "{}", said.err);
    let text = command(&dir, &["rules", "list"]).out;
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows[1].starts_with(&["1", "drop", "src", "10.0.0.1"]) && rows[4][..2] == ["default", "drop"], "{text}");

    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    let ended = running.end();
    let summary = Summary(serde_json::from_str(&ended.out).unwrap());
    accounted(&summary);
    let (received, sent) = (summary.number("/totals/received"), summary.number("/totals/sent"));
    let firewall = summary.nf("fw");
    let counter = |name: &str| firewall.0["counters"][name].as_u64().unwrap();
    // all that was dropped was dropped by the rule, and all of the other host was sent
    let dropped = counter("1 drop src 10.0.0.1");
    assert_eq!(summary.0["drops"], serde_json::json!({ "denied": dropped }), "{}", summary.0);
    assert_eq!((counter("3 accept src 10.0.0.2"), sent), (received / 2, received - dropped), "{}", summary.0);
    assert_eq!(counter("2 accept src 10.0.0.1") + dropped, received.div_ceil(2));
}

#[test]
fn changes_last_until_the_settings_change() {
    let _alone = alone();
    let scratch = Scratch::new();
    let (dir, edge) = (scratch.path("sockets"), scratch.write("edge.toml", chain(&scratch, "drop")));
    let running = start(&dir, &edge, &[]);
    assert_eq!(command(&dir, &["rules", "remove", "1"]).status, Some(0));
    assert_eq!(command(&dir, &["reload"]).status, Some(0));
    assert_eq!(texts(&dir), ["accept src 10.0.0.2"]);
    scratch.write("edge.toml", chain(&scratch, "accept"));
    assert_eq!(command(&dir, &["reload"]).status, Some(0));
    assert_eq!(texts(&dir), ["accept src 10.0.0.1", "accept src 10.0.0.2"]);
    // the rules that run now are those that change
    assert_eq!(command(&dir, &["rules", "add", "drop dport 2", "--at", "1"]).status, Some(0));
    wait_for_packets(&dir, 1);
    assert_eq!(command(&dir, &["stop"]).status, Some(0));
    accounted(&Summary(serde_json::from_str(&running.end().out).unwrap()));
}
