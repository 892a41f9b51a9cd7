//! The rate at which frames of a representor's tap are read.

use std::time::{Duration, Instant};

/// A token bucket (RFC 2697 §3, with one rate).
pub(super) struct RateLimit {
    /// Nanoseconds at the rate that may be used now.
    credit: u64,
    updated: Instant,
}

impl RateLimit {
    /// Frames per second.
    const RATE: u64 = 20_000;
    /// Frames that may be read at once.
    const BURST: u64 = 512;
    const NS_PER_FRAME: u64 = 1_000_000_000 / RateLimit::RATE;

    pub(super) fn new(now: Instant) -> RateLimit {
        RateLimit { credit: RateLimit::BURST * RateLimit::NS_PER_FRAME, updated: now }
    }

    /// Adds the credit of the time that has passed.
    pub(super) fn update(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.updated).min(Duration::from_secs(1));
        let most = RateLimit::BURST * RateLimit::NS_PER_FRAME;
        (self.credit, self.updated) = ((self.credit + passed.as_nanos() as u64).min(most), now);
    }

    /// Returns true if a frame may be read.
    pub(super) fn permits(&self) -> bool {
        self.credit >= RateLimit::NS_PER_FRAME
    }

    /// Counts a frame that was read.
    pub(super) fn take(&mut self) {
        self.credit = self.credit.saturating_sub(RateLimit::NS_PER_FRAME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_a_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut limit = RateLimit::new(start);
        let mut take_all = |at: Duration| {
            limit.update(start + at);
            std::iter::from_fn(|| limit.permits().then(|| limit.take())).count() as u64
        };
        assert_eq!(take_all(Duration::ZERO), RateLimit::BURST);
        assert_eq!(take_all(Duration::ZERO), 0);
        let per_ms = (1..=1000).map(|ms| take_all(Duration::from_millis(ms)));
        assert_eq!(per_ms.sum::<u64>(), RateLimit::RATE);
        // less than a frame is kept for later
        let halves = (1..=100).map(|n| take_all(Duration::from_secs(1) + Duration::from_micros(25 * n)));
        assert_eq!(halves.sum::<u64>(), 50);
        // the burst is not exceeded, also if the clock stands still or goes back
        assert_eq!(take_all(Duration::from_secs(3600)), RateLimit::BURST);
        assert_eq!(take_all(Duration::from_secs(1800)), 0);
    }
}
