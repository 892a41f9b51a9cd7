//! Delays: histograms of them.
//!
//! ```
//! use traffic::Delays;
//!
//! let mut delays = Delays::new();
//! (1..=1000).for_each(|microseconds| delays.record(microseconds * 1000));
//! assert_eq!(delays.quantile_ns(0.5), Some(500_223)); // three digits are kept
//! ```

use hdrhistogram::Histogram;

/// Longest delay told apart, nanoseconds: ten seconds; longer ones count as this.
pub const MAX_NS: u64 = 10_000_000_000;
/// Significant decimal digits that are kept.
pub const DIGITS: u8 = 3;

/// A histogram of delays in nanoseconds, exact to three significant digits up to ten seconds.
///
/// Shorter and longer delays are never dropped: 0 counts as 0, what is above [`MAX_NS`] counts as that.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays {
    histogram: Histogram<u64>,
}

impl Default for Delays {
    fn default() -> Self {
        Self::new()
    }
}

impl Delays {
    /// Creates an empty histogram of 200 KiB.
    pub fn new() -> Self {
        match Histogram::new_with_bounds(1, MAX_NS, DIGITS) {
            Ok(histogram) => Self { histogram },
            // The bounds are constants that the tests construct.
            Err(why) => unreachable!("histogram of {MAX_NS} ns: {why}"),
        }
    }

    /// Counts a delay.
    #[inline(always)]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
    }

    /// Counts the same delay `count` times.
    #[inline]
    pub fn record_n(&mut self, ns: u64, count: u64) {
        self.histogram.saturating_record_n(ns, count);
    }

    /// Counts all delays of another histogram as well.
    pub fn add(&mut self, other: &Delays) {
        // both have the same bounds
        let _ = self.histogram.add(&other.histogram);
    }

    /// Delays counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns the shortest delay, rounded down to the resolution.
    pub fn min_ns(&self) -> Option<u64> {
        (!self.histogram.is_empty()).then(|| self.histogram.min())
    }

    /// Returns the longest delay, rounded up to the resolution.
    pub fn max_ns(&self) -> Option<u64> {
        (!self.histogram.is_empty()).then(|| self.histogram.max())
    }

    /// Returns the delay at quantile 0.0 to 1.0.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        (!self.histogram.is_empty()).then(|| self.histogram.value_at_quantile(share))
    }

    /// Returns the histogram.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

/// Turns ticks of a counter into nanoseconds with one multiplication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Nanoseconds a tick, times 2³².
    ns: u64,
}

impl Scale {
    /// Creates a conversion for a counter of `ticks_hz` per second; 0 counts as 1.
    pub fn new(ticks_hz: u64) -> Self {
        let ns = (1_000_000_000_u128 << 32) / u128::from(ticks_hz.max(1));
        Self { ns: u64::try_from(ns).unwrap_or(u64::MAX) }
    }

    /// Returns the nanoseconds of `ticks`, rounded to the nearest.
    #[inline(always)]
    pub fn ns(self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * u128::from(self.ns) + (1 << 31)) >> 32;
        if ns > u128::from(u64::MAX) { u64::MAX } else { ns as u64 }
    }
}

#[cfg(test)]
mod tests;
