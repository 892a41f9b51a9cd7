//! `bondstone bench`: output, stored results, and errors.

use crate::common::{Scratch, bondstone, has_cpu_0_and_another, is_quiet};
use report::Frames;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use wire::{MacAddr, build};

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

fn bench(scratch: &Scratch, chain: &str, arguments: &[&str]) -> crate::common::Said {
    let file = scratch.write("chain.toml", chain);
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let fixed = ["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--report", page.to_str().unwrap()];
    bondstone(fixed.iter().chain(arguments).copied())
}

/// A chain that forwards every packet.
const OPEN: &str = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                    chain = [{ path = [\"in\", \"count\", \"out\"], cores = [0] }]\n";
/// Three trials of 2000 packets.
const SHORT: [&str; 5] = ["--rate", "100000", "--goal", "quick,final=20ms,sum=60ms,first=20ms", "--json"];

/// Writes a gzipped capture of these frames.
fn capture(scratch: &Scratch, name: &str, frames: &[Vec<u8>]) -> PathBuf {
    let mut writer = pcap::Writer::new(Vec::new(), pcap::LinkType::ETHERNET).unwrap();
    for (n, frame) in (0..).zip(frames) {
        writer.write(n, frame.len() as u32, frame).unwrap();
    }
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zip.write_all(&writer.finish().unwrap()).unwrap();
    scratch.write(name, zip.finish().unwrap())
}

/// Reads the result documents and checks their ids.
fn documents(said: &crate::common::Said) -> Vec<report::Result> {
    let read =
        |r: &Value| report::Document::read(&r.to_string()).expect("a document that matches its id").into_result();
    results(said).iter().map(read).collect()
}

/// Asserts that every packet is accounted for, and that without host interference exactly the `dropped` of every
/// `in_all` packets are lost that the chain drops.
#[track_caller]
fn assert_lost_only_drops(result: &report::Result, dropped: u64, in_all: u64) {
    for t in &result.trials {
        assert_eq!((t.sent + t.unsent, t.received + t.lost), (t.intended, t.sent));
        assert_eq!((t.intended, t.duplicate, t.corrupt, t.reordered), (2000, 0, 0, 0));
    }
    for t in result.trials.iter().filter(|t| is_quiet(t)) {
        // unsent packets may be of either kind
        let (least, most) = (t.intended / in_all * dropped, t.intended.div_ceil(in_all) * dropped);
        assert!((least.saturating_sub(t.unsent)..=most).contains(&t.lost), "{} lost of {}", t.lost, t.sent);
    }
}

fn results(said: &crate::common::Said) -> Vec<Value> {
    let results: Vec<Value> = serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {}", said.out));
    // a busy host loses packets at any rate
    let met = results.iter().all(|r| r["summary"]["lower_pps"].as_f64() > Some(0.0));
    assert_eq!(said.status, Some(i32::from(!met)), "{}", said.err);
    results
}

#[test]
fn accounts_for_every_packet_and_stores_every_result() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let arguments = ["--frames", "64,imix,(64:1,1518:1)", "--flows", "100", "--rate", "100000", "--json"];
    let said = bench(&scratch, ROUTER, &[&arguments[..], &["--goal", "quick,final=20ms,sum=60ms,first=20ms"]].concat());
    let results = results(&said);
    assert_eq!(results.len(), 3);
    for result in &results {
        let document = report::Document::read(&result.to_string()).expect("a document that matches its id");
        let result = document.result();
        // trials with host interference are repeated up to four times
        assert!((3..=15).contains(&result.trials.len()), "{}", result.trials.len());
        for t in &result.trials {
            assert_eq!(t.intended, 2000);
            assert_eq!((t.sent + t.unsent, t.received + t.lost), (t.intended, t.sent));
            assert_eq!((t.duplicate, t.corrupt), (0, 0));
        }
        let received: u64 = result.trials.iter().map(|t| t.received).sum();
        assert!(received > 0, "no packet was received");
        let router = result.nodes.iter().find(|n| n.kind == "l3fwd").expect("the router is among the nodes");
        // counts of nodes are those of the last trial
        assert!(result.trials.last().is_some_and(|last| router.packets >= last.received));
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
fn prints_a_table_after_a_search() {
    if !has_cpu_0_and_another() {
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
fn explains_drops_by_the_chain() {
    if !has_cpu_0_and_another() {
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
fn errors_name_the_input() {
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
fn rejects_an_invalid_database_before_it_measures() {
    let scratch = Scratch::new();
    let file = scratch.write("chain.toml", ROUTER);
    let db =
        scratch.write("results.sqlite", "no database at all, but some text that is long enough to be one".repeat(20));
    let said = bondstone(["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--frames", "64"]);
    assert!(said.status != Some(0) && said.err.contains("results.sqlite"), "{}", said.err);
}

#[test]
fn sends_the_frames_of_a_capture_repeatedly() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    // to the MAC address of another host, as captured; the firewall drops one of ten, two have no room for a sequence
    // number
    let udp = |n: u8, bytes: usize| {
        let frame = build::udp4([10, 0, 0, n], [198, 51, 100, n], 1000, 53);
        frame.dst_mac(MacAddr([2, 0, 0, 0, 9, 9])).payload(&vec![n; bytes]).to_vec()
    };
    let mut frames: Vec<Vec<u8>> = (1..=9).map(|n| udp(n, if n < 3 { 4 } else { 100 * usize::from(n) })).collect();
    frames.push(build::tcp4([10, 0, 0, 1], [198, 51, 100, 1], 1000, 80).payload(&[1; 400]).to_vec());
    let file = capture(&scratch, "lunch.pcap.gz", &frames);
    let arguments = [&SHORT[..], &["--loss", "20%", "--pcap", file.to_str().unwrap()]].concat();
    let said = bench(&scratch, ROUTER, &arguments);
    let results = documents(&said);
    let [result] = &results[..] else { panic!("{} results", results.len()) };
    assert_lost_only_drops(result, 1, 10);
    assert!(result.trials.iter().any(|t| t.received > 0), "no packet was received");

    let bytes = frames.iter().map(|frame| frame.len().max(60) + 4).sum::<usize>() as f64;
    let trace = report::Trace { name: "lunch.pcap.gz".to_owned(), frames: 10, mean_frame_bytes: bytes / 10.0 };
    assert_eq!(result.traffic.frames, Frames::Trace(trace));
    assert_eq!(result.traffic.trace_sha256, Some(report::sha256(&std::fs::read(&file).unwrap())));
    assert_eq!(result.traffic.flows, 10);
    assert!(result.deviations.iter().any(|d| d.contains("lunch.pcap.gz") && d.contains("one frame in 32")));
    assert!(!result.deviations.iter().any(|d| d.contains("omitted")), "all can be sent");
    assert!(said.err.contains("lunch.pcap.gz: 10 frames"), "{}", said.err);

    let node = |kind: &str| result.nodes.iter().find(|n| n.kind == kind).expect("a node of this kind");
    let (fw, router) = (node("firewall"), node("l3fwd"));
    assert_eq!(fw.packets, router.packets + fw.dropped["denied"], "{:?}", fw.dropped);
    assert!(!router.dropped.contains_key("other_mac"), "the address of [traffic] is used: {:?}", router.dropped);
    // only some frames have a sequence number
    let latency = &result.latency[0];
    assert!((1..=500).contains(&latency.samples), "{} of 2000", latency.samples);
    let page = std::fs::read_to_string(scratch.path("report.html")).unwrap();
    assert!(page.contains("lunch.pcap.gz"));
}

#[test]
fn counts_frames_without_sequence_numbers() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let arp = build::arp_request([10, 0, 0, 1], [10, 0, 0, 2]).to_vec();
    let tcp = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 80).to_vec();
    let file = capture(&scratch, "acks.pcap.gz", &[arp, tcp]);
    let result = documents(&bench(&scratch, OPEN, &[&SHORT[..], &["--pcap", file.to_str().unwrap()]].concat()));
    assert_lost_only_drops(&result[0], 0, 1);
    assert!(result[0].latency.is_empty(), "no frame has a timestamp");
    assert!(result[0].deviations.iter().any(|d| d.contains("latency, reordering and duplicates are unknown")));
    assert_eq!(result[0].traffic.flows, 1, "ARP has no flow");
}

#[test]
fn packets_that_the_chain_creates_do_not_replace_lost_ones() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    // one of four frames has an expired TTL; the router sends ICMP errors to its sender at a limited rate
    let udp = |ttl: u8| build::udp4([10, 0, 0, 2], [198, 51, 100, 1], 1000, 53).ttl(ttl).payload(&[1; 40]).to_vec();
    let file = capture(&scratch, "old.pcap.gz", &[udp(9), udp(9), udp(9), udp(1)]);
    let known = ROUTER.replace("neighbour = { ", "neighbour = { \"10.0.0.2\" = \"02:00:00:00:01:02\", ");
    let arguments = [&SHORT[..], &["--loss", "30%", "--pcap", file.to_str().unwrap()]].concat();
    let result = documents(&bench(&scratch, &known, &arguments));
    assert_lost_only_drops(&result[0], 1, 4);
    let router = result[0].nodes.iter().find(|n| n.kind == "l3fwd").unwrap();
    assert!(router.dropped["ttl_expired"] > 0);
}

#[test]
fn counts_copies_of_a_capture_once() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let chain = OPEN
        .replace("\"count\"", "\"tee\"")
        .replace("chain = ", "edge = [{ from = \"tee.copy\", to = \"out\" }]\nchain = ");
    let udp = build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&[1; 40]).to_vec();
    let acks = build::tcp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 80).to_vec();
    for frames in [&[udp, acks.clone()][..], &[acks]] {
        let file = capture(&scratch, "twice.pcap.gz", frames);
        let result = documents(&bench(&scratch, &chain, &[&SHORT[..], &["--pcap", file.to_str().unwrap()]].concat()));
        for t in &result[0].trials {
            assert_eq!((t.sent + t.unsent, t.received + t.lost, t.corrupt), (t.intended, t.sent, 0));
            assert!(t.lost == 0 || !is_quiet(t), "copies do not count: {t:?}");
        }
    }
}

#[test]
fn forwards_captures_of_real_traffic() {
    if !has_cpu_0_and_another() {
        return;
    }
    let data = std::env::var_os("BONDSTONE_DATA")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let scratch = Scratch::new();
    for name in ["443-curl.pcap", "anydesk.pcapng", "dns_invert_query.pcapng"] {
        let file = data.join("dpi").join(name);
        if !file.exists() {
            println!("skipped: no {} (set BONDSTONE_DATA)", file.display());
            continue;
        }
        let said = bench(&scratch, OPEN, &[&SHORT[..], &["--pcap", file.to_str().unwrap()]].concat());
        let result = documents(&said);
        assert_lost_only_drops(&result[0], 0, 1);
        assert_eq!(result[0].traffic.frames.label(), name);
        assert_eq!(result[0].traffic.trace_sha256, Some(report::sha256(&std::fs::read(&file).unwrap())));
        let Frames::Trace(trace) = &result[0].traffic.frames else { panic!("{:?}", result[0].traffic.frames) };
        println!("{name}: {} frames, {} flows", trace.frames, result[0].traffic.flows);
    }
}

#[test]
fn searches_the_throughput_with_a_capture() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let udp = |bytes: usize| build::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2).payload(&vec![1; bytes]).to_vec();
    let file = capture(&scratch, "two.pcap.gz", &[udp(18), udp(1000)]);
    let goal = ["--goal", "quick,loss=50%,final=10ms,sum=10ms,first=10ms,width=50%", "--json"];
    let result = documents(&bench(&scratch, OPEN, &[&goal[..], &["--pcap", file.to_str().unwrap()]].concat()));
    assert_eq!(result[0].goal.search, "MLRsearch (RFC 9971)");
    assert!(result[0].trials.len() > 1 && result[0].calibration.is_some());
    let mean = (64.0 + 1046.0) / 2.0;
    assert_eq!(result[0].traffic.l1_bps(1.0), 8.0 * (mean + 20.0));
}

