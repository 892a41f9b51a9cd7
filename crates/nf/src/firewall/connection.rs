//! What is known of a connection, in sixteen bytes, and what its next packet may be.
//!
//! The window checks are those of G. van Rooij, "Real stateful TCP packet filtering in IP Filter" (2000): of each side the
//! end of what it has sent (`end`), the end of what the other has room for (`limit`) and the widest window it has offered
//! (`widest`). `end` is exact. `limit` is kept in units of the window's scale, rounded up, so that at most one unit more
//! is let in; `widest` is rounded up by a quarter at most, which only lets older data in.

/// Older acknowledgements than this are let in whatever the window was: the scheme's own margin.
const MARGIN: u32 = 66_000;
/// Bits of [`Connection::rest`]: of either side, from its own place on, and behind both.
const LIMIT: u32 = 18;
const WIDEST_AT: u32 = LIMIT;
const WIDEST: u32 = 7;
const SCALE_AT: u32 = WIDEST_AT + WIDEST;
const SCALE: u32 = 4;
const SIDE: u32 = SCALE_AT + SCALE;
const STATE_AT: u32 = 2 * SIDE;
const ORIGIN_AT: u32 = STATE_AT + 4;
const LOOSE_AT: u32 = ORIGIN_AT + 1;
/// As a scale: the side has offered none (RFC 7323 §2.2: both do, or neither scales).
const UNSCALED: u32 = 15;
/// RFC 7323 §2.3.
const MOST_SCALE: u32 = 14;

/// The states, and each by its number.
macro_rules! states {
    ($($(#[$doc:meta])* $state:ident,)*) => {
        /// Where a connection stands.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub(super) enum State {
            $($(#[$doc])* $state,)*
        }

        impl State {
            /// By four bits, of which not all are states.
            const ALL: [Self; 16] = {
                let mut all = [State::Plain; 16];
                $(all[State::$state as usize] = State::$state;)*
                all
            };
        }
    };
}

states! {
    /// TCP: a SYN was seen.
    SynSent,
    /// A SYN of either side was seen, and no answer (RFC 9293 §3.5, simultaneous open).
    SynBoth,
    /// A SYN was answered.
    SynReceived,
    Established,
    /// The side 0, or 1, has sent a FIN.
    Fin0,
    Fin1,
    /// Both have.
    FinBoth,
    /// Both FINs are acknowledged, or one side has reset the connection.
    Closed,
    /// UDP and its like: one side has sent.
    OneWay,
    /// UDP and its like: both sides have.
    BothWays,
    /// An ICMP request and its answers.
    Query,
    /// A protocol without ports.
    Plain,
}

/// What becomes of a packet of a known connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Pass,
    /// Its numbers are not in the window.
    OutOfWindow,
    /// Its flags do not fit where the connection stands, or each other.
    OutOfState,
    /// It opens a connection anew that was closed: the rules decide.
    Anew,
    /// Who began has begun anew, as it seems: it goes on, and what the other answers says whether that is so.
    Again,
}

/// What the header of a TCP segment says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    /// As it stands there, not scaled.
    pub(super) window: u16,
    /// Bytes of data.
    pub(super) len: u32,
    /// What a SYN says of windows; [`None`] without.
    pub(super) scale: Option<u8>,
}

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;
/// Flags that say where a connection stands.
const DEED: u8 = FIN | SYN | RST | ACK;

impl Segment {
    /// Whether the flags are of a kind that TCP sends (RFC 9293 §3.10): one deed, and ACK but in the first SYN and a RST.
    fn is_sane(&self) -> bool {
        matches!(self.flags & DEED, f if f == SYN || f == SYN | ACK || f == RST || f == RST | ACK || f == FIN | ACK || f == ACK)
    }

    /// The sequence number behind it.
    #[inline(always)]
    fn end(&self) -> u32 {
        let flags = u32::from(self.flags);
        self.seq.wrapping_add(self.len).wrapping_add((flags & 1) + (flags >> 1 & 1))
    }
}

/// A connection. Sides are numbered as the key has them, whoever began.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Connection {
    end: [u32; 2],
    rest: u64,
}

/// Whether sequence number `a` is behind `b`, in the half of all numbers.
#[inline(always)]
fn after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

/// Seven bits for a number: the least step not below it, four to an octave.
fn step_of(number: u32) -> u32 {
    let mut step = 0;
    if let Some(octave) = number.checked_ilog2() {
        step = octave.saturating_sub(1) * 4;
        while of_step(step) < u64::from(number) {
            step += 1;
        }
    }
    step
}

