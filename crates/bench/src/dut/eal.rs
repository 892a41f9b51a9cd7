//! DPDK in programs beside this one.

/// Huge pages, of 2 MiB, that such a program takes, and some.
pub(crate) const PAGES: usize = 300;

/// Whether there are so many.
pub(crate) fn has_huge_pages() -> bool {
    dpdk::Memory::free_huge_pages() >= PAGES
}

/// Arguments of the EAL: memory of its own that the generator can map as well.
pub(crate) fn memory() -> &'static [&'static str] {
    if has_huge_pages() { &["--in-memory", "--single-file-segments", "-m", "512"] } else { &["--no-huge", "-m", "512"] }
}
