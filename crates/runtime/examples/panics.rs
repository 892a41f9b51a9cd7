//! Effect on another chain of an NF that panics a thousand times per second.
//!
//! Two chains share a core. The first forwards at 80 % of its highest rate. The second forwards one frame per
//! millisecond, which makes its NF panic in every other interval of half a second. Loss and longest pause between two
//! batches of the first chain are reported for both kinds of intervals.
//!
//! `--seconds N` (default 10) of panics; `--judge` exits with status 1 if panics have an effect.
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that prints its results")]

use config::ChainFile;
use diagnostics::Diagnostic;
use graph::{BuildContext, Context, Nf, Node};
use packet::{BURST, Batch, Pool, clock};
use runtime::{Engine, PortQueues, allowed_cpus, pin};
use std::path::Path;
use std::process::ExitCode;
use traffic::{Pace, Pacer};

/// First byte of frames on which the NF panics.
const BOMB: u8 = 0xbb;
/// Length of a slot in seconds.
const SLOT_S: f64 = 0.5;
/// Depth of a wire in frames.
const DEPTH: u32 = 4096;
/// Slots for finding the highest rate.
const RATE_SLOTS: usize = 5;

struct Bomb;

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Settings {}

struct BombNode;

impl Nf for Bomb {
    type Settings = Settings;
    const KIND: &'static str = "bomb";
    const ABOUT: &'static str = "Panics at some frames.";
    fn build(_: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        Ok(BombNode)
    }
}

impl Node for BombNode {
    fn process(&mut self, _: &mut Context<'_>, _: u8, batch: &mut Batch) {
        assert!(batch.iter().all(|p| p.data()[0] != BOMB), "on purpose");
    }
}

/// The results of a slot for the chain that does not panic.
#[derive(Clone, Copy, Default)]
struct Slot {
    sent: u64,
    received: u64,
    /// Frames that the generator did not send in time.
    unsent: u64,
    /// Longest time between two received batches, in µs.
    pause_us: f64,
    panics: u64,
}

struct Fixture {
    engine: Engine,
    ends: Vec<PortQueues>,
    frame: Vec<u8>,
}

impl Fixture {
    fn restarts(&self) -> u64 {
        self.engine.snapshot().nfs.iter().map(|nf| nf.restarts).sum()
    }

