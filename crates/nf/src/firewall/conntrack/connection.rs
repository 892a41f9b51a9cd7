//! State of a connection in sixteen bytes, and the check of its next packet.
//!
//! The window checks are those of G. van Rooij, "Real stateful TCP packet filtering in IP Filter" (2000), as in Linux.
//! Each side has the end of the data that it sent (`end`), the end of the data that its peer accepts (`max_end`) and
//! the largest window that it offered (`max_window`). `end` is exact. `max_end` is stored in units of the window scale
//! and rounded up, so that it admits at most one unit more. `max_window` is rounded up by at most a quarter, which only
//! admits older data.

use serde::{Deserialize, Serialize};

/// Acknowledgements up to this many bytes old are accepted whatever the window is, as in Linux.
const MAX_ACK_WINDOW: u32 = 66_000;
/// Layout of [`Connection::packed`]: the fields of each side, followed by the common ones.
const MAX_END_BITS: u32 = 18;
const MAX_WINDOW_AT: u32 = MAX_END_BITS;
const MAX_WINDOW_BITS: u32 = 7;
const SCALE_AT: u32 = MAX_WINDOW_AT + MAX_WINDOW_BITS;
const SCALE_BITS: u32 = 4;
const SIDE_BITS: u32 = SCALE_AT + SCALE_BITS;
const STATE_AT: u32 = 2 * SIDE_BITS;
const ORIGINATOR_AT: u32 = STATE_AT + 4;
const LOOSE_AT: u32 = ORIGINATOR_AT + 1;
/// Scale of a side that did not offer one (RFC 7323 §2.2: both sides do, or neither scales).
const UNSCALED: u32 = 15;
/// Largest window scale (RFC 7323 §2.3).
const MAX_SCALE: u32 = 14;

/// Declares the states and a table of them by number.
macro_rules! states {
    ($($(#[$doc:meta])* $state:ident,)*) => {
        /// State of a connection.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub(crate) enum State {
            $($(#[$doc])* $state,)*
        }

        impl State {
            /// By the four bits of the state field.
            const ALL: [Self; 16] = {
                let mut all = [State::Generic; 16];
                $(all[State::$state as usize] = State::$state;)*
                all
            };
        }
    };
}

states! {
    /// TCP: a SYN was sent.
    SynSent,
    /// SYNs were sent by both sides, neither acknowledged (simultaneous open, RFC 9293 §3.5).
    SynSent2,
    /// The SYN was answered by a SYN-ACK.
    SynRecv,
    Established,
    /// Side 0 or side 1 has sent a FIN.
    Fin0,
    Fin1,
    /// Both sides have sent a FIN.
    Closing,
    /// Both FINs are acknowledged, or the connection was reset.
    Closed,
    /// UDP and similar: one side has sent.
    OneWay,
    /// UDP and similar: both sides have sent.
    TwoWay,
    /// An ICMP query.
    Query,
    /// A protocol without ports.
    Generic,
}

/// Result of checking a packet of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Pass,
    /// Sequence or acknowledgement number outside the window.
    OutOfWindow,
    /// Flags invalid in the current state, or contradictory.
    OutOfState,
    /// The packet opens a closed connection again; the rules decide.
    Reopen,
    /// The originator may have restarted: the SYN passes, and the answer shows whether it has.
    Resync,
}

/// Fields of a TCP segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// Not scaled.
    pub(crate) window: u16,
    /// Payload length in bytes.
    pub(crate) len: u32,
    /// Window scale option of a SYN.
    pub(crate) scale: Option<u8>,
}

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;
const SYN_ACK: u8 = SYN | ACK;
const RST_ACK: u8 = RST | ACK;
/// Flags that affect the state.
const CONTROL_FLAGS: u8 = FIN | SYN | RST | ACK;

impl Segment {
    /// Returns true if the combination of flags is valid (RFC 9293 §3.10): one of SYN, FIN and RST at most, and ACK
    /// except in a first SYN or a RST.
    fn has_valid_flags(&self) -> bool {
        matches!(self.flags & CONTROL_FLAGS, f if f == SYN || f == SYN | ACK || f == RST || f == RST | ACK || f == FIN | ACK || f == ACK)
    }

    /// Returns the sequence number that follows the segment.
    #[inline(always)]
    fn end(&self) -> u32 {
        let flags = u32::from(self.flags);
        self.seq.wrapping_add(self.len).wrapping_add((flags & 1) + (flags >> 1 & 1))
    }
}

/// A connection. Sides are numbered by the key, independent of which one is the originator.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Connection {
    end: [u32; 2],
    packed: u64,
}

