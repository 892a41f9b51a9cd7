//! Run delays of the programs of a device.

use runtime::{PollTimes, ThreadTimes, thread_times};
use std::collections::BTreeMap;
use std::time::Duration;

/// Scheduler statistics of the threads of processes and their descendants, by the last reading.
#[derive(Default)]
pub(crate) struct RunDelays {
    processes: Vec<u32>,
    last: BTreeMap<u32, ThreadTimes>,
}

impl RunDelays {
    pub(crate) fn new(processes: Vec<u32>) -> RunDelays {
        RunDelays { processes, last: BTreeMap::new() }
    }

    /// Returns the preemption of the thread that waited longest for a CPU since the last call. Its longest wait is not
    /// known; at least one was as long as the mean.
    pub(crate) fn take(&mut self) -> PollTimes {
        let now: BTreeMap<_, _> = self.processes.iter().flat_map(|process| thread_times(*process)).collect();
        let waits = now.iter().filter_map(|(thread, now)| {
            let before = self.last.get(thread)?;
            let waited_ns = now.run_delay_ns.saturating_sub(before.run_delay_ns);
            Some((waited_ns, now.timeslices.saturating_sub(before.timeslices)))
        });
        let (waited_ns, times) = waits.max().unwrap_or_default();
        self.last = now;
        PollTimes {
            gap_max: Duration::ZERO,
            gap_sum: Duration::ZERO,
            off_cpu: Duration::from_nanos(waited_ns),
            off_cpu_max: Duration::from_nanos(waited_ns.checked_div(times).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn sees_a_process_that_shares_its_cpu() {
        let cpu = runtime::allowed_cpus()[0].to_string();
        let busy = || Command::new("taskset").args(["-c", &cpu, "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        let (mut one, mut other) = (busy(), busy());
        let mut delays = RunDelays::new(vec![one.id()]);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(delays.take(), PollTimes::default(), "nothing to compare with");
        std::thread::sleep(Duration::from_millis(500));
        let times = delays.take();
        for process in [&mut one, &mut other] {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        assert!(times.off_cpu > Duration::from_millis(50), "{times:?}");
        assert!(times.off_cpu_max > Duration::from_micros(100) && times.off_cpu_max <= times.off_cpu, "{times:?}");
    }
}
