//! Scheduler statistics of the threads of other processes.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_to_string};

/// Scheduler statistics of a thread (`/proc/PID/task/TID/schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// CPU time, nanoseconds.
    pub ran_ns: u64,
    /// Run delay: time during which it was ready to run and waited for a CPU, nanoseconds. Without steal time.
    pub run_delay_ns: u64,
    /// Number of times that it was given a CPU.
    pub timeslices: u64,
    /// True if it is running or ready to run.
    pub is_runnable: bool,
}

/// Returns the statistics of all threads of a process and its descendants, by thread id. Descendants are left out if the
/// kernel was built without `CONFIG_PROC_CHILDREN`; all are if it was built without `CONFIG_SCHED_INFO`.
pub fn thread_times(process: u32) -> BTreeMap<u32, ThreadTimes> {
    let mut times = BTreeMap::new();
    let mut processes = vec![process];
    while let Some(process) = processes.pop() {
        for thread in numbers(&format!("/proc/{process}/task")) {
            let read = |file: &str| read_to_string(format!("/proc/{process}/task/{thread}/{file}")).unwrap_or_default();
            let children = read("children");
            processes.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
            let schedstat = read("schedstat");
            let mut numbers = schedstat.split_whitespace().map_while(|n| n.parse().ok());
            let (Some(ran_ns), Some(run_delay_ns), Some(timeslices)) = (numbers.next(), numbers.next(), numbers.next())
            else {
                continue;
            };
            // the name may contain any character, the state follows it
            let is_runnable = read("stat").rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'));
            times.insert(thread, ThreadTimes { ran_ns, run_delay_ns, timeslices, is_runnable });
        }
    }
    times
}

/// Returns the entries of a folder that are numbers.
fn numbers(folder: &str) -> Vec<u32> {
    let entries = read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_process() {
        let own = || thread_times(std::process::id());
        let before = own();
        let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(before[&id].is_runnable && before[&id].timeslices != 0);
        let end = std::time::Instant::now() + std::time::Duration::from_millis(100);
        while std::time::Instant::now() < end {}
        let after = own();
        assert!(after[&id].ran_ns > before[&id].ran_ns && after[&id].run_delay_ns >= before[&id].run_delay_ns);
        assert!(thread_times(u32::MAX).is_empty());
    }
}
