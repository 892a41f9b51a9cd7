//! Parameters of a schedule.

/// Highest rate, packets a second.
pub const MAX_PPS: f64 = 200e6;
/// Longest trial, seconds: a day.
pub const MAX_DURATION_S: f64 = 86_400.0;

/// A schedule's numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pace {
    /// Packets a second, 1 to [`MAX_PPS`], fractions welcome.
    pub rate_pps: f64,
    /// Length of the trial, seconds, up to [`MAX_DURATION_S`].
    pub duration_s: f64,
    /// Ticks a second of the times given: 1,000,000,000 for nanoseconds.
    pub ticks_hz: u64,
    /// Packets that leave together, 1 to 32; 4 to 8 keep 99 % of departures within 1 µs at 14.88 Mpps.
    pub burst: usize,
    /// Most packets that one call of [`Pacer::due`](crate::Pacer::due) asks for, `burst` to 512.
    pub batch: usize,
    /// A packet later than this stays unsent, nanoseconds.
    pub late_limit_ns: u64,
    /// More packets than this behind schedule, and the oldest stay unsent; at least `burst`.
    pub catch_up: u64,
}

impl Pace {
    /// Bursts of up to 8, batches of up to 32, 100 µs and 512 packets of arrears.
    pub fn new(rate_pps: f64, duration_s: f64, ticks_hz: u64) -> Self {
        Self { rate_pps, duration_s, ticks_hz, burst: 8, batch: 32, late_limit_ns: 100_000, catch_up: 512 }
    }
}

/// Error of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PaceError {
    /// The rate is none, or out of range.
    #[error("rate of {0} packets/s is outside 1 to {MAX_PPS}")]
    Rate(f64),
    /// The trial has no length, too much of it, or no packet.
    #[error("a trial of {seconds} s at {rate_pps} packets/s; give one packet or more and up to {MAX_DURATION_S} s")]
    Duration {
        /// Its length.
        seconds: f64,
        /// Its rate.
        rate_pps: f64,
    },
    /// The clock is too coarse for the rate, or beyond all clocks.
    #[error(
        "a clock of {ticks_hz} ticks/s for {rate_pps} packets/s; it must tick once a packet and up to 10¹¹ times/s"
    )]
    Clock {
        /// Ticks a second.
        ticks_hz: u64,
        /// Packets a second.
        rate_pps: f64,
    },
    /// Departures that are no schedule.
    #[error(
        "{count} departures within {period_ns} ns at {speed} times their speed are no schedule; give one or more that go up from 0 \
         and stay below the period, and 10⁻⁶ to 10¹² times the speed"
    )]
    Departures {
        /// Number of departures.
        count: usize,
        /// Until they come again, nanoseconds.
        period_ns: u64,
        /// Speed factor.
        speed: f64,
    },
    /// Burst, batch or arrears do not go together.
    #[error(
        "burst {burst}, batch {batch}, catch-up {catch_up}: 1 <= burst <= 32, burst <= batch <= 512, burst <= catch-up"
    )]
    Burst {
        /// Packets that leave together.
        burst: usize,
        /// Packets a call.
        batch: usize,
        /// Packets of arrears.
        catch_up: u64,
    },
}
