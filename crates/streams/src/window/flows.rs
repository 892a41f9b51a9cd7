//! Flow table of a node: streams, verdicts, held packets.

use super::counts::FlowEvents;
use super::event_sink::EventSink;
use super::index::{Index, Number};
use super::memory::Memory;
use super::order::Order;
use super::piece::behind;
use super::settings::{Fail, Settings, WhenFull};
use super::sliding_window::{SlidingWindow, WindowShape};
use super::stream_state::{Chunk, Fed, Limits, Restart, Segment, Shared, StreamCounts, StreamState};
use super::stream_table::{StreamRow, StreamTable};
use super::transport::Transport;
use super::{Direction, End, Flow, Inspect, Lost, Verdict};
use diagnostics::Diagnostic;
use tables::flow::{Full, Settings as TableSettings, Tuple4, Tuple6};
use wire::TcpFlags;
use wire::flow::FiveTuple;

/// Number that stands for "no flow".
pub(super) const NO_FLOW: u32 = u32::MAX;
/// Milliseconds for which an ended flow is kept, so that late packets do not start another.
const LINGER: u64 = 10_000;
/// Resolution in ms of the idle order of streams.
const IDLE_UNIT: u32 = 128;

graph::named_enum! {
    /// Drop reasons of a window node.
    pub(super) enum DropReason {
        /// Verdict of the closure.
        Verdict = "verdict",
        /// No room for another held packet.
        HoldFull = "hold_full",
        /// Held for the timeout without inspection.
        HoldTimeout = "hold_timeout",
        /// Bytes that cannot be inspected.
        Unseen = "unseen",
    }
}

/// Fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Pass,
    Drop(DropReason),
    /// Held until the bytes before this position have been inspected.
    Hold(u32),
}

/// Decision about a flow.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    #[default]
    Look,
    Pass,
    Drop,
}

/// One direction of a flow.
#[derive(Default)]
pub(super) struct DirectionState<H> {
    pub(super) half: H,
    slide: SlidingWindow,
    /// True if it is in the list of waiting directions; and true if it is in the list of those that hold memory.
    waits: bool,
    holds: bool,
    /// True if held packets must leave regardless of inspection.
    pub(super) resolve: bool,
    /// Number of held packets.
    pub(super) held: u32,
    /// Position up to which held packets have been processed.
    pub(super) mark: u32,
    /// Time of the last progress while waiting, in ms.
    since: u32,
    /// Bytes delivered or given up.
    shown: u64,
}

impl<H: StreamState> DirectionState<H> {
    /// Returns the position up to which bytes have been inspected.
    #[inline(always)]
    pub(super) fn seen(&self) -> u32 {
        self.half.given().wrapping_sub(self.slide.fresh())
    }
}

/// A flow. The fields for a packet in order are in the first three cache lines, which are prefetched in pairs.
#[repr(align(128))]
pub(super) struct FlowState<H, S> {
    pub(super) lanes: [DirectionState<H>; 2],
    pub(super) mode: Mode,
    /// Direction of the client.
    first: u8,
    /// Addresses and ports of direction 0.
    tuple: FiveTuple,
    state: S,
}

impl<H, S> FlowState<H, S> {
    /// Returns the bytes of both directions that were delivered or given up.
    fn shown(&self) -> u64 {
        self.lanes[0].shown + self.lanes[1].shown
    }

    /// Returns its row in the table of streams.
    fn row(&self, number: u32) -> StreamRow {
        let [a, b] = [self.lanes[0].shown, self.lanes[1].shown];
        let (tuple, bytes) = if self.first == 0 { (self.tuple, [a, b]) } else { (self.tuple.reversed(), [b, a]) };
        let verdict = match self.mode {
            Mode::Look => Verdict::Forward,
            Mode::Pass => Verdict::Pass,
            Mode::Drop => Verdict::Drop,
        };
        StreamRow { number, tuple, bytes, verdict }
    }
}

/// Returns the rank of a port: servers have ports of lower ranks than clients. See [`Direction`].
fn port_rank(port: u16) -> u8 {
    match port {
        0..1024 => 0,
        1024..32_768 => 1,
        32_768.. => 2,
    }
}

