//! A connection: two directions, and how what comes in one of them is answered in both.

use super::head::{Place, read_stamps};
use super::hello::Hello;
use super::lane::{Desk, Lane, News, Took};
use super::out::Out;
use super::{BEYOND, GIVEN_UP, MALFORMED, NO_MEMORY, NO_TIMESTAMP, OTHER_VLAN, STALE, TAKEN};
use crate::window::frame::Part;
use crate::window::pieces::behind;
use crate::window::stream::Segment;
use packet::Packet;
use wire::TcpFlags;

/// After this long, in ms, less than a full segment is sent although more may come and something is on its way (as
/// RFC 9293 §3.7.4 says, but not for longer).
const RUNT: u32 = 8;
/// After this long, in ms, a small part of what waits goes where the receiver has no more room (RFC 9293 §3.8.6.2.1).
const SLIVER: u32 = 200;
/// After this long, in ms, the sender is told that bytes have arrived which wait here: as a receiver would that delays its
/// acknowledgments (RFC 9293 §3.8.6.3).
const DELAY: u32 = 40;
/// What has been vouched for is sent again after this long, in ms, and after twice as long each time (RFC 6298), so often
/// without an answer.
const AGAIN: u32 = 250;
const TRIES: u8 = 8;
/// Duplicate acknowledgments that make a sender send again (RFC 5681 §3.2).
const DUPLICATES: u8 = 3;
/// What carries no bytes and cannot be believed is answered once in so many ms, in each direction (RFC 5961 §7).
const CHALLENGE: u32 = 100;

/// A connection whose bytes are rewritten.
#[derive(Default)]
pub(super) struct Conn {
    pub(super) lanes: [Lane; 2],
    /// Whether it was reset, or given up: it never goes on; and whether it is among those that make way.
    pub(super) dead: bool,
    pub(super) yields: bool,
    /// When something was last answered that could not be believed.
    challenged: [Option<u32>; 2],
    /// Segments that were sent in each direction while a packet is processed, and acknowledgments that have to go.
    pub(super) sent: [u32; 2],
    pub(super) due: [u8; 2],
}

impl Conn {
    /// Lanes of a direction and of the other.
    pub(super) fn pair(&mut self, way: usize) -> (&mut Lane, &mut Lane) {
        let [a, b] = &mut self.lanes;
        if way == 0 { (a, b) } else { (b, a) }
    }

    /// By how many bits windows are shifted that travel in direction `way`: as they come, and as they are told.
    fn shifts(&self, way: usize) -> (u8, u8) {
        match (self.lanes[way].hello, self.lanes[1 - way].hello) {
            (Hello { scale: Some(bits), told_scale, .. }, Hello { scale: Some(_), .. }) => (bits, told_scale),
            _ => (0, 0),
        }
    }

    fn has_stamps(&self) -> bool {
        self.lanes.iter().all(|lane| lane.hello.stamps)
    }

    /// Whether both SYNs were seen.
    pub(super) fn is_open(&self) -> bool {
        self.lanes.iter().all(|lane| lane.open)
    }

    /// Whether it began in this direction with a SYN of this sequence number.
    pub(super) fn begins(&self, way: usize, seq: u32) -> bool {
        self.lanes[way].open && self.lanes[way].start == seq.wrapping_add(1)
    }

    /// Whether `ack`, in direction `way`, acknowledges the SYN of the other.
    pub(super) fn answers(&self, way: usize, ack: u32) -> bool {
        self.begins(1 - way, ack.wrapping_sub(1))
    }

    /// Whether both directions have ended, or it was reset.
    pub(super) fn is_over(&self) -> bool {
        self.dead || self.lanes.iter().all(Lane::is_over)
    }

    /// Whether it could not go on without this node.
    pub(super) fn is_shifted(&self) -> bool {
        self.is_open() && !self.is_over() && self.lanes.iter().any(Lane::is_shifted)
    }

    pub(super) fn lane(&mut self, way: usize) -> &mut Lane {
        &mut self.lanes[way]
    }

