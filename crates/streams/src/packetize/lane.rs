//! One direction of a connection: what its sender has sent, and what its receiver is sent for it.

use super::buffer::Buffer;
use super::head::Head;
use super::hello::Hello;
use super::trail::Trail;
use crate::window::Overlap;
use crate::window::memory::{BLOCK, Memory};
use crate::window::pieces::{Met, Origin, Pieces, behind};
use crate::window::stream::Segment;
use graph::PathId;

/// What is made of one segment may be longer than the buffer by as much: what is added at the end of a stream, say.
const SLACK: usize = 64 << 10;

/// What connections keep to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) buffer: usize,
    pub(super) growth: usize,
    pub(super) withheld: usize,
    pub(super) pieces: usize,
    /// In ms.
    pub(super) timeout: u32,
}

/// What connections have met.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
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

/// Turns bytes of a direction, from a position on, into others; whether more may come; how many it has used.
pub(super) type Run<'a> = &'a mut dyn FnMut(usize, u64, &[u8], bool, &mut Vec<u8>) -> usize;

/// What connections share while one of them is processed.
pub(super) struct Desk<'a> {
    pub(super) rules: &'a Rules,
    pub(super) memory: &'a mut Memory,
    pub(super) tally: &'a mut Tally,
    pub(super) scratch: &'a mut Vec<u8>,
    /// How many there are.
    pub(super) connections: usize,
    /// In ms; wraps.
    pub(super) now: u32,
    pub(super) run: Run<'a>,
}

/// What became of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Took {
    /// It had nothing in it.
    Nothing,
    /// It had something new, and in order.
    News,
    /// It came before its turn.
    Early,
    /// What it has was there already: these sequence numbers.
    Again(u32, u32),
    /// It asks for an answer.
    Probe,
    /// It lies where nothing may be sent.
    Beyond,
    /// There is no memory for it, as it came before its turn.
    NoMemory,
    /// There is no memory although it is in order.
    Starved,
    /// More was made of it than there may be.
    Overrun,
}

/// What an acknowledgment says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// Nothing that the sender has to know.
    None,
    /// More of what the sender has sent has arrived.
    Advanced,
    /// The receiver misses something.
    Duplicate,
    /// It answers a question.
    Answer,
}

#[derive(Default)]
pub(super) struct Lane {
    /// Whether its SYN was seen; and sequence number of the first byte.
    pub(super) open: bool,
    pub(super) start: u32,
    pub(super) hello: Hello,
    pub(super) head: Head,
    /// The path along which its packets go.
    pub(super) path: Option<PathId>,

    /// Next byte of the sender's, and behind the last that it may send.
    pub(super) next_in: u32,
    pub(super) edge_in: u32,
    fin_in: Option<u32>,
    pieces: Pieces,
    /// Bytes in order that were left for later; and so many that the memory knows of.
    waiting: Vec<u8>,
    charged: usize,
    /// Bytes used so far.
    used: u64,
    /// Whether the end of the stream has been reached; then a FIN follows the last byte of the output.
    pub(super) ended: bool,

    /// What is not acknowledged, from `base` on.
    buffer: Buffer,
    pub(super) base: u32,
    /// Behind what was sent, and what was made; then a FIN may come.
    pub(super) sent: u32,
    pub(super) next_out: u32,
    /// Behind what the receiver has room for.
    pub(super) edge_out: u32,
    /// Sequence and acknowledgment number of the packet that said so (RFC 9293 §3.10.7.4), and its window field.
    update: (u32, u32),
    window: u16,
    /// The largest window that the receiver has told, in bytes.
    pub(super) widest: u32,

