//! The connections of a node.

use super::connection::Connection;
use super::half_connection::{Limits, RewriteCounts, Shared};
use super::header_template::HeaderOffsets;
use super::output::Output;
use super::settings::{Settings, WhenFull};
use super::syn::SynParameters;
use super::{Drop, Rewrite};
use crate::window::frame::{self, FlowPacket, Frame};
use crate::window::index::Index;
use crate::window::memory::Memory;
use crate::window::order::Order;
use crate::window::{Direction, Flow};
use diagnostics::Diagnostic;
use packet::Packet;
use tables::flow::{Full, Settings as TableSettings, Tuple4, Tuple6};
use wire::flow::FiveTuple;
use wire::{Tcp, TcpFlags};

/// Number that stands for "no flow".
pub(super) const NO_FLOW: u32 = u32::MAX;
/// Milliseconds for which a connection that ended in order is kept, so that late retransmissions are still translated.
const LINGER: u64 = 10_000;
/// Milliseconds without progress after which a connection can be evicted when memory is full.
const STALLED: u32 = 500;
/// Interval in milliseconds at which waiting directions are processed.
const PART: u32 = 4;

/// Events that are not counted by connections.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FlowEvents {
    pub(super) new: u64,
    pub(super) passed: u64,
    pub(super) midstream: u64,
    pub(super) refused: u64,
    pub(super) forgotten: u64,
    pub(super) made_way: u64,
    pub(super) unreadable: u64,
}

/// Key of the flow table.
#[derive(Clone, Copy)]
enum Key {
    V4(Tuple4),
    V6(Tuple6),
}

/// A flow, its state, and the direction of its first packet.
struct Entry<S> {
    conn: Box<Connection>,
    /// Connection that the last unrelated SYN would open: it replaces the present one when the other end accepts it.
    next: Option<Box<Connection>>,
    state: S,
    key: Key,
    /// Addresses and ports of direction 0.
    tuple: FiveTuple,
    first: u8,
}

/// All connections and the state they share.
pub(super) struct Flows<R: Rewrite> {
    rewrite: R,
    rules: Limits,
    /// Number of bytes that a sender may send ahead.
    ahead: u32,
    ports: Option<Box<[bool]>>,
    checksums: bool,
    full: WhenFull,
    idle: u64,
    half_open: u64,
    pub(super) v4: Index<Tuple4>,
    pub(super) v6: Index<Tuple6>,
    entries: Vec<Option<Entry<R::State>>>,
    free: Vec<u32>,
    memory: Memory,
    scratch: Vec<u8>,
    /// Directions that wait for a timer.
    waiting: Order,
    /// Directions that hold unacknowledged bytes, in order of their last acknowledgment.
    holding: Order,
    /// Connections that can be evicted for new ones, over IPv4 and IPv6: half-open and dead ones.
    yielding: [Order; 2],
    /// True if flow numbers looked up for this batch may be stale.
    changed: bool,
    /// Flows to remove.
    lost: Vec<u32>,
    pub(super) tally: RewriteCounts,
    pub(super) met: FlowEvents,
    rewritten: usize,
    /// Time in ms, and its lower half, which wraps.
    clock: u64,
    now: u32,
}

/// Borrows the connection of a flow and the state shared while it is processed.
macro_rules! at_desk {
    ($self:ident, $number:expr $(, $or:expr)? => $conn:ident, $desk:ident) => {
        let Self { rewrite, rules, entries, memory, scratch, tally, now, rewritten, .. } = $self;
        let Some(Some(Entry { conn: $conn, state, tuple, first, .. })) = entries.get_mut($number as usize) else {
            return $($or)?;
        };
        let mut run = |way: usize, offset: u64, bytes: &[u8], more: bool, out: &mut Vec<u8>| {
            let direction = if usize::from(*first) == way { Direction::ToServer } else { Direction::ToClient };
            let flow = Flow { tuple, number: $number, back: way != 0, direction, midstream: false, offset };
            rewrite.rewrite(&flow, state, bytes, more, out)
        };
        let $desk = &mut Shared { rules, memory, tally, scratch, connections: *rewritten, now: *now, run: &mut run };
    };
}

