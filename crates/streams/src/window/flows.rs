//! The flows of a node: their streams, whom they are shown to, and what they may hold.

use super::index::{Index, Number};
use super::memory::Memory;
use super::order::Order;
use super::pieces::behind;
use super::settings::{Fail, Settings, WhenFull};
use super::slide::{Shape, Slide};
use super::stream::{Chunk, Desk, Fed, Renewal, Rules, Segment, Tally};
use super::tell::Teller;
use super::transport::{Half, Transport};
use super::{Direction, End, Flow, Look, Lost, Verdict};
use diagnostics::Diagnostic;
use tables::flow::{Full, Settings as TableSettings, Tuple4, Tuple6};
use wire::TcpFlags;
use wire::flow::FiveTuple;

/// Number of no flow.
pub(super) const NOBODY: u32 = u32::MAX;
/// For how long a flow is remembered that has ended, in ms, so that late packets of it do not begin another.
const LINGER: u64 = 10_000;
/// To how many ms the order is kept in which streams were idle.
const IDLE_UNIT: u32 = 128;

/// Drop reasons, in the order of [`DROPS`].
pub(super) const VERDICT: u8 = 0;
pub(super) const HOLD_FULL: u8 = 1;
pub(super) const HOLD_TIMEOUT: u8 = 2;
pub(super) const UNSEEN: u8 = 3;
pub(super) const DROPS: [&str; 4] = ["verdict", "hold_full", "hold_timeout", "unseen"];

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Pass,
    Drop(u8),
    /// It waits until the bytes before this position have been seen.
    Hold(u32),
}

/// What has been met besides what streams meet.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Met {
    pub(super) new: u64,
    pub(super) midstream: u64,
    pub(super) forgotten: u64,
    pub(super) evicted: u64,
    pub(super) not_looked_at: u64,
    pub(super) unreadable: u64,
    pub(super) shown_bytes: u64,
}

/// What has been decided for a flow.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    #[default]
    Look,
    Pass,
    Drop,
}

/// One direction of a flow.
#[derive(Default)]
pub(super) struct Lane<H> {
    pub(super) half: H,
    slide: Slide,
    /// Whether it is in the list of those that wait, and of those that hold memory.
    waits: bool,
    holds: bool,
    /// Whether packets that are held have to go, whatever was seen of them.
    pub(super) resolve: bool,
    /// Packets held.
    pub(super) held: u32,
    /// Position up to which held packets have been looked at.
    pub(super) mark: u32,
    /// When waiting last made progress, in ms.
    since: u32,
    /// Bytes shown, or given up.
    shown: u64,
}

impl<H: Half> Lane<H> {
    /// Position up to which bytes have been seen.
    #[inline(always)]
    pub(super) fn seen(&self) -> u32 {
        self.half.given().wrapping_sub(self.slide.fresh())
    }
}

/// A flow. What a packet in order needs lies in the first three cache lines, which come in pairs.
#[repr(align(128))]
pub(super) struct Conn<H, S> {
    pub(super) lanes: [Lane<H>; 2],
    pub(super) mode: Mode,
    /// Lane of who began it.
    first: u8,
    /// Of lane 0.
    tuple: FiveTuple,
    state: S,
}

/// All flows, and what they share.
pub(super) struct Flows<T: Transport, L: Look> {
    look: L,
    rules: Rules,
    shape: Shape,
    midstream: bool,
    hold: bool,
    full: WhenFull,
    /// In ms.
    timeout: u32,
    idle: u64,
    half_open: u64,
    pub(super) v4: Index<Tuple4>,
    pub(super) v6: Index<Tuple6>,
    pub(super) conns: Vec<Conn<T::Half, L::State>>,
    free: Vec<u32>,
    memory: Memory,
    /// Lanes that hold memory, the one idle longest first.
    holders: Order,
    /// Lanes in which something waits for time to pass.
    waiting: Order,
    /// Lanes whose held packets have to be looked at.
    pub(super) touched: Vec<u32>,
    /// Where the packet that was shown last begins, where packets are held: those before it leave before it.
    pub(super) begins: u32,
    /// Flows to be forgotten.
    lost: Vec<u32>,
    pub(super) tally: Tally,
    pub(super) met: Met,
    /// In ms; and its lower half, which wraps.
    clock: u64,
    now: u32,
}

