//! Cost of captures: cycles per packet of a chain without a capture, with one whose filter no packet matches, and with
//! one of all packets of a port, written to /dev/null in pcapng.
//!
//! A chain of TTL and firewall processes 1,024 flows of UDP as fast as its CPU permits; frames of 60 and of 1,500 bytes
//! come from a pcap file that is repeated. Intervals of 0.2 s without and with captures alternate. The capture is read
//! on another CPU; what it does not read in time is lost from the capture, as with `bondstone capture`.
//!
//! `--rounds N` (default 20): intervals of each kind. Needs libpcap for the filter.
#![allow(clippy::print_stdout, reason = "a program that prints its results")]

use config::ChainFile;
use packet::clock;
use pcap::{LinkType, NgWriter};
use runtime::{Capture, CaptureSpec, Direction, Engine, allowed_cpus, pin};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Length of an interval.
const INTERVAL: Duration = Duration::from_millis(200);
/// Wait after a capture has begun or ended, in which the workers notice it.
const SETTLE: Duration = Duration::from_millis(20);
const FLOWS: u16 = 1024;
const KINDS: [&str; 3] = ["no capture", "filter matches nothing", "all packets to /dev/null"];
/// A filter that no packet of the chain matches.
const NONE: &str = "udp dst port 9";

fn chain(frame_len: usize, worker: usize, dir: &Path) -> ChainFile {
    let mut writer = pcap::Writer::create(dir.join("in.pcap"), LinkType::ETHERNET).expect("a file");
    for flow in 0..FLOWS {
        let frame = wire::build::udp4([10, 0, 0, 1], [198, 18, 0, 2], 1000 + flow, 53);
        let frame = frame.payload(&vec![0; frame_len - 42]).to_vec();
        writer.write(0, frame.len() as u32, &frame).expect("a file");
    }
    writer.finish().expect("a file");
    let text = format!(
        "bondstone = 1\n[port.in]\ndevice = \"pcap:in.pcap\"\nrepeat = 0\n[port.out]\ndevice = \"null\"\n\
         [nf.fw]\nkind = \"firewall\"\nrules = [\"drop dst 192.0.2.1\"]\ndefault = \"accept\"\ntrack = {{}}\n\
         [[chain]]\npath = [\"in\", \"ttl\", \"fw\", \"out\"]\ncores = [{worker}]\n"
    );
    ChainFile::parse(&text, &dir.join("captures.toml"), &nf::registry()).unwrap_or_else(|f| panic!("{f:?}"))
}

/// Starts a capture of the packets that port `in` receives.
fn capture(engine: &Engine, kind: usize) -> Option<Capture> {
    let filter = match kind {
        0 => return None,
        1 => Some(bpf::compile(NONE).unwrap_or_else(|e| panic!("{e}"))),
        _ => None,
    };
    let places = vec!["in".to_owned()];
    let snaplen = pcap::MAX_FRAME as u32;
    let spec = CaptureSpec { places, direction: Direction::In, drops: false, reason: None, filter, snaplen };
    Some(engine.capture(&spec).unwrap_or_else(|e| panic!("{e}")))
}

/// Writes captured packets to /dev/null until `done`; returns the numbers of selected and of lost ones.
fn read(mut capture: Capture, done: &AtomicBool) -> (u64, u64) {
    let null = File::create("/dev/null").expect("/dev/null");
    let mut writer = NgWriter::new(null, LinkType::ETHERNET, pcap::MAX_FRAME as u32, &["in rx"]).expect("/dev/null");
    while !done.load(Ordering::Relaxed) {
        let written = capture.read(|packet| {
            writer.write(packet.interface as u32, packet.timestamp_ns, packet.original_len, packet.frame, None)
        });
        if written.expect("/dev/null") == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let counts = capture.counts();
    (counts.iter().map(|c| c.matched).sum(), counts.iter().map(|c| c.lost).sum())
}

/// Cycles per packet of an interval, and the share of selected packets that the capture has lost.
fn interval(engine: &Engine, kind: usize) -> (f64, f64) {
    let (done, capture) = (AtomicBool::new(false), capture(engine, kind));
    std::thread::scope(|scope| {
        let reader = capture.map(|capture| scope.spawn(|| read(capture, &done)));
        std::thread::sleep(SETTLE);
        let sample = || (clock::cycles(), engine.snapshot().totals.received);
        let (from, before) = sample();
        std::thread::sleep(INTERVAL);
        let (to, after) = sample();
        done.store(true, Ordering::Relaxed);
        let (matched, lost) = reader.map_or((0, 0), |reader| reader.join().expect("the reader"));
        std::thread::sleep(SETTLE);
        ((to - from) as f64 / (after - before) as f64, lost as f64 / matched.max(1) as f64)
    })
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let at = arguments.iter().position(|a| a == "--rounds");
    let rounds: usize = at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(20).max(1);
    // EAL starts once in a process: each size has its own
    let Some(frame_len) = arguments.iter().position(|a| a == "--frame").and_then(|at| arguments.get(at + 1)) else {
        println!(
            "{:<8}{:<28}{:>24}{:>10}{:>10}{:>8}",
            "bytes", "capture", "cycles per packet: p05", "median", "p95", "lost"
        );
        for frame_len in ["60", "1500"] {
            let words = ["--rounds", &rounds.to_string(), "--frame", frame_len].map(str::to_owned);
            let program = std::env::current_exe().expect("this program");
            let ended = std::process::Command::new(program).args(words).status().expect("this program");
            assert!(ended.success(), "{ended}");
        }
        return;
    };
    let cpus = allowed_cpus();
    let (&own, &worker) = (cpus.first().expect("a CPU"), cpus.last().expect("a CPU"));
    let scratch = Scratch(std::env::temp_dir().join(format!("bondstone-captures-{}", std::process::id())));
    std::fs::create_dir(&scratch.0).expect("a directory for temporary files");
    let file = chain(frame_len.parse().expect("--frame N"), worker, &scratch.0);
    let engine = Engine::start(&file).unwrap_or_else(|e| panic!("{e}"));
    pin(own).expect("an allowed CPU");
    std::thread::sleep(INTERVAL);
    let mut results = [const { (vec![], vec![]) }; KINDS.len()];
    for round in 0..rounds {
        for n in 0..KINDS.len() {
            let kind = (round + n) % KINDS.len();
            let (cycles, lost) = interval(&engine, kind);
            results[kind].0.push(cycles);
            results[kind].1.push(lost);
        }
    }
    for (name, (cycles, lost)) in KINDS.iter().zip(&mut results) {
        println!(
            "{frame_len:<8}{name:<28}{:>24.0}{:>10.0}{:>10.0}{:>7.0}%",
            percentile(cycles, 0.05),
            percentile(cycles, 0.5),
            percentile(cycles, 0.95),
            100.0 * percentile(lost, 0.5),
        );
    }
    let summary = engine.stop();
    assert!(summary.balanced, "{summary:?}");
}
