//! The largest flows.

use graph::Row;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use wire::IpProtocol;
use wire::flow::FiveTuple;

/// Interval at which a part of the tables is searched for expired flows.
pub(super) const AGEING_INTERVAL: Duration = Duration::from_millis(1);
/// Number of parts: the whole tables are searched in a second.
pub(super) const AGEING_PARTS: usize = 1000;
/// Columns of the statistics table.
pub(super) const COLUMNS: [&str; 7] = ["bytes", "packets", "source", "port", "destination", "port", "protocol"];

/// Largest flows of a search through the tables.
pub(super) struct TopFlows {
    count: usize,
    heap: BinaryHeap<Reverse<(u64, u64, FiveTuple)>>,
}

impl TopFlows {
    pub(super) fn new(count: usize) -> Self {
        TopFlows { count, heap: BinaryHeap::new() }
    }

    /// Adds a flow if it is one of the largest so far.
    pub(super) fn add(&mut self, bytes: u64, packets: u64, tuple: impl FnOnce() -> FiveTuple) {
        if self.heap.len() >= self.count && self.heap.peek().is_none_or(|smallest| smallest.0.0 >= bytes) {
            return;
        }
        self.heap.push(Reverse((bytes, packets, tuple())));
        if self.heap.len() > self.count {
            self.heap.pop();
        }
    }

    /// Removes and returns all flows, largest first.
    pub(super) fn take(&mut self) -> Vec<Row> {
        let mut flows: Vec<_> = core::mem::take(&mut self.heap).into_iter().map(|r| r.0).collect();
        flows.sort_by(|a, b| b.cmp(a));
        let row = |(bytes, packets, t): (u64, u64, FiveTuple)| {
            let protocol = match t.protocol {
                IpProtocol::TCP => "tcp".to_owned(),
                IpProtocol::UDP => "udp".to_owned(),
                IpProtocol::ICMPV4 => "icmp".to_owned(),
                IpProtocol::ICMPV6 => "icmpv6".to_owned(),
                other => other.0.to_string(),
            };
            let columns = [
                bytes.to_string(),
                packets.to_string(),
                t.src.to_string(),
                t.src_port.to_string(),
                t.dst.to_string(),
                t.dst_port.to_string(),
                protocol,
            ];
            (bytes, columns.into())
        };
        flows.into_iter().map(row).collect()
    }
}
