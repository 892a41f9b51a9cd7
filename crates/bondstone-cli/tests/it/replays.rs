//! Replay of captures on the command line: rewritten, with their gaps, in both directions.

use crate::common::{Said, Scratch, bondstone, has_cpu_0_and_another, is_quiet};
use report::{Frames, Result};
use std::path::PathBuf;
use wire::build;

/// Chains in both directions that accept packets from or to 198.18.0.0/16.
const CHAIN: &str = r#"
bondstone = 1
port.in.device = "ring:in"
port.out.device = "ring:out"
nf.fw = { kind = "firewall", rules = ["accept src 198.18.0.0/16", "accept dst 198.18.0.0/16"] }
chain = [{ path = ["in", "fw", "out"], cores = [0] }, { path = ["out", "fw", "in"], cores = [0] }]
"#;
const MAP: [&str; 2] = ["--rewrite", "10.0.0.0/16=198.18.0.0/16"];
/// One trial of 60 ms.
const SHORT: [&str; 3] = ["--json", "--goal", "quick,final=20ms,sum=60ms,first=20ms"];

fn run(scratch: &Scratch, arguments: &[&str]) -> Said {
    let (db, page) = (scratch.path("results.sqlite"), scratch.path("report.html"));
    let kept = ["--db", db.to_str().unwrap(), "--report", page.to_str().unwrap()];
    bondstone(["bench"].iter().chain(arguments).chain(&kept).copied())
}

fn bench(scratch: &Scratch, arguments: &[&str]) -> Vec<Result> {
    let file = scratch.write("chain.toml", CHAIN);
    let said = run(scratch, &[&[file.to_str().unwrap()], &SHORT[..], arguments].concat());
    said.results()
}

/// Writes a capture of UDP between these hosts with frames at these microseconds.
fn capture(scratch: &Scratch, name: &str, between: [[u8; 4]; 2], times_us: &[u64], payload: usize) -> PathBuf {
    let mut writer = pcap::Writer::new(Vec::new(), pcap::LinkType::ETHERNET).unwrap();
    let frame = build::udp4(between[0], between[1], 1000, 53).payload(&vec![7; payload]).to_vec();
    for at in times_us {
        writer.write(1_700_000_000_000_000_000 + at * 1000, frame.len() as u32, &frame).unwrap();
    }
    scratch.write(name, writer.finish().unwrap())
}

const THERE: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 1, 0, 1]];
const BACK: [[u8; 4]; 2] = [[10, 1, 0, 1], [10, 0, 0, 1]];

/// Five frames at once and five a second later; the period is 1.11 s.
const BURSTS: [u64; 10] = [0, 0, 0, 0, 0, 1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000];

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// Asserts that the schedule of every trial has this many packets, all accounted for.
#[track_caller]
fn assert_intended(result: &Result, packets: u64) {
    assert!(!result.trials.is_empty());
    for t in &result.trials {
        assert_eq!((t.intended, t.sent + t.unsent, t.received + t.lost), (packets, packets, t.sent));
        assert!(t.lateness_hdr.is_some());
    }
}

#[test]
fn rewrites_a_capture_and_reports_it() {
    if !has_cpu_0_and_another() {
        return;
    }
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let file = capture(&scratch, "lunch.pcap", THERE, &[0, 10, 20, 30], 40);
    let rate = ["--pcap", text(&file), "--rate", "50000"];
    let plain = &bench(&scratch, &rate)[0];
    assert!(plain.trials.iter().all(|t| t.received == 0), "the firewall drops these addresses");
    let map = &bench(&scratch, &[&rate[..], &MAP, &["--vlan", "7"]].concat())[0];
    assert!(map.trials.iter().any(|t| t.received > 0), "and accepts the rewritten ones");
    assert!(map.trials.iter().all(|t| t.lost == 0 || !is_quiet(t)), "{:?}", map.trials);
    assert_eq!((map.cell["rewrite"].as_str(), map.cell["vlan"].as_str()), (MAP[1], "7"));
    assert!(map.deviations.iter().any(|d| d.contains("4 of the first 4 frames of lunch.pcap")), "{:?}", map.deviations);
    let Frames::Trace(trace) = &map.traffic.frames else { panic!("{:?}", map.traffic.frames) };
    assert_eq!(trace.mean_frame_bytes, (14 + 4 + 28 + 40 + 4) as f64, "with its tag");
    // results of different traffic are not compared
    let db = scratch.path("results.sqlite");
    let compare = bondstone(["results", "compare", &plain.id, &map.id, "--db", text(&db)]);
    assert_eq!(compare.status, Some(2));
    assert!(compare.err.contains("rewrite"), "{}", compare.err);
    let none = run(
        &scratch,
        &[&[text(&scratch.path("chain.toml"))], &SHORT[..], &rate, &["--rewrite", "9.0.0.0/8=8.0.0.0/8"]].concat(),
    );
    assert!(none.err.contains("warning: rewritten") && none.err.contains("0 of the first 4"), "{}", none.err);
}

