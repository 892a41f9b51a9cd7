//! Histograms of the gaps between sent packets.

/// Number of bins: gaps below 1 µs, below 2 µs, below 4 µs, and so on; the last one has all longer ones.
pub(super) const BINS: usize = 24;

/// Histogram of gaps between packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    bins: [u64; BINS],
    /// Time of the last packet in nanoseconds.
    last: Option<u64>,
}

impl Gaps {
    /// Counts a packet that is sent at a time in nanoseconds.
    #[inline]
    pub(super) fn add(&mut self, now: u64) {
        if let Some(last) = self.last.replace(now) {
            let micros = now.saturating_sub(last) / 1000;
            let bin = (u64::BITS - micros.leading_zeros()) as usize;
            self.bins[bin.min(BINS - 1)] += 1;
        }
    }

    /// Returns the bins that are not empty: the gap in microseconds below which the gaps of the bin are, `None` for the
    /// last bin, and their number.
    pub(super) fn bins(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bins = self.bins.iter().enumerate().filter(|(_, n)| **n != 0);
        bins.map(|(bin, n)| ((bin + 1 < BINS).then_some(1 << bin), *n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_counted_in_powers_of_two_of_a_microsecond() {
        let (mut gaps, mut now) = (Gaps::default(), 5);
        gaps.add(now);
        for gap in [0, 999, 1000, 1999, 2000, 3999, 4000, u64::MAX / 2] {
            now += gap;
            gaps.add(now);
        }
        let bins: Vec<_> = gaps.bins().collect();
        assert_eq!(bins, [(Some(1), 2), (Some(2), 2), (Some(4), 2), (Some(8), 1), (None, 1)]);
    }
}
