//! Faults of a running instance, found in two snapshots of its counts, a second apart.

use crate::exit::Exit;
use crate::instance::Instance;
use crate::stdout::stdout;
use crate::table::{count, rate};
use crate::thresholds::{is_pool_empty, is_saturated, is_table_full};
use control::Request;
use runtime::{Name, Summary};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Time between the snapshots.
const INTERVAL: Duration = Duration::from_secs(1);

/// Meanings of drop reasons, in the tables of the last section.
const REASONS: &str = include_str!("../../../../docs/reference/chain-files.md");

/// Reasons of packets that were processed and not lost.
const PROCESSED: [&str; 4] = ["consumed", "discarded", "fragmented", "taken"];

/// Counters of NFs that count packets, though not dropped, that found a table full.
const FULL: [&str; 1] = ["table_full"];

/// Remedies by drop reason.
const REMEDIES: [(&str, &str); 12] = [
    ("other_mac", "set `mac` of the interface to the address that neighbours send to, or clear their ARP caches"),
    ("unknown_mac", "add the MAC address to `mac_table`, or correct the destination of the sender"),
    ("same_port", "check for a loop, or for hosts that are connected to another port than configured"),
    ("source_group", "correct the sender: its source MAC address is a group address"),
    ("table_full", "increase the size of the table in the settings of the NF, or lower its timeouts"),
    ("neighbour_table_full", "increase `neighbours_max`"),
    ("neighbour_unresolved", "check that the next hop is up and answers ARP or neighbor discovery"),
    ("no_port", "add external addresses or blocks"),
    ("no_route", "add a route"),
    ("no_edge", "connect the output with an `[[edge]]`"),
    ("tx_full", "increase `descriptors` of the port, put the chain on more cores, or send less"),
    ("steering_full", "put the chain on more cores, or send less"),
];

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Finding {
    /// The run, port, link, NF or sandbox, such as `nf fw`.
    at: String,
    problem: String,
    /// Packets per second, if they are counted.
    rate: Option<f64>,
    meaning: Option<String>,
    remedy: Option<String>,
}

impl Finding {
    fn new(at: impl Into<String>, problem: impl Into<String>) -> Self {
        Finding { at: at.into(), problem: problem.into(), rate: None, meaning: None, remedy: None }
    }
}

/// Prints what is wrong with an instance.
pub(super) fn run(instance: Option<String>, json: bool) -> anyhow::Result<Exit> {
    let mut client = Instance::named(instance).connect()?;
    let before: Summary = client.call(&Request::Stats {})?;
    std::thread::sleep(INTERVAL);
    let now: Summary = client.call(&Request::Stats {})?;
    let findings = findings(&before, &now);
    let mut out = stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, &findings)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text(&findings, &now))?;
    }
    Ok(Exit::Success)
}

fn text(findings: &[Finding], now: &Summary) -> String {
    let mut out = String::new();
    for Finding { at, problem, rate: per_second, meaning, remedy } in findings {
        let per_second = per_second.map_or(String::new(), |n| format!(" ({}pps)", rate(n)));
        out += &format!("{}: {}{per_second}\n", text_table::printable(at), text_table::printable(problem));
        meaning.iter().for_each(|meaning| out += &format!("  {meaning}\n"));
        remedy.iter().for_each(|remedy| out += &format!("  help: {remedy}\n"));
    }
    match findings.len() {
        0 => out += &format!("{}: nothing is wrong\n", text_table::printable(&now.file)),
        1 => out += "1 finding\n",
        n => out += &format!("{n} findings\n"),
    }
    out
}

