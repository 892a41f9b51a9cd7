//! Effect of reloads on forwarding at 80 % of the highest rate.
//!
//! A chain of a stateful firewall, NAT and TTL forwards 1,024 flows. In every other interval of half a second its file
//! is reloaded every 50 ms: rules, timers, the order of NFs and a further NF change. Loss, reordering and the longest
//! pause between two batches are reported for both kinds of intervals.
//!
//! `--seconds N` (default 10) of reloads; `--judge` exits with status 1 if the chain drops or reorders packets.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use config::ChainFile;
use packet::{BURST, Batch, Pool, clock};
use runtime::{Engine, PortQueues, Reloaded, allowed_cpus, pin};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use traffic::{Pace, Pacer};

/// Length of a slot in seconds.
const SLOT_S: f64 = 0.5;
const RELOAD_INTERVAL: Duration = Duration::from_millis(50);
/// Depth of a wire in frames.
const DEPTH: u32 = 4096;
/// Slots for finding the highest rate.
const RATE_SLOTS: usize = 5;
const FLOWS: usize = 1024;
/// Offset of the sequence number, behind the UDP header.
const NUMBER_AT: usize = 44;

fn file(worker: usize, variant: usize) -> ChainFile {
    let mut path = vec!["fw", "nat:inside", "ttl"];
    if variant % 2 == 1 {
        path.insert(variant % 4, "count");
    }
    if variant % 5 == 4 {
        path.swap(0, 1);
    }
    let (rule, udp) = (variant % 3, 300 + variant / 2 % 2);
    let text = format!(
        "bondstone = 1\nport.a.device = \"null\"\nport.b.device = \"null\"\n\
         [nf.fw]\nkind = \"firewall\"\nrules = [\"drop dst 192.0.2.{rule}\"]\ndefault = \"accept\"\ntrack = {{}}\n\
         [nf.nat]\nkind = \"nat44\"\nexternal = [\"203.0.113.1\"]\ntimers = {{ udp = {udp} }}\n\
         [[chain]]\npath = [\"a\", {}, \"b\"]\ncores = [{worker}]\n",
        path.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
    );
    ChainFile::parse(&text, Path::new("reloads.toml"), &nf::registry()).unwrap_or_else(|f| panic!("{f:?}"))
}

/// The results of a slot.
#[derive(Clone, Copy, Default)]
struct Slot {
    sent: u64,
    received: u64,
    reordered: u64,
    /// Frames that the generator did not send in time.
    unsent: u64,
    /// Longest time between two received batches, in µs.
    pause_us: f64,
}

/// The generator.
struct Generator {
    pool: Arc<dpdk::Mempool>,
    ends: Vec<PortQueues>,
    frames: Vec<Vec<u8>>,
    number: u32,
    expected: u32,
}

