//! Memory that is reserved at once and mapped slice by slice.
//!
//! The address never moves, so a reader needs one base and no check. No reader ever finds
//! a slice unmapped: ordinary pages come by a change of protection, which does nothing when it is refused, and a huge page
//! that was set aside is had elsewhere first and then moved in, which leaves nothing to be refused. `MAP_FIXED` would not
//! do: the kernel unmaps what was there before it looks whether there is a page.

use super::{Backing, Pages, Zeroed};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use rustix::mm::{madvise, mmap_anonymous, mprotect, mremap_fixed, munmap};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of a slice: one huge page.
const SLICE: usize = 2 << 20;
/// Bytes of a giant page, which takes the place of so many slices.
const GIANT: usize = 1 << 30;
const SLICES: usize = GIANT / SLICE;
/// Bytes of an ordinary page, of which slices with few written words consist.
const PAGE: usize = 4096;
/// Pages of a slice that are to be written from which on it is one huge page: an eighth.
const DENSE: usize = SLICE / PAGE / 8;
/// Bits for the pages of a slice.
type PageSet = [AtomicU64; SLICE / PAGE / 64];

pub(crate) struct Memory<W> {
    /// Start of the words: a slice's boundary, with at least a page of the reservation before it.
    base: NonNull<W>,
    words: usize,
    reserved: *mut c_void,
    reserved_bytes: usize,
    best: Pages,
    /// Slices of which all words can be written.
    backed: Box<[AtomicBool]>,
    /// Pages that can be written, of the other slices.
    pages: Box<[PageSet]>,
    of: PhantomData<W>,
}

// SAFETY: the pointers are to a mapping that only Drop unmaps, and the words in it are atomics.
unsafe impl<W: Zeroed> Send for Memory<W> {}
// SAFETY: as above.
unsafe impl<W: Zeroed> Sync for Memory<W> {}

impl<W: Zeroed> Memory<W> {
    /// Words of a slice.
    const WORDS: usize = SLICE / size_of::<W>();
    /// Words of a page.
    const PAGE_WORDS: usize = PAGE / size_of::<W>();