#[test]
fn a_scenario_sends_a_capture() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    scratch.capture("lunch.pcap", 20);
    scratch.write("chain.toml", OPEN);
    let scenario =
        "bondstone = 1\nscenario.title = \"lunch\"\ndut.chain = \"chain.toml\"\ntraffic.capture = \"lunch.pcap\"\n";
    let file = scratch.write("scenario.toml", scenario);
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let fixed = ["bench", file.to_str().unwrap(), "--db", db.to_str().unwrap(), "--report", page.to_str().unwrap()];
    let said = bondstone(fixed.iter().chain(&SHORT).copied());
    let result = documents(&said);
    assert_lost_only_drops(&result[0], 0, 1);
    assert_eq!(result[0].traffic.frames.label(), "lunch.pcap");
    assert!(!result[0].cell.contains_key("flows"), "{:?}", result[0].cell);
    let said = bondstone(fixed.iter().chain(&["--flows", "7"]).copied());
    assert_eq!(said.status, Some(2), "{}", said.err);
    assert!(said.err.contains("lunch.pcap") && said.err.contains("--flows"), "{}", said.err);
    let other = scratch.capture("other.pcap", 3);
    let said = bondstone(fixed.iter().chain(&SHORT).chain(&["--pcap", other.to_str().unwrap()]).copied());
    assert_eq!(documents(&said)[0].traffic.frames.label(), "other.pcap");
    let said = bondstone(["check", file.to_str().unwrap()]);
    assert_eq!(said.status, Some(0), "{}", said.err);
}

