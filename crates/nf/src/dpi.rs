//! Application protocols of packets.

mod application;
mod counts;
mod detector;
mod headers;
mod hosts;
pub(crate) mod protocol;
mod stream_start;

use crate::classification::Classification;
use crate::settings::{Dscp, in_range};
use crate::traffic_class;
pub use application::Application;
use application::UNKNOWN;
use counts::{Counts, Outcome};
use detector::{Detector, Flow, Limits, State};
use diagnostics::Diagnostic;
use graph::{BoundedTable, BuildContext, Context, Counter, Counters, Named, Nf, Node, Spread, StatsTable};
use headers::{Key, NoFlow};
use hosts::Hosts;
use packet::{BURST, Batch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{
    CAPACITY_MOST, FlowKey, FlowTable, Full, Lookup, Prepared, Settings as TableSettings, Tuple4, Tuple6,
};

/// `dpi`: recognises the application protocol of flows.
pub struct Dpi;

/// Settings of [`Dpi`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Maximum number of flows per core and IP version, 64 bytes each for IPv4 and 128 for IPv6. If the table is full,
    /// the flow that has been idle longest of sixteen is evicted.
    flows: u32,
    /// Seconds without a packet after which a flow expires, 1 to 1000000.
    idle: u32,
    /// Number of packets with payload that are inspected in each direction of a flow, 1 to 100. If none of them decides,
    /// the application is unknown.
    packets_max: u8,
    /// Maximum number of flows per core that are inspected at the same time, 1 to 1048576, about 100 bytes each. The
    /// first payload alone decides about flows beyond it.
    inspected: u32,
    /// Maximum number of flows per core whose first 4096 bytes are kept because a message spans packets, 0 to 65536.
    reassembled: u32,
    /// Decision by port: flows that no payload decides get the application that uses one of their ports by default.
    guess: bool,
    /// Names of applications, `unknown`, or groups of `hosts` whose packets are dropped.
    drop: Vec<String>,
    /// Differentiated services code point of the packets of an application, of `unknown` or of a group of `hosts`: a
    /// name such as `ef`, or 0 to 63.
    mark: BTreeMap<String, Dscp>,
    /// Groups of host names in TLS, QUIC and HTTP: names, and `*.example.com` for all names below it.
    hosts: BTreeMap<String, Vec<String>>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            flows: 65_536,
            idle: 120,
            packets_max: 10,
            inspected: 16_384,
            reassembled: 1024,
            guess: false,
            drop: Vec::new(),
            mark: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }
}

/// Interval at which a part of the tables is searched for expired flows.
const AGEING_INTERVAL: Duration = Duration::from_millis(1);
/// Number of parts: the whole tables are searched in a second.
const AGEING_PARTS: usize = 1000;

graph::named_enum! {
    enum DropReason {
        Application = "application",
    }
}

graph::named_enum! {
    /// Counters.
    enum CounterId {
        /// Flows in the tables.
        Flows = "flows",
        /// Flows that are being inspected.
        Inspected = "inspected",
        New = "new",
        Recognised = "recognised",
        Guessed = "guessed",
        Unknown = "unknown",
        Expired = "expired",
        /// Flows replaced by new ones because the table was full.
        Evicted = "evicted",
        /// Flows decided by one payload because too many were being inspected.
        NotInspected = "not_inspected",
        /// Flows whose first bytes were not kept.
        NotReassembled = "not_reassembled",
        Marked = "marked",
        /// Later fragments, which have no ports.
        Fragments = "fragments",
        OtherProtocol = "other_protocol",
        NotIp = "not_ip",
    }
}

/// Treatment of the packets of an application or group.
#[derive(Clone, Copy, Default, Debug)]
struct Treatment {
    drop: bool,
    mark: Option<u8>,
}

/// Treatment by outcome.
struct Treatments {
    of: Box<[Treatment]>,
    /// True if any packets are dropped or marked.
    any: bool,
}