    /// Reserves `words` words, all zero.
    ///
    /// # Errors
    /// The kernel's, when there is no address space left (`ulimit -v`).
    pub(crate) fn reserve(words: usize, best: Pages) -> Result<Self, Errno> {
        let slices = words.div_ceil(Self::WORDS);
        let align = if best == Pages::Hugetlb && slices >= SLICES { GIANT } else { SLICE };
        // Room to align, and a margin at both ends so that no foreign mapping joins ours and is counted as ours.
        let reserved_bytes =
            (slices + 1).checked_mul(SLICE).and_then(|all| all.checked_add(align)).ok_or(Errno::NOMEM)?;
        // SAFETY: a new mapping where the kernel likes touches no memory of anybody.
        let reserved = unsafe { mmap_anonymous(null_mut(), reserved_bytes, ProtFlags::READ, MapFlags::PRIVATE)? };
        let to_boundary = align - reserved.addr() % align;
        // SAFETY: at most `align` further in, within the reservation of that and (slices + 1) * SLICE.
        let base = unsafe { reserved.byte_add(to_boundary) };
        if best >= Pages::Transparent {
            // The zeros too: one page fault of a reader for 2 MiB of them. Refused, it costs only that.
            // SAFETY: within the reservation; it changes nothing that can be read.
            let _ = unsafe { madvise(base, slices * SLICE, Advice::LinuxHugepage) };
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let best = if best == Pages::Hugetlb && !moves_huge_pages() { Pages::Transparent } else { best };
        let backed = (0..slices).map(|_| AtomicBool::new(false)).collect();
        let pages = (0..slices).map(|_| PageSet::default()).collect();
        Ok(Memory { base, words, reserved, reserved_bytes, best, backed, pages, of: PhantomData })
    }

    /// Returns all words.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[W] {
        // SAFETY: the words are mapped, at least for reading, as long as self lives; zeros are valid; there is no reference as
        // anything but atomics. Words that are not backed are only loaded.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    /// Makes `words` writable. What was backed already stays as it is. For the one writer: of two at a time one could lose
    /// what it wrote.
    ///
    /// # Errors
    /// The kernel's, when it has no memory; slices before the one that failed are then backed.
    pub(crate) fn back(&self, words: Range<usize>) -> Result<(), Errno> {
        self.back_from(words, 1)
    }

    /// As [`back`](Self::back), for words that may be few and far between: a slice of which less than an eighth is to be
    /// written consists of ordinary pages, in the place of which a huge page comes later. Readers may look at it meanwhile.
    ///
    /// # Errors
    /// As for [`back`](Self::back).
    pub(crate) fn back_sparse(&self, words: Range<usize>) -> Result<(), Errno> {
        self.back_from(words, DENSE)
    }

    /// Makes words writable; slices as a whole from so many pages on.
    fn back_from(&self, words: Range<usize>, dense: usize) -> Result<(), Errno> {
        assert!(words.end <= self.words, "within the reservation");
        let (mut slice, end) = (words.start / Self::WORDS, words.end.div_ceil(Self::WORDS));
        let mut giants = self.best == Pages::Hugetlb;
        while slice < end {
            let whole = slice..slice + SLICES;
            giants &= whole.end <= end;
            let is_written = |slice| self.is_backed(slice) || self.written_pages(slice).next().is_some();
            if giants && slice.is_multiple_of(SLICES) && !whole.clone().any(is_written) {
                giants = self.back_giant(slice)?;
                if giants {
                    whole.clone().for_each(|slice| self.backed[slice].store(true, Ordering::Relaxed));
                    slice = whole.end;
                    continue;
                }
            }
            if !self.is_backed(slice) {
                let first = slice * Self::WORDS;
                let within = words.start.max(first) - first..words.end.min(first + Self::WORDS) - first;
                self.back_part(slice, within.start / Self::PAGE_WORDS..within.end.div_ceil(Self::PAGE_WORDS), dense)?;
            }
            slice += 1;
        }
        Ok(())
    }

    /// Makes pages of a slice writable that is not backed as a whole: all of it when `dense` are written.
    fn back_part(&self, slice: usize, pages: Range<usize>, dense: usize) -> Result<(), Errno> {
        let bit = |page: usize| (&self.pages[slice][page / 64], 1u64 << (page % 64));
        let is_new = |page: &usize| {
            let (word, bit) = bit(*page);
            word.load(Ordering::Relaxed) & bit == 0
        };
        let new = pages.clone().filter(is_new).count();
        if new == 0 {
            return Ok(());
        }
        let before = self.written_pages(slice).count();
        if self.best == Pages::Ordinary || before + new >= dense {
            match before {
                0 => self.back_slice(slice)?,
                _ => self.merge_pages(slice),
            }
            self.backed[slice].store(true, Ordering::Relaxed);
            return Ok(());
        }
        if before == 0 {
            self.back_pages(slice)?;
        }
        for (word, bit) in pages.map(bit) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the pages of a slice that can be written, while it is not backed as a whole.
    fn written_pages(&self, slice: usize) -> impl Iterator<Item = usize> {
        let sets = self.pages[slice].iter().enumerate();
        sets.flat_map(|(n, set)| {
            let set = set.load(Ordering::Relaxed);
            (0..64).filter(move |bit| set >> bit & 1 != 0).map(move |bit| n * 64 + bit)
        })
    }

    fn is_backed(&self, slice: usize) -> bool {
        self.backed[slice].load(Ordering::Relaxed)
    }

    /// Returns true if a 1 GiB page was available for the range that starts with this slice.
    #[cold]
    fn back_giant(&self, slice: usize) -> Result<bool, Errno> {
        match huge_page(GIANT) {
            Some(page) => self.move_in(page, slice, GIANT),
            None => Ok(false),
        }
    }

    /// Returns the words that can be written.
    pub(crate) fn backed(&self) -> impl Iterator<Item = Range<usize>> {
        let end = |words: usize| words.min(self.words);
        (0..self.backed.len()).flat_map(move |slice| {
            let (first, is_backed) = (slice * Self::WORDS, self.is_backed(slice));
            let whole = is_backed.then(|| first..end(first + Self::WORDS));
            let pages = self.written_pages(slice).filter(move |_| !is_backed);
            let pages = pages.map(move |page| first + page * Self::PAGE_WORDS);
            whole.into_iter().chain(pages.map(move |first| first..end(first + Self::PAGE_WORDS)))
        })
    }

    /// Frees the memory of all words, which read as zeros again. For the one writer, when no one reads them.
    pub(crate) fn discard(&self) {
        let (flags, bytes) = (MapFlags::PRIVATE | MapFlags::FIXED, self.backed.len() * SLICE);
        // SAFETY: our own slices; zeros that can only be read take their place at once. Refused, everything stays as it is.
        if unsafe { mmap_anonymous(self.base.as_ptr().cast(), bytes, ProtFlags::READ, flags) }.is_ok() {
            self.backed.iter().for_each(|backed| backed.store(false, Ordering::Relaxed));
            self.pages.iter().flatten().for_each(|pages| pages.store(0, Ordering::Relaxed));
        }
    }

    /// Makes a slice writable of which few pages will be written, in ordinary pages.
    #[cold]
    fn back_pages(&self, slice: usize) -> Result<(), Errno> {
        let at = self.slice(slice);
        // SAFETY: our own slice, of which no word was ever written: whatever the advice, it holds zeros.
        let advise = |advice| unsafe { madvise(at, SLICE, advice) };
        // Before it can be written: a huge page of zeros that readers have asked for would become one of its own.
        let _ = advise(Advice::LinuxNoHugepage);
        let _ = advise(Advice::LinuxDontNeed);
        // SAFETY: our own slice, and more may be done there than before.
        unsafe { mprotect(at, SLICE, MprotectFlags::READ | MprotectFlags::WRITE)? };
        // One page of zeros for all, so that readers meet no page faults. Linux before 5.14 does not know the advice.
        let _ = advise(Advice::LinuxPopulateRead);
        Ok(())
    }

    /// Puts a huge page with the same words where ordinary pages are, if one can be had.
    #[cold]
    fn merge_pages(&self, slice: usize) {
        let (at, set_aside) = (self.slice(slice), self.best == Pages::Hugetlb);
        let Some(page) = set_aside.then(|| huge_page(SLICE)).flatten().or_else(transparent_page) else { return };
        // SAFETY: both are of a slice's length and mapped, the page is ours alone, and only this thread writes to the slice.
        unsafe { page.copy_from_nonoverlapping(at, SLICE) };
        // SAFETY: the page is ours alone, and has the words that readers find in the slice. As in `move_in`, an access to the
        // slice meanwhile waits for a moment, and the kernel takes the old mapping away when nothing can fail any more.
        if unsafe { mremap_fixed(page, SLICE, SLICE, MremapFlags::MAYMOVE, at) }.is_err() {
            // SAFETY: the page has no other user.
            let _ = unsafe { munmap(page, SLICE) };
        }
    }

    #[cold]
    fn back_slice(&self, slice: usize) -> Result<(), Errno> {
        let at = self.slice(slice);
        if self.best == Pages::Hugetlb
            && let Some(page) = huge_page(SLICE)
            && self.move_in(page, slice, SLICE)?
        {
            return Ok(());
        }
        // The kernel promises the memory here, or refuses and leaves the zeros that can only be read.
        // SAFETY: our own slice, and more may be done there than before.
        unsafe { mprotect(at, SLICE, MprotectFlags::READ | MprotectFlags::WRITE)? };
        // SAFETY: our own slice, of which no word was ever written: whatever the advice, it holds zeros.
        let advise = |advice| unsafe { madvise(at, SLICE, advice) };
        if self.best >= Pages::Transparent && advise(Advice::LinuxHugepage).is_ok() {
            // Shared zeros that readers have asked for would stand in the way of a huge page.
            let _ = advise(Advice::LinuxDontNeed);
            // Now, in one piece, rather than when a packet waits for it. Linux before 5.14 does not know the advice.
            if advise(Advice::LinuxPopulateWrite) == Err(Errno::NOMEM) {
                return Err(Errno::NOMEM);
            }
        }
        Ok(())
    }

    fn slice(&self, slice: usize) -> *mut c_void {
        assert!(slice < self.backed.len(), "within the reservation");
        // SAFETY: the reservation holds so many slices from base on.
        unsafe { self.base.as_ptr().byte_add(slice * SLICE) }.cast()
    }

    /// Puts a huge page of [`huge_page`] where slices are of which no word was ever written. False when the kernel would not.
    fn move_in(&self, page: *mut c_void, slice: usize, bytes: usize) -> Result<bool, Errno> {
        let at = self.slice(slice);
        assert!(slice + bytes / SLICE <= self.backed.len(), "within the reservation");
        // SAFETY: the page is ours alone. The slices are within our reservation and were never written, so they and the page read
        // as zeros alike. Readers may look at it meanwhile: the kernel takes the old mapping away and puts the page there
        // under one lock, on which an access in between waits. `reserve` has seen that this kernel moves huge pages, and it
        // checks the count of mappings before it unmaps anything; what is left to fail is memory for its own book-keeping, of
        // a few hundred bytes, for which it would rather end a process.
        if unsafe { mremap_fixed(page, bytes, bytes, MremapFlags::MAYMOVE, at) }.is_ok() {
            return Ok(true);
        }
        // In case it was that after all: zeros again, before anything else.
        // SAFETY: our own slices, never written; zeros take the place of zeros or of nothing.
        let zeros = unsafe { mmap_anonymous(at, bytes, ProtFlags::READ, MapFlags::PRIVATE | MapFlags::FIXED) };
        // SAFETY: the page has no other user. If unmapping fails, it leaks.
        let _ = unsafe { munmap(page, bytes) };
        zeros.map(|_| false)
    }

    /// Returns the kinds of pages that back the words. Zeros if the kernel does not report them.
    pub(crate) fn backing(&self) -> Backing {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let base = self.base.as_ptr().addr();
        backing(&smaps, base..base + self.backed.len() * SLICE)
    }
}

impl<W> Drop for Memory<W> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to the words exists. An error would leave it mapped, which is harmless.
        let _ = unsafe { munmap(self.reserved, self.reserved_bytes) };
    }
}