/// The parts of a flow's lane that feeding it needs, and the lane of the other direction.
macro_rules! parts {
    ($self:ident, $number:expr, $way:expr => $own:ident, $peer:ident, $teller:ident, $desk:ident) => {
        let Self { look, rules, shape, conns, memory, tally, met, now, .. } = $self;
        let Conn { lanes: [a, b], first, tuple, state, .. } = &mut conns[$number as usize];
        let ($own, $peer) = if $way == 0 { (a, b) } else { (b, a) };
        let $desk = &mut Desk { rules, memory, tally, now: *now };
        let direction = if usize::from(*first) == $way { Direction::ToServer } else { Direction::ToClient };
        #[allow(unused_mut, reason = "not everywhere is something told")]
        let mut $teller = Teller {
            look,
            state,
            slide: &mut $own.slide,
            shown: &mut $own.shown,
            bytes: &mut met.shown_bytes,
            shape: *shape,
            flow: Flow {
                tuple,
                number: $number,
                back: $way != 0,
                direction,
                midstream: $own.half.is_midstream(),
                offset: 0,
            },
            verdict: Verdict::Forward,
            told: false,
        };
    };
}

#[inline(always)]
fn lane(number: u32, way: usize) -> u32 {
    number * 2 + way as u32
}

impl<T: Transport, L: Look> Flows<T, L> {
    pub(super) fn new(settings: &Settings, look: L) -> Result<Self, Diagnostic> {
        settings.check()?;
        let full = if settings.full == WhenFull::Evict { Full::EvictOldest } else { Full::Refuse };
        let table = TableSettings { full, ..TableSettings::new(settings.flows as usize) };
        let idle = u64::from(settings.idle) * 1000;
        let refused = |e: tables::flow::Error| {
            Diagnostic::new(e.to_string()).key("flows").value(settings.flows).remedy("write fewer, as far as memory goes")
        };
        Ok(Flows {
            look,
            rules: Rules {
                overlap: settings.overlap,
                pieces: settings.pieces(),
                strict: settings.hold && settings.fail == Fail::Closed,
            },
            shape: Shape { overlap: settings.overlap_len(), increment: settings.increment as usize },
            midstream: settings.midstream,
            hold: settings.hold,
            full: settings.full,
            timeout: settings.timeout,
            idle,
            half_open: u64::from(settings.half_open) * 1000,
            v4: Index::new(&table, idle).map_err(refused)?,
            v6: Index::new(&table, idle).map_err(refused)?,
            conns: vec![],
            free: vec![],
            memory: Memory::new(settings.memory as usize, settings.pieces(), settings.window_len()),
            holders: Order::default(),
            waiting: Order::default(),
            touched: vec![],
            begins: 0,
            lost: vec![],
            tally: Tally::default(),
            met: Met::default(),
            clock: 0,
            now: 0,
        })
    }

    pub(super) fn set_clock(&mut self, ms: u64) {
        (self.clock, self.now) = (ms, ms as u32);
    }

    pub(super) fn gauges(&self) -> super::counts::Gauges {
        super::counts::Gauges {
            flows: self.v4.len() + self.v6.len(),
            refused: self.v4.refused() + self.v6.refused(),
            memory: self.memory.lent(),
            waiting: self.waiting.len(),
        }
    }

    /// Whether packets go when their bytes cannot be seen.
    #[inline(always)]
    pub(super) fn fail(&self, reason: u8) -> Fate {
        if self.rules.strict { Fate::Drop(reason) } else { Fate::Pass }
    }

