//! A connection: two directions, and how what comes in one of them is answered in both.

use super::Drop;
use super::half_connection::{AckResult, HalfConnection, Received, Shared};
use super::header_template::{HeaderOffsets, read_stamps};
use super::output::Output;
use super::syn::SynParameters;
use crate::window::frame::FlowPacket;
use crate::window::piece::behind;
use crate::window::stream_state::Segment;
use packet::Packet;
use wire::TcpFlags;

/// Milliseconds after which less than a full segment is sent although more may follow and data is in flight (RFC 9293
/// §3.7.4, with a time limit).
const RUNT: u32 = 8;
/// Milliseconds after which a small part of the waiting bytes is sent into a small window (RFC 9293 §3.8.6.2.1).
const SLIVER: u32 = 200;
/// Milliseconds after which bytes that wait in the node are acknowledged to the sender: the delayed acknowledgment of a
/// receiver (RFC 9293 §3.8.6.3).
const DELAY: u32 = 40;
/// Initial retransmission timeout in milliseconds, doubled each time (RFC 6298), and the number of attempts, for bytes
/// that the node has acknowledged.
const AGAIN: u32 = 250;
const TRIES: u8 = 8;
/// Duplicate acknowledgments that trigger a fast retransmit (RFC 5681 §3.2).
const DUPLICATES: u8 = 3;
/// Milliseconds between challenge ACKs for segments without data, per direction (RFC 5961 §7).
const CHALLENGE: u32 = 100;

/// A connection whose bytes are rewritten.
#[derive(Default)]
pub(super) struct Connection {
    pub(super) lanes: [HalfConnection; 2],
    /// True after a reset or after giving up: the connection never continues; and true if it is listed for eviction.
    pub(super) dead: bool,
    pub(super) yields: bool,
    /// Time of the last challenge ACK.
    challenged: [Option<u32>; 2],
    /// Segments sent in each direction while a packet is processed, and acknowledgments that have to be sent.
    pub(super) sent: [u32; 2],
    pub(super) due: [u8; 2],
}

impl Connection {
    /// Returns the state of a direction and of the opposite one.
    pub(super) fn pair(&mut self, way: usize) -> (&mut HalfConnection, &mut HalfConnection) {
        let [a, b] = &mut self.lanes;
        if way == 0 { (a, b) } else { (b, a) }
    }

    /// Returns the window scales of segments in direction `way`: as received, and as advertised.
    fn shifts(&self, way: usize) -> (u8, u8) {
        match (self.lanes[way].hello, self.lanes[1 - way].hello) {
            (SynParameters { scale: Some(bits), told_scale, .. }, SynParameters { scale: Some(_), .. }) => {
                (bits, told_scale)
            }
            _ => (0, 0),
        }
    }

    fn has_stamps(&self) -> bool {
        self.lanes.iter().all(|lane| lane.hello.stamps)
    }

    /// Returns true if both SYNs were seen.
    pub(super) fn is_open(&self) -> bool {
        self.lanes.iter().all(|lane| lane.open)
    }

    /// Returns true if it began in this direction with a SYN of this sequence number.
    pub(super) fn begins(&self, way: usize, seq: u32) -> bool {
        self.lanes[way].open && self.lanes[way].start == seq.wrapping_add(1)
    }

    /// Returns true if `ack`, in direction `way`, acknowledges the SYN of the other direction.
    pub(super) fn answers(&self, way: usize, ack: u32) -> bool {
        self.begins(1 - way, ack.wrapping_sub(1))
    }

    /// Returns true if both directions have ended or it was reset.
    pub(super) fn is_over(&self) -> bool {
        self.dead || self.lanes.iter().all(HalfConnection::is_over)
    }

    /// Returns true if its sequence numbers differ between the ends, so that it depends on this node.
    pub(super) fn is_shifted(&self) -> bool {
        self.is_open() && !self.is_over() && self.lanes.iter().any(HalfConnection::is_shifted)
    }

    pub(super) fn lane(&mut self, way: usize) -> &mut HalfConnection {
        &mut self.lanes[way]
    }