/// The number of a step.
#[inline(always)]
fn of_step(step: u32) -> u64 {
    u64::from(4 + (step & 3)) << (step >> 2) >> 2
}

impl Connection {
    #[inline(always)]
    fn field(&self, at: u32, bits: u32) -> u32 {
        (self.rest >> at) as u32 & ((1 << bits) - 1)
    }

    #[inline(always)]
    fn set(&mut self, at: u32, bits: u32, value: u32) {
        let mask = (1u64 << bits) - 1;
        self.rest = self.rest & !(mask << at) | (u64::from(value) & mask) << at;
    }

    #[inline(always)]
    pub(super) fn state(&self) -> State {
        State::ALL[self.field(STATE_AT, 4) as usize & 15]
    }

    fn go(&mut self, state: State) {
        self.set(STATE_AT, 4, state as u32);
    }

    /// The side that began.
    #[inline(always)]
    pub(super) fn origin(&self) -> usize {
        self.field(ORIGIN_AT, 1) as usize
    }

    /// Whether its windows are not known.
    #[inline(always)]
    fn is_loose(&self) -> bool {
        self.rest >> LOOSE_AT != 0
    }

    /// The shift of the windows that a side offers.
    #[inline(always)]
    fn scale(&self, side: usize) -> u32 {
        self.field(SIDE * side as u32 + SCALE_AT, SCALE)
    }

    fn set_scale(&mut self, side: usize, scale: u32) {
        self.set(SIDE * side as u32 + SCALE_AT, SCALE, scale);
    }

    /// The unit of a side's limit: the scale of the other, as far as it is known.
    #[inline(always)]
    fn unit(&self, side: usize) -> u32 {
        let scale = self.scale(side ^ 1);
        if scale == UNSCALED { 0 } else { scale }
    }

    /// The sequence number to which a side may send.
    #[inline(always)]
    fn limit(&self, side: usize) -> u32 {
        let unit = self.unit(side);
        let end = self.end[side] >> unit;
        let units = self.field(SIDE * side as u32, LIMIT);
        // it is not far from the end, before or behind
        let beyond = (units.wrapping_sub(end) << (32 - LIMIT)) as i32 >> (32 - LIMIT);
        end.wrapping_add(beyond as u32) << unit
    }

    #[inline(always)]
    fn set_limit(&mut self, side: usize, limit: u32) {
        let unit = self.unit(side);
        self.set(SIDE * side as u32, LIMIT, limit.wrapping_add((1 << unit) - 1) >> unit);
    }

    /// The widest window that a side has offered, bytes.
    #[inline(always)]
    fn widest(&self, side: usize) -> u32 {
        of_step(self.field(SIDE * side as u32 + WIDEST_AT, WIDEST)) as u32
    }

    #[cold]
    fn set_widest(&mut self, side: usize, window: u32) {
        self.set(SIDE * side as u32 + WIDEST_AT, WIDEST, step_of(window));
    }

    /// One of no windows that `side` begins.
    pub(super) fn begun(state: State, side: usize) -> Self {
        let mut new = Self::default();
        new.go(state);
        new.set(ORIGIN_AT, 1, side as u32);
        new
    }

    /// The connection that a segment of `side` begins: a SYN, or with `loose` an acknowledgement of one that was there before.
    /// None otherwise.
    pub(super) fn begun_by(segment: &Segment, side: usize, loose: bool) -> Option<Self> {
        match segment.flags & DEED {
            SYN => {
                let mut new = Self::begun(State::SynSent, side);
                new.offer(side, segment);
                // what an answer may acknowledge begins behind the SYN, and all of it has been sent
                new.set_limit(side, segment.seq.wrapping_add(1));
                // until the other side has spoken, its limit is how far it may go
                new.set(SIDE * (side as u32 ^ 1), LIMIT, segment.window.into());
                Some(new)
            }
            ACK if loose => {
                let mut new = Self::begun(State::Established, side);
                new.rest |= 1 << LOOSE_AT;
                new.end[side] = segment.end();
                new.end[side ^ 1] = segment.ack;
                Some(new)
            }
            _ => None,
        }
    }

    /// What a side's SYN says of it.
    fn offer(&mut self, side: usize, segment: &Segment) {
        self.end[side] = segment.end();
        self.set_scale(side, segment.scale.map_or(UNSCALED, |scale| u32::from(scale).min(MOST_SCALE)));
        // a window in a SYN is not scaled (RFC 7323 §2.2)
        self.set_widest(side, u32::from(segment.window).max(1));
    }

