//! CPUs: which there are, and staying on one.

/// CPUs that this process may run on.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: cpu_set_t is plain bits; size and index stay within it.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Keeps the calling thread on one CPU.
///
/// # Errors
/// When the CPU is not there or not allowed.
pub fn pin(cpu: usize) -> std::io::Result<()> {
    // SAFETY: as above; the caller's CPUs are below CPU_SETSIZE by the chain file's check.
    let rc = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// CPUs for chains that name none: in turn, and not the first where there are others, so that control has one.
pub(crate) fn choose(chain: usize, allowed: &[usize]) -> usize {
    let free = if allowed.len() > 1 { &allowed[1..] } else { allowed };
    free[chain % free.len()]
}