    /// Stores the SYN of a direction, the first or the second; returns false if its headers are too long.
    pub(super) fn begin(
        &mut self,
        way: usize,
        seq: u32,
        hello: SynParameters,
        place: &HeaderOffsets,
        packet: &Packet,
        most: u32,
    ) -> bool {
        let told = |hello: &SynParameters| hello.window.min(most.min(0xffff) as u16);
        let (own, peer) = self.pair(way);
        own.begin(seq.wrapping_add(1), hello);
        if !own.head.store(packet, place) {
            return false;
        }
        own.head.begin_stamps(packet.data().get(place.tcp..place.payload).and_then(read_stamps));
        if peer.open {
            peer.on_peer_syn(seq, hello.window, told(&hello));
            own.on_peer_syn(peer.start.wrapping_sub(1), peer.hello.window, told(&peer.hello));
            if !(own.hello.stamps && peer.hello.stamps) {
                own.head.begin_stamps(None);
                peer.head.begin_stamps(None);
            }
        }
        true
    }

    /// Checks whether a packet is acceptable, in the order of RFC 7323 §5.3 and RFC 9293 §3.10.7.4; the error is the
    /// drop reason, and true if the sender must be answered.
    fn check(
        &self,
        way: usize,
        part: &FlowPacket,
        place: &HeaderOffsets,
        frame: &[u8],
    ) -> Result<Option<[u32; 2]>, (Drop, bool)> {
        let Segment { seq, ack, flags, .. } = part.segment;
        let (own, peer) = (&self.lanes[way], &self.lanes[1 - way]);
        if !own.head.has_tags_of(frame, place) {
            return Err((Drop::OtherVlan, false));
        }
        if flags.contains(TcpFlags::RST) {
            // RFC 5961 §3.2
            let exact = seq == own.told || seq == own.next_in;
            return if exact { Ok(None) } else { Err((Drop::OutOfWindow, own.accepts(seq, seq))) };
        }
        let uses = self.has_stamps();
        let stamps = frame.get(place.tcp..place.payload).filter(|_| uses).and_then(read_stamps);
        match stamps {
            None if uses => return Err((Drop::NoTimestamp, false)),
            Some([clock, _]) if own.head.is_past(clock) => return Err((Drop::Stale, true)),
            _ => {}
        }
        let last = seq.wrapping_add(part.len + u32::from(flags.contains(TcpFlags::FIN)));
        if !own.accepts(seq, last) {
            return Err((Drop::OutOfWindow, true));
        }
        if !flags.contains(TcpFlags::ACK) {
            return Err((Drop::OutOfWindow, false));
        }
        if !peer.accepts_ack(ack) {
            return Err((Drop::Stale, true));
        }
        Ok(stamps)
    }

    /// Processes a packet of an open connection; returns true if memory ran out.
    pub(super) fn packet(
        &mut self,
        way: usize,
        part: &FlowPacket,
        place: &HeaderOffsets,
        packet: Packet,
        out: &mut Output<'_, '_>,
        desk: &mut Shared<'_>,
    ) -> bool {
        let Segment { seq, ack, flags, .. } = part.segment;
        (self.sent, self.due) = ([0; 2], [0; 2]);
        let reset = flags.contains(TcpFlags::RST);
        if self.dead && !reset {
            // repeats the acknowledgment if it was lost (RFC 9293 §3.10.7.1)
            if flags.contains(TcpFlags::ACK) {
                self.send(1 - way, ack, 0, TcpFlags::RST, out, desk);
            }
            out.door.cx.drop(Drop::GivenUp, packet);
            return false;
        }
        let stamps = match self.check(way, part, place, packet.data()) {
            Ok(stamps) => stamps,
            Err((reason, answer)) => {
                if answer && !self.dead {
                    self.challenge(way, part.len > 0, out, desk);
                }
                out.door.cx.drop(reason, packet);
                return false;
            }
        };
        let here = out.door.cx.path();
        if reset {
            self.lanes[way].path = Some(here);
            out.spare(packet, way);
            self.pass_reset(way, seq, flags, out);
            out.close(Drop::Taken);
            self.dead = true;
            self.clear(desk.memory);
            return false;
        }
        let (heard, _) = self.shifts(way);
        let (own, peer) = self.pair(way);
        if !own.head.store(&packet, place) {
            out.door.cx.drop(Drop::Malformed, packet);
            return false;
        }
        own.path = Some(here);
        if let Some(stamps) = stamps.filter(|_| !behind(seq, own.next_in)) {
            own.head.stamp(stamps, !behind(seq, own.told));
        }
        own.ece = flags.contains(TcpFlags::ECE);
        own.cwr |= flags.contains(TcpFlags::CWR);
        let bare = part.len == 0 && !flags.contains(TcpFlags::FIN);
        let news = peer.process_ack(&part.segment, bare, heard, desk);
        let took = own.receive(way, seq, part.payload(packet.data()), flags.contains(TcpFlags::FIN), desk);
        own.push |= took == Received::NewBytes && flags.intersects(TcpFlags::PSH | TcpFlags::FIN);
        own.head.congested |= own.head.ecn == 3 && part.len > 0 && matches!(took, Received::NewBytes | Received::Early);
        if matches!(took, Received::Again(..)) {
            own.head.repeated(place);
        }
        out.spare(packet, way);
        let reason = self.answer(way, took, out, desk);
        if !self.dead {
            self.send_pending(way, news, out, desk);
        }
        self.lanes[way].head.ecn = 0;
        out.close(reason);
        took == Received::Starved
    }

