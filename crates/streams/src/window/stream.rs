//! One direction of a TCP connection: segments in, bytes in order out (RFC 9293 §3.4 and §3.10.7.4, as one who looks on).
//!
//! No packets, no clock: segments and the time come in, [`Chunk`]s go out. What looks on differs from a receiver in three
//! ways: it may miss segments, so a gap is given up in the end; it may come in the middle; and it believes a reset, but goes
//! on when the stream does. Not modelled: urgent data (taken in line), timestamps (PAWS), checksums of segments, hop limits.

use super::memory::{BLOCK, Memory};
use super::pieces::{Full, Met, Origin, Piece, Pieces, behind};
use super::settings::Overlap;
use super::transport::Half;
use super::{End, Lost};
use wire::TcpFlags;

/// Sequence numbers that a segment may lie ahead: the largest window there is (RFC 7323 §2.3).
const FARTHEST: u32 = 1 << 30;
/// Bytes that a segment may lie beyond the receiver's window: who looks on may hear of it late.
const SLACK: u32 = 65_535;
/// A window whose scale was not seen may be scaled by as much (RFC 7323 §2.3).
const SCALE_MOST: u8 = 14;

/// What streams keep to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) overlap: Overlap,
    /// Pieces that a stream may have.
    pub(super) pieces: usize,
    /// Whether a segment that is not wholly seen is dropped: then none of it is put aside, and no gap is given up for room.
    pub(super) strict: bool,
}

/// What streams have met.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Tally {
    pub(super) out_of_order: u64,
    pub(super) retransmitted: u64,
    pub(super) overlapping: u64,
    pub(super) conflicting: u64,
    pub(super) keep_alives: u64,
    pub(super) gaps: u64,
    pub(super) gap_bytes: u64,
    pub(super) out_of_window: u64,
    pub(super) after_end: u64,
    pub(super) over_budget: u64,
    pub(super) resets: u64,
}

/// What a stream needs beside itself.
pub(super) struct Desk<'a> {
    pub(super) rules: &'a Rules,
    pub(super) memory: &'a mut Memory,
    pub(super) tally: &'a mut Tally,
    /// In ms; wraps.
    pub(super) now: u32,
}

/// What a stream gives.
#[derive(Debug)]
pub(super) enum Chunk<'a> {
    /// The next bytes.
    Bytes(&'a [u8]),
    /// So many bytes are missing here.
    Gap(u32, Lost),
    /// That was all, or should have been.
    End(End),
}

/// A segment without its addresses.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) flags: TcpFlags,
    /// Of a SYN: how many bits windows are shifted by; 0 without the option.
    pub(crate) scale: u8,
}

/// What became of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fed {
    /// Sequence number behind its last byte.
    pub(super) end: u32,
    /// Some of its bytes have not been given, and never will be.
    pub(super) unseen: bool,
}

/// The sequence number of the first byte is known.
const OPEN: u8 = 1;
/// From an empty segment, which may have been a keep-alive.
const GUESSED: u8 = 2;
/// The receiver has said what it has.
const HEARD: u8 = 4;
/// It is known where the stream ends.
const ENDS: u8 = 8;
/// The end was reached.
const ENDED: u8 = 16;
/// A reset was believed.
const RESET: u8 = 32;
/// It was opened by a SYN.
const SYN: u8 = 64;
/// A SYN came that would begin another connection, if it is answered.
const ASKED: u8 = 128;

/// What a SYN means for a connection that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Renewal {
    /// Nothing.
    None,
    /// The direction that it came in begins anew.
    Own,
    /// Both begin anew.
    Both,
    /// Both begin anew, the other one with the SYN that this answers.
    Answered,
    /// The other one begins anew: this answers a SYN other than the one that was seen last.
    Other,
}

/// One direction of a TCP connection.
#[derive(Default)]
pub(super) struct Stream {
    state: u8,
    /// By how much windows that this side announces are shifted.
    scale: u8,
    /// Sequence number of the next byte to give.
    next: u32,
    /// Sequence number of the first byte.
    first: u32,
    /// What the receiver expects next.
    acked: u32,
    /// Where the receiver's window ends.
    edge: u32,
    /// Sequence number of the FIN.
    fin: u32,
    /// Sequence number of the first byte of the connection that was asked for.
    asked: u32,
    pieces: Pieces,
}

