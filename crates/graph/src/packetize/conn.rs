//! A connection: two directions, and how what comes in one of them is answered in both.

use super::head::{Place, Shape};
use super::hello::Hello;
use super::lane::{Desk, Lane, News, Took};
use super::out::Out;
use super::{BEYOND, MALFORMED, NO_MEMORY, STALE, TAKEN};
use crate::window::frame::Part;
use crate::window::pieces::behind;
use crate::window::stream::Segment;
use packet::Packet;
use wire::TcpFlags;

/// After this long, in ms, less than a full segment is sent although more may come and something is on its way (as
/// RFC 9293 §3.7.4 says, but not for longer).
const RUNT: u32 = 8;
/// After this long, in ms, the sender is told that bytes have arrived which wait here: as a receiver would that delays its
/// acknowledgments (RFC 9293 §3.8.6.3).
const DELAY: u32 = 40;
/// What has been vouched for is sent again after this long, in ms, and after twice as long each time (RFC 6298), so often.
const AGAIN: u32 = 250;
const TRIES: u8 = 8;
/// Duplicate acknowledgments that make a sender send again (RFC 5681 §3.2).
const DUPLICATES: u8 = 3;

/// A connection whose bytes are rewritten.
#[derive(Default)]
pub(super) struct Conn {
    lanes: [Lane; 2],
    /// Whether it was reset.
    pub(super) reset: bool,
    /// Segments that were sent in each direction while a packet is processed, and acknowledgments that have to go.
    sent: [u32; 2],
    due: [u8; 2],
}

impl Conn {
    /// Lanes of a direction and of the other.
    fn pair(&mut self, way: usize) -> (&mut Lane, &mut Lane) {
        let [a, b] = &mut self.lanes;
        if way == 0 { (a, b) } else { (b, a) }
    }

    /// By how many bits windows are shifted that travel in direction `way`.
    fn shift(&self, way: usize) -> u8 {
        match (self.lanes[way].hello.scale, self.lanes[1 - way].hello.scale) {
            (Some(bits), Some(_)) => bits,
            _ => 0,
        }
    }

    /// Whether both SYNs were seen.
    pub(super) fn is_open(&self) -> bool {
        self.lanes.iter().all(|lane| lane.open)
    }

    pub(super) fn is_lane_open(&self, way: usize) -> bool {
        self.lanes[way].open
    }

    /// Whether it began in this direction with a SYN of this sequence number.
    pub(super) fn begins(&self, way: usize, seq: u32) -> bool {
        self.lanes[way].open && self.lanes[way].start == seq.wrapping_add(1)
    }

    /// Whether both directions have ended, or it was reset.
    pub(super) fn is_over(&self) -> bool {
        self.reset || self.lanes.iter().all(Lane::is_over)
    }

    /// Whether it could not go on without this node.
    pub(super) fn is_shifted(&self) -> bool {
        self.is_open() && !self.is_over() && self.lanes.iter().any(Lane::is_shifted)
    }

    pub(super) fn lane(&mut self, way: usize) -> &mut Lane {
        &mut self.lanes[way]
    }

    /// Takes a SYN, and lets it go on. False where the connection must not be changed; it is as it was then.
    pub(super) fn syn(&mut self, way: usize, part: &Part, place: &Place, packet: &mut Packet, most: u32) -> bool {
        let Some(hello) = Hello::read(packet.data(), place) else { return false };
        let start = part.segment.seq.wrapping_add(1);
        let told = hello.window.min(most.min(0xffff) as u16);
        let known = self.begins(way, part.segment.seq);
        let (own, peer) = self.pair(way);
        let open = own.open && peer.open;
        if !known && !open {
            own.begin(start, hello);
            own.head.note(packet, place, hello.stamps);
            if peer.open {
                peer.welcome(part.segment.seq, hello.window, told);
                own.welcome(
                    peer.start.wrapping_sub(1),
                    peer.hello.window,
                    peer.hello.window.min(most.min(0xffff) as u16),
                );
                if !(own.hello.stamps && peer.hello.stamps) {
                    own.head.leave_stamps();
                    peer.head.leave_stamps();
                }
            }
        }
        Hello::scrub(packet, place, told);
        true
    }

