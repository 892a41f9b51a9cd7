//! Zeroed memory that is reserved at once and backed slice by slice, in huge pages where there are any.
//!
//! The whole reservation reads as zeros from the start and costs address space only. Before the first write to a slice of
//! 2 MiB the writer has it backed; the address never moves, so a reader needs one base and no check.

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Bytes of a slice: one huge page.
const SLICE: usize = 2 << 20;
const WORD: usize = size_of::<AtomicU32>();

/// The best pages to try for a table; what cannot be had falls to the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pages {
    /// 4 KiB pages.
    Ordinary,
    /// Huge pages that the kernel finds by itself (`madvise(MADV_HUGEPAGE)`).
    Transparent,
    /// Huge pages that were set aside (`/proc/sys/vm/nr_hugepages`), as many as are free.
    Hugetlb,
}

/// What backs a table now, in bytes, as the kernel says (`/proc/self/smaps`).
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
    /// All of it.
    #[must_use]
    pub fn total(&self) -> usize {
        self.hugetlb + self.transparent + self.ordinary
    }
}

pub(crate) struct Memory {
    /// Start of the words: a slice's boundary, with at least a page of the reservation before it.
    base: NonNull<AtomicU32>,
    words: usize,
    reserved: *mut c_void,
    reserved_bytes: usize,
    best: Pages,
    backed: Box<[AtomicBool]>,
}

