//! One copy at work.

use super::config::Backend;
use super::look::look;
use super::lookup::Lookup;
use super::other::datagram;
use super::rewrite::{l3dsr4, nat4, reply4, tunnel4};
use super::shared::{Condition, Shared, View};
use super::target::{How, OUTER4, OUTER4_GRE, Reply, Target, key};
use super::{Other, Settings};
use crate::fragments::{Waited, Waiting};
use diagnostics::Diagnostic;
use foldhash::HashMap;
use graph::{StatsTable, Counter, Context, Node, Row};
use packet::{BURST, Batch, Packet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{
    CAPACITY_MOST, FlowKey, FlowTable, Found, Full, Prepared, Seed, Settings as TableSettings, Tuple4, Tuple6,
};
use tables::maglev::Ring;
use wire::{Ethernet, IpProtocol};

/// How often a part of the tables is looked through, and how many parts there are: all of them in two seconds.
const TICK: Duration = Duration::from_millis(1);
const PARTS: usize = 2000;
/// A moment of the tables' clock is that power of two of milliseconds at the least: a busy flow's is not written with
/// every packet.
const UNIT: u32 = 6;
/// How long a fragmented datagram is waited for (RFC 791 §3.2 and RFC 8200 §4.5 say 15 to 120 s and 60 s).
const FRAGMENTS: u32 = 30_000;
const COLUMNS: [&str; 6] = ["packets", "service", "backend", "address", "condition", "slots"];
/// Rows of the summary at most.
const MOST_SHOWN: usize = 4096;
/// No target.
pub(super) const NOBODY: u32 = u32::MAX;

/// Names of drop reasons, in the order of [`Reason`].
const DROPS: [&str; 7] =
    ["no_backend", "too_big", "no_room", "unknown_fragment", "unknown_error", "malformed", "no_service"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Reason {
    /// No backend of the service is up.
    NoBackend,
    /// It does not fit in the tunnel and may not be cut.
    TooBig,
    /// The buffer has no room for the tunnel's headers.
    NoRoom,
    /// A fragment whose first one did not come before.
    UnknownFragment,
    /// An ICMP error about a packet that no service sent.
    UnknownError,
    /// For a service, with a header of TCP or UDP that is not whole.
    Malformed,
    /// For no service, which `other` says to drop.
    NoService,
}

/// A connection's target; [`NOBODY`] for one that found none.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Connection {
    pub(super) target: u32,
}

/// Counts that are shown.
#[derive(Default)]
pub(super) struct Counts {
    connections: Arc<Counter>,
    pub(super) new: Arc<Counter>,
    pub(super) moved: Arc<Counter>,
    pub(super) full: Arc<Counter>,
    forgotten: Arc<Counter>,
    pub(super) fragments: Arc<Counter>,
    pub(super) errors: Arc<Counter>,
    pub(super) echoes: Arc<Counter>,
    pub(super) answers: Arc<Counter>,
    pub(super) other: Arc<Counter>,
    healthy: Arc<Counter>,
    rings: Arc<Counter>,
    slots_moved: Arc<Counter>,
    slots_bereft: Arc<Counter>,
}

/// The addresses and ports of services, and what belongs to them. A target's number is the first of its virtual address's
/// and the backend's place in the service.
pub(super) struct Known {
    vips4: Lookup,
    replies4: Lookup,
    pub(super) vips: HashMap<(IpAddr, u16, IpProtocol), u32>,
    pub(super) replies: HashMap<(IpAddr, u16, IpProtocol), u32>,
    /// The first of the virtual addresses at an address.
    pub(super) addresses: HashMap<IpAddr, u32>,
    /// Where packets of a NAT service's backend without ports seem to come from, if that can be one address only.
    pub(super) sources: HashMap<IpAddr, Option<IpAddr>>,
    pub(super) answers: Vec<Reply>,
    /// First target and service of each virtual address.
    pub(super) vip: Vec<(u32, u32)>,
}

/// Packets of a burst that are for services.
struct Burst {
    keys: [Prepared<Tuple4>; BURST],
    vips: [u32; BURST],
    /// Their places in the batch.
    places: [u8; BURST],
    targets: [u32; BURST],
}

pub(super) struct Balancer {
    shared: Arc<Shared>,
    version: u64,
    view: View,
    pub(super) known: Known,
    pub(super) targets: Box<[Target]>,
    burst: Box<Burst>,
    pub(super) v4: FlowTable<Tuple4, Connection>,
    pub(super) v6: FlowTable<Tuple6, Connection>,
    pub(super) fragments: FlowTable<Tuple6, Connection>,
    /// Fragments that came before the first.
    pub(super) waiting: Waiting<Tuple6>,
    pub(super) seed: Seed,
    /// Identification of the next outer IPv4 header.
    pub(super) id: u16,
    pub(super) mtu: u16,
    pub(super) other: Other,
    idle: u32,
    fragments_idle: u32,
    unit: u32,
    pub(super) counts: Counts,
    board: Arc<StatsTable>,
}

impl Known {
    fn new(shared: &Shared) -> Result<Self, Diagnostic> {
        let config = &shared.0.config;
        let mut vip = vec![];
        let mut next = 0;
        for v in &config.vips {
            vip.push((next, v.service as u32));
            next += config.services[v.service].backends.len() as u32;
        }
        let (mut answers, mut replies, mut sources) = (vec![], HashMap::default(), HashMap::default());
        let mut from: Vec<_> = config.replies()?.into_iter().collect();
        // an answer's number is the same in every copy
        from.sort();
        for (place, number) in from {
            replies.insert(place, answers.len() as u32);
            answers.push(Reply::new((place.0, place.1), &config.vips[number]));
            let vip = config.vips[number].place.0;
            let source = sources.entry(place.0).or_insert(Some(vip));
            source.take_if(|address| *address != vip);
        }
        let vips: HashMap<_, _> = config.vips.iter().enumerate().map(|(n, v)| (v.place, n as u32)).collect();
        let mut addresses = HashMap::default();
        for (n, v) in config.vips.iter().enumerate() {
            addresses.entry(v.place.0).or_insert(n as u32);
        }
        let lookup = |all: &HashMap<_, u32>| {
            let all: Vec<_> = all.iter().filter_map(|(place, n)| Some((key(*place)?, *n))).collect();
            Lookup::new(all.into_iter())
        };
        Ok(Known { vips4: lookup(&vips), replies4: lookup(&replies), vips, replies, addresses, sources, answers, vip })
    }
}

fn table<K: FlowKey>(capacity: usize, full: Full, key: &'static str) -> Result<FlowTable<K, Connection>, Diagnostic> {
    FlowTable::new(&TableSettings { full, ..TableSettings::new(capacity) }).map_err(|e| {
        let remedy = format!("write 1 to {CAPACITY_MOST}, as far as memory goes");
        Diagnostic::new(e.to_string()).key(key).value(capacity).remedy(remedy)
    })
}

impl Balancer {
    pub(super) fn new(s: &Settings, shared: Arc<Shared>) -> Result<Self, Diagnostic> {
        let config = shared.0.config.clone();
        let known = Known::new(&shared)?;
        let version = shared.0.version();
        let view = loop {
            // checks hold it for a moment
            if let Some(view) = shared.0.view() {
                break view;
            }
            std::thread::yield_now();
        };
        let mut targets = vec![];
        for (number, v) in config.vips.iter().enumerate() {
            let backends = config.services[v.service].backends.clone();
            targets.extend(backends.map(|b| Target::new(&config, number, b, view.conditions[b])));
        }
        let any6 = config.vips.iter().any(|v| v.place.0.is_ipv6());
        let v4 = table::<Tuple4>(s.connections as usize, Full::Refuse, "connections")?;
        let v6 = table(if any6 { s.connections as usize } else { 1 }, Full::Refuse, "connections")?;
        let unit = ((s.idle * 1000) >> 20).checked_ilog2().map_or(0, |bits| bits + 1).max(UNIT);
        let burst = Burst {
            keys: [v4.prepare(Tuple4::default()); BURST],
            vips: [0; BURST],
            places: [0; BURST],
            targets: [NOBODY; BURST],
        };
        let mut balancer = Balancer {
            known,
            targets: targets.into(),
            burst: Box::new(burst),
            v4,
            v6,
            fragments: table(s.fragments as usize, Full::EvictOldest, "fragments")?,
            waiting: Waiting::new(),
            seed: Seed::fixed(s.seed),
            id: 0,
            mtu: s.mtu,
            other: s.other,
            idle: (s.idle * 1000) >> unit,
            fragments_idle: FRAGMENTS >> unit,
            unit,
            counts: Counts::default(),
            board: Arc::new(StatsTable::new(&COLUMNS, MOST_SHOWN)),
            version,
            view,
            shared,
        };
        balancer.show();
        Ok(balancer)
    }

    /// Takes over what checks have found.
    #[cold]
    fn renew(&mut self) {
        let version = self.shared.0.version();
        // who changes it right now will have changed it by the next batch
        let Some(view) = self.shared.0.view() else { return };
        self.targets.iter_mut().for_each(|t| t.set(view.conditions[t.backend]));
        (self.view, self.version) = (view, version);
    }

    /// The target of a connection that is new, or whose backend is gone.
    #[inline(always)]
    pub(super) fn choose(view: &View, known: &Known, seed: &Seed, vip: u32, key: &impl FlowKey) -> u32 {
        let (first, service) = known.vip[vip as usize];
        let ring: &Ring = &view.rings[service as usize];
        ring.get(key.flow_hash(seed)).map_or(NOBODY, |member| first + u32::from(member))
    }

    pub(super) fn chosen(&self, vip: u32, key: &impl FlowKey) -> u32 {
        Self::choose(&self.view, &self.known, &self.seed, vip, key)
    }

    /// Whether packets may go there.
    pub(super) fn is_there(&self, target: u32) -> bool {
        self.targets.get(target as usize).is_some_and(|t| t.how != How::Gone)
    }

    pub(super) fn clock(&self, cx: &Context<'_>) -> u32 {
        (cx.now().as_millis() >> self.unit) as u32
    }

    pub(super) fn is_stale(&self) -> bool {
        self.shared.0.version() != self.version
    }

    /// Finds the targets of a burst's first `n` packets and sends these on; those whose backend is gone are a bit in the
    /// result.
    #[inline(always)]
    fn find(&mut self, n: usize, now: u32, batch: &mut Batch, gone: &mut Gone) -> u32 {
        let Burst { keys, vips, places, targets: found_targets } = &mut *self.burst;
        let (view, known, seed, counts) = (&self.view, &self.known, &self.seed, &self.counts);
        let choose = |at: usize| Self::choose(view, known, seed, vips[at], &keys[at].key());
        let (targets, id, mtu) = (&mut self.targets, self.id, self.mtu);
        self.id = id.wrapping_add(n as u16);
        let packets = batch.as_mut_slice();
        let mut homeless = 0;
        self.v4.look_up_or_insert(
            &keys[..n],
            now,
            |_, _| {},
            #[inline(always)]
            |at, found| {
                let at = at & (BURST - 1);
                let target = match found {
                    Found::Known(connection) => connection.target,
                    Found::New(connection) => {
                        connection.target = choose(at);
                        counts.new.add(1);
                        connection.target
                    }
                    Found::Refused => {
                        counts.full.add(1);
                        choose(at)
                    }
                };
                let place = usize::from(places[at]);
                let (Some(packet), Some(t)) = (packets.get_mut(place), targets.get_mut(target as usize)) else {
                    found_targets[at] = target;
                    homeless |= 1 << at;
                    return;
                };
                match forward4(packet, t, id.wrapping_add(at as u16 + 1), mtu) {
                    Forwarded::Sent => {}
                    Forwarded::Dropped(reason) => gone.add(place, reason),
                    Forwarded::Not => {
                        found_targets[at] = target;
                        homeless |= 1 << at;
                    }
                }
            },
        );
        homeless
    }

    /// Sends on the rest of them.
    #[cold]
    #[inline(never)]
    fn find_others(&mut self, mut homeless: u32, now: u32, batch: &mut Batch, gone: &mut Gone) {
        while homeless != 0 {
            let at = homeless.trailing_zeros() as usize;
            homeless &= homeless - 1;
            let mut target = self.burst.targets[at];
            if !self.is_there(target) {
                target = self.find_another(at, now);
            }
            let place = usize::from(self.burst.places[at]);
            if let Some(packet) = batch.as_mut_slice().get_mut(place)
                && let Err(reason) = self.send(packet, None, target)
            {
                gone.add(place, reason);
            }
        }
    }

    /// Another target for a packet whose connection's backend is gone.
    #[cold]
    #[inline(never)]
    fn find_another(&mut self, at: usize, now: u32) -> u32 {
        let (key, vip) = (self.burst.keys[at], self.burst.vips[at]);
        let target = self.chosen(vip, &key.key());
        let (was, counts) = (self.burst.targets[at], &self.counts);
        self.v4.look_up(&[key], now, |_, connection| {
            // the first of its packets in this burst has moved it
            if connection.target != target && was != NOBODY {
                counts.moved.add(1);
            }
            connection.target = target;
        });
        target
    }

    fn spread(&mut self, cx: &mut Context<'_>, batch: &mut Batch) {
        let (mut odd, mut at, mut n, mut passed) = (0u32, 0, 0, 0u32);
        let Burst { keys, vips, places, .. } = &mut *self.burst;
        let (table, known) = (&self.v4, &self.known);
        batch.for_each(
            #[inline(always)]
            |packet| {
                match plain4(packet.data()) {
                    Some(plain) => match known.vips4.get(plain.dst) {
                        Some(vip) => {
                            let place = n & (BURST - 1);
                            keys[place] = table.prepare(plain.tuple);
                            vips[place] = vip;
                            places[place] = at as u8;
                            n += 1;
                        }
                        None => passed |= 1 << at,
                    },
                    None => odd |= 1 << at,
                }
                at += 1;
            },
        );
        let now = self.clock(cx);
        let mut gone = Gone::default();
        let homeless = self.find(n, now, batch, &mut gone);
        if homeless != 0 {
            self.find_others(homeless, now, batch, &mut gone);
        }
        if odd | passed != 0 {
            self.counts.other.add(passed.count_ones().into());
            if self.other == Other::Drop {
                (0..BURST).filter(|at| passed >> at & 1 != 0).for_each(|at| gone.add(at, Reason::NoService));
            }
            while odd != 0 {
                let at = odd.trailing_zeros() as usize;
                if let Err(reason) = self.any(&mut batch.as_mut_slice()[at], now) {
                    gone.add(at, reason);
                }
                odd &= odd - 1;
            }
        }
        self.leave(cx, batch, &gone);
        for mut waited in self.waiting.ready(cx) {
            match self.any(&mut waited.packet, now) {
                Ok(()) => cx.emit_from(waited.way, 0, waited.packet),
                Err(reason) => self.dispose(cx, reason as u8, waited),
            }
        }
    }

    /// Takes packets out of a batch that do not go on.
    #[inline(always)]
    fn leave(&mut self, cx: &mut Context<'_>, batch: &mut Batch, gone: &Gone) {
        if gone.which != 0 {
            let (way, since) = (cx.path(), cx.now());
            batch.extract_mask(gone.which, |at, packet| {
                self.dispose(cx, gone.reasons[at & (BURST - 1)], Waited { way, input: 0, since, packet });
            });
        }
    }

    /// Drops a packet, but if it may follow a fragment that is to come.
    fn dispose(&mut self, cx: &mut Context<'_>, reason: u8, it: Waited) {
        let waits = (reason == Reason::UnknownFragment as u8).then(|| look(it.packet.data()));
        let packet = match waits.flatten() {
            Some(look) => self.waiting.keep(cx, it, datagram(&look)).err(),
            None => Some(it.packet),
        };
        if let Some(packet) = packet {
            cx.drop(reason, packet);
        }
    }

    fn answers(&mut self, cx: &mut Context<'_>, batch: &mut Batch) {
        let (mut odd, mut at, mut answers) = (0u32, 0, 0);
        let known = &self.known;
        batch.for_each(
            #[inline(always)]
            |packet| {
                let frame = packet.data_mut();
                match plain4(frame) {
                    Some(plain) => {
                        if let Some(answer) = known.replies4.get(plain.src) {
                            reply4(frame, &known.answers[answer as usize]);
                            answers += 1;
                        }
                    }
                    None => odd |= 1 << at,
                }
                at += 1;
            },
        );
        self.counts.answers.add(answers);
        let (now, mut gone) = (self.clock(cx), Gone::default());
        while odd != 0 {
            let at = odd.trailing_zeros() as usize;
            if let Err(reason) = self.any_answer(&mut batch.as_mut_slice()[at], now) {
                gone.add(at, reason);
            }
            odd &= odd - 1;
        }
        self.leave(cx, batch, &gone);
    }

    /// Counts, and what the summary shows.
    fn show(&mut self) {
        let config = &self.shared.0.config;
        let c = &self.counts;
        c.connections.set((self.v4.len() + self.v6.len()) as u64);
        let (v4, v6) = (self.v4.counters(), self.v6.counters());
        c.forgotten.set(v4.expired + v6.expired);
        c.healthy.set(self.view.conditions.iter().filter(|c| **c != Condition::Down).count() as u64);
        c.rings.set(self.view.changes);
        c.slots_moved.set(self.view.moved);
        c.slots_bereft.set(self.view.bereft);
        let mut packets = vec![0; config.backends.len()];
        self.targets.iter().for_each(|t| packets[t.backend] += t.packets);
        let shares: Vec<Vec<usize>> = self.view.rings.iter().map(|ring| ring.counts()).collect();
        let row = |(n, b): (usize, &Backend)| -> Row {
            let service = &config.services[b.service];
            let slots = shares[b.service][n - service.backends.start];
            let condition = match self.view.conditions[n] {
                Condition::Up => "up",
                Condition::Draining => "draining",
                Condition::Down => "down",
            };
            let share = format!("{:.2} %", slots as f64 * 100.0 / config.size as f64);
            let words = [packets[n].to_string(), service.name.clone(), b.name.clone(), b.address.to_string()];
            (packets[n], words.into_iter().chain([condition.to_owned(), share]).collect())
        };
        let mut rows: Vec<Row> = config.backends.iter().enumerate().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.0));
        self.board.show(rows);
    }
}

