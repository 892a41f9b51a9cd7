//! Whether a machine is fit to measure on: how long busy threads on its CPUs are left alone, and whether their clocks agree.

use packet::clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long CPUs are watched.
const WATCH: Duration = Duration::from_millis(200);
/// A gap is noticed from here on, ns; one that a queue of 1,024 does not outlast at 10 Mpps; and one that is no interrupt.
const GAP_NS: u64 = 10_000;
const LONG_NS: u64 = 100_000;
const AWAY_NS: u64 = 1_000_000;
/// Round trips between two CPUs by which their clocks are compared.
const TRIPS: u64 = 2_000;

/// What was seen of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gaps {
    /// The CPU.
    pub cpu: usize,
    /// Gaps longer than 10 µs a second.
    pub gaps_per_s: f64,
    /// Of these, longer than 100 µs.
    pub long_per_s: f64,
    /// The longest, ns.
    pub longest_ns: u64,
    /// Share of the time that was missed in gaps.
    pub lost_share: f64,
}

/// How fit a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fitness {
    /// No gap that packets would notice.
    Fit,
    /// Gaps of up to a millisecond: many short trials, or goals that let some be exceeded, are to be believed.
    Noisy,
    /// CPUs are away for milliseconds: absolute numbers say little, ratios of interleaved runs do.
    Unfit,
}

/// What was seen of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Of each CPU.
    pub gaps: Vec<Gaps>,
    /// How far the clocks of the first two may lie apart, ns: half of the quickest way there and back.
    pub clocks_ns: Option<u64>,
    /// What that makes of it.
    pub fitness: Fitness,
}

impl Machine {
    /// Watches these CPUs, all at once, for a fifth of a second.
    pub fn watch(cpus: &[usize]) -> Machine {
        let gaps = std::thread::scope(|scope| {
            let threads: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || watch(cpu))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>()
        });
        let clocks_ns = match cpus {
            [a, b, ..] if a != b => clocks(*a, *b),
            _ => None,
        };
        let fitness = gaps.iter().map(judge).max().unwrap_or(Fitness::Fit);
        Machine { gaps, clocks_ns, fitness }
    }

    /// In one line, as a result keeps it.
    pub fn words(&self) -> String {
        let gaps = self.gaps.iter().map(|g| {
            format!(
                "CPU {}: {:.0} gaps over 10 us and {:.0} over 100 us a second, longest {} us, {:.2} % lost",
                g.cpu,
                g.gaps_per_s,
                g.long_per_s,
                g.longest_ns / 1000,
                g.lost_share * 100.0
            )
        });
        let clocks = self.clocks_ns.map(|ns| format!("clocks within {ns} ns"));
        gaps.chain(clocks).collect::<Vec<_>>().join("; ")
    }

    /// What it means, and what helps; none where it is fit.
    pub fn advice(&self) -> Option<&'static str> {
        match self.fitness {
            Fitness::Fit => None,
            Fitness::Noisy => Some(
                "CPUs are interrupted; to be left alone they need isolcpus, nohz_full and rcu_nocbs on the kernel's command line",
            ),
            Fitness::Unfit => Some(
                "CPUs are away for milliseconds: stop other programs; on a virtual machine, pin its CPUs and give them to it \
                 alone; until then compare interleaved runs, not absolute numbers",
            ),
        }
    }
}

impl Fitness {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Fitness::Fit => "fit",
            Fitness::Noisy => "noisy",
            Fitness::Unfit => "unfit",
        }
    }
}

fn judge(gaps: &Gaps) -> Fitness {
    match () {
        () if gaps.longest_ns >= AWAY_NS || gaps.lost_share > 0.05 => Fitness::Unfit,
        () if gaps.longest_ns >= LONG_NS || gaps.lost_share > 0.005 => Fitness::Noisy,
        () => Fitness::Fit,
    }
}

/// What a thread that does nothing but read the clock misses.
fn watch(cpu: usize) -> Gaps {
    // not pinned it sees a few gaps more
    let _ = runtime::pin(cpu);
    let hz = clock::hz();
    let ns = |ticks: u64| (u128::from(ticks) * 1_000_000_000 / u128::from(hz.max(1))) as u64;
    let start = clock::cycles();
    let end = start + (WATCH.as_secs_f64() * hz as f64) as u64;
    let (mut last, mut seen, mut lost) = (start, Gaps { cpu, ..Gaps::default() }, 0);
    let (mut gaps, mut long) = (0u64, 0u64);
    while last < end {
        let now = clock::cycles();
        let gap = ns(now.saturating_sub(last));
        if gap > GAP_NS {
            gaps += 1;
            long += u64::from(gap > LONG_NS);
            lost += gap;
            seen.longest_ns = seen.longest_ns.max(gap);
        }
        last = now;
    }
    let seconds = (last - start) as f64 / hz as f64;
    (seen.gaps_per_s, seen.long_per_s) = (gaps as f64 / seconds, long as f64 / seconds);
    seen.lost_share = lost as f64 / 1e9 / seconds;
    seen
}

/// The quickest way of a word from one CPU to the other and back, halved: as far as their clocks may lie apart where what
/// comes back lies between the times of its leaving and coming. None where it does not.
fn clocks(a: usize, b: usize) -> Option<u64> {
    let (ping, pong) = (AtomicU64::new(0), AtomicU64::new(0));
    let hz = clock::hz();
    let give_up = clock::cycles() + hz / 2;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = runtime::pin(b);
            for trip in 1..=TRIPS {
                while ping.load(Ordering::Acquire) < trip {
                    if clock::cycles() > give_up {
                        return;
                    }
                    std::hint::spin_loop();
                }
                pong.store(clock::cycles(), Ordering::Release);
            }
        });
        let here = scope.spawn(|| {
            let _ = runtime::pin(a);
            let mut best: Option<(u64, bool)> = None;
            for trip in 1..=TRIPS {
                let before = pong.load(Ordering::Acquire);
                let left = clock::cycles();
                ping.store(trip, Ordering::Release);
                let there = loop {
                    let answer = pong.load(Ordering::Acquire);
                    if answer != before {
                        break answer;
                    }
                    if clock::cycles() > give_up {
                        return best;
                    }
                    std::hint::spin_loop();
                };
                let came = clock::cycles();
                let way = came - left;
                if best.is_none_or(|(least, _)| way < least) {
                    best = Some((way, (left..=came).contains(&there)));
                }
            }
            best
        });
        let (way, within) = here.join().ok()??;
        within.then(|| (u128::from(way) * 500_000_000 / u128::from(hz.max(1))) as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let of = |longest_ns, lost_share| judge(&Gaps { longest_ns, lost_share, ..Gaps::default() });
        assert_eq!(of(9_000, 0.0), Fitness::Fit);
        assert_eq!(of(150_000, 0.001), Fitness::Noisy);
        assert_eq!(of(20_000, 0.01), Fitness::Noisy);
        assert_eq!(of(3_000_000, 0.001), Fitness::Unfit);
        assert_eq!(of(20_000, 0.2), Fitness::Unfit);
    }

    #[test]
    fn this_machine() {
        let cpus = runtime::allowed_cpus();
        let machine = Machine::watch(&cpus[..cpus.len().min(2)]);
        assert_eq!(machine.gaps.len(), cpus.len().min(2));
        assert!(machine.gaps.iter().all(|g| (0.0..=1.0).contains(&g.lost_share)), "{machine:?}");
        assert!(machine.words().contains("CPU"));
        assert_eq!(machine.advice().is_none(), machine.fitness == Fitness::Fit);
    }
}
