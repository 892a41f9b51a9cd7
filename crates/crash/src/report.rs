//! The crash report: the line that a dying process writes to standard error.

use crate::EXIT_STATUS;
use crate::activity::with_current;
use crate::sigbus;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Signals that a thread raises by its own fault.
const FATAL: [libc::c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGILL, libc::SIGFPE];

/// The signal actions that were installed before, in the order of `FATAL`.
static PREVIOUS_ACTIONS: [AtomicPtr<libc::sigaction>; FATAL.len()] =
    [const { AtomicPtr::new(ptr::null_mut()) }; FATAL.len()];

/// Longest time to wait until standard error accepts the report, in milliseconds.
const WRITE_TIMEOUT_MS: libc::c_int = 1000;
/// Thread id of the thread that writes the report, or 0.
static REPORTING_THREAD: AtomicI32 = AtomicI32::new(0);

/// Installs the signal and exit handlers that write the crash report.
///
/// A report is written when a thread with an activity ([`with_activity`](crate::with_activity)) ends the process: by a
/// fatal signal of its own (stack overflow, `abort`, a panic during unwinding, an invalid memory access) or by `exit`.
/// Other threads are not affected. If core dumps are enabled (`ulimit -c`), the previous signal action runs afterwards.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (&signal, previous) in FATAL.iter().zip(&PREVIOUS_ACTIONS) {
            // SAFETY: both are plain data. The handler is async-signal-safe: it reads a thread-local without a
            // destructor, loads atomics, and writes to a descriptor. SA_ONSTACK: an overflowed stack cannot be used.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                let old = Box::into_raw(Box::new(std::mem::zeroed::<libc::sigaction>()));
                previous.store(old, Ordering::Release);
                libc::sigaction(signal, &raw const action, old);
            }
        }
        // SAFETY: the function is `extern "C"` and static; it may call _exit.
        unsafe { libc::atexit(on_exit) };
    });
}

extern "C" fn on_exit() {
    with_current(|current| {
        if let Some(who) = current.activity().description() {
            write_report(who, b"called exit");
            // SAFETY: ends the process.
            unsafe { libc::_exit(EXIT_STATUS) }
        }
    });
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t; si_addr is used only for faults, which have one.
    if sigbus::replace_lost_page(signal, unsafe { (*info).si_code }, unsafe { (*info).si_addr() }.addr()) {
        return;
    }
    let reported = with_current(|current| {
        // SAFETY: both calls only return ids.
        let (thread, process) = unsafe { (libc::gettid(), libc::getpid()) };
        // SAFETY: the kernel passes a valid siginfo_t. si_addr is used for faults raised by the kernel, and si_pid for
        // signals sent to a thread; both are set then.
        let (own, at) = unsafe {
            let own = (*info).si_code > 0 || ((*info).si_code == libc::SI_TKILL && (*info).si_pid() == process);
            (own, (*info).si_addr().addr())
        };
        let who = current.activity().description().filter(|_| own)?;
        match REPORTING_THREAD.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => write_report(who, cause(signal, current.stack_guard.contains(&at))),
            // the abort of Rust's own handler, after the fault itself was reported
            Err(first) if first == thread => return None,
            // the reporting thread ends the process
            Err(_) => loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            },
        }
        Some(())
    });
    if reported.flatten().is_some() && !core_dumps_enabled() {
        // SAFETY: ends the process.
        unsafe { libc::_exit(EXIT_STATUS) }
    }
    run_previous_action(signal, info, context);
}

fn cause(signal: libc::c_int, stack_overflow: bool) -> &'static [u8] {
    match signal {
        libc::SIGSEGV | libc::SIGBUS if stack_overflow => b"overflowed its stack",
        libc::SIGSEGV | libc::SIGBUS => b"accessed invalid memory (in unsafe code that it uses)",
        libc::SIGABRT => b"aborted the process (a panic during unwinding, a failed allocation, or a call of abort)",
        libc::SIGILL => b"executed an illegal instruction",
        _ => b"raised an arithmetic exception",
    }
}

/// Writes the report as one line.
fn write_report(who: &str, cause: &[u8]) {
    const PARTS: usize = 5;
    let parts: [&[u8]; PARTS] = [
        b"error: ",
        who.as_bytes(),
        b" ",
        cause,
        b": the whole process has ended\n  help: run an NF that you do not trust in a sandbox with process isolation\n",
    ];
    let line = parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // a pipe that is not read must not prevent the end of the process
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: the struct outlives the call.
    if unsafe { libc::poll(&raw mut stderr, 1, WRITE_TIMEOUT_MS) } != 1 {
        return;
    }
    // SAFETY: every part outlives the call, which only reads; a single call keeps the line in one piece.
    let _ = unsafe { libc::writev(libc::STDERR_FILENO, line.as_ptr(), PARTS as libc::c_int) };
}

fn core_dumps_enabled() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the struct.
    unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) == 0 && limit.rlim_cur != 0 }
}

/// Runs the action that was installed before ours.
fn run_previous_action(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let old = FATAL.iter().position(|&s| s == signal).map(|n| PREVIOUS_ACTIONS[n].load(Ordering::Acquire));
    // SAFETY: null, or the action that `install` stored for this signal; its flags tell the signature of the handler.
    // With the default action restored, returning raises the fault again; otherwise `raise` does.
    unsafe {
        let Some(old) = old.and_then(|old| old.as_ref()) else { return };
        match old.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
            handler if old.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
