//! Counters that a node publishes from the counts that it keeps.

use graph::{BoundedTable, Counter};
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

/// The occupancy of the flow tables and of the memory of a node.
pub(crate) struct Tables([BoundedTable; 3]);

impl Tables {
    /// Creates those of a node with at most this number of flows for each IP version, and bytes of memory.
    pub(crate) fn new(flows: u32, memory: u64) -> Self {
        let flow_table = |name| BoundedTable::new(name, flows.into());
        Tables([flow_table("flows_ipv4"), flow_table("flows_ipv6"), BoundedTable::new("memory_bytes", memory)])
    }

    /// Returns them as a node publishes them.
    pub(crate) fn published(&self) -> Vec<BoundedTable> {
        self.0.to_vec()
    }

    /// Sets the numbers of flows of IPv4 and of IPv6, and the bytes of memory.
    pub(crate) fn set(&self, entries: [usize; 3]) {
        self.0.iter().zip(entries).for_each(|(table, n)| table.entries.set(n as u64));
    }
}