/// A zeroed huge page of so many bytes, of those set aside, where the kernel likes, or `None` when none is free.
fn huge_page(bytes: usize) -> Option<*mut c_void> {
    let kind = if bytes == GIANT { MapFlags::HUGE_1GB } else { MapFlags::HUGE_2MB };
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | kind;
    // SAFETY: a new mapping where the kernel likes touches no memory of anybody.
    let page = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }.ok()?;
    // Promised is not there yet: a cgroup's limit would show at the first touch, by SIGBUS.
    // SAFETY: the mapping is new and ours.
    if unsafe { madvise(page, bytes, Advice::LinuxPopulateWrite) }.is_ok() {
        return Some(page);
    }
    // SAFETY: as above, and it has no other user.
    let _ = unsafe { munmap(page, bytes) };
    None
}

/// Returns a zeroed transparent huge page where the kernel likes, or `None` if there is no memory. Where the kernel has no
/// huge page, it consists of ordinary ones.
fn transparent_page() -> Option<*mut c_void> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the kernel likes touches no memory of anybody.
    let room = unsafe { mmap_anonymous(null_mut(), 2 * SLICE, access, MapFlags::PRIVATE) }.ok()?;
    let front = room.addr().next_multiple_of(SLICE) - room.addr();
    // SAFETY: less than SLICE further in, within the 2 * SLICE of room.
    let (page, behind) = unsafe { (room.byte_add(front), room.byte_add(front + SLICE)) };
    // SAFETY: the parts of the new mapping before and behind the page, of which the first may be empty, and is then refused.
    unsafe {
        let _ = munmap(room, front);
        let _ = munmap(behind, SLICE - front);
    }
    // SAFETY: the mapping is new and ours.
    let advise = |advice| unsafe { madvise(page, SLICE, advice) };
    let _ = advise(Advice::LinuxHugepage);
    if advise(Advice::LinuxPopulateWrite) == Err(Errno::NOMEM) {
        // SAFETY: as above, and it has no other user.
        let _ = unsafe { munmap(page, SLICE) };
        return None;
    }
    Some(page)
}