impl<R: Rewrite> Flows<R> {
    pub(super) fn new(settings: &Settings, rewrite: R) -> Result<Self, Diagnostic> {
        settings.check()?;
        let table = TableSettings { full: Full::Refuse, ..TableSettings::new(settings.flows as usize) };
        let idle = u64::from(settings.idle) * 1000;
        let refused = |e: tables::flow::Error| {
            Diagnostic::new(e.to_string())
                .key("flows")
                .value(settings.flows)
                .remedy("write fewer, as far as memory goes")
        };
        let ports = (!settings.ports.is_empty()).then(|| {
            let mut all = vec![false; 1 << 16];
            settings.ports.iter().for_each(|port| all[usize::from(*port)] = true);
            all.into_boxed_slice()
        });
        Ok(Flows {
            rewrite,
            rules: Limits {
                buffer: settings.buffer as usize,
                growth: settings.growth as usize,
                withheld: settings.withheld as usize,
                pieces: settings.pieces(),
                timeout: settings.timeout,
            },
            ahead: settings.ahead(),
            ports,
            checksums: settings.checksums,
            full: settings.full,
            idle,
            half_open: u64::from(settings.half_open) * 1000,
            v4: Index::new(&table, idle).map_err(refused)?,
            v6: Index::new(&table, idle).map_err(refused)?,
            entries: vec![],
            free: vec![],
            memory: Memory::new(settings.memory as usize, settings.pieces(), 0),
            scratch: vec![],
            waiting: Order::default(),
            holding: Order::default(),
            yielding: [Order::default(), Order::default()],
            changed: false,
            lost: vec![],
            tally: RewriteCounts::default(),
            met: FlowEvents::default(),
            rewritten: 0,
            clock: 0,
            now: 0,
        })
    }

    /// Returns the numbers of flows of IPv4 and of IPv6, and the bytes of memory.
    pub(super) fn occupancy(&self) -> [usize; 3] {
        [self.v4.len(), self.v6.len(), self.memory.allocated()]
    }

    pub(super) fn set_clock(&mut self, ms: u64) {
        (self.clock, self.now) = (ms, ms as u32);
    }

    /// Returns the numbers of rewritten connections, known flows, allocated bytes and waiting directions.
    pub(super) fn gauges(&self) -> [u64; 4] {
        let known = self.v4.len() + self.v6.len();
        [self.rewritten, known, self.memory.allocated(), self.waiting.len()].map(|n| n as u64)
    }

    /// Returns true if connections between these ports are rewritten.
    #[inline(always)]
    pub(super) fn is_rewritten(&self, tuple: &FiveTuple) -> bool {
        self.is_server(tuple.src_port) || self.is_server(tuple.dst_port)
    }

    #[inline(always)]
    fn is_server(&self, port: u16) -> bool {
        self.ports.as_ref().is_none_or(|all| all[usize::from(port)])
    }

    /// Looks up the flows of the packets of a batch that [`Index::ask`] was called for.
    #[inline(always)]
    pub(super) fn find(&mut self, numbers: &mut [u32]) {
        self.changed = false;
        if self.v4.is_asked() {
            self.v4.look_up_all(self.clock, |packet, number| numbers[packet] = number);
        }
        if self.v6.is_asked() {
            self.v6.look_up_all(self.clock, |packet, number| numbers[packet] = number);
        }
    }

    /// Looks up the flow of one packet.
    fn find_one(&self, key: Key) -> u32 {
        let number = match key {
            Key::V4(key) => self.v4.get(&key),
            Key::V6(key) => self.v6.get(&key),
        };
        number.unwrap_or(NO_FLOW)
    }

    fn key_of(packet: &Packet) -> Option<Key> {
        match frame::read::<Tcp>(packet.data(), false) {
            Frame::V4(key, _) => Some(Key::V4(key)),
            Frame::V6(key, _) => Some(Key::V6(key)),
            _ => None,
        }
    }

