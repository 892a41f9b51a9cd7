//! The connections of a node.

use super::conn::Conn;
use super::head::Place;
use super::hello::Hello;
use super::lane::{Desk, Rules, Tally};
use super::out::Out;
use super::settings::{Settings, WhenFull};
use super::{BEYOND, MALFORMED, NOT_TAKEN, Rewrite, STALE, UNREADABLE};
use crate::window::frame::{self, Frame, Part};
use crate::window::index::Index;
use crate::window::memory::Memory;
use crate::window::order::Order;
use crate::window::{Direction, Flow};
use diagnostics::Diagnostic;
use packet::Packet;
use tables::flow::{Full, Settings as TableSettings, Tuple4, Tuple6};
use wire::flow::FiveTuple;
use wire::{Tcp, TcpFlags};

/// Number of no flow.
pub(super) const NOBODY: u32 = u32::MAX;
/// For how long a connection is remembered that has ended in order, in ms, so that what is repeated late is still translated.
const LINGER: u64 = 10_000;
/// For how long, in ms, a receiver has to have taken nothing that makes way when memory is full.
const STALLED: u32 = 500;
/// How often lanes are looked at that wait for time to pass, in ms.
const PART: u32 = 4;

/// What has been met besides what connections meet.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Met {
    pub(super) new: u64,
    pub(super) passed: u64,
    pub(super) midstream: u64,
    pub(super) refused: u64,
    pub(super) forgotten: u64,
    pub(super) made_way: u64,
    pub(super) unreadable: u64,
}

/// A flow as its table knows it.
#[derive(Clone, Copy)]
enum Key {
    V4(Tuple4),
    V6(Tuple6),
}

/// A flow, its state, and of which direction the first packet was.
struct Entry<S> {
    conn: Box<Conn>,
    /// What the last SYN that is not of this connection would begin: it takes its place when the other end agrees.
    next: Option<Box<Conn>>,
    state: S,
    key: Key,
    /// Of direction 0.
    tuple: FiveTuple,
    first: u8,
}

/// All connections, and what they share.
pub(super) struct Flows<R: Rewrite> {
    rewrite: R,
    rules: Rules,
    /// Bytes that a sender may be ahead.
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
    /// Lanes in which something waits for time to pass.
    waiting: Order,
    /// Lanes that hold what the receiver has not acknowledged, in the order in which it last did.
    holding: Order,
    /// Connections that make way for new ones, over IPv4 and IPv6: whose handshake is not over, and dead ones.
    yielding: [Order; 2],
    /// Whether numbers that were found for this batch may be wrong.
    changed: bool,
    /// Flows to be forgotten.
    lost: Vec<u32>,
    pub(super) tally: Tally,
    pub(super) met: Met,
    rewritten: usize,
    /// In ms; and its lower half, which wraps.
    clock: u64,
    now: u32,
}

/// A flow's connection, and a desk for it to be processed at.
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
        let $desk = &mut Desk { rules, memory, tally, scratch, connections: *rewritten, now: *now, run: &mut run };
    };
}

