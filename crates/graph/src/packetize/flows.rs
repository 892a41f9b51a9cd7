//! The connections of a node.

use super::conn::Conn;
use super::head::Place;
use super::lane::{Desk, Rules, Tally};
use super::out::Out;
use super::settings::{Settings, WhenFull};
use super::{MALFORMED, NOT_TAKEN, Rewrite, UNREADABLE};
use crate::Diagnostic;
use crate::window::frame::Part;
use crate::window::index::{Index, Number};
use crate::window::memory::Memory;
use crate::window::order::Order;
use crate::window::{Direction, Flow};
use packet::Packet;
use tables::flow::{Full, Settings as TableSettings, Tuple4, Tuple6};
use wire::TcpFlags;
use wire::flow::FiveTuple;

/// Number of no flow.
pub(super) const NOBODY: u32 = u32::MAX;
/// For how long a connection is remembered that has ended, in ms, so that what is repeated late is still translated.
const LINGER: u64 = 10_000;
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
    pub(super) unreadable: u64,
}

/// What is done with the packets of a flow.
#[derive(Default)]
enum Mode {
    /// Nothing yet.
    #[default]
    Fresh,
    /// They pass unmodified.
    Pass,
    Rewrite(Box<Conn>),
}

/// A flow, its state, and of which direction the first packet was.
struct Entry<S> {
    mode: Mode,
    state: S,
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
    entries: Vec<Entry<R::State>>,
    free: Vec<u32>,
    memory: Memory,
    scratch: Vec<u8>,
    /// Lanes in which something waits for time to pass.
    waiting: Order,
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
    ($self:ident, $number:expr => $conn:ident, $desk:ident) => {
        let Self { rewrite, rules, entries, memory, scratch, tally, now, .. } = $self;
        let Some(Entry { mode: Mode::Rewrite($conn), state, tuple, first }) = entries.get_mut($number as usize) else {
            return;
        };
        let mut run = |way: usize, offset: u64, bytes: &[u8], more: bool, out: &mut Vec<u8>| {
            let direction = if usize::from(*first) == way { Direction::ToServer } else { Direction::ToClient };
            let flow = Flow { tuple, number: $number, back: way != 0, direction, midstream: false, offset };
            rewrite.rewrite(&flow, state, bytes, more, out)
        };
        let $desk = &mut Desk { rules, memory, tally, scratch, now: *now, run: &mut run };
    };
}

