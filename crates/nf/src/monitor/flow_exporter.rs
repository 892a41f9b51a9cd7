//! A node that exports flows.

use super::flow_record::{FlowRecord, PacketInfo};
use super::ipfix::{EndReason, ExportedFlow, FlowRecords};
use super::plain::plain4;
use super::settings::{ExportSettings, Settings, no_table};
use super::top_flows::{AGEING_INTERVAL, AGEING_PARTS, COLUMNS, TopFlows};
use crate::Classification;
use crate::export::{Export, ipfix};
use diagnostics::Diagnostic;
use graph::{BoundedTable, BuildContext, Context, Counter, Counters, Named, Node, StatsTable};
use packet::{BURST, Batch, Packet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tables::flow::{FlowKey, FlowTable, Full, Lookup, Prepared, Settings as TableSettings, Tuple4, Tuple6};
use wire::IpProtocol;
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
        /// Packets of new flows for which there was no room.
        Refused = "refused_packets",
        /// Packets that were not sampled.
        NotSampled = "not_sampled",
        NotIp = "not_ip",
        /// Records sent to the collector.
        Exported = "exported",
        /// Records that the collector did not receive.
        ExportLost = "export_lost",
    }
}

/// Offset of the flags in a TCP header.
const FLAGS_AT: usize = 13;
/// Length of an Ethernet header; offsets of total length, protocol and TCP header of a plain packet over IPv4.
const ETHERNET: usize = 14;
const PLAIN4_LEN: usize = 16;
const PLAIN4_PROTOCOL: usize = 23;
const PLAIN4_UPPER: usize = 34;
/// Longest time that the flows of the tables wait for room in the queue at the end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Milliseconds after the last packet at which a closed connection is exported.
const CLOSED_MS: u32 = 1000;

/// Addresses and ports of either direction.
trait Key: FlowKey {
    fn either(self) -> (Self, bool);
    fn five_tuple(&self) -> FiveTuple;
}

impl Key for Tuple4 {
    #[inline(always)]
    fn either(self) -> (Self, bool) {
        Tuple4::either(self)
    }
    fn five_tuple(&self) -> FiveTuple {
        Tuple4::five_tuple(self)
    }
}

impl Key for Tuple6 {
    #[inline(always)]
    fn either(self) -> (Self, bool) {
        Tuple6::either(self)
    }
    fn five_tuple(&self) -> FiveTuple {
        Tuple6::five_tuple(self)
    }
}

/// Flows of one IP version, and the packets of the batch.
struct Flows<K: Key> {
    table: FlowTable<K, FlowRecord>,
    keys: [Prepared<K>; BURST],
    packets: [PacketInfo; BURST],
    n: usize,
}

/// Sending of records, and the clocks.
struct Output {
    export: Export<ExportedFlow>,
    /// Milliseconds since the Unix epoch at time 0 of the node's clock.
    epoch: u64,
    /// Time of the node's clock in milliseconds.
    now: u64,
    /// Time until which records wait for room in the queue, once no more packets come.
    deadline: Option<Instant>,
    has_biflows: bool,
    counters: Counters<CounterId>,
}

/// Returns addresses and ports of the first packet of a flow.
fn tuple_of(key: &impl Key, flow: &FlowRecord) -> FiveTuple {
    let tuple = key.five_tuple();
    if flow.is_reversed { tuple.reversed() } else { tuple }
}

impl Output {
    /// Exports a flow that has had packets since its last export.
    fn send(&self, key: &impl Key, flow: &FlowRecord, reason: EndReason) {
        if flow.total().0 == 0 {
            return;
        }
        let tuple = tuple_of(key, flow);
        // of times modulo 2³², all of which are in the past
        let time = |at: u32| self.epoch + self.now.saturating_sub(u64::from((self.now as u32).wrapping_sub(at)));
        let times = [time(flow.first), time(flow.last)];
        self.counters[CounterId::Exported].add(1);
        let record = ExportedFlow { tuple, flow: *flow, times, reason };
        match self.deadline {
            Some(deadline) => self.export.send_until(record, deadline),
            None => self.export.send(record),
        }
    }
}

impl<K: Key> Flows<K> {
    fn new(flows: u32) -> Result<Self, tables::flow::Error> {
        let settings = TableSettings { full: Full::EvictOldest, ..TableSettings::new(flows as usize) };
        let table = FlowTable::new(&settings)?;
        let keys = [table.prepare(K::default()); BURST];
        Ok(Flows { table, keys, packets: [PacketInfo::default(); BURST], n: 0 })
    }

    #[inline(always)]
    fn put(&mut self, key: K, mut packet: PacketInfo, has_biflows: bool) {
        let (key, is_reversed) = if has_biflows { key.either() } else { (key, false) };
        packet.is_reversed = is_reversed;
        let at = self.n & (BURST - 1);
        (self.keys[at], self.packets[at]) = (self.table.prepare(key), packet);
        self.n += 1;
    }

