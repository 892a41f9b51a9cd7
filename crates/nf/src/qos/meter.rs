//! Meters: three-colour markers with the arithmetic of DPDK's `rte_meter` on a clock of 1 GHz.

mod rfc2697;
mod rfc2698;
mod rfc4115;

pub(super) use rfc2697::SingleRate;
pub(super) use rfc2698::TwoRate;
pub(super) use rfc4115::CommittedAndExcess;

/// Colour of a packet (RFC 2697 §3), as in `Classification`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Colour {
    Green = 0,
    Yellow = 1,
    Red = 2,
}

impl Colour {
    pub(super) const NAMES: [&str; 3] = ["green", "yellow", "red"];

    /// Returns the colour with this number; larger numbers are red.
    pub(super) fn from_number(number: u8) -> Colour {
        match number {
            0 => Colour::Green,
            1 => Colour::Yellow,
            _ => Colour::Red,
        }
    }
}

/// Frequency of the clock in hertz.
const HZ: u64 = 1_000_000_000;
/// Shortest period of a refill in nanoseconds.
const MIN_PERIOD: u64 = 100;

/// Refill of a token bucket: a number of bytes once per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refill {
    /// Nanoseconds.
    period: u64,
    /// Bytes per period.
    bytes: u64,
}

impl Refill {
    /// Returns the refill for a rate in bytes per second. The period is rounded down to nanoseconds, so that the actual
    /// rate is up to 1 % higher.
    fn new(rate: u64) -> Self {
        if rate == 0 {
            return Refill { period: MIN_PERIOD, bytes: 0 };
        }
        let period = HZ as f64 / rate as f64;
        if period >= MIN_PERIOD as f64 {
            return Refill { period: period as u64, bytes: 1 };
        }
        let bytes = (MIN_PERIOD as f64 / period).ceil() as u64;
        Refill { period: HZ.saturating_mul(bytes) / rate, bytes }
    }

    /// Advances the time of the last refill to `now` and returns the bytes to add.
    #[inline]
    fn advance(&self, last: &mut u64, now: u64) -> u64 {
        let elapsed = now.saturating_sub(*last);
        // most packets of a busy meter: without a division
        if elapsed < self.period {
            return 0;
        }
        let periods = elapsed / self.period;
        *last += periods * self.period;
        periods.saturating_mul(self.bytes)
    }
}

/// State of a meter: two token buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Buckets {
    /// Times of the last refills in nanoseconds.
    times: [u64; 2],
    /// Tokens in bytes: of the committed bucket, and of the excess or peak bucket.
    tokens: [u64; 2],
}

/// Error of the parameters of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidMeter {
    #[error("cir must not be 0")]
    Cir,
    #[error("pir must be at least cir")]
    Pir,
    #[error("cbs and ebs must not both be 0")]
    Bursts,
    #[error("cbs must not be 0")]
    Cbs,
    #[error("pbs must not be 0")]
    Pbs,
    #[error("ebs must not be 0 unless eir is")]
    Ebs,
}

/// A meter of any kind: its parameters, without state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meter {
    SingleRate(SingleRate),
    TwoRate(TwoRate),
    CommittedAndExcess(CommittedAndExcess),
}

impl Meter {
    /// Returns the state at the begin, with full buckets.
    pub(super) fn start(&self, now: u64) -> Buckets {
        let tokens = match self {
            Meter::SingleRate(meter) => meter.bursts(),
            Meter::TwoRate(meter) => meter.bursts(),
            Meter::CommittedAndExcess(meter) => meter.bursts(),
        };
        Buckets { times: [now; 2], tokens }
    }

    /// Meters a packet of `bytes` with this colour; a colour-blind meter is one that sees all packets as green.
    #[inline]
    pub(super) fn check(&self, buckets: &mut Buckets, now: u64, bytes: u64, colour: Colour) -> Colour {
        match self {
            Meter::SingleRate(meter) => meter.check(buckets, now, bytes, colour),
            Meter::TwoRate(meter) => meter.check(buckets, now, bytes, colour),
            Meter::CommittedAndExcess(meter) => meter.check(buckets, now, bytes, colour),
        }
    }

    /// Returns true if the buckets are full at this time, as those of a new meter are.
    pub(super) fn is_full(&self, buckets: &Buckets, now: u64) -> bool {
        let mut after = *buckets;
        self.check(&mut after, now, 0, Colour::Red);
        after.tokens == self.start(now).tokens
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod rte_meter;
