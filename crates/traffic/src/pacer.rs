//! An open-loop schedule: packets are due by time, independent of the fate of earlier ones.
//!
//! Packet `k` is due at `start + k / rate`. Packets leave in bursts: when the first of a burst is due, the whole burst
//! may go, so that some are up to 1 µs early and none is held back for company. A burst is [`Pace::burst`] packets, or
//! fewer where more than that would not be due within a microsecond.
//!
//! A generator that was preempted neither extends the trial nor sends all missed packets. It may send late
//! packets back to back, up to [`Pace::catch_up`] of them and each at most [`Pace::late_limit_ns`] late. What is beyond
//! is `unsent`: counted, and lost in the judgement of the trial.
//!
//! The limits: a processor of a shared machine takes interrupts of 5 to 50 µs many times a second, and vanishes for 1
//! to 8 ms every few seconds (DESIGN §4). 100 µs lets the former pass and reports the latter. 512 packets are half of
//! the usual ring of 1024 descriptors: a device that keeps up with the rate holds them without loss, so catching up
//! does not look like its fault. [`Pacer::gap_limit_ns`] tells from which pause on packets stay unsent.
//!
//! ```
//! use traffic::{Pace, Pacer};
//!
//! // 10 Mpps for one millisecond; ticks are nanoseconds.
//! let mut pacer = Pacer::new(Pace::new(10e6, 0.001, 1_000_000_000), 5_000)?;
//! assert_eq!(pacer.due(4_999), 0);
//! assert_eq!(pacer.due(5_000), 8);
//! pacer.sent(8, 5_000);
//! assert_eq!(pacer.next_due(), Some(5_800));
//! # Ok::<(), traffic::pace::PaceError>(())
//! ```

use crate::departures::{DepartureSchedule, Departures};
use crate::latency::{Delays, Scale};
use crate::pace::{MAX_DURATION_S, MAX_PPS, Pace, PaceError};

/// Packets of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// On schedule from start to end.
    pub intended: u64,
    /// Given out as sent.
    pub sent: u64,
    /// Given up because they were too late.
    pub unsent: u64,
}

/// Largest advance of a packet that leaves with its burst, in seconds.
const EARLY_S: f64 = 1e-6;

/// A trial's schedule under way.
#[derive(Clone, Debug)]
pub struct Pacer {
    start: u64,
    /// Packets a tick, times 2⁶⁴.
    per_tick: u64,
    /// Ticks a packet, times 2⁶⁴.
    interval: u128,
    /// Ticks from the start to when the next packet is due, times 2⁶⁴.
    due: u128,
    burst: u64,
    batch: u64,
    late_limit: u64,
    catch_up: u64,
    gap_limit_ns: u64,
    totals: Totals,
    /// Packets after which it is over: those intended, or more than there can be while that is not known.
    end: u64,
    /// The departures, where they are not evenly spaced.
    plan: Option<Box<DepartureSchedule>>,
    /// The same in ticks, for a schedule of departures.
    early: u64,
    lateness: Delays,
    scale: Scale,
    gap: PollGap,
}

impl Pacer {
    /// Creates a schedule whose first packet is due at tick `start`.
    ///
    /// # Errors
    /// See [`PaceError`].
    pub fn new(pace: Pace, start: u64) -> Result<Self, PaceError> {
        let intended = Self::even(pace)?;
        Self::checked(pace, start, pace.rate_pps, intended)
    }

