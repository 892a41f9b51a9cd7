//! System calls that forwarding needs; all others end the process.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// Memory, time, threads, what is open already, and waiting for that, which DPDK's thread for interrupts begins anew when a port
/// comes. None of these opens a file or a socket, starts a program, or takes away memory that the switch has mapped too, which
/// would end it.
const CALLS: &[libc::c_long] = &[
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

/// Calls that are refused: whoever tries is told so, and goes on.
const REFUSED: &[libc::c_long] = &[
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

/// What DPDK needs to stop a device and to hear of its links: its configuration is read and written at an offset.
const OF_DEVICES: &[libc::c_long] = &[libc::SYS_pread64, libc::SYS_pwrite64];
/// The type of VFIO's requests, `_IO(';', ...)`.
const VFIO: u64 = (b';' as u64) << 8;

/// Advice that takes pages out of shared memory.
const REMOVE: u64 = libc::MADV_REMOVE as u64;

/// Calls by which a process gets others, other rights or other surroundings.
const OUTWARDS: &[libc::c_long] = &[
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

/// A rule that holds where argument `n` of a call, masked, is this.
fn where_is(n: u8, compared: SeccompCmpOp, with: u64) -> Result<Vec<SeccompRule>, String> {
    let condition = SeccompCondition::new(n, SeccompCmpArgLen::Dword, compared, with);
    let rule = condition.and_then(|condition| SeccompRule::new(vec![condition]));
    Ok(vec![rule.map_err(|e| e.to_string())?])
}

fn whole(calls: &[libc::c_long]) -> impl Iterator<Item = (i64, Vec<SeccompRule>)> {
    calls.iter().map(|&call| (call, vec![]))
}

/// Has all threads of this process answer calls by rules, from now on and for good.
fn apply(rules: Rules, matched: SeccompAction, other: SeccompAction) -> Result<(), String> {
    let arch = std::env::consts::ARCH.try_into().map_err(|e: seccompiler::BackendError| e.to_string())?;
    let filter = SeccompFilter::new(rules, other, matched, arch).map_err(|e| e.to_string())?;
    let program: BpfProgram = filter.try_into().map_err(|e: seccompiler::BackendError| e.to_string())?;
    seccompiler::apply_filter_all_threads(&program).map_err(|e| e.to_string())
}

/// Before NFs are built: no other process, nobody else's rights, and no life beyond that of who started it.
///
/// # Errors
/// The kernel has no seccomp.
pub(crate) fn confine() -> Result<(), String> {
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let mut rules: Rules = whole(OUTWARDS).collect();
    // threads may be started, by the older call, whose flags can be seen
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, where_is(0, SeccompCmpOp::MaskedEq(thread), 0)?);
    rules.insert(libc::SYS_prctl, where_is(0, SeccompCmpOp::Eq, libc::PR_SET_PDEATHSIG as u64)?);
    apply(rules, refused, SeccompAction::Allow)?;
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    apply(whole(&[libc::SYS_clone3]).collect(), absent, SeccompAction::Allow)
}

/// Before packets move: these calls only, and those for devices that have been opened, if there are some.
///
/// # Errors
/// The kernel has no seccomp.
pub(crate) fn restrict(devices: bool) -> Result<(), String> {
    let mut known: Rules = whole(CALLS).chain(whole(REFUSED)).collect();
    if devices {
        known.extend(whole(OF_DEVICES));
        known.insert(libc::SYS_ioctl, where_is(1, SeccompCmpOp::MaskedEq(0xff00), VFIO)?);
    }
    // workers are yet to be started; of what is no thread the rules before have spoken
    known.extend(whole(&[libc::SYS_clone, libc::SYS_clone3]));
    // a bell that the switch rings must never make it wait
    known.insert(libc::SYS_fcntl, where_is(1, SeccompCmpOp::Ne, libc::F_SETFL as u64)?);
    known.insert(libc::SYS_madvise, where_is(2, SeccompCmpOp::Ne, REMOVE)?);
    // of several answers the strictest holds, and the first must not forbid the second
    apply(known, SeccompAction::Allow, SeccompAction::KillProcess)?;
    apply(whole(REFUSED).collect(), SeccompAction::Errno(libc::EACCES as u32), SeccompAction::Allow)
}
