//! Makes system calls under each filter, in processes of their own.

use super::{DENIED_TO_QEMU, install_nf_filter, install_setup_filter, install_vm_filter};
use Expected::{Fails, Killed, Runs};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

/// Environment variable with the filter and the index of a call, or `all`.
const TASK: &str = "BONDSTONE_TEST_CALL";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    /// The kernel executes it.
    Runs,
    /// It fails with this error.
    Fails(i32),
    /// It ends the process.
    Killed,
}

const REFUSED: Expected = Fails(libc::EPERM);
const DENIED: Expected = Fails(libc::EACCES);

/// A system call: its name, number and arguments, and the result under the setup filter and the NF filter.
type Call = (&'static str, libc::c_long, [u64; 6], Expected, Expected);

const NONE: [u64; 6] = [0; 6];
/// An argument that is no file descriptor, process or flag.
const BAD: u64 = u32::MAX as u64;

/// Returns arguments of `mmap` for an anonymous page.
const fn page(protection: libc::c_int) -> [u64; 6] {
    [0, 4096, protection as u64, (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64, BAD, 0]
}

/// The arguments have no effect if the kernel executes the call.
fn calls() -> Vec<Call> {
    let socket = |family: i32| [family as u64, libc::SOCK_DGRAM as u64, 0, 0, 0, 0];
    let any = [BAD, 0, 0, 0, 0, 0];
    let prot = |flags: i32| [4096, 0, flags as u64, 0, 0, 0];
    let (r, w, x) = (libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC);
    let null = c"/dev/null".as_ptr() as u64;
    let path = [libc::AT_FDCWD as u64, null, 0, 0, 0, 0];
    let mut all: Vec<Call> = vec![
        ("getpid", libc::SYS_getpid, NONE, Runs, Runs),
        ("getrandom", libc::SYS_getrandom, NONE, Runs, Runs),
        ("mmap read-write", libc::SYS_mmap, page(r | w), Runs, Runs),
        (
            "mmap shared",
            libc::SYS_mmap,
            [0, 4096, r as u64, (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64, BAD, 0],
            Runs,
            Killed,
        ),
        ("mmap read-execute", libc::SYS_mmap, page(r | x), Runs, Killed),
        ("mmap write-execute", libc::SYS_mmap, page(w | x), REFUSED, Killed),
        ("mmap read-write-execute", libc::SYS_mmap, page(r | w | x), REFUSED, Killed),
        ("mprotect read-write", libc::SYS_mprotect, prot(r | w), Runs, Runs),
        ("mprotect execute", libc::SYS_mprotect, prot(x), Runs, Killed),
        ("mprotect write-execute", libc::SYS_mprotect, prot(w | x), REFUSED, Killed),
        ("pkey_mprotect execute", libc::SYS_pkey_mprotect, [4096, 0, x as u64, BAD, 0, 0], REFUSED, Killed),
        ("remap_file_pages", libc::SYS_remap_file_pages, [0, 0, 1, 0, 0, 0], REFUSED, Killed),
        ("madvise dontneed", libc::SYS_madvise, [4096, 0, libc::MADV_DONTNEED as u64, 0, 0, 0], Runs, Runs),
        ("madvise remove", libc::SYS_madvise, [4096, 0, libc::MADV_REMOVE as u64, 0, 0, 0], Runs, Killed),
        ("madvise mergeable", libc::SYS_madvise, [4096, 0, libc::MADV_MERGEABLE as u64, 0, 0, 0], Runs, Killed),
        ("openat", libc::SYS_openat, path, Runs, DENIED),
        ("open", libc::SYS_open, [null, 0, 0, 0, 0, 0], Runs, DENIED),
        ("statx", libc::SYS_statx, [BAD, null, 0, 0, 0, 0], Runs, DENIED),
        ("newfstatat", libc::SYS_newfstatat, [BAD, null, 0, 0, 0, 0], Runs, DENIED),
        ("readlink", libc::SYS_readlink, [null, 0, 0, 0, 0, 0], Runs, DENIED),
        ("uname", libc::SYS_uname, NONE, Runs, DENIED),
        ("sysinfo", libc::SYS_sysinfo, NONE, Runs, DENIED),
        ("ftruncate", libc::SYS_ftruncate, any, Runs, DENIED),
        ("fallocate", libc::SYS_fallocate, any, Runs, DENIED),
        ("sendmsg", libc::SYS_sendmsg, any, Runs, DENIED),
        ("seccomp", libc::SYS_seccomp, any, Runs, DENIED),
        ("prctl name", libc::SYS_prctl, [libc::PR_SET_NAME as u64, null, 0, 0, 0, 0], Runs, DENIED),
        ("prctl death signal", libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as u64, 0, 0, 0, 0, 0], REFUSED, DENIED),
        ("prctl dumpable", libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 1, 0, 0, 0, 0], Runs, DENIED),
        ("fcntl get flags", libc::SYS_fcntl, [1, libc::F_GETFL as u64, 0, 0, 0, 0], Runs, Runs),
        ("fcntl set flags", libc::SYS_fcntl, [BAD, libc::F_SETFL as u64, 0, 0, 0, 0], Runs, Killed),
        ("fcntl set owner", libc::SYS_fcntl, [BAD, libc::F_SETOWN as u64, 0, 0, 0, 0], Runs, Killed),
        ("prlimit64 get", libc::SYS_prlimit64, [0, 0, 0, 0, 0, 0], Runs, Runs),
        ("prlimit64 set", libc::SYS_prlimit64, [0, BAD, 1, 0, 0, 0], Runs, Killed),
        ("clone3", libc::SYS_clone3, NONE, Fails(libc::ENOSYS), Fails(libc::ENOSYS)),
        ("clone of a process", libc::SYS_clone, [libc::CLONE_SIGHAND as u64, 0, 0, 0, 0, 0], REFUSED, Killed),
        (
            "clone with a namespace",
            libc::SYS_clone,
            [(libc::CLONE_THREAD | libc::CLONE_NEWUSER) as u64, 0, 0, 0, 0, 0],
            REFUSED,
            Killed,
        ),
        ("socket AF_UNIX", libc::SYS_socket, socket(libc::AF_UNIX), Runs, Killed),
        ("eventfd2", libc::SYS_eventfd2, NONE, Runs, Killed),
        ("pipe2", libc::SYS_pipe2, NONE, Runs, Killed),
        ("timerfd_create", libc::SYS_timerfd_create, NONE, Runs, Killed),
        ("memfd_create", libc::SYS_memfd_create, NONE, Runs, Killed),
        ("connect", libc::SYS_connect, any, Runs, Killed),
    ];
    let families = [
        ("socket AF_INET", libc::AF_INET),
        ("socket AF_INET6", libc::AF_INET6),
        ("socket AF_NETLINK", libc::AF_NETLINK),
        ("socket AF_PACKET", libc::AF_PACKET),
        ("socket AF_VSOCK", libc::AF_VSOCK),
        ("socket AF_ALG", libc::AF_ALG),
        ("socket AF_XDP", libc::AF_XDP),
        ("socket AF_BLUETOOTH", libc::AF_BLUETOOTH),
        ("socket AF_CAN", libc::AF_CAN),
        ("socket AF_TIPC", libc::AF_TIPC),
        ("socket AF_RDS", libc::AF_RDS),
        ("socket AF_KEY", libc::AF_KEY),
    ];
    all.extend(families.map(|(name, family)| (name, libc::SYS_socket, socket(family), REFUSED, Killed)));
    let nothing = [
        ("accept4", libc::SYS_accept4, any),
        ("add_key", libc::SYS_add_key, NONE),
        ("arch_prctl", libc::SYS_arch_prctl, any),
        ("bind", libc::SYS_bind, any),
        ("bpf", libc::SYS_bpf, any),
        ("capset", libc::SYS_capset, NONE),
        ("chmod", libc::SYS_chmod, NONE),
        ("chown", libc::SYS_chown, NONE),
        ("chroot", libc::SYS_chroot, NONE),
        ("clock_settime", libc::SYS_clock_settime, any),
        ("delete_module", libc::SYS_delete_module, NONE),
        ("execve", libc::SYS_execve, NONE),
        ("execveat", libc::SYS_execveat, any),
        ("fanotify_init", libc::SYS_fanotify_init, any),
        ("finit_module", libc::SYS_finit_module, any),
        ("fsopen", libc::SYS_fsopen, NONE),
        ("init_module", libc::SYS_init_module, NONE),
        ("inotify_init1", libc::SYS_inotify_init1, any),
        ("io_setup", libc::SYS_io_setup, NONE),
        ("io_uring_setup", libc::SYS_io_uring_setup, NONE),
        ("ioctl", libc::SYS_ioctl, any),
        ("iopl", libc::SYS_iopl, any),
        ("kcmp", libc::SYS_kcmp, any),
        ("kexec_load", libc::SYS_kexec_load, [0, 0, 0, BAD, 0, 0]),
        ("keyctl", libc::SYS_keyctl, any),
        ("kill", libc::SYS_kill, [i32::MAX as u64, 0, 0, 0, 0, 0]),
        ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset, [0, 0, BAD, 0, 0, 0]),
        ("listen", libc::SYS_listen, any),
        ("memfd_secret", libc::SYS_memfd_secret, any),
        ("mkdir", libc::SYS_mkdir, NONE),
        ("mknod", libc::SYS_mknod, NONE),
        ("mlockall", libc::SYS_mlockall, NONE),
        ("modify_ldt", libc::SYS_modify_ldt, NONE),
        ("mount", libc::SYS_mount, NONE),
        ("mount_setattr", libc::SYS_mount_setattr, any),
        ("move_mount", libc::SYS_move_mount, any),
        ("move_pages", libc::SYS_move_pages, [0, 0, 0, 0, 0, BAD]),
        ("mq_open", libc::SYS_mq_open, NONE),
        ("msgget", libc::SYS_msgget, [BAD, 0, 0, 0, 0, 0]),
        ("name_to_handle_at", libc::SYS_name_to_handle_at, any),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, any),
        ("open_tree", libc::SYS_open_tree, any),
        ("openat2", libc::SYS_openat2, any),
        ("perf_event_open", libc::SYS_perf_event_open, NONE),
        ("personality", libc::SYS_personality, any),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, any),
        ("pidfd_open", libc::SYS_pidfd_open, any),
        ("pivot_root", libc::SYS_pivot_root, NONE),
        ("process_vm_readv", libc::SYS_process_vm_readv, any),
        ("process_vm_writev", libc::SYS_process_vm_writev, any),
        ("ptrace", libc::SYS_ptrace, [libc::PTRACE_ATTACH as u64, BAD, 0, 0, 0, 0]),
        ("quotactl", libc::SYS_quotactl, any),
        ("reboot", libc::SYS_reboot, NONE),
        ("rename", libc::SYS_rename, NONE),
        ("request_key", libc::SYS_request_key, NONE),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, any),
        ("sched_setscheduler", libc::SYS_sched_setscheduler, any),
        ("semget", libc::SYS_semget, NONE),
        ("sendfile", libc::SYS_sendfile, any),
        ("sendmmsg", libc::SYS_sendmmsg, any),
        ("setgroups", libc::SYS_setgroups, any),
        ("sethostname", libc::SYS_sethostname, any),
        ("setns", libc::SYS_setns, any),
        ("setpriority", libc::SYS_setpriority, any),
        ("setresuid", libc::SYS_setresuid, [BAD, BAD, BAD, 0, 0, 0]),
        ("shmat", libc::SYS_shmat, any),
        ("shmget", libc::SYS_shmget, NONE),
        ("signalfd4", libc::SYS_signalfd4, any),
        ("socketpair", libc::SYS_socketpair, any),
        ("splice", libc::SYS_splice, any),
        ("swapon", libc::SYS_swapon, NONE),
        ("symlink", libc::SYS_symlink, NONE),
        ("syslog", libc::SYS_syslog, any),
        ("umount2", libc::SYS_umount2, NONE),
        ("unshare", libc::SYS_unshare, NONE),
        ("userfaultfd", libc::SYS_userfaultfd, any),
        ("vmsplice", libc::SYS_vmsplice, any),
    ];
    all.extend(nothing.map(|(name, number, arguments)| (name, number, arguments, REFUSED, Killed)));
    all
}