    /// Sends `rate` packets per second for a slot, or as many as possible, and one frame per millisecond to the other
    /// chain.
    fn slot(&mut self, rate: Option<f64>, bombs: bool) -> Slot {
        let hz = clock::hz();
        let millisecond = hz / 1000;
        let pool = self.engine.pool().clone();
        let (start, before) = (clock::cycles(), self.restarts());
        let end = start + (SLOT_S * hz as f64) as u64;
        let mut pacer = rate.map(|rate| Pacer::new(Pace::new(rate, SLOT_S, hz), start).expect("a schedule"));
        let mut slot = Slot::default();
        let (mut next_bomb, mut last, mut pause) = (start + millisecond, 0, 0);
        let (mut batch, mut back) = (Batch::new(), Batch::new());
        let mut quiet_from = end;
        loop {
            let now = clock::cycles();
            let due = match &mut pacer {
                Some(pacer) => pacer.due(now).min(BURST),
                None => {
                    if now < end {
                        BURST
                    } else {
                        0
                    }
                }
            };
            for _ in 0..due {
                match pool.alloc_from(&self.frame) {
                    Some(packet) => batch.push(packet).unwrap_or_else(drop),
                    None => break,
                }
            }
            if !batch.is_empty() {
                let n = self.ends[0].tx.send(&mut batch);
                slot.sent += n as u64;
                if let Some(pacer) = &mut pacer {
                    // frames that the wire does not accept are lost
                    slot.sent += batch.len() as u64;
                    pacer.sent(due, now);
                }
                batch.clear();
            }
            if now >= next_bomb && now < end {
                next_bomb += millisecond;
                let mut one = self.frame.clone();
                one[0] = if bombs { BOMB } else { 2 };
                if let Some(packet) = pool.alloc_from(&one) {
                    batch.push(packet).unwrap_or_else(drop);
                    self.ends[2].tx.send(&mut batch);
                    batch.clear();
                }
            }
            self.ends[1].rx.receive(&mut back);
            if !back.is_empty() {
                slot.received += back.len() as u64;
                if last != 0 && now < end {
                    pause = pause.max(now - last);
                }
                last = now;
                quiet_from = now.max(end);
                back.clear();
            }
            self.ends[3].rx.receive(&mut back);
            back.clear();
            // wait 20 ms for frames in transit
            if now >= end && now > quiet_from + 20 * millisecond {
                break;
            }
        }
        slot.unsent = pacer.map_or(0, |p| p.totals().unsent);
        slot.pause_us = pause as f64 * 1e6 / hz as f64;
        slot.panics = self.restarts() - before;
        slot
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value =
        |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)?.parse().ok());
    let seconds: f64 = value("--seconds").unwrap_or(10.0);
    let pairs = ((seconds / SLOT_S).ceil() as usize).max(1);
    let judges = arguments.iter().any(|a| a == "--judge");
    assert!(!judges || pairs >= 20, "--judge needs at least 10 seconds");

    let cpus = allowed_cpus();
    let (&own, &worker) = (cpus.first().expect("a CPU"), cpus.last().expect("a CPU"));
    let text = format!(
        "bondstone = 1\nport.a.device = \"null\"\nport.b.device = \"null\"\nport.c.device = \"null\"\nport.d.device = \"null\"\n\
         [[chain]]\npath = [\"a\", \"ttl\", \"count\", \"b\"]\ncores = [{worker}]\n\
         [[chain]]\npath = [\"c\", \"bomb\", \"d\"]\ncores = [{worker}]\n"
    );
    let registry = nf::registry().with::<Bomb>();
    let file = ChainFile::parse(&text, Path::new("panics.toml"), &registry).unwrap_or_else(|f| panic!("{f:?}"));
    let (engine, ends) = Engine::start_on_wires(&file, DEPTH).unwrap_or_else(|e| panic!("{e}"));
    pin(own).expect("an allowed CPU");
    let frame = wire::build::udp4([198, 18, 0, 1], [198, 18, 0, 2], 1000, 53).pad_to(60).to_vec();
    let mut fixture = Fixture { engine, ends, frame };

    let best = (0..RATE_SLOTS).map(|_| fixture.slot(None, false).received).max().unwrap_or_default() as f64 / SLOT_S;
    let rate = 0.8 * best;
    println!(
        "two chains on CPU {worker}, generator on CPU {own}: highest rate {:.2} Mpps, offered {:.2} Mpps",
        best / 1e6,
        rate / 1e6
    );
    let mut slots = [vec![], vec![]];
    for pair in 0..pairs {
        // alternate the order
        for bombs in [pair % 2 == 0, pair % 2 != 0] {
            slots[usize::from(bombs)].push(fixture.slot(Some(rate), bombs));
        }
    }
    let Fixture { engine, ends, .. } = fixture;
    let summary = engine.stop();
    drop(ends);

    println!("\n  half seconds  panics       sent     lost   lost ppm  unsent  longest pause µs: median    worst");
    for (name, slots) in ["without", "with"].iter().zip(&slots) {
        let sum = |of: fn(&Slot) -> u64| slots.iter().map(of).sum::<u64>();
        let (sent, lost) = (sum(|s| s.sent), sum(|s| s.sent - s.received.min(s.sent)));
        let mut pauses: Vec<f64> = slots.iter().map(|s| s.pause_us).collect();
        pauses.sort_by(f64::total_cmp);
        println!(
            "  {name:<12}{:>8}{sent:>11}{lost:>9}{:>11.3}{:>8}{:>26.0}{:>9.0}",
            sum(|s| s.panics),
            lost as f64 * 1e6 / sent as f64,
            sum(|s| s.unsent),
            pauses[pauses.len() / 2],
            pauses[pauses.len() - 1],
        );
    }
    let worse =
        |of: fn(&Slot) -> f64| slots[1].iter().zip(&slots[0]).filter(|(with, without)| of(with) > of(without)).count();
    let loss = worse(|s| s.sent.saturating_sub(s.received) as f64);
    let pause = worse(|s| s.pause_us);
    // one-sided sign test: by chance, each count exceeds this in about one run of a hundred
    let limit = (pairs as f64 / 2.0 + 2.33 * (pairs as f64).sqrt() / 2.0).floor() as usize;
    println!(
        "\n  of {pairs} pairs, loss is higher with panics in {loss}, and the pause longer in {pause}; \
         up to {limit} is chance"
    );
    let panics: u64 = slots[1].iter().map(|s| s.panics).sum();
    println!(
        "  received {} + created 0 = sent {} + held {} + dropped {}",
        summary.totals.received, summary.totals.sent, summary.totals.held, summary.totals.dropped
    );
    assert!(summary.balanced, "{summary:?}");
    assert!(panics > 0 && summary.drops.get("nf_panic").is_some_and(|&n| n >= panics), "{summary:?}");
    if judges && (loss > limit || pause > limit) {
        eprintln!("error: panics affect the other chain");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
