//! Counts per flow.

use diagnostics::Diagnostic;
use graph::{StatsTable, BuildContext, Counter, Context, Nf, Node, Row, Spread};
use packet::{BURST, Batch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{
    CAPACITY_MOST, FlowKey, FlowTable, Found, Full, Prepared, Settings as TableSettings, Tuple4, Tuple6,
};
use wire::flow::FiveTuple;
use wire::{EtherType, Ethernet, IpProtocol, Ipv4};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `monitor`: packets and bytes of every flow.
pub struct Monitor;

/// Settings of [`Monitor`].
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Flows that are remembered at most, for each core and IP version; 64 bytes each with IPv4, 128 with IPv6. Beyond, the
    /// one that has been idle longest among sixteen gives way.
    flows: u32,
    /// Seconds without a packet after which a flow is forgotten.
    idle: u32,
    /// The largest flows, by bytes, that the summary shows. Whoever counts the packets writes the list: keep it short.
    top: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { flows: 65_536, idle: 60, top: 10 }
    }
}

/// Rows of the summary at most.
const MOST_SHOWN: u32 = 1 << 20;
/// How often a part of the table is looked through, and how many parts there are: all of it in a second.
const TICK: Duration = Duration::from_millis(1);
const PARTS: usize = 1000;
const COLUMNS: [&str; 7] = ["bytes", "packets", "source", "port", "destination", "port", "protocol"];

impl Nf for Monitor {
    type Settings = Settings;
    const KIND: &'static str = "monitor";
    const ABOUT: &'static str = "Counts packets and bytes of every IPv4 and IPv6 flow, one direction each, and shows the largest; all packets pass.";
    const SPREAD: Spread = Spread::Flow;
    const EXAMPLE: &'static str = "flows = 1000000\ntop = 20";

    fn build(settings: &Settings, _: &BuildContext) -> Result<impl Node + 'static, Diagnostic> {
        let Settings { flows, idle, top } = *settings;
        if top > MOST_SHOWN {
            let d = Diagnostic::new("are too many flows to show").key("top").value(top);
            return Err(d.remedy(format!("write {MOST_SHOWN} or fewer")));
        }
        if idle == 0 || idle > 1_000_000 {
            let d = Diagnostic::new("is no time after which to forget a flow").key("idle").value(idle);
            return Err(d.remedy("write 1 to 1000000 seconds"));
        }
        // the table's clock has room for twice as many; and a busy flow's time is not written with every packet
        let unit = ((idle * 1000) >> 20).checked_ilog2().map_or(0, |bits| bits + 1).max(4);
        let refused = |e: tables::flow::Error| {
            let remedy = format!("write 1 to {CAPACITY_MOST}, as far as memory goes");
            Diagnostic::new(e.to_string()).key("flows").value(flows).remedy(remedy)
        };
        let table = TableSettings { full: Full::EvictOldest, ..TableSettings::new(flows as usize) };
        Ok(Counting {
            v4: Half::new(FlowTable::new(&table).map_err(refused)?),
            v6: Half::new(FlowTable::new(&table).map_err(refused)?),
            idle: (idle * 1000) >> unit,
            unit,
            largest: Largest::new(top as usize),
            at: 0,
            board: Arc::new(StatsTable::new(&COLUMNS, top as usize)),
            counts: Counts::default(),
        })
    }
}

/// What a flow has had.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    packets: u64,
    bytes: u64,
}

/// The flows of one IP version.
struct Half<K: FlowKey> {
    table: FlowTable<K, Tally>,
    /// Packets of this batch, and those of the one before, whose flows are on their way from memory.
    packets: [Burst<K>; 2],
    /// Which of them this batch's are, 0 or 1.
    side: usize,
}

struct Burst<K> {
    keys: [Prepared<K>; BURST],
    bytes: [u32; BURST],
    n: usize,
}

impl<K: FlowKey> Burst<K> {
    #[inline(always)]
    fn put(&mut self, table: &FlowTable<K, Tally>, at: usize, key: K, bytes: usize) {
        let at = at & (BURST - 1);
        (self.keys[at], self.bytes[at]) = (table.prepare(key), bytes as u32);
    }
}

#[derive(Default)]
struct Counts {
    flows: Arc<Counter>,
    other: Arc<Counter>,
    new: Arc<Counter>,
    forgotten: Arc<Counter>,
    evicted: Arc<Counter>,
    evicted_packets: Arc<Counter>,
    evicted_bytes: Arc<Counter>,
}