impl Treatments {
    fn new(settings: &Settings, hosts: &Hosts) -> Result<Treatments, Diagnostic> {
        let mut of = vec![Treatment::default(); Outcome::COUNT].into_boxed_slice();
        let outcome = |key: &'static str, name: &str| {
            let application = Application::from_name(name).map(|it| Outcome::application(it.number() as u8));
            let unknown = (name == UNKNOWN).then_some(Outcome::application(0));
            let group = hosts.names.iter().position(|known| known == name).map(|at| Outcome::group(at as u8 + 1));
            application.or(unknown).or(group).ok_or_else(|| {
                let names: Vec<_> = Application::ALL.iter().map(|application| application.name()).collect();
                let d = Diagnostic::new("no application or group of hosts has this name").key(key).value(name);
                d.remedy(format!("write a group of `hosts`, {UNKNOWN}, or one of {}", names.join(", ")))
            })
        };
        if let Some(name) = hosts.names.iter().find(|name| Application::from_name(name).is_some() || *name == UNKNOWN) {
            let d = Diagnostic::new("a group of hosts has the name of an application").key("hosts").value(name);
            return Err(d.remedy("choose another name"));
        }
        for name in &settings.drop {
            of[outcome("drop", name)?.index()].drop = true;
        }
        for (name, dscp) in &settings.mark {
            of[outcome("mark", name)?.index()].mark = Some(dscp.number());
        }
        let any = of.iter().any(|treatment| treatment.drop || treatment.mark.is_some());
        Ok(Treatments { of, any })
    }

    /// Returns the treatment of an outcome; that of the group precedes that of the application.
    fn get(&self, application: u8, group: u8) -> Treatment {
        let of = |outcome: Outcome| self.of.get(outcome.index()).copied().unwrap_or_default();
        let (application, group_treatment) = (of(Outcome::application(application)), of(Outcome::group(group)));
        if group == 0 {
            return application;
        }
        Treatment { drop: application.drop || group_treatment.drop, mark: group_treatment.mark.or(application.mark) }
    }
}

impl Nf for Dpi {
    type Settings = Settings;
    const KIND: &'static str = "dpi";
    const ABOUT: &'static str =
        "Recognises the application protocol of flows by their first payloads; drops or marks packets by it.";
    const SPREAD: Spread = Spread::Symmetric;
    const EXAMPLE: &'static str = "flows = 200000\ndrop = [\"bittorrent\"]\nmark = { sip = \"cs3\", rtp = \"ef\" }";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        in_range(settings.idle.into(), 1..=1_000_000, "idle", "number")?;
        in_range(settings.packets_max.into(), 1..=100, "packets_max", "number")?;
        in_range(settings.inspected.into(), 1..=1 << 20, "inspected", "number")?;
        in_range(settings.reassembled.into(), 0..=1 << 16, "reassembled", "number")?;
        let hosts = Hosts::new(&settings.hosts)?;
        let treatments = Treatments::new(settings, &hosts)?;
        let flows = settings.flows;
        let invalid = |e: tables::flow::Error| {
            let remedy = format!("write 1 to {CAPACITY_MOST}, as memory permits");
            Diagnostic::new(e.to_string()).key("flows").value(flows).remedy(remedy)
        };
        // the timeout takes at most half the range of the table's clock
        let idle = settings.idle * 1000;
        let time_unit = (idle >> 20).checked_ilog2().map_or(0, |bits| bits + 1).max(4);
        let table = TableSettings { full: Full::EvictOldest, ..TableSettings::new(flows as usize) };
        let limits = Limits {
            inspected: settings.inspected as usize,
            streams: settings.reassembled as usize,
            payloads: settings.packets_max,
            guess: settings.guess,
        };
        Ok(DpiNode {
            v4: Flows::new(FlowTable::new(&table).map_err(invalid)?),
            v6: Flows::new(FlowTable::new(&table).map_err(invalid)?),
            engine: Engine {
                detector: Detector::new(limits),
                counts: Counts::default(),
                counters: Counters::default(),
                hosts,
            },
            treatments,
            idle: idle >> time_unit,
            time_unit,
            buckets_visited: 0,
            stats_table: Arc::new(StatsTable::new(&counts::COLUMNS, Outcome::COUNT)),
            bounded_tables: [
                BoundedTable::new("flows_ipv4", flows.into()),
                BoundedTable::new("flows_ipv6", flows.into()),
                BoundedTable::new("inspected", settings.inspected.into()),
                BoundedTable::new("reassembled", settings.reassembled.into()),
            ],
        })
    }
}

/// Flows of one IP version, and the keys of a batch.
struct Flows<K: FlowKey> {
    table: FlowTable<K, Flow>,
    keys: [Prepared<K>; BURST],
    /// Positions of the packets in the batch.
    at: [u8; BURST],
    n: usize,
}

impl<K: FlowKey> Flows<K> {
    fn new(table: FlowTable<K, Flow>) -> Self {
        Flows { keys: [table.prepare(K::default()); BURST], at: [0; BURST], n: 0, table }
    }

    #[inline(always)]
    fn push(&mut self, key: K, at: usize) {
        let n = self.n & (BURST - 1);
        (self.keys[n], self.at[n]) = (self.table.prepare(key), at as u8);
        self.n += 1;
    }
}