    /// Takes the SYN of a direction, the first or the other. False where its headers are too long.
    pub(super) fn begin(
        &mut self,
        way: usize,
        seq: u32,
        hello: Hello,
        place: &Place,
        packet: &Packet,
        most: u32,
    ) -> bool {
        let told = |hello: &Hello| hello.window.min(most.min(0xffff) as u16);
        let (own, peer) = self.pair(way);
        own.begin(seq.wrapping_add(1), hello);
        if !own.head.note(packet, place) {
            return false;
        }
        own.head.begin_stamps(packet.data().get(place.tcp..place.payload).and_then(read_stamps));
        if peer.open {
            peer.welcome(seq, hello.window, told(&hello));
            own.welcome(peer.start.wrapping_sub(1), peer.hello.window, told(&peer.hello));
            if !(own.hello.stamps && peer.hello.stamps) {
                own.head.begin_stamps(None);
                peer.head.begin_stamps(None);
            }
        }
        true
    }

    /// Whether a packet may be of this connection, in the order of RFC 7323 §5.3 and RFC 9293 §3.10.7.4; why not, and whether
    /// its sender is to be told what is expected.
    fn judge(&self, way: usize, part: &Part, place: &Place, frame: &[u8]) -> Result<Option<[u32; 2]>, (u8, bool)> {
        let Segment { seq, ack, flags, .. } = part.segment;
        let (own, peer) = (&self.lanes[way], &self.lanes[1 - way]);
        if !own.head.has_tags_of(frame, place) {
            return Err((OTHER_VLAN, false));
        }
        if flags.contains(TcpFlags::RST) {
            // RFC 5961 §3.2
            let exact = seq == own.told || seq == own.next_in;
            return if exact { Ok(None) } else { Err((BEYOND, own.accepts(seq, seq))) };
        }
        let uses = self.has_stamps();
        let stamps = frame.get(place.tcp..place.payload).filter(|_| uses).and_then(read_stamps);
        match stamps {
            None if uses => return Err((NO_TIMESTAMP, false)),
            Some([clock, _]) if own.head.is_past(clock) => return Err((STALE, true)),
            _ => {}
        }
        let last = seq.wrapping_add(part.len + u32::from(flags.contains(TcpFlags::FIN)));
        if !own.accepts(seq, last) {
            return Err((BEYOND, true));
        }
        if !flags.contains(TcpFlags::ACK) {
            return Err((BEYOND, false));
        }
        if !peer.believes(ack) {
            return Err((STALE, true));
        }
        Ok(stamps)
    }

    /// Takes a packet of an open connection. Whether there was no memory for it.
    pub(super) fn packet(
        &mut self,
        way: usize,
        part: &Part,
        place: &Place,
        packet: Packet,
        out: &mut Out<'_, '_>,
        desk: &mut Desk<'_>,
    ) -> bool {
        let Segment { seq, ack, flags, .. } = part.segment;
        (self.sent, self.due) = ([0; 2], [0; 2]);
        let reset = flags.contains(TcpFlags::RST);
        if self.dead && !reset {
            // who is not told by now is told again (RFC 9293 §3.10.7.1)
            if flags.contains(TcpFlags::ACK) {
                self.send(1 - way, ack, 0, TcpFlags::RST, out, desk);
            }
            out.door.cx.drop(GIVEN_UP, packet);
            return false;
        }
        let stamps = match self.judge(way, part, place, packet.data()) {
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
            out.close(TAKEN);
            self.dead = true;
            self.clear(desk.memory);
            return false;
        }
        let (heard, _) = self.shifts(way);
        let (own, peer) = self.pair(way);
        if !own.head.note(&packet, place) {
            out.door.cx.drop(MALFORMED, packet);
            return false;
        }
        own.path = Some(here);
        if let Some(stamps) = stamps.filter(|_| !behind(seq, own.next_in)) {
            own.head.stamp(stamps, !behind(seq, own.told));
        }
        own.ece = flags.contains(TcpFlags::ECE);
        own.cwr |= flags.contains(TcpFlags::CWR);
        let bare = part.len == 0 && !flags.contains(TcpFlags::FIN);
        let news = peer.hear(&part.segment, bare, heard, desk);
        let took = own.take(way, seq, part.payload(packet.data()), flags.contains(TcpFlags::FIN), desk);
        own.push |= took == Took::News && flags.intersects(TcpFlags::PSH | TcpFlags::FIN);
        own.head.congested |= own.head.ecn == 3 && part.len > 0 && matches!(took, Took::News | Took::Early);
        if matches!(took, Took::Again(..)) {
            own.head.repeated(place);
        }
        out.spare(packet, way);
        let reason = self.answer(way, took, out, desk);
        if !self.dead {
            self.go_on(way, news, out, desk);
        }
        self.lanes[way].head.ecn = 0;
        out.close(reason);
        took == Took::Starved
    }

