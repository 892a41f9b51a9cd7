//! Which NF does something, for whoever has to say whose fault it is.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Bytes that the NFs of a file have, by their numbers, in all copies; known where the program's allocator is
/// [`crash::Counting`].
#[derive(Clone)]
pub(crate) struct Ledger(Arc<[Account]>);

#[derive(Default)]
struct Account {
    now: AtomicI64,
    most: AtomicI64,
}

/// An NF in a situation.
pub(crate) struct Blame {
    who: String,
    nf: usize,
    ledger: Ledger,
}

impl Ledger {
    /// For so many NFs.
    pub(crate) fn new(nfs: usize) -> Self {
        Ledger((0..nfs).map(|_| Account::default()).collect())
    }

    /// Bytes that an NF has, as far as is known.
    fn bytes(&self, nf: usize) -> u64 {
        self.0[nf].now.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bytes that an NF has had at most, as far as is known.
    pub(crate) fn peak(&self, nf: usize) -> u64 {
        self.0[nf].most.load(Ordering::Relaxed).max(0) as u64
    }

    /// The NF that has most, and how many bytes, if it is known.
    pub(crate) fn most(&self) -> Option<(usize, u64)> {
        (0..self.0.len())
            .map(|nf| (nf, self.bytes(nf)))
            .max_by_key(|&(_, bytes)| bytes)
            .filter(|&(_, bytes)| bytes != 0)
    }
}

impl Blame {
    /// NF number `nf`; `who` says the rest, such as `nf "a" on CPU 1`.
    pub(crate) fn new(who: String, nf: usize, ledger: &Ledger) -> Self {
        Blame { who, nf, ledger: ledger.clone() }
    }
}

impl crash::Doing for Blame {
    fn now(&self) -> Option<&str> {
        Some(&self.who)
    }

    fn book(&self, bytes: i64) {
        let account = &self.ledger.0[self.nf];
        let now = account.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        account.most.fetch_max(now, Ordering::Relaxed);
    }
}

/// Bytes of memory that this process may have before the watchdog ends the run: four fifths of what the machine has, or its
/// container.
pub(crate) fn enough() -> u64 {
    let number = |path: &str| std::fs::read_to_string(Path::new(path)).ok()?.trim().parse::<u64>().ok();
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
    });
    let limits = [total, number("/sys/fs/cgroup/memory.max"), number("/sys/fs/cgroup/memory/memory.limit_in_bytes")];
    limits.into_iter().flatten().min().map_or(u64::MAX, |all| all / 5 * 4)
}