    /// Takes a packet of an open connection.
    pub(super) fn packet(
        &mut self,
        way: usize,
        part: &Part,
        place: &Place,
        packet: Packet,
        out: &mut Out<'_, '_>,
        desk: &mut Desk<'_>,
    ) {
        let Segment { seq, flags, .. } = part.segment;
        (self.sent, self.due) = ([0; 2], [0; 2]);
        let stamps = self.lanes.iter().all(|lane| lane.hello.stamps);
        let shift = [self.shift(0), self.shift(1)];
        let (own, peer) = self.pair(way);
        if !own.head.note(&packet, place, stamps) {
            out.door.cx.drop(MALFORMED, packet);
            return;
        }
        if flags.contains(TcpFlags::RST) {
            out.spare(packet, way);
            self.pass_reset(way, seq, flags, out);
            out.close(TAKEN);
            return;
        }
        if !flags.contains(TcpFlags::ACK) {
            out.door.cx.drop(BEYOND, packet);
            return;
        }
        own.ece = flags.contains(TcpFlags::ECE);
        own.cwr |= flags.contains(TcpFlags::CWR);
        let bare = part.len == 0 && !flags.contains(TcpFlags::FIN);
        let news = peer.hear(&part.segment, bare, shift[way], desk);
        if news == News::Invalid {
            out.door.cx.drop(STALE, packet);
            return;
        }
        let took = own.take(way, seq, part.payload(packet.data()), flags.contains(TcpFlags::FIN), desk);
        own.push |= took == Took::News && flags.intersects(TcpFlags::PSH | TcpFlags::FIN);
        if matches!(took, Took::Again(..)) {
            own.head.repeated(place);
        }
        out.spare(packet, way);
        let mut reason = TAKEN;
        match took {
            Took::Nothing => {}
            Took::News => self.reset = false,
            Took::Early => {
                desk.tally.out_of_order += 1;
                let own = &mut self.lanes[way];
                if own.base == own.end_out() {
                    self.due[1 - way] += 1;
                } else {
                    own.owed = (own.owed + 1).min(DUPLICATES);
                }
            }
            Took::Again(from, to) => self.again(way, from, to, out, desk),
            Took::Probe => {
                desk.tally.probes += 1;
                self.probe(way, out, desk);
            }
            Took::Beyond => {
                reason = BEYOND;
                self.due[1 - way] += 1;
            }
            Took::NoMemory => {
                reason = NO_MEMORY;
                self.due[1 - way] += 1;
            }
            Took::Overrun => {
                self.refuse(out, desk);
                out.close(TAKEN);
                return;
            }
        }
        self.go_on(way, news, shift, out, desk);
        self.lanes[way].head.ecn = 0;
        out.close(reason);
    }

    /// Sends what can be sent in both directions, and acknowledgments where nothing carries them.
    fn go_on(&mut self, way: usize, news: News, shift: [u8; 2], out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        for way in [way, 1 - way] {
            // output that is no output leaves nothing to be acknowledged by the receiver
            let told = self.lanes[way].settle();
            if told {
                self.due[1 - way] = self.due[1 - way].max(1);
            }
        }
        let duplicate = news == News::Duplicate;
        for lane in 0..2 {
            // a duplicate has the window of the first (RFC 5681 §2)
            let is_heard = lane == 1 - way;
            if !(is_heard && duplicate) && self.lanes[lane].grant(shift[1 - lane], desk.rules) {
                self.due[1 - lane] = self.due[1 - lane].max(1);
            }
        }
        self.pump(way, out, desk);
        self.pump(1 - way, out, desk);
        let heard = &mut self.lanes[1 - way];
        match news {
            News::Duplicate => self.due[way] += 1,
            News::Advanced | News::Answer => self.due[way] = self.due[way].max(1),
            News::None | News::Invalid => {}
        }
        if heard.owed > 0 && heard.has_gap() && heard.base == heard.end_out() {
            self.due[way] += core::mem::take(&mut heard.owed);
        }
        for to in [way, 1 - way] {
            // what carries bytes carries acknowledgments too, unless these are to be counted
            let one = self.sent[to] > 0 && !(to == way && duplicate) && !self.lanes[1 - to].has_gap();
            let due = self.due[to].saturating_sub(u8::from(one));
            for _ in 0..due {
                self.acknowledge(to, out, desk);
            }
        }
    }

