//! Statistics of one node on one worker.

mod bounded_table;
mod counter;
mod table;

pub use bounded_table::BoundedTable;
pub use counter::Counter;
pub use table::{Row, StatsTable};

use crate::named_enum::{Named, Numbered};
use std::sync::{Arc, Mutex, PoisonError};

crate::named_enum! {
    /// Drop reasons that every node has in addition to its own.
    pub enum CommonDrop {
        /// The packet was lost in a panic of the node, or arrived while the node was quarantined.
        NfPanic = "nf_panic",
        /// The node neither emitted, held nor dropped the packet, or lost the queue that held it.
        Vanished = "vanished",
        /// The packet left by an output that no edge connects, or by a path that no longer exists.
        NoEdge = "no_edge",
    }
}

/// Statistics of one node on one worker. Packets are always counted; cycles are measured on a sample of the batches.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct NodeStats {
    /// Packets received.
    pub packets: Counter,
    /// Packets that the node created.
    pub created: Counter,
    /// Packets that the node holds now (a gauge).
    pub held: Counter,
    /// Cycles spent on the timed batches.
    pub timed_cycles: Counter,
    /// Packets in the timed batches.
    pub timed_packets: Counter,
    /// Number of timed batches.
    pub timed_batches: Counter,
    /// Number of times that the node was rebuilt after a panic.
    pub restarts: Counter,
    /// Names of the drop reasons: those of the node, then those of [`CommonDrop`].
    pub reasons: Box<[&'static str]>,
    /// Packets dropped, by reason.
    pub drops: Box<[Counter]>,
    published: Mutex<Published>,
}

/// The counters and the table that a node publishes; replaced when the node is rebuilt.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) counters: Vec<(String, Arc<Counter>)>,
    /// Names of those counters that are gauges.
    pub(crate) gauges: Vec<&'static str>,
    pub(crate) bounded_tables: Vec<BoundedTable>,
    pub(crate) table: Option<Arc<StatsTable>>,
    pub(crate) fused: Vec<String>,
}

impl NodeStats {
    /// Returns zeroed statistics for a node with these drop reasons.
    pub(crate) fn new(drops: &[&'static str], published: Published) -> Self {
        let reasons: Box<[_]> = drops.iter().chain(CommonDrop::NAMES).copied().collect();
        let drops = reasons.iter().map(|_| Counter::default()).collect();
        NodeStats { reasons, drops, published: Mutex::new(published), ..Default::default() }
    }

    /// Counts packets as vanished that were held by a queue that no longer exists.
    pub(crate) fn count_lost_held(&self, packets: u64) {
        if packets != 0 {
            self.held.set(self.held.get().saturating_sub(packets));
            self.count_common_drops(CommonDrop::Vanished, packets);
        }
    }

    /// Replaces the counters and the table of the node.
    pub(crate) fn publish(&self, published: Published) {
        let mut current = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let fused = core::mem::take(&mut current.fused);
        *current = Published { fused, ..published };
    }

    /// Removes the gauges and the tables: the node no longer exists.
    pub fn retire(&self) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let Published { counters, gauges, bounded_tables, table, .. } = &mut *published;
        counters.retain(|(name, _)| !gauges.contains(&name.as_str()));
        (*gauges, *bounded_tables, *table) = (vec![], vec![], None);
    }

    /// Sets the names of the nodes whose cycles are counted here.
    pub(crate) fn set_fused(&self, names: Vec<String>) {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).fused = names;
    }

    /// Returns the names of the nodes whose cycles are counted here, as the graph fuses them with this one.
    pub fn fused(&self) -> Vec<String> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).fused.clone()
    }

    /// Replaces the counters of the node and returns the previous ones.
    pub(crate) fn replace_counters(&self, counters: Vec<(String, Arc<Counter>)>) -> Vec<(String, Arc<Counter>)> {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        core::mem::replace(&mut published.counters, counters)
    }

    /// Returns the counters that the node publishes, with their names.
    pub fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).counters.clone()
    }

    /// Returns the names of those counters that are present values.
    pub fn gauges(&self) -> Vec<&'static str> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).gauges.clone()
    }

    /// Returns the bounded tables that the node publishes.
    pub fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).bounded_tables.clone()
    }

    /// Returns the table that the node publishes, if it has one.
    pub fn table(&self) -> Option<Arc<StatsTable>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).table.clone()
    }

    /// Returns the name under which a node's drops for a reason are counted.
    pub(crate) fn reason(&self, reason: u8) -> &'static str {
        self.reasons.get(usize::from(reason)).copied().unwrap_or(CommonDrop::Vanished.name())
    }

    /// Returns the position of a common reason in [`drops`](NodeStats::drops).
    pub(crate) fn common_index(&self, reason: CommonDrop) -> usize {
        self.drops.len() - CommonDrop::NAMES.len() + usize::from(reason.number())
    }

    /// Counts `n` packets dropped for a common reason.
    pub(crate) fn count_common_drops(&self, reason: CommonDrop, n: u64) {
        self.drops[self.common_index(reason)].add(n);
    }

    /// Returns the number of unaccounted packets: neither emitted, dropped nor held by the node.
    pub fn vanished(&self) -> u64 {
        self.drops[self.common_index(CommonDrop::Vanished)].get()
    }

    /// Returns the number of packets dropped for any reason.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(Counter::get).sum()
    }
}