    /// Drops or forwards a TCP packet that cannot be parsed or is a fragment, so that its connection is unknown.
    pub(super) fn unreadable(&mut self, packet: Packet, out: &mut Output<'_, '_>) {
        self.met.unreadable += 1;
        if self.rewritten == 0 {
            out.pass(packet);
        } else {
            out.door.cx.drop(Drop::Unreadable, packet);
        }
    }

    /// Processes a packet of a flow.
    pub(super) fn packet(&mut self, mut number: u32, part: &FlowPacket, packet: Packet, out: &mut Output<'_, '_>) {
        let way = usize::from(part.way & 1);
        let flags = part.segment.flags;
        let syn = flags.contains(TcpFlags::SYN);
        if self.changed {
            number = Self::key_of(&packet).map_or(NO_FLOW, |key| self.find_one(key));
        }
        let known = self.entries.get(number as usize).is_some_and(Option::is_some);
        let begins = syn && !flags.contains(TcpFlags::ACK);
        if !known && !begins {
            self.met.midstream += u64::from(!syn);
            out.pass(packet);
            return;
        }
        let Some(place) = HeaderOffsets::of(packet.data()) else {
            out.door.cx.drop(Drop::Malformed, packet);
            return;
        };
        if self.checksums && !place.has_valid_checksums(packet.data()) {
            self.met.unreadable += 1;
            out.door.cx.drop(Drop::Unreadable, packet);
            return;
        }
        if syn && flags.intersects(TcpFlags::FIN | TcpFlags::RST) {
            out.door.cx.drop(Drop::Malformed, packet);
        } else if begins {
            self.syn(number, way, part, &place, packet, out);
        } else if syn {
            self.syn_ack(number, way, part, &place, packet, out);
        } else {
            self.segment(number, way, part, &place, packet, out);
        }
    }

    /// Processes a packet of a connection other than a SYN.
    fn segment(
        &mut self,
        number: u32,
        way: usize,
        part: &FlowPacket,
        place: &HeaderOffsets,
        packet: Packet,
        out: &mut Output<'_, '_>,
    ) {
        let Some(Some(Entry { conn, next, .. })) = self.entries.get_mut(number as usize) else { return };
        let refuses = part.segment.flags.contains(TcpFlags::RST | TcpFlags::ACK);
        let answers = |conn: &Connection| conn.answers(way, part.segment.ack);
        if refuses && next.as_ref().is_some_and(|next| answers(next)) {
            *next = None;
            out.pass(packet);
            return;
        }
        if !conn.is_open() {
            // neither end may bypass the node before the other has accepted the connection
            if part.len > 0 {
                out.door.cx.drop(Drop::OutOfWindow, packet);
            } else {
                out.pass(packet);
            }
            return;
        }
        at_desk!(self, number => conn, desk);
        let starved = conn.packet(way, part, place, packet, out, desk);
        self.update_lists(number);
        if starved {
            self.evict_stalled(out);
        }
    }

