//! Limit of messages of the same cause.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use tracing::Level;

/// Messages of a cause that are logged in an interval.
const BURST: u64 = 10;
/// Length of an interval, which begins with the first message.
const INTERVAL: Duration = Duration::from_secs(10);
/// Most causes that are distinguished; further ones count as one.
const MAX_CAUSES: usize = 256;
/// Longest message that is stored for a cause, in characters.
const MAX_SAMPLE: usize = 200;
/// The cause that stands for those beyond [`MAX_CAUSES`].
const OTHERS: u64 = 0;

/// Messages that were not logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suppressed {
    pub(crate) target: &'static str,
    pub(crate) level: Level,
    /// Beginning of the first message of the cause that was not logged.
    pub(crate) sample: String,
    /// Number of messages.
    pub(crate) count: u64,
}

struct Interval {
    begin: Instant,
    messages: u64,
    suppressed: Option<Suppressed>,
}

/// The messages of each cause in the present interval.
#[derive(Default)]
pub(crate) struct RateLimit(HashMap<u64, Interval>);

impl RateLimit {
    /// Returns true if a message may be logged, and what must be reported before it.
    pub(crate) fn allows(
        &mut self,
        cause: u64,
        (target, level, message): (&'static str, Level, &str),
        now: Instant,
    ) -> (bool, Option<Suppressed>) {
        let cause = if self.0.len() < MAX_CAUSES || self.0.contains_key(&cause) { cause } else { OTHERS };
        let interval = self.0.entry(cause).or_insert(Interval { begin: now, messages: 0, suppressed: None });
        let mut report = None;
        if now.saturating_duration_since(interval.begin) >= INTERVAL {
            (interval.begin, interval.messages) = (now, 0);
            report = interval.suppressed.take();
        }
        interval.messages += 1;
        let allowed = interval.messages <= BURST;
        if !allowed {
            let sample = || message.chars().take(MAX_SAMPLE).collect();
            let suppressed =
                interval.suppressed.get_or_insert_with(|| Suppressed { target, level, sample: sample(), count: 0 });
            suppressed.count += 1;
        }
        (allowed, report)
    }

    /// Returns what was suppressed in intervals that are over, and forgets them; `all` also returns what was suppressed
    /// in the others.
    pub(crate) fn due(&mut self, now: Instant, all: bool) -> Vec<Suppressed> {
        let mut due = vec![];
        self.0.retain(|_, interval| {
            let is_over = now.saturating_duration_since(interval.begin) >= INTERVAL;
            if is_over || all {
                due.extend(interval.suppressed.take());
            }
            !is_over
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(limit: &mut RateLimit, cause: u64, now: Instant) -> bool {
        limit.allows(cause, ("nf", Level::WARN, &"text ".repeat(100)), now).0
    }

    #[test]
    fn a_burst_is_logged_and_the_others_are_counted() {
        let (mut limit, start) = (RateLimit::default(), Instant::now());
        assert_eq!((0..100).filter(|_| allowed(&mut limit, 7, start)).count(), 10);
        // another cause has its own limit
        assert!(allowed(&mut limit, 8, start));
        assert_eq!(limit.due(start, false), []);
        let [report] = &limit.due(start, true)[..] else { panic!() };
        assert_eq!((report.count, report.target, report.sample.len()), (90, "nf", MAX_SAMPLE));
        // the interval continues after a report
        assert!(!allowed(&mut limit, 7, start + INTERVAL / 2));
        let due = limit.due(start + INTERVAL, false);
        assert_eq!(due.iter().map(|report| report.count).collect::<Vec<_>>(), [1]);
        assert!(limit.0.is_empty());
    }

    #[test]
    fn the_next_message_reports_those_before_it() {
        let (mut limit, start) = (RateLimit::default(), Instant::now());
        (0..15).for_each(|_| _ = allowed(&mut limit, 7, start));
        let (allowed, report) = limit.allows(7, ("nf", Level::WARN, "text"), start + INTERVAL);
        assert_eq!((allowed, report.map(|report| report.count)), (true, Some(5)));
        assert_eq!(limit.due(start + INTERVAL * 2, true), []);
    }

    #[test]
    fn causes_are_bounded() {
        let (mut limit, start) = (RateLimit::default(), Instant::now());
        let all = (1..=10_000).filter(|cause| allowed(&mut limit, *cause, start)).count();
        assert_eq!((all, limit.0.len()), (MAX_CAUSES + BURST as usize, MAX_CAUSES + 1));
        let suppressed: u64 = limit.due(start, true).iter().map(|report| report.count).sum();
        assert_eq!(suppressed as usize + all, 10_000);
        limit.due(start + INTERVAL, false);
        assert!(allowed(&mut limit, 1, start + INTERVAL) && limit.0.len() == 1);
    }
}
