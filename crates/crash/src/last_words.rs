//! What is said when the process dies.

use crate::FAILED;
use crate::here::here;
use crate::shrunk;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Signals that a fault of a thread's own raises.
const FATAL: [libc::c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGILL, libc::SIGFPE];

/// What was to happen on each of them before.
static BEFORE: [AtomicPtr<libc::sigaction>; FATAL.len()] = [const { AtomicPtr::new(ptr::null_mut()) }; FATAL.len()];

/// The thread that has told whose fault it is, or 0.
static TOLD: AtomicI32 = AtomicI32::new(0);

/// From now on, whoever brings the process down is named: by a signal of its own making (an overflowing stack, `abort`, a
/// panic while another unwinds, wild memory access) or by `exit`. Threads that have not said what they do
/// ([`within`](crate::within)) die as before. Where core dumps are on (`ulimit -c`), a signal takes its course afterwards.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (&signal, before) in FATAL.iter().zip(&BEFORE) {
            // SAFETY: both are plain data. The handler does only what is safe in one: it reads a thread-local without a
            // destructor, loads atomics, and writes to a descriptor. SA_ONSTACK: an overflowing thread has no other stack.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                let old = Box::into_raw(Box::new(std::mem::zeroed::<libc::sigaction>()));
                before.store(old, Ordering::Release);
                libc::sigaction(signal, &raw const action, old);
            }
        }
        // SAFETY: the function lives as long as the program, and may call _exit.
        unsafe { libc::atexit(on_exit) };
    });
}

extern "C" fn on_exit() {
    here(|entered| {
        if let Some(who) = entered.doing().now() {
            say(who, b"called exit");
            // SAFETY: ends the process; nothing of it is needed any more.
            unsafe { libc::_exit(FAILED) }
        }
    });
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a siginfo_t, of a fault with its address.
    if shrunk::mend(signal, unsafe { (*info).si_code }, unsafe { (*info).si_addr() }.addr()) {
        return;
    }
    let told = here(|entered| {
        // SAFETY: asks for numbers.
        let (thread, process) = unsafe { (libc::gettid(), libc::getpid()) };
        // SAFETY: the kernel hands over a siginfo_t. Its address is looked at where the kernel has seen a fault, which has
        // one, and its sender where the signal was sent to a thread.
        let (own, at) = unsafe {
            let own = (*info).si_code > 0 || ((*info).si_code == libc::SI_TKILL && (*info).si_pid() == process);
            (own, (*info).si_addr().addr())
        };
        let who = entered.doing().now().filter(|_| own)?;
        match TOLD.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => say(who, what(signal, entered.overflow.contains(&at))),
            // the abort of Rust's own handler has been told by the first fault
            Err(first) if first == thread => return None,
            // the other thread ends the process, when it has told
            Err(_) => loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            },
        }
        Some(())
    });
    if told.flatten().is_some() && !dumps_core() {
        // SAFETY: ends the process; nothing of it is needed any more.
        unsafe { libc::_exit(FAILED) }
    }
    before(signal, info, context);
}

fn what(signal: libc::c_int, below_the_stack: bool) -> &'static [u8] {
    match signal {
        libc::SIGSEGV | libc::SIGBUS if below_the_stack => b"overflowed its stack",
        libc::SIGSEGV | libc::SIGBUS => b"reached for memory that is not there (in unsafe code that it uses)",
        libc::SIGABRT => {
            b"aborted the process (a panic while another unwinds, an allocation that is refused, or abort)"
        }
        libc::SIGILL => b"ran into an instruction that the processor does not have",
        _ => b"made an arithmetic fault",
    }
}

/// Writes the last line.
fn say(who: &str, what: &[u8]) {
    const PARTS: usize = 5;
    let parts: [&[u8]; PARTS] = [
        b"error: ",
        who.as_bytes(),
        b" ",
        what,
        b": the process has ended, and everything in it\n  help: put an NF that is not trusted with that behind a process wall\n",
    ];
    let line = parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: every part outlives the call, which only reads them; one call keeps the line in one piece.
    let _ = unsafe { libc::writev(libc::STDERR_FILENO, line.as_ptr(), PARTS as libc::c_int) };
}

fn dumps_core() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the struct.
    unsafe { libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit) == 0 && limit.rlim_cur != 0 }
}

/// Lets happen what was to happen before.
fn before(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let old = FATAL.iter().position(|&s| s == signal).map(|n| BEFORE[n].load(Ordering::Acquire));
    // SAFETY: null, or the action that `install` stored for this signal, whose handler has one of two shapes, as its flags
    // say. With the default action back in place, returning raises the fault again, or raise does.
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
