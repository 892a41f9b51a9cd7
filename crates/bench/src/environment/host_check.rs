//! Fitness of a host for measurements: gaps in the execution of busy threads, and agreement of the clocks of CPUs.

use packet::clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Duration of the check.
const DURATION: Duration = Duration::from_millis(200);
/// Shortest gap that is counted, ns.
const MIN_GAP_NS: u64 = 10_000;
/// Gap in which a queue of 1024 packets overflows at 10 Mpps, ns.
const LONG_GAP_NS: u64 = 100_000;
/// Gap that is longer than an interrupt, ns.
const PREEMPTION_NS: u64 = 1_000_000;
/// Round trips between two CPUs for the comparison of their clocks.
const CLOCK_ROUND_TRIPS: u64 = 2_000;

/// Gaps in the execution of a busy thread on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuGaps {
    /// CPU.
    pub cpu: usize,
    /// Gaps longer than 10 µs per second.
    pub gaps_per_s: f64,
    /// Gaps longer than 100 µs per second.
    pub long_per_s: f64,
    /// Longest gap, ns.
    pub longest_ns: u64,
    /// Share of the time spent in gaps.
    pub lost_share: f64,
}

/// Fitness of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fitness {
    /// No gap that affects packets.
    Fit,
    /// Gaps of up to a millisecond: results need many short trials, or a goal with an exceed ratio.
    Noisy,
    /// CPUs are preempted for milliseconds: only ratios of interleaved measurements are meaningful.
    Unfit,
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct HostCheck {
    /// Gaps of each CPU.
    pub gaps: Vec<CpuGaps>,
    /// Upper bound of the difference between the clocks of the first two CPUs, ns: half of the shortest round trip.
    pub clock_difference_ns: Option<u64>,
    /// Verdict.
    pub fitness: Fitness,
}

impl HostCheck {
    /// Checks these CPUs in parallel for 200 ms.
    pub fn run(cpus: &[usize]) -> HostCheck {
        let gaps = std::thread::scope(|scope| {
            let threads: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || measure_gaps(cpu))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>()
        });
        let clocks_ns = match cpus {
            [a, b, ..] if a != b => clock_difference_ns(*a, *b),
            _ => None,
        };
        let fitness = gaps.iter().map(fitness).max().unwrap_or(Fitness::Fit);
        HostCheck { gaps, clock_difference_ns: clocks_ns, fitness }
    }

    /// Returns a summary in one line.
    pub fn summary(&self) -> String {
        let gaps = self.gaps.iter().map(|g| {
            format!(
                "CPU {}: {:.0} gaps/s over 10 us, {:.0} over 100 us, longest {} us, {:.2} % of the time lost",
                g.cpu,
                g.gaps_per_s,
                g.long_per_s,
                g.longest_ns / 1000,
                g.lost_share * 100.0
            )
        });
        let clocks = self.clock_difference_ns.map(|ns| format!("clocks within {ns} ns"));
        gaps.chain(clocks).collect::<Vec<_>>().join("; ")
    }

    /// Returns what the fitness means for results, and a remedy; `None` if the host is fit.
    pub fn advice(&self) -> Option<(&'static str, &'static str)> {
        match self.fitness {
            Fitness::Fit => None,
            Fitness::Noisy => Some((
                "CPUs are interrupted: single trials lose packets, and rates without loss are below those of the DUT",
                "isolate the CPUs with isolcpus, nohz_full and rcu_nocbs on the kernel command line",
            )),
            Fitness::Unfit => Some((
                "CPUs are preempted for milliseconds: absolute rates and high latency percentiles are those of this \
                 host and not of the DUT; compare only measurements that are interleaved in one run",
                "stop other programs; on a virtual machine, pin its CPUs to dedicated CPUs of the host",
            )),
        }
    }
}

impl Fitness {
    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Fitness::Fit => "fit",
            Fitness::Noisy => "noisy",
            Fitness::Unfit => "unfit",
        }
    }
}

fn fitness(gaps: &CpuGaps) -> Fitness {
    match () {
        () if gaps.longest_ns >= PREEMPTION_NS || gaps.lost_share > 0.05 => Fitness::Unfit,
        () if gaps.longest_ns >= LONG_GAP_NS || gaps.lost_share > 0.005 => Fitness::Noisy,
        () => Fitness::Fit,
    }
}

