//! Tracking of sequence numbers: lost, duplicated, reordered.
//!
//! ```
//! use traffic::sequence::{Arrival, Sequence};
//!
//! let mut sequence = Sequence::new(0, 5);
//! let arrivals = [0, 2, 1, 1].map(|number| sequence.arrive(number));
//! assert_eq!(arrivals, [Arrival::New, Arrival::New, Arrival::Reordered, Arrival::Duplicate]);
//! assert_eq!(sequence.totals().lost(5), 2);
//! ```

use crate::probe::SEQUENCE_BITS;

/// Numbers remembered behind the highest one seen, unless told otherwise: 4.4 ms at 14.88 Mpps, in 8 KiB.
pub const WINDOW: usize = 1 << 16;
/// Most numbers that can be remembered, in 2 MiB.
pub const MAX_WINDOW: usize = 1 << 24;

/// Classification of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arrival {
    /// Above all numbers so far: in order, though perhaps behind a gap.
    New,
    /// For the first time, but below a number seen before (RFC 4737 §3.3, NextExp is the highest number and one).
    Reordered,
    /// Seen before (RFC 5560).
    Duplicate,
    /// So far behind that it cannot be told whether it was seen before: not counted as received, and thus lost.
    Late,
    /// Below the first number of this trial: left over from one before.
    Stale,
    /// Above the last number of this trial: it was never sent, so this packet was damaged or forged.
    Impossible,
}

/// Counts of arrivals. Those of several receivers add up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Different packets that arrived in time: new and reordered.
    pub received: u64,
    /// Of these, below a number seen before.
    pub reordered: u64,
    /// Further copies.
    pub duplicate: u64,
    /// Behind the window.
    pub late: u64,
    /// Of a trial before.
    pub stale: u64,
    /// Of numbers never sent.
    pub impossible: u64,
    /// Longest way back from the highest number to a reordered one (RFC 4737 §4.2, in packets); the largest, not the
    /// sum, where totals add up.
    pub reorder_extent_max: u64,
}

impl Totals {
    /// Returns the packets lost of `sent`.
    pub fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.received)
    }

    /// Returns all arrivals.
    pub fn arrivals(&self) -> u64 {
        self.received + self.duplicate + self.late + self.stale + self.impossible
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            reordered: self.reordered + other.reordered,
            duplicate: self.duplicate + other.duplicate,
            late: self.late + other.late,
            stale: self.stale + other.stale,
            impossible: self.impossible + other.impossible,
            reorder_extent_max: self.reorder_extent_max.max(other.reorder_extent_max),
        }
    }
}

/// The numbers of one stream that have arrived, within a window behind the highest.
#[derive(Clone, Debug)]
pub struct Sequence {
    first: u64,
    /// Behind the last number that can be sent.
    end: u64,
    /// Behind the highest number seen.
    next: u64,
    /// A bit for each number of the window, at the number's place modulo the window.
    seen: Box<[u64]>,
    totals: Totals,
}

impl Sequence {
    /// Creates a tracker for at most `intended` numbers from `first` on, with a window of [`WINDOW`].
    pub fn new(first: u64, intended: u64) -> Self {
        Self::with_window(first, intended, WINDOW)
    }

    /// As [`new`](Self::new) with another window, rounded up to a power of two from 64 to [`MAX_WINDOW`].
    pub fn with_window(first: u64, intended: u64, window: usize) -> Self {
        let window = window.clamp(64, MAX_WINDOW).next_power_of_two();
        // Numbers stay below 2⁶³, so that differences of them have a sign.
        let first = first.min(1 << 62);
        let end = first.saturating_add(intended).min(1 << 62);
        Self { first, end, next: first, seen: vec![0; window / 64].into(), totals: Totals::default() }
    }

    /// Numbers remembered.
    pub fn window(&self) -> u64 {
        self.seen.len() as u64 * 64
    }

    /// Returns the first number of the trial.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Numbers that can be sent at most.
    pub fn intended(&self) -> u64 {
        self.end - self.first
    }

    /// The number whose low 40 bits `number` has and that is nearest to the highest seen; 0 where that lies below.
    #[inline(always)]
    pub fn whole(&self, number: u64) -> u64 {
        self.next.saturating_add_signed(self.ahead(number))
    }

    /// Returns true if `number` lies below the first.
    pub fn is_stale(&self, number: u64) -> bool {
        self.next.checked_add_signed(self.ahead(number)).is_none_or(|number| number < self.first)
    }

    /// Returns the distance of a number from the highest seen plus one.
    #[inline(always)]
    fn ahead(&self, number: u64) -> i64 {
        let unused = 64 - SEQUENCE_BITS;
        ((number.wrapping_sub(self.next) << unused) as i64) >> unused
    }

    /// Returns the counts so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Takes note of a packet. Only the low 40 bits of `number` matter: it is the nearest such to the highest seen.
    #[inline(always)]
    pub fn arrive(&mut self, number: u64) -> Arrival {
        let ahead = self.ahead(number);
        if ahead == 0 && self.next < self.end {
            self.mark(self.next);
            self.next += 1;
            self.totals.received += 1;
            return Arrival::New;
        }
        self.out_of_order(ahead)
    }