struct Counting {
    v4: Half<Tuple4>,
    v6: Half<Tuple6>,
    /// In units of time.
    idle: u32,
    /// A unit is that power of two of milliseconds.
    unit: u32,
    largest: Largest,
    /// Buckets that this look through has seen.
    at: usize,
    board: Arc<StatsTable>,
    counts: Counts,
}

impl<K: FlowKey + Default> Half<K> {
    fn new(table: FlowTable<K, Tally>) -> Self {
        let burst = || Burst { keys: [table.prepare(K::default()); BURST], bytes: [0; BURST], n: 0 };
        Half { packets: [burst(), burst()], side: 0, table }
    }

    fn put(&mut self, key: K, bytes: usize) {
        let Half { table, packets, side } = self;
        let burst = &mut packets[*side & 1];
        burst.put(table, burst.n, key, bytes);
        burst.n += 1;
    }

    /// Counts the batch before, while the flows of this one come near.
    #[inline(always)]
    fn count(&mut self, now: u32, counts: &Counts) {
        self.count_before(now, counts);
        self.side ^= 1;
    }

    #[inline(always)]
    fn count_before(&mut self, now: u32, counts: &Counts) {
        let before = &mut self.packets[(self.side ^ 1) & 1];
        let n = core::mem::take(&mut before.n).min(BURST);
        let bytes = &before.bytes;
        let lost = |_: &K, gone: &Tally| {
            counts.evicted.add(1);
            counts.evicted_packets.add(gone.packets);
            counts.evicted_bytes.add(gone.bytes);
        };
        self.table.look_up_or_insert(
            &before.keys[..n],
            now,
            lost,
            #[inline(always)]
            |at, found| {
                let bytes = u64::from(bytes[at & (BURST - 1)]);
                if let Found::Known(tally) | Found::New(tally) = found {
                    tally.packets += 1;
                    tally.bytes += bytes;
                } else {
                    // every flow of its buckets had a packet at this very time, or there was none
                    counts.evicted_packets.add(1);
                    counts.evicted_bytes.add(bytes);
                }
            },
        );
    }

    /// Looks through the next buckets for flows to forget and for the largest; how many it has forgotten.
    fn look_through(
        &mut self,
        buckets: usize,
        now: u32,
        idle: u32,
        largest: &mut Largest,
        tuple: impl Fn(&K) -> FiveTuple,
    ) -> usize {
        if self.table.is_empty() {
            return 0;
        }
        self.table.age(now, buckets, |key, tally, since| {
            if since < idle {
                largest.see(tally, || tuple(key));
            }
            since >= idle
        })
    }
}

/// The largest flows seen in a look through.
struct Largest {
    most: usize,
    heap: BinaryHeap<Reverse<(u64, u64, FiveTuple)>>,
}

impl Largest {
    fn new(most: usize) -> Self {
        Largest { most, heap: BinaryHeap::new() }
    }

    fn see(&mut self, tally: &Tally, tuple: impl FnOnce() -> FiveTuple) {
        if self.heap.len() >= self.most && self.heap.peek().is_none_or(|least| least.0.0 >= tally.bytes) {
            return;
        }
        self.heap.push(Reverse((tally.bytes, tally.packets, tuple())));
        if self.heap.len() > self.most {
            self.heap.pop();
        }
    }

    /// What was found, largest first, and begins anew.
    fn take(&mut self) -> Vec<Row> {
        let mut all: Vec<_> = core::mem::take(&mut self.heap).into_iter().map(|r| r.0).collect();
        all.sort_by(|a, b| b.cmp(a));
        let row = |(bytes, packets, t): (u64, u64, FiveTuple)| {
            let protocol = match t.protocol {
                IpProtocol::TCP => "tcp".to_owned(),
                IpProtocol::UDP => "udp".to_owned(),
                IpProtocol::ICMPV4 => "icmp".to_owned(),
                IpProtocol::ICMPV6 => "icmpv6".to_owned(),
                other => other.0.to_string(),
            };
            let words = [
                bytes.to_string(),
                packets.to_string(),
                t.src.to_string(),
                t.src_port.to_string(),
                t.dst.to_string(),
                t.dst_port.to_string(),
                protocol,
            ];
            (bytes, words.into())
        };
        all.into_iter().map(row).collect()
    }
}

