//! Packets that wait until their bytes have been seen.

use super::flows::{Fate, Flows, HOLD_FULL, HOLD_TIMEOUT, Mode, VERDICT};
use super::pieces::behind;
use super::transport::Transport;
use super::{Look, Settings};
use graph::{Context, HoldQueue, PathId};
use packet::{Batch, Packet};
use std::collections::VecDeque;

/// Empty queues that are kept for the next streams.
const SPARE: usize = 64;

/// The held packets of one direction of a flow, in the order in which they came.
struct Queue {
    packets: HoldQueue,
    /// Of each, the position up to which bytes must have been seen.
    ends: VecDeque<u32>,
}

/// The held packets of a node.
pub(super) struct Holding {
    /// By number of the lane.
    queues: Vec<Option<Box<Queue>>>,
    #[allow(clippy::vec_box, reason = "they go from here to there in their boxes")]
    spare: Vec<Box<Queue>>,
    held: usize,
    most: usize,
    most_each: usize,
}

/// Where packets leave.
pub(crate) struct Door<'a, 'c> {
    pub(crate) cx: &'a mut Context<'c>,
    /// The batch, of those that go on along this path.
    pub(crate) batch: Option<&'a mut Batch>,
    /// Whether the batch was full: what comes after goes behind it.
    pub(crate) full: bool,
}

impl Door<'_, '_> {
    /// Sends a packet that came by `way`.
    pub(crate) fn send(&mut self, way: PathId, packet: Packet) {
        let here = self.cx.path() == way;
        let packet = match &mut self.batch {
            Some(batch) if !self.full && here => match batch.push(packet) {
                Ok(()) => return,
                Err(packet) => {
                    self.full = true;
                    packet
                }
            },
            _ => packet,
        };
        self.cx.emit_from(way, 0, packet);
    }
}

impl Holding {
    pub(super) fn new(settings: &Settings) -> Self {
        let (most, most_each) = (settings.held as usize, settings.flow_held as usize);
        Holding { queues: vec![], spare: vec![], held: 0, most, most_each }
    }

    /// Whether another packet of a lane can be held.
    pub(super) fn has_room(&self, id: u32) -> bool {
        let queue = self.queues.get(id as usize).and_then(Option::as_ref);
        self.held < self.most && queue.is_none_or(|queue| queue.packets.len() < self.most_each)
    }

    /// Holds a packet until bytes have been seen up to `end`.
    pub(super) fn hold<T: Transport, L: Look>(
        &mut self,
        flows: &mut Flows<T, L>,
        door: &mut Door<'_, '_>,
        id: u32,
        packet: Packet,
        end: u32,
    ) {
        let at = id as usize;
        if at >= self.queues.len() {
            self.queues.resize_with(at + 1, || None);
        }
        let most = self.most_each;
        let new = || Box::new(Queue { packets: HoldQueue::new(most), ends: VecDeque::new() });
        let queue = self.queues[at].get_or_insert_with(|| self.spare.pop().unwrap_or_else(new));
        if let Err(packet) = door.cx.hold(&mut queue.packets, packet) {
            match flows.fail(HOLD_FULL) {
                Fate::Drop(reason) => door.cx.drop(reason, packet),
                _ => door.send(door.cx.path(), packet),
            }
            return;
        }
        queue.ends.push_back(end);
        self.held += 1;
        let (held, mark) = (queue.packets.len(), flows.conns[at / 2].lanes[at % 2].seen());
        flows.set_held(id, held, mark);
    }

    /// Lets the packets go whose time has come, of all lanes that were touched.
    pub(super) fn settle<T: Transport, L: Look>(&mut self, flows: &mut Flows<T, L>, door: &mut Door<'_, '_>) {
        while let Some(id) = flows.touched.pop() {
            self.settle_lane(flows, door, id, None);
        }
    }

    /// Lets those packets of a lane go, if it was touched, that come before the one that was shown last.
    pub(super) fn settle_before<T: Transport, L: Look>(
        &mut self,
        flows: &mut Flows<T, L>,
        door: &mut Door<'_, '_>,
        id: u32,
    ) {
        if flows.touched.contains(&id) {
            let begins = flows.begins;
            self.settle_lane(flows, door, id, Some(begins));
        }
    }

    fn settle_lane<T: Transport, L: Look>(
        &mut self,
        flows: &mut Flows<T, L>,
        door: &mut Door<'_, '_>,
        id: u32,
        before: Option<u32>,
    ) {
        let Some(slot) = self.queues.get_mut(id as usize) else { return };
        let Some(queue) = slot else { return };
        let conn = &flows.conns[id as usize / 2];
        let lane = &conn.lanes[id as usize % 2];
        let (mode, resolve) = (conn.mode, lane.resolve);
        let seen = if resolve { lane.mark } else { lane.seen() };
        let now = lane.seen();
        for _ in 0..queue.packets.len() {
            let (Some((way, packet)), Some(end)) = (door.cx.release(&mut queue.packets), queue.ends.pop_front()) else {
                break;
            };
            self.held -= 1;
            let fate = match mode {
                _ if before.is_some_and(|before| behind(end, before)) => Fate::Hold(end),
                Mode::Drop => Fate::Drop(VERDICT),
                Mode::Pass => Fate::Pass,
                Mode::Look if !behind(end, seen) => Fate::Pass,
                Mode::Look if resolve => flows.fail(HOLD_TIMEOUT),
                Mode::Look => Fate::Hold(end),
            };
            match fate {
                Fate::Pass => door.send(way, packet),
                Fate::Drop(reason) => door.cx.drop(reason, packet),
                Fate::Hold(_) => match door.cx.hold_from(way, &mut queue.packets, packet) {
                    Ok(()) => {
                        queue.ends.push_back(end);
                        self.held += 1;
                    }
                    Err(packet) => door.send(way, packet),
                },
            }
        }
        let held = queue.packets.len();
        if held == 0
            && let Some(queue) = slot.take()
            && self.spare.len() < SPARE
        {
            self.spare.push(queue);
        }
        match before {
            Some(_) => flows.conns[id as usize / 2].lanes[id as usize % 2].held = held as u32,
            None => flows.set_held(id, held, now),
        }
    }
}