    #[cold]
    fn out_of_order(&mut self, ahead: i64) -> Arrival {
        let Some(number) = self.next.checked_add_signed(ahead).filter(|number| *number >= self.first) else {
            self.totals.stale += 1;
            return Arrival::Stale;
        };
        if number >= self.end {
            self.totals.impossible += 1;
            return Arrival::Impossible;
        }
        if number >= self.next {
            self.forget(self.next, number);
            self.mark(number);
            self.next = number + 1;
            self.totals.received += 1;
            return Arrival::New;
        }
        let back = self.next - number;
        if back > self.window() {
            self.totals.late += 1;
            return Arrival::Late;
        }
        let (word, bit) = self.place(number);
        if self.seen[word] & bit != 0 {
            self.totals.duplicate += 1;
            return Arrival::Duplicate;
        }
        self.mark(number);
        self.totals.received += 1;
        self.totals.reordered += 1;
        self.totals.reorder_extent_max = self.totals.reorder_extent_max.max(back - 1);
        Arrival::Reordered
    }

    #[inline(always)]
    fn place(&self, number: u64) -> (usize, u64) {
        ((number / 64) as usize & (self.seen.len() - 1), 1 << (number % 64))
    }

    #[inline(always)]
    fn mark(&mut self, number: u64) {
        let (word, bit) = self.place(number);
        self.seen[word] |= bit;
    }

    /// Clears the places of `from..to`, which held numbers that now leave the window.
    fn forget(&mut self, from: u64, to: u64) {
        if to - from >= self.window() {
            self.seen.fill(0);
            return;
        }
        let mut at = from;
        while at < to {
            let span = (64 - at % 64).min(to - at);
            let (word, _) = self.place(at);
            let ones = if span == 64 { u64::MAX } else { (1 << span) - 1 };
            self.seen[word] &= !(ones << (at % 64));
            at += span;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// The same with a set that forgets nothing.
    struct Model {
        first: u64,
        end: u64,
        next: u64,
        window: u64,
        seen: HashSet<u64>,
    }

    impl Model {
        fn arrive(&mut self, number: u64) -> Arrival {
            if number < self.first {
                Arrival::Stale
            } else if number >= self.end {
                Arrival::Impossible
            } else if number >= self.next {
                self.next = number + 1;
                self.seen.insert(number);
                Arrival::New
            } else if self.next - number > self.window {
                Arrival::Late
            } else if self.seen.insert(number) {
                Arrival::Reordered
            } else {
                Arrival::Duplicate
            }
        }
    }

    fn check(first: u64, intended: u64, window: usize, numbers: impl Iterator<Item = u64>) {
        let mut sequence = Sequence::with_window(first, intended, window);
        let window = sequence.window();
        let mut model = Model { first, end: first + intended, next: first, window, seen: HashSet::new() };
        let (mut arrivals, mut stale, mut late, mut extra) = (0, 0, 0, 0);
        for number in numbers {
            // Packets carry 40 bits.
            let arrival = sequence.arrive(number & ((1 << SEQUENCE_BITS) - 1));
            assert_eq!(arrival, model.arrive(number), "number {number}");
            arrivals += 1;
            stale += u64::from(arrival == Arrival::Stale);
            late += u64::from(arrival == Arrival::Late);
            extra += u64::from(arrival == Arrival::Duplicate);
        }
        let totals = sequence.totals();
        assert_eq!(totals.received, model.seen.len() as u64);
        assert_eq!((totals.stale, totals.late, totals.duplicate), (stale, late, extra));
        assert_eq!(totals.arrivals(), arrivals);
        assert_eq!(totals.lost(intended), intended - model.seen.len() as u64);
    }

    #[test]
    fn forty_bits_start_over() {
        let first = (1 << SEQUENCE_BITS) - 3;
        check(first, 10, 64, [first, first + 2, first + 4, first + 3, first + 3, first - 1, first + 10].into_iter());
    }

    #[test]
    fn a_gap_of_whole_windows() {
        for gap in [63, 64, 65, 127, 128, 129, 1000] {
            check(0, 5000, 64, (0..70).chain([70 + gap, 69, 70 + gap - 63, 70 + gap - 64, 70 + gap]));
        }
    }

    #[test]
    fn extents() {
        let mut sequence = Sequence::new(0, 100);
        for number in [0, 5, 1, 9, 8] {
            sequence.arrive(number);
        }
        let totals = sequence.totals();
        assert_eq!((totals.reordered, totals.reorder_extent_max), (2, 4));
        assert_eq!(totals.plus(totals).reorder_extent_max, 4);
        assert_eq!(totals.plus(totals).received, 10);
    }

    proptest! {
        #[test]
        fn equals_a_set(
            first in prop_oneof![Just(0_u64), 1_u64..200, Just((1 << SEQUENCE_BITS) - 50)],
            intended in 0_u64..600,
            numbers in prop::collection::vec(0_u64..700, 0..600),
            window in 1_usize..200,
        ) {
            check(first, intended, window, numbers.into_iter().map(|n| (first + n).saturating_sub(50)));
        }

        #[test]
        fn equals_a_set_on_a_shaky_path(
            steps in prop::collection::vec((0_u64..4, 0_u64..100, any::<bool>()), 0..800),
        ) {
            // Mostly in order, some lost, some sent back by up to 99, some repeated.
            let mut at = 0;
            let mut numbers = Vec::new();
            for (skip, back, twice) in steps {
                at += 1 + skip / 3;
                numbers.push(if back % 7 == 0 { at.saturating_sub(back) } else { at });
                if twice && back % 5 == 0 {
                    numbers.push(at);
                }
            }
            check(0, 100_000, 64, numbers.into_iter());
        }
    }
}