/// Returns true if the kernel can move huge pages (Linux 5.16). Tested on unused memory, as an older kernel unmaps the target
/// before it fails.
fn moves_huge_pages() -> bool {
    // Not reserved, so that no page need be free.
    let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB | MapFlags::NORESERVE;
    // SAFETY: new mappings where the kernel likes touch no memory of anybody.
    let map = |bytes, flags| unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ, flags) };
    let Ok(page) = map(SLICE, flags) else { return false };
    let Ok(room) = map(2 * SLICE, MapFlags::PRIVATE) else {
        // SAFETY: the mapping is ours and has no other user.
        let _ = unsafe { munmap(page, SLICE) };
        return false;
    };
    let front = room.addr().next_multiple_of(SLICE) - room.addr();
    // SAFETY: less than SLICE further in, within the 2 * SLICE of room.
    let at = unsafe { room.byte_add(front) };
    // SAFETY: both mappings are ours and have no reader.
    let moves = unsafe { mremap_fixed(page, SLICE, SLICE, MremapFlags::MAYMOVE, at) }.is_ok();
    // SAFETY: what is unmapped is ours: all of the room; or the page, and the room without what may be a hole in it by now
    // and may be mapped by another thread next. A length of 0 is refused, and that is all.
    unsafe {
        if moves {
            let _ = munmap(room, 2 * SLICE);
        } else {
            let _ = munmap(page, SLICE);
            let _ = munmap(room, front);
            let _ = munmap(at.byte_add(SLICE), SLICE - front);
        }
    }
    moves
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
            // the kernel takes a giant page that has moved for one that others have as well
            "Private_Hugetlb:" | "Shared_Hugetlb:" if ours => sum.hugetlb += bytes(),
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
    use std::sync::atomic::AtomicU32;

    const WORD: usize = size_of::<AtomicU32>();
    type Memory = super::Memory<AtomicU32>;

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
    fn few_words_take_few_pages_until_they_are_many() {
        let word_of_page = |page: usize| SLICE / WORD + page * (PAGE / WORD);
        for best in [Pages::Transparent, Pages::Hugetlb] {
            let memory = Memory::reserve((SLICE / WORD) * 3, best).unwrap();
            let (words, over) = (memory.words(), AtomicBool::new(false));
            let write = |page: usize| {
                memory.back_sparse(word_of_page(page)..word_of_page(page) + 1).unwrap();
                words[word_of_page(page)].store(page as u32 + 1, Ordering::Release);
            };
            std::thread::scope(|s| {
                write(0);
                s.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        assert_eq!(words[word_of_page(0)].load(Ordering::Acquire), 1);
                        assert_eq!(words[word_of_page(0) + 1].load(Ordering::Acquire), 0);
                    }
                });
                (0..2).for_each(|_| (1..DENSE - 1).for_each(write));
                let few: Vec<_> = memory.backed().collect();
                let few_bytes = memory.backing().total();
                (DENSE - 1..2 * DENSE).for_each(write);
                over.store(true, Ordering::Relaxed);
                let page_words = |page| word_of_page(page)..word_of_page(page) + PAGE / WORD;
                assert_eq!(few, (0..DENSE - 1).map(page_words).collect::<Vec<_>>());
                assert!(few_bytes <= DENSE * PAGE, "{best:?}: {few_bytes}");
            });
            let whole: Vec<_> = memory.backed().map(|words| (words.start, words.end)).collect();
            assert_eq!(whole, [(SLICE / WORD, 2 * (SLICE / WORD))]);
            let found = |page: usize| words[word_of_page(page)].load(Ordering::Relaxed);
            assert!((0..2 * DENSE).all(|page| found(page) == page as u32 + 1));
            assert!((2 * DENSE..SLICE / PAGE).all(|page| found(page) == 0));
            memory.discard();
            assert_eq!((found(0), memory.backing().total(), memory.backed().count()), (0, 0, 0));
        }
    }

    #[test]
    fn a_huge_page_takes_the_place_of_zeros_with_what_it_holds() {
        let memory = Memory::reserve((SLICE / WORD) * 3, Pages::Hugetlb).unwrap();
        assert_eq!(memory.words()[SLICE / WORD].load(Ordering::Relaxed), 0);
        if memory.best != Pages::Hugetlb {
            return println!("skipped: this kernel does not move huge pages");
        }
        let Some(page) = huge_page(SLICE) else { return println!("skipped: no huge page is free") };
        // SAFETY: a huge page that is ours, aligned and writable.
        unsafe { page.cast::<u32>().write(7) };
        assert_eq!(memory.move_in(page, 1, SLICE), Ok(true));
        let words = memory.words();
        assert_eq!(words[SLICE / WORD].load(Ordering::Relaxed), 7);
        assert_eq!(
            (words[SLICE / WORD - 1].load(Ordering::Relaxed), words[2 * SLICE / WORD].load(Ordering::Relaxed)),
            (0, 0)
        );
        assert_eq!(memory.backing(), Backing { hugetlb: SLICE, ..Backing::default() });
        let info = std::fs::read_to_string("/proc/meminfo").unwrap();
        let free = info.lines().find_map(|line| line.strip_prefix("HugePages_Free:")?.trim().parse().ok()).unwrap_or(0);
        if free < 64 {
            return println!("skipped the rest: others may take the last {free} huge pages");
        }
        memory.back(0..1).unwrap();
        assert_eq!(memory.backing(), Backing { hugetlb: 2 * SLICE, ..Backing::default() });
    }

    #[test]
    fn a_giant_page_takes_the_place_of_as_many_slices() {
        let memory = Memory::reserve((GIANT + 2 * SLICE) / WORD, Pages::Hugetlb).unwrap();
        let last = memory.words().len() - 1;
        assert_eq!((memory.words()[0].load(Ordering::Relaxed), memory.words()[last].load(Ordering::Relaxed)), (0, 0));
        // a part of it is no reason for one, and keeps it away
        memory.back(GIANT / WORD..GIANT / WORD + 1).unwrap();
        memory.words()[GIANT / WORD].store(3, Ordering::Relaxed);
        if memory.best != Pages::Hugetlb {
            return println!("skipped: this kernel does not move huge pages");
        }
        let Some(page) = huge_page(GIANT) else { return println!("skipped: no page of 1 GiB is free") };
        // SAFETY: a huge page that is ours, aligned and writable, to its last word.
        unsafe { page.cast::<u32>().add(GIANT / WORD - 1).write(7) };
        assert_eq!(memory.move_in(page, 0, GIANT), Ok(true));
        let words = memory.words();
        assert_eq!([GIANT / WORD - 1, GIANT / WORD, 0, last].map(|n| words[n].load(Ordering::Relaxed)), [7, 3, 0, 0]);
        assert!(memory.backing().hugetlb >= GIANT, "{:?}", memory.backing());
        drop(memory);
        let memory = Memory::reserve(GIANT / WORD, Pages::Hugetlb).unwrap();
        memory.back(0..GIANT / WORD).unwrap();
        memory.words().iter().step_by(1 << 18).for_each(|word| word.store(1, Ordering::Relaxed));
        assert_eq!(memory.backing().total(), GIANT);
        // what is backed stays as it is
        memory.back(0..GIANT / WORD).unwrap();
        assert_eq!(memory.words()[0].load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_page_that_cannot_be_moved_leaves_zeros() {
        let memory = Memory::reserve((SLICE / WORD) * 3, Pages::Hugetlb).unwrap();
        // As if the kernel had taken the slice away first: it cannot be read.
        let taken = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: a slice of ours without readers until the next line has run.
        unsafe { mmap_anonymous(memory.slice(1), SLICE, ProtFlags::empty(), taken) }.unwrap();
        // Nothing is mapped there that could be moved.
        assert_eq!(memory.move_in(null_mut(), 1, SLICE), Ok(false));
        assert!(memory.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        memory.back(0..memory.words().len()).unwrap();
        memory.words()[SLICE / WORD].store(7, Ordering::Relaxed);
        assert_eq!(memory.words()[SLICE / WORD].load(Ordering::Relaxed), 7);
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
Shared_Hugetlb:  1048576 kB
VmFlags: rd wr
50000-60000 rw-p 00000000 00:00 0 [heap]
Anonymous:           400 kB
";
        let got = backing(smaps, 0x10000..0x50000);
        assert_eq!(got, Backing { hugetlb: (1 << 30) + (2 << 20), transparent: 32 << 10, ordinary: 12 << 10 });
    }
}