/// Returns true if sequence number `a` is after `b`, modulo 2^32.
#[inline(always)]
fn after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

/// Encodes a number in seven bits, rounded up: four steps per power of two.
fn encode_window(number: u32) -> u32 {
    let mut step = 0;
    if let Some(octave) = number.checked_ilog2() {
        step = octave.saturating_sub(1) * 4;
        while decode_window(step) < u64::from(number) {
            step += 1;
        }
    }
    step
}

/// Decodes a number.
#[inline(always)]
fn decode_window(step: u32) -> u64 {
    u64::from(4 + (step & 3)) << (step >> 2) >> 2
}

impl Connection {
    #[inline(always)]
    fn field(&self, at: u32, bits: u32) -> u32 {
        (self.packed >> at) as u32 & ((1 << bits) - 1)
    }

    #[inline(always)]
    fn set(&mut self, at: u32, bits: u32, value: u32) {
        let mask = (1u64 << bits) - 1;
        self.packed = self.packed & !(mask << at) | (u64::from(value) & mask) << at;
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        State::ALL[self.field(STATE_AT, 4) as usize & 15]
    }

    fn set_state(&mut self, state: State) {
        self.set(STATE_AT, 4, state as u32);
    }

    /// Returns the side that sent the first packet.
    #[inline(always)]
    pub(crate) fn originator(&self) -> usize {
        self.field(ORIGINATOR_AT, 1) as usize
    }

    /// Returns true if the windows are unknown.
    #[inline(always)]
    fn is_loose(&self) -> bool {
        self.packed >> LOOSE_AT != 0
    }

    /// Returns the window scale that a side offered.
    #[inline(always)]
    fn scale(&self, side: usize) -> u32 {
        self.field(SIDE_BITS * side as u32 + SCALE_AT, SCALE_BITS)
    }

    fn set_scale(&mut self, side: usize, scale: u32) {
        self.set(SIDE_BITS * side as u32 + SCALE_AT, SCALE_BITS, scale);
    }

    /// Returns the shift of a side's `max_end` field: the other side's scale, or 0 while that is unknown.
    #[inline(always)]
    fn unit(&self, side: usize) -> u32 {
        let scale = self.scale(side ^ 1);
        if scale == UNSCALED { 0 } else { scale }
    }

    /// Returns the sequence number up to which a side may send.
    #[inline(always)]
    fn max_end(&self, side: usize) -> u32 {
        let unit = self.unit(side);
        let end = self.end[side] >> unit;
        let units = self.field(SIDE_BITS * side as u32, MAX_END_BITS);
        // sign-extend the difference to `end`
        let beyond = (units.wrapping_sub(end) << (32 - MAX_END_BITS)) as i32 >> (32 - MAX_END_BITS);
        end.wrapping_add(beyond as u32) << unit
    }

    #[inline(always)]
    fn set_max_end(&mut self, side: usize, limit: u32) {
        let unit = self.unit(side);
        self.set(SIDE_BITS * side as u32, MAX_END_BITS, limit.wrapping_add((1 << unit) - 1) >> unit);
    }

    /// Returns the largest window that a side has offered, in bytes.
    #[inline(always)]
    fn max_window(&self, side: usize) -> u32 {
        decode_window(self.field(SIDE_BITS * side as u32 + MAX_WINDOW_AT, MAX_WINDOW_BITS)) as u32
    }