impl Generator {
    /// Sends `rate` packets per second for a slot, or as many as possible.
    fn slot(&mut self, rate: Option<f64>) -> Slot {
        let hz = clock::hz();
        let start = clock::cycles();
        let (end, mut quiet_from) = (start + (SLOT_S * hz as f64) as u64, 0);
        let mut pacer = rate.map(|rate| Pacer::new(Pace::new(rate, SLOT_S, hz), start).expect("a schedule"));
        let (mut slot, mut last, mut pause) = (Slot::default(), 0, 0);
        let mut batch = Batch::new();
        loop {
            let now = clock::cycles();
            let due = match &mut pacer {
                Some(pacer) => pacer.due(now).min(BURST),
                None if now < end => BURST,
                None => 0,
            };
            for _ in 0..due {
                let frame = &mut self.frames[self.number as usize % FLOWS];
                frame[NUMBER_AT..NUMBER_AT + 4].copy_from_slice(&self.number.to_be_bytes());
                let Some(packet) = self.pool.alloc_from(frame) else { break };
                self.number = self.number.wrapping_add(1);
                batch.push(packet).unwrap_or_else(drop);
            }
            if !batch.is_empty() {
                let n = self.ends[0].tx.send(&mut batch);
                // without a rate, frames that the wire does not accept were not offered
                slot.sent += (n + if pacer.is_some() { batch.len() } else { 0 }) as u64;
                if let Some(pacer) = &mut pacer {
                    pacer.sent(due, now);
                }
                batch.clear();
            }
            self.ends[1].rx.receive(&mut batch);
            if !batch.is_empty() {
                slot.received += batch.len() as u64;
                for packet in batch.iter() {
                    let number = packet.data()[NUMBER_AT..].first_chunk().map_or(0, |n| u32::from_be_bytes(*n));
                    slot.reordered += u64::from((number.wrapping_sub(self.expected) as i32) < 0);
                    self.expected = number.wrapping_add(1);
                }
                if last != 0 && now < end {
                    pause = pause.max(now - last);
                }
                (last, quiet_from) = (now, now);
                batch.clear();
            }
            // wait 20 ms for frames in transit
            if now >= end && now > quiet_from.max(end) + hz / 50 {
                break;
            }
        }
        slot.unsent = pacer.map_or(0, |p| p.totals().unsent);
        slot.pause_us = pause as f64 * 1e6 / hz as f64;
        slot
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value =
        |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)?.parse().ok());
    let seconds: f64 = value("--seconds").unwrap_or(10.0);
    let pairs = ((seconds / SLOT_S).ceil() as usize).max(1);

    let cpus = allowed_cpus();
    let (&own, &worker) = (cpus.first().expect("a CPU"), cpus.last().expect("a CPU"));
    let (mut engine, ends) = Engine::start_on_wires(&file(worker, 0), DEPTH).unwrap_or_else(|e| panic!("{e}"));
    let frame = |flow: usize| {
        let (src, port) = ([10, 0, (flow >> 8) as u8, flow as u8], 1000 + flow as u16);
        wire::build::udp4(src, [198, 18, 0, 2], port, 53).pad_to(60).to_vec()
    };
    engine.leave_worker_cpus();
    let pool = engine.pool().clone();
    let mut generator = Generator { pool, ends, frames: (0..FLOWS).map(frame).collect(), number: 0, expected: 0 };
    let (reloading, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let (rate, slots, results) = std::thread::scope(|scope| {
        let generate = || {
            pin(own).expect("an allowed CPU");
            let best = (0..RATE_SLOTS).map(|_| generator.slot(None).received).max().unwrap_or_default() as f64;
            let (rate, mut slots) = (0.8 * best / SLOT_S, [vec![], vec![]]);
            generator.expected = generator.number;
            for pair in 0..pairs {
                // alternate the order
                for reloads in [pair % 2 == 0, pair % 2 != 0] {
                    reloading.store(reloads, Ordering::Relaxed);
                    slots[usize::from(reloads)].push(generator.slot(Some(rate)));
                }
            }
            done.store(true, Ordering::Relaxed);
            (rate, slots)
        };
        let generator = scope.spawn(generate);
        let mut results: Vec<Reloaded> = vec![];
        while !done.load(Ordering::Relaxed) && !generator.is_finished() {
            std::thread::sleep(RELOAD_INTERVAL);
            if reloading.load(Ordering::Relaxed) {
                let new = file(worker, results.len() + 1);
                results.push(engine.reload(&new).unwrap_or_else(|e| panic!("{e}")));
            }
        }
        let (rate, slots) = generator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (rate, slots, results)
    });
    let summary = engine.stop();

    println!("firewall, NAT and TTL on CPU {worker}, generator on CPU {own}: offered {:.2} Mpps", rate / 1e6);
    println!("\n  half seconds       sent     lost  reordered  unsent  longest pause µs: median    worst");
    let sum = |slots: &[Slot], of: fn(&Slot) -> u64| slots.iter().map(of).sum::<u64>();
    for (name, slots) in ["without", "with"].iter().zip(&slots) {
        let mut pauses: Vec<f64> = slots.iter().map(|s| s.pause_us).collect();
        pauses.sort_by(f64::total_cmp);
        println!(
            "  {name:<12}{:>11}{:>9}{:>11}{:>8}{:>26.0}{:>9.0}",
            sum(slots, |s| s.sent),
            sum(slots, |s| s.sent - s.received.min(s.sent)),
            sum(slots, |s| s.reordered),
            sum(slots, |s| s.unsent),
            pauses[pauses.len() / 2],
            pauses[pauses.len() - 1],
        );
    }
    let percentile = |of: fn(&Reloaded) -> f64, share: f64| {
        let mut all: Vec<f64> = results.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[((all.len() - 1) as f64 * share) as usize]
    };
    println!(
        "\n  {} reloads; built in {:.1} ms (median; longest {:.1}), in effect after another {:.1} ms (longest {:.1}); \
         worker paused for {:.0} us (longest {:.0})",
        results.len(),
        percentile(|r| r.build_ms, 0.5),
        percentile(|r| r.build_ms, 1.0),
        percentile(|r| r.exchange_ms, 0.5),
        percentile(|r| r.exchange_ms, 1.0),
        percentile(|r| r.pause_us, 0.5),
        percentile(|r| r.pause_us, 1.0),
    );
    println!(
        "  received {} + created 0 = sent {} + held {} + dropped {}",
        summary.totals.received, summary.totals.sent, summary.totals.held, summary.totals.dropped
    );
    assert!(summary.balanced, "{summary:?}");
    // the wire also overflows while a worker is preempted, so only what the chain does is judged
    let dropped = summary.nfs.iter().flat_map(|nf| nf.drops.values()).sum::<u64>();
    if arguments.iter().any(|a| a == "--judge") && (dropped != 0 || slots.iter().any(|s| sum(s, |s| s.reordered) != 0))
    {
        eprintln!("error: the chain drops or reorders packets");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
