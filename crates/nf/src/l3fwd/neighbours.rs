//! Neighbour resolution, and packets that wait for it.

pub(super) mod queues;

use super::counters::{CounterId, DropReason};
use super::fib::{NeighbourKey, NeighbourRequest, OWN, REQUEST_TIMEOUT, REQUESTS_MAX};
use super::router::Router;
use graph::{Context, HoldQueue};
use packet::Packet;
use queues::{NeighbourQueue, NeighbourQueues};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;
use wire::ndp::{self, Neighbor};
use wire::{MacAddr, arp, build};

/// Maximum number of neighbours that packets of one core wait for.
const QUEUES_MAX: usize = 1024;
/// Interval at which neighbours are checked for expiry.
const AGEING_INTERVAL: Duration = Duration::from_secs(1);

impl Router {
    /// Holds a packet until a neighbour is resolved; `received_from` is `None` for packets of the router itself.
    pub(super) fn resolve_and_hold(
        &mut self,
        cx: &mut Context<'_>,
        neighbour: NeighbourKey,
        received_from: Option<usize>,
        packet: Packet,
    ) {
        let now = cx.now();
        let resolution = self.fib.control().request_resolution(&self.fib, &self.config.interfaces, neighbour, now);
        let Some((number, request)) = resolution else {
            return self.drop(cx, DropReason::NeighbourTableFull, packet);
        };
        if let Some(request) = request {
            self.send_request(cx, request);
        }
        let capacity = self.neighbour_queues.capacity;
        let queues = &mut self.neighbour_queues.queues;
        if queues.len() >= QUEUES_MAX && !queues.contains_key(&number) {
            return self.drop(cx, DropReason::NeighbourQueueFull, packet);
        }
        let queue = queues.entry(number).or_insert_with(|| NeighbourQueue {
            packets: HoldQueue::new(capacity),
            received_from: VecDeque::new(),
            created: now,
        });
        match cx.hold(&mut queue.packets, packet) {
            Ok(()) => queue.received_from.push_back(received_from),
            Err(packet) => self.drop(cx, DropReason::NeighbourQueueFull, packet),
        }
    }

    /// Takes over the packets that wait for neighbours of another router. Those of interfaces that this one does not have
    /// and those for a neighbour that cannot be added are dropped at the next poll.
    pub(super) fn take_over_queues(&mut self, old: &mut Router) {
        self.neighbour_queues.last_ageing = old.neighbour_queues.last_ageing;
        let same = self.config.same_interfaces(&old.config);
        for mut queue in std::mem::take(&mut old.neighbour_queues.failed) {
            for interface in &mut queue.received_from {
                *interface = interface.and_then(|interface| same[interface]);
            }
            self.neighbour_queues.failed.push(queue);
        }
        let (control, before) = (&mut self.fib.control(), old.fib.control());
        for (number, mut queue) in std::mem::take(&mut old.neighbour_queues.queues) {
            let new = |interface: &Option<usize>| match interface {
                None => Some(None),
                Some(interface) => same[*interface].map(Some),
            };
            let received_from = queue.received_from.iter().map(new).collect::<Option<_>>();
            let key = before.key_of(number).and_then(|(interface, address)| Some((same[interface]?, address)));
            let resolution =
                key.and_then(|key| control.request_resolution(&self.fib, &self.config.interfaces, key, queue.created));
            match (resolution, received_from) {
                (Some((number, _)), Some(received_from)) => {
                    queue.received_from = received_from;
                    self.neighbour_queues.queues.insert(number, queue);
                }
                (_, received_from) => {
                    // an interface that is gone sends no errors
                    let unknown = || queue.received_from.iter().map(|_| None).collect();
                    queue.received_from = received_from.unwrap_or_else(unknown);
                    self.neighbour_queues.failed.push(queue);
                }
            }
        }
    }