struct DpiNode {
    v4: Flows<Tuple4>,
    v6: Flows<Tuple6>,
    engine: Engine,
    treatments: Treatments,
    /// Idle timeout in time units.
    idle: u32,
    /// Time unit as a power of two of milliseconds.
    time_unit: u32,
    /// Buckets that the current search has visited.
    buckets_visited: usize,
    stats_table: Arc<StatsTable>,
    bounded_tables: [BoundedTable; 4],
}

/// The parts of the node that flows of both IP versions use.
struct Engine {
    detector: Detector,
    counts: Counts,
    counters: Counters<CounterId>,
    hosts: Hosts,
}

impl Engine {
    /// Counts a packet of a flow, and inspects it if the flow is not decided.
    #[inline(always)]
    fn packet(&mut self, flow: &mut Flow, frame: &[u8]) -> Option<[u8; 2]> {
        if flow.state == State::Final {
            self.counts.add(flow.application, flow.group, frame.len());
        } else {
            self.inspect(flow, frame);
        }
        let is_decided = flow.state == State::Final || flow.application != 0;
        is_decided.then_some([flow.application, flow.group])
    }

    #[inline(never)]
    fn inspect(&mut self, flow: &mut Flow, frame: &[u8]) {
        let Ok(headers) = headers::parse(frame) else { return };
        flow.packets = flow.packets.saturating_add(1);
        flow.bytes = flow.bytes.saturating_add(frame.len() as u32);
        self.detector.inspect(flow, &headers, frame, &self.hosts);
        if flow.state == State::Final {
            self.decided(flow);
        }
    }

    /// Decides by port if no payload did, and counts the flow and its packets so far.
    fn decided(&mut self, flow: &mut Flow) {
        let counter = match flow {
            Flow { application: 0, guess: 0, .. } => CounterId::Unknown,
            Flow { application: 0, .. } => CounterId::Guessed,
            _ => CounterId::Recognised,
        };
        if flow.application == 0 {
            flow.application = flow.guess;
        }
        self.counts.decide(flow);
        self.counters[counter].add(1);
    }

    /// Frees the memory of a flow that ends, and counts it if it was not decided.
    fn end(&mut self, flow: &mut Flow) {
        if flow.state != State::Final {
            self.decided(flow);
        }
        self.detector.end(flow);
    }

    /// Looks up the flows of a batch and writes application and group of each packet.
    #[inline(always)]
    fn look_up<K: FlowKey>(
        &mut self,
        flows: &mut Flows<K>,
        now: u32,
        batch: &Batch,
        found: &mut [Option<[u8; 2]>; BURST],
    ) {
        let n = core::mem::take(&mut flows.n).min(BURST);
        let Flows { table, keys, at, .. } = flows;
        // both closures of the look-up need the engine
        let engine = core::cell::RefCell::new(self);
        let packets = batch.as_slice();
        table.look_up_or_insert(
            &keys[..n],
            now,
            |_, flow| {
                if let Ok(mut engine) = engine.try_borrow_mut() {
                    engine.counters[CounterId::Evicted].add(1);
                    engine.end(&mut { *flow });
                }
            },
            #[inline(always)]
            |i, result| {
                let at = usize::from(at[i & (BURST - 1)]) & (BURST - 1);
                let Some(packet) = packets.get(at) else { return };
                let Ok(mut engine) = engine.try_borrow_mut() else { return };
                let mut alone = Flow::default();
                found[at] = match result {
                    Lookup::Known(flow) | Lookup::New(flow) => engine.packet(flow, packet.data()),
                    Lookup::Refused => {
                        let outcome = engine.packet(&mut alone, packet.data());
                        engine.end(&mut alone);
                        outcome
                    }
                };
            },
        );
    }
}

/// Sets the code point of the outer IP header and keeps the ECN field; returns true if there is one.
fn mark(frame: &mut [u8], dscp: u8) -> bool {
    let Some((kind, at)) = headers::ip_offset(frame) else { return false };
    frame.get_mut(at..).is_some_and(|header| traffic_class::set(kind, header, 0xfc, dscp << 2))
}

impl DpiNode {
    fn clock(&self, cx: &Context<'_>) -> u32 {
        (cx.now().as_millis() >> self.time_unit) as u32
    }