    /// Processes a SYN without ACK.
    fn syn(
        &mut self,
        number: u32,
        way: usize,
        part: &FlowPacket,
        place: &HeaderOffsets,
        mut packet: Packet,
        out: &mut Output<'_, '_>,
    ) {
        let seq = part.segment.seq;
        let Some(hello) = SynParameters::read(packet.data(), place, self.ahead) else {
            self.met.passed += 1;
            out.pass(packet);
            return;
        };
        if let Some(Some(Entry { conn, next, first, .. })) = self.entries.get_mut(number as usize) {
            // in a simultaneous open the answer counts
            if !conn.begins(way, seq) && (usize::from(*first) == way || conn.is_over()) {
                let mut new = Box::<Connection>::default();
                if new.begin(way, seq, hello, place, &packet, self.ahead) {
                    new.lane(way).path = Some(out.door.cx.path());
                    *next = Some(new);
                }
            }
        } else if let Some(key) = Self::key_of(&packet) {
            let tuple = match key {
                Key::V4(key) => key.five_tuple(),
                Key::V6(key) => key.five_tuple(),
            };
            let server = if way == 0 { tuple.dst_port } else { tuple.src_port };
            if !self.is_server(server) {
                self.met.passed += 1;
                out.pass(packet);
                return;
            }
            let mut conn = Box::<Connection>::default();
            let fits = conn.begin(way, seq, hello, place, &packet, self.ahead);
            conn.lane(way).path = Some(out.door.cx.path());
            let entry = Entry { conn, next: None, state: R::State::default(), key, tuple, first: way as u8 };
            if !fits || !self.memory.has_quarter() || !self.insert(entry) {
                self.met.refused += 1;
                if self.full == WhenFull::Drop {
                    out.door.cx.drop(Drop::TableFull, packet);
                } else {
                    out.pass(packet);
                }
                return;
            }
        }
        let told = hello.window.min(self.ahead.min(0xffff) as u16);
        SynParameters::sanitise(&mut packet, place, told, hello.told_scale);
        out.pass(packet);
    }

    /// Processes a SYN-ACK.
    fn syn_ack(
        &mut self,
        number: u32,
        way: usize,
        part: &FlowPacket,
        place: &HeaderOffsets,
        mut packet: Packet,
        out: &mut Output<'_, '_>,
    ) {
        let (seq, ack) = (part.segment.seq, part.segment.ack);
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        let Entry { conn, next, state, first, .. } = entry;
        let known = conn.answers(way, ack) && (!conn.is_open() || conn.begins(way, seq));
        let renews = !known && next.as_ref().is_some_and(|next| next.answers(way, ack));
        if !known && !renews {
            out.door.cx.drop(Drop::Stale, packet);
            return;
        }
        let Some(hello) = SynParameters::read(packet.data(), place, self.ahead) else {
            self.met.passed += 1;
            self.remove(number);
            out.pass(packet);
            return;
        };
        if renews && let Some(next) = next.take() {
            conn.clear(&mut self.memory);
            for id in [number * 2, number * 2 + 1] {
                self.waiting.remove(id);
                self.holding.remove(id);
            }
            (*conn, *state, *first) = (next, R::State::default(), 1 - way as u8);
            self.met.new += 1;
        }
        if !conn.is_open() {
            let fits = conn.begin(way, seq, hello, place, &packet, self.ahead);
            conn.lane(way).path = Some(out.door.cx.path());
            self.yielding.iter_mut().for_each(|all| all.remove(number));
            if !fits {
                self.remove(number);
                out.pass(packet);
                return;
            }
        }
        self.update_lists(number);
        let told = hello.window.min(self.ahead.min(0xffff) as u16);
        SynParameters::sanitise(&mut packet, place, told, hello.told_scale);
        out.pass(packet);
    }

    /// Adds a new connection; evicts a half-open or dead one if necessary.
    fn insert(&mut self, entry: Entry<R::State>) -> bool {
        let (key, v) = (entry.key, usize::from(matches!(entry.key, Key::V6(_))));
        let number = self.free.pop().unwrap_or(self.entries.len() as u32);
        let put = |it: &mut Self| match key {
            Key::V4(key) => it.v4.insert(key, number, it.clock),
            Key::V6(key) => it.v6.insert(key, number, it.clock),
        };
        let mut fits = put(self);
        if !fits && let Some(oldest) = self.yielding[v].first() {
            self.remove(oldest);
            self.met.made_way += 1;
            fits = put(self);
        }
        let slot = number as usize;
        if slot >= self.entries.len() {
            self.entries.resize_with(slot + 1, || None);
        }
        self.changed = true;
        if !fits {
            self.free.push(number);
            return false;
        }
        self.entries[slot] = Some(entry);
        self.yielding[v].push(number, self.now);
        self.met.new += 1;
        self.rewritten += 1;
        true
    }