    /// Counts the packets of the batch. `unit` is the time of the table.
    #[inline(always)]
    fn count(&mut self, unit: u32, output: &Output) {
        let n = core::mem::take(&mut self.n).min(BURST);
        let (packets, now) = (&self.packets, output.now as u32);
        let evicted = |key: &K, flow: &FlowRecord| {
            output.counters[CounterId::Evicted].add(1);
            output.send(key, flow, EndReason::LackOfResources);
        };
        self.table.look_up_or_insert(
            &self.keys[..n],
            unit,
            evicted,
            #[inline(always)]
            |at, found| {
                let packet = packets[at & (BURST - 1)];
                match found {
                    Lookup::Known(flow) => flow.add(packet, now),
                    Lookup::New(flow) => flow.begin(packet, now),
                    Lookup::Refused => output.counters[CounterId::Refused].add(1),
                }
            },
        );
    }

    /// Exports flows of the next buckets that have ended, or whose active timeout has passed; returns the number of those
    /// that have ended.
    fn age(&mut self, buckets: usize, unit: u32, timeouts: Timeouts, output: &Output, top: &mut TopFlows) -> usize {
        if self.table.is_empty() {
            return 0;
        }
        let now = output.now as u32;
        self.table.age(unit, buckets, |key, flow, _| {
            let idle = now.wrapping_sub(flow.last);
            let reason = match timeouts {
                Timeouts::All => EndReason::Forced,
                Timeouts::Milliseconds { idle: limit, .. } if idle >= limit => EndReason::Idle,
                Timeouts::Milliseconds { .. } if idle >= CLOSED_MS && flow.is_closed(output.has_biflows) => {
                    EndReason::Closed
                }
                Timeouts::Milliseconds { active, .. } => {
                    let (packets, bytes) = flow.total();
                    top.add(bytes, packets, || tuple_of(key, flow));
                    if packets != 0 && now.wrapping_sub(flow.first) >= active {
                        output.send(key, flow, EndReason::Active);
                        flow.reset();
                    }
                    return false;
                }
            };
            if reason == EndReason::Forced {
                let (packets, bytes) = flow.total();
                top.add(bytes, packets, || tuple_of(key, flow));
            }
            output.send(key, flow, reason);
            true
        })
    }
}

/// Timeouts of a search for flows that have ended.
#[derive(Clone, Copy)]
enum Timeouts {
    Milliseconds {
        idle: u32,
        active: u32,
    },
    /// All flows end.
    All,
}

/// Counts flows with times and properties, and exports them.
pub(super) struct FlowExporter {
    v4: Flows<Tuple4>,
    v6: Flows<Tuple6>,
    timeouts: Timeouts,
    /// Time unit of the tables as a power of two of milliseconds.
    time_unit: u32,
    has_biflows: bool,
    sample: u32,
    /// Number of packets before the next one that is counted.
    skip: u32,
    output: Output,
    top_flows: TopFlows,
    /// Buckets that the current search has visited.
    buckets_visited: usize,
    stats_table: Arc<StatsTable>,
    /// The flows of IPv4 and of IPv6.
    bounded_tables: [BoundedTable; 2],
}

impl FlowExporter {
    pub(super) fn new(
        settings: &Settings,
        export: &ExportSettings,
        time_unit: u32,
        cx: &BuildContext,
    ) -> Result<FlowExporter, Diagnostic> {
        let ExportSettings { to, active, biflows, sample } = export;
        let address: SocketAddr = to.parse().map_err(|_| {
            let d = Diagnostic::new("is not an address and port").key("export.to").value(to);
            d.remedy("write the address and port of a collector: \"192.0.2.1:4739\"")
        })?;
        if !(1..=86_400).contains(active) {
            let d = Diagnostic::new("active timeout is out of range").key("export.active").value(active);
            return Err(d.remedy("write 1 to 86400 seconds"));
        }
        if !(1..=65_535).contains(sample) {
            let d = Diagnostic::new("sampling interval is out of range").key("export.sample").value(sample);
            return Err(d.remedy("write 1 to 65535; with 100, one of a hundred packets is counted"));
        }
        let flows = |e| no_table(settings.flows, &e);
        let (v4, v6) = (Flows::new(settings.flows).map_err(flows)?, Flows::new(settings.flows).map_err(flows)?);
        let counters = Counters::default();
        let records = FlowRecords { has_biflows: *biflows, sample: *sample };
        let domain = cx.copy.0 as u32 + 1;
        let run = move |socket, queue, lost| ipfix::run(socket, records, domain, &queue, lost);
        let counter = counters[CounterId::ExportLost].clone();
        let export = Export::to_server("flow-export", address, counter, run).map_err(|e| {
            let d = Diagnostic::new(format!("cannot be exported to: {e}")).key("export.to").value(to);
            d.remedy("name the address and port of a collector that this host has a route to")
        })?;
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        Ok(FlowExporter {
            v4,
            v6,
            timeouts: Timeouts::Milliseconds { idle: settings.idle.saturating_mul(1000), active: active * 1000 },
            time_unit,
            has_biflows: *biflows,
            sample: *sample,
            skip: 0,
            output: Output { export, epoch, now: 0, deadline: None, has_biflows: *biflows, counters },
            top_flows: TopFlows::new(settings.top as usize),
            buckets_visited: 0,
            stats_table: Arc::new(StatsTable::new(&COLUMNS, settings.top as usize)),
            bounded_tables: ["flows_ipv4", "flows_ipv6"].map(|name| BoundedTable::new(name, settings.flows.into())),
        })
    }

