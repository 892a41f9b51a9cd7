//! Attribution of crashes and memory to NFs.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that each NF of a file has allocated in all its copies, by index; known if the global allocator is
/// [`crash::CountingAllocator`].
#[derive(Clone, Default)]
pub(crate) struct MemoryAccounts(Arc<Mutex<Vec<Arc<Account>>>>);

#[derive(Default)]
struct Account {
    current: AtomicI64,
    peak: AtomicI64,
}

/// The activity of running an NF.
pub(crate) struct NfActivity {
    description: String,
    account: Arc<Account>,
}

impl MemoryAccounts {
    /// Returns the account of an NF.
    fn account(&self, nf: usize) -> Arc<Account> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = (nf + 1).saturating_sub(all.len());
        all.extend((0..missing).map(|_| Arc::default()));
        all[nf].clone()
    }

    /// Returns the most bytes that an NF has held.
    pub(crate) fn peak(&self, nf: usize) -> u64 {
        self.account(nf).peak.load(Ordering::Relaxed).max(0) as u64
    }

    /// Returns the NF that holds most memory, and its bytes, if known.
    pub(crate) fn largest(&self) -> Option<(usize, u64)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = all.iter().map(|account| account.current.load(Ordering::Relaxed).max(0) as u64);
        bytes.enumerate().max_by_key(|&(_, bytes)| bytes).filter(|&(_, bytes)| bytes != 0)
    }
}

impl NfActivity {
    /// Creates the activity of the NF with index `nf`; `description` is such as `nf "a" on CPU 1`.
    pub(crate) fn new(description: String, nf: usize, accounts: &MemoryAccounts) -> Self {
        NfActivity { description, account: accounts.account(nf) }
    }
}

// SAFETY: the methods read a field and add to atomic counters.
#[expect(unsafe_code, reason = "called by signal handlers and the allocator")]
unsafe impl crash::Activity for NfActivity {
    fn description(&self) -> Option<&str> {
        Some(&self.description)
    }

    fn record_allocation(&self, bytes: i64) {
        let now = self.account.current.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.account.peak.fetch_max(now, Ordering::Relaxed);
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