#[test]
fn errors_name_the_capture() {
    let scratch = Scratch::new();
    let text = scratch.write("notes.pcap", "no capture at all");
    let empty = capture(&scratch, "empty.pcap", &[]);
    let long = capture(&scratch, "long.pcap", &[vec![2; 16_000]]);
    let good = scratch.capture("good.pcap", 3);
    for (file, more, words) in [
        (scratch.path("absent.pcap"), &[][..], &["absent.pcap", "read"][..]),
        (text, &[], &["notes.pcap", "not a capture"]),
        (empty, &[], &["empty.pcap", "no frame of 0"]),
        (long, &[], &["long.pcap", "1 too long"]),
        (good.clone(), &["--frames", "64"], &["--pcap", "--frames"]),
        (good.clone(), &["--flows", "64"], &["--pcap", "--flows"]),
        (good, &["--order", "uniform"], &["--pcap", "--order"]),
    ] {
        let said = bench(&scratch, OPEN, &[&["--pcap", file.to_str().unwrap()], more].concat());
        assert_eq!(said.status, Some(2), "{}", said.err);
        for word in words {
            assert!(said.err.contains(word), "{word}: {}", said.err);
        }
    }
    let said = bench(&scratch, OPEN, &["--frames", "16001"]);
    assert!(said.status == Some(2) && said.err.contains("16001") && said.err.contains("64..=16000"), "{}", said.err);
}

