//! CPU affinity and priority of threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the CPUs that the calling thread may run on.
pub fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
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
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling thread run on all CPUs but these.
///
/// # Errors
/// No other CPU exists and is allowed.
pub fn avoid_cpus(cpus: &[usize]) -> std::io::Result<()> {
    set_affinity(&(0..CpuSet::MAX_CPU).filter(|cpu| !cpus.contains(cpu)).collect::<Vec<_>>())
}