/// Headers of the commonest packet.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Plain4 {
    ethernet: Ethernet,
    front: [u8; 12],
    five: [u8; 12],
}

/// The flow of an untagged, unfragmented TCP or UDP packet over IPv4 without options.
#[inline(always)]
fn plain4(frame: &[u8]) -> Option<Tuple4> {
    let (h, _) = Plain4::ref_from_prefix(frame).ok()?;
    let [version, _, total_high, total_low, _, _, flags, offset, _, protocol, _, _] = h.front;
    let total = usize::from(u16::from_be_bytes([total_high, total_low]));
    let plain = h.ethernet.ether_type() == EtherType::IPV4
        && version == 0x45
        && total >= size_of::<Ipv4>() + 4
        && total <= frame.len() - size_of::<Ethernet>()
        // only "don't fragment" may be set
        && u16::from_le_bytes([flags, offset]) & 0xff3f == 0
        && matches!(IpProtocol(protocol), IpProtocol::TCP | IpProtocol::UDP);
    plain.then(|| Tuple4::of_wire(&h.five, protocol))
}

impl Counting {
    #[cold]
    fn any(&mut self, frame: &[u8]) {
        let Some(t) = FiveTuple::of_frame(frame) else { return self.counts.other.add(1) };
        match (t.src, t.dst) {
            (core::net::IpAddr::V4(src), core::net::IpAddr::V4(dst)) => {
                let key = Tuple4::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0);
                self.v4.put(key, frame.len());
            }
            (core::net::IpAddr::V6(src), core::net::IpAddr::V6(dst)) => {
                let key = Tuple6::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0);
                self.v6.put(key, frame.len());
            }
            _ => self.counts.other.add(1),
        }
    }

    fn clock(&self, cx: &Context<'_>) -> u32 {
        (cx.now().as_millis() >> self.unit) as u32
    }

    /// Looks through so many buckets of both tables, and shows what was found once all have been seen.
    fn look_through(&mut self, buckets: usize, now: u32) {
        self.v4.count_before(now, &self.counts);
        self.v6.count_before(now, &self.counts);
        let all = self.v4.table.buckets();
        let buckets = buckets.min(all - self.at);
        let gone = self.v4.look_through(buckets, now, self.idle, &mut self.largest, Tuple4::five_tuple)
            + self.v6.look_through(buckets, now, self.idle, &mut self.largest, Tuple6::five_tuple);
        self.counts.forgotten.add(gone as u64);
        self.at += buckets;
        if self.at == all {
            self.at = 0;
            self.board.show(self.largest.take());
        }
        self.counts.flows.set((self.v4.table.len() + self.v6.table.len()) as u64);
        let new = self.v4.table.counters().inserted + self.v6.table.counters().inserted;
        self.counts.new.set(new);
    }
}

impl Node for Counting {
    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let c = &self.counts;
        Counter::named([
            ("flows", &c.flows),
            ("new", &c.new),
            ("forgotten", &c.forgotten),
            ("evicted", &c.evicted),
            ("evicted_packets", &c.evicted_packets),
            ("evicted_bytes", &c.evicted_bytes),
            ("not_ip", &c.other),
        ])
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        let Half { table, packets, side } = &mut self.v4;
        let burst = &mut packets[*side & 1];
        let (mut odd, mut at, mut n) = (0u32, 0, burst.n);
        batch.for_each(
            #[inline(always)]
            |packet| {
                let frame = packet.data();
                match plain4(frame) {
                    Some(key) => {
                        burst.put(table, n, key, frame.len());
                        n += 1;
                    }
                    None => odd |= 1 << at,
                }
                at += 1;
            },
        );
        burst.n = n;
        while odd != 0 {
            self.any(batch.as_slice()[odd.trailing_zeros() as usize].data());
            odd &= odd - 1;
        }
        let now = self.clock(cx);
        self.v4.count(now, &self.counts);
        if self.v6.packets.iter().any(|burst| burst.n != 0) {
            self.v6.count(now, &self.counts);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        let now = self.clock(cx);
        self.look_through(self.v4.table.buckets().div_ceil(PARTS), now);
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.board.clone())
    }

    fn finish(&mut self) {
        self.at = 0;
        self.largest.take();
        // nothing is forgotten now: whoever looks wants what there was
        self.idle = u32::MAX;
        self.look_through(self.v4.table.buckets(), 0);
    }
}

#[cfg(test)]
mod tests;