#[test]
fn explains_drops_of_a_capture() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let udp = build::udp4([10, 0, 0, 1], [198, 51, 100, 1], 1000, 53).payload(&[1; 40]).to_vec();
    let file = capture(&scratch, "away.pcap.gz", &[udp]);
    let chain = ROUTER.replace("dst_mac = \"02:00:00:00:01:00\"\n", "");
    let goal = ["--goal", "quick,final=10ms,sum=10ms,first=10ms,width=50%"];
    let said = bench(&scratch, &chain, &[&goal[..], &["--pcap", file.to_str().unwrap()]].concat());
    assert_eq!(said.status, Some(1), "no rate meets the goal: {}", said.err);
    for word in ["other_mac", "dst_mac", "--loss"] {
        assert!(said.err.contains(word), "{word}: {}", said.err);
    }
}

/// Returns a chain file with two ports and these paths.
fn ports(paths: &[&str]) -> String {
    let path = |path: &&str| format!("{{ path = [{path}], cores = [0] }}");
    let chains = paths.iter().map(path).collect::<Vec<_>>().join(", ");
    format!("bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\nchain = [{chains}]\n")
}

/// Asserts that trials in both directions at 100,000 packets/s each account for every packet. Returns those without
/// host interference.
#[track_caller]
fn check_both_directions(result: &report::Result) -> Vec<&report::Trial> {
    assert_eq!(result.traffic.directions, 2);
    for t in &result.trials {
        assert_eq!((t.sent + t.unsent, t.received + t.lost), (t.intended, t.sent));
        assert_eq!((t.load_pps, t.intended, t.duplicate, t.corrupt, t.reordered), (1e5, 4000, 0, 0, 0));
    }
    result.trials.iter().filter(|t| is_quiet(t)).collect()
}