    #[cold]
    fn set_max_window(&mut self, side: usize, window: u32) {
        self.set(SIDE_BITS * side as u32 + MAX_WINDOW_AT, MAX_WINDOW_BITS, encode_window(window));
    }

    /// Creates a connection without windows.
    pub(crate) fn new(state: State, side: usize) -> Self {
        let mut new = Self::default();
        new.set_state(state);
        new.set(ORIGINATOR_AT, 1, side as u32);
        new
    }

    /// Creates the connection for a first segment: a SYN or, with `loose`, an acknowledgement of an existing
    /// connection. Returns `None` for other segments.
    pub(crate) fn from_first_segment(segment: &Segment, side: usize, loose: bool) -> Option<Self> {
        match segment.flags & CONTROL_FLAGS {
            SYN => {
                let mut new = Self::new(State::SynSent, side);
                new.record_syn(side, segment);
                // the answer acknowledges the SYN at least and what was sent at most
                new.set_max_end(side, segment.seq.wrapping_add(1));
                // until the other side answers, the field holds the window that it may use
                new.set(SIDE_BITS * (side as u32 ^ 1), MAX_END_BITS, segment.window.into());
                Some(new)
            }
            ACK if loose => {
                let mut new = Self::new(State::Established, side);
                new.packed |= 1 << LOOSE_AT;
                new.end[side] = segment.end();
                new.end[side ^ 1] = segment.ack;
                Some(new)
            }
            _ => None,
        }
    }

    /// Stores the fields of a side's SYN.
    fn record_syn(&mut self, side: usize, segment: &Segment) {
        self.end[side] = segment.end();
        self.set_scale(side, segment.scale.map_or(UNSCALED, |scale| u32::from(scale).min(MAX_SCALE)));
        // the window of a SYN is not scaled (RFC 7323 §2.2)
        self.set_max_window(side, u32::from(segment.window).max(1));
    }

    /// Processes a packet of a protocol without sequence numbers.
    #[inline(always)]
    pub(crate) fn packet(&mut self, side: usize) {
        if self.state() == State::OneWay && side != self.originator() {
            self.set_state(State::TwoWay);
        }
    }

    /// Processes a segment of `side`.
    #[inline(always)]
    pub(crate) fn segment(&mut self, side: usize, segment: &Segment) -> Outcome {
        let side = side & 1;
        if segment.flags & CONTROL_FLAGS == ACK && self.state() == State::Established {
            // nearly all segments are recent and need no check against the largest windows
            if self.accept_in_window(side, segment) {
                return Outcome::Pass;
            }
            return if self.check_window(side, segment) { Outcome::Pass } else { Outcome::OutOfWindow };
        }
        self.control_segment(side, segment)
    }

    /// Fast path of [`check_window`](Self::check_window) for recent acknowledgements. Returns false, without a change,
    /// if the full check is needed.
    #[inline(always)]
    fn accept_in_window(&mut self, side: usize, segment: &Segment) -> bool {
        let (seq, ack, end) = (segment.seq, segment.ack, segment.seq.wrapping_add(segment.len));
        let own = (self.packed >> (SIDE_BITS * side as u32)) as u32;
        let others = (self.packed >> (SIDE_BITS * (side as u32 ^ 1))) as u32;
        let (sent, theirs) = (self.end[side & 1], self.end[side & 1 ^ 1]);
        // in this state both scales are known
        let scale = |fields: u32| fields >> SCALE_AT & ((1 << SCALE_BITS) - 1);
        let limit = |fields: u32, end: u32, unit: u32| {
            let units = end >> unit;
            let beyond = (fields.wrapping_sub(units) << (32 - MAX_END_BITS)) as i32 >> (32 - MAX_END_BITS);
            units.wrapping_add(beyond as u32) << unit
        };
        let old = theirs.wrapping_sub(ack).wrapping_add(1);
        let fits = !after(seq, limit(own, sent, scale(others)))
            & !after(sent.wrapping_sub(1), end)
            & (old <= MAX_ACK_WINDOW + 2);
        if !fits || self.is_loose() {
            return false;
        }
        let offered = u32::from(segment.window) << scale(own);
        if u64::from(offered) > decode_window(own >> MAX_WINDOW_AT & ((1 << MAX_WINDOW_BITS) - 1)) {
            self.set_max_window(side, offered);
        }
        self.advance_end(side, end);
        let room = ack.wrapping_add(offered);
        if after(room, limit(others, theirs, scale(own))) {
            self.set_max_end(side ^ 1, room);
        }
        true
    }