    /// A schedule that follows `departures` from tick `start` on for the duration of `pace`, whose rate does not matter.
    /// If departures are [`fed`](Self::feed) later, the number of intended packets follows from them.
    ///
    /// # Errors
    /// See [`PaceError`].
    pub fn follow(departures: Departures, pace: Pace, start: u64) -> Result<Self, PaceError> {
        let Pace { duration_s, ticks_hz, .. } = pace;
        let rate_pps = departures.mean_pps().unwrap_or(1.0);
        if !(duration_s > 0.0 && duration_s <= MAX_DURATION_S) {
            return Err(PaceError::Duration { seconds: duration_s, rate_pps });
        }
        if rate_pps > MAX_PPS {
            return Err(PaceError::Rate(rate_pps));
        }
        let end = (duration_s * ticks_hz as f64) as u64;
        let plan = DepartureSchedule::new(&departures, ticks_hz, end);
        let intended = match &plan {
            DepartureSchedule::Looped { .. } => plan.by(end.saturating_sub(1)),
            DepartureSchedule::Fed { .. } => 0,
        };
        let mut pacer = Self::checked(pace, start, rate_pps, intended)?;
        if plan.is_open() {
            pacer.end = u64::MAX;
            pacer.gap_limit_ns = pace.late_limit_ns;
        }
        pacer.burst = pace.burst as u64;
        pacer.early = (EARLY_S * ticks_hz as f64) as u64;
        pacer.due = u128::from(plan.at(0)) << 64;
        pacer.plan = Some(Box::new(plan));
        Ok(pacer)
    }

    /// Puts off the start by `ticks`; to be asked for before anything is due.
    pub fn put_off(&mut self, ticks: u64) {
        self.start = self.start.saturating_add(ticks);
        self.gap = PollGap::new(self.start);
    }

    /// Tells when the next packet of a schedule that is fed is due, nanoseconds from its start before it is sped up, and not
    /// before the one told last. Whether it was taken: not if it lies behind the end, which closes the schedule, or if too
    /// many wait. One that is told after it was due leaves late, or stays unsent like any other.
    pub fn feed(&mut self, ns: u64) -> bool {
        let Some(plan) = &mut self.plan else { return false };
        let taken = plan.feed(ns);
        if taken {
            self.totals.intended += 1;
            let done = self.totals.sent + self.totals.unsent;
            self.due = u128::from(plan.at(done)) << 64;
        } else if !plan.is_open() {
            self.end = self.totals.intended;
        }
        taken
    }

    /// Ends a schedule that is fed with the packets told so far.
    pub fn close(&mut self) {
        if let Some(plan) = &mut self.plan {
            plan.close();
            self.end = self.totals.intended;
        }
    }

    /// Begins another part of the trial at tick `start`, with a rate and a length of its own, after the part before is
    /// [finished](Self::is_finished): what is left of that one stays unsent. How late packets left and how long the clock was
    /// not looked at go on. Returns what the part before counted.
    ///
    /// # Errors
    /// As [`Pacer::new`]; the part before then goes on.
    pub fn go_on(&mut self, pace: Pace, start: u64) -> Result<Totals, PaceError> {
        let intended = Self::even(pace)?;
        Self::check(pace, pace.rate_pps)?;
        self.stop();
        let before = self.totals;
        self.set(pace, start, pace.rate_pps, intended);
        // before a start nothing has to be looked at
        self.gap.last = self.gap.last.max(start);
        Ok(before)
    }

    /// Returns the packets of an even schedule.
    fn even(pace: Pace) -> Result<u64, PaceError> {
        let Pace { rate_pps, duration_s, .. } = pace;
        if !(1.0..=MAX_PPS).contains(&rate_pps) {
            return Err(PaceError::Rate(rate_pps));
        }
        // A product such as 999.9999999 of decimal fractions means 1000.
        let intended = (rate_pps * duration_s + 1e-6).floor();
        if !(duration_s > 0.0 && duration_s <= MAX_DURATION_S && intended >= 1.0) {
            return Err(PaceError::Duration { seconds: duration_s, rate_pps });
        }
        Ok(intended as u64)
    }