#[test]
fn accounts_for_both_directions() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let chain = ports(&["\"a\", \"count\", \"b\"", "\"b\", \"a\""]);
    let said = bench(&scratch, &chain, &[&SHORT[..], &["--frames", "64,imix", "--bidirectional"]].concat());
    for result in documents(&said) {
        let trials = check_both_directions(&result);
        assert!(trials.iter().all(|t| t.lost == 0), "{trials:?}");
        assert!(result.latency.iter().all(|l| l.p50_ns > 0.0));
    }
    assert!(said.err.contains("  forward: ") && said.err.contains("  reverse: "), "{}", said.err);
    // the reverse direction of a trace, with VLAN tags
    let trace = ["--frames", "128", "--bidirectional", "--trace", "tr2i", "--stack", "eth/vlan:7/ipv4/udp"];
    let said = bench(&scratch, &chain, &[&SHORT[..], &trace].concat());
    let results = documents(&said);
    assert!(check_both_directions(&results[0]).iter().all(|t| t.lost == 0));
}

#[test]
fn a_terminal_shows_every_second_of_a_trial() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let (chain, db, page) = (scratch.write("chain.toml", OPEN), scratch.path("r.sqlite"), scratch.path("r.html"));
    let bench = format!(
        "{} bench {} --frames 64 --rate 1e5 --goal quick,final=4s,sum=4s --db {} --report {}",
        env!("CARGO_BIN_EXE_bondstone"),
        chain.display(),
        db.display(),
        page.display()
    );
    // gives the program a terminal
    let log = scratch.path("log");
    let mut script = std::process::Command::new("script");
    script.args(["--quiet", "--return", "--command", &bench]).arg(&log).output().unwrap();
    let text = std::fs::read_to_string(log).unwrap();
    let line = text.split('\r').find(|line| line.contains("missing")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("64: trial 1 of 0.100 Mpps for 4 s; sent 0."), "{line}");
    assert!(line.contains(" Mpps, received 0.") && line.contains(", mean latency "), "{line}");
}

#[test]
fn the_generator_answers_for_its_hosts() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    for (lan, wan, hop, traffic) in [
        ("198.18.255.254/16", "192.0.2.2/24", "192.0.2.1", "src = \"198.18.0.0/16\"\ndst = [\"198.19.0.0/16\"]"),
        ("2001:2::1/64", "2001:db8::2/64", "2001:db8::1", "src = \"2001:2::/64\"\ndst = [\"2001:2:0:1::/64\"]"),
    ] {
        let all = if hop.contains(':') { "::/0" } else { "0.0.0.0/0" };
        let chain = format!(
            "bondstone = 1\nport.lan.device = \"ring:lan\"\nport.wan.device = \"ring:wan\"\n[nf.router]\nkind = \"l3fwd\"\n\
             interface.lan = {{ addresses = [\"{lan}\"], mac = \"02:00:00:00:01:00\" }}\n\
             interface.wan = {{ addresses = [\"{wan}\"], mac = \"02:00:00:00:02:00\" }}\n\
             route = [{{ prefix = \"{all}\", via = [\"{hop}\"] }}]\n\
             [[chain]]\npath = [\"lan\", \"router\"]\ncores = [0]\n[[chain]]\npath = [\"wan\", \"router\"]\ncores = [0]\n\
             [[edge]]\nfrom = \"router.lan\"\nto = \"lan\"\n[[edge]]\nfrom = \"router.wan\"\nto = \"wan\"\n\
             [traffic]\ninto = \"lan\"\ndst_mac = \"02:00:00:00:01:00\"\n{traffic}\n"
        );
        let said = bench(&scratch, &chain, &[&SHORT[..], &["--frames", "128"]].concat());
        let [result] = &documents(&said)[..] else { panic!("{}", said.out) };
        let answered = "the generator answered ARP requests or neighbor solicitations of the DUT";
        assert!(result.deviations.iter().any(|deviation| deviation == answered), "{:?}", result.deviations);
        let quiet = result.trials.iter().filter(|trial| !trial.host_interference);
        assert!(quiet.clone().all(|trial| trial.lost == 0 && trial.received > 0), "{:?}", result.trials);
    }
}