/// Returns what is wrong in `now`, and what became worse since `before`.
fn findings(before: &Summary, now: &Summary) -> Vec<Finding> {
    let seconds = (now.seconds - before.seconds).max(1e-9);
    let growth = |old: u64, new: u64| (new > old).then(|| (new - old) as f64 / seconds);
    let mut all: Vec<Finding> = now.errors.iter().map(|error| Finding::new("run", error)).collect();
    let mut drops = |at: String, kind: &str, old: Option<&BTreeMap<Name, u64>>, new: &BTreeMap<Name, u64>| {
        for (reason, n) in new.iter().filter(|(reason, _)| !PROCESSED.contains(&reason.as_ref())) {
            let old = old.and_then(|old| old.get(reason)).copied().unwrap_or(0);
            if let Some(rate) = growth(old, *n) {
                let (meaning, remedy) = (meaning(kind, reason), remedy(reason));
                all.push(Finding {
                    rate: Some(rate),
                    meaning,
                    remedy,
                    ..Finding::new(&at, format!("drops: {reason}"))
                });
            }
        }
    };
    for port in &now.ports {
        let old = before.ports.iter().find(|old| old.name == port.name);
        drops(format!("port {}", port.name), "port", old.map(|old| &old.drops), &port.drops);
    }
    for link in &now.links {
        let old = before.links.iter().find(|old| old.name == link.name);
        drops(format!("link {}", link.name), "port", old.map(|old| &old.drops), &link.drops);
    }
    for sandbox in &now.sandboxes {
        let old = before.sandboxes.iter().find(|old| old.name == sandbox.name);
        drops(format!("sandbox {}", sandbox.name), "sandbox", old.map(|old| &old.drops), &sandbox.drops);
    }
    for nf in &now.nfs {
        let old = before.nfs.iter().find(|old| old.name == nf.name);
        drops(format!("nf {}", nf.name), &nf.kind, old.map(|old| &old.drops), &nf.drops);
    }
    for port in &now.ports {
        let at = format!("port {}", port.name);
        let old = before.ports.iter().find(|old| old.name == port.name);
        if port.link == Some(false) {
            let remedy = Some("connect the other side, or bring its interface up".to_owned());
            all.push(Finding { remedy, ..Finding::new(&at, format!("no link ({})", port.device)) });
        }
        if let Some(rate) = growth(old.map_or(0, |old| old.missed), port.missed) {
            let meaning =
                Some("the device dropped packets before they were received, as the queue was full".to_owned());
            let remedy = remedy("tx_full");
            all.push(Finding { rate: Some(rate), meaning, remedy, ..Finding::new(&at, "misses packets") });
        }
        if let Some(rate) = growth(old.map_or(0, |old| old.send_errors), port.send_errors) {
            all.push(Finding { rate: Some(rate), ..Finding::new(&at, "the device does not send accepted packets") });
        }
    }
    for nf in &now.nfs {
        let at = format!("nf {}", nf.name);
        let old = before.nfs.iter().find(|old| old.name == nf.name);
        for name in FULL {
            let old = old.and_then(|old| old.counters.get(name)).copied().unwrap_or(0);
            if let Some(rate) = nf.counters.get(name).and_then(|n| growth(old, *n)) {
                let remedy = remedy("table_full");
                all.push(Finding { rate: Some(rate), remedy, ..Finding::new(&at, "a table is full") });
            }
        }
        if nf.restarts > old.map_or(0, |old| old.restarts) {
            all.push(Finding::new(&at, "panicked and was rebuilt"));
        }
    }
    all.extend(resources(before, now));
    for sandbox in &now.sandboxes {
        let at = format!("sandbox {}", sandbox.name);
        let old = before.sandboxes.iter().find(|old| old.name == sandbox.name);
        if !sandbox.up {
            all.push(Finding::new(&at, "is not running"));
        } else if old.is_some_and(|old| sandbox.starts > old.starts) {
            all.push(Finding::new(&at, "was restarted"));
        }
        if sandbox.implausible {
            all.push(Finding::new(&at, "the counts that it reported cannot be true"));
        }
    }
    all
}

