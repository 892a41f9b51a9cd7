//! Off-CPU time: the time during which a busy thread did not run.

use packet::clock;
use rustix::time::{ClockId, clock_gettime};

/// Measures the time during which the calling thread did not run, as elapsed time less CPU time.
///
/// The kernel counts neither the time of other threads nor steal time as CPU time of a thread, provided that the
/// hypervisor reports steal time. A thread that does not block between two readings was preempted for the difference.
/// Interrupts count as CPU time unless the kernel accounts them separately (`CONFIG_IRQ_TIME_ACCOUNTING`).
///
/// ```
/// let mut meter = runtime::OffCpuMeter::start();
/// std::thread::sleep(std::time::Duration::from_millis(2));
/// assert!(meter.lap(packet::clock::cycles()) > packet::clock::hz() / 1000);
/// ```
#[derive(Debug)]
pub struct OffCpuMeter {
    /// Time of the last reading, ticks.
    at: u64,
    /// CPU time at the last reading, nanoseconds.
    cpu_ns: u64,
}

impl OffCpuMeter {
    /// Takes the first reading.
    pub fn start() -> OffCpuMeter {
        OffCpuMeter { at: clock::cycles(), cpu_ns: thread_cpu_ns() }
    }

    /// Returns the off-CPU time of the calling thread between the last reading and the tick `now`, in ticks. `now` has
    /// to be current.
    pub fn lap(&mut self, now: u64) -> u64 {
        let cpu_ns = thread_cpu_ns();
        let elapsed = now.saturating_sub(core::mem::replace(&mut self.at, now));
        let ran_ns = cpu_ns.saturating_sub(core::mem::replace(&mut self.cpu_ns, cpu_ns));
        elapsed.saturating_sub((u128::from(ran_ns) * u128::from(clock::hz()) / 1_000_000_000) as u64)
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(ms: u64) {
        let end = clock::cycles() + clock::hz() / 1000 * ms;
        while clock::cycles() < end {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn sleep_is_off_cpu_and_work_is_not() {
        let ms = |ticks: u64| ticks as f64 / clock::hz() as f64 * 1e3;
        let mut meter = OffCpuMeter::start();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let slept = ms(meter.lap(clock::cycles()));
        assert!(slept >= 19.0, "{slept} ms of a sleep of 20 ms");
        // another thread may preempt this one in some rounds
        let least = (0..50).map(|_| {
            meter.lap(clock::cycles());
            spin(2);
            ms(meter.lap(clock::cycles()))
        });
        let least = least.fold(f64::MAX, f64::min);
        assert!(least < 0.5, "{least} ms of work of 2 ms");
    }

    #[test]
    fn preemption_is_off_cpu() {
        let cpu = crate::allowed_cpus()[0];
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::pin(cpu).unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let victim = scope.spawn(|| {
                crate::pin(cpu).unwrap();
                let mut meter = OffCpuMeter::start();
                spin(300);
                meter.lap(clock::cycles())
            });
            let off = victim.join().unwrap();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(off > clock::hz() / 50, "less than 20 of 300 ms on a shared CPU: {off} ticks");
        });
    }
}
