//! CPU affinity and priority of threads.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Returns the CPUs that the calling thread may run on.
pub fn allowed_cpus() -> Vec<usize> {
    affinity_of(None).unwrap_or_default()
}

/// Returns the CPUs that a thread may run on, the calling one by default; `None` if there is no such thread.
pub(crate) fn affinity_of(thread: Option<Pid>) -> Option<Vec<usize>> {
    let set = sched_getaffinity(thread).ok()?;
    Some((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// The CPU does not exist or is not allowed.
pub fn pin(cpu: usize) -> std::io::Result<()> {
    set_affinity(&[cpu])
}

/// Restricts the calling thread to these CPUs.
///
/// # Errors
/// None of them exists and is allowed.
pub fn set_affinity(cpus: &[usize]) -> std::io::Result<()> {
    set_affinity_of(None, cpus)
}

/// Restricts a thread to these CPUs, the calling one by default.
///
/// # Errors
/// None of them exists and is allowed, or there is no such thread.
pub(crate) fn set_affinity_of(thread: Option<Pid>, cpus: &[usize]) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(thread, &set)?)
}

/// Lets the calling thread run on all CPUs but these.
///
/// # Errors
/// No other CPU exists and is allowed.
pub fn avoid_cpus(cpus: &[usize]) -> std::io::Result<()> {
    set_affinity(&(0..CpuSet::MAX_CPU).filter(|cpu| !cpus.contains(cpu)).collect::<Vec<_>>())
}