/// Returns the resources that are about to be used up: entries of tables, time of CPUs, packet buffers.
fn resources(before: &Summary, now: &Summary) -> Vec<Finding> {
    let finding = |at: String, problem: String, meaning: &str, remedy: Option<String>| Finding {
        meaning: Some(meaning.to_owned()),
        remedy,
        ..Finding::new(at, problem)
    };
    let mut all = vec![];
    for nf in &now.nfs {
        for (table, of) in nf.occupancy.iter().filter(|(_, of)| is_table_full(**of)) {
            let percent = 100.0 * of.share();
            let problem = format!("table {table} is {percent:.0} % full: {} of {}", count(of.used), count(of.capacity));
            let meaning = "a full table refuses new entries, or evicts others";
            let reason = if table == "neighbours" { "neighbour_table_full" } else { "table_full" };
            all.push(finding(format!("nf {}", nf.name), problem, meaning, remedy(reason)));
        }
    }
    for (&cpu, worker) in &now.workers {
        if now.busy_share(cpu, Some(before)).is_some_and(is_saturated) {
            let meaning = "the worker has no time left: more packets wait in queues, and are missed or dropped when these \
                           are full; ports `null` and `pcap` always have packets";
            let remedy = "put the chain on more cores, or move a chain to another CPU; bondstone top --sort share has \
                          the NFs with the most cycles";
            let at = format!("CPU {cpu} ({})", worker.chains.join(", "));
            all.push(finding(at, "busy 100 % of the time".to_owned(), meaning, Some(remedy.to_owned())));
        }
    }
    if is_pool_empty(now.pool) {
        let free = now.pool.capacity.saturating_sub(now.pool.used);
        let problem = format!("{} of {} buffers are free", count(free), count(now.pool.capacity));
        let meaning = "packets wait in queues and NFs; without a free buffer ports receive nothing";
        let remedy =
            "lower `descriptors` of ports, or what NFs hold: queues of bondstone top, `held` of bondstone stats";
        all.push(finding("packet pool".to_owned(), problem, meaning, Some(remedy.to_owned())));
    }
    all
}

fn remedy(reason: &str) -> Option<String> {
    REMEDIES.iter().find(|(of, _)| *of == reason).map(|(_, remedy)| (*remedy).to_owned())
}

