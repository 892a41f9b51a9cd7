//! Who has the memory.

use crate::here::here;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that a thread allocates before they are booked.
const LOT: i64 = 1 << 16;

static COUNTING: AtomicBool = AtomicBool::new(false);

thread_local! {
    // no destructor and no lazy start: the allocator may use it at any time
    static UNBOOKED: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, which books what a thread allocates to what it is doing, in lots of 64 KiB. An allocation costs
/// an addition more.
///
/// ```
/// #[global_allocator]
/// static MEMORY: crash::Counting = crash::Counting;
/// # assert!(crash::is_counting());
/// ```
#[derive(Debug)]
pub struct Counting;

/// Whether [`Counting`] is the allocator of this program.
pub fn is_counting() -> bool {
    drop(std::hint::black_box(Box::new(0u8)));
    COUNTING.load(Ordering::Relaxed)
}

#[inline]
fn count(bytes: i64) {
    // a thread whose locals are gone has nothing booked
    let _ = UNBOOKED.try_with(|unbooked| {
        let sum = unbooked.get().saturating_add(bytes);
        unbooked.set(sum);
        if sum.unsigned_abs() >= LOT as u64 {
            book(unbooked);
        }
    });
}

#[cold]
fn book(unbooked: &Cell<i64>) {
    let bytes = unbooked.take();
    here(|entered| entered.doing().book(bytes));
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !COUNTING.load(Ordering::Relaxed) {
            COUNTING.store(true, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is the same.
        let at = unsafe { System.alloc(layout) };
        if !at.is_null() {
            count(layout.size() as i64);
        }
        at
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        let at = unsafe { System.alloc_zeroed(layout) };
        if !at.is_null() {
            count(layout.size() as i64);
        }
        at
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(at, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        let at = unsafe { System.realloc(at, layout, new) };
        if !at.is_null() {
            count(new as i64 - layout.size() as i64);
        }
        at
    }
}

/// Bytes of memory that the process has for itself alone, without what it shares and without huge pages; `None` where
/// `/proc` does not tell.
pub fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut words = text.split_ascii_whitespace().skip(1).map(|word| word.parse::<u64>().ok());
    let (resident, shared) = (words.next()??, words.next()??);
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    Some(resident.saturating_sub(shared) * page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Doing, within};
    use std::sync::Arc;
    use std::sync::atomic::AtomicI64;

    #[global_allocator]
    static MEMORY: Counting = Counting;

    #[derive(Default)]
    struct Booked(AtomicI64);

    impl Doing for Booked {
        fn now(&self) -> Option<&str> {
            None
        }
        fn book(&self, bytes: i64) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_allocated_is_booked_to_who_did_it_and_what_is_given_back_too() {
        assert!(is_counting());
        let (one, other) = (Arc::new(Booked::default()), Arc::new(Booked::default()));
        let about = |booked: &Booked, bytes: i64| {
            let is = booked.0.load(Ordering::Relaxed);
            assert!((is - bytes).abs() < 2 * LOT, "{is} for {bytes}");
        };
        let small: Vec<Box<[u8; 100]>> = within(one.clone(), || (0..100_000).map(|_| Box::new([0; 100])).collect());
        about(&one, 100_000 * (100 + size_of::<usize>() as i64));
        let mut grown = vec![1u8];
        within(other.clone(), || {
            grown.resize(10_000_000, 2);
            about(&other, 10_000_000);
            grown = vec![];
            about(&other, 0);
            // what is refused is nobody's
            assert!(std::hint::black_box(Vec::<u8>::new()).try_reserve_exact(1 << 62).is_err());
            about(&other, 0);
            drop(small);
        });
        about(&other, -100_000 * (100 + size_of::<usize>() as i64));
        about(&one, 100_000 * (100 + size_of::<usize>() as i64));
        assert!(grown.is_empty());
    }

    #[test]
    fn resident_memory_grows_with_what_is_written() {
        let before = resident().unwrap();
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(resident().unwrap() >= before + (60 << 20));
        drop(bytes);
    }
}
