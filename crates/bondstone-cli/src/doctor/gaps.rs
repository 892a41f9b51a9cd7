//! Check of scheduling gaps of a busy thread.

use super::sysfs::read;
use super::{Check, State};
use packet::clock;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::time::{Duration, Instant};

/// Duration of the observation.
const OBSERVATION: Duration = Duration::from_millis(500);

/// Gaps between clock readings of a thread that only reads the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Gaps {
    /// Number of gaps above 10 µs, and above 1 ms.
    counts: (u64, u64),
    /// Seconds.
    longest: f64,
    /// Sum of the gaps, seconds.
    lost: f64,
    /// Duration of the observation, seconds.
    observed: f64,
}

impl Gaps {
    /// Adds the time between two readings of the clock, seconds.
    fn add(&mut self, gap: f64) {
        self.observed += gap;
        if gap > 10e-6 {
            self.counts.0 += 1;
            self.counts.1 += u64::from(gap > 1e-3);
            self.lost += gap;
            self.longest = self.longest.max(gap);
        }
    }
}

pub(super) fn check() -> Option<Check> {
    // the last CPU is the least likely to handle interrupts
    let cpu = *runtime::allowed_cpus().last()?;
    let (gaps, stolen) = std::thread::spawn(move || observe(cpu)).join().ok()?;
    Some(evaluate(cpu, &gaps, stolen))
}

/// Observes the gaps and the steal time of a CPU.
fn observe(cpu: usize) -> (Gaps, Option<u64>) {
    let mut set = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
        // without pinning, a few more gaps are observed
        let _ = sched_setaffinity(None, &set);
    }
    let hz = clock::hz() as f64;
    let stolen = || steal(&read("/proc/stat").unwrap_or_default(), cpu);
    let (before, start) = (stolen(), Instant::now());
    let mut gaps = Gaps::default();
    let mut last = clock::cycles();
    while start.elapsed() < OBSERVATION {
        for _ in 0..1000 {
            let now = clock::cycles();
            gaps.add(now.saturating_sub(last) as f64 / hz);
            last = now;
        }
    }
    (gaps, before.zip(stolen()).map(|(before, after)| after.saturating_sub(before)))
}

/// Returns the steal time from `/proc/stat`, ticks of 1/100 s.
fn steal(stat: &str, cpu: usize) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|l| l.split_whitespace().next() == Some(&name))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

fn evaluate(cpu: usize, gaps: &Gaps, stolen: Option<u64>) -> Check {
    let share = gaps.lost / gaps.observed.max(1e-9);
    let steal = stolen.map_or_else(|| "steal time not reported".to_owned(), |t| format!("{} ms steal time", t * 10));
    let found = format!(
        "CPU {cpu}, {:.1} s: {} gaps over 10 µs, {} over 1 ms, longest {:.0} µs, {:.2} % of the time lost; {steal}",
        gaps.observed,
        gaps.counts.0,
        gaps.counts.1,
        gaps.longest * 1e6,
        share * 100.0
    );
    let state = if gaps.counts.1 == 0 && share < 1e-3 { State::Ok } else { State::Degraded };
    let provides = "no loss and jitter caused by the host: a ring of 1024 packets overflows in 69 µs at 14.88 Mpps";
    Check::new("scheduling gaps", state, found, provides).remedy("isolate CPUs (above), and stop other programs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_summed() {
        let mut gaps = Gaps::default();
        [5e-9, 10e-6, 20e-6, 2e-3, 0.5].into_iter().for_each(|g| gaps.add(g));
        assert_eq!((gaps.counts, gaps.longest), ((3, 2), 0.5));
        assert!((gaps.lost - 0.50202).abs() < 1e-9);
        let check = evaluate(1, &gaps, Some(3));
        assert!(check.found.contains("30 ms steal time") && check.found.contains("500000 µs"), "{}", check.found);
        assert_eq!(check.state, State::Degraded);
        assert_eq!(evaluate(1, &Gaps::default(), None).state, State::Ok);
    }

    #[test]
    fn steal_of_one_cpu() {
        let stat = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu1 1 2 3 4 5 6 7 80 9 10\ncpu10 1 2 3 4 5 6 7 800 9 0\nctxt 5\n";
        assert_eq!([1, 10, 2].map(|c| steal(stat, c)), [Some(80), Some(800), None]);
        assert_eq!(steal("cpu1 1 2", 1), None);
        assert_eq!(steal("cpu1 a b c d e f g h i", 1), None);
    }
}