    trail: Trail,
    /// Acknowledgment number and window that the sender is told.
    pub(super) told: u32,
    pub(super) told_window: u16,
    told_edge: u32,
    /// Whether less than a full segment may be sent; and whether less than what waits, to a receiver with little room.
    pub(super) push: bool,
    pub(super) sliver: bool,
    /// Duplicate acknowledgments that the sender gets once it knows of all before.
    pub(super) owed: u8,
    /// When bytes last came in order, and when the head of the output was last sent.
    pub(super) since: u32,
    pub(super) resent: u32,
    pub(super) tries: u8,
    /// How often that was without an answer.
    pub(super) unheard: u8,
    /// Where what was repeated last begins, and when that was.
    pub(super) repeated: Option<(u32, u32)>,
    /// Whether the receiver has taken something.
    pub(super) moved: bool,
    /// Congestion bits of TCP: the last packet's ECE, and a CWR to be passed on.
    pub(super) ece: bool,
    pub(super) cwr: bool,
    /// Whether it is listed among those that wait for time to pass, and among those that hold something.
    pub(super) timed: bool,
    pub(super) listed: bool,
}

impl Lane {
    /// Begins behind a SYN.
    pub(super) fn begin(&mut self, start: u32, hello: Hello) {
        (self.open, self.start, self.hello) = (true, start, hello);
        (self.next_in, self.edge_in, self.base, self.sent, self.next_out) = (start, start, start, start, start);
        (self.told, self.told_edge, self.edge_out) = (start, start, start);
        self.trail = Trail::new(start);
    }

    /// The receiver's SYN has been seen: it was at `seq`, and has so much window; the sender is told `told` of it.
    pub(super) fn welcome(&mut self, seq: u32, window: u16, told: u16) {
        self.edge_out = self.start.wrapping_add(u32::from(window));
        self.edge_in = self.start.wrapping_add(u32::from(told));
        (self.update, self.window, self.widest) = ((seq, self.start), window, window.into());
        (self.told_edge, self.told_window) = (self.edge_in, told);
    }

    /// Behind the last byte that was made, and the FIN.
    pub(super) fn end_out(&self) -> u32 {
        self.next_out.wrapping_add(u32::from(self.ended))
    }

