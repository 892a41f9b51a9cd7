//! The cycle counter, and what a cycle is worth.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time-stamp counter now, not serialising: good for spans of a batch and longer. On machines without one, nanoseconds.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    return nanoseconds();
}

/// Counter cycles a second: measured once, over 20 ms, against the monotonic clock.
pub fn hz() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| {
        if !cfg!(target_arch = "x86_64") {
            return 1_000_000_000;
        }
        let (start, from) = (Instant::now(), cycles());
        while start.elapsed() < Duration::from_millis(20) {
            core::hint::spin_loop();
        }
        let (took, spent) = (start.elapsed(), cycles() - from);
        (u128::from(spent) * 1_000_000_000 / took.as_nanos()) as u64
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}
