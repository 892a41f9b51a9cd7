//! Packet reordering: reorder density (RFC 5236) and n-reordering (RFC 4737).
//!
//! ```
//! use traffic::Density;
//!
//! let mut density = Density::new(0);
//! [0, 2, 1, 3, 4, 6].into_iter().for_each(|number| density.arrive(number)); // 5 was lost
//! let seen = density.displacements();
//! assert_eq!((seen.count(0), seen.count(1), seen.count(-1)), (4, 1, 1));
//! assert_eq!(seen.n_reordered(1), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;

/// Largest displacement told apart, packets either way: the threshold DT of RFC 5236 §4.1.
pub const THRESHOLD: usize = 64;

/// Reorder density (RFC 5236 §4) and n-reordering (RFC 4737 §5.3), of numbered packets as they arrive.
///
/// The displacement of a packet is the place at which it arrived minus the place that its number gives it, where lost
/// numbers have no place and copies none either: above 0 for late packets, below 0 for early ones. What is lost shows
/// only later, so the last [`THRESHOLD`] arrivals wait to be judged. While packets come in order, none is looked at.
#[derive(Clone, Debug)]
pub struct Density {
    /// The next place to be given out (RI of the RFC).
    place: u64,
    /// The last arrivals, to be judged; out of date while all is in order.
    window: VecDeque<u64>,
    /// Numbers of packets that came early, whose place is to be given to another.
    early: Vec<u64>,
    /// The last arrivals, whether judged or not; out of date while all is in order.
    recent: VecDeque<u64>,
    /// Arrivals in a row, each following the one before it.
    run: usize,
    /// True if window and recent arrivals are `place..place + THRESHOLD`, without early packets.
    in_order: bool,
    seen: Displacements,
}

/// Number of packets by displacement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Displacements {
    counts: [u64; 2 * THRESHOLD + 1],
    /// Earlier than [`THRESHOLD`] places; they take no part in the density, as the RFC has it.
    pub beyond_early: u64,
    /// Later than that, and taken for lost by the density.
    pub beyond_late: u64,
    before: [u64; THRESHOLD],
}

impl Displacements {
    /// Returns the packets displaced by `places`: early ones below 0, late ones above; none beyond [`THRESHOLD`].
    pub fn count(&self, places: i32) -> u64 {
        let at = i64::from(places) + THRESHOLD as i64;
        usize::try_from(at).ok().and_then(|at| self.counts.get(at)).copied().unwrap_or(0)
    }

    /// Displacements from −[`THRESHOLD`] to [`THRESHOLD`] and how many packets had each.
    pub fn counts(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        (-(THRESHOLD as i32)..).zip(self.counts)
    }

    /// Returns the packets in the density: those displaced by [`THRESHOLD`] or less.
    pub fn judged(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the reorder density RD\[`places`\]: a share of all packets judged, 0.0 where none was.
    pub fn density(&self, places: i32) -> f64 {
        self.count(places) as f64 / self.judged().max(1) as f64
    }

    /// Packets directly before which exactly `packets` with higher numbers arrived, 1 to [`THRESHOLD`]; the last stands
    /// for all above as well. A packet that is 3-reordered looks lost to a TCP sender (RFC 4737 §5.3).
    pub fn n_reordered(&self, packets: usize) -> u64 {
        packets.checked_sub(1).and_then(|at| self.before.get(at)).copied().unwrap_or(0)
    }
}

impl Density {
    /// Creates a measurement for a stream that starts with number `first`.
    pub fn new(first: u64) -> Self {
        let seen =
            Displacements { counts: [0; 2 * THRESHOLD + 1], beyond_early: 0, beyond_late: 0, before: [0; THRESHOLD] };
        Self {
            place: first,
            window: VecDeque::with_capacity(THRESHOLD + 1),
            early: Vec::with_capacity(THRESHOLD),
            recent: VecDeque::with_capacity(THRESHOLD + 1),
            run: 0,
            in_order: false,
            seen,
        }
    }

    /// Records a packet that arrived for the first time.
    #[inline(always)]
    pub fn arrive(&mut self, number: u64) {
        if self.in_order && number == self.place + THRESHOLD as u64 {
            self.seen.counts[THRESHOLD] += 1;
            self.place += 1;
            return;
        }
        self.out_of_order(number);
    }

    #[inline(never)]
    fn out_of_order(&mut self, number: u64) {
        if self.in_order {
            self.in_order = false;
            self.window.clear();
            self.window.extend(self.place..self.place + THRESHOLD as u64);
            self.recent.clear();
            self.recent.extend(&self.window);
            self.run = THRESHOLD;
        }
        let before = self.recent.iter().rev().take_while(|other| **other > number).count();
        if before != 0 {
            self.seen.before[before - 1] += 1;
        }
        self.run = if self.recent.back().is_some_and(|last| last + 1 == number) { self.run + 1 } else { 1 };
        if self.recent.len() == THRESHOLD {
            self.recent.pop_front();
        }
        self.recent.push_back(number);
        if number < self.place {
            self.seen.beyond_late += 1;
            return;
        }
        self.window.push_back(number);
        if self.window.len() > THRESHOLD {
            self.judge();
        }
        // The last arrivals follow one another; if they are those that wait, they are `place` and what follows it.
        self.in_order = self.run >= THRESHOLD
            && self.early.is_empty()
            && self.window.len() == THRESHOLD
            && self.window.front() == Some(&self.place)
            && self.place + THRESHOLD as u64 == number + 1;
    }

    /// Gives a place to the packet that has waited longest (RFC 5236 §4.1.1, step 2).
    fn judge(&mut self) {
        let Some(number) = self.window.front().copied() else { return };
        // Numbers that neither wait nor came early are lost.
        let waiting = self.window.iter().chain(&self.early).filter(|number| **number >= self.place);
        let Some(place) = waiting.min().copied() else {
            self.window.pop_front();
            self.seen.beyond_late += 1;
            return;
        };
        self.place = place;
        self.window.pop_front();
        if number.abs_diff(place) > THRESHOLD as u64 {
            let beyond = if place > number { &mut self.seen.beyond_late } else { &mut self.seen.beyond_early };
            *beyond += 1;
            return;
        }
        let at = (place + THRESHOLD as u64 - number) as usize;
        self.seen.counts[at] += 1;
        if let Some(taken) = self.early.iter().position(|number| *number == place) {
            self.early.swap_remove(taken);
        }
        if place < number {
            self.early.push(number);
        }
        self.place += 1;
    }

    /// Returns the displacements so far, as if no more packets arrived.
    pub fn displacements(&self) -> Displacements {
        let mut end = self.clone();
        if end.in_order {
            end.seen.counts[THRESHOLD] += THRESHOLD as u64;
            return end.seen;
        }
        while !end.window.is_empty() {
            end.judge();
        }
        end.seen
    }
}

#[cfg(test)]
mod tests;