#[test]
fn varied_fields_reach_the_nf() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let firewall = "bondstone = 1\nport.a.device = \"ring:a\"\nport.b.device = \"ring:b\"\n\
                    [nf.guard]\nkind = \"firewall\"\nrules = [\"drop proto udp dport 53\", \"accept\"]\n\
                    [[chain]]\npath = [\"a\", \"guard\", \"b\"]\ncores = [0]\n";
    let arguments = ["--loss", "30%", "--frames", "64,imix"];
    for vary in ["udp.dst=3*80|53", "udp.dst=expr:8:if n % 4 == 3 { 53 } else { 1000 + n }"] {
        let said = bench(
            &scratch,
            firewall,
            &[&SHORT[..], &arguments, &["--vary", vary, "--vary", "ipv4.dscp=0-63"]].concat(),
        );
        for result in documents(&said) {
            assert_eq!(result.traffic.vary, [vary, "ipv4.dscp=0-63"]);
            for trial in result.trials.iter().filter(|trial| !trial.host_interference) {
                // every fourth packet
                assert!((4 * trial.lost).abs_diff(trial.sent) <= 4, "{trial:?}");
            }
            let drops = &result.nodes.iter().find(|node| node.name == "guard").expect("a firewall").dropped;
            assert!(drops.keys().all(|reason| reason == "denied") && !drops.is_empty(), "{drops:?}");
        }
    }
    for (vary, words) in
        [("vlan.id=5", "no field `vlan.id`"), ("ipv4.dscp=64", "6 bits"), ("dscp=1", "no field with values")]
    {
        let said = bench(&scratch, firewall, &["--vary", vary]);
        assert!(said.status == Some(2) && said.err.contains(words) && said.err.contains(vary), "{}", said.err);
    }
}

#[test]
fn every_header_stack_returns_with_its_probes() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let chain = ports(&["\"a\", \"count\", \"b\"", "\"b\", \"a\""]);
    for stack in [
        "eth/vlan:7/mpls:16/mpls:17/ipv4/udp",
        "eth/pppoe:3/ipv4/tcp",
        "eth/vlan:7/vxlan:5@192.0.2.1-192.0.2.2(eth/ipv6/udp)",
        "gtpu:5@2001:db8::1-2001:db8::2(ipv4/udp)",
        "srv6@2001:db8::1-2001:db8::2,2001:db8::3(ipv6/tcp)",
    ] {
        let said =
            bench(&scratch, &chain, &[&SHORT[..], &["--frames", "256", "--bidirectional", "--stack", stack]].concat());
        let results = documents(&said);
        assert_eq!(results[0].traffic.protocol, stack);
        assert!(check_both_directions(&results[0]).iter().all(|t| t.lost == 0));
        assert!(results[0].latency.iter().all(|l| l.p50_ns > 0.0));
    }
    let said = bench(&scratch, &chain, &["--frames", "64", "--stack", "srv6(ipv4/udp)"]);
    assert!(said.status == Some(2) && said.err.contains("128"), "{}", said.err);
}

#[test]
fn a_chain_in_one_direction_loses_only_the_other() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    for path in ["\"a\", \"b\"", "\"a\", \"count\", \"b\""] {
        let said = bench(&scratch, &ports(&[path]), &[&SHORT[..], &["--frames", "64", "--bidirectional"]].concat());
        let results = documents(&said);
        for t in check_both_directions(&results[0]) {
            // unsent packets may be unevenly distributed over the directions
            let each = t.intended / 2;
            assert!((each - t.unsent.min(each)..=each).contains(&t.received), "{t:?}");
            assert!((each - t.unsent.min(each)..=each).contains(&t.lost), "{t:?}");
        }
        assert!(said.err.contains("  reverse: received 0 of "), "{}", said.err);
        assert_eq!(results[0].summary.lower_pps, 0.0);
    }
}

#[test]
fn rejects_both_directions_with_one_port_or_a_capture() {
    let scratch = Scratch::new();
    let one =
        "bondstone = 1\nport.only.device = \"ring:only\"\nchain = [{ path = [\"only\", \"only\"], cores = [0] }]\n";
    if has_cpu_0_and_another() {
        let said = bench(&scratch, one, &["--frames", "64", "--bidirectional"]);
        assert_eq!(said.status, Some(2), "{}", said.err);
        assert!(
            said.err.contains("only port") && said.err.contains("\"only\"") && said.err.contains("help: "),
            "{}",
            said.err
        );
    }
    for other in [["--pcap", "lunch.pcap"], ["--short", "10"]] {
        let said = bench(&scratch, OPEN, &[&other[..], &["--bidirectional"]].concat());
        assert_eq!(said.status, Some(2), "{}", said.err);
        assert!(said.err.contains(other[0]) && said.err.contains("--bidirectional"), "{}", said.err);
    }
}

