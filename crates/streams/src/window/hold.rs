//! Packets held until their bytes have been inspected.

use super::flows::{DropReason, Fate, Flows, Mode};
use super::piece::behind;
use super::transport::Transport;
use super::{Inspect, Settings};
use graph::{Context, HoldQueue, PathId};
use packet::{Batch, Packet};
use std::collections::VecDeque;

/// Number of empty queues kept for reuse.
const SPARE: usize = 64;

/// Held packets of one direction of a flow, in order of arrival.
struct Queue {
    packets: HoldQueue,
    /// For each packet, the position up to which bytes must have been inspected.
    ends: VecDeque<u32>,
}

/// Held packets of a node.
pub(super) struct HeldPackets {
    /// Queue of each direction, by its number.
    queues: Vec<Option<Box<Queue>>>,
    #[allow(clippy::vec_box, reason = "they go from here to there in their boxes")]
    spare: Vec<Box<Queue>>,
    held: usize,
    most: usize,
    most_each: usize,
}

/// Output of a node along the paths of its packets.
pub(crate) struct PathOutput<'a, 'c> {
    pub(crate) cx: &'a mut Context<'c>,
    /// The batch, for packets that continue along its path.
    pub(crate) batch: Option<&'a mut Batch>,
    /// True once the batch was full: later packets go behind it.
    pub(crate) full: bool,
}

impl PathOutput<'_, '_> {
    /// Sends a packet along path `way`.
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
        self.cx.emit_on_path(way, 0, packet);
    }
}

impl HeldPackets {
    pub(super) fn new(settings: &Settings) -> Self {
        let (most, most_each) = (settings.held as usize, settings.flow_held as usize);
        HeldPackets { queues: vec![], spare: vec![], held: 0, most, most_each }
    }

    /// Returns true if another packet of a direction can be held.
    pub(super) fn has_room(&self, id: u32) -> bool {
        let queue = self.queues.get(id as usize).and_then(Option::as_ref);
        self.held < self.most && queue.is_none_or(|queue| queue.packets.len() < self.most_each)
    }

    /// Holds a packet until bytes up to `end` have been inspected.
    pub(super) fn hold<T: Transport, L: Inspect>(
        &mut self,
        flows: &mut Flows<T, L>,
        door: &mut PathOutput<'_, '_>,
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
            match flows.fail(DropReason::HoldFull) {
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

    /// Sends the packets whose bytes were inspected, of all directions with progress.
    pub(super) fn send_inspected<T: Transport, L: Inspect>(
        &mut self,
        flows: &mut Flows<T, L>,
        door: &mut PathOutput<'_, '_>,
    ) {
        while let Some(id) = flows.touched.pop() {
            self.send_inspected_of(flows, door, id, None);
        }
    }

    /// Sends such packets of one direction that precede the packet in process.
    pub(super) fn send_inspected_before<T: Transport, L: Inspect>(
        &mut self,
        flows: &mut Flows<T, L>,
        door: &mut PathOutput<'_, '_>,
        id: u32,
    ) {
        if flows.touched.contains(&id) {
            let begins = flows.begins;
            self.send_inspected_of(flows, door, id, Some(begins));
        }
    }

    fn send_inspected_of<T: Transport, L: Inspect>(
        &mut self,
        flows: &mut Flows<T, L>,
        door: &mut PathOutput<'_, '_>,
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
                Mode::Drop => Fate::Drop(DropReason::Verdict),
                Mode::Pass => Fate::Pass,
                Mode::Look if !behind(end, seen) => Fate::Pass,
                Mode::Look if resolve => flows.fail(DropReason::HoldTimeout),
                Mode::Look => Fate::Hold(end),
            };
            match fate {
                Fate::Pass => door.send(way, packet),
                Fate::Drop(reason) => door.cx.drop(reason, packet),
                Fate::Hold(_) => match door.cx.hold_on_path(way, &mut queue.packets, packet) {
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
