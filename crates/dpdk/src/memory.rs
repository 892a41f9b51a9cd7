//! The kind of memory that packets are in.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// The kind of memory that packet pools are allocated from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Huge pages of 2 MiB: one TLB entry covers a thousand packets.
    Huge,
    /// Ordinary pages: available everywhere; slower with large tables.
    Ordinary,
}

/// Huge pages (2 MiB) for the memory of DPDK and its drivers besides packets.
const DRIVER_PAGES: usize = 48;
/// State of the huge pages of 2 MiB.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

impl Memory {
    /// Environment variable that forces ordinary pages with the value [`ORDINARY`](Self::ORDINARY).
    pub const VARIABLE: &str = "BONDSTONE_MEMORY";
    /// Value of the [`VARIABLE`](Self::VARIABLE).
    pub const ORDINARY: &str = "ordinary";

    /// Returns the memory in bytes of a packet for frames of up to `max_frame` bytes.
    #[must_use]
    pub const fn packet_bytes(max_frame: usize) -> u64 {
        /// Header and trailer of an object of the pool.
        const OBJECT: usize = 128;
        (packet::data_room(max_frame) + packet::HEADROOM + size_of::<packet::Mbuf>() + OBJECT) as u64
    }

    /// Returns `Huge` if enough huge pages are free for drivers and a pool of `packets` for frames of up to
    /// `max_frame` bytes, otherwise `Ordinary`.
    pub fn best_for(packets: u32, max_frame: usize) -> Memory {
        let needed = DRIVER_PAGES + (u64::from(packets) * Self::packet_bytes(max_frame) / (2 << 20)) as usize;
        let ordinary = std::env::var_os(Self::VARIABLE).is_some_and(|value| value == Self::ORDINARY);
        if !ordinary && Self::free_huge_pages() >= needed { Memory::Huge } else { Memory::Ordinary }
    }

    /// Returns `Huge` if enough huge pages are free for a small pool, otherwise `Ordinary`.
    pub fn best() -> Memory {
        Self::best_for((1 << 13) - 1, packet::MAX_FRAME)
    }

    /// Returns the name that summaries show.
    pub fn name(self) -> &'static str {
        match self {
            Memory::Huge => "huge pages",
            Memory::Ordinary => "ordinary pages",
        }
    }

    /// Returns the number of free 2 MiB pages on this machine.
    pub fn free_huge_pages() -> usize {
        let file = Path::new(HUGE_PAGES).join("free_hugepages");
        std::fs::read_to_string(file).ok().and_then(|s| s.trim().parse().ok()).unwrap_or(0)
    }

    /// Waits while another process of Bondstone is between counting the free huge pages and allocating them, which
    /// others wait for until the result is dropped.
    #[must_use]
    pub fn lock() -> MemoryLock {
        /// Longest wait: a stopped process may hold the lock.
        const TIMEOUT: Duration = Duration::from_secs(5);
        let deadline = Instant::now() + TIMEOUT;
        // errors: no huge pages, or a file system without locks
        let file = File::open(HUGE_PAGES).ok();
        while let Some(Err(std::fs::TryLockError::WouldBlock)) = file.as_ref().map(File::try_lock)
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        MemoryLock(file)
    }
}

/// Excludes other processes of Bondstone from allocating huge pages while it lives.
#[expect(dead_code, reason = "closing the file releases the lock")]
pub struct MemoryLock(Option<File>);