/// Makes a system call; returns 0 or its error.
fn make(&(_, number, [a, b, c, d, e, f], ..): &Call) -> i32 {
    // SAFETY: the arguments of the table make the kernel access no memory but the two constants in it.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(-1),
        _ => 0,
    }
}

/// The process of its own: makes the calls that its task names.
#[test]
#[ignore = "runs in a process that another test starts"]
fn makes_calls() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (filter, wanted) = task.split_once(' ').unwrap();
    let calls = calls();
    match filter {
        "none" => {}
        "vm" => install_vm_filter().unwrap(),
        _ => install_setup_filter(false).unwrap(),
    }
    if filter == "nf" {
        install_nf_filter(false).unwrap();
    }
    for (n, call) in calls.iter().enumerate() {
        let is_wanted = match wanted {
            "all" => filter != "nf" || call.4 != Killed,
            one => one.parse() == Ok(n),
        };
        if is_wanted {
            println!("result {n} {}", make(call));
        }
    }
}

fn run(filter: &str, wanted: &str) -> Output {
    let mut own = Command::new(std::env::current_exe().unwrap());
    own.args(["--exact", "confinement::seccomp::tests::makes_calls", "--ignored", "--nocapture", "--test-threads=1"]);
    own.env(TASK, format!("{filter} {wanted}")).output().unwrap()
}