#[test]
fn two_generator_cores_have_one_schedule_and_one_accounting() {
    let _one = crate::common::alone();
    if !has_cpu_0_and_another() {
        return;
    }
    let other = runtime::allowed_cpus().into_iter().find(|cpu| *cpu != 0).unwrap();
    let core = format!("{other},0");
    let scratch = Scratch::new();
    let chain = "bondstone = 1\nport.in.device = \"ring:in\"\nport.out.device = \"ring:out\"\n\
                 nf.fw = { kind = \"firewall\", rules = [\"drop dst 198.19.0.2/32\", \"accept dst 198.19.0.0/16\"] }\n\
                 chain = [{ path = [\"in\", \"fw\", \"out\"], cores = [0] }]\n";
    let back = chain.replace("[0] }]", "[0] }, { path = [\"out\", \"in\"], cores = [0] }]");
    // trials of 1000 packets per direction, which a queue holds while the core that chain and generator share runs the
    // generator
    let rate = ["--rate", "20000", "--goal", "quick,final=50ms,sum=150ms,first=50ms,loss=50%", "--json"];
    let traffic = ["--frames", "64", "--flows", "8", "--core", &core];
    for (chain, directions, more) in [(chain, 1, &[][..]), (&back, 2, &["--bidirectional"])] {
        let said = bench(&scratch, chain, &[&rate[..], &traffic, more].concat());
        let results = documents(&said);
        assert_eq!(results.len(), 1);
        assert_eq!(results[0].environment.extra.get("generator CPUs"), Some(&core));
        let trials = &results[0].trials;
        assert!(trials.len() >= 3 && trials.iter().any(|t| t.received > 0 && t.dropped_by_nfs > 0), "{trials:?}");
        for t in trials {
            assert_eq!((t.sent + t.unsent, t.received + t.lost), (t.intended, t.sent));
            assert_eq!((t.intended, t.duplicate, t.corrupt, t.reordered), (directions * 1000, 0, 0, 0));
            // the chain may drop packets of the warm-up when the trial has started
            let of_warm_up = t.dropped_by_nfs.checked_sub(t.lost).expect("all lost packets were dropped by the chain");
            assert!(of_warm_up <= 200, "{t:?}");
        }
    }
}

#[test]
fn generator_cores_have_to_exist_once() {
    let scratch = Scratch::new();
    for (core, words) in [("100000", "100000"), ("0,0", "named twice"), ("0,1x", "1x")] {
        let said = bench(&scratch, OPEN, &["--frames", "64", "--core", core]);
        assert_eq!(said.status, Some(2), "{}", said.err);
        assert!(said.err.contains("--core") && said.err.contains(words), "{}", said.err);
    }
}

/// Three routers behind a switch that forwards by MAC address.
const VNFS: &str = r#"
bondstone = 1
copies = 3
port.lan.device = "ring:lan"
port.wan.device = "ring:wan"

[nf.switch]
kind = "l2fwd"
ports = ["v${copy}"]
mac_table = [{ mac = "02:00:00:00:01:${copy:02x}", to = ["v${copy}"] }]

[nf."r${copy}"]
kind = "l3fwd"
interface.lan = { addresses = ["10.253.${copy}.1/24"], mac = "02:00:00:00:01:${copy:02x}" }
interface.wan = { addresses = ["10.254.${copy}.1/24"], mac = "02:00:00:00:02:${copy:02x}" }
route = [{ prefix = "10.${copy}.0.0/16", via = ["10.254.${copy}.2"] }]
neighbour = { "10.254.${copy}.2" = "02:00:00:00:03:${copy:02x}" }

[[chain]]
path = ["lan", "switch:in"]
cores = [0]

[[chain]]
path = ["switch.v${copy}", "r${copy}:lan"]
cores = [0]

