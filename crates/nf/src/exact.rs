//! Exact-match tables of NFs: in which pages they lie, and what is said while they are filled.

use std::time::{Duration, Instant};
use tables::exact::{Key, Settings};
use tables::{Backing, Pages};

/// Bytes of huge pages that are left for buffers of packets.
const LEFT_FOR_PACKETS: u64 = 1 << 30;
/// Bytes of a table that may be in pages of 4 KiB without a word.
const MOST_IN_SMALL_PAGES: usize = 64 << 20;
/// How often it is told how far a long filling is.
const OFTEN: Duration = Duration::from_secs(5);

/// A table for so many entries: in pages that were set aside, where after it as much is left as packets may need, otherwise
/// in those that the kernel finds.
pub(crate) fn settings<K: Key>(entries: u64) -> Settings {
    let bytes = entries * if K::BITS == 144 { 30 } else { 10 };
    // of what is no whole GiB, none is in a page of that size
    let rest = bytes.saturating_sub(free(1 << 20).min(bytes >> 30 << 30));
    let free = free(2 << 10);
    // where there are none, nobody has his packets there
    let pages = if free == 0 || free > rest + LEFT_FOR_PACKETS { Pages::Hugetlb } else { Pages::Transparent };
    Settings { pages, ..Settings::new(entries) }
}

/// Bytes of huge pages of so many KiB that were set aside and are free.
fn free(kib: u64) -> u64 {
    let free = std::fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages"));
    let free: u64 = free.ok().and_then(|free| free.trim().parse().ok()).unwrap_or(0);
    free * (kib << 10)
}

/// Says so when a table lies in small pages, each of which costs a look-up a walk through page tables.
pub(crate) fn note_small_pages(nf: &str, tables: &[Backing]) {
    let small: usize = tables.iter().map(|backing| backing.ordinary).sum();
    if small > MOST_IN_SMALL_PAGES {
        let pages = (small >> 21) * 11 / 10 + (LEFT_FOR_PACKETS as usize >> 21) + 1;
        eprintln!(
            "{nf}: {} MiB of its table are in pages of 4 KiB, and slow to look up; set huge pages aside (as root: echo {pages} > \
             /proc/sys/vm/nr_hugepages)",
            small >> 20
        );
    }
}

/// Tells how far a filling is, when it takes long.
pub(crate) struct Progress<'a> {
    nf: &'a str,
    of: u64,
    before: u64,
    began: Instant,
    told: Instant,
}

impl<'a> Progress<'a> {
    /// Of so many entries.
    pub(crate) fn new(nf: &'a str, of: u64) -> Self {
        let now = Instant::now();
        Progress { nf, of, before: 0, began: now, told: now }
    }

    /// So many more than before the last [`next`](Self::next) are there.
    pub(crate) fn tell(&mut self, done: u64) {
        if self.told.elapsed() > OFTEN {
            self.told = Instant::now();
            let done = self.before + done;
            eprintln!(
                "{}: {done} of {} entries are there after {} s",
                self.nf,
                self.of,
                self.began.elapsed().as_secs()
            );
        }
    }

    /// So many were those of one part.
    pub(crate) fn next(&mut self, done: u64) {
        self.before += done;
    }
}