#[test]
fn a_capture_is_sent_with_its_gaps() {
    if !has_cpu_0_and_another() {
        return;
    }
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let file = capture(&scratch, "bursts.pcap", THERE, &BURSTS, 40);
    let of = |more: &[&str]| bench(&scratch, &[&["--pcap", text(&file)], &MAP[..], more].concat()).remove(0);
    // the first 60 ms contain only the first burst
    let own = of(&["--gaps"]);
    assert_intended(&own, 5);
    assert_eq!((own.method.name.as_str(), own.cell["gaps"].as_str(), own.goal.trial_duration_s), ("load", "own", 0.06));
    let pps = own.trials[0].load_pps;
    assert!((pps - 9.0).abs() < 1e-6, "{pps}");
    assert!(own.deviations.iter().any(|d| d.contains("with their gaps")));
    // 60 ms are 5.4 periods of 11.1 ms
    let faster = of(&["--speed", "100"]);
    assert_intended(&faster, 5 * 10 + 5);
    assert!((faster.trials[0].load_pps - 900.0).abs() < 1e-6);
    // the same, set by the rate
    assert_intended(&of(&["--gaps", "--rate", "900"]), 55);
    // a search that ends soon, also on a busy host
    let goal = ["--json", "--goal", "quick,loss=50%,final=10ms,sum=10ms,first=10ms,width=50%"];
    let chain = scratch.path("chain.toml");
    let search = [&[text(&chain), "--pcap", text(&file), "--gaps", "--method", "throughput"], &MAP[..], &goal].concat();
    let searched = run(&scratch, &search).results().remove(0);
    assert!(searched.calibration.is_some(), "sent much faster than captured");
    assert_eq!((searched.method.name.as_str(), searched.cell["gaps"].as_str()), ("throughput", "own"));
}

#[test]
fn a_capture_larger_than_memory_is_sent_with_its_gaps() {
    if !has_cpu_0_and_another() {
        return;
    }
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let times: Vec<u64> = (0..36_000).map(|n| n * 20).collect();
    let file = capture(&scratch, "large.pcap", THERE, &times, 1900);
    let result = bench(&scratch, &[&["--pcap", text(&file), "--speed", "2"], &MAP[..]].concat()).remove(0);
    assert!(result.deviations.iter().any(|d| d.contains("are read again while sending")), "{:?}", result.deviations);
    assert!((result.trials[0].load_pps - 1e5).abs() < 1.0, "{}", result.trials[0].load_pps);
    assert_intended(&result, 6000);
    assert!(result.trials.iter().any(|t| t.received > 0));
}