    /// Removes a flow and frees its memory.
    fn remove(&mut self, number: u32) {
        let Some(mut entry) = self.entries.get_mut(number as usize).and_then(Option::take) else { return };
        match entry.key {
            Key::V4(key) => self.v4.remove(&key),
            Key::V6(key) => self.v6.remove(&key),
        }
        entry.conn.clear(&mut self.memory);
        self.rewritten -= 1;
        self.changed = true;
        for id in [number * 2, number * 2 + 1] {
            self.waiting.remove(id);
            self.holding.remove(id);
        }
        self.yielding.iter_mut().for_each(|all| all.remove(number));
        self.free.push(number);
    }

    /// Evicts the connection whose receiver has made no progress for longest, when memory is full.
    fn evict_stalled(&mut self, out: &mut Output<'_, '_>) {
        if let Some(id) = self.holding.due(self.now, STALLED) {
            self.refuse(id / 2, out);
            self.update_lists(id / 2);
        }
    }

    fn refuse(&mut self, number: u32, out: &mut Output<'_, '_>) {
        at_desk!(self, number => conn, desk);
        conn.reset(out, desk);
    }

    /// Updates the lists of waiting directions and of directions that hold bytes.
    fn update_lists(&mut self, number: u32) {
        let Some(Some(Entry { conn, key, .. })) = self.entries.get_mut(number as usize) else { return };
        if conn.dead && !core::mem::replace(&mut conn.yields, true) {
            self.yielding[usize::from(matches!(key, Key::V6(_)))].push(number, self.now);
        }
        let over = conn.is_over();
        for way in 0..2 {
            let lane = conn.lane(way);
            let id = number * 2 + way as u32;
            let waits = lane.waits() && !over;
            if waits != lane.timed {
                lane.timed = waits;
                if waits { self.waiting.push(id, self.now) } else { self.waiting.remove(id) }
            }
            let holds = lane.is_holding();
            if holds != lane.listed {
                lane.listed = holds;
                if holds { self.holding.push(id, self.now) } else { self.holding.remove(id) }
            } else if core::mem::take(&mut lane.moved) {
                self.holding.touch(id, self.now, STALLED / 8);
            }
        }
    }

    /// Processes due timers of at most `most` directions.
    pub(super) fn expire(&mut self, most: usize, out: &mut Output<'_, '_>) {
        for _ in 0..most {
            let Some(id) = self.waiting.due(self.now, PART) else { break };
            self.waiting.push(id, self.now);
            let starved = self.tick(id / 2, id as usize % 2, out);
            self.update_lists(id / 2);
            if starved {
                self.evict_stalled(out);
            }
        }
    }

    fn tick(&mut self, number: u32, way: usize, out: &mut Output<'_, '_>) -> bool {
        at_desk!(self, number, false => conn, desk);
        conn.tick(way, out, desk)
    }

    /// Scans one of `parts` slices of the flows for expired ones.
    pub(super) fn age(&mut self, parts: usize, out: &mut Output<'_, '_>) {
        let Self { v4, v6, entries, lost, clock, idle, half_open, .. } = self;
        let mut over = |number: u32, ms: u64| {
            let most = match entries.get(number as usize).and_then(Option::as_ref).map(|entry| &entry.conn) {
                // the ends that have not received the reset must not continue
                Some(conn) if conn.dead => *idle,
                Some(conn) if conn.is_over() => LINGER.min(*idle),
                Some(conn) if conn.is_open() => *idle,
                _ => (*half_open).min(*idle),
            };
            if ms >= most {
                lost.push(number);
            }
            false
        };
        v4.age(*clock, parts, &mut over);
        v6.age(*clock, parts, &mut over);
        while let Some(number) = self.lost.pop() {
            self.give_up(number, out);
            self.remove(number);
            self.met.forgotten += 1;
        }
    }

    /// Resets both ends of a connection that cannot continue.
    fn give_up(&mut self, number: u32, out: &mut Output<'_, '_>) {
        at_desk!(self, number => conn, desk);
        if conn.is_shifted() {
            conn.reset(out, desk);
        }
    }
}
