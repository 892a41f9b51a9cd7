//! Doing something so many times a second, or once at a time.

use crate::bed::Acted;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest sleep, so that an end is seen.
const NAP: Duration = Duration::from_millis(5);

/// Does `change` with the numbers 0, 1, … that often until `stop` is set; what is late is made up for at once. What an even
/// one does the next one undoes: the last one too, which does not count.
pub(crate) fn changes(per_second: f64, stop: &AtomicBool, mut change: impl FnMut(u64) -> bool) -> Acted {
    let began = Instant::now();
    let mut acted = Acted::default();
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = Duration::try_from_secs_f64(n as f64 / per_second.max(1e-6)).unwrap_or(Duration::MAX);
        let passed = began.elapsed();
        if passed < due {
            std::thread::sleep((due - passed).min(NAP));
            continue;
        }
        let good = change(n);
        acted.done += u64::from(good);
        acted.failed += u64::from(!good);
        n += 1;
    }
    acted.to_s = began.elapsed().as_secs_f64();
    if n % 2 == 1 {
        change(n);
    }
    acted
}

/// Does `reset` once, so many seconds from now, unless `stop` is set before.
pub(crate) fn once(at_s: f64, stop: &AtomicBool, reset: impl FnOnce() -> bool) -> Acted {
    let began = Instant::now();
    while began.elapsed().as_secs_f64() < at_s {
        if stop.load(Ordering::Relaxed) {
            return Acted::default();
        }
        std::thread::sleep(NAP.min(Duration::from_secs_f64((at_s - began.elapsed().as_secs_f64()).max(0.0))));
    }
    let from_s = began.elapsed().as_secs_f64();
    let good = reset();
    Acted { done: u64::from(good), failed: u64::from(!good), from_s, to_s: began.elapsed().as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_often_as_asked() {
        let stop = AtomicBool::new(false);
        let acted = changes(1e4, &stop, |n| {
            stop.store(n == 99, Ordering::Relaxed);
            n % 10 != 0
        });
        assert_eq!((acted.done, acted.failed), (90, 10));
        assert!(acted.to_s >= 0.0099);
        let mut there = false;
        stop.store(false, Ordering::Relaxed);
        let acted = changes(1e4, &stop, |n| {
            stop.store(n >= 6, Ordering::Relaxed);
            there = !there;
            true
        });
        assert_eq!((acted.done, there), (7, false), "nothing is left behind");
        assert_eq!(once(100.0, &stop, || true), Acted::default());
        let failed = once(0.0, &AtomicBool::new(false), || false);
        assert_eq!((failed.done, failed.failed), (0, 1));
    }
}
