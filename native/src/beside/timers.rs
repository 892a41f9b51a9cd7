//! Timers beside a `BTreeMap` of times: a million of them, spread over a minute of milliseconds.

use super::{Keys, Table, What};
use crate::sample::compare_costs;
use anyhow::ensure;
use core::cell::RefCell;
use core::hint::black_box;
use core::time::Duration;
use graph::{TimerId, Timers};
use packet::clock;
use std::collections::BTreeMap;

/// Timers inserted or cancelled in a sample.
const SAMPLE: usize = 1000;
/// Milliseconds in a sample of firing: as many as it takes the wheel to bring each of its lower levels nearer once, which is
/// part of the price.
const STEPS: u64 = 4096;
/// Samples of firing at most, which are long ones.
const FIRING: usize = 100;

/// What keeps timers, each with a number.
trait Keeps {
    type Id: Copy;
    fn insert(&mut self, at: u64, number: u32) -> Self::Id;
    fn cancel(&mut self, id: Self::Id);
    /// Fires what is due by this millisecond.
    fn advance(&mut self, now: u64, each: impl FnMut(u32));
}

impl Keeps for Timers<u32> {
    type Id = TimerId;

    fn insert(&mut self, at: u64, number: u32) -> TimerId {
        self.once(Duration::from_millis(at), number).expect("there is room")
    }
    fn cancel(&mut self, id: TimerId) {
        black_box(Timers::cancel(self, id));
    }
    fn advance(&mut self, now: u64, mut each: impl FnMut(u32)) {
        Timers::advance(self, Duration::from_millis(now), |timer| each(*timer.value));
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
    fn advance(&mut self, now: u64, mut each: impl FnMut(u32)) {
        while let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            each(first.remove());
        }
    }
}

/// Timers of one side, as many all the time.
struct Side<K: Keeps> {
    timers: K,
    /// Each number's timer.
    ids: Vec<K::Id>,
    /// All numbers, in no order: those that lie together are neither of like times nor beside each other in memory.
    order: Vec<u32>,
    random: Keys,
    now: u64,
    /// Numbers that have fired since they were last looked at.
    fired: Vec<u32>,
    inserted: Vec<(u64, u32)>,
    spread: u64,
}

impl<K: Keeps> Side<K> {
    fn new(mut timers: K, count: usize) -> Self {
        let (spread, mut random) = (count.min(60_000) as u64, Keys::new(1 << 32));
        let ids = (0..count as u32).map(|n| timers.insert(1 + random.next() % spread, n)).collect();
        let mut order: Vec<u32> = (0..count as u32).collect();
        (1..count).for_each(|n| order.swap(n, (random.next() % (n as u64 + 1)) as usize));
        Side { timers, ids, order, random, now: 0, fired: vec![], inserted: Vec::with_capacity(SAMPLE), spread }
    }

    fn time(&mut self) -> u64 {
        self.now + 1 + self.random.next() % self.spread
    }

    /// What to cancel one of these costs, and what to insert one; any of them, not those that came last.
    fn cancel_and_insert(&mut self) -> [f64; 2] {
        let numbers: [u32; SAMPLE] = {
            // each once
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

    /// What to fire one costs, time going on a millisecond a step; those that have fired are set again, untimed.
    fn fire(&mut self) -> f64 {
        let (mut spent, mut all) = (0, 0);
        for _ in 0..STEPS {
            self.now += 1;
            let from = clock::cycles();
            self.timers.advance(self.now, |number| self.fired.push(number));
            spent += clock::cycles() - from;
            all += self.fired.len();
            while let Some(n) = self.fired.pop() {
                let at = self.time();
                self.ids[n as usize] = self.timers.insert(at, n);
            }
        }
        spent as f64 / all as f64
    }

    /// What fires, and when, over so many steps with insertions between: both sides must agree.
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

pub(super) fn rows(table: &mut Table<'_>) -> anyhow::Result<()> {
    const NAMES: [&str; 3] = ["timers, cancel", "timers, insert", "timers, fire"];
    if !NAMES.iter().any(|name| table.wanted(name)) {
        return Ok(());
    }
    for count in [10_000, 1_000_000] {
        let ours = Side::new(Timers::new(Duration::from_millis(1), count + SAMPLE), count);
        let (ours, theirs) = (RefCell::new(ours), RefCell::new(Side::new(Tree::default(), count)));
        let (x, y) = (ours.borrow_mut().history(200), theirs.borrow_mut().history(200));
        ensure!(!x.is_empty() && x == y, "timers: {} fire, {} in a BTreeMap, or at other times", x.len(), y.len());
        let pairs = table.pairs;
        for (at, (what, unit)) in
            NAMES.into_iter().zip(["timer cancelled", "timer inserted", "timer fired"]).enumerate()
        {
            if !table.wanted(what) {
                continue;
            }
            let compared = match at {
                2 => compare_costs(
                    pairs.min(FIRING),
                    || Some(ours.borrow_mut().fire()),
                    || Some(theirs.borrow_mut().fire()),
                ),
                _ => compare_costs(
                    pairs,
                    || Some(ours.borrow_mut().cancel_and_insert()[at]),
                    || Some(theirs.borrow_mut().cancel_and_insert()[at]),
                ),
            };
            let what = What { what, beside: "BTreeMap", size: count, unit };
            table.add(&what, &compared.expect("every sample counts"));
        }
    }
    Ok(())
}
