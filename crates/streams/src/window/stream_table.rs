//! Table of the streams with the most bytes, for the statistics.

use super::Verdict;
use graph::{Row, StatsTable};
use std::net::SocketAddr;
use std::sync::Arc;
use wire::flow::FiveTuple;

/// Number of streams in the table.
const ROWS: usize = 10;
const COLUMNS: [&str; 5] = ["inspected bytes", "client", "server", "bytes to client", "verdict"];

/// A stream in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamRow {
    /// Number of the flow.
    pub(super) number: u32,
    /// Addresses and ports, from the client to the server.
    pub(super) tuple: FiveTuple,
    /// Bytes to the server and to the client, gaps included.
    pub(super) bytes: [u64; 2],
    pub(super) verdict: Verdict,
}

impl StreamRow {
    fn total(&self) -> u64 {
        self.bytes[0] + self.bytes[1]
    }

    fn cells(&self) -> Row {
        let FiveTuple { src, dst, src_port, dst_port, .. } = self.tuple;
        let verdict = match self.verdict {
            Verdict::Forward => "forward",
            Verdict::Pass => "pass",
            Verdict::Drop => "drop",
        };
        let client = SocketAddr::new(src, src_port).to_string();
        let server = SocketAddr::new(dst, dst_port).to_string();
        let cells = vec![self.total().to_string(), client, server, self.bytes[1].to_string(), verdict.to_owned()];
        (self.total(), cells)
    }
}

/// The streams with the most bytes of those added, at most [`ROWS`], and the table that they are published in.
pub(super) struct StreamTable {
    largest: Vec<StreamRow>,
    table: Arc<StatsTable>,
}

impl StreamTable {
    pub(super) fn new() -> Self {
        StreamTable { largest: Vec::with_capacity(ROWS + 1), table: Arc::new(StatsTable::new(&COLUMNS, ROWS)) }
    }

    pub(super) fn table(&self) -> Arc<StatsTable> {
        self.table.clone()
    }

    /// Adds a stream.
    #[inline]
    pub(super) fn add(&mut self, row: impl FnOnce() -> StreamRow, bytes: u64) {
        if bytes == 0 || self.largest.len() == ROWS && self.largest.last().is_some_and(|last| bytes <= last.total()) {
            return;
        }
        let row = row();
        // a small flow table is scanned more than once between two tables
        self.largest.retain(|other| other.number != row.number);
        let at = self.largest.partition_point(|other| other.total() >= bytes);
        self.largest.insert(at, row);
        self.largest.truncate(ROWS);
    }

    /// Removes the streams added since they were last published.
    pub(super) fn clear(&mut self) {
        self.largest.clear();
    }

    /// Publishes the streams added since the last call.
    pub(super) fn publish(&mut self) {
        self.table.publish(self.largest.drain(..).map(|row| row.cells()).collect());
    }
}
