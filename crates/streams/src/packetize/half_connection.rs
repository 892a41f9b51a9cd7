//! One direction of a connection: what its sender has sent, and what its receiver is sent for it.

use super::buffer::Buffer;
use super::header_template::HeaderTemplate;
use super::sequence_map::SequenceMap;
use super::syn::SynParameters;
use crate::window::Overlap;
use crate::window::piece::{Origin, behind};
use crate::window::pieces::{Overlaps, Pieces};
use crate::window::stream_state::Segment;
use crate::window::{block::BLOCK, memory::Memory};
use graph::PathId;

/// Excess of the output of one segment over the buffer, for bytes appended at the end of a stream.
const SLACK: usize = 64 << 10;

/// Limits of all connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) buffer: usize,
    pub(super) growth: usize,
    pub(super) withheld: usize,
    pub(super) pieces: usize,
    /// Time in ms.
    pub(super) timeout: u32,
}

/// Counts of all connections.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RewriteCounts {
    pub(super) input_bytes: u64,
    pub(super) output_bytes: u64,
    pub(super) out_of_order: u64,
    pub(super) retransmitted: u64,
    pub(super) resent: u64,
    pub(super) resent_late: u64,
    pub(super) probes: u64,
    pub(super) timed_out: u64,
    pub(super) no_buffers: u64,
    pub(super) given_up: u64,
    pub(super) challenged: u64,
}

/// Rewrites bytes of a direction from an offset on; takes whether more may follow, returns the number of bytes used.
pub(super) type Run<'a> = &'a mut dyn FnMut(usize, u64, &[u8], bool, &mut Vec<u8>) -> usize;

/// State that connections share while one of them is processed.
pub(super) struct Shared<'a> {
    pub(super) rules: &'a Limits,
    pub(super) memory: &'a mut Memory,
    pub(super) tally: &'a mut RewriteCounts,
    pub(super) scratch: &'a mut Vec<u8>,
    /// Number of connections.
    pub(super) connections: usize,
    /// Time in ms; wraps.
    pub(super) now: u32,
    pub(super) run: Run<'a>,
}

/// Result of receiving a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    /// It contained nothing.
    Nothing,
    /// It contained new bytes in order.
    NewBytes,
    /// It is out of order.
    Early,
    /// It is a retransmission of these sequence numbers.
    Again(u32, u32),
    /// It is a probe and must be answered.
    Probe,
    /// It is outside the window.
    Beyond,
    /// It is out of order and there is no memory for it.
    NoMemory,
    /// It is in order and there is no memory for it.
    Starved,
    /// Its output exceeds the limit.
    Overrun,
}

/// Result of processing an acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckResult {
    /// Nothing to tell the sender.
    None,
    /// It acknowledges more bytes.
    Advanced,
    /// It is a duplicate: the receiver misses a segment.
    Duplicate,
    /// It answers a probe.
    Answer,
}

#[derive(Default)]
pub(super) struct HalfConnection {
    /// True if its SYN was seen; and the sequence number of the first byte.
    pub(super) open: bool,
    pub(super) start: u32,
    pub(super) hello: SynParameters,
    pub(super) head: HeaderTemplate,
    /// Path of its packets.
    pub(super) path: Option<PathId>,

    /// Next expected byte of the sender, and the end of its window.
    pub(super) next_in: u32,
    pub(super) edge_in: u32,
    fin_in: Option<u32>,
    pieces: Pieces,
    /// Bytes in order that the closure left unused; and the number of them accounted in the memory pool.
    waiting: Vec<u8>,
    charged: usize,
    /// Number of bytes used so far.
    used: u64,
    /// True if the end of the stream was reached; a FIN follows the last byte of the output.
    pub(super) ended: bool,

    /// Unacknowledged output, from sequence number `base`.
    buffer: Buffer,
    pub(super) base: u32,
    /// End of the sent and of the available output; a FIN may follow.
    pub(super) sent: u32,
    pub(super) next_out: u32,
    /// End of the receiver's window.
    pub(super) edge_out: u32,
    /// Sequence and acknowledgment number of the last window update (RFC 9293 §3.10.7.4), and its window field.
    update: (u32, u32),
    window: u16,
    /// Largest window announced by the receiver, in bytes.
    pub(super) widest: u32,

