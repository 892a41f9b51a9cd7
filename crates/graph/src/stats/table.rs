//! Tables that a node publishes.

use std::sync::{Mutex, PoisonError};

/// A table that a node publishes beside its counters, such as its largest flows.
///
/// The node replaces the rows now and then, usually in [`Node::on_timer`](crate::Node::on_timer); the summary of a run,
/// `bondstone top` and `stats --json` read them. Return it from [`Node::stats_table`](crate::Node::stats_table).
///
/// ```
/// use graph::StatsTable;
///
/// let top = StatsTable::new(&["source", "packets"], 10);
/// top.publish(vec![(7, vec!["192.0.2.1".into(), "7".into()]), (3, vec!["192.0.2.9".into(), "3".into()])]);
/// assert_eq!(top.rows()[0].1[0], "192.0.2.1");
/// ```
#[derive(Debug)]
pub struct StatsTable {
    columns: &'static [&'static str],
    max_rows: usize,
    rows: Mutex<Vec<Row>>,
}

/// A sort key and the cells of a row. Rows are shown by descending key.
pub type Row = (u64, Vec<String>);

impl StatsTable {
    /// Creates an empty table that keeps at most `max_rows` rows.
    pub fn new(columns: &'static [&'static str], max_rows: usize) -> Self {
        StatsTable { columns, max_rows, rows: Mutex::default() }
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> &'static [&'static str] {
        self.columns
    }

    /// Returns the maximum number of rows, which also bounds the merged table of several nodes.
    pub fn max_rows(&self) -> usize {
        self.max_rows
    }

    /// Replaces the rows.
    pub fn publish(&self, mut rows: Vec<Row>) {
        rows.truncate(self.max_rows);
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = rows;
    }

    /// Returns a copy of the current rows.
    pub fn rows(&self) -> Vec<Row> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
