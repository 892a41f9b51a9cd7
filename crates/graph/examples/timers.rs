//! Measures timers: TSC cycles to insert one, to cancel one, and to fire one, beside a `BTreeMap` of times.
//!
//! `cargo run --release -p bondstone-graph --example timers`
//!
//! Timers are spread at random over a minute, a thousand of them over a second, in ticks of a millisecond. With as many
//! in place as the line says, a thousand are inserted and a thousand cancelled, in turns; then time goes on by a
//! millisecond a step until half of them have fired. A step with nothing in place, the last column, is not counted as
//! firing.

use core::hint::black_box;
use graph::{TimerId, Timers};
use packet::clock::cycles;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time over which so many timers are spread, in milliseconds.
fn spread(count: usize) -> u64 {
    count.min(60_000) as u64
}
/// Operations in a sample.
const SAMPLE: usize = 1000;

struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        ((self.0 >> 32) * below) >> 32
    }
}

/// What keeps timers, each with a number.
trait Keeps {
    type Id: Copy;
    fn insert(&mut self, at: u64, number: u32) -> Self::Id;
    fn cancel(&mut self, id: Self::Id);
    /// Fires what is due; how many.
    fn advance(&mut self, now: u64) -> u64;
    fn len(&self) -> usize;
}

impl Keeps for Timers<u32> {
    type Id = TimerId;

    fn insert(&mut self, at: u64, number: u32) -> TimerId {
        self.once(Duration::from_millis(at), number).expect("there is room")
    }

    fn cancel(&mut self, id: TimerId) {
        black_box(Timers::cancel(self, id));
    }

    fn advance(&mut self, now: u64) -> u64 {
        let mut fired = 0;
        Timers::advance(self, Duration::from_millis(now), |timer| {
            black_box(*timer.value);
            fired += 1;
        });
        fired
    }

    fn len(&self) -> usize {
        Timers::len(self)
    }
}

/// By time, and a number that tells those of the same time apart.
#[derive(Default)]
struct Tree {
    timers: BTreeMap<(u64, u64), u32>,
    next: u64,
}

impl Keeps for Tree {
    type Id = (u64, u64);

    fn insert(&mut self, at: u64, number: u32) -> (u64, u64) {
        self.next += 1;
        self.timers.insert((at, self.next), number);
        (at, self.next)
    }

    fn cancel(&mut self, id: (u64, u64)) {
        black_box(self.timers.remove(&id));
    }

    fn advance(&mut self, now: u64) -> u64 {
        let mut fired = 0;
        while let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            black_box(first.remove());
            fired += 1;
        }
        fired
    }

    fn len(&self) -> usize {
        self.timers.len()
    }
}

fn figure(mut samples: Vec<f64>) -> String {
    samples.sort_by(f64::total_cmp);
    format!("{:.0} ({:.0})", samples[samples.len() / 2], samples[samples.len() / 20])
}

fn measure<K: Keeps>(name: &str, count: usize, mut timers: K) {
    // 100 steps at a time
    let steps = (0..1000).map(|n| {
        let from = cycles();
        (0..100).for_each(|step| _ = black_box(timers.advance(n * 100 + step)));
        (cycles() - from) as f64 / 100.0
    });
    let mut steps: Vec<f64> = steps.collect();
    steps.sort_by(f64::total_cmp);
    let (step, start) = (steps[steps.len() / 2], 100_000);
    let mut random = Random(88_172_645_463_325_252);
    let mut ids: Vec<K::Id> =
        (0..count as u32).map(|n| timers.insert(start + 1 + random.below(spread(count)), n)).collect();
    let (mut inserts, mut cancels, mut now) = (vec![], vec![], start);
    for _ in 0..100 {
        let mut fresh: [(u64, Option<K::Id>); SAMPLE] =
            core::array::from_fn(|_| (now + 1 + random.below(spread(count)), None));
        let from = cycles();
        for (at, id) in &mut fresh {
            *id = Some(timers.insert(*at, 7));
        }
        inserts.push((cycles() - from) as f64 / SAMPLE as f64);
        // any of them, not those that came last
        let gone: [K::Id; SAMPLE] = core::array::from_fn(|n| {
            let at = random.below(ids.len() as u64) as usize;
            core::mem::replace(&mut ids[at], fresh[n].1.expect("inserted"))
        });
        let from = cycles();
        gone.iter().for_each(|id| timers.cancel(*id));
        cancels.push((cycles() - from) as f64 / SAMPLE as f64);
    }
    assert_eq!(timers.len(), count);
    let (mut fires, mut fired, mut all, mut spent, mut calls) = (vec![], 0, 0, 0, 0);
    while all < count as u64 / 2 {
        now += 1;
        let from = cycles();
        fired += timers.advance(now);
        (spent, calls) = (spent + (cycles() - from), calls + 1);
        if fired >= 100 {
            fires.push((spent as f64 - f64::from(calls) * step) / fired as f64);
            all += fired;
            (fired, spent, calls) = (0, 0, 0);
        }
    }
    let step = figure(steps);
    println!("{name:9} {count:8} {:>14} {:>14} {:>14} {step:>14}", figure(inserts), figure(cancels), figure(fires));
}

fn main() {
    println!("cycles, median (p05), in {} MHz", packet::clock::hz() / 1_000_000);
    println!("            timers         insert         cancel           fire    empty step");
    for count in [1000, 1_000_000, 4_000_000] {
        measure("Timers", count, Timers::new(Duration::from_millis(1), count + SAMPLE));
        measure("BTreeMap", count, Tree::default());
    }
}