/// What has become of a packet.
enum Forwarded {
    Sent,
    Dropped(Reason),
    /// Its backend is gone, or it is not of the usual tunnels.
    Not,
}

/// Sends a plain packet on; in a tunnel with this identification.
#[inline(always)]
fn forward4(packet: &mut Packet, t: &mut Target, id: u16, mtu: u16) -> Forwarded {
    let done = match t.how {
        How::Nat => {
            nat4(packet.data_mut(), t);
            Ok(())
        }
        How::L3dsr => {
            l3dsr4(packet.data_mut(), t);
            Ok(())
        }
        How::Ipip4 => tunnel4::<OUTER4>(packet, t, id, mtu),
        How::Gre4 => tunnel4::<OUTER4_GRE>(packet, t, id, mtu),
        How::Tunnel | How::Gone => return Forwarded::Not,
    };
    t.packets += 1;
    match done {
        Ok(()) => Forwarded::Sent,
        Err(reason) => Forwarded::Dropped(reason),
    }
}

/// Packets of a batch that are dropped.
#[derive(Default)]
struct Gone {
    which: u32,
    reasons: [u8; BURST],
}

impl Gone {
    fn add(&mut self, at: usize, reason: Reason) {
        self.which |= 1 << at;
        self.reasons[at & (BURST - 1)] = reason as u8;
    }
}

