//! Delay variation by each of the common definitions, per packet and in bounded memory.
//!
//! | quantity | definition |
//! |---|---|
//! | [`Variation::pdv_ns`] | packet delay variation, RFC 5481 §4.2: delay − smallest delay; at 99.9 % RFC 8219 §7.3.1's |
//! | [`Variation::ipdv`] | inter-packet delay variation, RFC 3393, RFC 5481 §4.1: D(i) − D(i−1), both received |
//! | [`Variation::jitter_ns`] | RFC 3550 §6.4.1: J += (\|D\| − J) / 16 over packets as they arrive |
//! | [`Variation::difference`] | jitter of RFC 4689: \|ΔD\| of packets received one after the other |
//!
//! ```
//! use traffic::Variation;
//!
//! let mut variation = Variation::new();
//! for (number, delay_ns) in [(0, 1000), (1, 1500), (2, 1200), (4, 1000)] {
//!     variation.arrive(number, delay_ns);
//! }
//! assert_eq!(variation.pdv_ns(1.0), Some(500));
//! // Number 3 was lost, so 4 has no predecessor.
//! assert_eq!((variation.ipdv().min_ns(), variation.ipdv().max_ns()), (Some(-300), Some(500)));
//! assert_eq!(variation.difference().mean_ns(), Some((500.0 + 300.0 + 200.0) / 3.0));
//! ```

use crate::latency::Delays;

/// Numbers behind which a packet is no longer paired with its neighbour for [`Variation::ipdv`].
pub const PAIRED: usize = 1024;

/// Variation of the delays of one stream's packets.
#[derive(Clone, Debug)]
pub struct Variation {
    delays: Delays,
    min_ns: u64,
    max_ns: u64,
    /// The last numbers and their delays, each at its number's place modulo [`PAIRED`].
    last: Box<[(u64, u64)]>,
    ipdv: Signed,
    /// Delay of the packet that arrived last.
    before: Option<u64>,
    jitter: Option<f64>,
    jitter_max: f64,
    difference: Difference,
}

/// No number, which stay below 2⁶³.
const NONE: u64 = u64::MAX;

impl Default for Variation {
    fn default() -> Self {
        Self::new()
    }
}

impl Variation {
    /// Creates an empty measurement of 0.6 MiB.
    pub fn new() -> Self {
        Self {
            delays: Delays::new(),
            min_ns: u64::MAX,
            max_ns: 0,
            last: vec![(NONE, 0); PAIRED].into(),
            ipdv: Signed::new(),
            before: None,
            jitter: None,
            jitter_max: 0.0,
            difference: Difference::default(),
        }
    }

    /// Takes note of packet `number`, received for the first time and `delay_ns` nanoseconds after it left.
    pub fn arrive(&mut self, number: u64, delay_ns: u64) {
        self.delays.record(delay_ns);
        self.min_ns = self.min_ns.min(delay_ns);
        self.max_ns = self.max_ns.max(delay_ns);
        self.pair(number, delay_ns);
        if let Some(before) = self.before.replace(delay_ns) {
            let difference = delay_ns.abs_diff(before);
            self.difference.add(difference);
            // The first difference has no estimate before it and makes it, a sixteenth of it as from J = 0.
            let jitter = self.jitter.unwrap_or(0.0);
            let jitter = jitter + (difference as f64 - jitter) / 16.0;
            self.jitter = Some(jitter);
            self.jitter_max = self.jitter_max.max(jitter);
        }
    }

    /// Finds the packets of the numbers before and behind, in whatever order they arrived.
    fn pair(&mut self, number: u64, delay_ns: u64) {
        let place = |number: u64| number as usize % PAIRED;
        let known = |(is, delay): (u64, u64), number: u64| (is == number).then_some(delay);
        if let Some(number) = number.checked_sub(1)
            && let Some(before) = known(self.last[place(number)], number)
        {
            self.ipdv.add(delay_ns as i64 - before as i64);
        }
        if let Some(behind) = known(self.last[place(number + 1)], number + 1) {
            self.ipdv.add(behind as i64 - delay_ns as i64);
        }
        let slot = &mut self.last[place(number)];
        // One that comes very late must not drive out a newer one.
        if slot.0 == NONE || slot.0 < number {
            *slot = (number, delay_ns);
        }
    }

    /// Returns the number of packets recorded.
    pub fn count(&self) -> u64 {
        self.delays.count()
    }

    /// Returns the delays.
    pub fn delays(&self) -> &Delays {
        &self.delays
    }