    trail: SequenceMap,
    /// Acknowledgment number and window announced to the sender.
    pub(super) told: u32,
    pub(super) told_window: u16,
    told_edge: u32,
    /// True if less than a full segment may be sent; and true if part of it may be sent into a small window.
    pub(super) push: bool,
    pub(super) sliver: bool,
    /// Duplicate acknowledgments to send once all before are acknowledged.
    pub(super) owed: u8,
    /// Times of the last bytes in order and of the last transmission of the first unacknowledged byte.
    pub(super) since: u32,
    pub(super) resent: u32,
    pub(super) tries: u8,
    /// Number of transmissions without an answer.
    pub(super) unheard: u8,
    /// Start and time of the last retransmission of the sender.
    pub(super) repeated: Option<(u32, u32)>,
    /// True if the receiver has made progress.
    pub(super) moved: bool,
    /// ECN of TCP: ECE of the last packet, and a CWR to forward.
    pub(super) ece: bool,
    pub(super) cwr: bool,
    /// True if it is in the list of waiting directions; and true if it is in the list of those that hold bytes.
    pub(super) timed: bool,
    pub(super) listed: bool,
}

impl HalfConnection {
    /// Initialises a direction after its SYN.
    pub(super) fn begin(&mut self, start: u32, hello: SynParameters) {
        (self.open, self.start, self.hello) = (true, start, hello);
        (self.next_in, self.edge_in, self.base, self.sent, self.next_out) = (start, start, start, start, start);
        (self.told, self.told_edge, self.edge_out) = (start, start, start);
        self.trail = SequenceMap::new(start);
    }

    /// Processes the SYN of the receiver at `seq` with its window; `told` is announced to the sender.
    pub(super) fn on_peer_syn(&mut self, seq: u32, window: u16, told: u16) {
        self.edge_out = self.start.wrapping_add(u32::from(window));
        self.edge_in = self.start.wrapping_add(u32::from(told));
        (self.update, self.window, self.widest) = ((seq, self.start), window, window.into());
        (self.told_edge, self.told_window) = (self.edge_in, told);
    }

    /// Returns the end of the available output, including the FIN.
    pub(super) fn end_out(&self) -> u32 {
        self.next_out.wrapping_add(u32::from(self.ended))
    }