/// Returns the error of each call under a filter, 0 for success.
fn results(filter: &str) -> Vec<Option<i32>> {
    let done = run(filter, "all");
    assert!(done.status.success(), "{filter}: {done:?}");
    let mut errors = vec![None; calls().len()];
    for line in String::from_utf8(done.stdout).unwrap().lines() {
        // the harness prints before the first result
        let Some((_, result)) = line.split_once("result ") else { continue };
        let (n, error) = result.split_once(' ').unwrap();
        if let (Ok(n), Ok(error)) = (n.parse::<usize>(), error.parse()) {
            errors[n] = Some(error);
        }
    }
    errors
}

#[test]
fn the_filter_of_vms_denies_what_qemu_does_not_need() {
    let vm = results("vm");
    for ((name, number, arguments, ..), error) in calls().iter().zip(vm) {
        let is_other_socket = *number == libc::SYS_socket && arguments[0] != libc::AF_UNIX as u64;
        if DENIED_TO_QEMU.contains(number) || is_other_socket {
            assert_eq!(error, Some(libc::EPERM), "{name}");
        } else if rustix::process::geteuid().is_root() {
            assert_ne!(error, Some(libc::EPERM), "{name}");
        }
    }
}

#[test]
fn filters_allow_only_the_listed_calls() {
    let (calls, none, setup, nf) = (calls(), results("none"), results("setup"), results("nf"));
    assert!(calls.len() > 120, "{}", calls.len());
    let has_run = |error: Option<i32>| error.is_some_and(|e| ![libc::EPERM, libc::EACCES].contains(&e));
    for (n, (name, _, _, in_setup, in_nf)) in calls.iter().enumerate() {
        // without a filter the kernel executes each of them
        if rustix::process::geteuid().is_root() {
            assert!(has_run(none[n]), "{name} without a filter: {:?}", none[n]);
        }
        for (filter, expected, error) in [("setup", in_setup, setup[n]), ("nf", in_nf, nf[n])] {
            match expected {
                Runs => assert!(has_run(error), "{name} under the {filter} filter: {error:?}"),
                Fails(expected) => assert_eq!(error, Some(*expected), "{name} under the {filter} filter"),
                Killed => {
                    let done = run(filter, &n.to_string());
                    assert_eq!(done.status.signal(), Some(libc::SIGSYS), "{name} under the {filter} filter: {done:?}");
                }
            }
        }
    }
}