/// Measures the gaps of a thread that only reads the clock.
fn measure_gaps(cpu: usize) -> CpuGaps {
    // without pinning the thread has a few more gaps
    let _ = runtime::pin(cpu);
    let hz = clock::hz();
    let ns = |ticks: u64| (u128::from(ticks) * 1_000_000_000 / u128::from(hz.max(1))) as u64;
    let start = clock::cycles();
    let end = start + (DURATION.as_secs_f64() * hz as f64) as u64;
    let (mut last, mut gaps_found, mut lost) = (start, CpuGaps { cpu, ..CpuGaps::default() }, 0);
    let (mut gaps, mut long) = (0u64, 0u64);
    while last < end {
        let now = clock::cycles();
        let gap = ns(now.saturating_sub(last));
        if gap > MIN_GAP_NS {
            gaps += 1;
            long += u64::from(gap > LONG_GAP_NS);
            lost += gap;
            gaps_found.longest_ns = gaps_found.longest_ns.max(gap);
        }
        last = now;
    }
    let seconds = (last - start) as f64 / hz as f64;
    (gaps_found.gaps_per_s, gaps_found.long_per_s) = (gaps as f64 / seconds, long as f64 / seconds);
    gaps_found.lost_share = lost as f64 / 1e9 / seconds;
    gaps_found
}

/// Returns half of the shortest round trip of a word between two CPUs: the upper bound of the difference of their
/// clocks. `None` if the time read on the other CPU is outside the round trip.
fn clock_difference_ns(a: usize, b: usize) -> Option<u64> {
    let (ping, pong) = (AtomicU64::new(0), AtomicU64::new(0));
    let hz = clock::hz();
    let deadline = clock::cycles() + hz / 2;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = runtime::pin(b);
            for trip in 1..=CLOCK_ROUND_TRIPS {
                while ping.load(Ordering::Acquire) < trip {
                    if clock::cycles() > deadline {
                        return;
                    }
                    std::hint::spin_loop();
                }
                pong.store(clock::cycles(), Ordering::Release);
            }
        });
        let pinger = scope.spawn(|| {
            let _ = runtime::pin(a);
            let mut best: Option<(u64, bool)> = None;
            for trip in 1..=CLOCK_ROUND_TRIPS {
                let before = pong.load(Ordering::Acquire);
                let sent_at = clock::cycles();
                ping.store(trip, Ordering::Release);
                let remote = loop {
                    let answer = pong.load(Ordering::Acquire);
                    if answer != before {
                        break answer;
                    }
                    if clock::cycles() > deadline {
                        return best;
                    }
                    std::hint::spin_loop();
                };
                let received_at = clock::cycles();
                let round_trip = received_at - sent_at;
                if best.is_none_or(|(least, _)| round_trip < least) {
                    best = Some((round_trip, (sent_at..=received_at).contains(&remote)));
                }
            }
            best
        });
        let (round_trip, within) = pinger.join().ok()??;
        within.then(|| (u128::from(round_trip) * 500_000_000 / u128::from(hz.max(1))) as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_gaps() {
        let of = |longest_ns, lost_share| fitness(&CpuGaps { longest_ns, lost_share, ..CpuGaps::default() });
        assert_eq!(of(9_000, 0.0), Fitness::Fit);
        assert_eq!(of(150_000, 0.001), Fitness::Noisy);
        assert_eq!(of(20_000, 0.01), Fitness::Noisy);
        assert_eq!(of(3_000_000, 0.001), Fitness::Unfit);
        assert_eq!(of(20_000, 0.2), Fitness::Unfit);
    }

    #[test]
    fn checks_this_host() {
        let cpus = runtime::allowed_cpus();
        let check = HostCheck::run(&cpus[..cpus.len().min(2)]);
        assert_eq!(check.gaps.len(), cpus.len().min(2));
        assert!(check.gaps.iter().all(|g| (0.0..=1.0).contains(&g.lost_share)), "{check:?}");
        assert!(check.summary().contains("CPU"));
        assert_eq!(check.advice().is_none(), check.fitness == Fitness::Fit);
    }
}
