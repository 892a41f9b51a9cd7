//! seccomp filters: a process that makes another system call than those that forwarding needs is killed.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// Allowed calls: memory, time, threads, and I/O on open files, including the epoll calls of DPDK's interrupt thread.
/// None of them opens a file or a socket, starts a program, or removes memory that the host side maps, which would
/// crash it.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_epoll_create,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_wait,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_pause,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_prlimit64,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_timerfd_settime,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Calls that fail with `EACCES`.
const DENIED: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_newfstatat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_prctl,
    libc::SYS_readlink,
    libc::SYS_seccomp,
    libc::SYS_sendmsg,
    libc::SYS_stat,
    libc::SYS_statx,
    libc::SYS_unlink,
];

/// Calls by which DPDK accesses the configuration space of a PCI device.
const ALLOWED_FOR_DEVICES: &[libc::c_long] = &[libc::SYS_pread64, libc::SYS_pwrite64];
/// Type of VFIO requests, `_IO(';', ...)`.
const VFIO: u64 = (b';' as u64) << 8;

/// `madvise` advice that removes pages of shared memory.
const REMOVE: u64 = libc::MADV_REMOVE as u64;

/// Calls that create processes or change privileges or namespaces; they fail with `EPERM` from the start.
const DENIED_DURING_STARTUP: &[libc::c_long] = &[
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_fork,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vfork,
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns a rule that compares argument `n` of a call.
fn argument_rule(n: u8, operator: SeccompCmpOp, value: u64) -> Result<Vec<SeccompRule>, String> {
    let condition = SeccompCondition::new(n, SeccompCmpArgLen::Dword, operator, value);
    let rule = condition.and_then(|condition| SeccompRule::new(vec![condition]));
    Ok(vec![rule.map_err(|e| e.to_string())?])
}

fn unconditional(calls: &[libc::c_long]) -> impl Iterator<Item = (i64, Vec<SeccompRule>)> {
    calls.iter().map(|&call| (call, vec![]))
}

/// Installs a filter for all threads of this process.
fn install(rules: Rules, matched: SeccompAction, other: SeccompAction) -> Result<(), String> {
    let arch = std::env::consts::ARCH.try_into().map_err(|e: seccompiler::BackendError| e.to_string())?;
    let filter = SeccompFilter::new(rules, other, matched, arch).map_err(|e| e.to_string())?;
    let program: BpfProgram = filter.try_into().map_err(|e: seccompiler::BackendError| e.to_string())?;
    seccompiler::apply_filter_all_threads(&program).map_err(|e| e.to_string())
}

/// Installs the filter for the time when NFs are built: no new processes, no changes of privileges, no change of the
/// parent-death signal.
///
/// # Errors
/// The kernel does not support seccomp.
pub(crate) fn install_startup_filter() -> Result<(), String> {
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let mut rules: Rules = unconditional(DENIED_DURING_STARTUP).collect();
    // threads may be created by clone, whose flags a filter can check
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, argument_rule(0, SeccompCmpOp::MaskedEq(thread), 0)?);
    rules.insert(libc::SYS_prctl, argument_rule(0, SeccompCmpOp::Eq, libc::PR_SET_PDEATHSIG as u64)?);
    install(rules, refused, SeccompAction::Allow)?;
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    install(unconditional(&[libc::SYS_clone3]).collect(), absent, SeccompAction::Allow)
}

/// Installs the filter for forwarding; with passthrough devices, it allows VFIO.
///
/// # Errors
/// The kernel does not support seccomp.
pub(crate) fn install_run_filter(devices: bool) -> Result<(), String> {
    let mut rules: Rules = unconditional(ALLOWED).chain(unconditional(DENIED)).collect();
    if devices {
        rules.extend(unconditional(ALLOWED_FOR_DEVICES));
        rules.insert(libc::SYS_ioctl, argument_rule(1, SeccompCmpOp::MaskedEq(0xff00), VFIO)?);
    }
    // workers are started later; the first filter denies new processes
    rules.extend(unconditional(&[libc::SYS_clone, libc::SYS_clone3]));
    // an rx interrupt eventfd must stay non-blocking, or it would block the host side
    rules.insert(libc::SYS_fcntl, argument_rule(1, SeccompCmpOp::Ne, libc::F_SETFL as u64)?);
    rules.insert(libc::SYS_madvise, argument_rule(2, SeccompCmpOp::Ne, REMOVE)?);
    // the strictest result of all filters applies; this one must allow installing the next
    install(rules, SeccompAction::Allow, SeccompAction::KillProcess)?;
    install(unconditional(DENIED).collect(), SeccompAction::Errno(libc::EACCES as u32), SeccompAction::Allow)
}