    /// Checks a segment against the windows and, if it is within them, updates them.
    #[inline(never)]
    fn check_window(&mut self, side: usize, segment: &Segment) -> bool {
        let other = side ^ 1;
        let (seq, ack, end) = (segment.seq, segment.ack, segment.end());
        let offered = u32::from(segment.window) << (if segment.flags & SYN == 0 { self.unit(other) } else { 0 });
        let (sent, theirs) = (self.end[side], self.end[other]);
        let (max_window, their_max_window) = (self.max_window(side), self.max_window(other));
        let has_ack = segment.flags & ACK != 0;
        // sequence number not beyond the window and not too old; acknowledgement not of unsent data and not too old
        let outside_window = after(seq, self.max_end(side))
            | after(sent.wrapping_sub(their_max_window).wrapping_sub(1), end)
            | has_ack & after(ack, theirs.wrapping_add(1))
            | has_ack & after(theirs.wrapping_sub(max_window.max(MAX_ACK_WINDOW)).wrapping_sub(1), ack);
        if outside_window {
            return self.is_loose();
        }
        self.advance_end(side, end);
        if has_ack {
            let limit = ack.wrapping_add(offered);
            if after(limit, self.max_end(other)) {
                self.set_max_end(other, limit);
            }
        }
        if offered > max_window {
            self.set_max_window(side, offered);
        }
        true
    }

    /// Advances the end of the data that a side has sent.
    #[inline(always)]
    fn advance_end(&mut self, side: usize, end: u32) {
        if after(end, self.end[side]) {
            self.end[side] = end;
        }
    }

    /// Processes a segment other than a plain acknowledgement in an established connection.
    #[inline(never)]
    fn control_segment(&mut self, side: usize, segment: &Segment) -> Outcome {
        use Outcome::{OutOfState, OutOfWindow, Pass, Reopen, Resync};
        let control = segment.flags & CONTROL_FLAGS;
        if !segment.has_valid_flags() {
            return OutOfState;
        }
        let state = self.state();
        let originator = self.originator();
        match state {
            State::Closed if control == SYN => return Reopen,
            State::Closed if control == SYN | ACK => return OutOfState,
            State::SynSent if side == originator => {
                return match control {
                    SYN => {
                        // a retransmission, or the host has restarted
                        *self = Self::from_first_segment(segment, side, false).unwrap_or(*self);
                        Pass
                    }
                    // the reply to a segment of an unknown connection (RFC 9293 §3.5.1)
                    RST | RST_ACK => {
                        self.close_unanswered(side ^ 1);
                        Pass
                    }
                    _ => OutOfState,
                };
            }
            State::SynSent => return self.answer_syn(side, segment),
            State::SynSent2 if control == SYN => {
                return if segment.end() == self.end[side] { Pass } else { OutOfWindow };
            }
            _ => {}
        }
        if control == SYN {
            // the peer answers the SYN of a restarted host with a challenge ACK or a reset (RFC 9293 §3.5.1, RFC 5961
            // §4), or with a SYN-ACK if it has restarted, too; the SYN itself changes nothing
            return if side == originator { Resync } else { Pass };
        }
        let next = self.end[side];
        if !self.check_window(side, segment) {
            return OutOfWindow;
        }
        match control {
            RST | RST_ACK => {
                // only an exact sequence number ends the connection (RFC 5961 §3.2); otherwise the peer sends a
                // challenge ACK
                if segment.seq == next || self.is_loose() || state < State::Established {
                    self.set_state(State::Closed);
                }
            }
            SYN_ACK => {
                // a retransmission, or part of a simultaneous open
                if state == State::SynSent2 {
                    self.set_state(State::Established);
                }
            }
            _ => self.advance(state, side, segment),
        }
        Pass
    }

