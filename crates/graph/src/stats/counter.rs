//! Counters with one writer and any number of readers.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// A 64-bit counter in shared memory: one thread adds, any thread reads, and neither waits.
///
/// Adding is a plain load and store, not an atomic read-modify-write, so that counting costs a cycle on the packet
/// path.
///
/// ```
/// use graph::Counter;
/// use std::sync::Arc;
///
/// let sent = Arc::new(Counter::default());
/// sent.add(32);
/// let reader = Arc::clone(&sent);
/// assert_eq!(std::thread::spawn(move || reader.get()).join().unwrap(), 32);
/// ```
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the thread that owns the counter may call this; concurrent calls lose counts.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// Sets the value, for gauges such as the number of held packets. Only the thread that owns the counter may call
    /// this.
    #[inline(always)]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Returns the current value.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns counters with their names in the form that [`Node::counters`](crate::Node::counters) reports.
    #[must_use]
    pub fn named<'a>(all: impl IntoIterator<Item = (&'a str, &'a Arc<Counter>)>) -> Vec<(String, Arc<Counter>)> {
        all.into_iter().map(|(name, count)| (name.to_owned(), count.clone())).collect()
    }
}