    /// Finds the flows of the packets of a batch that [`Index::ask`] was called for; `ways` are their directions.
    #[inline(always)]
    pub(super) fn find(&mut self, ways: &[u8], numbers: &mut [u32]) {
        let Self { v4, v6, conns, free, lost, met, clock, .. } = self;
        let mut new = |number: Number<'_>, packet: usize, tuple: &dyn Fn() -> FiveTuple| match number {
            Number::Known(number) => numbers[packet] = number,
            Number::New(number) => {
                met.new += 1;
                let conn = Conn {
                    lanes: Default::default(),
                    mode: Mode::Look,
                    first: ways[packet],
                    tuple: tuple(),
                    state: L::State::default(),
                };
                *number = match free.pop() {
                    Some(at) => {
                        conns[at as usize] = conn;
                        at
                    }
                    None => {
                        conns.push(conn);
                        conns.len() as u32 - 1
                    }
                };
                numbers[packet] = *number;
            }
            Number::Refused => numbers[packet] = NOBODY,
        };
        if v4.is_asked() {
            v4.answer(*clock, |number| lost.push(number), |packet, key, it| new(it, packet, &|| key.five_tuple()));
        }
        if v6.is_asked() {
            v6.answer(*clock, |number| lost.push(number), |packet, key, it| new(it, packet, &|| key.five_tuple()));
        }
        if !self.lost.is_empty() {
            self.forget(End::Evicted);
        }
    }

    /// Ends the flows that are lost, and has their numbers given anew.
    #[cold]
    fn forget(&mut self, why: End) {
        while let Some(number) = self.lost.pop() {
            self.met.evicted += u64::from(why == End::Evicted);
            self.met.forgotten += u64::from(why == End::Idle);
            for way in 0..2 {
                self.end(number, way, why);
            }
            self.free.push(number);
        }
    }

    /// Shows a packet's bytes to its stream. `room`: whether it could be held.
    #[inline(always)]
    pub(super) fn packet(&mut self, number: u32, way: usize, segment: &Segment, payload: &[u8], room: bool) -> Fate {
        let conn = &self.conns[number as usize];
        if conn.mode != Mode::Look {
            return self.decided(number, way, segment, payload, room);
        }
        let own = &conn.lanes[way];
        let odd = segment.flags.intersects(TcpFlags::SYN | TcpFlags::RST) || !own.half.is_open();
        if odd && let Some(fate) = self.odd(number, way, segment, payload) {
            return fate;
        }
        let own = &self.conns[number as usize].lanes[way];
        let early = own.half.needs(segment, payload.len(), &self.memory);
        let window = if own.slide.holds() || payload.is_empty() { 0 } else { self.memory.window_len() };
        if early + window != 0 && !self.memory.has(early + window) {
            self.make_room(early + window, lane(number, way));
            // its windows will be shorter than they should
            self.tally.over_budget += u64::from(early == 0 && !self.memory.has(window));
        }
        if self.hold && !room && self.conns[number as usize].lanes[way].half.is_ahead(segment) {
            // what is dropped must not be seen either: it will be sent again
            if let Fate::Drop(reason) = self.fail(HOLD_FULL) {
                return Fate::Drop(reason);
            }
        }
        parts!(self, number, way => own, peer, teller, desk);
        if !own.half.is_open() {
            teller.flow.midstream = T::HAS_BEGINNING && !segment.flags.contains(TcpFlags::SYN);
        }
        peer.half.hear(segment, own.half.announced_scale());
        let lost = peer.half.is_lost();
        let fed = own
            .half
            .feed(segment, payload, desk, &mut |memory: &mut Memory, chunk: Chunk<'_>| teller.tell(memory, chunk));
        let (told, verdict) = (teller.told, teller.verdict);
        if verdict != Verdict::Forward {
            return self.decide(number, verdict);
        }
        let busy = own.half.waits() || own.half.holds() || own.slide.holds() || own.waits || own.holds;
        if busy {
            self.file(number, way, told);
        }
        if lost && let Some(fate) = self.give_up_lost(number, 1 - way) {
            return fate;
        }
        if !self.hold {
            return Fate::Pass;
        }
        self.hold(number, way, segment, payload, room, fed)
    }

    /// What becomes of a packet of which `fed` is known, where packets are held.
    #[inline(never)]
    fn hold(&mut self, number: u32, way: usize, segment: &Segment, payload: &[u8], room: bool, fed: Fed) -> Fate {
        self.begins = fed.end.wrapping_sub(payload.len() as u32);
        let seen = self.conns[number as usize].lanes[way].seen();
        let matters = !payload.is_empty() || segment.flags.contains(TcpFlags::FIN);
        let fate = if fed.unseen {
            self.fail(UNSEEN)
        } else if !matters || !behind(fed.end, seen) {
            Fate::Pass
        } else if room {
            Fate::Hold(fed.end)
        } else {
            // what waits for a window to be full need not
            self.flush(number, way).unwrap_or(Fate::Pass)
        };
        self.touch(number);
        fate
    }

    /// Has the held packets of a flow looked at, where there is something new.
    fn touch(&mut self, number: u32) {
        for (way, lane) in self.conns[number as usize].lanes.iter().enumerate() {
            let new = self.conns[number as usize].mode != Mode::Look || lane.resolve || lane.mark != lane.seen();
            if lane.held > 0 && new {
                self.touched.push(number * 2 + way as u32);
            }
        }
    }

    /// Says that packets of a lane are held, or that some are not any more.
    pub(super) fn set_held(&mut self, id: u32, held: usize, mark: u32) {
        let lane = &mut self.conns[id as usize / 2].lanes[id as usize % 2];
        (lane.held, lane.mark, lane.resolve) = (held as u32, mark, false);
        self.file(id / 2, id as usize % 2, false);
    }

    /// What becomes of packets of a flow that is not looked at any more.
    #[cold]
    #[inline(never)]
    fn decided(&mut self, number: u32, way: usize, segment: &Segment, payload: &[u8], room: bool) -> Fate {
        if self.conns[number as usize].mode == Mode::Drop {
            return Fate::Drop(VERDICT);
        }
        let flags = segment.flags;
        if !flags.contains(TcpFlags::SYN) || flags.intersects(TcpFlags::ACK | TcpFlags::RST) {
            return Fate::Pass;
        }
        // another connection
        self.renew(number, way, Renewal::Both, 0);
        self.packet(number, way, segment, payload, room)
    }

    /// What a packet may be besides more of the same: the beginning of something, or its end.
    #[cold]
    #[inline(never)]
    fn odd(&mut self, number: u32, way: usize, segment: &Segment, payload: &[u8]) -> Option<Fate> {
        let [own, peer] = [way, 1 - way].map(|way| &self.conns[number as usize].lanes[way].half);
        if segment.flags.contains(TcpFlags::RST) {
            return Some(self.reset(number, way, segment, payload));
        }
        match own.renews(segment, peer) {
            Renewal::None => {}
            renewal => self.renew(number, way, renewal, segment.ack),
        }
        let [own, peer] = [way, 1 - way].map(|way| &self.conns[number as usize].lanes[way].half);
        if own.is_open() {
            return None;
        }
        let (syn, ack) = (segment.flags.contains(TcpFlags::SYN), segment.flags.contains(TcpFlags::ACK));
        let begins = syn || !T::HAS_BEGINNING;
        if !begins && !peer.is_open() {
            if !self.midstream {
                self.met.not_looked_at += 1;
                return Some(self.fail(UNSEEN));
            }
            self.met.midstream += 1;
        }
        if syn && !peer.is_open() {
            // who answers did not begin
            self.conns[number as usize].first = if ack { 1 - way as u8 } else { way as u8 };
        }
        None
    }

    /// A reset, of whichever direction.
    fn reset(&mut self, number: u32, way: usize, segment: &Segment, payload: &[u8]) -> Fate {
        let [own, peer] = [way, 1 - way].map(|way| &self.conns[number as usize].lanes[way].half);
        // who has sent nothing yet must name what it refuses (RFC 9293 §3.10.7.3)
        let named = segment.flags.contains(TcpFlags::ACK) && peer.is_open() && segment.ack == peer.next();
        if !own.is_open() && !named {
            self.tally.out_of_window += 1;
            return if payload.is_empty() { Fate::Pass } else { self.fail(UNSEEN) };
        }
        self.begins = segment.seq;
        for (way, own_reset) in [(way, true), (1 - way, false)] {
            parts!(self, number, way => own, peer, teller, desk);
            let out = &mut |memory: &mut Memory, chunk: Chunk<'_>| teller.tell(memory, chunk);
            if own_reset {
                own.half.feed(segment, &[], desk, out);
            } else if peer.half.is_reset() {
                own.half.close(desk, out);
            }
            let verdict = teller.verdict;
            if own.half.is_reset() {
                own.resolve = own.held > 0;
            }
            if verdict != Verdict::Forward {
                return self.decide(number, verdict);
            }
            self.file(number, way, true);
        }
        self.touch(number);
        if payload.is_empty() { Fate::Pass } else { self.fail(UNSEEN) }
    }

    /// Forgets a connection for the sake of another with the same addresses and ports.
    fn renew(&mut self, number: u32, way: usize, renewal: Renewal, answered: u32) {
        let asked = self.conns[number as usize].lanes[1 - way].half.asked();
        if renewal == Renewal::Other {
            self.end(number, 1 - way, End::Replaced);
            self.conns[number as usize].lanes[1 - way].half.take_up(answered);
            return;
        }
        self.end(number, way, End::Replaced);
        if renewal != Renewal::Own {
            self.end(number, 1 - way, End::Replaced);
            let conn = &mut self.conns[number as usize];
            (conn.mode, conn.state, conn.first) = (Mode::Look, L::State::default(), way as u8);
            self.met.new += 1;
            if renewal == Renewal::Answered {
                conn.first = 1 - way as u8;
                conn.lanes[1 - way].half.take_up(asked);
            }
        }
    }

    /// Gives up gaps of a lane that the receiver has bytes behind.
    #[cold]
    fn give_up_lost(&mut self, number: u32, way: usize) -> Option<Fate> {
        parts!(self, number, way => own, _peer, teller, desk);
        let mut more = true;
        while more && own.half.is_lost() {
            more = own.half.give_up(Lost::Acknowledged, desk, &mut |memory: &mut Memory, chunk: Chunk<'_>| {
                teller.tell(memory, chunk)
            });
        }
        let verdict = teller.verdict;
        if verdict != Verdict::Forward {
            return Some(self.decide(number, verdict));
        }
        self.file(number, way, true);
        None
    }

    /// Shows what waits for its window to be full.
    fn flush(&mut self, number: u32, way: usize) -> Option<Fate> {
        parts!(self, number, way => _own, _peer, teller, desk);
        teller.windows(desk.memory, None);
        let verdict = teller.verdict;
        if verdict != Verdict::Forward {
            return Some(self.decide(number, verdict));
        }
        self.file(number, way, true);
        None
    }

    /// Looks at a flow no more.
    #[cold]
    fn decide(&mut self, number: u32, verdict: Verdict) -> Fate {
        self.conns[number as usize].mode = if verdict == Verdict::Drop { Mode::Drop } else { Mode::Pass };
        for way in 0..2 {
            let lane = &mut self.conns[number as usize].lanes[way];
            lane.half.forget_ahead(&mut self.memory);
            lane.slide.clear(&mut self.memory);
            self.file(number, way, true);
        }
        self.touch(number);
        if verdict == Verdict::Drop { Fate::Drop(VERDICT) } else { Fate::Pass }
    }

    /// Enters a lane in the lists it belongs in, and takes it out of the others.
    fn file(&mut self, number: u32, way: usize, progress: bool) {
        let id = lane(number, way);
        let lane = &mut self.conns[number as usize].lanes[way];
        let waits = lane.half.waits() || lane.slide.fresh() > 0 || lane.held > 0;
        let holds = lane.half.holds() || lane.slide.holds();
        if waits && (progress || !lane.waits) {
            lane.since = self.now;
        }
        if waits != lane.waits {
            lane.waits = waits;
            if waits {
                self.waiting.push(id, self.now);
            } else {
                self.waiting.remove(id);
            }
        }
        if holds != lane.holds {
            lane.holds = holds;
            if holds {
                self.holders.push(id, self.now);
            } else {
                self.holders.remove(id);
            }
        } else if holds {
            self.holders.touch(id, self.now, IDLE_UNIT);
        }
    }

    /// Has streams give way until `needs` bytes can be lent, all but `asks`.
    #[cold]
    fn make_room(&mut self, needs: usize, asks: u32) {
        while self.full == WhenFull::Evict && !self.memory.has(needs) {
            let Some(id) = self.holders.first_but(asks) else { break };
            self.met.evicted += 1;
            if self.rules.strict {
                self.strip(id / 2, id as usize % 2);
            } else {
                self.end(id / 2, id as usize % 2, End::Evicted);
            }
        }
    }

    /// Takes its memory from a stream of which nothing may pass unseen: it goes on where it was, without what was ahead.
    fn strip(&mut self, number: u32, way: usize) {
        if self.flush(number, way).is_some() {
            return;
        }
        let lane = &mut self.conns[number as usize].lanes[way];
        lane.half.forget_ahead(&mut self.memory);
        lane.slide.clear(&mut self.memory);
        (lane.mark, lane.resolve) = (lane.half.given(), lane.held > 0);
        self.file(number, way, true);
        self.touch(number);
    }

    /// Ends one direction: shows what there is, says why, and gives its memory back.
    fn end(&mut self, number: u32, way: usize, why: End) {
        let shows = self.conns[number as usize].mode == Mode::Look;
        let closed = self.rules.strict;
        parts!(self, number, way => own, _peer, teller, desk);
        let mut more = shows && own.half.is_open();
        if closed {
            own.half.forget_ahead(desk.memory);
        }
        while more && own.half.waits() {
            more = own
                .half
                .give_up(Lost::Ended, desk, &mut |memory: &mut Memory, chunk: Chunk<'_>| teller.tell(memory, chunk));
        }
        if more && own.half.is_ended() {
            teller.windows(desk.memory, None);
        } else if more {
            teller.tell(desk.memory, Chunk::End(why));
        }
        let verdict = teller.verdict;
        own.half.forget_ahead(desk.memory);
        own.slide.clear(desk.memory);
        own.mark = own.half.given();
        own.resolve = own.held > 0;
        (own.half, own.shown) = (T::Half::default(), 0);
        if verdict != Verdict::Forward && why == End::Evicted {
            self.decide(number, verdict);
        }
        self.file(number, way, true);
        self.touch(number);
    }

    /// Does what is due by now, besides forgetting flows.
    pub(super) fn expire(&mut self) {
        let part = (self.timeout / 4).max(1);
        while let Some(id) = self.waiting.due(self.now, part) {
            self.waiting.push(id, self.now);
            self.overdue(id / 2, id as usize % 2);
        }
    }

    /// Looks whether a lane has waited for too long.
    fn overdue(&mut self, number: u32, way: usize) {
        let (hold, closed, timeout, now) = (self.hold, self.rules.strict, self.timeout, self.now);
        parts!(self, number, way => own, _peer, teller, desk);
        let late = now.wrapping_sub(own.since) >= timeout;
        let mut more = true;
        if late {
            more = teller.windows(desk.memory, None);
        }
        if late && closed {
            own.half.forget_ahead(desk.memory);
        }
        let waits_enough = |half: &T::Half| half.is_overdue(now, timeout) || (hold && late && half.waits());
        while more && !closed && waits_enough(&own.half) {
            more = own
                .half
                .give_up(Lost::TimedOut, desk, &mut |memory: &mut Memory, chunk: Chunk<'_>| teller.tell(memory, chunk));
        }
        if hold && late && more {
            more = teller.windows(desk.memory, None);
            own.mark = own.half.given();
            own.resolve = own.held > 0;
        }
        let (told, verdict) = (teller.told, teller.verdict);
        if !more && verdict != Verdict::Forward {
            self.decide(number, verdict);
            return;
        }
        self.file(number, way, told || late);
        self.touch(number);
    }

    /// Looks through one of so many parts of the flows for those to forget.
    pub(super) fn age(&mut self, parts: usize) {
        let Self { v4, v6, conns, lost, clock, idle, half_open, .. } = self;
        let mut over = |number: u32, ms: u64| {
            let Some(conn) = conns.get(number as usize) else { return true };
            let [a, b] = &conn.lanes;
            let ended = a.half.is_ended() && b.half.is_ended();
            let most = if ended || a.half.is_reset() || b.half.is_reset() {
                LINGER.min(*idle)
            } else if T::HAS_BEGINNING && a.shown + b.shown == 0 && a.half.is_open() != b.half.is_open() {
                (*half_open).min(*idle)
            } else {
                *idle
            };
            let over = ms >= most;
            if over {
                lost.push(number);
            }
            over
        };
        v4.age(*clock, parts, &mut over);
        v6.age(*clock, parts, &mut over);
        if !self.lost.is_empty() {
            self.forget(End::Idle);
        }
    }

    /// Ends all flows.
    pub(super) fn stop(&mut self) {
        for number in 0..self.conns.len() as u32 {
            for way in 0..2 {
                self.end(number, way, End::Stopped);
            }
        }
    }
}
