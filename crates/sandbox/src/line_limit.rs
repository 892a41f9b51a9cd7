//! Limit of the output of a sandbox.

use std::time::{Duration, Instant};

/// Lines that are printed at once, and lines per second after them.
const LINES: (f64, f64) = (100.0, 10.0);
/// Bytes that are printed at once, and bytes per second after them.
const BYTES: (f64, f64) = (65_536.0, 8192.0);
/// Interval of reports of the number of suppressed lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Token buckets of lines and bytes, and the number of lines that exceed them.
pub(crate) struct LineLimit {
    lines: Bucket,
    bytes: Bucket,
    refilled: Instant,
    suppressed: u64,
    /// Suppressed lines that were reported, and when.
    reported: (u64, Instant),
}

struct Bucket {
    level: f64,
    max: f64,
    per_second: f64,
}

impl Bucket {
    fn new((max, per_second): (f64, f64)) -> Bucket {
        Bucket { level: max, max, per_second }
    }

    fn refill(&mut self, seconds: f64) {
        self.level = (self.level + seconds * self.per_second).min(self.max);
    }
}

impl LineLimit {
    pub(crate) fn new(now: Instant) -> LineLimit {
        LineLimit {
            lines: Bucket::new(LINES),
            bytes: Bucket::new(BYTES),
            refilled: now,
            suppressed: 0,
            reported: (0, now),
        }
    }

    /// Returns true if a line of this many bytes may be printed; otherwise counts it as suppressed.
    pub(crate) fn allows(&mut self, bytes: usize, now: Instant) -> bool {
        let seconds = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.refilled = now;
        self.lines.refill(seconds);
        self.bytes.refill(seconds);
        let bytes = bytes as f64;
        if self.lines.level < 1.0 || self.bytes.level < bytes {
            self.suppressed += 1;
            return false;
        }
        self.lines.level -= 1.0;
        self.bytes.level -= bytes;
        true
    }

    /// Returns the number of suppressed lines.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// Returns the number of lines suppressed since the last report if a report is due, or, at the `end` of the output,
    /// if there are any.
    pub(crate) fn due_report(&mut self, now: Instant, end: bool) -> Option<u64> {
        let (before, at) = self.reported;
        let new = self.suppressed - before;
        let is_due = new != 0 && (end || now.saturating_duration_since(at) >= REPORT_INTERVAL);
        is_due.then(|| {
            self.reported = (self.suppressed, now);
            new
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_a_burst_and_then_ten_lines_per_second() {
        let start = Instant::now();
        let mut limit = LineLimit::new(start);
        let printed = |limit: &mut LineLimit, at| (0..1000).filter(|_| limit.allows(10, at)).count();
        assert_eq!(printed(&mut limit, start), 100);
        assert_eq!(printed(&mut limit, start + Duration::from_secs(2)), 20);
        // an hour of silence allows no more than one burst
        assert_eq!(printed(&mut limit, start + Duration::from_secs(3600)), 100);
        assert_eq!(limit.suppressed(), 3000 - 220);
        // a clock that steps back does not panic
        assert_eq!(printed(&mut limit, start), 0);
    }

    #[test]
    fn limits_bytes() {
        let start = Instant::now();
        let mut limit = LineLimit::new(start);
        assert_eq!((0..100).filter(|_| limit.allows(2000, start)).count(), 32);
        assert!(limit.allows(2000, start + Duration::from_secs(1)));
    }

    #[test]
    fn reports_suppressed_lines_now_and_then() {
        let start = Instant::now();
        let mut limit = LineLimit::new(start);
        let later = start + Duration::from_secs(11);
        assert_eq!(limit.due_report(later, true), None);
        assert_eq!((0..107).filter(|_| limit.allows(1, start)).count(), 100);
        assert_eq!(limit.due_report(start, false), None);
        assert_eq!(limit.due_report(later, false), Some(7));
        assert_eq!(limit.due_report(later, true), None);
        assert_eq!((0..200).filter(|_| limit.allows(1, later)).count(), 100);
        assert_eq!((limit.due_report(later, false), limit.due_report(later, true)), (None, Some(100)));
    }
}
