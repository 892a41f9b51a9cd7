//! The cycles in which a worker has work.

use graph::Counter;
use std::sync::Arc;

/// Fewest polls between two reads of the clock from which the cost of an empty poll is learned; with fewer, the read
/// itself is most of the cost.
const LEARNED_POLLS: u32 = 8;
/// Fractions of a cycle in which that cost is kept.
const FRACTIONS: u64 = 256;

/// Counts the cycles of a worker that are not spent on empty polls and sleeps.
///
/// A worker reads the clock once in several polls. If some of them received nothing, their cost is deducted: the average
/// of earlier intervals in which all polls were empty. A poll that receives packets thus costs one store, and a
/// saturated worker is busy for all of its cycles, also if it is preempted: it has no time left.
#[derive(Debug, Default)]
pub(super) struct BusyMeter {
    cycles: Arc<Counter>,
    /// Polls since the last read of the clock that received nothing.
    empty_polls: u32,
    /// True if another poll since then did work.
    worked: bool,
    /// Average cost of an empty poll, in fractions of a cycle; 0 if unknown.
    empty_cost: u64,
}

impl BusyMeter {
    /// Returns the counter of busy cycles.
    pub(super) fn cycles(&self) -> &Arc<Counter> {
        &self.cycles
    }

    #[inline(always)]
    pub(super) fn count_work(&mut self) {
        self.worked = true;
    }

    #[inline(always)]
    pub(super) fn count_empty_poll(&mut self) {
        self.empty_polls += 1;
    }

    /// Adds the busy part of the cycles since the last call, in which the polls were made that were counted since.
    pub(super) fn add_interval(&mut self, cycles: u64) {
        let empty_polls = core::mem::take(&mut self.empty_polls);
        if core::mem::take(&mut self.worked) {
            let empty = u64::from(empty_polls).saturating_mul(self.empty_cost) / FRACTIONS;
            self.cycles.add(cycles.saturating_sub(empty));
        } else if empty_polls >= LEARNED_POLLS {
            let cost = cycles.saturating_mul(FRACTIONS) / u64::from(empty_polls);
            self.empty_cost = match self.empty_cost {
                0 => cost,
                // an interrupted interval is no sample
                before => (15 * before + cost.min(2 * before)) / 16,
            };
        }
    }

    /// Adds the cycles of timers.
    pub(super) fn add_timers(&self, cycles: u64) {
        self.cycles.add(cycles);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes polls of which every `n`-th takes 1,000 cycles and the others 100; returns the share of busy cycles.
    fn share(meter: &mut BusyMeter, n: usize, polls: usize) -> f64 {
        let (before, mut all, mut interval) = (meter.cycles().get(), 0, 0);
        for poll in 1..=polls {
            let works = n != 0 && poll.is_multiple_of(n);
            if works {
                meter.count_work()
            } else {
                meter.count_empty_poll()
            }
            interval += if works { 1000 } else { 100 };
            if poll.is_multiple_of(32) {
                meter.add_interval(interval);
                all += core::mem::take(&mut interval);
            }
        }
        (meter.cycles().get() - before) as f64 / all as f64
    }

    #[test]
    fn the_cost_of_empty_polls_is_deducted() {
        let mut meter = BusyMeter::default();
        assert_eq!(share(&mut meter, 0, 3200), 0.0);
        assert_eq!(share(&mut meter, 1, 3200), 1.0);
        // 1,000 of 1,100 and of 2,000 cycles
        let shares = [2, 11].map(|n| share(&mut meter, n, 35_200));
        assert!((shares[0] - 10.0 / 11.0).abs() < 0.001 && (shares[1] - 0.5).abs() < 0.001, "{shares:?}");
    }

    #[test]
    fn an_interruption_hardly_changes_the_cost_of_empty_polls() {
        let mut meter = BusyMeter::default();
        share(&mut meter, 0, 32);
        (0..32).for_each(|_| meter.count_empty_poll());
        meter.add_interval(10_000_000);
        assert!(meter.empty_cost < 110 * FRACTIONS, "{}", meter.empty_cost);
    }

    #[test]
    fn the_cost_of_few_polls_is_no_sample() {
        let mut meter = BusyMeter::default();
        meter.count_empty_poll();
        meter.add_interval(1_000_000);
        assert_eq!((meter.empty_cost, meter.cycles().get()), (0, 0));
        meter.add_timers(5);
        assert_eq!(meter.cycles().get(), 5);
    }
}
