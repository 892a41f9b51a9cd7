//! EAL arguments of DPDK programs.

/// Free huge pages of 2 MiB that a program needs.
pub(crate) const REQUIRED_PAGES: usize = 300;

/// Returns true if enough huge pages are free.
pub(crate) fn has_huge_pages() -> bool {
    dpdk::Memory::free_huge_pages() >= REQUIRED_PAGES
}

/// Returns the EAL arguments for memory that the generator can map over vhost-user.
pub(crate) fn memory_arguments() -> &'static [&'static str] {
    if has_huge_pages() { &["--in-memory", "--single-file-segments", "-m", "512"] } else { &["--no-huge", "-m", "512"] }
}
