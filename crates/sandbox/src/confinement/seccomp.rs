//! seccomp filters: lists of the system calls that a sandboxed process may make.
//!
//! The setup filter applies while trusted code opens the ports. The NF filter applies from the first instruction of an
//! NF's `build`: it opens no file and no socket, starts no program, and maps no executable memory.

use SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// Calls that both filters allow: memory, time, threads, and I/O on open files, including the epoll calls of DPDK's
/// interrupt thread. None of them opens a file or a socket, starts a program, or removes memory that the host side maps,
/// which would crash it.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
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
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_membarrier,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_pause,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_pread64,
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

/// Further calls of the setup filter: opening the files of the sandbox's own root, shared memory, and the connection to
/// the host side.
const ALLOWED_IN_SETUP: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_close_range,
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_eventfd2,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_ftruncate,
    libc::SYS_get_mempolicy,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_memfd_create,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_newfstatat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_prlimit64,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_seccomp,
    libc::SYS_sendmsg,
    libc::SYS_set_mempolicy,
    libc::SYS_set_tid_address,
    libc::SYS_setsockopt,
    libc::SYS_stat,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_timerfd_create,
    libc::SYS_uname,
    libc::SYS_unlink,
];

/// Calls that fail with `EACCES` under the NF filter, because harmless code makes them and handles their errors. All
/// others end the process.
const DENIED: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_newfstatat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_prctl,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_seccomp,
    libc::SYS_sendmsg,
    libc::SYS_stat,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_unlink,
];

/// Calls by which DPDK accesses the configuration space of a PCI device, besides `pread64`.
const ALLOWED_FOR_DEVICES: &[libc::c_long] = &[libc::SYS_pwrite64];
/// Type of VFIO requests, `_IO(';', ...)`.
const VFIO: u64 = (b';' as u64) << 8;

/// Advice to `madvise` under the NF filter. `MADV_REMOVE` would remove pages of shared memory.
const ADVICE: &[libc::c_int] = &[
    libc::MADV_NORMAL,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_DONTNEED,
    libc::MADV_FREE,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_DONTDUMP,
    libc::MADV_DODUMP,
    libc::MADV_COLD,
    libc::MADV_POPULATE_READ,
    libc::MADV_POPULATE_WRITE,
    // MADV_GUARD_INSTALL and MADV_GUARD_REMOVE, by which newer C libraries protect stacks
    102,
    103,
];

/// Commands of `fcntl` under the NF filter. `F_SETFL` could make an rx interrupt eventfd block the host side.
const FILE_COMMANDS: &[libc::c_int] =
    &[libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL];

/// Options of `prctl` under the setup filter. `PR_SET_PDEATHSIG` is not among them: the process ends with its parent.
const PROCESS_OPTIONS: &[libc::c_int] =
    &[libc::PR_GET_NAME, libc::PR_SET_DUMPABLE, libc::PR_SET_NAME, libc::PR_SET_NO_NEW_PRIVS, libc::PR_SET_VMA];

/// Flags of `clone` that create namespaces or another process, besides the absence of `CLONE_THREAD`.
const NOT_FOR_THREADS: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_PARENT
    | libc::CLONE_VFORK;

/// Calls that fail with `EPERM` in QEMU, besides those that its own filter denies: it needs none of these parts of the
/// kernel.
const DENIED_TO_QEMU: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Returns a rule that compares the low 32 bits of arguments of a call; all comparisons must be true.
fn arguments_rule(comparisons: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, String> {
    let condition = |(n, operator, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*n, SeccompCmpArgLen::Dword, operator.clone(), *value)
    };
    let conditions = comparisons.iter().map(condition).collect::<Result<_, _>>();
    conditions.and_then(SeccompRule::new).map_err(|e| e.to_string())
}