    /// Sends a segment in direction `way`: `len` bytes from `seq` on.
    fn send(
        &mut self,
        way: usize,
        seq: u32,
        len: usize,
        mut flags: TcpFlags,
        out: &mut Out<'_, '_>,
        desk: &mut Desk<'_>,
    ) -> bool {
        let (own, peer) = self.pair(way);
        let Some(mut packet) = out.packet(way) else {
            desk.tally.no_buffers += 1;
            return false;
        };
        if own.ece {
            flags |= TcpFlags::ECE;
        }
        if own.cwr && len > 0 && seq == own.sent {
            (flags, own.cwr) = (flags | TcpFlags::CWR, false);
        }
        let shape = Shape { seq, ack: peer.told, flags, window: peer.told_window, len };
        let path = own.path;
        let (head, buffer, base) = own.parts();
        let written = head.write(&mut packet, &shape, |body| Lane::copy(buffer, base, seq, body));
        if written.is_none() {
            out.door.cx.drop(TAKEN, packet);
            return false;
        }
        out.send(packet, path);
        true
    }

    fn acknowledge(&mut self, way: usize, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        let seq = self.lanes[way].sent;
        self.send(way, seq, 0, TcpFlags::ACK, out, desk);
    }

    /// Sends what the receiver has room for.
    fn pump(&mut self, way: usize, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        let mss = self.mss(way);
        loop {
            let lane = &self.lanes[way];
            let unsent = lane.unsent() as usize;
            let room =
                if behind(lane.edge_out, lane.sent) { lane.edge_out.wrapping_sub(lane.sent) as usize } else { 0 };
            let n = unsent.min(room).min(mss);
            let idle = lane.sent == lane.base;
            let fin = lane.ended && lane.sent != lane.end_out() && n == unsent && (room > 0 || idle);
            if n == 0 && !fin {
                break;
            }
            // neither runts while more may come, nor slivers of a window, while something is on its way
            let runt = n < mss && !fin && !idle && (n < unsent || !lane.push);
            if runt {
                break;
            }
            let (seq, now) = (lane.sent, desk.now);
            let mut flags = TcpFlags::ACK;
            if fin {
                flags |= TcpFlags::FIN;
            }
            if n == unsent && lane.push {
                flags |= TcpFlags::PSH;
            }
            if !self.send(way, seq, n, flags, out, desk) {
                break;
            }
            let lane = &mut self.lanes[way];
            if idle {
                lane.resent = now;
            }
            lane.sent = seq.wrapping_add(n as u32 + u32::from(fin));
            self.sent[way] += 1;
        }
        let lane = &mut self.lanes[way];
        lane.push &= lane.unsent() > 0;
    }

    fn mss(&self, way: usize) -> usize {
        self.lanes[way].head.room(self.lanes[1 - way].hello.mss)
    }

    /// The sender has sent these numbers once more.
    fn again(&mut self, way: usize, from: u32, to: u32, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        desk.tally.retransmitted += 1;
        let lane = &mut self.lanes[way];
        if !behind(to, lane.told) {
            // it has missed an acknowledgment
            self.due[1 - way] += 1;
        } else if lane.waits_from(from) && lane.base == lane.end_out() {
            lane.vouch();
            self.due[1 - way] += 1;
        } else {
            let (from, to) = lane.output_of(from, to);
            self.resend(way, from, to, out, desk);
        }
    }

    /// Sends output once more that has been sent: from `from` up to `to`, at the least one segment.
    fn resend(&mut self, way: usize, from: u32, to: u32, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        let mss = self.mss(way);
        let lane = &mut self.lanes[way];
        // a repeated segment is not marked (RFC 3168 §6.1.5)
        lane.head.ecn = 0;
        let mut from = if behind(from, lane.base) { from } else { lane.base };
        if lane.sent == lane.base {
            self.ask(way, out, desk);
            return;
        }
        let to = if behind(to, lane.sent) { lane.sent } else { to };
        lane.resent = desk.now;
        while behind(to, from) {
            let lane = &self.lanes[way];
            let edge = if behind(lane.edge_out, from) { lane.edge_out } else { from.wrapping_add(1) };
            let bytes = if behind(lane.next_out, from) { lane.next_out.wrapping_sub(from) } else { 0 };
            let n = bytes.min(to.wrapping_sub(from)).min(edge.wrapping_sub(from)).min(mss as u32);
            let fin = from.wrapping_add(n) == lane.next_out && behind(lane.sent, lane.next_out);
            let flags = if fin { TcpFlags::ACK | TcpFlags::FIN } else { TcpFlags::ACK };
            let none = n == 0 && !fin;
            if none || !self.send(way, from, n as usize, flags, out, desk) {
                break;
            }
            desk.tally.resent += 1;
            self.sent[way] += 1;
            from = from.wrapping_add(n + u32::from(fin));
            if from == edge {
                break;
            }
        }
    }