[traffic]
into = "lan"
src = "192.0.2.0/24"
dst_mac = ["02:00:00:00:01:${copy:02x}"]
dst = ["10.${copy}.0.0/16"]
"#;

/// Number of measurements until one has packets.
const ATTEMPTS: usize = 5;

#[test]
fn counts_packets_by_vnf() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    // packets to a fourth address are for no VNF
    let fourth = VNFS.replace("dst_mac = [", "dst_mac = [\"02:00:00:00:01:ff\", ");
    let fourth = fourth.replace("dst = [", "dst = [\"203.0.113.0/24\", ");
    for (chain, count) in [(VNFS, 3_u32), (&fourth, 4)] {
        let flows = (300 * count).to_string();
        let measure =
            || documents(&bench(&scratch, chain, &[&SHORT[..], &["--frames", "64", "--flows", &flows]].concat()));
        // on a busy machine the chain may get no CPU time in its trials
        let has_latency = |all: &Vec<report::Result>| all.iter().all(|result| !result.latency.is_empty());
        let all = (0..ATTEMPTS).map(|_| measure()).find(has_latency).expect("packets");
        let [result] = &all[..] else { panic!("{} results", all.len()) };
        // chains of different VNFs reorder packets
        for t in &result.trials {
            assert_eq!((t.sent + t.unsent, t.received + t.lost), (t.intended, t.sent));
            assert_eq!((t.intended, t.duplicate, t.corrupt), (2000, 0, 0));
        }
        let vnfs = &result.latency[0].vnfs;
        assert_eq!(vnfs.len(), count as usize);
        // latency is that of three trials; those with host interference are repeated
        let seconds: f64 = result.trials.iter().take(3).map(|t| t.duration_s).sum();
        let counts: Vec<u64> = vnfs.iter().map(|vnf| (vnf.received_pps * seconds).round() as u64).collect();
        let received: u64 = result.trials.iter().map(|t| t.received).sum();
        assert!(counts.iter().sum::<u64>() <= received, "{counts:?}");
        let of_vnfs = &counts[count as usize - 3..];
        if count == 4 {
            assert_eq!((counts[0], vnfs[0].p50_ns), (0, None));
        }
        if result.trials.len() == 3 {
            assert_eq!(counts.iter().sum::<u64>(), received, "{counts:?}");
        }
        if result.trials.len() == 3 && result.trials.iter().all(|t| is_quiet(t) && t.unsent == 0) {
            // flows have turns, and a trial may begin with any
            let even = received / 3;
            let off = 2 * result.trials.len() as u64;
            assert!(of_vnfs.iter().all(|n| n.abs_diff(even) <= off), "{counts:?}");
            let fairness = result.quantity("fairness of VNFs").map(|q| q.value);
            assert!(fairness.is_some_and(|index| (index - 3.0 / f64::from(count)).abs() < 0.01), "{fairness:?}");
        }
        for (vnf, n) in vnfs[count as usize - 3..].iter().zip(of_vnfs) {
            assert!(*n == 0 || vnf.p50_ns > Some(0.0), "{vnf:?}");
            // only with a copy for each address
            assert_eq!(vnf.cycles_per_packet.is_some(), count == 3 && *n != 0, "{vnf:?}");
        }
    }
}

#[test]
fn reports_rows_of_vnfs() {
    if !has_cpu_0_and_another() {
        return;
    }
    let scratch = Scratch::new();
    let arguments = [&SHORT[..4], &["--frames", "64"]].concat();
    let measure = || bench(&scratch, VNFS, &arguments);
    let said = (0..ATTEMPTS).map(|_| measure()).find(|said| said.out.contains("VNFs")).expect("rows of VNFs");
    assert!(matches!(said.status, Some(0 | 1)), "{}", said.err);
    for words in ["VNFs", "received Mpps", "jitter µs", "fairness of VNFs", "received by the slowest VNF"] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    let page = std::fs::read_to_string(scratch.path("report.html")).unwrap();
    assert!(page.contains("<h2>VNFs</h2>"));
    // a single address is no VNF
    let single = VNFS.replace("dst_mac = [\"02:00:00:00:01:${copy:02x}\"]", "dst_mac = \"02:00:00:00:01:01\"");
    assert!(!bench(&scratch, &single, &arguments).out.contains("VNF"));
}
