//! What an NF shows besides counts.

use std::sync::{Mutex, PoisonError};

/// A table that a node shows, such as its largest flows: the node writes it now and then, anybody reads it.
#[derive(Debug)]
pub struct StatsTable {
    columns: &'static [&'static str],
    most: usize,
    rows: Mutex<Vec<Row>>,
}

/// A row and what it is ordered by, largest first.
pub type Row = (u64, Vec<String>);

impl StatsTable {
    /// An empty table of at most `most` rows.
    pub fn new(columns: &'static [&'static str], most: usize) -> Self {
        StatsTable { columns, most, rows: Mutex::default() }
    }

    /// Names of its columns.
    pub fn columns(&self) -> &'static [&'static str] {
        self.columns
    }

    /// Rows that it has at most, also when those of several nodes are put together.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Shows these rows from now on.
    pub fn show(&self, mut rows: Vec<Row>) {
        rows.truncate(self.most);
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = rows;
    }

    /// What it shows.
    pub fn rows(&self) -> Vec<Row> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
