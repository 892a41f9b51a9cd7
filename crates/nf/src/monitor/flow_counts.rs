//! Counts of flows by key.

use super::flow_record::{DirectionCounts, RoundTripTime};
use super::keys::Key;
use super::top_flows::TopFlows;
use crate::bits::for_each_bit;
use graph::Counters;
use packet::BURST;
use tables::flow::{FlowKey, FlowTable, Lookup, Prepared};

graph::named_enum! {
    /// Counters.
    pub(super) enum CounterId {
        /// Flows in the tables.
        Flows = "flows",
        New = "new",
        Expired = "expired",
        /// Flows replaced by new ones because the table was full.
        Evicted = "evicted",
        NotIp = "not_ip",
    }
}

/// Counts of a flow since they were last added to those of the largest.
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

impl<K: Key> FlowCounter<K> {
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
    pub(super) fn count(&mut self, now: u32, counters: &Counters<CounterId>, top: &mut TopFlows) {
        self.count_previous(now, counters, top);
        self.current ^= 1;
    }

    #[inline(always)]
    pub(super) fn count_previous(&mut self, now: u32, counters: &Counters<CounterId>, top: &mut TopFlows) {
        let previous = &mut self.bursts[(self.current ^ 1) & 1];
        let n = core::mem::take(&mut previous.n).min(BURST);
        let (keys, bytes) = (&previous.keys, &previous.bytes);
        let mut refused = 0u64;
        let evicted = |key: &K, flow: &FlowCounts| {
            counters[CounterId::Evicted].add(1);
            add(top, key, flow);
        };
        self.table.look_up_or_insert(
            &keys[..n],
            now,
            evicted,
            #[inline(always)]
            |at, found| {
                if let Lookup::Known(flow) | Lookup::New(flow) = found {
                    flow.packets += 1;
                    flow.bytes += u64::from(bytes[at & (BURST - 1)]);
                } else {
                    // all entries of its buckets were updated at this time
                    refused |= 1 << at;
                }
            },
        );
        for_each_bit(refused, |at| add(top, &keys[at].key(), &FlowCounts { packets: 1, bytes: bytes[at].into() }));
    }

    /// Adds the counts of the next buckets to those of the largest, and removes expired flows; returns their number.
    pub(super) fn age(&mut self, buckets: usize, now: u32, idle: u32, top: &mut TopFlows) -> usize {
        if self.table.is_empty() {
            return 0;
        }
        self.table.age(now, buckets, |key, flow, since| {
            if flow.packets != 0 {
                add(top, key, &core::mem::take(flow));
            }
            since >= idle
        })
    }
}

/// Adds the counts of a flow to those of the largest.
#[cold]
fn add(top: &mut TopFlows, key: &impl Key, flow: &FlowCounts) {
    let counts = DirectionCounts { packets: flow.packets, bytes: flow.bytes };
    top.add(key.endpoints(), [counts, DirectionCounts::default()], RoundTripTime::default());
}