impl<R: Rewrite> Flows<R> {
    pub(super) fn new(settings: &Settings, rewrite: R) -> Result<Self, Diagnostic> {
        settings.check()?;
        let table = TableSettings { full: Full::Refuse, ..TableSettings::new(settings.flows as usize) };
        let idle = u64::from(settings.idle) * 1000;
        let refused = |e: tables::flow::Error| {
            Diagnostic::new(e.to_string()).key("flows").value(settings.flows).remedy("write fewer, as far as memory goes")
        };
        let ports = (!settings.ports.is_empty()).then(|| {
            let mut all = vec![false; 1 << 16];
            settings.ports.iter().for_each(|port| all[usize::from(*port)] = true);
            all.into_boxed_slice()
        });
        Ok(Flows {
            rewrite,
            rules: Rules {
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
            tally: Tally::default(),
            met: Met::default(),
            rewritten: 0,
            clock: 0,
            now: 0,
        })
    }

    pub(super) fn set_clock(&mut self, ms: u64) {
        (self.clock, self.now) = (ms, ms as u32);
    }

    /// Connections that are rewritten, flows that are known, bytes that are lent, and directions that wait.
    pub(super) fn gauges(&self) -> [u64; 4] {
        let known = self.v4.len() + self.v6.len();
        [self.rewritten, known, self.memory.lent(), self.waiting.len()].map(|n| n as u64)
    }

    /// Whether connections between these ports may be looked at.
    #[inline(always)]
    pub(super) fn wants(&self, tuple: &FiveTuple) -> bool {
        self.is_server(tuple.src_port) || self.is_server(tuple.dst_port)
    }

    #[inline(always)]
    fn is_server(&self, port: u16) -> bool {
        self.ports.as_ref().is_none_or(|all| all[usize::from(port)])
    }

    /// Finds the flows of the packets of a batch that [`Index::ask`] was called for.
    #[inline(always)]
    pub(super) fn find(&mut self, numbers: &mut [u32]) {
        self.changed = false;
        if self.v4.is_asked() {
            self.v4.seek(self.clock, |packet, number| numbers[packet] = number);
        }
        if self.v6.is_asked() {
            self.v6.seek(self.clock, |packet, number| numbers[packet] = number);
        }
    }

    /// Finds the flow of one packet.
    fn find_one(&self, key: Key) -> u32 {
        let number = match key {
            Key::V4(key) => self.v4.get(&key),
            Key::V6(key) => self.v6.get(&key),
        };
        number.unwrap_or(NOBODY)
    }

    fn key_of(packet: &Packet) -> Option<Key> {
        match frame::read::<Tcp>(packet.data(), false) {
            Frame::V4(key, _) => Some(Key::V4(key)),
            Frame::V6(key, _) => Some(Key::V6(key)),
            _ => None,
        }
    }

    /// Processes a packet of TCP that cannot be read, or is a fragment: nobody knows of which connection it is.
    pub(super) fn unreadable(&mut self, packet: Packet, out: &mut Out<'_, '_>) {
        self.met.unreadable += 1;
        if self.rewritten == 0 {
            out.pass(packet);
        } else {
            out.door.cx.drop(UNREADABLE, packet);
        }
    }

    /// Processes a packet of a flow.
    pub(super) fn packet(&mut self, mut number: u32, part: &Part, packet: Packet, out: &mut Out<'_, '_>) {
        let way = usize::from(part.way & 1);
        let flags = part.segment.flags;
        let syn = flags.contains(TcpFlags::SYN);
        if self.changed {
            number = Self::key_of(&packet).map_or(NOBODY, |key| self.find_one(key));
        }
        let known = self.entries.get(number as usize).is_some_and(Option::is_some);
        let begins = syn && !flags.contains(TcpFlags::ACK);
        if !known && !begins {
            self.met.midstream += u64::from(!syn);
            out.pass(packet);
            return;
        }
        let Some(place) = Place::of(packet.data()) else {
            out.door.cx.drop(MALFORMED, packet);
            return;
        };
        if self.checksums && !place.is_sound(packet.data()) {
            self.met.unreadable += 1;
            out.door.cx.drop(UNREADABLE, packet);
            return;
        }
        if syn && flags.intersects(TcpFlags::FIN | TcpFlags::RST) {
            out.door.cx.drop(MALFORMED, packet);
        } else if begins {
            self.syn(number, way, part, &place, packet, out);
        } else if syn {
            self.syn_ack(number, way, part, &place, packet, out);
        } else {
            self.segment(number, way, part, &place, packet, out);
        }
    }

    /// A packet of a connection that is no SYN.
    fn segment(&mut self, number: u32, way: usize, part: &Part, place: &Place, packet: Packet, out: &mut Out<'_, '_>) {
        let Some(Some(Entry { conn, next, .. })) = self.entries.get_mut(number as usize) else { return };
        let refuses = part.segment.flags.contains(TcpFlags::RST | TcpFlags::ACK);
        let answers = |conn: &Conn| conn.answers(way, part.segment.ack);
        if refuses && next.as_ref().is_some_and(|next| answers(next)) {
            *next = None;
            out.pass(packet);
            return;
        }
        if !conn.is_open() {
            // neither end may go round the node by what it says before the other has agreed
            if part.len > 0 {
                out.door.cx.drop(BEYOND, packet);
            } else {
                out.pass(packet);
            }
            return;
        }
        at_desk!(self, number => conn, desk);
        let starved = conn.packet(way, part, place, packet, out, desk);
        self.file(number);
        if starved {
            self.relieve(out);
        }
    }

    /// A packet that begins a connection, or would.
    fn syn(&mut self, number: u32, way: usize, part: &Part, place: &Place, mut packet: Packet, out: &mut Out<'_, '_>) {
        let seq = part.segment.seq;
        let Some(hello) = Hello::read(packet.data(), place, self.ahead) else {
            self.met.passed += 1;
            out.pass(packet);
            return;
        };
        if let Some(Some(Entry { conn, next, first, .. })) = self.entries.get_mut(number as usize) {
            // of an end that begins at the same time as the other the answer counts
            if !conn.begins(way, seq) && (usize::from(*first) == way || conn.is_over()) {
                let mut new = Box::<Conn>::default();
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
            let mut conn = Box::<Conn>::default();
            let fits = conn.begin(way, seq, hello, place, &packet, self.ahead);
            conn.lane(way).path = Some(out.door.cx.path());
            let entry = Entry { conn, next: None, state: R::State::default(), key, tuple, first: way as u8 };
            if !fits || !self.memory.has_quarter() || !self.enter(entry) {
                self.met.refused += 1;
                if self.full == WhenFull::Drop {
                    out.door.cx.drop(NOT_TAKEN, packet);
                } else {
                    out.pass(packet);
                }
                return;
            }
        }
        let told = hello.window.min(self.ahead.min(0xffff) as u16);
        Hello::scrub(&mut packet, place, told, hello.told_scale);
        out.pass(packet);
    }

    /// A packet that answers one that begins a connection.
    fn syn_ack(
        &mut self,
        number: u32,
        way: usize,
        part: &Part,
        place: &Place,
        mut packet: Packet,
        out: &mut Out<'_, '_>,
    ) {
        let (seq, ack) = (part.segment.seq, part.segment.ack);
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        let Entry { conn, next, state, first, .. } = entry;
        let known = conn.answers(way, ack) && (!conn.is_open() || conn.begins(way, seq));
        let renews = !known && next.as_ref().is_some_and(|next| next.answers(way, ack));
        if !known && !renews {
            out.door.cx.drop(STALE, packet);
            return;
        }
        let Some(hello) = Hello::read(packet.data(), place, self.ahead) else {
            self.met.passed += 1;
            self.forget(number);
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
                self.forget(number);
                out.pass(packet);
                return;
            }
        }
        self.file(number);
        let told = hello.window.min(self.ahead.min(0xffff) as u16);
        Hello::scrub(&mut packet, place, told, hello.told_scale);
        out.pass(packet);
    }

    /// Enters a connection that begins. One that is none yet, or no more, makes way, if need be.
    fn enter(&mut self, entry: Entry<R::State>) -> bool {
        let (key, v) = (entry.key, usize::from(matches!(entry.key, Key::V6(_))));
        let number = self.free.pop().unwrap_or(self.entries.len() as u32);
        let put = |it: &mut Self| match key {
            Key::V4(key) => it.v4.enter(key, number, it.clock),
            Key::V6(key) => it.v6.enter(key, number, it.clock),
        };
        let mut fits = put(self);
        if !fits && let Some(oldest) = self.yielding[v].first() {
            self.forget(oldest);
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

    /// Forgets a flow, and gives back what it has.
    fn forget(&mut self, number: u32) {
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

    /// Memory is full: the connection makes way whose receiver has taken nothing for longest.
    fn relieve(&mut self, out: &mut Out<'_, '_>) {
        if let Some(id) = self.holding.due(self.now, STALLED) {
            self.refuse(id / 2, out);
            self.file(id / 2);
        }
    }

    fn refuse(&mut self, number: u32, out: &mut Out<'_, '_>) {
        at_desk!(self, number => conn, desk);
        conn.refuse(out, desk);
    }

    /// Enters the directions of a connection in the lists of those that wait and that hold something, or takes them out.
    fn file(&mut self, number: u32) {
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

    /// Does what is due by now, besides forgetting flows, in so many directions at most.
    pub(super) fn expire(&mut self, most: usize, out: &mut Out<'_, '_>) {
        for _ in 0..most {
            let Some(id) = self.waiting.due(self.now, PART) else { break };
            self.waiting.push(id, self.now);
            let starved = self.tick(id / 2, id as usize % 2, out);
            self.file(id / 2);
            if starved {
                self.relieve(out);
            }
        }
    }

    fn tick(&mut self, number: u32, way: usize, out: &mut Out<'_, '_>) -> bool {
        at_desk!(self, number, false => conn, desk);
        conn.tick(way, out, desk)
    }

    /// Looks through one of so many parts of the flows for those to forget.
    pub(super) fn age(&mut self, parts: usize, out: &mut Out<'_, '_>) {
        let Self { v4, v6, entries, lost, clock, idle, half_open, .. } = self;
        let mut over = |number: u32, ms: u64| {
            let most = match entries.get(number as usize).and_then(Option::as_ref).map(|entry| &entry.conn) {
                // who has not heard of it must not go on
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
            self.forget(number);
            self.met.forgotten += 1;
        }
    }

    /// Tells both ends of a connection that it cannot go on, if that is so.
    fn give_up(&mut self, number: u32, out: &mut Out<'_, '_>) {
        at_desk!(self, number => conn, desk);
        if conn.is_shifted() {
            conn.refuse(out, desk);
        }
    }
}
