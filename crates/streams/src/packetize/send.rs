//! How a connection sends.

use super::Drop;
use super::connection::Connection;
use super::half_connection::{HalfConnection, Shared};
use super::header_template::SegmentFields;
use super::output::Output;
use crate::window::piece::behind;
use wire::TcpFlags;

/// Largest number of segments sent at once in one direction, new and retransmitted; the rest waits for the next timer
/// tick.
const AT_ONCE: usize = 64;

impl Connection {
    /// Sends a segment in direction `way`: `len` bytes from `seq`.
    pub(super) fn send(
        &mut self,
        way: usize,
        seq: u32,
        len: usize,
        mut flags: TcpFlags,
        out: &mut Output<'_, '_>,
        desk: &mut Shared<'_>,
    ) -> bool {
        let (own, peer) = self.pair(way);
        let Some(mut packet) = out.packet(way) else {
            desk.tally.no_buffers += 1;
            return false;
        };
        if own.ece {
            flags |= TcpFlags::ECE;
        }
        let new = len > 0 && !behind(own.sent, seq);
        if own.cwr && new {
            (flags, own.cwr) = (flags | TcpFlags::CWR, false);
        }
        // retransmissions and segments without data are not marked (RFC 3168 §6.1.4, §6.1.5)
        let ecn = match new {
            true if own.head.congested => 3,
            true => own.head.ecn,
            false => 0,
        };
        let shape = SegmentFields { seq, ack: peer.told, flags, window: peer.told_window, len, ecn };
        let path = own.path;
        let (head, buffer, base) = own.parts();
        let written = head.write(&mut packet, &shape, |body| HalfConnection::copy(buffer, base, seq, body));
        if written.is_none() {
            out.door.cx.drop(Drop::Taken, packet);
            return false;
        }
        out.send(packet, path);
        true
    }

    pub(super) fn acknowledge(&mut self, way: usize, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) {
        let seq = self.lanes[way].sent;
        self.send(way, seq, 0, TcpFlags::ACK, out, desk);
    }

    /// Sends as much as the receive window allows.
    pub(super) fn pump(&mut self, way: usize, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) {
        let mss = self.mss(way);
        let mut some = false;
        for _ in 0..AT_ONCE {
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
            // avoids small segments while more may follow, and small window updates (RFC 9293 §3.8.6.2.1)
            let sliver = n < unsent && !(idle && (n >= lane.widest as usize / 2 || lane.sliver));
            let runt = n < mss && !fin && (sliver || !idle && !lane.push);
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
            some |= n > 0;
        }
        let lane = &mut self.lanes[way];
        lane.push &= lane.unsent() > 0;
        lane.head.congested &= !some;
    }

    pub(super) fn mss(&self, way: usize) -> usize {
        self.lanes[way].head.room(self.lanes[1 - way].hello.mss)
    }

    /// Retransmits output from `from` to `to`, at least one segment.
    pub(super) fn resend(&mut self, way: usize, from: u32, to: u32, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) {
        let mss = self.mss(way);
        let lane = &mut self.lanes[way];
        let mut from = if behind(from, lane.base) { from } else { lane.base };
        if lane.sent == lane.base {
            self.send_probe(way, out, desk);
            return;
        }
        let to = if behind(to, lane.sent) { lane.sent } else { to };
        lane.resent = desk.now;
        for _ in 0..AT_ONCE {
            if !behind(to, from) {
                break;
            }
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

    /// Probes a zero window with one waiting byte (RFC 9293 §3.8.6.1).
    fn send_probe(&mut self, way: usize, out: &mut Output<'_, '_>, desk: &mut Shared<'_>) {
        let lane = &mut self.lanes[way];
        let seq = lane.sent;
        lane.resent = desk.now;
        if lane.unsent() > 0 && !behind(lane.edge_out, seq) && self.send(way, seq, 1, TcpFlags::ACK, out, desk) {
            self.lanes[way].sent = seq.wrapping_add(1);
            self.sent[way] += 1;
        }
    }

    /// Forwards a reset that names an announced or the next sequence number, with the number that the receiver expects.
    pub(super) fn pass_reset(&mut self, way: usize, seq: u32, flags: TcpFlags, out: &mut Output<'_, '_>) {
        let (own, peer) = self.pair(way);
        let at = if seq == own.told { own.base } else { own.sent };
        let flags = flags & (TcpFlags::RST | TcpFlags::ACK);
        let shape = SegmentFields { seq: at, ack: peer.told, flags, window: 0, len: 0, ecn: 0 };
        let path = own.path;
        if let Some(mut packet) = out.packet(way) {
            match own.head.write(&mut packet, &shape, |_| true) {
                Some(()) => out.send(packet, path),
                None => out.door.cx.drop(Drop::Taken, packet),
            }
        }
    }
}
