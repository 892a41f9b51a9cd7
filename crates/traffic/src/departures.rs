//! Schedules that are given packet by packet: the gaps of a capture, once or over and over, faster or slower.
//!
//! ```
//! use traffic::{Departures, Pace, Pacer};
//!
//! // Three packets, over and over, in half the time they took; 10 ms of it.
//! let departures = Departures::looped(&[0, 1_000, 50_000], 100_000, 2.0)?;
//! let mut pacer = Pacer::follow(departures, Pace::new(1.0, 0.01, 1_000_000_000), 0)?;
//! assert_eq!(pacer.totals().intended, 3 * 200);
//! assert_eq!(pacer.due(0), 2); // the second half a microsecond early
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use crate::pace::PaceError;

/// Most departures that wait in a schedule that is fed.
pub const MAX_AHEAD: usize = 1 << 20;
/// Range of the speed factor: a capture with one packet per day can become as fast as a generator sends.
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-6..=1e12;

/// When packets are due, nanoseconds from the start of a trial.
#[derive(Clone, Debug)]
pub struct Departures(pub(crate) Schedule);

#[derive(Clone, Debug)]
pub(crate) enum Schedule {
    Looped { at: Arc<[u64]>, period: u64 },
    Fed { speed: f64 },
}

impl Departures {
    /// Packets due at `at`, which go up, and again every `period_ns`, which is above all of them, all of it `speed`
    /// times as fast.
    ///
    /// # Errors
    /// [`PaceError::Departures`] if they are not so, if there is none, or if `speed` is not from 10⁻⁶ to 10¹².
    pub fn looped(at: &[u64], period_ns: u64, speed: f64) -> Result<Self, PaceError> {
        let up = at.windows(2).all(|pair| pair[0] <= pair[1]) && !at.is_empty();
        if !up || at.last() >= Some(&period_ns) || !SPEEDS.contains(&speed) || period_ns >= 1 << 53 {
            return Err(PaceError::Departures { count: at.len(), period_ns, speed });
        }
        let faster = |ns: u64| (ns as f64 / speed) as u64;
        let at: Arc<[u64]> = at.iter().map(|ns| faster(*ns)).collect();
        let last = at.last().copied().unwrap_or(0);
        Ok(Self(Schedule::Looped { at, period: faster(period_ns).max(last + 1) }))
    }

    /// Creates a schedule whose times are passed to [`Pacer::feed`](crate::Pacer::feed), `speed` times as fast.
    ///
    /// # Errors
    /// [`PaceError::Departures`] if `speed` is not from 10⁻⁶ to 10¹².
    pub fn fed(speed: f64) -> Result<Self, PaceError> {
        if !SPEEDS.contains(&speed) {
            return Err(PaceError::Departures { count: 0, period_ns: 0, speed });
        }
        Ok(Self(Schedule::Fed { speed }))
    }

    /// Returns the packets a second on average; none where that is not known.
    pub fn mean_pps(&self) -> Option<f64> {
        match &self.0 {
            Schedule::Looped { at, period } => Some(at.len() as f64 / *period as f64 * 1e9),
            Schedule::Fed { .. } => None,
        }
    }
}

/// A schedule of [`Departures`] under way, in ticks.
#[derive(Clone, Debug)]
pub(crate) enum DepartureSchedule {
    Looped {
        at: Box<[u64]>,
        period: u64,
    },
    Fed {
        ahead: VecDeque<u64>,
        /// Packets that are no longer in `ahead`.
        gone: u64,
        ticks_per_ns: f64,
        /// Departures from here on are behind the end.
        end: u64,
        open: bool,
    },
}

impl DepartureSchedule {
    pub(crate) fn new(departures: &Departures, ticks_hz: u64, end: u64) -> Self {
        let ticks_per_ns = ticks_hz as f64 / 1e9;
        match &departures.0 {
            Schedule::Looped { at, period } => {
                let at: Box<[u64]> = at.iter().map(|ns| (*ns as f64 * ticks_per_ns) as u64).collect();
                let last = at.last().copied().unwrap_or(0);
                Self::Looped { at, period: ((*period as f64 * ticks_per_ns) as u64).max(last + 1) }
            }
            Schedule::Fed { speed } => {
                Self::Fed { ahead: VecDeque::new(), gone: 0, ticks_per_ns: ticks_per_ns / speed, end, open: true }
            }
        }
    }

    /// Returns the number of packets due within `elapsed` ticks.
    pub(crate) fn by(&self, elapsed: u64) -> u64 {
        match self {
            Self::Looped { at, period } => {
                let within = at.partition_point(|due| *due <= elapsed % period);
                elapsed / period * at.len() as u64 + within as u64
            }
            Self::Fed { ahead, gone, .. } => gone + ahead.partition_point(|due| *due <= elapsed) as u64,
        }
    }

    /// Returns the time of packet number `packet` in ticks; the far future while unknown.
    pub(crate) fn at(&self, packet: u64) -> u64 {
        match self {
            Self::Looped { at, period } => {
                let count = at.len() as u64;
                (packet / count).saturating_mul(*period).saturating_add(at[(packet % count) as usize])
            }
            Self::Fed { ahead, gone, .. } => {
                packet.checked_sub(*gone).and_then(|n| ahead.get(n as usize)).copied().unwrap_or(u64::MAX)
            }
        }
    }

    /// Forgets the packets before number `packet`.
    pub(crate) fn forget(&mut self, packet: u64) {
        if let Self::Fed { ahead, gone, .. } = self {
            let done = (packet.saturating_sub(*gone) as usize).min(ahead.len());
            ahead.drain(..done);
            *gone += done as u64;
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Fed { open: true, .. })
    }

    pub(crate) fn close(&mut self) {
        if let Self::Fed { open, .. } = self {
            *open = false;
        }
    }

    /// Adds a packet, due at `ns` or with the one before it, whichever is later; whether there was room and time for it.
    pub(crate) fn feed(&mut self, ns: u64) -> bool {
        let Self::Fed { ahead, ticks_per_ns, end, open, .. } = self else { return false };
        let due = ((ns as f64 * *ticks_per_ns) as u64).max(ahead.back().copied().unwrap_or(0));
        if due >= *end {
            *open = false;
        }
        if !*open || ahead.len() >= MAX_AHEAD {
            return false;
        }
        ahead.push_back(due);
        true
    }
}