/// Returns the direction of the client of a flow whose first packet has direction `way`. `tuple` is that of direction
/// 0.
fn client(way: u8, tuple: &FiveTuple) -> u8 {
    match port_rank(tuple.src_port).cmp(&port_rank(tuple.dst_port)) {
        core::cmp::Ordering::Less => 1,
        core::cmp::Ordering::Greater => 0,
        core::cmp::Ordering::Equal => way,
    }
}

/// All flows and the state they share.
pub(super) struct Flows<T: Transport, L: Inspect> {
    look: L,
    rules: Limits,
    shape: WindowShape,
    midstream: bool,
    hold: bool,
    full: WhenFull,
    /// Timeouts in ms.
    timeout: u32,
    idle: u64,
    half_open: u64,
    pub(super) v4: Index<Tuple4>,
    pub(super) v6: Index<Tuple6>,
    pub(super) conns: Vec<FlowState<T::StreamState, L::State>>,
    free: Vec<u32>,
    memory: Memory,
    /// Directions that hold memory, the longest idle first.
    holders: Order,
    /// Directions that wait for a timer.
    waiting: Order,
    /// Directions whose held packets have to be processed.
    pub(super) touched: Vec<u32>,
    /// Start of the packet in process, if packets are held: those before it leave before it.
    pub(super) begins: u32,
    /// Flows to remove.
    lost: Vec<u32>,
    pub(super) tally: StreamCounts,
    pub(super) met: FlowEvents,
    pub(super) table: StreamTable,
    /// Largest number of flows, of both IP versions together, and bytes of memory.
    limits: [u64; 2],
    /// Time in ms, and its lower half, which wraps.
    clock: u64,
    now: u32,
}

