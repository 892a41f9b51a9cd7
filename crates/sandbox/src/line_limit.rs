//! Limit of the output of a sandbox or of another host.

use graph::TokenBucket;
use std::time::{Duration, Instant};

/// Lines per second, and lines that are printed at once.
const LINES: (u64, u64) = (10, 100);
/// Bytes per second, and bytes that are printed at once.
const BYTES: (u64, u64) = (8192, 65_536);
/// Interval of reports of the number of suppressed lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Token buckets of lines and bytes, and the number of lines that exceed them.
pub struct LineLimit {
    lines: TokenBucket,
    bytes: TokenBucket,
    started: Instant,
    suppressed: u64,
    /// Suppressed lines that were reported, and when.
    reported: (u64, Instant),
}

impl LineLimit {
    /// Returns a limit that allows a burst of lines.
    #[must_use]
    pub fn new(now: Instant) -> LineLimit {
        LineLimit {
            lines: TokenBucket::new(LINES.0, LINES.1),
            bytes: TokenBucket::new(BYTES.0, BYTES.1),
            started: now,
            suppressed: 0,
            reported: (0, now),
        }
    }

    /// Returns true if a line of this many bytes may be printed; otherwise counts it as suppressed.
    pub fn allows(&mut self, bytes: usize, now: Instant) -> bool {
        let at = now.saturating_duration_since(self.started);
        // a line with too many bytes takes no token for lines
        let mut lines = self.lines.clone();
        let is_allowed = lines.take(1, at) && self.bytes.take(bytes as u64, at);
        if is_allowed {
            self.lines = lines;
        } else {
            self.suppressed += 1;
        }
        is_allowed
    }

    /// Returns the number of suppressed lines.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// Returns the number of lines suppressed since the last report if a report is due, or, at the `end` of the output,
    /// if there are any.
    pub fn due_report(&mut self, now: Instant, end: bool) -> Option<u64> {
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
