//! Time and memory to load rules of `ids`, and its rate beside that of the search alone:
//! `cargo run --release -p bondstone-nf --example ids [load|rate|detect|rules] [RULES]`.
//!
//! `load` (30,000 rules by default) builds the NF with each engine, in a process of its own, from generated rules with the
//! options of public rule sets. `rate` (3,000 rules) feeds payloads of 1,460 bytes in TCP streams and UDP to an NF whose rules
//! have one content each, to a node that only searches the payloads for the same contents, and to one that does nothing, in
//! turn. Prints nanoseconds per packet without those of the last one, and the ratio. `detect` is the same with the rules of
//! `load`; `rules` prints them. Without arguments, `load` and `rate` are run.
#![allow(clippy::print_stdout, reason = "a program that prints its results")]
#![forbid(unsafe_code)]

mod generator;

use generator::{Random, rules};
use graph::{Context, Node};
use multi_pattern::{Engine, Literal, Patterns, Searcher, hyperscan_version};
use nf::Ids;
use packet::Batch;
use std::time::Instant;
use testkit::wire::{TcpFlags, build};
use testkit::{Harness, HarnessBuilder};

const PAYLOAD_LEN: usize = 1460;
/// Offset of the payload in frames of UDP and TCP over IPv4.
const UDP_PAYLOAD: usize = 14 + 20 + 8;
const TCP_PAYLOAD: usize = 14 + 20 + 20;
/// Packets of a sample, all of one call of `feed`.
const SAMPLE: usize = 256;
const SAMPLES: usize = 60;
const SEED: u64 = 20;

fn status(key: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    line.trim_start_matches(':').trim().split(' ').next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0)
        / 1024.0
}

/// Returns settings that name a file with rules.
fn settings(file: &std::path::Path, matcher: &str) -> String {
    format!("rules = [\"{}\"]\nmatcher = \"{matcher}\"\nflows = 4096\nmidstream = false\n", file.display())
}

fn write_rules(name: &str, text: &str) -> std::path::PathBuf {
    let file = std::env::temp_dir().join(format!("{name}-{}.rules", std::process::id()));
    std::fs::write(&file, text).expect("a writable folder for temporary files");
    file
}

/// Loads rules with one engine and prints the costs.
fn load(matcher: &str, count: usize) {
    let text = rules(SEED, count);
    let file = write_rules("load", &text);
    let before = status("VmRSS");
    let start = Instant::now();
    let built = HarnessBuilder::new::<Ids>(&settings(&file, matcher)).build();
    let elapsed = start.elapsed();
    drop(std::fs::remove_file(&file));
    match built {
        Ok(nf) => println!(
            "{matcher}: {} rules ({} refused) in {:.2} s, {:.0} MiB, at most {:.0} MiB; {} patterns in {:.1} MB",
            nf.counter("rules"),
            nf.counter("refused_rules"),
            elapsed.as_secs_f64(),
            status("VmRSS") - before,
            status("VmHWM"),
            nf.counter("patterns"),
            nf.counter("pattern_bytes") as f64 / 1e6,
        ),
        Err(e) => println!("{matcher}: {e}"),
    }
}

/// Searches payloads, from an offset on.
struct Search {
    searcher: Searcher,
    from: usize,
    found: u64,
}

impl Node for Search {
    fn process(&mut self, _: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let Search { searcher, from, found } = self;
        batch.for_each(|packet| {
            let payload = packet.data().get(*from..).unwrap_or_default();
            *found += searcher.search(payload).map_or(0, <[u32]>::len) as u64;
        });
    }
}

struct Nothing;

