//! The cycle counter and its frequency.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Reads the time-stamp counter without serialisation, for durations of a batch and longer. On other architectures than
/// x86-64, returns nanoseconds.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    return nanoseconds();
}

/// Returns the frequency of the counter in Hz, measured once over 20 ms against the monotonic clock.
pub fn hz() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| {
        if !cfg!(target_arch = "x86_64") {
            return 1_000_000_000;
        }
        let (start, from) = read_both();
        while start.elapsed() < Duration::from_millis(20) {
            core::hint::spin_loop();
        }
        let (end, to) = read_both();
        (u128::from(to - from) * 1_000_000_000 / (end - start).as_nanos()) as u64
    })
}

/// Reads the monotonic clock and the counter at the same moment: the closest of 9 pairs, because the thread may be
/// preempted between the two reads.
fn read_both() -> (Instant, u64) {
    let pair = || {
        let (before, now) = (cycles(), Instant::now());
        (cycles().saturating_sub(before), now, before)
    };
    let first = pair();
    let (_, now, before) = (0..8).map(|_| pair()).fold(first, |best, next| if next.0 < best.0 { next } else { best });
    (now, before)
}

#[cfg(not(target_arch = "x86_64"))]
fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