    /// Asks a receiver that has no room whether it has some, by one byte of what waits (RFC 9293 §3.8.6.1).
    fn ask(&mut self, way: usize, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        let lane = &self.lanes[way];
        let seq = lane.sent;
        if lane.unsent() > 0 && !behind(lane.edge_out, seq) && self.send(way, seq, 1, TcpFlags::ACK, out, desk) {
            self.lanes[way].sent = seq.wrapping_add(1);
            self.sent[way] += 1;
        }
    }

    /// The sender asks for an answer: it gets one from here where something has to arrive first, else from the receiver.
    fn probe(&mut self, way: usize, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        let lane = &self.lanes[way];
        let (base, sent) = (lane.base, lane.sent);
        if base == sent && lane.unsent() == 0 && !lane.is_withholding() && !lane.has_gap() {
            self.sent[way] += u32::from(self.send(way, base.wrapping_sub(1), 0, TcpFlags::ACK, out, desk));
            return;
        }
        let first = base.wrapping_add(1);
        self.resend(way, base, first, out, desk);
        self.due[1 - way] += 1;
    }

    /// Passes a reset on, to where the receiver expects it if the sender has named what it has been told, or its next byte.
    fn pass_reset(&mut self, way: usize, seq: u32, flags: TcpFlags, out: &mut Out<'_, '_>) {
        let (own, peer) = self.pair(way);
        let at = if !behind(seq, own.told) {
            own.base
        } else if !behind(own.next_in, seq) {
            own.sent
        } else {
            own.output_of(seq, seq).0
        };
        let near = seq == own.told || seq == own.next_in || (behind(seq, own.told) && !behind(seq, own.edge_in));
        // one that lies elsewhere is passed as it is, for the receiver to refuse
        let at = if near { at } else { seq };
        let shape =
            Shape { seq: at, ack: peer.told, flags: flags & (TcpFlags::RST | TcpFlags::ACK), window: 0, len: 0 };
        let path = own.path;
        if let Some(mut packet) = out.packet(way) {
            match own.head.write(&mut packet, &shape, |_| true) {
                Some(()) => out.send(packet, path),
                None => out.door.cx.drop(TAKEN, packet),
            }
        }
        self.reset |= near;
    }

    /// Resets both ends.
    pub(super) fn refuse(&mut self, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        desk.tally.given_up += 1;
        for way in 0..2 {
            let seq = self.lanes[way].base;
            self.lanes[way].ece = false;
            self.send(way, seq, 0, TcpFlags::RST | TcpFlags::ACK, out, desk);
        }
        self.reset = true;
    }

    /// Does what is due by now in one direction.
    pub(super) fn tick(&mut self, way: usize, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        if self.is_over() {
            return;
        }
        (self.sent, self.due) = ([0; 2], [0; 2]);
        let shift = [self.shift(0), self.shift(1)];
        let lane = &mut self.lanes[way];
        let quiet = desk.now.wrapping_sub(lane.since);
        if lane.unsent() > 0 && quiet >= RUNT {
            lane.push = true;
        }
        if lane.is_withholding() && !lane.has_gap() {
            if quiet >= desk.rules.timeout {
                desk.tally.timed_out += 1;
                lane.push = true;
                if !lane.run(way, &[], false, desk) {
                    self.refuse(out, desk);
                    return;
                }
            } else if quiet >= DELAY && lane.base == lane.end_out() && lane.told != lane.next_in {
                lane.vouch();
                self.due[1 - way] += 1;
            }
        }
        let lane = &mut self.lanes[way];
        let wait = AGAIN << lane.tries.min(TRIES);
        if lane.vouches() && lane.sent != lane.base && desk.now.wrapping_sub(lane.resent) >= wait {
            lane.tries += 1;
            if lane.tries > TRIES {
                self.refuse(out, desk);
                return;
            }
            desk.tally.resent_late += 1;
            let base = lane.base;
            self.resend(way, base, base.wrapping_add(1), out, desk);
        }
        self.go_on(way, News::None, shift, out, desk);
    }

    /// Gives all memory back.
    pub(super) fn clear(&mut self, memory: &mut crate::window::memory::Memory) {
        self.lanes.iter_mut().for_each(|lane| lane.clear(memory));
    }
}