/// Takes chunks; false when it wants no more of this stream.
pub(super) trait Out: FnMut(&mut Memory, Chunk<'_>) -> bool {}
impl<F: FnMut(&mut Memory, Chunk<'_>) -> bool> Out for F {}

impl Half for Stream {
    #[inline(always)]
    fn feed(&mut self, segment: &Segment, payload: &[u8], desk: &mut Desk<'_>, out: &mut impl Out) -> Fed {
        let odd = segment.flags.intersects(TcpFlags::SYN | TcpFlags::FIN | TcpFlags::RST);
        let plain = self.state & (OPEN | GUESSED | ENDS) == OPEN && !odd && self.pieces.is_empty();
        if plain && segment.seq == self.next {
            self.next = self.next.wrapping_add(payload.len() as u32);
            if !payload.is_empty() {
                out(desk.memory, Chunk::Bytes(payload));
            }
            return Fed { end: self.next, unseen: false };
        }
        self.feed_odd(segment, payload, desk, out)
    }

    #[inline(always)]
    fn is_open(&self) -> bool {
        self.is(OPEN)
    }

    #[inline(always)]
    fn next(&self) -> u32 {
        self.next
    }

    #[inline(always)]
    fn given(&self) -> u32 {
        if self.is(ENDED) { self.fin } else { self.next }
    }

    fn is_ended(&self) -> bool {
        self.is(ENDED | RESET)
    }

    fn is_reset(&self) -> bool {
        self.is(RESET)
    }

    fn is_midstream(&self) -> bool {
        self.state & (OPEN | SYN) == OPEN
    }

    #[inline(always)]
    fn waits(&self) -> bool {
        !self.pieces.is_empty()
    }

    #[inline(always)]
    fn holds(&self) -> bool {
        self.pieces.holds()
    }

    #[inline(always)]
    fn is_ahead(&self, segment: &Segment) -> bool {
        self.is_open() && behind(segment.seq, self.next) && !segment.flags.intersects(TcpFlags::SYN | TcpFlags::RST)
    }

    #[inline(always)]
    fn needs(&self, segment: &Segment, len: usize, memory: &Memory) -> usize {
        if segment.seq != self.next && len != 0 && self.is_ahead(segment) { memory.price(len, self.holds()) } else { 0 }
    }

    /// Whether a segment begins a connection other than this one, and which of its directions have to be forgotten for it.
    ///
    /// A SYN does where this connection has ended, or where nothing was ever seen of the receiver; else it is put aside
    /// until the receiver answers it, since one that it does not accept changes nothing (RFC 9293 §3.10.7.4).
    fn renews(&self, segment: &Segment, peer: &Self) -> Renewal {
        let Segment { seq, ack, flags, .. } = *segment;
        if !flags.contains(TcpFlags::SYN) || flags.contains(TcpFlags::RST) {
            return Renewal::None;
        }
        let first = seq.wrapping_add(1);
        if flags.contains(TcpFlags::ACK) {
            let unanswered = !self.is_open() && peer.is(SYN) && !peer.is(HEARD);
            return if peer.is(ASKED) && ack == peer.asked {
                Renewal::Answered
            } else if unanswered && (behind(peer.first, ack) || behind(ack, peer.next)) {
                Renewal::Other
            } else if self.is_open()
                && first != self.first
                && (self.is_midstream() || self.is_ended())
                && peer.is(SYN)
                && ack == peer.first
            {
                Renewal::Own
            } else {
                Renewal::None
            };
        }
        let over = if self.is_open() {
            (first != self.first || self.is_reset()) && (self.is_ended() || !(peer.is_open() || self.is(HEARD)))
        } else {
            peer.is_ended()
        };
        if over { Renewal::Both } else { Renewal::None }
    }

    fn asked(&self) -> u32 {
        self.asked
    }

    fn take_up(&mut self, asked: u32) {
        self.open(asked, SYN);
        self.scale = SCALE_MOST;
    }

    #[inline(always)]
    fn hear(&mut self, segment: &Segment, peer_scale: u8) {
        if !segment.flags.contains(TcpFlags::ACK) || !self.is_open() {
            return;
        }
        // what was never sent cannot have been received; but a FIN may not have been seen, nor what the window allowed
        let sent = self.pieces.end().unwrap_or(self.next).wrapping_add(1);
        let most = if self.is(HEARD) && behind(self.edge, sent) { self.edge } else { sent };
        let least = self.first.wrapping_sub(if self.is(SYN) { 0 } else { FARTHEST });
        if behind(segment.ack, most) || behind(least, segment.ack) {
            return;
        }
        let shift = if segment.flags.contains(TcpFlags::SYN) { 0 } else { peer_scale };
        let edge = segment.ack.wrapping_add(u32::from(segment.window) << shift);
        if !self.is(HEARD) {
            (self.acked, self.edge) = (segment.ack, edge);
            self.state |= HEARD;
            return;
        }
        if behind(segment.ack, self.acked) {
            self.acked = segment.ack;
        }
        if behind(edge, self.edge) {
            self.edge = edge;
        }
    }

    #[inline(always)]
    fn announced_scale(&self) -> u8 {
        if self.is(SYN) { self.scale } else { SCALE_MOST }
    }

    #[inline(always)]
    fn is_lost(&self) -> bool {
        self.is(HEARD) && self.pieces.first().is_some_and(|first| !behind(first.seq, self.acked))
    }

    /// Whether bytes have waited for `ms`, in vain as far as can be known: where the receiver was heard, it would have said
    /// so, and the sender will send again.
    fn is_overdue(&self, now: u32, ms: u32) -> bool {
        !self.is(HEARD) && self.pieces.first().is_some_and(|first| now.wrapping_sub(first.since) >= ms)
    }

    /// Gives up the first gap, and gives what comes behind it. False when no more is wanted.
    fn give_up(&mut self, why: Lost, desk: &mut Desk<'_>, out: &mut impl Out) -> bool {
        let Some(first) = self.pieces.first() else { return true };
        let missing = first.seq.wrapping_sub(self.next);
        self.next = first.seq;
        desk.tally.gaps += 1;
        desk.tally.gap_bytes += u64::from(missing);
        let more = out(desk.memory, Chunk::Gap(missing, why)) && self.give(&[], None, &mut Met::default(), desk, out);
        if more {
            if self.pieces.is_empty() {
                self.pieces.clear(desk.memory);
            }
            self.finish(desk, out);
        }
        more
    }

    /// Ends the stream by a reset, of this direction or the other. Bytes behind a gap are forgotten: the receiver had no use
    /// for them.
    fn close(&mut self, desk: &mut Desk<'_>, out: &mut impl Out) {
        self.pieces.clear(desk.memory);
        if !self.is_ended() {
            self.state |= RESET;
            if self.is_open() {
                out(desk.memory, Chunk::End(End::Reset));
            }
        }
    }

    fn forget_ahead(&mut self, memory: &mut Memory) {
        self.pieces.clear(memory);
        if !self.is(ENDED) {
            self.state &= !ENDS;
        }
    }
}

impl Stream {
    #[inline(always)]
    fn is(&self, state: u8) -> bool {
        self.state & state != 0
    }

    #[inline(never)]
    fn feed_odd(&mut self, segment: &Segment, payload: &[u8], desk: &mut Desk<'_>, out: &mut impl Out) -> Fed {
        let Segment { seq, flags, scale, .. } = *segment;
        let mut data = payload;
        let syn = flags.contains(TcpFlags::SYN);
        let mut at = seq.wrapping_add(u32::from(syn));
        let end = at.wrapping_add(data.len() as u32);
        let fed = |unseen| Fed { end, unseen: unseen && !payload.is_empty() };
        if flags.contains(TcpFlags::RST) {
            self.reset(seq, desk, out);
            return Fed { end: seq, unseen: !payload.is_empty() };
        }
        if !self.is_open() {
            self.open(at, if data.is_empty() && !syn { GUESSED } else { 0 });
        }
        if syn && at != self.first {
            (self.asked, self.state) = (at, self.state | ASKED);
            desk.tally.out_of_window += 1;
            return fed(true);
        } else if syn {
            // one that its data overtook, or the same once more
            (self.state, self.scale) = (self.state | SYN, scale.min(SCALE_MOST));
        }
        if self.is(GUESSED) && !data.is_empty() {
            if at == self.next.wrapping_add(1) {
                self.open(at, 0);
            }
            self.state &= !GUESSED;
        }
        let odd = flags.intersects(TcpFlags::FIN | TcpFlags::SYN);
        if at.wrapping_add(1) == self.next && data.len() <= 1 && !odd {
            desk.tally.keep_alives += 1;
            return fed(false);
        }
        if data.is_empty() && !flags.contains(TcpFlags::FIN) {
            return fed(false);
        }
        if behind(at, self.next) && at.wrapping_sub(self.next) > FARTHEST {
            desk.tally.out_of_window += 1;
            return fed(true);
        }
        let origin = Origin { seq: at, end: at.wrapping_add(data.len() as u32) };
        let may_end = !self.is(ENDS) && !behind(self.next, origin.end) && !self.is_beyond(end.wrapping_add(1));
        if flags.contains(TcpFlags::FIN) && may_end {
            (self.fin, self.state) = (origin.end, self.state | ENDS);
            desk.tally.after_end += u64::from(self.pieces.cut(self.fin, desk.memory));
        }
        let mut beyond = false;
        if self.is(ENDS) && behind(origin.end, self.fin) {
            let kept = self.fin.wrapping_sub(at) as i32;
            data = &data[..data.len().min(kept.max(0) as usize)];
            desk.tally.after_end += 1;
            beyond = true;
        }
        let mut met = Met::default();
        if behind(self.next, at) {
            let old = data.len().min(self.next.wrapping_sub(at) as usize);
            at = at.wrapping_add(old as u32);
            data = &data[old..];
            desk.tally.retransmitted += u64::from(old > 0 && data.is_empty());
            met.overlap = old > 0 && !data.is_empty();
        }
        let all = self.take(at, data, origin, met, desk, out);
        self.finish(desk, out);
        fed(beyond || !all)
    }

    /// Takes what is new of a segment. False when it had to be left.
    fn take(
        &mut self,
        mut at: u32,
        mut data: &[u8],
        origin: Origin,
        mut met: Met,
        desk: &mut Desk<'_>,
        out: &mut impl Out,
    ) -> bool {
        let mut all = true;
        let mut early = false;
        while !data.is_empty() {
            if at == self.next {
                if !self.give(data, Some(origin), &mut met, desk, out) {
                    return true;
                }
                break;
            }
            early = true;
            let Rules { overlap, pieces, strict } = *desk.rules;
            if strict && !self.pieces.have_room(at, data.len(), pieces, desk.memory) {
                desk.tally.over_budget += 1;
                all = false;
                break;
            }
            match self.pieces.put(at, data, origin, desk.now, overlap, pieces, desk.memory, &mut met) {
                Ok(()) => break,
                Err((stopped, Full::Stream)) => {
                    if self.is_beyond(origin.end) {
                        desk.tally.out_of_window += 1;
                        all = false;
                        break;
                    }
                    if self.pieces.end().is_some_and(|end| self.is_beyond(end)) {
                        desk.tally.out_of_window += 1;
                        let last = self.pieces.pop_last();
                        last.into_iter().for_each(|piece| desk.memory.give_block(piece.into_block()));
                        // what of it was in is found there
                        continue;
                    }
                    if !self.give_up(Lost::NoRoom, desk, out) {
                        return true;
                    }
                    // what has been put in may have been given already, and more with it
                    let from = if behind(self.next, stopped) { self.next } else { stopped };
                    let done = from.wrapping_sub(at) as usize;
                    data = data.get(done..).unwrap_or_default();
                    at = from;
                }
                Err((_, Full::Total)) => {
                    desk.tally.over_budget += 1;
                    all = false;
                    break;
                }
            }
        }
        desk.tally.out_of_order += u64::from(early);
        desk.tally.overlapping += u64::from(met.overlap);
        desk.tally.conflicting += u64::from(met.conflict);
        if self.pieces.is_empty() {
            self.pieces.clear(desk.memory);
        }
        all
    }

    fn open(&mut self, first: u32, state: u8) {
        (self.next, self.first) = (first, first);
        // a reset before the first byte ended nothing
        let kept = if self.is_open() { !(SYN | GUESSED) } else { !(SYN | GUESSED | RESET) };
        self.state = self.state & kept | OPEN | state;
    }

    /// Whether bytes are such that the receiver has no room for them, as far as is known: a sender would not send them, and
    /// a stranger might, to have a gap given up.
    fn is_beyond(&self, end: u32) -> bool {
        self.is(HEARD) && behind(end, self.edge.wrapping_add(SLACK))
    }

    /// Gives `data`, which begins at the next byte, and what then comes next of the pieces. False when no more is wanted.
    fn give(
        &mut self,
        mut data: &[u8],
        origin: Option<Origin>,
        met: &mut Met,
        desk: &mut Desk<'_>,
        out: &mut impl Out,
    ) -> bool {
        loop {
            let free = match self.pieces.first() {
                Some(first) => data.len().min(first.seq.wrapping_sub(self.next) as usize),
                None => data.len(),
            };
            if free > 0 {
                self.next = self.next.wrapping_add(free as u32);
                if !out(desk.memory, Chunk::Bytes(&data[..free])) {
                    return false;
                }
                data = &data[free..];
            }
            let next = self.next;
            let Some(first) = self.pieces.first_mut().filter(|first| first.seq == next) else { return true };
            let both = data.len().min(first.len());
            if both > 0 {
                met.overlap = true;
                met.conflict |= first.bytes().get(..both) != data.get(..both);
                if origin.is_some_and(|newer| first.loses_to(newer, desk.rules.overlap)) {
                    first.trim(both);
                    if first.len() == 0 {
                        self.pieces.pop().into_iter().for_each(|it| desk.memory.give_block(it.into_block()));
                    }
                    self.next = self.next.wrapping_add(both as u32);
                    if !out(desk.memory, Chunk::Bytes(&data[..both])) {
                        return false;
                    }
                    data = &data[both..];
                    continue;
                }
            }
            let Some(piece) = self.pieces.pop() else { return true };
            data = data.get(piece.len()..).unwrap_or_default();
            if !self.give_piece(piece, desk, out) {
                return false;
            }
        }
    }

    fn give_piece(&mut self, piece: Piece, desk: &mut Desk<'_>, out: &mut impl Out) -> bool {
        self.next = self.next.wrapping_add(piece.len() as u32);
        let more = out(desk.memory, Chunk::Bytes(piece.bytes()));
        desk.memory.give_block(piece.into_block());
        more
    }

    /// Ends the stream when that is due.
    fn finish(&mut self, desk: &mut Desk<'_>, out: &mut impl Out) {
        if self.state & (ENDS | ENDED) == ENDS && !behind(self.fin, self.next) {
            self.next = self.fin.wrapping_add(1);
            self.state |= ENDED;
            self.pieces.clear(desk.memory);
            if !self.is(RESET) {
                out(desk.memory, Chunk::End(End::Finished));
            }
        }
    }

    /// Believes a reset that stands where the next byte would, or behind the last one seen (RFC 5961 §3.2): any other may be
    /// meant for who looks on, and not reach or not convince the receiver.
    fn reset(&mut self, seq: u32, desk: &mut Desk<'_>, out: &mut impl Out) {
        let last = self.pieces.end().unwrap_or(self.next);
        if self.is_open() && seq != self.next && seq != last {
            desk.tally.out_of_window += 1;
            return;
        }
        desk.tally.resets += 1;
        self.close(desk, out);
    }
}

/// Blocks hold at least what they are priced at.
const _: () = assert!(BLOCK >= 1460);

#[cfg(test)]
mod tests;
