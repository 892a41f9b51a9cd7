//! Timing of disturbances: one reset, or changes at a rate.

use crate::trial::DisturbanceReport;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest sleep, which bounds the delay until `stop` is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Calls `change` with the numbers 0, 1, … at a rate until `stop` is set; late changes follow immediately. A change
/// with an odd number undoes the one before; if the last one has an even number it is undone, which is not counted.
pub(crate) fn repeat_changes(
    per_second: f64,
    stop: &AtomicBool,
    mut change: impl FnMut(u64) -> bool,
) -> DisturbanceReport {
    let start = Instant::now();
    let mut result = DisturbanceReport::default();
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = Duration::try_from_secs_f64(n as f64 / per_second.max(1e-6)).unwrap_or(Duration::MAX);
        let elapsed = start.elapsed();
        if elapsed < due {
            std::thread::sleep((due - elapsed).min(POLL_INTERVAL));
            continue;
        }
        let success = change(n);
        result.done += u64::from(success);
        result.failed += u64::from(!success);
        n += 1;
    }
    result.to_s = start.elapsed().as_secs_f64();
    if n % 2 == 1 {
        change(n);
    }
    result
}

/// Calls `reset` once after `at_s` seconds, unless `stop` is set before.
pub(crate) fn reset_at(at_s: f64, stop: &AtomicBool, reset: impl FnOnce() -> bool) -> DisturbanceReport {
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < at_s {
        if stop.load(Ordering::Relaxed) {
            return DisturbanceReport::default();
        }
        let remaining = Duration::from_secs_f64((at_s - start.elapsed().as_secs_f64()).max(0.0));
        std::thread::sleep(POLL_INTERVAL.min(remaining));
    }
    let from_s = start.elapsed().as_secs_f64();
    let success = reset();
    let to_s = start.elapsed().as_secs_f64();
    DisturbanceReport { done: u64::from(success), failed: u64::from(!success), from_s, to_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_changes_and_undoes_the_last() {
        let stop = AtomicBool::new(false);
        let result = repeat_changes(1e4, &stop, |n| {
            stop.store(n == 99, Ordering::Relaxed);
            n % 10 != 0
        });
        assert_eq!((result.done, result.failed), (90, 10));
        assert!(result.to_s >= 0.0099);
        let mut changed = false;
        stop.store(false, Ordering::Relaxed);
        let result = repeat_changes(1e4, &stop, |n| {
            stop.store(n >= 6, Ordering::Relaxed);
            changed = !changed;
            true
        });
        assert_eq!((result.done, changed), (7, false), "the last change is undone");
    }

    #[test]
    fn resets_once_unless_stopped() {
        let stop = AtomicBool::new(true);
        assert_eq!(reset_at(100.0, &stop, || true), DisturbanceReport::default());
        let failed = reset_at(0.0, &AtomicBool::new(false), || false);
        assert_eq!((failed.done, failed.failed), (0, 1));
    }
}