    /// Sends packets to neighbours that have been resolved, drops those whose resolution has failed, and probes old
    /// neighbours.
    pub(super) fn poll_neighbours(&mut self, cx: &mut Context<'_>) {
        let now = cx.now();
        let is_due = self.neighbour_queues.is_ageing || now >= self.neighbour_queues.last_ageing + AGEING_INTERVAL;
        if self.maintains_shared && is_due {
            self.neighbour_queues.last_ageing = now;
            let reachable_time = self.config.reachable_time;
            let mut control = self.fib.control();
            let requests = control.age(&self.fib, &self.config.interfaces, reachable_time, now);
            self.neighbour_queues.is_ageing = control.is_ageing();
            drop(control);
            for request in requests {
                self.send_request(cx, request);
            }
        }
        let failed = |queue: &NeighbourQueue| now >= queue.created + REQUEST_TIMEOUT * REQUESTS_MAX;
        let fib = &self.fib;
        let ready: Vec<(u32, bool)> = self
            .neighbour_queues
            .queues
            .iter()
            .map(|(number, queue)| (*number, fib.adjacency(*number).load().is_resolved(), failed(queue)))
            .filter(|(_, resolved, failed)| *resolved || *failed)
            .map(|(number, resolved, _)| (number, resolved))
            .collect();
        let NeighbourQueues { queues, failed, .. } = &mut self.neighbour_queues;
        let failed = std::mem::take(failed).into_iter().map(|queue| (queue, false, OWN));
        let vrf_of = |number: u32| fib.control().key_of(number).map_or(OWN, |(interface, _)| fib.vrf_of(interface));
        let ready = ready
            .into_iter()
            .filter_map(|(number, resolved)| Some((queues.remove(&number)?, resolved, vrf_of(number))));
        let released: Vec<_> = ready.chain(failed).collect();
        for (mut queue, resolved, vrf) in released {
            while let Some((_, packet)) = cx.release(&mut queue.packets) {
                let received_from = queue.received_from.pop_front().flatten();
                match received_from {
                    _ if !resolved => self.fail_resolution(cx, received_from, packet),
                    Some(interface) => self.slow_path(cx, interface, packet),
                    None => self.originate(cx, vrf, packet),
                }
            }
        }
    }

    /// Sends an ARP request or neighbor solicitation.
    fn send_request(&mut self, cx: &mut Context<'_>, request: NeighbourRequest) {
        let interface = &self.config.interfaces[request.interface];
        let frame = match request.address {
            IpAddr::V4(target) => {
                let Some(source) = interface.source4(target) else { return };
                let to = request.mac.unwrap_or(MacAddr::BROADCAST);
                let request = arp::Repr {
                    operation: arp::Operation::Request,
                    sender_mac: interface.mac,
                    sender_ip: source,
                    target_mac: MacAddr([0; 6]),
                    target_ip: target,
                };
                build::arp(request).src_mac(interface.mac).dst_mac(to).pad_to(60).to_vec()
            }
            IpAddr::V6(target) => {
                let group = ndp::solicited_node(target);
                let (to, mac) = match request.mac {
                    Some(mac) => (target, mac),
                    None => (group, ndp::multicast_mac(group)),
                };
                let solicitation = Neighbor::Solicitation { target, source_mac: Some(interface.mac) };
                solicitation.frame((interface.mac, mac), interface.source6(target), to)
            }
        };
        if let Some(packet) = self.alloc_frame(cx, &frame) {
            self.counters[CounterId::NeighbourRequests].add(1);
            cx.emit(self.config.interfaces[request.interface].output, packet);
        }
    }

    /// Allocates a packet with the bytes of a frame, if a buffer is free.
    pub(super) fn alloc_frame(&mut self, cx: &mut Context<'_>, frame: &[u8]) -> Option<Packet> {
        let packet = cx.alloc_from(frame);
        if packet.is_none() {
            self.counters[CounterId::NoBuffer].add(1);
        }
        packet
    }
}
