//! An allocator that attributes memory to the activity that allocated it.

use crate::activity::with_current;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that a thread allocates or frees before they are recorded.
const RECORD_THRESHOLD: i64 = 1 << 16;

static IN_USE: AtomicBool = AtomicBool::new(false);

thread_local! {
    // const-initialised and without a destructor: the allocator may run at any time
    static UNRECORDED: Cell<i64> = const { Cell::new(0) };
}

/// The system allocator, recording the bytes that a thread allocates with its current activity, in steps of 64 KiB.
/// The cost is one addition per allocation.
///
/// ```
/// #[global_allocator]
/// static MEMORY: crash::CountingAllocator = crash::CountingAllocator;
/// # assert!(crash::is_counting());
/// ```
#[derive(Debug)]
pub struct CountingAllocator;

/// Returns true if [`CountingAllocator`] is the global allocator of this program.
pub fn is_counting() -> bool {
    drop(std::hint::black_box(Box::new(0u8)));
    IN_USE.load(Ordering::Relaxed)
}

#[inline]
fn count(bytes: i64) {
    // inaccessible once the thread's locals have been destroyed
    let _ = UNRECORDED.try_with(|unrecorded| {
        let sum = unrecorded.get().saturating_add(bytes);
        unrecorded.set(sum);
        if sum.unsigned_abs() >= RECORD_THRESHOLD as u64 {
            record(unrecorded);
        }
    });
}

#[cold]
fn record(unrecorded: &Cell<i64>) {
    let bytes = unrecorded.take();
    with_current(|current| current.activity().record_allocation(bytes));
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !IN_USE.load(Ordering::Relaxed) {
            IN_USE.store(true, Ordering::Relaxed);
        }
        // SAFETY: same contract as the caller's.
        let at = unsafe { System.alloc(layout) };
        if !at.is_null() {
            count(layout.size() as i64);
        }
        at
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: same contract as the caller's.
        let at = unsafe { System.alloc_zeroed(layout) };
        if !at.is_null() {
            count(layout.size() as i64);
        }
        at
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: same contract as the caller's.
        unsafe { System.dealloc(at, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // SAFETY: same contract as the caller's.
        let at = unsafe { System.realloc(at, layout, new) };
        if !at.is_null() {
            count(new as i64 - layout.size() as i64);
        }
        at
    }
}

/// Returns the resident bytes that are private to the process, without shared memory and huge pages; `None` if `/proc`
/// cannot be read.
pub fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut words = text.split_ascii_whitespace().skip(1).map(|word| word.parse::<u64>().ok());
    let (resident, shared) = (words.next()??, words.next()??);
    // SAFETY: the call only returns a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    Some(resident.saturating_sub(shared) * page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, with_activity};
    use std::sync::Arc;
    use std::sync::atomic::AtomicI64;

    #[global_allocator]
    static MEMORY: CountingAllocator = CountingAllocator;

    #[derive(Default)]
    struct Recorded(AtomicI64);

    // SAFETY: a constant, and an atomic addition.
    unsafe impl Activity for Recorded {
        fn description(&self) -> Option<&str> {
            None
        }
        fn record_allocation(&self, bytes: i64) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn allocations_and_frees_are_recorded_with_the_current_activity() {
        assert!(is_counting());
        let (one, other) = (Arc::new(Recorded::default()), Arc::new(Recorded::default()));
        let about = |recorded: &Recorded, bytes: i64| {
            let is = recorded.0.load(Ordering::Relaxed);
            assert!((is - bytes).abs() < 2 * RECORD_THRESHOLD, "{is} for {bytes}");
        };
        let small: Vec<Box<[u8; 100]>> =
            with_activity(one.clone(), || (0..100_000).map(|_| Box::new([0; 100])).collect());
        about(&one, 100_000 * (100 + size_of::<usize>() as i64));
        let mut grown = vec![1u8];
        with_activity(other.clone(), || {
            grown.resize(10_000_000, 2);
            about(&other, 10_000_000);
            grown = vec![];
            about(&other, 0);
            // a failed allocation is not recorded
            assert!(std::hint::black_box(Vec::<u8>::new()).try_reserve_exact(1 << 62).is_err());
            about(&other, 0);
            drop(small);
        });
        about(&other, -100_000 * (100 + size_of::<usize>() as i64));
        about(&one, 100_000 * (100 + size_of::<usize>() as i64));
        assert!(grown.is_empty());
    }

    #[test]
    fn resident_memory_grows_when_pages_are_written() {
        let before = resident_bytes().unwrap();
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(resident_bytes().unwrap() >= before + (60 << 20));
        drop(bytes);
    }
}