    /// The next packet of a connection without sequence numbers.
    #[inline(always)]
    pub(super) fn packet(&mut self, side: usize) {
        if self.state() == State::OneWay && side != self.origin() {
            self.go(State::BothWays);
        }
    }

    /// The next segment, of `side`.
    #[inline(always)]
    pub(super) fn segment(&mut self, side: usize, segment: &Segment) -> Outcome {
        let side = side & 1;
        if segment.flags & DEED == ACK && self.state() == State::Established {
            // nearly all are new, or not much older than what has been sent, and need no look at the widest windows
            if self.is_next(side, segment) {
                return Outcome::Pass;
            }
            return if self.window(side, segment) { Outcome::Pass } else { Outcome::OutOfWindow };
        }
        self.deed(side, segment)
    }

    /// Whether an acknowledgement in an open connection is surely within the windows; if so, what it says is kept. The same as
    /// [`window`](Self::window), where nothing is old.
    #[inline(always)]
    fn is_next(&mut self, side: usize, segment: &Segment) -> bool {
        let (seq, ack, end) = (segment.seq, segment.ack, segment.seq.wrapping_add(segment.len));
        let own = (self.rest >> (SIDE * side as u32)) as u32;
        let others = (self.rest >> (SIDE * (side as u32 ^ 1))) as u32;
        let (sent, theirs) = (self.end[side & 1], self.end[side & 1 ^ 1]);
        // opened: both scales are known
        let scale = |fields: u32| fields >> SCALE_AT & ((1 << SCALE) - 1);
        let limit = |fields: u32, end: u32, unit: u32| {
            let units = end >> unit;
            let beyond = (fields.wrapping_sub(units) << (32 - LIMIT)) as i32 >> (32 - LIMIT);
            units.wrapping_add(beyond as u32) << unit
        };
        let old = theirs.wrapping_sub(ack).wrapping_add(1);
        let fits =
            !after(seq, limit(own, sent, scale(others))) & !after(sent.wrapping_sub(1), end) & (old <= MARGIN + 2);
        if !fits || self.is_loose() {
            return false;
        }
        let offered = u32::from(segment.window) << scale(own);
        if u64::from(offered) > of_step(own >> WIDEST_AT & ((1 << WIDEST) - 1)) {
            self.set_widest(side, offered);
        }
        self.keep(side, end);
        let room = ack.wrapping_add(offered);
        if after(room, limit(others, theirs, scale(own))) {
            self.set_limit(side ^ 1, room);
        }
        true
    }

    /// Whether the segment is within the windows; if so, what it says is kept.
    #[inline(never)]
    fn window(&mut self, side: usize, segment: &Segment) -> bool {
        let other = side ^ 1;
        let (seq, ack, end) = (segment.seq, segment.ack, segment.end());
        let offered = u32::from(segment.window) << (if segment.flags & SYN == 0 { self.unit(other) } else { 0 });
        let (sent, theirs) = (self.end[side], self.end[other]);
        let (widest, their_widest) = (self.widest(side), self.widest(other));
        let has_ack = segment.flags & ACK != 0;
        // not more than there is room for; not older than what could be wanted; no acknowledgement of what was not sent, nor
        // of what was long before
        let bad = after(seq, self.limit(side))
            | after(sent.wrapping_sub(their_widest).wrapping_sub(1), end)
            | has_ack & after(ack, theirs.wrapping_add(1))
            | has_ack & after(theirs.wrapping_sub(widest.max(MARGIN)).wrapping_sub(1), ack);
        if bad {
            return self.is_loose();
        }
        self.keep(side, end);
        if has_ack {
            let limit = ack.wrapping_add(offered);
            if after(limit, self.limit(other)) {
                self.set_limit(other, limit);
            }
        }
        if offered > widest {
            self.set_widest(side, offered);
        }
        true
    }

    /// Keeps the end of what a side has sent, and with it what is known in relation to that.
    #[inline(always)]
    fn keep(&mut self, side: usize, end: u32) {
        if after(end, self.end[side]) {
            self.end[side] = end;
        }
    }

