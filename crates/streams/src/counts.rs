//! Counters that a node publishes from the counts that it keeps.

use graph::Counter;
use std::sync::Arc;

/// A counter for each named count of a node.
pub(crate) struct Published(Vec<(&'static str, Arc<Counter>)>);

impl Published {
    /// Creates counters with the names of `counts`.
    pub(crate) fn new(counts: &[(&'static str, u64)]) -> Self {
        Published(counts.iter().map(|(name, _)| (*name, Arc::default())).collect())
    }

    /// Returns the counters with their names.
    pub(crate) fn named(&self) -> Vec<(String, Arc<Counter>)> {
        self.0.iter().map(|(name, counter)| ((*name).to_owned(), counter.clone())).collect()
    }

    /// Sets the counters to `counts`, which have the order passed to [`new`](Self::new).
    pub(crate) fn set(&self, counts: &[(&'static str, u64)]) {
        self.0.iter().zip(counts).for_each(|((_, counter), (_, count))| counter.set(*count));
    }
}
