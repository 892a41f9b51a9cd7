//! Packets that wait until their neighbour's MAC address is known.

use super::fib::{PATIENCE, Question, TRIES};
use super::forward::{Reason, Router};
use graph::{Context, HoldQueue};
use packet::Packet;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;
use wire::ndp::{self, Neighbor};
use wire::{MacAddr, arp, build};

/// Neighbours that packets of one core wait for, at most.
const MOST_QUEUES: usize = 1024;
/// How often all neighbours are looked through.
const ROUND: Duration = Duration::from_secs(1);

/// The queues of one copy, by adjacency.
pub(super) struct Waiting {
    queues: BTreeMap<u32, Queue>,
    room: usize,
    aged: Duration,
}

struct Queue {
    packets: HoldQueue,
    /// For each packet the interface by which it came; none for the router's own.
    from: VecDeque<Option<usize>>,
    since: Duration,
}

impl Waiting {
    pub(super) fn new(room: usize) -> Self {
        Waiting { queues: BTreeMap::new(), room, aged: Duration::ZERO }
    }
}

impl Router {
    /// A packet that came by the interface `from`, or is the router's own, waits for a neighbour.
    pub(super) fn wait(&mut self, cx: &mut Context<'_>, who: (usize, IpAddr), from: Option<usize>, packet: Packet) {
        let now = cx.now();
        let wanted = self.fib.control().want(&self.fib, &self.config.faces, who, now);
        let Some((number, question)) = wanted else {
            return self.drop(cx, Reason::NeighbourTableFull, packet);
        };
        if let Some(question) = question {
            self.ask(cx, question);
        }
        let (full, room) = (self.waiting.queues.len() >= MOST_QUEUES, self.waiting.room);
        if full && !self.waiting.queues.contains_key(&number) {
            return self.drop(cx, Reason::NeighbourQueueFull, packet);
        }
        let queue = self.waiting.queues.entry(number).or_insert_with(|| Queue {
            packets: HoldQueue::new(room),
            from: VecDeque::new(),
            since: now,
        });
        match cx.hold(&mut queue.packets, packet) {
            Ok(()) => queue.from.push_back(from),
            Err(packet) => self.drop(cx, Reason::NeighbourQueueFull, packet),
        }
    }

    /// Sends what need not wait any more, gives up what has waited too long, and asks again for old neighbours.
    pub(super) fn look_after(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        if self.first && now >= self.waiting.aged + ROUND {
            self.waiting.aged = now;
            let questions = self.fib.control().age(&self.fib, &self.config.faces, self.config.lifetime, now);
            for question in questions {
                self.ask(cx, question);
            }
        }
        let over = |queue: &Queue| now >= queue.since + PATIENCE * TRIES;
        let fib = &self.fib;
        let ready: Vec<(u32, bool)> = self
            .waiting
            .queues
            .iter()
            .map(|(number, queue)| (*number, fib.adjacency(*number).load().is_resolved(), over(queue)))
            .filter(|(_, resolved, over)| *resolved || *over)
            .map(|(number, resolved, _)| (number, resolved))
            .collect();
        for (number, resolved) in ready {
            let Some(mut queue) = self.waiting.queues.remove(&number) else { continue };
            while let Some((_, packet)) = cx.release(&mut queue.packets) {
                let from = queue.from.pop_front().flatten();
                match from {
                    _ if !resolved => self.give_up(cx, from, packet),
                    Some(face) => self.closer(cx, face, packet),
                    None => self.send_own(cx, packet),
                }
            }
        }
    }

    /// Sends a question to a neighbour.
    fn ask(&mut self, cx: &mut Context<'_>, question: Question) {
        let face = &self.config.faces[question.face];
        let frame = match question.address {
            IpAddr::V4(target) => {
                let Some(source) = face.source4(target) else { return };
                let to = question.mac.unwrap_or(MacAddr::BROADCAST);
                let question = arp::Repr {
                    operation: arp::Operation::Request,
                    sender_mac: face.mac,
                    sender_ip: source,
                    target_mac: MacAddr([0; 6]),
                    target_ip: target,
                };
                build::arp(question).src_mac(face.mac).dst_mac(to).pad_to(60).to_vec()
            }
            IpAddr::V6(target) => {
                let group = ndp::solicited_node(target);
                let (to, mac) = match question.mac {
                    Some(mac) => (target, mac),
                    None => (group, ndp::multicast_mac(group)),
                };
                let solicitation = Neighbor::Solicitation { target, source_mac: Some(face.mac) };
                solicitation.frame((face.mac, mac), face.source6(target), to)
            }
        };
        self.counts.asked.add(1);
        if let Some(packet) = self.make(cx, &frame) {
            cx.emit(question.face as u8 + 1, packet);
        }
    }

    /// A packet of its own, if there is a buffer for it.
    pub(super) fn make(&mut self, cx: &mut Context<'_>, frame: &[u8]) -> Option<Packet> {
        let packet = cx.make(frame);
        if packet.is_none() {
            self.counts.no_buffer.add(1);
        }
        packet
    }
}