/// Borrows of a direction and its flow, and the opposite direction.
macro_rules! parts {
    ($self:ident, $number:expr, $way:expr => $own:ident, $peer:ident, $teller:ident, $desk:ident) => {
        let Self { look, rules, shape, conns, memory, tally, met, now, .. } = $self;
        let FlowState { lanes: [a, b], first, tuple, state, .. } = &mut conns[$number as usize];
        let ($own, $peer) = if $way == 0 { (a, b) } else { (b, a) };
        let $desk = &mut Shared { rules, memory, tally, now: *now };
        let direction = if usize::from(*first) == $way { Direction::ToServer } else { Direction::ToClient };
        #[allow(unused_mut, reason = "not everywhere is something told")]
        let mut $teller = EventSink {
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

impl<T: Transport, L: Inspect> Flows<T, L> {
    pub(super) fn new(settings: &Settings, look: L) -> Result<Self, Diagnostic> {
        settings.check()?;
        let full = if settings.full == WhenFull::Evict { Full::EvictOldest } else { Full::Refuse };
        let table = TableSettings { full, ..TableSettings::new(settings.flows as usize) };
        let idle = u64::from(settings.idle) * 1000;
        let refused = |e: tables::flow::Error| {
            Diagnostic::new(e.to_string())
                .key("flows")
                .value(settings.flows)
                .remedy("write fewer, as far as memory goes")
        };
        Ok(Flows {
            look,
            rules: Limits {
                overlap: settings.overlap,
                pieces: settings.pieces(),
                strict: settings.hold && settings.fail == Fail::Closed,
            },
            shape: WindowShape { overlap: settings.overlap_len(), increment: settings.increment as usize },
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
            tally: StreamCounts::default(),
            met: FlowEvents::default(),
            table: StreamTable::new(),
            limits: [2 * u64::from(settings.flows), settings.memory],
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

    pub(super) fn gauges(&self) -> super::counts::Gauges {
        super::counts::Gauges {
            flows: self.v4.len() + self.v6.len(),
            flows_limit: self.limits[0],
            memory_limit: self.limits[1],
            refused: self.v4.refused() + self.v6.refused(),
            memory: self.memory.allocated(),
            waiting: self.waiting.len(),
        }
    }

    /// Returns the fate of packets whose bytes cannot be inspected.
    #[inline(always)]
    pub(super) fn fail(&self, reason: DropReason) -> Fate {
        if self.rules.strict { Fate::Drop(reason) } else { Fate::Pass }
    }

    /// Looks up the flows of the packets of a batch that [`Index::ask`] was called for; `ways` are their directions.
    #[inline(always)]
    pub(super) fn find(&mut self, ways: &[u8], numbers: &mut [u32]) {
        let Self { v4, v6, conns, free, lost, met, clock, .. } = self;
        let mut new = |number: Number<'_>, packet: usize, tuple: &dyn Fn() -> FiveTuple| match number {
            Number::Known(number) => numbers[packet] = number,
            Number::New(number) => {
                met.new += 1;
                let tuple = tuple();
                let conn = FlowState {
                    lanes: Default::default(),
                    mode: Mode::Look,
                    first: client(ways[packet], &tuple),
                    tuple,
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
            Number::Refused => numbers[packet] = NO_FLOW,
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

    /// Ends evicted flows and frees their numbers.
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

    /// Feeds the bytes of a packet to its stream. `room`: true if the packet could be held.
    #[inline(always)]
    pub(super) fn packet(&mut self, number: u32, way: usize, segment: &Segment, payload: &[u8], room: bool) -> Fate {
        let conn = &self.conns[number as usize];
        if conn.mode != Mode::Look {
            return self.decided(number, way, segment, payload, room);
        }
        let own = &conn.lanes[way];
        let odd = segment.flags.intersects(TcpFlags::SYN | TcpFlags::RST) || !own.half.is_open();
        if odd && let Some(fate) = self.handle_start_or_end(number, way, segment, payload) {
            return fate;
        }
        let own = &self.conns[number as usize].lanes[way];
        let early = own.half.needs(segment, payload.len(), &self.memory);
        let window = if own.slide.holds() || payload.is_empty() { 0 } else { self.memory.window_len() };
        if early + window != 0 && !self.memory.has(early + window) {
            self.make_room(early + window, lane(number, way));
            // its windows will be shorter than configured
            self.tally.over_budget += u64::from(early == 0 && !self.memory.has(window));
        }
        if self.hold && !room && self.conns[number as usize].lanes[way].half.is_ahead(segment) {
            // bytes of a dropped packet must not be inspected: they will be retransmitted
            if let Fate::Drop(reason) = self.fail(DropReason::HoldFull) {
                return Fate::Drop(reason);
            }
        }
        parts!(self, number, way => own, peer, teller, desk);
        if !own.half.is_open() {
            teller.flow.midstream = T::HAS_BEGINNING && !segment.flags.contains(TcpFlags::SYN);
        }
        peer.half.process_ack(segment, own.half.announced_scale());
        let lost = peer.half.is_lost();
        let fed = own
            .half
            .feed(segment, payload, desk, &mut |memory: &mut Memory, chunk: Chunk<'_>| teller.tell(memory, chunk));
        let (told, verdict) = (teller.told, teller.verdict);
        if verdict != Verdict::Forward {
            return self.stop_inspection(number, verdict);
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

    /// Returns the fate of a packet after feeding, if packets are held.
    #[inline(never)]
    fn hold(&mut self, number: u32, way: usize, segment: &Segment, payload: &[u8], room: bool, fed: Fed) -> Fate {
        self.begins = fed.end.wrapping_sub(payload.len() as u32);
        let seen = self.conns[number as usize].lanes[way].seen();
        let matters = !payload.is_empty() || segment.flags.contains(TcpFlags::FIN);
        let fate = if fed.unseen {
            self.fail(DropReason::Unseen)
        } else if !matters || !behind(fed.end, seen) {
            Fate::Pass
        } else if room {
            Fate::Hold(fed.end)
        } else {
            // bytes that wait for a full window may go
            self.flush(number, way).unwrap_or(Fate::Pass)
        };
        self.schedule_held(number);
        fate
    }

    /// Schedules the held packets of a flow after progress.
    fn schedule_held(&mut self, number: u32) {
        for (way, lane) in self.conns[number as usize].lanes.iter().enumerate() {
            let new = self.conns[number as usize].mode != Mode::Look || lane.resolve || lane.mark != lane.seen();
            if lane.held > 0 && new {
                self.touched.push(number * 2 + way as u32);
            }
        }
    }

    /// Sets the number of packets held for a direction.
    pub(super) fn set_held(&mut self, id: u32, held: usize, mark: u32) {
        let lane = &mut self.conns[id as usize / 2].lanes[id as usize % 2];
        (lane.held, lane.mark, lane.resolve) = (held as u32, mark, false);
        self.file(id / 2, id as usize % 2, false);
    }

    /// Returns the fate of packets of a flow that is not inspected any more.
    #[cold]
    #[inline(never)]
    fn decided(&mut self, number: u32, way: usize, segment: &Segment, payload: &[u8], room: bool) -> Fate {
        if self.conns[number as usize].mode == Mode::Drop {
            return Fate::Drop(DropReason::Verdict);
        }
        let flags = segment.flags;
        if !flags.contains(TcpFlags::SYN) || flags.intersects(TcpFlags::ACK | TcpFlags::RST) {
            return Fate::Pass;
        }
        // another connection
        self.restart(number, way, Restart::Both, 0);
        self.packet(number, way, segment, payload, room)
    }

    /// Handles packets that start or end a connection.
    #[cold]
    #[inline(never)]
    fn handle_start_or_end(&mut self, number: u32, way: usize, segment: &Segment, payload: &[u8]) -> Option<Fate> {
        let [own, peer] = [way, 1 - way].map(|way| &self.conns[number as usize].lanes[way].half);
        if segment.flags.contains(TcpFlags::RST) {
            return Some(self.reset(number, way, segment, payload));
        }
        match own.restarts(segment, peer) {
            Restart::None => {}
            renewal => self.restart(number, way, renewal, segment.ack),
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
                return Some(self.fail(DropReason::Unseen));
            }
            self.met.midstream += 1;
        }
        if syn && !peer.is_open() {
            // the sender of a SYN-ACK is the server
            self.conns[number as usize].first = if ack { 1 - way as u8 } else { way as u8 };
        }
        None
    }

    /// Handles a reset of either direction.
    fn reset(&mut self, number: u32, way: usize, segment: &Segment, payload: &[u8]) -> Fate {
        let [own, peer] = [way, 1 - way].map(|way| &self.conns[number as usize].lanes[way].half);
        // a reset before any data must acknowledge the SYN (RFC 9293 §3.10.7.3)
        let named = segment.flags.contains(TcpFlags::ACK) && peer.is_open() && segment.ack == peer.next();
        if !own.is_open() && !named {
            self.tally.out_of_window += 1;
            return if payload.is_empty() { Fate::Pass } else { self.fail(DropReason::Unseen) };
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
                return self.stop_inspection(number, verdict);
            }
            self.file(number, way, true);
        }
        self.schedule_held(number);
        if payload.is_empty() { Fate::Pass } else { self.fail(DropReason::Unseen) }
    }

    /// Removes a connection for another one with the same addresses and ports.
    fn restart(&mut self, number: u32, way: usize, renewal: Restart, answered: u32) {
        let asked = self.conns[number as usize].lanes[1 - way].half.asked();
        if renewal == Restart::Other {
            self.end(number, 1 - way, End::Replaced);
            self.conns[number as usize].lanes[1 - way].half.restart(answered);
            return;
        }
        self.end(number, way, End::Replaced);
        if renewal != Restart::Own {
            self.end(number, 1 - way, End::Replaced);
            let conn = &mut self.conns[number as usize];
            (conn.mode, conn.state, conn.first) = (Mode::Look, L::State::default(), way as u8);
            self.met.new += 1;
            if renewal == Restart::Answered {
                conn.first = 1 - way as u8;
                conn.lanes[1 - way].half.restart(asked);
            }
        }
    }

    /// Gives up gaps that the receiver has acknowledged.
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
            return Some(self.stop_inspection(number, verdict));
        }
        self.file(number, way, true);
        None
    }

    /// Delivers bytes that wait for a full window.
    fn flush(&mut self, number: u32, way: usize) -> Option<Fate> {
        parts!(self, number, way => _own, _peer, teller, desk);
        teller.windows(desk.memory, None);
        let verdict = teller.verdict;
        if verdict != Verdict::Forward {
            return Some(self.stop_inspection(number, verdict));
        }
        self.file(number, way, true);
        None
    }

    /// Stops the inspection of a flow.
    #[cold]
    fn stop_inspection(&mut self, number: u32, verdict: Verdict) -> Fate {
        self.conns[number as usize].mode = if verdict == Verdict::Drop { Mode::Drop } else { Mode::Pass };
        for way in 0..2 {
            let lane = &mut self.conns[number as usize].lanes[way];
            lane.half.forget_ahead(&mut self.memory);
            lane.slide.clear(&mut self.memory);
            self.file(number, way, true);
        }
        self.schedule_held(number);
        if verdict == Verdict::Drop { Fate::Drop(DropReason::Verdict) } else { Fate::Pass }
    }

    /// Updates the lists that a direction is in.
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

    /// Evicts streams until `needs` bytes are free, but not direction `asks`.
    #[cold]
    fn make_room(&mut self, needs: usize, asks: u32) {
        while self.full == WhenFull::Evict && !self.memory.has(needs) {
            let Some(id) = self.holders.first_but(asks) else { break };
            self.met.evicted += 1;
            if self.rules.strict {
                self.discard_ahead(id / 2, id as usize % 2);
            } else {
                self.end(id / 2, id as usize % 2, End::Evicted);
            }
        }
    }

    /// Frees the out-of-order bytes of a stream that must be inspected completely; it continues at the next byte.
    fn discard_ahead(&mut self, number: u32, way: usize) {
        if self.flush(number, way).is_some() {
            return;
        }
        let lane = &mut self.conns[number as usize].lanes[way];
        lane.half.forget_ahead(&mut self.memory);
        lane.slide.clear(&mut self.memory);
        (lane.mark, lane.resolve) = (lane.half.given(), lane.held > 0);
        self.file(number, way, true);
        self.schedule_held(number);
    }

    /// Ends one direction: delivers the remaining bytes and the reason, and frees its memory.
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
        (own.half, own.shown) = (T::StreamState::default(), 0);
        if verdict != Verdict::Forward && why == End::Evicted {
            self.stop_inspection(number, verdict);
        }
        self.file(number, way, true);
        self.schedule_held(number);
    }

    /// Processes due timers.
    pub(super) fn expire(&mut self) {
        let part = (self.timeout / 4).max(1);
        while let Some(id) = self.waiting.due(self.now, part) {
            self.waiting.push(id, self.now);
            self.check_timeout(id / 2, id as usize % 2);
        }
    }

    /// Checks the timeout of a direction.
    fn check_timeout(&mut self, number: u32, way: usize) {
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
        let waits_enough = |half: &T::StreamState| half.is_overdue(now, timeout) || (hold && late && half.waits());
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
            self.stop_inspection(number, verdict);
            return;
        }
        self.file(number, way, told || late);
        self.schedule_held(number);
    }

    /// Scans one of `parts` slices of the flows for expired ones.
    pub(super) fn age(&mut self, parts: usize) {
        let Self { v4, v6, conns, lost, clock, idle, half_open, table, .. } = self;
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
            table.add(|| conn.row(number), conn.shown());
            over
        };
        v4.age(*clock, parts, &mut over);
        v6.age(*clock, parts, &mut over);
        if !self.lost.is_empty() {
            self.forget(End::Idle);
        }
    }

    /// Ends all flows, and publishes those with the most bytes.
    pub(super) fn stop(&mut self) {
        self.table.clear();
        // the numbers of removed flows have no bytes
        (0..).zip(&self.conns).for_each(|(number, conn)| self.table.add(|| conn.row(number), conn.shown()));
        self.table.publish();
        for number in 0..self.conns.len() as u32 {
            for way in 0..2 {
                self.end(number, way, End::Stopped);
            }
        }
    }
}