    /// Drops and marks packets, and sets their classification.
    #[inline(always)]
    fn apply(&mut self, cx: &mut Context<'_>, found: &[Option<[u8; 2]>; BURST], batch: &mut Batch) {
        let (mut dropped, mut marked, mut at) = (0u64, 0, 0);
        let treatments = &self.treatments;
        batch.for_each(
            #[inline(always)]
            |packet| {
                let outcome = found[at & (BURST - 1)];
                let [application, group] = outcome.unwrap_or_default();
                let mut classification = packet.meta().metadata::<Classification>().unwrap_or_default();
                classification.application = application.into();
                packet.meta_mut().set_metadata(classification);
                if treatments.any {
                    let treatment = treatments.get(application, group);
                    // packets without a flow, and those before the decision, pass
                    dropped |= u64::from(treatment.drop && outcome.is_some()) << at;
                    if let Some(dscp) = treatment.mark.filter(|_| !treatment.drop) {
                        marked += u64::from(mark(packet.data_mut(), dscp));
                    }
                }
                at += 1;
            },
        );
        self.engine.counters[CounterId::Marked].add(marked);
        if dropped != 0 {
            batch.extract_mask(dropped, |_, packet| cx.drop(DropReason::Application, packet));
        }
    }

    /// Searches the next buckets of both tables, and publishes the counts once all have been visited.
    fn age(&mut self, buckets: usize, now: u32) {
        let all = self.v4.table.buckets();
        let buckets = buckets.min(all - self.buckets_visited);
        let (idle, engine) = (self.idle, &mut self.engine);
        let expired = age_table(&mut self.v4.table, buckets, now, idle, engine)
            + age_table(&mut self.v6.table, buckets, now, idle, engine);
        engine.counters[CounterId::Expired].add(expired as u64);
        self.buckets_visited += buckets;
        if self.buckets_visited == all {
            self.buckets_visited = 0;
            self.stats_table.publish(engine.counts.rows(&engine.hosts.names));
        }
        let lens = [
            self.v4.table.len() as u64,
            self.v6.table.len() as u64,
            engine.detector.inspected() as u64,
            engine.detector.streams() as u64,
        ];
        self.bounded_tables.iter().zip(lens).for_each(|(table, len)| table.entries.set(len));
        let counters = &engine.counters;
        counters[CounterId::Flows].set(lens[0] + lens[1]);
        counters[CounterId::Inspected].set(lens[2]);
        counters[CounterId::New].set(self.v4.table.counters().inserted + self.v6.table.counters().inserted);
        counters[CounterId::NotInspected].set(engine.detector.not_inspected);
        counters[CounterId::NotReassembled].set(engine.detector.not_reassembled);
    }
}

fn age_table<K: FlowKey>(
    table: &mut FlowTable<K, Flow>,
    buckets: usize,
    now: u32,
    idle: u32,
    engine: &mut Engine,
) -> usize {
    if table.is_empty() {
        return 0;
    }
    table.age(now, buckets, |_, flow, since| {
        if since >= idle {
            engine.end(flow);
        }
        since >= idle
    })
}

/// Ends the inspection of all flows.
fn decide_all<K: FlowKey>(table: &mut FlowTable<K, Flow>, engine: &mut Engine) {
    table.age(0, table.buckets(), |_, flow, _| {
        engine.end(flow);
        flow.state = State::Final;
        false
    });
}

impl Node for DpiNode {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.engine.counters.named()
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec![CounterId::Flows.name(), CounterId::Inspected.name()]
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.bounded_tables.to_vec()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let (mut at, mut none) = (0, [0u64; 3]);
        batch.for_each(
            #[inline(always)]
            |packet| {
                match headers::key(packet.data()) {
                    Ok(Key::V4(key)) => self.v4.push(key, at),
                    Ok(Key::V6(key)) => self.v6.push(key, at),
                    Err(NoFlow::NotIp) => none[0] += 1,
                    Err(NoFlow::Fragment) => none[1] += 1,
                    Err(NoFlow::OtherProtocol) => none[2] += 1,
                }
                at += 1;
            },
        );
        let now = self.clock(cx);
        let mut found = [None; BURST];
        self.engine.look_up(&mut self.v4, now, batch, &mut found);
        if self.v6.n != 0 {
            self.engine.look_up(&mut self.v6, now, batch, &mut found);
        }
        if none != [0; 3] {
            let ids = [CounterId::NotIp, CounterId::Fragments, CounterId::OtherProtocol];
            ids.into_iter().zip(none).for_each(|(id, n)| self.engine.counters[id].add(n));
        }
        self.apply(cx, &found, batch);
    }

    fn interval(&self) -> Option<Duration> {
        Some(AGEING_INTERVAL)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = self.clock(cx);
        self.age(self.v4.table.buckets().div_ceil(AGEING_PARTS), now);
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.stats_table.clone())
    }

    fn finish(&mut self) {
        self.buckets_visited = 0;
        // the final table includes the flows that are not decided
        decide_all(&mut self.v4.table, &mut self.engine);
        decide_all(&mut self.v6.table, &mut self.engine);
        self.idle = u32::MAX;
        self.age(self.v4.table.buckets(), 0);
    }
}

#[cfg(test)]
mod tests;
