//! Packet and byte counts of flows.

mod flow_counts;
mod flow_exporter;
mod flow_record;
mod heavy_hitters;
mod ipfix;
mod keys;
mod plain;
mod settings;
mod top_flows;

use crate::bits::for_each_bit;
use diagnostics::Diagnostic;
use flow_counts::{CounterId, FlowCounter};
use flow_exporter::FlowExporter;
use graph::{BoundedTable, BuildContext, Context, Counter, Counters, Either, Named, Nf, Node, Spread, StatsTable};
use packet::Batch;
use plain::plain4;
use settings::{Settings, no_table};
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{FlowTable, Full, Settings as TableSettings, Tuple4, Tuple6};
use top_flows::TopFlows;
use wire::flow::FiveTuple;

/// `monitor`: counts packets and bytes of every flow, lists the largest, and exports flows.
pub struct Monitor;

/// Maximum of the setting `top`.
const TOP_MAX: u32 = 1 << 20;
/// Interval at which a part of the tables is searched for expired flows.
const AGEING_INTERVAL: Duration = Duration::from_millis(1);
/// Number of parts: the whole tables are searched in a second.
const AGEING_PARTS: usize = 1000;

impl Nf for Monitor {
    type Settings = Settings;
    const KIND: &'static str = "monitor";
    const ABOUT: &'static str = "Counts packets and bytes of every flow, lists the largest flows or addresses, and exports flows by IPFIX; all packets pass.";
    const SPREAD: Spread = Spread::Symmetric;
    const EXAMPLE: &'static str = "flows = 1000000\ntop = 20";

    fn spread(settings: &Settings) -> Spread {
        // both directions of a biflow have one record
        if settings.export.as_ref().is_some_and(|export| export.biflows) { Spread::Symmetric } else { Spread::Flow }
    }

    fn build(settings: &Settings, cx: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let Settings { flows, idle, top, top_by, ref export } = *settings;
        if top > TOP_MAX {
            let d = Diagnostic::new("too many flows for the statistics table").key("top").value(top);
            return Err(d.remedy(format!("write {TOP_MAX} or fewer")));
        }
        if idle == 0 || idle > 1_000_000 {
            let d = Diagnostic::new("idle timeout is out of range").key("idle").value(idle);
            return Err(d.remedy("write 1 to 1000000 seconds"));
        }
        // the timeout takes at most half the range of the table's clock, and the time of a busy flow is not written
        // with every packet
        let time_unit = ((idle * 1000) >> 20).checked_ilog2().map_or(0, |bits| bits + 1).max(4);
        if let Some(export) = export {
            return FlowExporter::new(settings, export, time_unit, cx).map(Either::A);
        }
        let invalid = |e: tables::flow::Error| no_table(flows, &e);
        let table = TableSettings { full: Full::EvictOldest, ..TableSettings::new(flows as usize) };
        Ok(Either::B(MonitorNode {
            v4: FlowCounter::new(FlowTable::new(&table).map_err(invalid)?),
            v6: FlowCounter::new(FlowTable::new(&table).map_err(invalid)?),
            idle: (idle * 1000) >> time_unit,
            time_unit,
            top_flows: TopFlows::new(top_by, top as usize, false),
            buckets_visited: 0,
            bounded_tables: ["flows_ipv4", "flows_ipv6"].map(|name| BoundedTable::new(name, flows.into())),
            counters: Counters::default(),
        }))
    }
}

struct MonitorNode {
    v4: FlowCounter<Tuple4>,
    v6: FlowCounter<Tuple6>,
    /// Idle timeout in time units.
    idle: u32,
    /// Time unit as a power of two of milliseconds.
    time_unit: u32,
    top_flows: TopFlows,
    /// Buckets that the current search has visited.
    buckets_visited: usize,
    counters: Counters<CounterId>,
    /// The flows of IPv4 and of IPv6.
    bounded_tables: [BoundedTable; 2],
}

impl MonitorNode {
    /// Adds a packet that is not plain.
    #[cold]
    fn put_any(&mut self, frame: &[u8]) {
        let Some(t) = FiveTuple::of_frame(frame) else { return self.counters[CounterId::NotIp].add(1) };
        match (t.src, t.dst) {
            (core::net::IpAddr::V4(src), core::net::IpAddr::V4(dst)) => {
                let key = Tuple4::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0);
                self.v4.put(key, frame.len());
            }
            (core::net::IpAddr::V6(src), core::net::IpAddr::V6(dst)) => {
                let key = Tuple6::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0);
                self.v6.put(key, frame.len());
            }
            _ => self.counters[CounterId::NotIp].add(1),
        }
    }

    fn clock(&self, cx: &Context<'_>) -> u32 {
        (cx.now().as_millis() >> self.time_unit) as u32
    }

    /// Searches the next buckets of both tables, and publishes the largest flows once all have been visited.
    fn age(&mut self, buckets: usize, now: u32) {
        self.v4.count_previous(now, &self.counters, &mut self.top_flows);
        self.v6.count_previous(now, &self.counters, &mut self.top_flows);
        let all = self.v4.table.buckets();
        let buckets = buckets.min(all - self.buckets_visited);
        let expired = self.v4.age(buckets, now, self.idle, &mut self.top_flows)
            + self.v6.age(buckets, now, self.idle, &mut self.top_flows);
        self.counters[CounterId::Expired].add(expired as u64);
        self.buckets_visited += buckets;
        if self.buckets_visited == all {
            self.buckets_visited = 0;
            self.top_flows.publish();
        }
        let lens = [self.v4.table.len() as u64, self.v6.table.len() as u64];
        self.counters[CounterId::Flows].set(lens.iter().sum());
        self.bounded_tables.iter().zip(lens).for_each(|(table, len)| table.entries.set(len));
        let new = self.v4.table.counters().inserted + self.v6.table.counters().inserted;
        self.counters[CounterId::New].set(new);
    }
}

impl Node for MonitorNode {
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.counters.named()
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec![CounterId::Flows.name()]
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.bounded_tables.to_vec()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let FlowCounter { table, bursts, current } = &mut self.v4;
        let burst = &mut bursts[*current & 1];
        let (mut not_plain, mut at, mut n) = (0u64, 0, burst.n);
        batch.for_each(
            #[inline(always)]
            |packet| {
                let frame = packet.data();
                match plain4(frame) {
                    Some(key) => {
                        burst.put(table, n, key, frame.len());
                        n += 1;
                    }
                    None => not_plain |= 1 << at,
                }
                at += 1;
            },
        );
        burst.n = n;
        for_each_bit(not_plain, |at| self.put_any(batch.as_slice()[at].data()));
        let now = self.clock(cx);
        self.v4.count(now, &self.counters, &mut self.top_flows);
        if self.v6.bursts.iter().any(|burst| burst.n != 0) {
            self.v6.count(now, &self.counters, &mut self.top_flows);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(AGEING_INTERVAL)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = self.clock(cx);
        self.age(self.v4.table.buckets().div_ceil(AGEING_PARTS), now);
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.top_flows.table.clone())
    }

    fn finish(&mut self) {
        self.buckets_visited = 0;
        // flows that would expire now stay
        self.idle = u32::MAX;
        self.age(self.v4.table.buckets(), 0);
    }
}

#[cfg(test)]
mod tests;