    /// Returns true if all output including the FIN is acknowledged.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.base == self.end_out()
    }

    /// Returns the number of bytes that wait to be sent.
    pub(super) fn unsent(&self) -> u32 {
        if behind(self.next_out, self.sent) { self.next_out.wrapping_sub(self.sent) } else { 0 }
    }

    /// Returns true if sequence numbers of input and output differ.
    pub(super) fn is_shifted(&self) -> bool {
        self.trail.shift() != 0 || !self.waiting.is_empty() || self.unsent() > 0
    }

    pub(super) fn is_withholding(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn has_gap(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Returns true if a segment from `seq` to `last` is acceptable (RFC 9293 §3.10.7.4): it overlaps the window or is
    /// a probe.
    pub(super) fn accepts(&self, seq: u32, last: u32) -> bool {
        let edge = if behind(self.next_in, self.edge_in) { self.next_in } else { self.edge_in };
        // a zero-window probe is one byte beyond the window
        let right = edge.wrapping_add(1);
        if seq != last {
            return behind(last, self.told) && behind(right, seq) || self.is_probe(seq, last);
        }
        !behind(self.told, seq) && !behind(seq, right) || self.is_probe(seq, last)
    }

    /// Returns true if a segment is a keep-alive or a zero-window probe (RFC 9293 §3.8.4).
    fn is_probe(&self, seq: u32, last: u32) -> bool {
        let before = |next: u32| seq == next.wrapping_sub(1);
        let one = last == self.next_in && self.told == self.next_in && !self.ended;
        before(self.next_in) && (seq == last || one) || before(self.told) && seq == last
    }

    /// Returns true if the acknowledgment number is acceptable (RFC 5961 §5.2).
    pub(super) fn accepts_ack(&self, ack: u32) -> bool {
        !behind(ack, self.sent) && !behind(self.base.wrapping_sub(self.widest), ack)
    }

    /// Processes an acceptable segment of the sender.
    pub(super) fn receive(
        &mut self,
        way: usize,
        seq: u32,
        payload: &[u8],
        fin: bool,
        shared: &mut Shared<'_>,
    ) -> Received {
        let end = seq.wrapping_add(payload.len() as u32);
        let last = end.wrapping_add(u32::from(fin));
        let keeps_alive = seq == self.next_in.wrapping_sub(1) && !fin;
        if seq == last {
            return if self.is_probe(seq, last) { Received::Probe } else { Received::Nothing };
        }
        if keeps_alive && payload.len() == 1 && self.told == self.next_in {
            return Received::Probe;
        }
        if !behind(last, self.next_in) {
            return Received::Again(seq, last);
        }
        if self.ended {
            return Received::Beyond;
        }
        if behind(seq, self.next_in) {
            return self.receive_out_of_order(seq, end, payload, fin, shared);
        }
        let skip = payload.len().min(self.next_in.wrapping_sub(seq) as usize);
        let mut data = &payload[skip..];
        let edge = self.fin_in.unwrap_or(self.edge_in);
        let room = if behind(edge, self.next_in) { edge.wrapping_sub(self.next_in) as usize } else { 0 };
        let cut = data.len() > room;
        if cut {
            data = &data[..room];
        }
        let fin = fin && !cut;
        if data.is_empty() && !fin {
            return Received::Probe;
        }
        if !self.has_memory(data.len(), shared) {
            return Received::Starved;
        }
        if fin && self.fin_in.is_none() {
            self.fin_in = Some(end);
            // ignores bytes behind the FIN
            self.pieces.cut(end, shared.memory);
        }
        self.since = shared.now;
        if self.feed(way, data, shared) && self.feed_pieces(way, shared) && self.finish(way, shared) {
            Received::NewBytes
        } else {
            Received::Overrun
        }
    }

    /// Stores a segment that is out of order.
    fn receive_out_of_order(
        &mut self,
        seq: u32,
        end: u32,
        payload: &[u8],
        fin: bool,
        desk: &mut Shared<'_>,
    ) -> Received {
        if behind(end, self.edge_in) || self.fin_in.is_some_and(|fin| behind(end, fin)) {
            return Received::Beyond;
        }
        if fin && self.fin_in.is_none() && self.pieces.end().is_none_or(|last| !behind(last, end)) {
            self.fin_in = Some(end);
        }
        if payload.is_empty() {
            return Received::Early;
        }
        // keeps a reserve, so that segments out of order cannot exhaust the memory for those in order
        let most = desk.rules.pieces;
        if !desk.memory.has_half() || !self.pieces.have_room(seq, payload.len(), most, desk.memory) {
            return Received::NoMemory;
        }
        let origin = Origin { seq, end };
        let put = self.pieces.put(
            seq,
            payload,
            origin,
            desk.now,
            Overlap::First,
            most,
            desk.memory,
            &mut Overlaps::default(),
        );
        if put.is_ok() { Received::Early } else { Received::NoMemory }
    }

    /// Returns true if there is memory for the output of `len` bytes.
    pub(super) fn has_memory(&self, len: usize, desk: &Shared<'_>) -> bool {
        let most = (len + self.waiting.len()) * desk.rules.growth;
        desk.memory.has((most.div_ceil(BLOCK) + 1) * BLOCK + len)
    }

    /// Rewrites the next bytes; returns false if the output exceeds the limit.
    fn feed(&mut self, way: usize, bytes: &[u8], desk: &mut Shared<'_>) -> bool {
        self.next_in = self.next_in.wrapping_add(bytes.len() as u32);
        desk.tally.input_bytes += bytes.len() as u64;
        bytes.is_empty() || self.run(way, bytes, true, desk)
    }

    fn feed_pieces(&mut self, way: usize, desk: &mut Shared<'_>) -> bool {
        let mut fits = true;
        while let Some(first) = self.pieces.first().filter(|first| !behind(first.seq, self.next_in)) {
            if !fits || !self.has_memory(first.len(), desk) {
                break;
            }
            let Some(piece) = self.pieces.pop() else { break };
            let old = self.next_in.wrapping_sub(piece.seq) as usize;
            fits = self.feed(way, piece.bytes().get(old..).unwrap_or_default(), desk);
            desk.memory.free_block(piece.into_block());
        }
        if self.pieces.is_empty() {
            self.pieces.clear(desk.memory);
            self.owed = 0;
        }
        fits
    }

    /// Ends the stream if its FIN is next.
    fn finish(&mut self, way: usize, desk: &mut Shared<'_>) -> bool {
        if self.ended || self.fin_in != Some(self.next_in) {
            return true;
        }
        let fits = self.run(way, &[], false, desk);
        self.next_in = self.next_in.wrapping_add(1);
        (self.ended, self.push) = (true, true);
        self.trail.push(self.next_in, self.end_out());
        fits
    }

    /// Rewrites bytes behind the unused ones.
    pub(super) fn run(&mut self, way: usize, bytes: &[u8], more: bool, desk: &mut Shared<'_>) -> bool {
        desk.scratch.clear();
        let used = if self.waiting.is_empty() {
            let used = (desk.run)(way, self.used, bytes, more, desk.scratch).min(bytes.len());
            self.waiting.reserve_exact(bytes.len() - used);
            self.waiting.extend_from_slice(&bytes[used..]);
            used
        } else {
            self.waiting.reserve_exact(bytes.len());
            self.waiting.extend_from_slice(bytes);
            let used = (desk.run)(way, self.used, &self.waiting, more, desk.scratch).min(self.waiting.len());
            self.waiting.drain(..used);
            used
        };
        // bytes that were forced out and left unused pass unmodified
        let rest = if more { 0 } else { self.waiting.len() };
        if rest > 0 {
            desk.scratch.append(&mut self.waiting);
        }
        if self.waiting.is_empty() && self.waiting.capacity() > 0 {
            self.waiting = vec![];
        }
        desk.memory.charge(self.charged, self.waiting.len());
        self.charged = self.waiting.len();
        self.used += (used + rest) as u64;
        let done = self.next_in.wrapping_sub(self.waiting.len() as u32);
        let made = desk.scratch.len();
        let fits = self.buffer.len() + made <= 2 * desk.rules.buffer + SLACK;
        if !fits || !self.buffer.push(desk.scratch, desk.memory) {
            return false;
        }
        desk.tally.output_bytes += made as u64;
        self.next_out = self.next_out.wrapping_add(made as u32);
        if used + rest > 0 {
            self.trail.push(done, self.next_out);
        }
        self.waiting.len() <= desk.rules.withheld || self.run(way, &[], false, desk)
    }

    /// Processes an acknowledgment of the receiver; `bare`: of a segment without data.
    pub(super) fn process_ack(&mut self, segment: &Segment, bare: bool, shift: u8, desk: &mut Shared<'_>) -> AckResult {
        let Segment { seq, ack, window, .. } = *segment;
        self.unheard = if window == 0 { 0 } else { self.unheard };
        if behind(self.base, ack) {
            return AckResult::None;
        }
        let advanced = ack != self.base;
        let same = !advanced && window == self.window && bare;
        if advanced {
            self.buffer.forget(ack.wrapping_sub(self.base) as usize, desk.memory);
            (self.base, self.tries, self.unheard, self.resent) = (ack, 0, 0, desk.now);
            self.moved = true;
        }
        let (at, of) = self.update;
        if behind(seq, at) || (seq == at && !behind(of, ack)) {
            self.edge_out = ack.wrapping_add(u32::from(window) << shift);
            (self.update, self.window) = ((seq, ack), window);
            self.widest = self.widest.max(u32::from(window) << shift);
        }
        if self.advance_ack() {
            AckResult::Advanced
        } else if same && self.sent != self.base {
            AckResult::Duplicate
        } else if !advanced && bare && self.sent == self.base {
            AckResult::Answer
        } else {
            AckResult::None
        }
    }

    /// Updates the acknowledgment number for the sender; returns true if it advanced.
    pub(super) fn advance_ack(&mut self) -> bool {
        let input = self.trail.acked(self.base);
        let news = behind(input, self.told);
        if news {
            self.told = input;
        }
        news
    }

    /// Acknowledges bytes that wait in the node, which then retransmits them if necessary.
    pub(super) fn acknowledge_waiting(&mut self) {
        if behind(self.next_in, self.told) {
            self.told = self.next_in;
        }
    }

    /// Returns true if the sender was acknowledged more than the receiver has acknowledged.
    pub(super) fn has_acknowledged_ahead(&self) -> bool {
        behind(self.told, self.trail.input())
    }

    /// Computes the window for the sender, scaled by `shift`; returns true if it must be announced.
    pub(super) fn update_window(&mut self, shift: u8, desk: &Shared<'_>) -> bool {
        let rules = desk.rules;
        let taken = self.buffer.len() + self.waiting.len() * rules.growth;
        // when memory is short, all connections get the same window
        let most = if desk.memory.has_half() {
            rules.buffer
        } else {
            rules.buffer.min(desk.memory.most() / desk.connections.max(1))
        };
        let free = (most.saturating_sub(taken) / rules.growth) as u32;
        let end = self.end_out();
        let room = if behind(self.edge_out, end) { self.edge_out.wrapping_sub(end) } else { 0 };
        let unit = self.head.longest().min(rules.buffer / rules.growth / 4) as u32;
        let edge = self.next_in.wrapping_add(room.min(free));
        // an announced window never shrinks (RFC 9293 §3.8.6)
        if behind(edge, self.edge_in) {
            self.edge_in = edge;
        }
        let open = if behind(self.edge_in, self.told) { self.edge_in.wrapping_sub(self.told) } else { 0 };
        let field = (open >> shift).min(0xffff);
        let (was, now) = (u32::from(self.told_window) << shift, field << shift);
        let edge = self.told.wrapping_add(now);
        let more = if behind(edge, self.told_edge) { edge.wrapping_sub(self.told_edge) } else { 0 };
        (self.told_window, self.told_edge) = (field as u16, edge);
        more >= 2 * unit || (was < unit && more >= unit)
    }

    /// Returns the range of the output of the bytes from `from` to `to`.
    pub(super) fn output_of(&self, from: u32, to: u32) -> (u32, u32) {
        let begins = if behind(from, self.told) { self.trail.floor(from) } else { self.base };
        (begins, self.trail.ceil(to).unwrap_or_else(|| self.end_out()))
    }

    /// Returns true if all bytes from `from` on are waiting in the node.
    pub(super) fn waits_from(&self, from: u32) -> bool {
        let done = self.next_in.wrapping_sub(self.waiting.len() as u32);
        !self.waiting.is_empty() && !behind(done, from)
    }

    /// Copies output from `seq` on; returns false if there is too little.
    pub(super) fn copy(buffer: &Buffer, base: u32, seq: u32, out: &mut [u8]) -> bool {
        out.is_empty() || buffer.copy(seq.wrapping_sub(base) as usize, out)
    }

    /// Returns the header template, the buffer and its first sequence number.
    pub(super) fn parts(&mut self) -> (&mut HeaderTemplate, &Buffer, u32) {
        (&mut self.head, &self.buffer, self.base)
    }

    /// Returns true if output waits for an acknowledgment.
    pub(super) fn is_holding(&self) -> bool {
        self.buffer.len() > 0
    }

    /// Returns true if a timer is pending.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty() || self.unsent() > 0 || self.has_acknowledged_ahead()
    }

    /// Frees all memory.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        while let Some(piece) = self.pieces.pop() {
            memory.free_block(piece.into_block());
        }
        self.pieces.clear(memory);
        self.buffer.clear(memory);
        self.waiting = vec![];
        memory.charge(self.charged, 0);
        self.charged = 0;
        self.trail = SequenceMap::default();
    }
}