/// Bytes of the shortest plain packet: Ethernet, IPv4, UDP.
const PLAIN: usize = 42;

/// A plain packet.
struct Plain {
    tuple: Tuple4,
    /// The keys of its source and of its destination, as [`key4`](super::lookup::key4) makes them.
    src: u64,
    dst: u64,
}

/// What is known by an untagged, unfragmented TCP or UDP packet over IPv4 without options, whose header is whole.
#[inline(always)]
fn plain4(frame: &[u8]) -> Option<Plain> {
    let h = frame.first_chunk::<PLAIN>()?;
    let word = |at: usize| u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    // EtherType, version and header length; flags and fragment offset, time to live, protocol
    let (front, middle) = (word(12), word(20));
    // of the flags only "don't fragment" may be set
    let odd = ((front & 0x00ff_ffff) ^ 0x0045_0008) | middle & 0xff3f;
    let total = u32::from(u16::from_be_bytes([h[16], h[17]]));
    let protocol = (middle >> 24) as u8;
    let least = match IpProtocol(protocol) {
        IpProtocol::TCP => 40,
        IpProtocol::UDP => 28,
        _ => return None,
    };
    if odd != 0 || total < least || total as usize + size_of::<Ethernet>() > frame.len() {
        return None;
    }
    let (addresses, ports) = (u64::from(word(26)) | u64::from(word(30)) << 32, u64::from(word(34)));
    let rest = u64::from(protocol) << 32 | ports;
    let src = (addresses & 0xffff_ffff) | (ports & 0xffff) << 32 | u64::from(protocol) << 48;
    let dst = addresses >> 32 | (rest & !0xffff) << 16;
    Some(Plain { tuple: Tuple4::of_wire(h[26..].first_chunk()?, protocol), src, dst })
}