#[test]
fn sends_two_captures_in_both_directions() {
    if !has_cpu_0_and_another() {
        return;
    }
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    let client = capture(&scratch, "client.pcap", THERE, &[0, 5_000, 10_000, 15_000], 40);
    let server = capture(&scratch, "server.pcap", BACK, &[12_500], 400);
    let both = format!("{},{}", client.display(), server.display());
    let paced = bench(&scratch, &[&["--pcap", &both, "--rate", "10000"], &MAP[..]].concat()).remove(0);
    assert_intended(&paced, 2 * 200);
    let hash = |path: &PathBuf| Some(report::sha256(&std::fs::read(path).unwrap()));
    let traffic = &paced.traffic;
    assert_eq!(
        (traffic.directions, &traffic.trace_sha256, &traffic.reverse_trace_sha256),
        (2, &hash(&client), &hash(&server))
    );
    assert_eq!(traffic.frames.label(), "client.pcap,server.pcap");
    assert!(paced.trials.iter().any(|t| t.received > 0));
    assert!(paced.trials.iter().all(|t| t.lost == 0 || !is_quiet(t)), "each is sent into its port: {:?}", paced.trials);
    // 60 ms contain three periods of 18.75 ms and the first frame of the fourth
    let twice = ["--pcap", text(&client), "--pcap", text(&server), "--gaps"];
    let own = bench(&scratch, &[&twice, &MAP[..]].concat()).remove(0);
    assert_intended(&own, 3 * 5 + 1);
    assert!(own.deviations.iter().any(|d| d.contains("captured time offset")), "{:?}", own.deviations);
}

#[test]
fn a_scenario_sets_all_options() {
    if !has_cpu_0_and_another() {
        return;
    }
    let _one = crate::common::alone();
    let scratch = Scratch::new();
    capture(&scratch, "client.pcap", THERE, &BURSTS, 40);
    capture(&scratch, "server.pcap", BACK, &BURSTS, 40);
    scratch.write("chain.toml", CHAIN);
    let scenario = "bondstone = 1\n[scenario]\ntitle = \"replay\"\n[dut]\nchain = \"chain.toml\"\n[traffic]\n\
                    capture = [\"client.pcap\", \"server.pcap\"]\nrewrite = [\"10.0.0.0/16=198.18.0.0/16\"]\nvlan = \"strip\"\n\
                    speed = 100.0\n[goal]\nthroughput = \"quick,final=20ms,sum=60ms,first=20ms\"\n";
    let file = scratch.write("scenario.toml", scenario);
    let result = run(&scratch, &[text(&file), "--json"]).results().remove(0);
    assert_eq!(result.cell["rewrite"], MAP[1]);
    assert_eq!((result.cell["vlan"].as_str(), result.cell["gaps"].as_str()), ("strip", "own"));
    assert_eq!((result.traffic.directions, result.method.name.as_str()), (2, "load"));
    // both start with five frames, have five more after 10 ms, and repeat after 10.5 ms
    assert!(result.trials.iter().all(|t| t.intended == t.sent + t.unsent && t.intended == 110), "{:?}", result.trials);
}

#[test]
fn errors_name_the_option() {
    let scratch = Scratch::new();
    let file = capture(&scratch, "one.pcap", THERE, &[5, 5], 40);
    let one = ["--pcap", text(&file)];
    let chain = scratch.write("chain.toml", CHAIN);
    for (more, words) in [
        (&["--rewrite", "10.0.0.0/8=198.18.0.0/15"][..], "of one IP version and length"),
        (&["--vlan", "4095"], "VLAN"),
        (&["--speed", "0"], "times the captured speed"),
        (&["--gaps"], "has no gaps"),
        (&["--pcap", "b.pcap", "--pcap", "c.pcap"], "not a valid number of captures"),
        (&["--bidirectional"], "--bidirectional"),
        (&["--speed", "2", "--rate", "5"], "--rate"),
    ] {
        let said = run(&scratch, &[&[text(&chain)], &one[..], more].concat());
        assert!(said.status == Some(2) && said.err.contains(words), "{more:?}: {}", said.err);
    }
    for more in [&["--gaps"][..], &["--speed", "2"], &MAP, &["--vlan", "strip"]] {
        let said = run(&scratch, &[&[text(&chain)], more].concat());
        assert!(said.status == Some(2) && said.err.contains("--pcap FILE"), "{more:?}: {}", said.err);
    }
    // one port has no second direction
    let single = CHAIN.lines().filter(|l| !l.starts_with("port.out") && !l.starts_with("chain")).collect::<Vec<_>>();
    let single = scratch.write("single.toml", single.join("\n") + "\nchain = [{ path = [\"in\", \"fw\", \"in\"] }]\n");
    let said = run(&scratch, &[&[text(&single)], &one[..], &one[..]].concat());
    assert!(said.status == Some(2) && said.err.contains("is the only port"), "{}", said.err);
}