    /// A segment that is no plain acknowledgement within an established connection.
    #[inline(never)]
    fn deed(&mut self, side: usize, segment: &Segment) -> Outcome {
        use Outcome::{Again, Anew, OutOfState, OutOfWindow, Pass};
        let deed = segment.flags & DEED;
        if !segment.is_sane() {
            return OutOfState;
        }
        let state = self.state();
        let origin = self.origin();
        match state {
            State::Closed if deed == SYN => return Anew,
            State::Closed if deed == SYN | ACK => return OutOfState,
            State::SynSent if side == origin => {
                return match deed {
                    SYN => {
                        // again, or by a host that has begun anew
                        *self = Self::begun_by(segment, side, false).unwrap_or(*self);
                        Pass
                    }
                    // the answer to one that belongs to no connection of its own (RFC 9293 §3.5.1)
                    RST | 20 => {
                        self.give_up(side ^ 1);
                        Pass
                    }
                    _ => OutOfState,
                };
            }
            State::SynSent => return self.answer(side, segment),
            State::SynBoth if deed == SYN => {
                return if segment.end() == self.end[side] { Pass } else { OutOfWindow };
            }
            _ => {}
        }
        if deed == SYN {
            // a host that has begun anew is told by the other to reset what was (RFC 9293 §3.5.1, RFC 5961 §4), unless that has
            // forgotten it, and answers: it goes on, and says nothing
            return if side == origin { Again } else { Pass };
        }
        let next = self.end[side];
        if !self.window(side, segment) {
            return OutOfWindow;
        }
        match deed {
            RST | 20 => {
                // exactly where the other waits (RFC 5961 §3.2); elsewhere the other asks again, and nothing is over
                if segment.seq == next || self.is_loose() || state < State::Established {
                    self.go(State::Closed);
                }
            }
            18 => {
                // again, or of a simultaneous open
                if state == State::SynBoth {
                    self.go(State::Established);
                }
            }
            _ => self.advance(state, side, segment),
        }
        Pass
    }

    /// A FIN or an acknowledgement that is within the window.
    fn advance(&mut self, state: State, side: usize, segment: &Segment) {
        let mut state = state;
        if state == State::SynReceived && side == self.origin() {
            state = State::Established;
        }
        if segment.flags & FIN != 0 {
            let own = [State::Fin0, State::Fin1][side];
            state = match state {
                State::SynReceived | State::Established => own,
                State::Fin0 | State::Fin1 if state != own => State::FinBoth,
                other => other,
            };
        } else if state == State::FinBoth && segment.ack == self.end[side ^ 1] {
            // the first FIN is acknowledged by the second at the latest
            state = State::Closed;
        }
        if state != self.state() {
            self.go(state);
        }
    }

    /// What the other side answers to a SYN.
    fn answer(&mut self, side: usize, segment: &Segment) -> Outcome {
        let origin = side ^ 1;
        let (first, room) = (self.limit(origin), self.field(SIDE * side as u32, LIMIT));
        let acknowledges = !after(first, segment.ack) && !after(segment.ack, self.end[origin]);
        match segment.flags & DEED {
            SYN => {
                self.offer(side, segment);
                self.settle();
                self.set_limit(side, self.end[side].wrapping_add(room));
                self.set_limit(origin, self.end[origin].wrapping_add(segment.window.into()));
                self.go(State::SynBoth);
                Outcome::Pass
            }
            18 if acknowledges => {
                self.offer(side, segment);
                self.settle();
                let room = segment.seq.wrapping_add(1).wrapping_add(room);
                self.set_limit(side, room);
                self.set_limit(origin, segment.ack.wrapping_add(segment.window.into()));
                self.go(State::SynReceived);
                Outcome::Pass
            }
            20 if acknowledges => {
                self.give_up(side);
                Outcome::Pass
            }
            // of one who has a connection from before; it will be reset
            ACK => Outcome::Pass,
            18 | 20 => Outcome::OutOfWindow,
            _ => Outcome::OutOfState,
        }
    }

    /// Closed before the other side had sent anything.
    fn give_up(&mut self, other: usize) {
        self.set_limit(other, self.end[other]);
        self.go(State::Closed);
    }

    /// Both have offered a scale, or none is used.
    fn settle(&mut self) {
        if self.scale(0) == UNSCALED || self.scale(1) == UNSCALED {
            self.set_scale(0, 0);
            self.set_scale(1, 0);
        }
    }

    /// Whether an error message may be about this segment of `side`'s (RFC 5927 §4.1): sent, and not long ago.
    pub(super) fn has_sent(&self, side: usize, seq: u32) -> bool {
        let old = self.end[side].wrapping_sub(self.widest(side ^ 1).max(MARGIN)).wrapping_sub(1);
        self.is_loose() || !after(seq, self.end[side]) && !after(old, seq)
    }

    /// A further fragment of a segment of `side`'s reaches to `end`.
    pub(super) fn extend(&mut self, side: usize, end: u32) {
        // as far as one datagram goes
        if end.wrapping_sub(self.end[side]) <= u32::from(u16::MAX) {
            self.keep(side, end);
        }
    }
}
