//! Reassembly of one direction of a TCP connection (RFC 9293 §3.4, §3.10.7.4), as a passive observer.
//!
//! No packets, no clock: segments and time are inputs, [`Chunk`]s are outputs. An observer differs from a receiver in
//! three ways: it may miss segments, so that a gap is given up eventually; it may start in midstream; and it accepts a
//! reset but continues if the stream does. Not modelled: urgent data (treated as in line), timestamps (PAWS), checksums
//! of segments, hop limits.

use super::block::BLOCK;
use super::memory::Memory;
use super::piece::{Origin, Piece, behind};
use super::pieces::{Full, Overlaps, Pieces};
use super::stream_state::{Chunk, ChunkSink, Fed, Limits, Restart, Segment, Shared, StreamState};
use super::{End, Lost};
use wire::TcpFlags;

/// Largest distance of a segment ahead, in sequence numbers: the largest window (RFC 7323 §2.3).
const FARTHEST: u32 = 1 << 30;
/// Bytes that a segment may lie beyond the receiver's window, which the observer may learn late.
const SLACK: u32 = 65_535;
/// Window scale assumed if the SYN was not seen (RFC 7323 §2.3).
const SCALE_MOST: u8 = 14;

/// The sequence number of the first byte is known.
const OPEN: u8 = 1;
/// The start was guessed from an empty segment, which may have been a keep-alive.
const GUESSED: u8 = 2;
/// An acknowledgment of the receiver was seen.
const HEARD: u8 = 4;
/// The end of the stream is known.
const ENDS: u8 = 8;
/// The end was reached.
const ENDED: u8 = 16;
/// A reset was accepted.
const RESET: u8 = 32;
/// It was opened by a SYN.
const SYN: u8 = 64;
/// A SYN was seen that opens another connection if it is answered.
const ASKED: u8 = 128;

/// One direction of a TCP connection.
#[derive(Default)]
pub(super) struct Stream {
    state: u8,
    /// Window scale that this side announced.
    scale: u8,
    /// Sequence number of the next byte to deliver.
    next: u32,
    /// Sequence number of the first byte.
    first: u32,
    /// Acknowledgment number of the receiver.
    acked: u32,
    /// End of the receiver's window.
    edge: u32,
    /// Sequence number of the FIN.
    fin: u32,
    /// Sequence number of the first byte of the connection that a new SYN asked for.
    asked: u32,
    pieces: Pieces,
}

impl StreamState for Stream {
    #[inline(always)]
    fn feed(&mut self, segment: &Segment, payload: &[u8], desk: &mut Shared<'_>, out: &mut impl ChunkSink) -> Fed {
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
        if segment.seq != self.next && len != 0 && self.is_ahead(segment) { memory.cost(len, self.holds()) } else { 0 }
    }

    /// Returns the directions that must restart if a segment opens another connection.
    /// A SYN does if this connection has ended, or if the receiver was never seen; otherwise it is stored until the
    /// receiver answers, since a SYN that is not accepted changes nothing (RFC 9293 §3.10.7.4).
    fn restarts(&self, segment: &Segment, peer: &Self) -> Restart {
        let Segment { seq, ack, flags, .. } = *segment;
        if !flags.contains(TcpFlags::SYN) || flags.contains(TcpFlags::RST) {
            return Restart::None;
        }
        let first = seq.wrapping_add(1);
        if flags.contains(TcpFlags::ACK) {
            let unanswered = !self.is_open() && peer.is(SYN) && !peer.is(HEARD);
            return if peer.is(ASKED) && ack == peer.asked {
                Restart::Answered
            } else if unanswered && (behind(peer.first, ack) || behind(ack, peer.next)) {
                Restart::Other
            } else if self.is_open()
                && first != self.first
                && (self.is_midstream() || self.is_ended())
                && peer.is(SYN)
                && ack == peer.first
            {
                Restart::Own
            } else {
                Restart::None
            };
        }
        let over = if self.is_open() {
            (first != self.first || self.is_reset()) && (self.is_ended() || !(peer.is_open() || self.is(HEARD)))
        } else {
            peer.is_ended()
        };
        if over { Restart::Both } else { Restart::None }
    }

    fn asked(&self) -> u32 {
        self.asked
    }

    fn restart(&mut self, asked: u32) {
        self.open(asked, SYN);
        self.scale = SCALE_MOST;
    }