    /// Returns the smallest delay, exact.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count() != 0).then_some(self.min_ns)
    }

    /// Returns the largest delay, exact.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count() != 0).then_some(self.max_ns)
    }

    /// The packet delay variation that a share of all packets, 0.0 to 1.0, does not exceed: 0.999 for RFC 8219's
    /// D99.9 − Dmin. Too large by at most a thousandth of the delay, for the histogram's sake.
    pub fn pdv_ns(&self, share: f64) -> Option<u64> {
        let delay = self.delays.quantile_ns(share)?.clamp(self.min_ns, self.max_ns);
        Some(delay - self.min_ns)
    }

    /// Differences of the delays of packets with consecutive numbers of which both were received, of the higher number
    /// minus the lower. A pair is missed if so much is out of order that [`PAIRED`] numbers lie between.
    pub fn ipdv(&self) -> &Signed {
        &self.ipdv
    }

    /// Returns the interarrival jitter as it stands after the last packet, nanoseconds; none before the second packet.
    pub fn jitter_ns(&self) -> Option<f64> {
        self.jitter
    }

    /// Returns the largest interarrival jitter.
    pub fn jitter_max_ns(&self) -> Option<f64> {
        self.jitter.map(|_| self.jitter_max)
    }

    /// Differences of the delays of packets that were received one after the other, without sign.
    pub fn difference(&self) -> Difference {
        self.difference
    }
}

/// Maximum and mean of absolute differences.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Difference {
    count: u64,
    sum: u128,
    max: u64,
}

impl Difference {
    #[inline(always)]
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the largest value in nanoseconds.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count != 0).then_some(self.max)
    }

    /// Returns the mean in nanoseconds.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count != 0).then(|| self.sum as f64 / self.count as f64)
    }
}

/// A histogram of times with a sign, each exact to three significant digits up to ten seconds.
#[derive(Clone, Debug)]
pub struct Signed {
    below: Delays,
    zero: u64,
    above: Delays,
    sum: i128,
    /// Smallest and largest, exact.
    ends: Option<(i64, i64)>,
}

impl Signed {
    fn new() -> Self {
        Self { below: Delays::new(), zero: 0, above: Delays::new(), sum: 0, ends: None }
    }

    #[inline(always)]
    fn add(&mut self, ns: i64) {
        match ns {
            ..0 => self.below.record(ns.unsigned_abs()),
            0 => self.zero += 1,
            1.. => self.above.record(ns as u64),
        }
        self.sum += i128::from(ns);
        let (min, max) = self.ends.unwrap_or((ns, ns));
        self.ends = Some((min.min(ns), max.max(ns)));
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.below.count() + self.zero + self.above.count()
    }

    /// Returns the absolute values.
    pub fn amounts(&self) -> Delays {
        let mut all = self.above.clone();
        all.add(&self.below);
        all.record_n(0, self.zero);
        all
    }

    /// Returns the number of positive values.
    pub fn above(&self) -> u64 {
        self.above.count()
    }

    /// Returns the smallest value in nanoseconds, exact.
    pub fn min_ns(&self) -> Option<i64> {
        self.ends.map(|(min, _)| min)
    }

    /// Returns the largest value in nanoseconds, exact.
    pub fn max_ns(&self) -> Option<i64> {
        self.ends.map(|(_, max)| max)
    }

    /// Returns the mean in nanoseconds: the growth of the delay from packet to packet.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() != 0).then(|| self.sum as f64 / self.count() as f64)
    }

    /// Returns the value at quantile 0.0 to 1.0 in nanoseconds.
    pub fn quantile_ns(&self, share: f64) -> Option<i64> {
        let (min, max) = self.ends?;
        let rank = ((share.clamp(0.0, 1.0) * self.count() as f64).ceil() as u64).max(1);
        let (below, above) = (self.below.count(), self.above.count());
        let at = |delays: &Delays, rank: u64| {
            // Half a rank less, lest a rounded product reaches the next one.
            let share = (rank as f64 - 0.5) / delays.count() as f64;
            delays.quantile_ns(share).and_then(|ns| i64::try_from(ns).ok()).unwrap_or(i64::MAX)
        };
        let ns = if rank <= below {
            // The smallest of all is the largest below zero.
            -at(&self.below, below + 1 - rank)
        } else if rank <= below + self.zero {
            0
        } else {
            at(&self.above, (rank - below - self.zero).min(above))
        };
        Some(ns.clamp(min, max))
    }
}

#[cfg(test)]
mod tests;
