//! Memory of large exact-match tables, and progress reports while they are filled.

use std::time::{Duration, Instant};
use tables::cuckoo::{Key, Settings};
use tables::{Backing, Pages};

/// Bytes of huge pages that are left free for packet buffers.
const RESERVED_FOR_PACKETS: u64 = 1 << 30;
/// Bytes of tables that may be in 4 KiB pages without a warning.
const SMALL_PAGES_MAX: usize = 64 << 20;
/// Interval of progress reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the settings of a table for `entries` entries: in preallocated huge pages if enough of them remain for
/// packet buffers, otherwise in transparent ones.
pub(crate) fn settings<K: Key>(entries: u64) -> Settings {
    let bytes = entries * if K::BITS == 144 { 30 } else { 10 };
    // pages of 1 GiB are used for whole GiB only
    let in_2m_pages = bytes.saturating_sub(free_huge_page_bytes(1 << 20).min(bytes >> 30 << 30));
    let free = free_huge_page_bytes(2 << 10);
    // without free 2 MiB pages the packet buffers are not in huge pages either
    let pages =
        if free == 0 || free > in_2m_pages + RESERVED_FOR_PACKETS { Pages::Hugetlb } else { Pages::Transparent };
    Settings { pages, ..Settings::new(entries) }
}

/// Returns the number of bytes in free preallocated huge pages of `kib` KiB.
fn free_huge_page_bytes(kib: u64) -> u64 {
    let pages = std::fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages"));
    let pages: u64 = pages.ok().and_then(|pages| pages.trim().parse().ok()).unwrap_or(0);
    pages * (kib << 10)
}

/// Logs a warning if tables are in 4 KiB pages, where each look-up misses the TLB.
pub(crate) fn warn_small_pages(nf: &str, tables: &[Backing]) {
    let small: usize = tables.iter().map(|backing| backing.ordinary).sum();
    if small > SMALL_PAGES_MAX {
        let pages = (small >> 21) * 11 / 10 + (RESERVED_FOR_PACKETS as usize >> 21) + 1;
        tracing::warn!(
            target: "nf",
            nf,
            "{nf}: {} MiB of its table are in 4 KiB pages, which makes look-ups slow\n\
             help: allocate huge pages (as root: echo {pages} > /proc/sys/vm/nr_hugepages)",
            small >> 20
        );
    }
}

/// Progress of filling a table, logged if it takes long.
pub(crate) struct Progress<'a> {
    nf: &'a str,
    total: u64,
    /// Entries of the finished parts.
    finished: u64,
    started: Instant,
    last_report: Instant,
}

impl<'a> Progress<'a> {
    /// Starts filling a table with `total` entries.
    pub(crate) fn new(nf: &'a str, total: u64) -> Self {
        let now = Instant::now();
        Progress { nf, total, finished: 0, started: now, last_report: now }
    }

    /// Logs the progress if an interval has passed; `done` is the number of entries of the current part.
    pub(crate) fn report(&mut self, done: u64) {
        if self.last_report.elapsed() > REPORT_INTERVAL {
            self.last_report = Instant::now();
            let (done, seconds) = (self.finished + done, self.started.elapsed().as_secs());
            let (nf, total) = (self.nf, self.total);
            tracing::info!(target: "nf", nf, done, total, "{nf}: inserted {done} of {total} table entries in {seconds} s");
        }
    }

    /// Finishes a part of `done` entries.
    pub(crate) fn finish_part(&mut self, done: u64) {
        self.finished += done;
    }
}