    /// Answers a segment; returns the drop reason of its packet, in case no output reuses it.
    fn answer(&mut self, way: usize, took: Received, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) -> Drop {
        match took {
            Received::Nothing | Received::NewBytes => {}
            Received::Early => {
                desk.tally.out_of_order += 1;
                let own = &mut self.lanes[way];
                if own.base == own.end_out() {
                    self.due[1 - way] += 1;
                } else {
                    own.owed = (own.owed + 1).min(DUPLICATES);
                }
            }
            Received::Again(from, to) => self.on_retransmission(way, from, to, out, desk),
            Received::Probe => {
                desk.tally.probes += 1;
                self.probe(way, out, desk);
            }
            Received::Beyond => {
                self.due[1 - way] += 1;
                return Drop::OutOfWindow;
            }
            Received::NoMemory | Received::Starved => {
                self.due[1 - way] += 1;
                return Drop::NoMemory;
            }
            Received::Overrun => self.reset(out, desk),
        }
        Drop::Taken
    }

    /// Sends a challenge ACK (RFC 5961).
    fn challenge(&mut self, way: usize, has_bytes: bool, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) {
        let last = self.challenged[way];
        if has_bytes || last.is_none_or(|last| desk.now.wrapping_sub(last) >= CHALLENGE) {
            self.challenged[way] = Some(desk.now);
            desk.tally.challenged += 1;
            self.acknowledge(1 - way, out, desk);
        }
    }

    /// Sends pending output in both directions, and acknowledgments that no data segment carries.
    fn send_pending(&mut self, way: usize, news: AckResult, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) {
        for way in [way, 1 - way] {
            // empty output leaves nothing for the receiver to acknowledge
            let told = self.lanes[way].advance_ack();
            if told {
                self.due[1 - way] = self.due[1 - way].max(1);
            }
        }
        let duplicate = news == AckResult::Duplicate;
        for lane in 0..2 {
            // a duplicate has the window of the first (RFC 5681 §2)
            let is_heard = lane == 1 - way;
            let (_, shift) = self.shifts(1 - lane);
            if !(is_heard && duplicate) && self.lanes[lane].update_window(shift, desk) {
                self.due[1 - lane] = self.due[1 - lane].max(1);
            }
        }
        self.pump(way, out, desk);
        self.pump(1 - way, out, desk);
        let heard = &mut self.lanes[1 - way];
        match news {
            AckResult::Duplicate => self.due[way] += 1,
            AckResult::Advanced | AckResult::Answer => self.due[way] = self.due[way].max(1),
            AckResult::None => {}
        }
        if heard.owed > 0 && heard.has_gap() && heard.base == heard.end_out() {
            self.due[way] += core::mem::take(&mut heard.owed);
        }
        for to in [way, 1 - way] {
            // data segments carry acknowledgments, except duplicates, which must be counted
            let one = self.sent[to] > 0 && !(to == way && duplicate) && !self.lanes[1 - to].has_gap();
            let due = self.due[to].saturating_sub(u8::from(one));
            for _ in 0..due {
                self.acknowledge(to, out, desk);
            }
        }
    }