impl Node for Nothing {
    fn process(&mut self, _: &mut Context<'_>, _: u8, _: &mut Batch) {}
}

fn payload(random: &mut Random) -> Vec<u8> {
    let mut text = String::with_capacity(PAYLOAD_LEN + 64);
    while text.len() < PAYLOAD_LEN {
        text += &random.text(20, 60);
        text += "\r\n";
    }
    text.truncate(PAYLOAD_LEN);
    text.into_bytes()
}

/// Returns the frames of handshakes of `SAMPLE / 32` connections, and those of the samples.
fn tcp_frames(random: &mut Random) -> (Vec<Vec<u8>>, Vec<Vec<Vec<u8>>>) {
    const FLOWS: usize = SAMPLE / 32;
    let segment = |flow: usize| build::tcp4([10, 0, 0, 1], [192, 0, 2, 1], 40_000 + flow as u16, 80);
    let answer = |flow: usize| build::tcp4([192, 0, 2, 1], [10, 0, 0, 1], 80, 40_000 + flow as u16);
    let handshakes = (0..FLOWS).flat_map(|flow| {
        [
            segment(flow).flags(TcpFlags::SYN).seq(0).to_vec(),
            answer(flow).flags(TcpFlags::SYN | TcpFlags::ACK).seq(0).ack(1).to_vec(),
            segment(flow).flags(TcpFlags::ACK).seq(1).ack(1).to_vec(),
        ]
    });
    let mut next = [1u32; FLOWS];
    let samples = (0..SAMPLES).map(|_| {
        let one = (0..SAMPLE).map(|n| {
            let flow = n % FLOWS;
            let frame = segment(flow).flags(TcpFlags::ACK).seq(next[flow]).ack(1).payload(&payload(random)).to_vec();
            next[flow] += PAYLOAD_LEN as u32;
            frame
        });
        one.collect()
    });
    let samples = samples.collect();
    (handshakes.collect(), samples)
}

fn udp_frames(random: &mut Random) -> Vec<Vec<Vec<u8>>> {
    let sample = |_| {
        let one = (0..SAMPLE).map(|n| {
            let frame = build::udp4([10, 0, 0, 1], [192, 0, 2, 1], 40_000 + (n % 64) as u16, 53);
            frame.payload(&payload(random)).to_vec()
        });
        one.collect()
    };
    (0..SAMPLES).map(sample).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Feeds samples to each NF in turn; returns the median nanoseconds per packet of each.
fn measure(nfs: &mut [Harness; 3], samples: &[Vec<Vec<u8>>]) -> [f64; 3] {
    let mut times = [vec![], vec![], vec![]];
    for sample in samples {
        for (nf, times) in nfs.iter_mut().zip(&mut times) {
            let start = Instant::now();
            let out = nf.feed(sample).len();
            times.push(start.elapsed().as_nanos() as f64 / sample.len() as f64);
            assert_eq!(out, sample.len());
        }
    }
    times.map(median)
}

fn rate(count: usize, with_generated_rules: bool) {
    let mut random = Random::new(SEED + 1);
    let contents: Vec<(String, bool)> = (0..count).map(|_| (random.text(8, 40), random.below(2) == 0)).collect();
    let lines = contents.iter().enumerate().map(|(n, (text, nocase))| {
        let nocase = if *nocase { " nocase;" } else { "" };
        format!("alert ip any any -> any any (flow:to_server; content:\"{text}\";{nocase} sid:{};)\n", n + 1)
    });
    let text = if with_generated_rules { rules(SEED, count) } else { lines.collect() };
    let file = write_rules("rate", &text);
    let (handshakes, tcp) = tcp_frames(&mut random);
    let udp = udp_frames(&mut random);
    for (engine, matcher) in [(Engine::Hyperscan, "hyperscan"), (Engine::AhoCorasick, "aho_corasick")] {
        if engine == Engine::Hyperscan
            && let Err(e) = hyperscan_version()
        {
            println!("{e}");
            continue;
        }
        // as the NF searches with this engine
        let literal =
            |(text, nocase): &'_ (String, bool)| (text.as_bytes().to_vec(), *nocase || engine == Engine::AhoCorasick);
        let literals: Vec<_> = contents.iter().map(literal).collect();
        let literals: Vec<_> = literals.iter().map(|(bytes, nocase)| Literal { bytes, nocase: *nocase }).collect();
        let patterns = Patterns::compile(engine, &literals).expect("valid literals");
        for (kind, from, handshakes, samples) in
            [("TCP", TCP_PAYLOAD, &handshakes[..], &tcp), ("UDP", UDP_PAYLOAD, &[], &udp)]
        {
            let search = Search { searcher: patterns.searcher().expect("memory"), from, found: 0 };
            let ids = HarnessBuilder::new::<Ids>(&settings(&file, matcher)).build().expect("valid rules");
            let mut nfs = [Harness::from_node(Nothing), Harness::from_node(search), ids];
            nfs.iter_mut().for_each(|nf| drop(nf.feed(handshakes)));
            let [nothing, search, ids] = measure(&mut nfs, samples);
            let (search, ids) = (search - nothing, ids - nothing);
            println!(
                "{matcher}, {kind}, {count} rules: search {search:.0} ns ({:.2} Gbit/s), ids {ids:.0} ns ({:.2} Gbit/s): {:.0} % \
                 ({} alerts, {} flows, harness {nothing:.0} ns)",
                (PAYLOAD_LEN * 8) as f64 / search,
                (PAYLOAD_LEN * 8) as f64 / ids,
                100.0 * search / ids,
                nfs[2].counter("alerts"),
                handshakes.len() / 3,
            );
        }
    }
    drop(std::fs::remove_file(&file));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = |default| arguments.get(1).and_then(|n| n.parse().ok()).unwrap_or(default);
    match arguments.first().map(String::as_str) {
        Some("rate") => rate(count(3000), false),
        Some("detect") => rate(count(30_000), true),
        Some("rules") => print!("{}", rules(SEED, count(30_000))),
        Some(matcher @ ("hyperscan" | "aho_corasick")) => load(matcher, count(30_000)),
        _ => {
            let this = std::env::current_exe().expect("the path of this program");
            for matcher in ["hyperscan", "aho_corasick"] {
                // the memory of one is not that of the other
                let run = std::process::Command::new(&this).args([matcher, &count(30_000).to_string()]).status();
                assert!(run.is_ok_and(|status| status.success()), "{matcher} failed");
            }
            if arguments.is_empty() {
                rate(3000, false);
            }
        }
    }
}
