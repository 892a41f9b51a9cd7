//! The occupancy of tables that packets fill.

use super::Counter;
use std::sync::Arc;

/// The number of entries of a table that packets fill, and the most that it can have.
///
/// ```
/// use graph::BoundedTable;
///
/// let sessions = BoundedTable::new("sessions", 1000);
/// sessions.entries.set(7);
/// assert_eq!((sessions.entries.get(), sessions.capacity), (7, 1000));
/// ```
#[derive(Clone, Debug)]
pub struct BoundedTable {
    /// Name of the table.
    pub name: &'static str,
    /// Number of entries (a gauge), which the node sets.
    pub entries: Arc<Counter>,
    /// Largest number of entries.
    pub capacity: u64,
}

impl BoundedTable {
    /// Returns a table without entries.
    #[must_use]
    pub fn new(name: &'static str, capacity: u64) -> Self {
        BoundedTable { name, entries: Arc::default(), capacity }
    }
}
