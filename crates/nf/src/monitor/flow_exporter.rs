//! A node that exports flows.

use super::flow_record::{FlowRecord, PacketInfo};
use super::ipfix::{EndReason, ExportedFlow, FlowRecords};
use super::keys::{Endpoints, FrameKey, Key};
use super::plain::plain4;
use super::settings::{ExportSettings, Settings, no_table};
use super::top_flows::TopFlows;
use crate::Classification;
use crate::bits::for_each_bit;
use crate::export::{Export, ipfix};
use diagnostics::Diagnostic;
use graph::{BoundedTable, BuildContext, Context, Counter, Counters, Named, Node, StatsTable};
use packet::{BURST, Batch, Packet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tables::flow::{FlowTable, Full, Lookup, Prepared, Settings as TableSettings, Tuple4, Tuple6};
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
        /// Packets of new flows for which there was no room, which the exported records do not contain.
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
/// Largest number of flows of frames without IP.
const FRAME_FLOWS_MAX: u32 = 4096;
/// Time in which all flows are searched for those that have ended.
const SEARCH_TIME: Duration = Duration::from_secs(1);
/// Interval of parts of the search. The shorter one makes the clock exact enough for round-trip times.
const INTERVAL: Duration = Duration::from_millis(1);
const RTT_INTERVAL: Duration = Duration::from_micros(100);
/// Longest time that the flows of the tables wait for room in the queue at the end.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Milliseconds after the last packet at which a closed connection is exported.
const CLOSED_MS: u32 = 1000;

/// Flows with one type of key, and the packets of the batch.
struct Flows<K: Key> {
    table: FlowTable<K, FlowRecord>,
    keys: [Prepared<K>; BURST],
    packets: [PacketInfo; BURST],
    n: usize,
}

/// Sending of records, and the clocks.
struct Output {
    export: Export<ExportedFlow>,
    /// Milliseconds since the Unix epoch at time 0 of the node's clock, once that is known.
    epoch: Option<u64>,
    /// Time of the node's clock in milliseconds.
    now: u64,
    /// The same in microseconds, modulo 2³².
    now_us: u32,
    /// Time until which records wait for room in the queue, once no more packets come.
    deadline: Option<Instant>,
    has_biflows: bool,
    counters: Counters<CounterId>,
}

/// Returns the ends of a flow in the direction of its first packet.
fn endpoints_of(key: &impl Key, flow: &FlowRecord) -> Endpoints {
    let endpoints = key.endpoints();
    if flow.is_reversed { endpoints.reversed() } else { endpoints }
}

/// Counts the packets of a flow since the last call for the largest flows.
fn add_recent(top: &mut TopFlows, key: &impl Key, flow: &mut FlowRecord) {
    if let Some(recent) = flow.take_recent() {
        top.add(endpoints_of(key, flow), recent, flow.rtt());
    }
}

impl Output {
    /// Exports a flow that has had packets since its last export.
    fn send(&self, key: &impl Key, flow: &FlowRecord, reason: EndReason) {
        if !flow.has_packets() {
            return;
        }
        // of times modulo 2³², all of which are in the past
        let epoch = self.epoch.unwrap_or(0);
        let time = |at: u32| epoch + self.now.saturating_sub(u64::from((self.now as u32).wrapping_sub(at)));
        let times = [time(flow.first), time(flow.last)];
        self.counters[CounterId::Exported].add(1);
        let record = ExportedFlow { endpoints: endpoints_of(key, flow), flow: *flow, times, reason };
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
    fn count(&mut self, unit: u32, output: &Output, top: &mut TopFlows) {
        let n = core::mem::take(&mut self.n).min(BURST);
        let (keys, packets, now) = (&self.keys, &self.packets, output.now as u32);
        let mut refused = 0u64;
        let evicted = |key: &K, flow: &FlowRecord| {
            output.counters[CounterId::Evicted].add(1);
            add_recent(top, key, &mut flow.clone());
            output.send(key, flow, EndReason::LackOfResources);
        };
        self.table.look_up_or_insert(
            &keys[..n],
            unit,
            evicted,
            #[inline(always)]
            |at, found| {
                let packet = packets[at & (BURST - 1)];
                match found {
                    Lookup::Known(flow) => flow.add(packet, now),
                    Lookup::New(flow) => flow.begin(packet, now),
                    Lookup::Refused => refused |= 1 << at,
                }
            },
        );
        for_each_bit(refused, |at| {
            output.counters[CounterId::Refused].add(1);
            let mut flow = FlowRecord::default();
            flow.begin(packets[at], now);
            add_recent(top, &keys[at].key(), &mut flow);
        });
    }

    /// Exports flows of the next buckets that have ended, or whose active timeout has passed, and counts the packets of
    /// all for the largest; returns the number of flows that have ended.
    fn age(&mut self, search: Search, unit: u32, output: &Output, top: &mut TopFlows) -> usize {
        if self.table.is_empty() {
            return 0;
        }
        let (now, all) = (output.now as u32, self.table.buckets());
        let buckets = match search {
            Search::All => all,
            Search::Part { micros, .. } => (all * micros).div_ceil(SEARCH_TIME.as_micros() as usize),
        };
        self.table.age(unit, buckets, |key, flow, _| {
            add_recent(top, key, flow);
            let idle = now.wrapping_sub(flow.last);
            let reason = match search {
                Search::All => EndReason::Forced,
                Search::Part { idle: limit, .. } if idle >= limit => EndReason::Idle,
                Search::Part { .. } if idle >= CLOSED_MS && flow.is_closed(output.has_biflows) => EndReason::Closed,
                Search::Part { active, .. } => {
                    if flow.has_packets() && now.wrapping_sub(flow.first) >= active {
                        output.send(key, flow, EndReason::Active);
                        flow.reset();
                    }
                    return false;
                }
            };
            output.send(key, flow, reason);
            true
        })
    }
}

/// A search for flows that have ended.
#[derive(Clone, Copy)]
enum Search {
    /// The part of the flows that is due after this time in microseconds, with timeouts in milliseconds.
    Part { micros: usize, idle: u32, active: u32 },
    /// All flows, all of which end.
    All,
}

/// Counts flows with times and properties, and exports them.
pub(super) struct FlowExporter {
    v4: Flows<Tuple4>,
    v6: Flows<Tuple6>,
    frames: Flows<FrameKey>,
    /// Timeouts in milliseconds.
    idle: u32,
    active: u32,
    /// Time unit of the tables as a power of two of milliseconds.
    time_unit: u32,
    records: FlowRecords,
    /// Number of packets before the next one that is counted.
    skip: u32,
    output: Output,
    top_flows: TopFlows,
    /// Times of the node's clock at which a part of the flows was searched, and at which the largest were published.
    searched: Duration,
    published: Duration,
    /// The flows of IPv4, of IPv6, and of other frames.
    bounded_tables: [BoundedTable; 3],
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
        let no_table = |e| no_table(settings.flows, &e);
        let frame_flows = settings.flows.min(FRAME_FLOWS_MAX);
        let counters = Counters::default();
        let records = FlowRecords { has_biflows: *biflows, sample: *sample };
        let names = [("flows_ipv4", settings.flows), ("flows_ipv6", settings.flows), ("flows_not_ip", frame_flows)];
        let domain = cx.copy.0 as u32 + 1;
        let run = move |socket, queue, lost| ipfix::run(socket, records, domain, &queue, lost);
        let counter = counters[CounterId::ExportLost].clone();
        let export = Export::to_server("flow-export", address, counter, run).map_err(|e| {
            let d = Diagnostic::new(format!("cannot be exported to: {e}")).key("export.to").value(to);
            d.remedy("name the address and port of a collector that this host has a route to")
        })?;
        Ok(FlowExporter {
            v4: Flows::new(settings.flows).map_err(no_table)?,
            v6: Flows::new(settings.flows).map_err(no_table)?,
            frames: Flows::new(frame_flows).map_err(no_table)?,
            idle: settings.idle.saturating_mul(1000),
            active: active * 1000,
            time_unit,
            records,
            skip: 0,
            output: Output { export, epoch: None, now: 0, now_us: 0, deadline: None, has_biflows: *biflows, counters },
            top_flows: TopFlows::new(settings.top_by, settings.top as usize, records.has_rtt()),
            searched: Duration::ZERO,
            published: Duration::ZERO,
            bounded_tables: names.map(|(name, flows)| BoundedTable::new(name, flows.into())),
        })
    }

    /// Sets the time; returns that of the tables.
    fn set_time(&mut self, cx: &Context<'_>) -> u32 {
        (self.output.now, self.output.now_us) = (cx.now().as_millis() as u64, cx.now().as_micros() as u32);
        if self.output.epoch.is_none() {
            self.set_epoch(cx);
        }
        self.unit()
    }

    /// Sets the time since the Unix epoch, as the clock of the host may be set.
    fn set_epoch(&mut self, cx: &Context<'_>) {
        self.output.epoch = Some((cx.unix_time().as_millis() as u64).saturating_sub(self.output.now));
    }

    fn unit(&self) -> u32 {
        (self.output.now >> self.time_unit) as u32
    }

    #[inline(always)]
    fn put(&mut self, packet: &Packet) {
        if self.records.sample > 1 {
            if self.skip > 0 {
                self.skip -= 1;
                return self.output.counters[CounterId::NotSampled].add(1);
            }
            self.skip = self.records.sample - 1;
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
                    info.at_us = self.time_of(packet);
                }
                self.v4.put(key, info, self.records.has_biflows);
            }
            None => self.put_any(packet, info),
        }
    }

    /// Returns the time of a TCP packet for round-trip times: that of its capture, if it is from one.
    #[inline(always)]
    fn time_of(&self, packet: &Packet) -> Option<u32> {
        let captured = || packet.meta().capture_info().map(|info| (info.ns / 1000) as u32);
        self.records.has_rtt().then(|| captured().unwrap_or(self.output.now_us))
    }

    /// Adds a packet that is not plain.
    #[cold]
    fn put_any(&mut self, packet: &Packet, mut info: PacketInfo) {
        let (frame, has_biflows) = (packet.data(), self.records.has_biflows);
        let Some((t, upper)) = FiveTuple::of_frame_with_upper(frame) else {
            self.output.counters[CounterId::NotIp].add(1);
            if let Some(key) = FrameKey::of_frame(frame) {
                self.frames.put(key, info, has_biflows);
            }
            return;
        };
        if t.protocol == IpProtocol::TCP {
            info.tcp_flags = upper.get(FLAGS_AT).copied().unwrap_or_default();
            info.at_us = self.time_of(packet);
        }
        match (t.src, t.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let key = Tuple4::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0);
                self.v4.put(key, info, has_biflows);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let key = Tuple6::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0);
                self.v6.put(key, info, has_biflows);
            }
            _ => self.output.counters[CounterId::NotIp].add(1),
        }
    }

    /// Searches all tables for flows that have ended.
    fn age(&mut self, search: Search) {
        let (unit, output, top) = (self.unit(), &self.output, &mut self.top_flows);
        let expired = self.v4.age(search, unit, output, top)
            + self.v6.age(search, unit, output, top)
            + self.frames.age(search, unit, output, top);
        output.counters[CounterId::Expired].add(expired as u64);
        let lens = [self.v4.table.len(), self.v6.table.len(), self.frames.table.len()].map(|len| len as u64);
        output.counters[CounterId::Flows].set(lens.iter().sum());
        self.bounded_tables.iter().zip(lens).for_each(|(table, len)| table.entries.set(len));
        let tables = [self.v4.table.counters(), self.v6.table.counters(), self.frames.table.counters()];
        output.counters[CounterId::New].set(tables.iter().map(|counters| counters.inserted).sum());
        output.export.update_counter();
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
        self.v4.count(unit, &self.output, &mut self.top_flows);
        if self.v6.n != 0 {
            self.v6.count(unit, &self.output, &mut self.top_flows);
        }
        if self.frames.n != 0 {
            self.frames.count(unit, &self.output, &mut self.top_flows);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(if self.records.has_rtt() { RTT_INTERVAL } else { INTERVAL })
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.set_time(cx);
        self.set_epoch(cx);
        let since_search = cx.now().saturating_sub(self.searched).min(SEARCH_TIME);
        self.searched = cx.now();
        self.age(Search::Part { micros: since_search.as_micros() as usize, idle: self.idle, active: self.active });
        if cx.now().saturating_sub(self.published) >= SEARCH_TIME {
            self.published = cx.now();
            self.top_flows.publish();
        }
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.top_flows.table.clone())
    }

    fn finish(&mut self) {
        self.output.deadline = Some(Instant::now() + FINISH_TIMEOUT);
        self.age(Search::All);
        self.top_flows.publish();
        self.output.deadline = None;
    }
}

impl Drop for FlowExporter {
    /// Exports the flows of an NF that a reload has replaced or removed.
    fn drop(&mut self) {
        if !self.v4.table.is_empty() || !self.v6.table.is_empty() || !self.frames.table.is_empty() {
            self.finish();
        }
    }
}