    fn check(pace: Pace, rate_pps: f64) -> Result<(), PaceError> {
        let Pace { ticks_hz, burst, batch, catch_up, .. } = pace;
        if !(1_000_000..=100_000_000_000).contains(&ticks_hz) || rate_pps >= ticks_hz as f64 {
            return Err(PaceError::Clock { ticks_hz, rate_pps });
        }
        if !(1..=32).contains(&burst) || !(burst..=512).contains(&batch) || catch_up < burst as u64 {
            return Err(PaceError::Burst { burst, batch, catch_up });
        }
        Ok(())
    }

    fn checked(pace: Pace, start: u64, rate_pps: f64, intended: u64) -> Result<Self, PaceError> {
        Self::check(pace, rate_pps)?;
        let mut pacer = Self {
            start,
            per_tick: 0,
            interval: 0,
            due: 0,
            burst: 0,
            batch: 0,
            late_limit: 0,
            catch_up: 0,
            gap_limit_ns: u64::MAX,
            totals: Totals::default(),
            end: 0,
            plan: None,
            early: 0,
            lateness: Delays::new(),
            scale: Scale::new(pace.ticks_hz),
            gap: PollGap::new(start),
        };
        pacer.set(pace, start, rate_pps, intended);
        Ok(pacer)
    }

    /// Returns the numbers of a schedule that was checked.
    fn set(&mut self, pace: Pace, start: u64, rate_pps: f64, intended: u64) {
        let Pace { ticks_hz, burst, batch, late_limit_ns, catch_up, .. } = pace;
        let (hz, one) = (ticks_hz as f64, 2_f64.powi(64));
        let catch_up_ns = catch_up as f64 / rate_pps * 1e9;
        self.start = start;
        self.per_tick = (rate_pps / hz * one) as u64;
        self.interval = (hz / rate_pps * one) as u128;
        self.due = 0;
        self.burst = (burst as u64).min(1 + (rate_pps * EARLY_S) as u64);
        self.batch = batch as u64;
        self.late_limit = (u128::from(late_limit_ns) * u128::from(ticks_hz) / 1_000_000_000).min(1 << 62) as u64;
        self.catch_up = catch_up;
        // of several parts, the shortest
        self.gap_limit_ns = self.gap_limit_ns.min(late_limit_ns.min(catch_up_ns as u64));
        self.totals = Totals { intended, ..Totals::default() };
        self.end = intended;
        self.plan = None;
    }

    /// How many packets may be sent at tick `now`, at most [`Pace::batch`]. Gives up those that are too late.
    #[inline(always)]
    pub fn due(&mut self, now: u64) -> usize {
        self.gap.poll(now);
        let elapsed = now.saturating_sub(self.start);
        if elapsed < (self.due >> 64) as u64 || now < self.start {
            return 0;
        }
        self.due_of(elapsed)
    }

    #[inline]
    fn due_of(&mut self, elapsed: u64) -> usize {
        let done = self.totals.sent + self.totals.unsent;
        let due = self.due_by(elapsed).min(self.totals.intended);
        let behind = due.saturating_sub(done);
        let late = elapsed - (self.due >> 64) as u64;
        if late > self.late_limit || behind > self.catch_up {
            self.give_up(elapsed, done, due);
        }
        let left = self.totals.intended - self.totals.sent - self.totals.unsent;
        let behind = due.saturating_sub(self.totals.sent + self.totals.unsent);
        // If all due packets have been given up, the next burst is not due yet.
        if left == 0 || elapsed < (self.due >> 64) as u64 {
            return 0;
        }
        let company = match &self.plan {
            None => self.burst,
            Some(plan) => {
                let done = self.totals.sent + self.totals.unsent;
                plan.by(elapsed.saturating_add(self.early)).saturating_sub(done).min(self.burst)
            }
        };
        behind.max(company).min(self.batch).min(left) as usize
    }