    /// Whether all that was made has been acknowledged, the FIN too.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.base == self.end_out()
    }

    /// Bytes that wait to be sent.
    pub(super) fn unsent(&self) -> u32 {
        if behind(self.next_out, self.sent) { self.next_out.wrapping_sub(self.sent) } else { 0 }
    }

    /// Whether numbers of the input and the output differ.
    pub(super) fn is_shifted(&self) -> bool {
        self.trail.shift() != 0 || !self.waiting.is_empty() || self.unsent() > 0
    }

    pub(super) fn is_withholding(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn has_gap(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Whether a segment from `seq` up to `last` is acceptable (RFC 9293 §3.10.7.4): some of it may be sent and has not been
    /// acknowledged, or it asks for an answer.
    pub(super) fn accepts(&self, seq: u32, last: u32) -> bool {
        let edge = if behind(self.next_in, self.edge_in) { self.next_in } else { self.edge_in };
        // who asks about a closed window has sent one byte more
        let right = edge.wrapping_add(1);
        if seq != last {
            return behind(last, self.told) && behind(right, seq) || self.asks(seq, last);
        }
        !behind(self.told, seq) && !behind(seq, right) || self.asks(seq, last)
    }

    /// Whether a segment asks for an answer: a keep-alive, or a question about the window (RFC 9293 §3.8.4).
    fn asks(&self, seq: u32, last: u32) -> bool {
        let before = |next: u32| seq == next.wrapping_sub(1);
        let one = last == self.next_in && self.told == self.next_in && !self.ended;
        before(self.next_in) && (seq == last || one) || before(self.told) && seq == last
    }

    /// Whether what the receiver acknowledges can be so (RFC 5961 §5.2).
    pub(super) fn believes(&self, ack: u32) -> bool {
        !behind(ack, self.sent) && !behind(self.base.wrapping_sub(self.widest), ack)
    }

    /// Takes a segment of the sender's that is acceptable.
    pub(super) fn take(&mut self, way: usize, seq: u32, payload: &[u8], fin: bool, desk: &mut Desk<'_>) -> Took {
        let end = seq.wrapping_add(payload.len() as u32);
        let last = end.wrapping_add(u32::from(fin));
        let keeps_alive = seq == self.next_in.wrapping_sub(1) && !fin;
        if seq == last {
            return if self.asks(seq, last) { Took::Probe } else { Took::Nothing };
        }
        if keeps_alive && payload.len() == 1 && self.told == self.next_in {
            return Took::Probe;
        }
        if !behind(last, self.next_in) {
            return Took::Again(seq, last);
        }
        if self.ended {
            return Took::Beyond;
        }
        if behind(seq, self.next_in) {
            return self.early(seq, end, payload, fin, desk);
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
            return Took::Probe;
        }
        if !self.has_memory(data.len(), desk) {
            return Took::Starved;
        }
        if fin && self.fin_in.is_none() {
            self.fin_in = Some(end);
            // behind the end there is nothing
            self.pieces.cut(end, desk.memory);
        }
        self.since = desk.now;
        if self.feed(way, data, desk) && self.feed_pieces(way, desk) && self.finish(way, desk) {
            Took::News
        } else {
            Took::Overrun
        }
    }

    /// Keeps a segment that came before its turn.
    fn early(&mut self, seq: u32, end: u32, payload: &[u8], fin: bool, desk: &mut Desk<'_>) -> Took {
        if behind(end, self.edge_in) || self.fin_in.is_some_and(|fin| behind(end, fin)) {
            return Took::Beyond;
        }
        if fin && self.fin_in.is_none() && self.pieces.end().is_none_or(|last| !behind(last, end)) {
            self.fin_in = Some(end);
        }
        if payload.is_empty() {
            return Took::Early;
        }
        // what is in order must not find all memory taken by what is not
        let most = desk.rules.pieces;
        if !desk.memory.has_half() || !self.pieces.have_room(seq, payload.len(), most, desk.memory) {
            return Took::NoMemory;
        }
        let origin = Origin { seq, end };
        let put =
            self.pieces.put(seq, payload, origin, desk.now, Overlap::First, most, desk.memory, &mut Met::default());
        if put.is_ok() { Took::Early } else { Took::NoMemory }
    }

    /// Whether there is memory for what may be made of so many bytes.
    pub(super) fn has_memory(&self, len: usize, desk: &Desk<'_>) -> bool {
        let most = (len + self.waiting.len()) * desk.rules.growth;
        desk.memory.has((most.div_ceil(BLOCK) + 1) * BLOCK + len)
    }

    /// Takes the next bytes; false when too much is made of them.
    fn feed(&mut self, way: usize, bytes: &[u8], desk: &mut Desk<'_>) -> bool {
        self.next_in = self.next_in.wrapping_add(bytes.len() as u32);
        desk.tally.input_bytes += bytes.len() as u64;
        bytes.is_empty() || self.run(way, bytes, true, desk)
    }

    fn feed_pieces(&mut self, way: usize, desk: &mut Desk<'_>) -> bool {
        let mut fits = true;
        while let Some(first) = self.pieces.first().filter(|first| !behind(first.seq, self.next_in)) {
            if !fits || !self.has_memory(first.len(), desk) {
                break;
            }
            let Some(piece) = self.pieces.pop() else { break };
            let old = self.next_in.wrapping_sub(piece.seq) as usize;
            fits = self.feed(way, piece.bytes().get(old..).unwrap_or_default(), desk);
            desk.memory.give_block(piece.into_block());
        }
        if self.pieces.is_empty() {
            self.pieces.clear(desk.memory);
            self.owed = 0;
        }
        fits
    }

    /// Ends the stream when that is due.
    fn finish(&mut self, way: usize, desk: &mut Desk<'_>) -> bool {
        if self.ended || self.fin_in != Some(self.next_in) {
            return true;
        }
        let fits = self.run(way, &[], false, desk);
        self.next_in = self.next_in.wrapping_add(1);
        (self.ended, self.push) = (true, true);
        self.trail.push(self.next_in, self.end_out());
        fits
    }

    /// Has bytes, behind those that wait, turned into others.
    pub(super) fn run(&mut self, way: usize, bytes: &[u8], more: bool, desk: &mut Desk<'_>) -> bool {
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
        // what was left although it had to go passes
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

    /// Hears what the receiver says. `bare`: in a packet without anything else.
    pub(super) fn hear(&mut self, segment: &Segment, bare: bool, shift: u8, desk: &mut Desk<'_>) -> News {
        let Segment { seq, ack, window, .. } = *segment;
        self.unheard = if window == 0 { 0 } else { self.unheard };
        if behind(self.base, ack) {
            return News::None;
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
        if self.settle() {
            News::Advanced
        } else if same && self.sent != self.base {
            News::Duplicate
        } else if !advanced && bare && self.sent == self.base {
            News::Answer
        } else {
            News::None
        }
    }

    /// Tells the sender of what it may believe to have arrived. Whether that is news.
    pub(super) fn settle(&mut self) -> bool {
        let input = self.trail.acked(self.base);
        let news = behind(input, self.told);
        if news {
            self.told = input;
        }
        news
    }

    /// Tells the sender that bytes have arrived which wait here: they are sent again from here, if need be.
    pub(super) fn vouch(&mut self) {
        if behind(self.next_in, self.told) {
            self.told = self.next_in;
        }
    }

    /// Whether the sender has been told more than the receiver has said.
    pub(super) fn vouches(&self) -> bool {
        behind(self.told, self.trail.input())
    }

    /// Works out how much the sender may send. Whether that is news. Windows are told shifted by `shift`.
    pub(super) fn grant(&mut self, shift: u8, desk: &Desk<'_>) -> bool {
        let rules = desk.rules;
        let taken = self.buffer.len() + self.waiting.len() * rules.growth;
        // where memory is short all get the same
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
        // what has been promised stays (RFC 9293 §3.8.6)
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

    /// Where the output of the bytes before `to` and from `from` on lies.
    pub(super) fn output_of(&self, from: u32, to: u32) -> (u32, u32) {
        let begins = if behind(from, self.told) { self.trail.floor(from) } else { self.base };
        (begins, self.trail.ceil(to).unwrap_or_else(|| self.end_out()))
    }

    /// Whether all bytes from `from` on wait here.
    pub(super) fn waits_from(&self, from: u32) -> bool {
        let done = self.next_in.wrapping_sub(self.waiting.len() as u32);
        !self.waiting.is_empty() && !behind(done, from)
    }

    /// Copies output from `seq` on; false where there is none.
    pub(super) fn copy(buffer: &Buffer, base: u32, seq: u32, out: &mut [u8]) -> bool {
        out.is_empty() || buffer.copy(seq.wrapping_sub(base) as usize, out)
    }

    /// What makes packets, what they hold, and where that begins.
    pub(super) fn parts(&mut self) -> (&mut Head, &Buffer, u32) {
        (&mut self.head, &self.buffer, self.base)
    }

    /// Whether something waits for the receiver to acknowledge it.
    pub(super) fn is_holding(&self) -> bool {
        self.buffer.len() > 0
    }

    /// Whether time has to be waited for.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty() || self.unsent() > 0 || self.vouches()
    }

    /// Gives all memory back.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        while let Some(piece) = self.pieces.pop() {
            memory.give_block(piece.into_block());
        }
        self.pieces.clear(memory);
        self.buffer.clear(memory);
        self.waiting = vec![];
        memory.charge(self.charged, 0);
        self.charged = 0;
        self.trail = Trail::default();
    }
}
