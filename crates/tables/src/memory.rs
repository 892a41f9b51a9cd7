//! Zeroed memory that is reserved at once and backed slice by slice, in huge pages where there are any: of 1 GiB where as much
//! is asked for at once, otherwise of 2 MiB.
//!
//! The whole reservation reads as zeros from the start and costs address space only. Before the first write to words the
//! writer has their slice of 2 MiB backed, or, where few words of a slice are written, these words by ordinary pages.

#[cfg(miri)]
mod heap;
#[cfg(not(miri))]
mod mapping;

#[cfg(miri)]
pub(crate) use heap::Memory;
#[cfg(not(miri))]
pub(crate) use mapping::Memory;

use rustix::io::Errno;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// Prefetches the first cache line of a value.
#[inline(always)]
pub fn prefetch_value<T>(value: &T) {
    prefetch(core::ptr::from_ref(value).cast());
}

/// Prefetches the cache line at an address.
#[inline(always)]
pub(crate) fn prefetch(at: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect but on the cache.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The best pages to try for a table; what cannot be had falls to the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pages {
    /// 4 KiB pages.
    Ordinary,
    /// Huge pages that the kernel finds by itself (`madvise(MADV_HUGEPAGE)`).
    Transparent,
    /// Huge pages that were set aside, as many as are free (`/proc/sys/vm/nr_hugepages`, and before those of 2 MiB those of 1 GiB:
    /// `/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages`). Needs Linux 5.16.
    Hugetlb,
}

/// Kinds of pages that back a table, in bytes (`/proc/self/smaps`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Backing {
    /// In huge pages that were set aside.
    pub hugetlb: usize,
    /// In transparent huge pages.
    pub transparent: usize,
    /// In 4 KiB pages.
    pub ordinary: usize,
}

impl Backing {
    /// Returns all of it.
    #[must_use]
    pub fn total(&self) -> usize {
        self.hugetlb + self.transparent + self.ordinary
    }
}

/// Types of words.
///
/// # Safety
/// An atomic integer: zeros are valid, loads of it are all right on pages that cannot be written.
pub unsafe trait Zeroed: Sync {}

// SAFETY: an atomic integer.
unsafe impl Zeroed for AtomicU16 {}
// SAFETY: an atomic integer.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: an atomic integer.
unsafe impl Zeroed for AtomicU64 {}

/// Checks that the system can allocate `bytes`. Memory is mapped in slices, none of which the kernel would refuse before it
/// is out of memory; so all of it is requested at once first.
pub(crate) fn ask_for(bytes: usize) -> Result<(), Errno> {
    let mut all = Vec::<u8>::new();
    all.try_reserve_exact(bytes).map_err(|_| Errno::NOMEM)?;
    drop(core::hint::black_box(all));
    Ok(())
}