    #[inline(always)]
    fn process_ack(&mut self, segment: &Segment, peer_scale: u8) {
        if !segment.flags.contains(TcpFlags::ACK) || !self.is_open() {
            return;
        }
        // bytes that were never sent cannot be acknowledged; but a FIN, or bytes within the window, may have been
        // missed
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

    /// Returns true if bytes have waited for `ms` without an acknowledgment that explains it: if the receiver is seen,
    /// it would acknowledge, and the sender retransmits.
    fn is_overdue(&self, now: u32, ms: u32) -> bool {
        !self.is(HEARD) && self.pieces.first().is_some_and(|first| now.wrapping_sub(first.since) >= ms)
    }

    /// Gives up the first gap and delivers the bytes behind it. Returns false to stop the stream.
    fn give_up(&mut self, why: Lost, desk: &mut Shared<'_>, out: &mut impl ChunkSink) -> bool {
        let Some(first) = self.pieces.first() else { return true };
        let missing = first.seq.wrapping_sub(self.next);
        self.next = first.seq;
        desk.tally.gaps += 1;
        desk.tally.gap_bytes += u64::from(missing);
        let more =
            out(desk.memory, Chunk::Gap(missing, why)) && self.give(&[], None, &mut Overlaps::default(), desk, out);
        if more {
            if self.pieces.is_empty() {
                self.pieces.clear(desk.memory);
            }
            self.finish(desk, out);
        }
        more
    }

    /// Ends the stream by a reset of either direction. Bytes behind a gap are discarded: the receiver did not use them.
    fn close(&mut self, desk: &mut Shared<'_>, out: &mut impl ChunkSink) {
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
    fn feed_odd(&mut self, segment: &Segment, payload: &[u8], desk: &mut Shared<'_>, out: &mut impl ChunkSink) -> Fed {
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
            // a SYN overtaken by its data, or a retransmitted one
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
        let mut met = Overlaps::default();
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

    /// Processes the new bytes of a segment. Returns false if some could not be stored.
    fn take(
        &mut self,
        mut at: u32,
        mut data: &[u8],
        origin: Origin,
        mut met: Overlaps,
        desk: &mut Shared<'_>,
        out: &mut impl ChunkSink,
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
            let Limits { overlap, pieces, strict } = *desk.rules;
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
                        last.into_iter().for_each(|piece| desk.memory.free_block(piece.into_block()));
                        // bytes stored earlier are found there
                        continue;
                    }
                    if !self.give_up(Lost::NoRoom, desk, out) {
                        return true;
                    }
                    // stored bytes may have been delivered already, with more behind them
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

    /// Returns true if the receiver has no room for the bytes, as far as known: a sender would not send them; an
    /// attacker might, to have a gap given up.
    fn is_beyond(&self, end: u32) -> bool {
        self.is(HEARD) && behind(end, self.edge.wrapping_add(SLACK))
    }

    /// Delivers `data`, which starts at the next byte, and the pieces that follow. Returns false to stop the stream.
    fn give(
        &mut self,
        mut data: &[u8],
        origin: Option<Origin>,
        met: &mut Overlaps,
        desk: &mut Shared<'_>,
        out: &mut impl ChunkSink,
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
                if origin.is_some_and(|newer| first.is_replaced_by(newer, desk.rules.overlap)) {
                    first.trim(both);
                    if first.len() == 0 {
                        self.pieces.pop().into_iter().for_each(|it| desk.memory.free_block(it.into_block()));
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

    fn give_piece(&mut self, piece: Piece, desk: &mut Shared<'_>, out: &mut impl ChunkSink) -> bool {
        self.next = self.next.wrapping_add(piece.len() as u32);
        let more = out(desk.memory, Chunk::Bytes(piece.bytes()));
        desk.memory.free_block(piece.into_block());
        more
    }

    /// Ends the stream if its end is reached.
    fn finish(&mut self, desk: &mut Shared<'_>, out: &mut impl ChunkSink) {
        if self.state & (ENDS | ENDED) == ENDS && !behind(self.fin, self.next) {
            self.next = self.fin.wrapping_add(1);
            self.state |= ENDED;
            self.pieces.clear(desk.memory);
            if !self.is(RESET) {
                out(desk.memory, Chunk::End(End::Finished));
            }
        }
    }

    /// Accepts a reset at the next byte or behind the last byte seen (RFC 5961 §3.2): any other may target the observer
    /// and not reach or convince the receiver.
    fn reset(&mut self, seq: u32, desk: &mut Shared<'_>, out: &mut impl ChunkSink) {
        let last = self.pieces.end().unwrap_or(self.next);
        if self.is_open() && seq != self.next && seq != last {
            desk.tally.out_of_window += 1;
            return;
        }
        desk.tally.resets += 1;
        self.close(desk, out);
    }
}

/// blocks hold at least the size they are accounted with
const _: () = assert!(BLOCK >= 1460);

#[cfg(test)]
mod tests;
