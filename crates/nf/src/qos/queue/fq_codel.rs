//! Flow queue CoDel (FQ-CoDel, RFC 8290).

use super::{CoDel, DropReason, Fifo, Host, Largest, TailDrop, codel};
use std::collections::{HashMap, VecDeque};

/// Largest number of packets that are dropped at once when the queue is full.
const DROP_BATCH: usize = 64;

/// Parameters of [`FqCoDel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qos) struct Parameters {
    pub(in crate::qos) codel: codel::Parameters,
    /// Number of queues, to which flows are hashed, at least 1.
    pub(in crate::qos) flows: u32,
    /// Bytes that a flow may send in its turn.
    pub(in crate::qos) quantum: u32,
}

impl Parameters {
    /// Returns the number of the queue of a flow.
    #[inline]
    fn number(&self, hash: u64) -> u32 {
        (hash % u64::from(self.flows.max(1))) as u32
    }
}

/// Queue of one or several flows.
#[derive(Default)]
struct Flow {
    fifo: Fifo,
    codel: CoDel,
    /// Bytes that it may still send in this turn.
    credit: i64,
}

impl Flow {
    /// Returns its size when the longest flow is searched: bytes, and a byte for each packet, as frames may be empty.
    fn size(&self) -> u64 {
        self.fifo.bytes() + self.fifo.len() as u64
    }
}

/// Queues of flows, served by deficit round robin in which new flows come first. A queue exists while it is in one of
/// the two lists.
#[derive(Default)]
pub(in crate::qos) struct FqCoDel {
    flows: HashMap<u32, Flow, foldhash::fast::RandomState>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    /// Packets of all flows.
    packets: usize,
    bytes: u64,
    /// The flow with most bytes, while the queue is full.
    longest: Largest,
    /// Number of packets when the order of flows was last needed.
    ordered_at: usize,
}

impl FqCoDel {
    pub(in crate::qos) fn len(&self) -> usize {
        self.packets
    }

    /// Prefetches the packets next to which one of a flow is appended.
    #[inline]
    pub(in crate::qos) fn prefetch<H: Host>(&self, host: &mut H, parameters: &Parameters, hash: u64) {
        if let Some(flow) = self.flows.get(&parameters.number(hash)) {
            flow.fifo.prefetch(host);
        }
    }

    /// Appends a packet to the queue of its flow, and drops packets of the flow with most bytes if there are too many.
    #[allow(clippy::too_many_arguments, reason = "they are the properties of a packet")]
    pub(in crate::qos) fn push<H: Host>(
        &mut self,
        host: &mut H,
        parameters: &Parameters,
        limit: &TailDrop,
        item: H::Item,
        bytes: u32,
        now: u64,
        hash: u64,
    ) {
        let number = parameters.number(hash);
        let flow = self.flows.entry(number).or_insert_with(|| {
            self.new.push_back(number);
            Flow { fifo: Fifo::default(), codel: CoDel::default(), credit: parameters.quantum.into() }
        });
        let before = flow.size();
        flow.fifo.push(host, item, bytes, now);
        self.longest.update(number, before, flow.size());
        self.packets += 1;
        self.bytes += u64::from(bytes);
        let is_over = |packets: usize, bytes: u64| packets > limit.packets as usize || bytes > limit.bytes;
        while self.packets != 0 && is_over(self.packets, self.bytes) {
            self.drop_from_longest(host, DropReason::QueueFull, DROP_BATCH);
        }
        // not below half of the limit: a scheduler drops from queues far below theirs
        if self.packets < self.ordered_at / 2 {
            self.longest.forget();
            self.ordered_at = 0;
        }
    }

