//! System calls that forwarding needs; all others end the process.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// Memory, time, threads, and what is open already. None of these opens a file or a socket, starts a program, or takes away
/// memory that the switch has mapped too, which would end it.
const CALLS: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_wait,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
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
    libc::SYS_poll,
    libc::SYS_ppoll,
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
    libc::SYS_sendmsg,
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
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_newfstatat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_prctl,
    libc::SYS_readlink,
    libc::SYS_seccomp,
    libc::SYS_stat,
    libc::SYS_statx,
    libc::SYS_unlink,
];

/// Advice that takes pages out of shared memory.
const REMOVE: u64 = libc::MADV_REMOVE as u64;

/// Allows all threads of this process these calls only, from now on and for good.
///
/// # Errors
/// The kernel has no seccomp.
pub(crate) fn restrict() -> Result<(), String> {
    let arch = std::env::consts::ARCH.try_into().map_err(|e: seccompiler::BackendError| e.to_string())?;
    let build =
        |calls: &[&[libc::c_long]], matched: SeccompAction, other: SeccompAction| -> Result<BpfProgram, String> {
            let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
                calls.concat().into_iter().map(|call| (call, vec![])).collect();
            if matched == SeccompAction::Allow {
                let other = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, REMOVE);
                let rule = other.and_then(|other| SeccompRule::new(vec![other])).map_err(|e| e.to_string())?;
                rules.insert(libc::SYS_madvise, vec![rule]);
            }
            let filter = SeccompFilter::new(rules, other, matched, arch).map_err(|e| e.to_string())?;
            filter.try_into().map_err(|e: seccompiler::BackendError| e.to_string())
        };
    // of several answers the strictest holds, and the first must not forbid the second
    let ending = build(&[CALLS, REFUSED], SeccompAction::Allow, SeccompAction::KillProcess)?;
    let refusing = build(&[REFUSED], SeccompAction::Errno(libc::EACCES as u32), SeccompAction::Allow)?;
    for program in [ending, refusing] {
        seccompiler::apply_filter_all_threads(&program).map_err(|e| e.to_string())?;
    }
    Ok(())
}