    /// Sets the time; returns that of the tables.
    fn set_time(&mut self, cx: &Context<'_>) -> u32 {
        self.output.now = cx.now().as_millis() as u64;
        self.unit()
    }

    fn unit(&self) -> u32 {
        (self.output.now >> self.time_unit) as u32
    }

    #[inline(always)]
    fn put(&mut self, packet: &Packet) {
        if self.sample > 1 {
            if self.skip > 0 {
                self.skip -= 1;
                return self.output.counters[CounterId::NotSampled].add(1);
            }
            self.skip = self.sample - 1;
        }
        let frame = packet.data();
        let application = packet.meta().metadata::<Classification>().map_or(0, |found| found.application);
        let mut info = PacketInfo { bytes: frame.len() as u32, application, ..PacketInfo::default() };
        match plain4(frame) {
            Some(key) => {
                // without the padding of short frames
                let has_flags = frame.get(PLAIN4_LEN) != Some(&0)
                    || frame
                        .get(PLAIN4_LEN + 1)
                        .is_some_and(|len| usize::from(*len) > PLAIN4_UPPER + FLAGS_AT - ETHERNET);
                if frame.get(PLAIN4_PROTOCOL) == Some(&IpProtocol::TCP.0) && has_flags {
                    info.tcp_flags = frame.get(PLAIN4_UPPER + FLAGS_AT).copied().unwrap_or_default();
                }
                self.v4.put(key, info, self.has_biflows);
            }
            None => self.put_any(frame, info),
        }
    }

    /// Adds a packet that is not plain.
    #[cold]
    fn put_any(&mut self, frame: &[u8], mut info: PacketInfo) {
        let Some((t, upper)) = FiveTuple::of_frame_with_upper(frame) else {
            return self.output.counters[CounterId::NotIp].add(1);
        };
        if t.protocol == IpProtocol::TCP {
            info.tcp_flags = upper.get(FLAGS_AT).copied().unwrap_or_default();
        }
        match (t.src, t.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let key = Tuple4::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0);
                self.v4.put(key, info, self.has_biflows);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let key = Tuple6::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0);
                self.v6.put(key, info, self.has_biflows);
            }
            _ => self.output.counters[CounterId::NotIp].add(1),
        }
    }

    /// Searches the next buckets of both tables, and publishes the largest flows once all have been visited.
    fn age(&mut self, buckets: usize, timeouts: Timeouts) {
        let unit = self.unit();
        let all = self.v4.table.buckets();
        let buckets = buckets.min(all - self.buckets_visited);
        let expired = self.v4.age(buckets, unit, timeouts, &self.output, &mut self.top_flows)
            + self.v6.age(buckets, unit, timeouts, &self.output, &mut self.top_flows);
        let counters = &self.output.counters;
        counters[CounterId::Expired].add(expired as u64);
        self.buckets_visited += buckets;
        if self.buckets_visited == all {
            self.buckets_visited = 0;
            self.stats_table.publish(self.top_flows.take());
        }
        let lens = [self.v4.table.len() as u64, self.v6.table.len() as u64];
        counters[CounterId::Flows].set(lens.iter().sum());
        self.bounded_tables.iter().zip(lens).for_each(|(table, len)| table.entries.set(len));
        counters[CounterId::New].set(self.v4.table.counters().inserted + self.v6.table.counters().inserted);
        self.output.export.update_counter();
    }
}

impl Node for FlowExporter {
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.output.counters.named()
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec![CounterId::Flows.name()]
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.bounded_tables.to_vec()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let unit = self.set_time(cx);
        batch.for_each(
            #[inline(always)]
            |packet| self.put(packet),
        );
        self.v4.count(unit, &self.output);
        if self.v6.n != 0 {
            self.v6.count(unit, &self.output);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(AGEING_INTERVAL)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.set_time(cx);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        // the clock of the host may be set
        self.output.epoch = now.saturating_sub(self.output.now);
        self.age(self.v4.table.buckets().div_ceil(AGEING_PARTS), self.timeouts);
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.stats_table.clone())
    }

    fn finish(&mut self) {
        self.buckets_visited = 0;
        self.top_flows.take();
        self.output.deadline = Some(Instant::now() + FINISH_TIMEOUT);
        self.age(self.v4.table.buckets(), Timeouts::All);
        self.output.deadline = None;
    }
}

impl Drop for FlowExporter {
    /// Exports the flows of an NF that a reload has replaced or removed.
    fn drop(&mut self) {
        if !self.v4.table.is_empty() || !self.v6.table.is_empty() {
            self.finish();
        }
    }
}