// SAFETY: the words are atomics, and mapping a slice for writing is kept to once per slice by `backed`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Reserves `words` words of 4 bytes, all zero.
    ///
    /// # Errors
    /// The kernel's, when there is no address space left (`ulimit -v`).
    pub(crate) fn reserve(words: usize, best: Pages) -> Result<Self, Errno> {
        let slices = words.div_ceil(SLICE / WORD);
        // Room to align, and a margin at both ends so that no foreign mapping joins ours and is counted as ours.
        let reserved_bytes = (slices + 2).checked_mul(SLICE).ok_or(Errno::NOMEM)?;
        // SAFETY: a new mapping where the kernel likes touches no memory of anybody.
        let reserved = unsafe { mmap_anonymous(null_mut(), reserved_bytes, ProtFlags::READ, MapFlags::PRIVATE)? };
        let to_boundary = SLICE - reserved.addr() % SLICE;
        // SAFETY: at most SLICE further in, within the reservation of (slices + 2) * SLICE.
        let base = unsafe { reserved.byte_add(to_boundary) };
        if best >= Pages::Transparent {
            // The zeros too: one page fault of a reader for 2 MiB of them. Refused, it costs only that.
            // SAFETY: within the reservation; it changes nothing that can be read.
            let _ = unsafe { madvise(base, slices * SLICE, Advice::LinuxHugepage) };
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let backed = (0..slices).map(|_| AtomicBool::new(false)).collect();
        Ok(Memory { base, words, reserved, reserved_bytes, best, backed })
    }

    /// All words.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU32] {
        // SAFETY: the words are mapped, at least for reading, as long as self lives; zeros are valid; nobody has them as
        // anything but atomics. Words that are not backed are only loaded.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    /// Makes `words` writable. What was backed already stays as it is. Meant for the one writer.
    ///
    /// # Errors
    /// The kernel's, when it has no memory; slices before the one that failed are then backed.
    pub(crate) fn back(&self, words: Range<usize>) -> Result<(), Errno> {
        assert!(words.end <= self.words, "within the reservation");
        for slice in words.start * WORD / SLICE..(words.end * WORD).div_ceil(SLICE) {
            if !self.backed[slice].load(Ordering::Relaxed) {
                self.back_slice(slice)?;
                self.backed[slice].store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    #[cold]
    fn back_slice(&self, slice: usize) -> Result<(), Errno> {
        // SAFETY: back() checked that the slice is one of the reservation's.
        let at = unsafe { self.base.as_ptr().byte_add(slice * SLICE) }.cast();
        // Not MAP_NORESERVE: the kernel must say no here and not by SIGBUS at the first touch.
        let fresh = |more: MapFlags| {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED | more;
            // SAFETY: within our reservation; the old mapping there was never written, so it and the new one read as
            // zeros alike, also for who reads meanwhile.
            unsafe { mmap_anonymous(at, SLICE, ProtFlags::READ | ProtFlags::WRITE, flags) }
        };
        // SAFETY: our own slice, just mapped; neither advice changes what it holds.
        let advise = |advice| unsafe { madvise(at, SLICE, advice) };
        if self.best == Pages::Hugetlb && fresh(MapFlags::HUGETLB | MapFlags::HUGE_2MB).is_ok() {
            match advise(Advice::LinuxPopulateWrite) {
                // Linux before 5.14 does not know the advice: the page is promised all the same.
                Ok(()) | Err(Errno::INVAL) => return Ok(()),
                // A cgroup's limit, say.
                Err(_) => {}
            }
        }
        fresh(MapFlags::empty())?;
        if self.best >= Pages::Transparent && advise(Advice::LinuxHugepage).is_ok() {
            // Now, in one piece, rather than when a packet waits for it.
            if advise(Advice::LinuxPopulateWrite) == Err(Errno::NOMEM) {
                return Err(Errno::NOMEM);
            }
        }
        Ok(())
    }

    /// What backs the words now. Zeros where the kernel does not say.
    pub(crate) fn backing(&self) -> Backing {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let base = self.base.as_ptr().addr();
        backing(&smaps, base..base + self.backed.len() * SLICE)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody can hold the words any more. An error would leave it mapped: harmless.
        let _ = unsafe { munmap(self.reserved, self.reserved_bytes) };
    }
}

/// Adds up the mappings of `smaps` that begin within `range`.
fn backing(smaps: &str, range: Range<usize>) -> Backing {
    let mut sum = Backing::default();
    let mut ours = false;
    for line in smaps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(name), value) = (fields.next(), fields.next()) else { continue };
        if let Some((start, _)) = name.split_once('-')
            && let Ok(start) = usize::from_str_radix(start, 16)
        {
            ours = range.contains(&start);
            continue;
        }
        let bytes = || value.and_then(|kib| kib.parse::<usize>().ok()).unwrap_or(0) << 10;
        match name {
            "Anonymous:" if ours => sum.ordinary += bytes(),
            "AnonHugePages:" if ours => sum.transparent += bytes(),
            "Private_Hugetlb:" if ours => sum.hugetlb += bytes(),
            _ => {}
        }
    }
    // The kernel counts transparent huge pages as anonymous memory too.
    sum.ordinary = sum.ordinary.saturating_sub(sum.transparent);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_zeros_and_keeps_what_is_written() {
        for best in [Pages::Ordinary, Pages::Transparent, Pages::Hugetlb] {
            let memory = Memory::reserve((SLICE / WORD) * 3 + 7, best).unwrap();
            let words = memory.words();
            assert_eq!(words.len(), (SLICE / WORD) * 3 + 7);
            assert_eq!(words[SLICE / WORD].load(Ordering::Relaxed), 0);
            assert_eq!(memory.backing().total(), 0, "{best:?}: reading takes no memory");
            memory.back(SLICE / WORD..SLICE / WORD + 1).unwrap();
            words[SLICE / WORD].store(7, Ordering::Relaxed);
            memory.back(0..words.len()).unwrap();
            words[words.len() - 1].store(9, Ordering::Relaxed);
            assert_eq!((words[SLICE / WORD].load(Ordering::Relaxed), words[0].load(Ordering::Relaxed)), (7, 0));
            let got = memory.backing();
            assert!(got.total() >= 2 * 4096, "{best:?}: {got:?}");
            if best != Pages::Hugetlb {
                assert_eq!(got.hugetlb, 0);
            }
            if best == Pages::Ordinary {
                assert_eq!(got.transparent, 0);
            }
        }
    }

    #[test]
    fn more_than_the_address_space_is_refused() {
        assert!(Memory::reserve(1 << 58, Pages::Ordinary).is_err());
        assert!(Memory::reserve(usize::MAX, Pages::Ordinary).is_err());
    }

    #[test]
    fn counts_only_its_own_mappings() {
        let smaps = "\
10000-30000 rw-p 00000000 00:00 0
Anonymous:            40 kB
AnonHugePages:        32 kB
30000-40000 rw-p 00000000 00:00 0
Anonymous:             4 kB
Private_Hugetlb:    2048 kB
VmFlags: rd wr
50000-60000 rw-p 00000000 00:00 0 [heap]
Anonymous:           400 kB
";
        let got = backing(smaps, 0x10000..0x50000);
        assert_eq!(got, Backing { hugetlb: 2 << 20, transparent: 32 << 10, ordinary: 12 << 10 });
    }
}
