//! Detects processes that cannot run because others use their CPUs.

use runtime::{ThreadTimes, thread_times};
use std::collections::BTreeMap;

/// CPU times of the threads of a process and its descendants, by the last sample.
#[derive(Default)]
pub(crate) struct CpuTimes(BTreeMap<u32, ThreadTimes>);

impl CpuTimes {
    /// Takes a sample; returns true if a thread is ready to run and has got no CPU time since the last one. Threads that
    /// wait or are stopped are not ready to run.
    pub(crate) fn is_starved(&mut self, process: u32) -> bool {
        let now = thread_times(process);
        let did_not_run = |(thread, now): (&u32, &ThreadTimes)| {
            now.is_runnable && self.0.get(thread).is_some_and(|before| before.ran_ns == now.ran_ns)
        };
        let starved = now.iter().any(did_not_run);
        self.0 = now;
        starved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::fs::read_to_string;
    use std::process::{Child, Command};
    use std::time::Duration;

    /// A process that computes at the lowest priority on one CPU.
    fn busy(niceness: &str) -> Child {
        let cpu = runtime::allowed_cpus()[0].to_string();
        let program = ["-c", &cpu, "nice", "-n", niceness, "sh", "-c", "while :; do :; done"];
        Command::new("taskset").args(program).spawn().unwrap()
    }

    /// Returns the number of samples, of at most `samples`, in which a process was starved, up to 50.
    fn starved(process: u32, samples: u32) -> usize {
        let mut times = CpuTimes::default();
        let sample = |_| {
            std::thread::sleep(Duration::from_millis(2));
            times.is_starved(process)
        };
        (0..samples).map(sample).filter(|starved| *starved).take(50).count()
    }

    #[test]
    fn a_process_is_starved_by_others_and_not_by_itself() {
        let mut low = busy("19");
        let mut others: Vec<Child> = (0..4).map(|_| busy("0")).collect();
        // with 15 of 4111 shares of the CPU
        let beside_others = starved(low.id(), 5000);
        kill_process(Pid::from_child(&low), Signal::STOP).unwrap();
        // the signal takes effect when it runs the next time
        let is_stopped = || read_to_string(format!("/proc/{}/stat", low.id())).unwrap().contains(") T");
        for _ in 0..5000 {
            if is_stopped() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let stopped = starved(low.id(), 100);
        others.iter_mut().chain([&mut low]).for_each(|process| {
            process.kill().unwrap();
            process.wait().unwrap();
        });
        let mut waiting = Command::new("sleep").arg("60").spawn().unwrap();
        let idle = starved(waiting.id(), 100);
        waiting.kill().unwrap();
        waiting.wait().unwrap();
        assert_eq!(beside_others, 50);
        // the start of a program takes a moment
        assert!(stopped < 10 && idle < 10, "{stopped} {idle}");
    }
}
