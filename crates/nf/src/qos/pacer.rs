//! Release times of packets at a rate.

/// Token bucket that computes when a packet may be sent.
///
/// A packet is sent when the bucket is full enough at its nominal time, and takes its tokens at that time. The nominal
/// time of a packet that waits is when enough tokens have been added, not when it is actually sent, so that the rate
/// does not depend on the interval of timers. This is the virtual scheduling algorithm of ITU-T I.371 (GCRA).
///
/// In any time t at most rate · (t + d) + burst + one packet are sent, where d is the largest delay of a timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    /// Time to send a byte, in units of 2⁻³² ns.
    per_byte: u64,
    /// Time to send the burst size, in units of 2⁻³² ns.
    burst: u128,
    /// Time at which the bucket is full, in units of 2⁻³² ns.
    full_at: u128,
}

/// Time from which a [`Pacer`] may send the next packet, in units of 2⁻³² ns: its state, whatever its rate and burst size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextAt(i128);

impl Default for NextAt {
    /// That of a full bucket.
    fn default() -> Self {
        NextAt(i128::MIN)
    }
}

impl Pacer {
    /// Creates a full bucket of `burst` bytes for a rate in bits per second, at least 1000.
    pub(super) fn new(rate: u64, burst: u64) -> Self {
        // at most 8 · 10⁶ ns · 2³², less than 2⁵⁵
        let per_byte = ((8_000_000_000_u128 << 32) / u128::from(rate.max(1000))) as u64;
        Pacer { per_byte, burst: u128::from(per_byte) * u128::from(burst), full_at: 0 }
    }

    /// Returns the time in nanoseconds from which the next packet may be sent.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        // rounded up
        ((self.full_at.saturating_sub(self.burst) + u128::from(u32::MAX)) >> 32) as u64
    }

    /// Takes the tokens of a packet that was queued at `since` and is sent now, at or after [`next`](Self::next).
    #[inline]
    pub(super) fn send(&mut self, since: u64, bytes: u64) {
        let next = self.full_at.saturating_sub(self.burst);
        // the time of a packet that is queued at the rounded time is not rounded, or the rate would be too low
        let eligible = if since <= self.next() { next } else { u128::from(since) << 32 };
        self.full_at = self.full_at.max(eligible) + u128::from(self.per_byte) * u128::from(bytes);
    }

    /// Returns a pacer of this rate and burst size in the state of another one.
    #[inline]
    pub(super) fn resume(&self, next: NextAt) -> Self {
        Pacer { full_at: next.0.saturating_add(self.burst as i128).max(0) as u128, ..*self }
    }

    /// Returns the state.
    #[inline]
    pub(super) fn next_at(&self) -> NextAt {
        NextAt(self.full_at as i128 - self.burst as i128)
    }

    /// Returns true if the bucket is full at this time, as that of a new pacer is.
    pub(super) fn is_full(&self, now: u64) -> bool {
        self.full_at <= u128::from(now) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::proptest::prelude::*;

    #[test]
    fn a_state_does_not_depend_on_rate_and_burst() {
        let mut slow = Pacer::new(1_000_000, 1_000_000);
        slow.send(0, 1_000_000);
        let fast = Pacer::new(1_000_000_000, 0).resume(slow.next_at());
        assert_eq!((slow.next(), fast.next(), fast.is_full(0)), (0, 0, true));
        slow.send(0, 1000);
        let fast = Pacer::new(1_000_000_000, 0).resume(slow.next_at());
        assert_eq!((slow.next(), fast.next()), (8_000_000, 8_000_000));
        assert!(slow.resume(NextAt::default()).is_full(0));
    }

    proptest! {
        /// Compares with tokens as exact fractions: in units of bits · 10⁻⁹ at a whole rate in bit/s.
        #[test]
        fn sends_neither_early_nor_late(
            rate in 1000..1_000_000_000_000_u64,
            burst in 0..100_000_u64,
            packets in proptest::collection::vec((0..1_000_000_u64, 1..9000_u64), 1..100),
        ) {
            let mut pacer = Pacer::new(rate, burst);
            let (mut now, mut sent_at) = (0_u64, vec![]);
            for (after, bytes) in packets {
                now += after;
                let at = pacer.next().max(now);
                pacer.send(now, bytes);
                sent_at.push((at, bytes));
            }
            // every interval from one packet to another obeys rate and burst, where the last packet itself does not count
            for first in 0..sent_at.len() {
                let mut bits = 0_u128;
                for last in first..sent_at.len() {
                    let time = u128::from(sent_at[last].0 - sent_at[first].0);
                    let allowed = (time + 1) * u128::from(rate) + u128::from(burst) * 8_000_000_000;
                    // times are rounded down by less than 2⁻³² ns per byte
                    prop_assert!(bits * 8_000_000_000 <= allowed + allowed / 1_000_000, "{} to {}", first, last);
                    bits += u128::from(sent_at[last].1);
                }
            }
        }

        #[test]
        fn a_backlog_is_sent_at_the_rate(rate in 1_000_000..1_000_000_000_000_u64, bytes in 64..9000_u64) {
            let mut pacer = Pacer::new(rate, 0);
            (0..1000).for_each(|_| pacer.send(0, bytes));
            let wanted = 1000.0 * bytes as f64 * 8e9 / rate as f64;
            prop_assert!((pacer.next() as f64 - wanted).abs() <= 1.0 + wanted / 1e5, "{} {}", pacer.next(), wanted);
        }
    }

    #[test]
    fn a_burst_is_sent_at_once() {
        let mut pacer = Pacer::new(8_000_000, 3000);
        for _ in 0..4 {
            assert_eq!(pacer.next(), 0);
            pacer.send(0, 1000);
        }
        assert_eq!(pacer.next(), 1_000_000);
        assert!(!pacer.is_full(3_999_999) && pacer.is_full(4_000_000));
    }
}
