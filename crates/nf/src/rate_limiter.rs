//! Rate limiting of ICMP messages.

use std::time::Duration;

/// One token.
const ONE: u64 = 1_000_000_000;

/// Token bucket that allows a number of messages per second and holds tokens for one second.
pub(crate) struct RateLimiter {
    rate: u32,
    /// Messages that may be sent now, in billionths.
    tokens: u64,
    last_refill: Duration,
}

impl RateLimiter {
    /// Returns a limiter of `rate` messages per second with a full bucket.
    pub(crate) fn new(rate: u32) -> Self {
        RateLimiter { rate, tokens: u64::from(rate) * ONE, last_refill: Duration::ZERO }
    }

    /// Takes a token and returns true, or returns false if there is none.
    pub(crate) fn allows(&mut self, now: Duration) -> bool {
        let capacity = u64::from(self.rate) * ONE;
        let elapsed = now.saturating_sub(self.last_refill).min(Duration::from_secs(1));
        self.last_refill = now;
        self.tokens = (self.tokens + elapsed.as_nanos() as u64 * u64::from(self.rate)).min(capacity);
        let allowed = self.tokens >= ONE;
        if allowed {
            self.tokens -= ONE;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_tokens_for_one_second() {
        let mut limiter = RateLimiter::new(10);
        let sent = |l: &mut RateLimiter, ms: u64| (0..100).filter(|_| l.allows(Duration::from_millis(ms))).count();
        assert_eq!(sent(&mut limiter, 0), 10);
        assert_eq!(sent(&mut limiter, 100), 1);
        assert_eq!(sent(&mut limiter, 600), 5);
        assert_eq!(sent(&mut limiter, 60_000), 10);
        assert_eq!(sent(&mut limiter, 50_000), 0, "a clock that goes back adds no tokens");
    }
}