impl<R: Rewrite> Flows<R> {
    pub(super) fn new(settings: &Settings, rewrite: R) -> Result<Self, Diagnostic> {
        settings.check()?;
        let table = TableSettings { full: Full::Refuse, ..TableSettings::new(settings.flows as usize) };
        let idle = u64::from(settings.idle) * 1000;
        let refused = |e: tables::flow::Error| {
            Diagnostic::new(e.to_string()).key("flows").value(settings.flows).cure("write fewer, as far as memory goes")
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
    pub(super) fn find(&mut self, ways: &[u8], numbers: &mut [u32]) {
        let Self { v4, v6, entries, free, clock, .. } = self;
        let mut new = |number: Number<'_>, packet: usize, tuple: &dyn Fn() -> FiveTuple| match number {
            Number::Known(number) => numbers[packet] = number,
            Number::New(number) => {
                let entry =
                    Entry { mode: Mode::Fresh, state: R::State::default(), tuple: tuple(), first: ways[packet] };
                *number = match free.pop() {
                    Some(at) => {
                        entries[at as usize] = entry;
                        at
                    }
                    None => {
                        entries.push(entry);
                        entries.len() as u32 - 1
                    }
                };
                numbers[packet] = *number;
            }
            Number::Refused => numbers[packet] = NOBODY,
        };
        // the tables refuse what is too much: nothing makes way
        if v4.is_asked() {
            v4.answer(*clock, |_| (), |packet, key, it| new(it, packet, &|| key.five_tuple()));
        }
        if v6.is_asked() {
            v6.answer(*clock, |_| (), |packet, key, it| new(it, packet, &|| key.five_tuple()));
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
    pub(super) fn packet(&mut self, number: u32, part: &Part, packet: Packet, out: &mut Out<'_, '_>) {
        let way = usize::from(part.way & 1);
        let syn = part.segment.flags.contains(TcpFlags::SYN);
        let Some(entry) = self.entries.get_mut(number as usize) else {
            self.met.refused += u64::from(syn);
            if syn && self.full == WhenFull::Drop {
                out.door.cx.drop(NOT_TAKEN, packet);
            } else {
                out.pass(packet);
            }
            return;
        };
        let begins = syn && !part.segment.flags.contains(TcpFlags::ACK);
        if matches!(entry.mode, Mode::Pass) && !begins {
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
        if syn {
            self.syn(number, way, part, &place, packet, out);
            return;
        }
        let conn = match &mut entry.mode {
            Mode::Rewrite(conn) => conn,
            mode => {
                *mode = Mode::Pass;
                self.met.midstream += 1;
                out.pass(packet);
                return;
            }
        };
        if !conn.is_open() {
            // half of the handshake passes elsewhere, or this is of an earlier connection
            if conn.is_lane_open(way) && part.len > 0 {
                self.pass(number);
            }
            out.pass(packet);
            return;
        }
        conn.lane(way).path = Some(out.door.cx.way());
        at_desk!(self, number => conn, desk);
        conn.packet(way, part, &place, packet, out, desk);
        self.file(number);
    }

    /// A packet that begins a connection.
    #[allow(clippy::too_many_arguments, reason = "it is what a packet is, and where it goes")]
    fn syn(&mut self, number: u32, way: usize, part: &Part, place: &Place, mut packet: Packet, out: &mut Out<'_, '_>) {
        let flags = part.segment.flags;
        if flags.intersects(TcpFlags::FIN | TcpFlags::RST) {
            out.door.cx.drop(MALFORMED, packet);
            return;
        }
        let answer = flags.contains(TcpFlags::ACK);
        // one that comes late is of the connection that is there
        let over = matches!(&self.entries[number as usize].mode, Mode::Rewrite(conn)
            if conn.is_over() && !conn.begins(way, part.segment.seq));
        if over && !answer {
            self.forget(number);
        }
        let tuple = &self.entries[number as usize].tuple;
        let server = if way == 0 { tuple.dst_port } else { tuple.src_port };
        let fresh = !matches!(self.entries[number as usize].mode, Mode::Rewrite(_));
        if fresh && (answer || !self.is_server(server)) {
            self.pass(number);
        } else if fresh && !self.memory.has_quarter() {
            self.met.refused += 1;
            if self.full == WhenFull::Drop {
                out.door.cx.drop(NOT_TAKEN, packet);
                return;
            }
            self.pass(number);
        } else if fresh {
            let entry = &mut self.entries[number as usize];
            (entry.mode, entry.state, entry.first) = (Mode::Rewrite(Box::default()), R::State::default(), way as u8);
            self.met.new += 1;
            self.rewritten += 1;
        }
        if let Mode::Rewrite(conn) = &mut self.entries[number as usize].mode {
            conn.lane(way).path = Some(out.door.cx.way());
            if !conn.syn(way, part, place, &mut packet, self.ahead) && !conn.is_open() {
                self.pass(number);
            }
        }
        out.pass(packet);
    }

    /// Lets a flow pass unmodified from now on.
    fn pass(&mut self, number: u32) {
        self.forget(number);
        self.entries[number as usize].mode = Mode::Pass;
        self.met.passed += 1;
    }

    /// Gives back what a flow has.
    fn forget(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        if let Mode::Rewrite(mut conn) = core::mem::take(&mut entry.mode) {
            conn.clear(&mut self.memory);
            self.rewritten -= 1;
        }
        entry.state = R::State::default();
        (0..2).for_each(|way| self.waiting.remove(number * 2 + way));
    }

    /// Enters the directions of a connection in the list of those that wait, or takes them out.
    fn file(&mut self, number: u32) {
        let Some(Entry { mode: Mode::Rewrite(conn), .. }) = self.entries.get_mut(number as usize) else { return };
        let over = conn.is_over();
        for way in 0..2 {
            let lane = conn.lane(way);
            let waits = lane.waits() && !over;
            if waits != lane.timed {
                lane.timed = waits;
                let id = number * 2 + way as u32;
                if waits { self.waiting.push(id, self.now) } else { self.waiting.remove(id) }
            }
        }
    }

    /// Does what is due by now, besides forgetting flows.
    pub(super) fn expire(&mut self, out: &mut Out<'_, '_>) {
        while let Some(id) = self.waiting.due(self.now, PART) {
            self.waiting.push(id, self.now);
            self.tick(id / 2, id as usize % 2, out);
            self.file(id / 2);
        }
    }

    fn tick(&mut self, number: u32, way: usize, out: &mut Out<'_, '_>) {
        at_desk!(self, number => conn, desk);
        conn.tick(way, out, desk);
    }

    /// Looks through one of so many parts of the flows for those to forget.
    pub(super) fn age(&mut self, parts: usize, out: &mut Out<'_, '_>) {
        let Self { v4, v6, entries, lost, clock, idle, half_open, .. } = self;
        let mut over = |number: u32, ms: u64| {
            let most = match entries.get(number as usize).map(|entry| &entry.mode) {
                Some(Mode::Rewrite(conn)) if conn.is_over() => LINGER.min(*idle),
                Some(Mode::Rewrite(conn)) if conn.is_open() => *idle,
                _ => (*half_open).min(*idle),
            };
            let over = ms >= most;
            if over {
                lost.push(number);
            }
            over
        };
        v4.age(*clock, parts, &mut over);
        v6.age(*clock, parts, &mut over);
        while let Some(number) = self.lost.pop() {
            self.give_up(number, out);
            self.forget(number);
            self.met.forgotten += 1;
            self.free.push(number);
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