    /// Handles a retransmission of the sender.
    fn on_retransmission(&mut self, way: usize, from: u32, to: u32, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) {
        desk.tally.retransmitted += 1;
        let lane = &mut self.lanes[way];
        if !behind(to, lane.told) {
            // it has missed an acknowledgment
            self.due[1 - way] += 1;
        } else if lane.waits_from(from) && lane.base == lane.end_out() {
            lane.acknowledge_waiting();
            self.due[1 - way] += 1;
        } else {
            let len = to.wrapping_sub(from).saturating_mul(desk.rules.growth as u32);
            let (from, to) = lane.output_of(from, to);
            let from = if behind(from, lane.base) { from } else { lane.base };
            // an immediate repetition is a duplicated packet or an amplification attempt
            if lane.repeated.replace((from, desk.now)) == Some((from, desk.now)) {
                return;
            }
            let most = from.wrapping_add(len.max(self.mss(way) as u32));
            let to = if behind(to, most) { most } else { to };
            self.resend(way, from, to, out, desk);
        }
    }

    /// Answers a probe of the sender: from here if bytes are pending, otherwise by passing it to the receiver.
    fn probe(&mut self, way: usize, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) {
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

    /// Resets both ends permanently.
    pub(super) fn reset(&mut self, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) {
        desk.tally.given_up += 1;
        for way in 0..2 {
            let seq = self.lanes[way].base;
            self.lanes[way].ece = false;
            self.send(way, seq, 0, TcpFlags::RST | TcpFlags::ACK, out, desk);
        }
        self.dead = true;
        self.clear(desk.memory);
    }

    /// Processes due timers of one direction; returns true if memory ran out.
    pub(super) fn tick(&mut self, way: usize, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) -> bool {
        if self.is_over() {
            return false;
        }
        (self.sent, self.due) = ([0; 2], [0; 2]);
        let mut starved = false;
        let lane = &mut self.lanes[way];
        let quiet = desk.now.wrapping_sub(lane.since);
        if lane.unsent() > 0 && quiet >= RUNT {
            lane.push = true;
        }
        if lane.is_withholding() && !lane.has_gap() {
            if quiet >= desk.rules.timeout {
                starved = !lane.has_memory(0, desk);
                if !starved {
                    desk.tally.timed_out += 1;
                    lane.push = true;
                    if !lane.run(way, &[], false, desk) {
                        self.reset(out, desk);
                        return false;
                    }
                }
            } else if quiet >= DELAY && lane.base == lane.end_out() && lane.told != lane.next_in {
                lane.acknowledge_waiting();
                self.due[1 - way] += 1;
            }
        }
        let lane = &mut self.lanes[way];
        lane.sliver = lane.sent == lane.base && quiet.min(desk.now.wrapping_sub(lane.resent)) >= SLIVER;
        let wait = AGAIN << lane.tries;
        let shut = lane.unsent() > 0 && !behind(lane.edge_out, lane.sent);
        let some = lane.sent != lane.base || shut;
        if lane.has_acknowledged_ahead() && some && desk.now.wrapping_sub(lane.resent) >= wait {
            (lane.tries, lane.unheard) = ((lane.tries + 1).min(TRIES), lane.unheard + 1);
            if lane.unheard > TRIES {
                self.reset(out, desk);
                return false;
            }
            desk.tally.resent_late += 1;
            let base = lane.base;
            self.resend(way, base, base.wrapping_add(1), out, desk);
        }
        self.send_pending(way, AckResult::None, out, desk);
        self.lanes[way].sliver = false;
        starved
    }

    /// Frees all memory.
    pub(super) fn clear(&mut self, memory: &mut crate::window::memory::Memory) {
        self.lanes.iter_mut().for_each(|lane| lane.clear(memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documented bound of memory that is not counted.
    #[test]
    fn is_of_bounded_size() {
        assert!(size_of::<Connection>() <= 1536, "{} bytes", size_of::<Connection>());
    }
}
