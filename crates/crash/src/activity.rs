//! The activity that each thread has declared.

use crate::Activity;
use std::cell::Cell;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

/// Bytes below a stack in which a fault is a stack overflow: the guard page, and frames large enough to skip it.
const STACK_GUARD_REACH: usize = 1 << 20;

thread_local! {
    // const-initialised and without a destructor: signal handlers and the allocator read it
    static CURRENT: Cell<*const CurrentActivity> = const { Cell::new(ptr::null()) };
}

pub(crate) struct CurrentActivity {
    activity: Arc<dyn Activity>,
    /// Addresses at which a fault means that this thread's stack has overflowed; empty if unknown.
    pub(crate) stack_guard: Range<usize>,
}

impl CurrentActivity {
    pub(crate) fn activity(&self) -> &dyn Activity {
        &*self.activity
    }
}

/// Restores the previous activity when dropped, also during unwinding.
struct RestorePrevious(*const CurrentActivity);

impl Drop for RestorePrevious {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Runs `f` with `activity` as the activity of this thread.
pub fn with_activity<T>(activity: Arc<dyn Activity>, f: impl FnOnce() -> T) -> T {
    let current = CurrentActivity { activity, stack_guard: stack_guard_range() };
    // dropped before `current`, so that the cell never dangles
    let _restore = RestorePrevious(CURRENT.replace(&raw const current));
    f()
}

/// Calls `f` with the current activity of this thread, if it has one.
#[inline]
pub(crate) fn with_current<T>(f: impl FnOnce(&CurrentActivity) -> T) -> Option<T> {
    // inaccessible once the thread's locals have been destroyed
    let current = CURRENT.try_with(Cell::get).ok()?;
    // SAFETY: null, or a local of `with_activity` on this thread, which resets the cell before the local is dropped.
    unsafe { current.as_ref() }.map(f)
}

/// Returns the addresses at which a fault means that this thread's stack has overflowed.
fn stack_guard_range() -> Range<usize> {
    // SAFETY: a pthread_attr_t is plain data that the call initialises, and it is destroyed once.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attr) != 0 {
            return 0..0;
        }
        let (mut lowest, mut size) = (ptr::null_mut(), 0);
        let known = libc::pthread_attr_getstack(&raw const attr, &raw mut lowest, &raw mut size) == 0;
        libc::pthread_attr_destroy(&raw mut attr);
        // the C library may or may not include the guard page in the stack; one page above is no valid target either
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        if known { lowest.addr().saturating_sub(STACK_GUARD_REACH)..lowest.addr() + page } else { 0..0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    struct Named(&'static str, AtomicI64);

    // SAFETY: a field, and an atomic addition.
    unsafe impl Activity for Named {
        fn description(&self) -> Option<&str> {
            Some(self.0)
        }
        fn record_allocation(&self, bytes: i64) {
            self.1.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn innermost_activity_of_the_own_thread_is_reported() {
        let name = || with_current(|c| c.activity().description().map(str::to_owned)).flatten();
        assert_eq!(name(), None);
        let named = |name| Arc::new(Named(name, AtomicI64::new(0)));
        with_activity(named("outer"), || {
            with_activity(named("inner"), || {
                assert_eq!(name().as_deref(), Some("inner"));
                std::thread::scope(|s| s.spawn(move || assert_eq!(name(), None)).join().unwrap());
            });
            assert_eq!(name().as_deref(), Some("outer"));
            let panics = || with_activity(named("third"), || panic!("on purpose"));
            assert!(std::panic::catch_unwind(panics).is_err());
            assert_eq!(name().as_deref(), Some("outer"));
        });
        assert_eq!(name(), None);
    }

    #[test]
    fn stack_guard_lies_below_the_stack() {
        let local = 0u8;
        let guard = stack_guard_range();
        assert!(!guard.is_empty() && !guard.contains(&(&raw const local).addr()));
        assert!(guard.end < (&raw const local).addr());
    }
}
