//! CPUs: which there are, and staying on one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs that this process may run on.
pub fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Keeps the calling thread on one CPU.
///
/// # Errors
/// When the CPU is not there or not allowed.
pub fn pin(cpu: usize) -> std::io::Result<()> {
    confine(&[cpu])
}

/// Keeps the calling thread on these CPUs, such as all that it had before [`pin`].
///
/// # Errors
/// When none of them is there and allowed.
pub fn confine(cpus: &[usize]) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Puts the calling thread, and what it starts, before others on its CPU, where the user may; whether that was so.
pub fn put_first() -> bool {
    rustix::process::setpriority_process(None, -20).is_ok()
}