    /// Counts as unsent what was due long ago, or lies too far back.
    #[cold]
    fn give_up(&mut self, elapsed: u64, done: u64, due: u64) {
        let by_time = match elapsed.checked_sub(self.late_limit + 1) {
            Some(long_ago) => self.due_by(long_ago).min(self.totals.intended),
            None => 0,
        };
        let keep_from = by_time.max(due.saturating_sub(self.catch_up));
        self.skip(keep_from.saturating_sub(done));
    }

    fn skip(&mut self, packets: u64) {
        self.totals.unsent += packets;
        self.advance(packets);
    }

    /// Goes on to when the next packet is due, behind `packets` that have been counted.
    #[inline(always)]
    fn advance(&mut self, packets: u64) {
        if self.plan.is_some() {
            return self.advance_plan();
        }
        self.due += u128::from(packets) * self.interval;
    }

    #[cold]
    fn advance_plan(&mut self) {
        let done = self.totals.sent + self.totals.unsent;
        if let Some(plan) = &mut self.plan {
            plan.forget(done);
            self.due = u128::from(plan.at(done)) << 64;
        }
    }

    /// Returns the number of packets due within `elapsed` ticks, the one at the start included.
    #[inline(always)]
    fn due_by(&self, elapsed: u64) -> u64 {
        if let Some(plan) = &self.plan {
            return plan.by(elapsed);
        }
        ((u128::from(elapsed) * u128::from(self.per_tick)) >> 64) as u64 + 1
    }

    /// Takes note that `packets` left at tick `now`, of those that [`due`](Self::due) told. All count as late as the first.
    #[inline(always)]
    pub fn sent(&mut self, packets: usize, now: u64) {
        let left = self.totals.intended - self.totals.sent - self.totals.unsent;
        let packets = (packets as u64).min(left);
        let elapsed = now.saturating_sub(self.start);
        if packets == 0 {
            return;
        }
        let due = (self.due >> 64) as u64;
        self.lateness.record_n(self.scale.ns(elapsed.saturating_sub(due)), packets);
        self.totals.sent += packets;
        self.advance(packets);
    }

    /// Ends the trial: what has not been sent stays unsent.
    pub fn stop(&mut self) {
        self.close();
        self.skip(self.totals.intended - self.totals.sent - self.totals.unsent);
    }

    /// Returns true if every packet has been sent or given up.
    #[inline(always)]
    pub fn is_finished(&self) -> bool {
        self.totals.sent + self.totals.unsent == self.end
    }

    /// Returns the tick at which the next packet is due; none at the end, or where that has not been told yet.
    pub fn next_due(&self) -> Option<u64> {
        let known = self.totals.sent + self.totals.unsent < self.totals.intended;
        known.then(|| self.start.saturating_add((self.due >> 64) as u64))
    }

    /// Returns the packets intended, sent and given up so far; when finished, the latter two add up to the first.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// How much later than due each packet left; 0 for those on time or early. Packets given up are not in it.
    pub fn lateness(&self) -> &Delays {
        &self.lateness
    }

    /// Returns the longest time between two calls of [`due`](Self::due) since the start, nanoseconds.
    pub fn poll_gap_max_ns(&self) -> u64 {
        self.scale.ns(self.gap.max())
    }

    /// Returns the shortest pause of the caller that leaves packets unsent, nanoseconds.
    pub fn gap_limit_ns(&self) -> u64 {
        self.gap_limit_ns
    }
}

/// The longest time between two polls of a loop: on a shared machine, how long its core was away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PollGap {
    last: u64,
    max: u64,
}

impl PollGap {
    /// Creates a gap measurement that starts at tick `start`.
    pub const fn new(start: u64) -> Self {
        Self { last: start, max: 0 }
    }

    /// Records a poll. Those before the start do not count.
    #[inline(always)]
    pub fn poll(&mut self, now: u64) {
        if now > self.last {
            self.max = self.max.max(now - self.last);
            self.last = now;
        }
    }

    /// Returns the longest gap, ticks.
    pub const fn max(&self) -> u64 {
        self.max
    }
}

#[cfg(test)]
mod tests;