impl Node for Balancer {
    fn drops(&self) -> &[&'static str] {
        &DROPS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let c = &self.counts;
        Counter::named([
            ("connections", &c.connections),
            ("new", &c.new),
            ("moved", &c.moved),
            ("table_full", &c.full),
            ("forgotten", &c.forgotten),
            ("fragments", &c.fragments),
            ("icmp_errors", &c.errors),
            ("echoes", &c.echoes),
            ("answers", &c.answers),
            ("other", &c.other),
            ("backends", &c.healthy),
            ("ring_changes", &c.rings),
            ("slots_disrupted", &c.slots_moved),
            ("slots_bereft", &c.slots_bereft),
        ])
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        if self.is_stale() {
            self.renew();
        }
        if input == 0 {
            self.spread(cx, batch);
        } else {
            self.answers(cx, batch);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        if self.is_stale() {
            self.renew();
        }
        let now = self.clock(cx);
        let (idle, buckets) = (self.idle, |all: usize| all.div_ceil(PARTS));
        if !self.v4.is_empty() {
            self.v4.age(now, buckets(self.v4.buckets()), |_, _, since| since >= idle);
        }
        if !self.v6.is_empty() {
            self.v6.age(now, buckets(self.v6.buckets()), |_, _, since| since >= idle);
        }
        self.waiting.give_up(cx, Reason::UnknownFragment as u8);
        if !self.fragments.is_empty() {
            let idle = self.fragments_idle;
            self.fragments.age(now, buckets(self.fragments.buckets()), |_, _, since| since >= idle);
        }
        self.counts.connections.set((self.v4.len() + self.v6.len()) as u64);
        // the table of backends is longer to write
        if cx.now().as_millis().is_multiple_of(1000) {
            self.show();
        }
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.board.clone())
    }

    fn finish(&mut self) {
        self.show();
    }
}