    /// Processes a FIN or an acknowledgement within the window.
    fn advance(&mut self, state: State, side: usize, segment: &Segment) {
        let mut state = state;
        if state == State::SynRecv && side == self.originator() {
            state = State::Established;
        }
        if segment.flags & FIN != 0 {
            let own = [State::Fin0, State::Fin1][side];
            state = match state {
                State::SynRecv | State::Established => own,
                State::Fin0 | State::Fin1 if state != own => State::Closing,
                other => other,
            };
        } else if state == State::Closing && segment.ack == self.end[side ^ 1] {
            // acknowledging the second FIN acknowledges the first, too
            state = State::Closed;
        }
        if state != self.state() {
            self.set_state(state);
        }
    }

    /// Processes the answer to a SYN.
    fn answer_syn(&mut self, side: usize, segment: &Segment) -> Outcome {
        let originator = side ^ 1;
        let (first, room) = (self.max_end(originator), self.field(SIDE_BITS * side as u32, MAX_END_BITS));
        let acknowledges = !after(first, segment.ack) && !after(segment.ack, self.end[originator]);
        match segment.flags & CONTROL_FLAGS {
            SYN => {
                self.record_syn(side, segment);
                self.negotiate_scale();
                self.set_max_end(side, self.end[side].wrapping_add(room));
                self.set_max_end(originator, self.end[originator].wrapping_add(segment.window.into()));
                self.set_state(State::SynSent2);
                Outcome::Pass
            }
            SYN_ACK if acknowledges => {
                self.record_syn(side, segment);
                self.negotiate_scale();
                let room = segment.seq.wrapping_add(1).wrapping_add(room);
                self.set_max_end(side, room);
                self.set_max_end(originator, segment.ack.wrapping_add(segment.window.into()));
                self.set_state(State::SynRecv);
                Outcome::Pass
            }
            RST_ACK if acknowledges => {
                self.close_unanswered(side);
                Outcome::Pass
            }
            // the peer has an old connection, which it will reset
            ACK => Outcome::Pass,
            SYN_ACK | RST_ACK => Outcome::OutOfWindow,
            _ => Outcome::OutOfState,
        }
    }

    /// Closes a connection before the other side has sent anything.
    fn close_unanswered(&mut self, other: usize) {
        self.set_max_end(other, self.end[other]);
        self.set_state(State::Closed);
    }

    /// Applies window scaling only if both sides offered it.
    fn negotiate_scale(&mut self) {
        if self.scale(0) == UNSCALED || self.scale(1) == UNSCALED {
            self.set_scale(0, 0);
            self.set_scale(1, 0);
        }
    }

    /// Returns true if an ICMP error may quote this segment of `side` (RFC 5927 §4.1): it was sent, and recently.
    pub(crate) fn has_sent(&self, side: usize, seq: u32) -> bool {
        let old = self.end[side].wrapping_sub(self.max_window(side ^ 1).max(MAX_ACK_WINDOW)).wrapping_sub(1);
        self.is_loose() || !after(seq, self.end[side]) && !after(old, seq)
    }

    /// Accounts for a later fragment of a segment of `side` that ends at `end`.
    pub(crate) fn extend(&mut self, side: usize, end: u32) {
        // no farther than the length of a datagram
        if end.wrapping_sub(self.end[side]) <= u32::from(u16::MAX) {
            self.advance_end(side, end);
        }
    }
}