    /// Answers what has become of a segment. Why the packet is dropped, if nothing is written into it.
    fn answer(&mut self, way: usize, took: Took, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) -> u8 {
        match took {
            Took::Nothing | Took::News => {}
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
                self.due[1 - way] += 1;
                return BEYOND;
            }
            Took::NoMemory | Took::Starved => {
                self.due[1 - way] += 1;
                return NO_MEMORY;
            }
            Took::Overrun => self.refuse(out, desk),
        }
        TAKEN
    }

    /// Tells the sender of something that cannot be believed what is expected (RFC 5961).
    fn challenge(&mut self, way: usize, has_bytes: bool, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        let last = self.challenged[way];
        if has_bytes || last.is_none_or(|last| desk.now.wrapping_sub(last) >= CHALLENGE) {
            self.challenged[way] = Some(desk.now);
            desk.tally.challenged += 1;
            self.acknowledge(1 - way, out, desk);
        }
    }

    /// Sends what can be sent in both directions, and acknowledgments where nothing carries them.
    fn go_on(&mut self, way: usize, news: News, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
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
            let (_, shift) = self.shifts(1 - lane);
            if !(is_heard && duplicate) && self.lanes[lane].grant(shift, desk) {
                self.due[1 - lane] = self.due[1 - lane].max(1);
            }
        }
        self.pump(way, out, desk);
        self.pump(1 - way, out, desk);
        let heard = &mut self.lanes[1 - way];
        match news {
            News::Duplicate => self.due[way] += 1,
            News::Advanced | News::Answer => self.due[way] = self.due[way].max(1),
            News::None => {}
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
            let len = to.wrapping_sub(from).saturating_mul(desk.rules.growth as u32);
            let (from, to) = lane.output_of(from, to);
            let from = if behind(from, lane.base) { from } else { lane.base };
            // the same again at once is a doubled packet, or is meant to make many of one
            if lane.repeated.replace((from, desk.now)) == Some((from, desk.now)) {
                return;
            }
            let most = from.wrapping_add(len.max(self.mss(way) as u32));
            let to = if behind(to, most) { most } else { to };
            self.resend(way, from, to, out, desk);
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

    /// Resets both ends, for good.
    pub(super) fn refuse(&mut self, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) {
        desk.tally.given_up += 1;
        for way in 0..2 {
            let seq = self.lanes[way].base;
            self.lanes[way].ece = false;
            self.send(way, seq, 0, TcpFlags::RST | TcpFlags::ACK, out, desk);
        }
        self.dead = true;
        self.clear(desk.memory);
    }

    /// Does what is due by now in one direction. Whether there was no memory for it.
    pub(super) fn tick(&mut self, way: usize, out: &mut Out<'_, '_>, desk: &mut Desk<'_>) -> bool {
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
                        self.refuse(out, desk);
                        return false;
                    }
                }
            } else if quiet >= DELAY && lane.base == lane.end_out() && lane.told != lane.next_in {
                lane.vouch();
                self.due[1 - way] += 1;
            }
        }
        let lane = &mut self.lanes[way];
        lane.sliver = lane.sent == lane.base && quiet.min(desk.now.wrapping_sub(lane.resent)) >= SLIVER;
        let wait = AGAIN << lane.tries;
        let shut = lane.unsent() > 0 && !behind(lane.edge_out, lane.sent);
        let some = lane.sent != lane.base || shut;
        if lane.vouches() && some && desk.now.wrapping_sub(lane.resent) >= wait {
            (lane.tries, lane.unheard) = ((lane.tries + 1).min(TRIES), lane.unheard + 1);
            if lane.unheard > TRIES {
                self.refuse(out, desk);
                return false;
            }
            desk.tally.resent_late += 1;
            let base = lane.base;
            self.resend(way, base, base.wrapping_add(1), out, desk);
        }
        self.go_on(way, News::None, out, desk);
        self.lanes[way].sliver = false;
        starved
    }

    /// Gives all memory back.
    pub(super) fn clear(&mut self, memory: &mut crate::window::memory::Memory) {
        self.lanes.iter_mut().for_each(|lane| lane.clear(memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the module says of memory that is not counted.
    #[test]
    fn is_of_bounded_size() {
        assert!(size_of::<Conn>() <= 1536, "{} bytes", size_of::<Conn>());
    }
}
