//! Timers compared with a `BTreeMap` by time: up to a million timers within a minute, with a resolution of
//! milliseconds.

use super::table::{ComponentTable, Measurement, RandomKeys};
use crate::sample::compare_costs;
use anyhow::ensure;
use core::cell::RefCell;
use core::hint::black_box;
use core::time::Duration;
use graph::{TimerId, Timers};
use packet::clock;
use std::collections::BTreeMap;

/// Timers that are inserted or cancelled in a sample.
const SAMPLE: usize = 1000;
/// Milliseconds of a sample of firing: a period in which the timer wheel cascades each of its lower levels once, which
/// is part of the cost.
const STEPS: u64 = 4096;
/// Maximum number of samples of firing, which are long.
const FIRE_SAMPLES_MAX: usize = 100;

/// Set of timers with a number each.
trait TimerSet {
    type Id: Copy;
    fn insert(&mut self, at: u64, number: u32) -> Self::Id;
    fn cancel(&mut self, id: Self::Id);
    /// Fires the timers that are due by this millisecond.
    fn advance(&mut self, now: u64, each: impl FnMut(u32));
}

impl TimerSet for Timers<u32> {
    type Id = TimerId;

    fn insert(&mut self, at: u64, number: u32) -> TimerId {
        self.schedule_once(Duration::from_millis(at), number).expect("capacity")
    }
    fn cancel(&mut self, id: TimerId) {
        black_box(Timers::cancel(self, id));
    }
    fn advance(&mut self, now: u64, mut each: impl FnMut(u32)) {
        Timers::advance(self, Duration::from_millis(now), |timer| each(*timer.value));
    }
}

/// Timers by time and a sequence number.
#[derive(Default)]
struct TimerTree {
    timers: BTreeMap<(u64, u64), u32>,
    next: u64,
}

impl TimerSet for TimerTree {
    type Id = (u64, u64);

    fn insert(&mut self, at: u64, number: u32) -> (u64, u64) {
        self.next += 1;
        self.timers.insert((at, self.next), number);
        (at, self.next)
    }
    fn cancel(&mut self, id: (u64, u64)) {
        black_box(self.timers.remove(&id));
    }
    fn advance(&mut self, now: u64, mut each: impl FnMut(u32)) {
        while let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            each(first.remove());
        }
    }
}

/// Constant number of timers of one side.
struct TimerLoad<K: TimerSet> {
    timers: K,
    /// Timer of each number.
    ids: Vec<K::Id>,
    /// All numbers in random order, so that successive timers are close neither in time nor in memory.
    order: Vec<u32>,
    random: RandomKeys,
    now: u64,
    /// Numbers of timers that have fired and are not rescheduled yet.
    fired: Vec<u32>,
    inserted: Vec<(u64, u32)>,
    spread: u64,
}

impl<K: TimerSet> TimerLoad<K> {
    fn new(mut timers: K, count: usize) -> Self {
        let (spread, mut random) = (count.min(60_000) as u64, RandomKeys::new(1 << 32));
        let ids = (0..count as u32).map(|n| timers.insert(1 + random.next() % spread, n)).collect();
        let mut order: Vec<u32> = (0..count as u32).collect();
        (1..count).for_each(|n| order.swap(n, (random.next() % (n as u64 + 1)) as usize));
        TimerLoad { timers, ids, order, random, now: 0, fired: vec![], inserted: Vec::with_capacity(SAMPLE), spread }
    }

    fn time(&mut self) -> u64 {
        self.now + 1 + self.random.next() % self.spread
    }

    /// Returns the costs of cancelling and of inserting a timer, measured with randomly chosen ones.
    fn cancel_and_insert(&mut self) -> [f64; 2] {
        let numbers: [u32; SAMPLE] = {
            // each number at most once
            let from = self.random.next() as usize % (self.ids.len() - SAMPLE + 1);
            core::array::from_fn(|n| self.order[from + n])
        };
        let from = clock::cycles();
        numbers.iter().for_each(|n| self.timers.cancel(self.ids[*n as usize]));
        let cancelled = clock::cycles();
        self.inserted.clear();
        for n in numbers {
            let at = self.time();
            self.inserted.push((at, n));
        }
        let begun = clock::cycles();
        for (at, n) in &self.inserted {
            self.ids[*n as usize] = self.timers.insert(*at, *n);
        }
        let end = clock::cycles();
        [cancelled - from, end - begun].map(|cycles| cycles as f64 / SAMPLE as f64)
    }

    /// Returns the cost of firing a timer, with steps of a millisecond; fired timers are rescheduled, which is not
    /// included.
    fn fire(&mut self) -> f64 {
        let (mut cycles, mut all) = (0, 0);
        for _ in 0..STEPS {
            self.now += 1;
            let from = clock::cycles();
            self.timers.advance(self.now, |number| self.fired.push(number));
            cycles += clock::cycles() - from;
            all += self.fired.len();
            while let Some(n) = self.fired.pop() {
                let at = self.time();
                self.ids[n as usize] = self.timers.insert(at, n);
            }
        }
        cycles as f64 / all as f64
    }

    /// Returns the times and numbers of timers that fire in a number of steps with changes in between.
    fn history(&mut self, steps: u64) -> Vec<(u64, u32)> {
        let mut all = vec![];
        for step in 0..steps {
            self.now += 1;
            let (now, mut due) = (self.now, vec![]);
            self.timers.advance(now, |number| due.push(number));
            // timers of the same time fire in any order
            due.sort_unstable();
            for n in due {
                all.push((now, n));
                let at = self.time();
                self.ids[n as usize] = self.timers.insert(at, n);
            }
            if step % 16 == 0 {
                self.cancel_and_insert();
            }
        }
        all
    }
}

pub(super) fn rows(table: &mut ComponentTable<'_>) -> anyhow::Result<()> {
    const NAMES: [&str; 3] = ["timers, cancel", "timers, insert", "timers, fire"];
    if !NAMES.iter().any(|name| table.is_selected(name)) {
        return Ok(());
    }
    for count in [10_000, 1_000_000] {
        let ours = TimerLoad::new(Timers::new(Duration::from_millis(1), count + SAMPLE), count);
        let (ours, baseline) = (RefCell::new(ours), RefCell::new(TimerLoad::new(TimerTree::default(), count)));
        let (x, y) = (ours.borrow_mut().history(200), baseline.borrow_mut().history(200));
        ensure!(!x.is_empty() && x == y, "timers: {} fired, {} in a BTreeMap, or at other times", x.len(), y.len());
        let pairs = table.pairs;
        for (at, (name, unit)) in
            NAMES.into_iter().zip(["timer cancelled", "timer inserted", "timer fired"]).enumerate()
        {
            if !table.is_selected(name) {
                continue;
            }
            let compared = match at {
                2 => compare_costs(
                    pairs.min(FIRE_SAMPLES_MAX),
                    || Some(ours.borrow_mut().fire()),
                    || Some(baseline.borrow_mut().fire()),
                ),
                _ => compare_costs(
                    pairs,
                    || Some(ours.borrow_mut().cancel_and_insert()[at]),
                    || Some(baseline.borrow_mut().cancel_and_insert()[at]),
                ),
            };
            let measurement = Measurement { name, baseline: "BTreeMap", size: count, unit };
            table.add(&measurement, &compared.expect("every sample is valid"));
        }
    }
    Ok(())
}