/// Returns a rule that compares the low 32 bits of argument `n` of a call.
fn argument_rule(n: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, String> {
    arguments_rule(&[(n, operator, value)])
}

/// Returns rules that allow some values of argument `n` of a call.
fn one_of(n: u8, values: &[libc::c_int]) -> Result<Vec<SeccompRule>, String> {
    values.iter().map(|value| argument_rule(n, Eq, u64::from(*value as u32))).collect()
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

/// Returns the rules that both filters share.
fn common_rules(devices: bool) -> Result<Rules, String> {
    let mut rules: Rules = unconditional(ALLOWED).collect();
    if devices {
        rules.extend(unconditional(ALLOWED_FOR_DEVICES));
        rules.insert(libc::SYS_ioctl, vec![argument_rule(1, MaskedEq(0xff00), VFIO)?]);
    }
    let [thread, other] = [libc::CLONE_THREAD, NOT_FOR_THREADS].map(|flags| u64::from(flags as u32));
    rules.insert(libc::SYS_clone, vec![argument_rule(0, MaskedEq(thread | other), thread)?]);
    Ok(rules)
}

/// Installs the filter for the time before NFs run; other calls fail with `EPERM`.
///
/// # Errors
/// The kernel does not support seccomp.
pub(crate) fn install_setup_filter(devices: bool) -> Result<(), String> {
    let [write, execute] = [libc::PROT_WRITE, libc::PROT_EXEC].map(|flag| flag as u64);
    let mut rules = common_rules(devices)?;
    rules.extend(unconditional(ALLOWED_IN_SETUP));
    rules.insert(libc::SYS_socket, vec![argument_rule(0, Eq, libc::AF_UNIX as u64)?]);
    rules.insert(libc::SYS_prctl, one_of(0, PROCESS_OPTIONS)?);
    // libraries of DPDK may be loaded now
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let either = [write, execute].map(|flag| argument_rule(2, MaskedEq(flag), 0));
        rules.insert(call, either.into_iter().collect::<Result<_, _>>()?);
    }
    // its flags are in memory, so that no filter can check them; without it, threads are created by clone
    rules.insert(libc::SYS_clone3, vec![]);
    install(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))?;
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    install(unconditional(&[libc::SYS_clone3]).collect(), absent, SeccompAction::Allow)
}

/// Installs the filter for NFs, after the setup filter. With passthrough devices it allows VFIO.
///
/// # Errors
/// The kernel does not support seccomp.
pub(crate) fn install_nf_filter(devices: bool) -> Result<(), String> {
    let mut rules = common_rules(devices)?;
    rules.extend(unconditional(DENIED));
    let executable = (2, MaskedEq(libc::PROT_EXEC as u64), 0);
    rules.insert(libc::SYS_mprotect, vec![arguments_rule(std::slice::from_ref(&executable))?]);
    // the limit of private memory does not include shared memory
    let shared = (3, MaskedEq(libc::MAP_SHARED as u64), 0);
    rules.insert(libc::SYS_mmap, vec![arguments_rule(&[executable, shared])?]);
    rules.insert(libc::SYS_fcntl, one_of(1, FILE_COMMANDS)?);
    rules.insert(libc::SYS_madvise, one_of(2, ADVICE)?);
    // limits may be read and not set
    let null = SeccompCondition::new(2, SeccompCmpArgLen::Qword, Eq, 0).and_then(|null| SeccompRule::new(vec![null]));
    rules.insert(libc::SYS_prlimit64, vec![null.map_err(|e| e.to_string())?]);
    // the setup filter returns ENOSYS
    rules.insert(libc::SYS_clone3, vec![]);
    // the strictest result of all filters applies; this one must allow installing the next
    install(rules, SeccompAction::Allow, SeccompAction::KillProcess)?;
    install(unconditional(DENIED).collect(), SeccompAction::Errno(libc::EACCES as u32), SeccompAction::Allow)
}

/// Installs the filter for QEMU, which adds its own: no sockets but `AF_UNIX`, and none of [`DENIED_TO_QEMU`].
///
/// # Errors
/// The kernel does not support seccomp.
pub(crate) fn install_vm_filter() -> Result<(), String> {
    let mut rules: Rules = unconditional(DENIED_TO_QEMU).collect();
    rules.insert(libc::SYS_socket, vec![argument_rule(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64)?]);
    install(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

#[cfg(test)]
mod tests;
