//! What this thread is doing.

use crate::Doing;
use std::cell::Cell;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

/// Bytes below a stack in which a touch means that it has overflowed: its guard, and a frame that skips it.
const BELOW: usize = 1 << 20;

thread_local! {
    // no destructor and no lazy start, so a signal handler and the allocator may read it
    static HERE: Cell<*const Entered> = const { Cell::new(ptr::null()) };
}

pub(crate) struct Entered {
    doing: Arc<dyn Doing>,
    /// Where a touch means that this thread's stack has overflowed; empty where that is not known.
    pub(crate) overflow: Range<usize>,
}

impl Entered {
    pub(crate) fn doing(&self) -> &dyn Doing {
        &*self.doing
    }
}

/// Puts back what was there before, also when a panic goes through.
struct Before(*const Entered);

impl Drop for Before {
    fn drop(&mut self) {
        HERE.set(self.0);
    }
}

/// Runs `f`, during which this thread does what `doing` says.
pub fn within<T>(doing: Arc<dyn Doing>, f: impl FnOnce() -> T) -> T {
    let entered = Entered { doing, overflow: guard() };
    // dropped before `entered`, so that the cell never leads to what is gone
    let _before = Before(HERE.replace(&raw const entered));
    f()
}

/// What this thread has said that it is doing.
#[inline]
pub(crate) fn here<T>(ask: impl FnOnce(&Entered) -> T) -> Option<T> {
    // a thread whose locals are gone does nothing any more
    let entered = HERE.try_with(Cell::get).ok()?;
    // SAFETY: null, or a local of `within` on this thread, which takes it out of the cell before it ends.
    unsafe { entered.as_ref() }.map(ask)
}

/// Where a touch means that this thread's stack has overflowed.
fn guard() -> Range<usize> {
    // SAFETY: a pthread_attr_t is plain data that the call fills, and it is destroyed once.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attr) != 0 {
            return 0..0;
        }
        let (mut lowest, mut size) = (ptr::null_mut(), 0);
        let known = libc::pthread_attr_getstack(&raw const attr, &raw mut lowest, &raw mut size) == 0;
        libc::pthread_attr_destroy(&raw mut attr);
        // the C library counts the guard in, or not: a page above is still no place for a wild pointer
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        if known { lowest.addr().saturating_sub(BELOW)..lowest.addr() + page } else { 0..0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    struct Named(&'static str, AtomicI64);

    impl Doing for Named {
        fn now(&self) -> Option<&str> {
            Some(self.0)
        }
        fn book(&self, bytes: i64) {
            self.1.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_innermost_counts_and_other_threads_do_not() {
        let name = || here(|e| e.doing().now().map(str::to_owned)).flatten();
        assert_eq!(name(), None);
        let named = |name| Arc::new(Named(name, AtomicI64::new(0)));
        within(named("outer"), || {
            within(named("inner"), || {
                assert_eq!(name().as_deref(), Some("inner"));
                std::thread::scope(|s| s.spawn(move || assert_eq!(name(), None)).join().unwrap());
            });
            assert_eq!(name().as_deref(), Some("outer"));
            let panics = || within(named("third"), || panic!("on purpose"));
            assert!(std::panic::catch_unwind(panics).is_err());
            assert_eq!(name().as_deref(), Some("outer"));
        });
        assert_eq!(name(), None);
    }

    #[test]
    fn the_guard_lies_below_this_thread_s_stack() {
        let local = 0u8;
        let guard = guard();
        assert!(!guard.is_empty() && !guard.contains(&(&raw const local).addr()));
        assert!(guard.end < (&raw const local).addr());
    }
}
