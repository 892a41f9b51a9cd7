//! Attribution of crashes and memory to NFs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Bytes that each NF of a file has allocated in all its copies, by index; known if the global allocator is
/// [`crash::CountingAllocator`].
#[derive(Clone)]
pub(crate) struct MemoryAccounts(Arc<[Account]>);

#[derive(Default)]
struct Account {
    current: AtomicI64,
    peak: AtomicI64,
}

/// The activity of running an NF.
pub(crate) struct NfActivity {
    description: String,
    nf: usize,
    accounts: MemoryAccounts,
}

impl MemoryAccounts {
    /// Creates accounts for `nfs` NFs.
    pub(crate) fn new(nfs: usize) -> Self {
        MemoryAccounts((0..nfs).map(|_| Account::default()).collect())
    }

    /// Returns the bytes that an NF holds.
    fn bytes(&self, nf: usize) -> u64 {
        self.0[nf].current.load(Ordering::Relaxed).max(0) as u64
    }

    /// Returns the most bytes that an NF has held.
    pub(crate) fn peak(&self, nf: usize) -> u64 {
        self.0[nf].peak.load(Ordering::Relaxed).max(0) as u64
    }

    /// Returns the NF that holds most memory, and its bytes, if known.
    pub(crate) fn largest(&self) -> Option<(usize, u64)> {
        (0..self.0.len())
            .map(|nf| (nf, self.bytes(nf)))
            .max_by_key(|&(_, bytes)| bytes)
            .filter(|&(_, bytes)| bytes != 0)
    }
}

impl NfActivity {
    /// Creates the activity of the NF with index `nf`; `description` is such as `nf "a" on CPU 1`.
    pub(crate) fn new(description: String, nf: usize, accounts: &MemoryAccounts) -> Self {
        NfActivity { description, nf, accounts: accounts.clone() }
    }
}

// SAFETY: the methods read a field and add to atomic counters.
#[expect(unsafe_code, reason = "called by signal handlers and the allocator")]
unsafe impl crash::Activity for NfActivity {
    fn description(&self) -> Option<&str> {
        Some(&self.description)
    }

    fn record_allocation(&self, bytes: i64) {
        let account = &self.accounts.0[self.nf];
        let now = account.current.fetch_add(bytes, Ordering::Relaxed) + bytes;
        account.peak.fetch_max(now, Ordering::Relaxed);
    }
}

/// Returns the bytes of memory above which the watchdog stops a run: four fifths of the memory of the machine or of its
/// container.
pub(crate) fn default_memory_limit() -> u64 {
    let number = |path: &str| std::fs::read_to_string(Path::new(path)).ok()?.trim().parse::<u64>().ok();
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
    });
    let limits = [total, number("/sys/fs/cgroup/memory.max"), number("/sys/fs/cgroup/memory/memory.limit_in_bytes")];
    limits.into_iter().flatten().min().map_or(u64::MAX, |all| all / 5 * 4)
}