    /// Drops from the head of the flow with most bytes: half of its bytes, and at most `most` packets (RFC 8290 §4.1).
    /// The flows are put in order in O(n) when the queue becomes full; a call then takes O(log n).
    #[cold]
    pub(in crate::qos) fn drop_from_longest<H: Host>(&mut self, host: &mut H, reason: DropReason, most: usize) {
        self.ordered_at = self.packets;
        let flows = &self.flows;
        let number = self.longest.find(|| flows.iter().map(|(number, flow)| (flow.size(), *number)));
        let Some((number, longest)) = number.and_then(|number| Some((number, self.flows.get_mut(&number)?))) else {
            return;
        };
        let (before, enough, mut dropped) = (longest.size(), longest.fifo.bytes().div_ceil(2), 0);
        for _ in 0..most {
            let Some((item, stamp)) = longest.fifo.pop(host) else { break };
            host.drop(reason, item);
            self.packets -= 1;
            dropped += u64::from(stamp.bytes);
            if dropped >= enough {
                break;
            }
        }
        self.longest.update(number, before, longest.size());
        self.bytes -= dropped;
    }

    /// Removes the next packet to send, with its bytes.
    pub(in crate::qos) fn pop<H: Host>(
        &mut self,
        host: &mut H,
        parameters: &Parameters,
        now: u64,
    ) -> Option<(H::Item, u32)> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = *list.front()?;
            let Some(flow) = self.flows.get_mut(&number) else {
                list.pop_front();
                continue;
            };
            if flow.credit <= 0 {
                flow.credit += i64::from(parameters.quantum.max(1));
                list.pop_front();
                self.old.push_back(number);
                continue;
            }
            let (size, packets, bytes) = (flow.size(), flow.fifo.len(), flow.fifo.bytes());
            let popped = flow.codel.pop(host, &parameters.codel, &mut flow.fifo, now);
            self.longest.update(number, size, flow.size());
            self.packets -= packets - flow.fifo.len();
            self.bytes -= bytes - flow.fifo.bytes();
            match popped {
                Some((item, bytes)) => {
                    flow.credit -= i64::from(bytes);
                    return Some((item, bytes));
                }
                // an empty new flow becomes old, so that it cannot come first again at once
                None if is_new => {
                    self.new.pop_front();
                    self.old.push_back(number);
                }
                None => {
                    self.old.pop_front();
                    self.flows.remove(&number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_host::{TestHost, TestPacket};
    use super::*;
    use testkit::proptest::prelude::*;

    const PARAMETERS: Parameters = Parameters {
        codel: codel::Parameters { target: 5_000_000, interval: 100_000_000, ecn: false },
        flows: 1024,
        quantum: 1514,
    };
    const LIMIT: TailDrop = TailDrop { packets: 1000, bytes: 10_000_000 };

    fn push(queue: &mut FqCoDel, host: &mut TestHost, flow: u64, bytes: u32, now: u64) {
        queue.push(host, &PARAMETERS, &LIMIT, TestPacket::new(flow as u32), bytes, now, flow);
    }

    #[test]
    fn flows_share_the_rate_whatever_the_size_of_their_packets() {
        let (mut queue, mut host, mut bytes) = (FqCoDel::default(), TestHost::default(), [0_u64; 3]);
        let sizes = [1500, 300, 64];
        for _ in 0..3000 {
            (0..3).for_each(|flow| {
                let waiting = queue.flows.get(&(flow as u32)).map_or(0, |queue| queue.fifo.len());
                (waiting..20).for_each(|_| push(&mut queue, &mut host, flow, sizes[flow as usize], 0));
            });
            let (packet, len) = queue.pop(&mut host, &PARAMETERS, 0).unwrap();
            bytes[packet.number as usize] += u64::from(len);
        }
        let (most, least) = (bytes.iter().max().unwrap(), bytes.iter().min().unwrap());
        assert!(most - least <= 2 * (1514 + 1500), "{bytes:?}");
        assert!(host.dropped.is_empty());
    }

    #[test]
    fn packets_of_new_flows_come_first() {
        let (mut queue, mut host) = (FqCoDel::default(), TestHost::default());
        (0..100).for_each(|_| push(&mut queue, &mut host, 1, 1500, 0));
        for _ in 0..5 {
            queue.pop(&mut host, &PARAMETERS, 0);
        }
        push(&mut queue, &mut host, 2, 64, 0);
        let next: Vec<_> = (0..3).filter_map(|_| queue.pop(&mut host, &PARAMETERS, 0)).map(|(p, _)| p.number).collect();
        assert!(next.contains(&2), "{next:?}");
    }

    #[test]
    fn a_full_queue_drops_from_the_longest_flow() {
        let (mut queue, mut host) = (FqCoDel::default(), TestHost::default());
        (0..10).for_each(|flow| push(&mut queue, &mut host, flow, 64, 0));
        (0..991).for_each(|_| push(&mut queue, &mut host, 77, 1500, 0));
        assert_eq!((queue.len(), host.dropped.len()), (1001 - DROP_BATCH, DROP_BATCH));
        assert!(host.dropped.iter().all(|(reason, packet)| *reason == DropReason::QueueFull && packet.number == 77));
    }

    #[test]
    fn a_queue_of_empty_frames_is_bounded() {
        let (mut queue, mut host) = (FqCoDel::default(), TestHost::default());
        (0..3000).for_each(|n| push(&mut queue, &mut host, n % 7, 0, 0));
        assert!(queue.len() <= 1000 && queue.len() + host.dropped.len() == 3000);
    }

    #[test]
    fn every_packet_of_a_full_queue_is_dropped_from_the_longest_flow() {
        let (mut queue, mut host, mut random) = (FqCoDel::default(), TestHost::default(), 7_u64);
        for n in 0..20_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let before = host.dropped.len();
            let most = queue.flows.values().map(|flow| flow.fifo.bytes()).max().unwrap_or(0);
            push(&mut queue, &mut host, (random >> 33) % 300, 60 + (random >> 50) as u32 % 1400, 0);
            if host.dropped.len() != before {
                let number = host.dropped[before].1.number;
                let left = queue.flows[&number].fifo.bytes();
                let dropped = host.dropped[before..].iter().all(|(_, packet)| packet.number == number);
                // at least half of the bytes of a flow that had as many as any other, but for the packet that arrived
                assert!(dropped && left <= (most + 1460) / 2, "{left} of {most} bytes are left");
            }
            if n % 3 == 0 {
                queue.pop(&mut host, &PARAMETERS, 0);
            }
        }
        assert!(host.dropped.len() > 10_000 && queue.longest.is_ordered());
        while queue.pop(&mut host, &PARAMETERS, 0).is_some() {}
        push(&mut queue, &mut host, 1, 60, 0);
        assert!(!queue.longest.is_ordered());
    }

    proptest! {
        #[test]
        fn packets_are_neither_lost_nor_reordered(
            steps in proptest::collection::vec((0..20_u64, 60..1500_u32, 0..3_000_000_u64, any::<bool>()), 1..500),
        ) {
            let (mut queue, mut host) = (FqCoDel::default(), TestHost::default());
            let (mut number, mut sent, mut now, mut pushed) = (0, vec![], 0, 0);
            let few = TailDrop { packets: 40, bytes: 20_000 };
            for (flow, bytes, after, pops) in steps {
                now += after;
                number += 1;
                let packet = TestPacket::new(flow as u32 * 10_000 + number);
                queue.push(&mut host, &PARAMETERS, &few, packet, bytes, now, flow);
                pushed += 1;
                if pops {
                    sent.extend(queue.pop(&mut host, &PARAMETERS, now).map(|(packet, _)| packet.number));
                }
                prop_assert!(queue.packets <= 40 && queue.bytes <= 20_000);
                prop_assert_eq!(queue.packets, queue.flows.values().map(|flow| flow.fifo.len()).sum::<usize>());
                prop_assert_eq!(queue.flows.len(), queue.new.len() + queue.old.len());
            }
            while let Some((packet, _)) = queue.pop(&mut host, &PARAMETERS, now) {
                sent.push(packet.number);
            }
            prop_assert_eq!(sent.len() + host.dropped.len(), pushed);
            prop_assert!(queue.flows.is_empty() && queue.bytes == 0);
            for flow in 0..20 {
                prop_assert!(sent.iter().filter(|number| *number / 10_000 == flow).is_sorted());
            }
        }
    }
}