/// Returns the meaning of a drop reason of an NF of this kind, a port or a sandbox, from the reference.
fn meaning(kind: &str, reason: &str) -> Option<String> {
    let tables = REASONS.split_once("\n### Every drop reason\n")?.1.split("\n\n");
    let (kind, reason) = (format!("`{kind}`"), format!("`{reason}`"));
    let headings = [kind.as_str(), "At ports:", "At a [sandbox]", "At every NF:"];
    let mut found = None;
    let mut heading = "";
    for block in tables {
        if !block.starts_with('|') {
            heading = block;
            continue;
        }
        if !headings.iter().any(|wanted| heading.contains(wanted)) {
            continue;
        }
        let rows = block.lines().filter_map(|row| row.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
        let mut row =
            rows.filter(|(reasons, _)| reasons.split(", ").any(|of| of == reason)).map(|(_, meaning)| meaning);
        // the table of the kind comes last
        found = row.next_back().or(found);
    }
    found.map(|meaning| meaning.replace('`', ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::{NfSummary, Occupancy, PortSummary, SandboxSummary, WorkerSummary};

    fn summary(seconds: f64, n: u64) -> Summary {
        let drops = |reason: &'static str| BTreeMap::from([(Name::from(reason), n)]);
        let nf = |name: &str, kind: &'static str, reason| NfSummary {
            name: name.into(),
            kind: kind.into(),
            drops: drops(reason),
            ..NfSummary::default()
        };
        Summary {
            file: "edge.toml".into(),
            seconds,
            ports: vec![PortSummary {
                name: "lan".into(),
                drops: drops("tx_full"),
                missed: n,
                ..PortSummary::default()
            }],
            nfs: vec![
                nf("router", "l3fwd", "other_mac"),
                nf("nat", "nat44", "table_full"),
                nf("end", "drop", "discarded"),
                NfSummary { counters: [("table_full".into(), n)].into(), ..nf("switch", "bridge", "consumed") },
            ],
            ..Summary::default()
        }
    }

    #[test]
    fn growing_counts_are_found_with_rate_meaning_and_remedy() {
        let all = findings(&summary(10.0, 100), &summary(12.0, 300));
        let found: Vec<_> = all.iter().map(|f| (f.at.as_str(), f.problem.as_str(), f.rate)).collect();
        let expected = [
            ("port lan", "drops: tx_full", Some(100.0)),
            ("nf router", "drops: other_mac", Some(100.0)),
            ("nf nat", "drops: table_full", Some(100.0)),
            ("port lan", "misses packets", Some(100.0)),
            ("nf switch", "a table is full", Some(100.0)),
        ];
        assert_eq!(found, expected);
        assert_eq!(all[0].meaning.as_deref(), Some("the port accepted no more packets"));
        assert_eq!(all[1].meaning.as_deref(), Some("the destination MAC address is that of another host"));
        assert_eq!(all[2].meaning.as_deref(), Some("no free session entry"));
        assert!(all[..3].iter().all(|f| f.remedy.is_some()));
        let text = text(&all, &Summary::default());
        assert!(text.contains("nf nat: drops: table_full (100 pps)\n  no free session entry\n  help: "), "{text}");
        assert!(text.ends_with("5 findings\n"), "{text}");
    }

    #[test]
    fn a_run_without_growth_is_well() {
        let now = summary(11.0, 100);
        let all = findings(&summary(10.0, 100), &now);
        assert_eq!(all, []);
        assert_eq!(text(&all, &now), "edge.toml: nothing is wrong\n");
    }

    #[test]
    fn errors_links_restarts_and_sandboxes_are_found() {
        let mut now = summary(11.0, 100);
        now.errors = vec!["3 of 4 packet buffers are in use".into()];
        now.ports[0].link = Some(false);
        now.nfs[0].restarts = 1;
        now.sandboxes = vec![SandboxSummary { name: "s".into(), implausible: true, ..SandboxSummary::default() }];
        let all = findings(&summary(10.0, 100), &now);
        let at: Vec<_> = all.iter().map(|finding| finding.at.as_str()).collect();
        assert_eq!(at, ["run", "port lan", "nf router", "sandbox s", "sandbox s"]);
    }

    #[test]
    fn resources_that_are_almost_used_up_are_found() {
        let with = |seconds, (entries, buffers, busy_cycles)| {
            let mut summary = summary(seconds, 100);
            summary.cycles_per_second = 1000;
            let occupancy = |used| Occupancy { used, capacity: 1000 };
            summary.nfs[1].occupancy = [("sessions".into(), occupancy(entries))].into();
            summary.nfs[0].occupancy = [("neighbours".into(), occupancy(entries))].into();
            summary.pool = occupancy(buffers);
            let worker = WorkerSummary { chains: vec!["up".into()], busy_cycles, ..WorkerSummary::default() };
            summary.workers = [(3, worker)].into();
            summary
        };
        assert_eq!(findings(&with(10.0, (0, 0, Some(10_000))), &with(11.0, (900, 900, Some(10_900)))), []);
        assert_eq!(findings(&with(10.0, (0, 0, None)), &with(11.0, (0, 0, None))), []);
        let all = findings(&with(10.0, (0, 0, Some(0))), &with(11.0, (901, 901, Some(1000))));
        let found: Vec<_> = all.iter().map(|f| (f.at.as_str(), f.problem.as_str())).collect();
        let expected = [
            ("nf router", "table neighbours is 90 % full: 901 of 1,000"),
            ("nf nat", "table sessions is 90 % full: 901 of 1,000"),
            ("CPU 3 (up)", "busy 100 % of the time"),
            ("packet pool", "99 of 1,000 buffers are free"),
        ];
        assert_eq!(found, expected);
        assert!(all.iter().all(|f| f.meaning.is_some() && f.remedy.is_some()), "{all:?}");
        assert_eq!(all[0].remedy.as_deref(), Some("increase `neighbours_max`"));
    }

    #[test]
    fn the_reference_explains_reasons() {
        let of_firewall = meaning("firewall", "table_full").unwrap();
        assert!(of_firewall.contains("connection"), "{of_firewall}");
        assert!(meaning("count", "vanished").is_some() && meaning("port", "too_long").is_some());
        assert_eq!(meaning("count", "table_full"), None);
        assert_eq!(remedy("denied"), None);
    }
}
