//! Counts of flows by key.

use super::top_flows::TopFlows;
use graph::Counters;
use packet::BURST;
use tables::flow::{FlowKey, FlowTable, Lookup, Prepared};
use wire::flow::FiveTuple;

graph::named_enum! {
    /// Counters.
    pub(super) enum CounterId {
        /// Flows in the tables.
        Flows = "flows",
        New = "new",
        Expired = "expired",
        /// Flows replaced by new ones because the table was full.
        Evicted = "evicted",
        EvictedPackets = "evicted_packets",
        EvictedBytes = "evicted_bytes",
        NotIp = "not_ip",
    }
}

/// Counts of a flow.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FlowCounts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// Flows of one IP version.
pub(super) struct FlowCounter<K: FlowKey> {
    pub(super) table: FlowTable<K, FlowCounts>,
    /// Packets of the current batch and of the previous one, whose entries are being prefetched.
    pub(super) bursts: [Burst<K>; 2],
    /// Index of the current batch's burst.
    pub(super) current: usize,
}

/// Packets of a batch that are not counted yet.
pub(super) struct Burst<K> {
    pub(super) keys: [Prepared<K>; BURST],
    pub(super) bytes: [u32; BURST],
    pub(super) n: usize,
}

impl<K: FlowKey> Burst<K> {
    #[inline(always)]
    pub(super) fn put(&mut self, table: &FlowTable<K, FlowCounts>, at: usize, key: K, bytes: usize) {
        let at = at & (BURST - 1);
        (self.keys[at], self.bytes[at]) = (table.prepare(key), bytes as u32);
    }
}

impl<K: FlowKey + Default> FlowCounter<K> {
    pub(super) fn new(table: FlowTable<K, FlowCounts>) -> Self {
        let burst = || Burst { keys: [table.prepare(K::default()); BURST], bytes: [0; BURST], n: 0 };
        FlowCounter { bursts: [burst(), burst()], current: 0, table }
    }

    pub(super) fn put(&mut self, key: K, bytes: usize) {
        let FlowCounter { table, bursts, current } = self;
        let burst = &mut bursts[*current & 1];
        burst.put(table, burst.n, key, bytes);
        burst.n += 1;
    }

    /// Counts the previous batch, while the entries of the current one are prefetched.
    #[inline(always)]
    pub(super) fn count(&mut self, now: u32, counters: &Counters<CounterId>) {
        self.count_previous(now, counters);
        self.current ^= 1;
    }

    #[inline(always)]
    pub(super) fn count_previous(&mut self, now: u32, counters: &Counters<CounterId>) {
        let previous = &mut self.bursts[(self.current ^ 1) & 1];
        let n = core::mem::take(&mut previous.n).min(BURST);
        let bytes = &previous.bytes;
        let evicted = |_: &K, flow: &FlowCounts| {
            counters[CounterId::Evicted].add(1);
            counters[CounterId::EvictedPackets].add(flow.packets);
            counters[CounterId::EvictedBytes].add(flow.bytes);
        };
        self.table.look_up_or_insert(
            &previous.keys[..n],
            now,
            evicted,
            #[inline(always)]
            |at, found| {
                let bytes = u64::from(bytes[at & (BURST - 1)]);
                if let Lookup::Known(flow) | Lookup::New(flow) = found {
                    flow.packets += 1;
                    flow.bytes += bytes;
                } else {
                    // all entries of its buckets were updated at this time
                    counters[CounterId::EvictedPackets].add(1);
                    counters[CounterId::EvictedBytes].add(bytes);
                }
            },
        );
    }

    /// Removes expired flows from the next buckets and collects the largest; returns the number of removed flows.
    pub(super) fn age(
        &mut self,
        buckets: usize,
        now: u32,
        idle: u32,
        top_flows: &mut TopFlows,
        tuple: impl Fn(&K) -> FiveTuple,
    ) -> usize {
        if self.table.is_empty() {
            return 0;
        }
        self.table.age(now, buckets, |key, flow, since| {
            if since < idle {
                top_flows.add(flow.bytes, flow.packets, || tuple(key));
            }
            since >= idle
        })
    }
}
