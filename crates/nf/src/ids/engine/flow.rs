//! Table of flows.

use super::decode::{ICMP, ICMPV6, Packet, TCP};
use super::stream::Stream;
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Idle time after which a flow ends.
const IDLE_TCP: Duration = Duration::from_secs(3600);
const IDLE_OTHER: Duration = Duration::from_secs(300);
/// Largest number of flows that a packet evicts, after a reload with a smaller table.
const MAX_EVICTED: usize = 4;

/// Ends of a flow in their order, and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([(IpAddr, u16); 2], u8);

/// Action for all further packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowAction {
    Inspect,
    Pass,
    Drop,
}

/// Progress of a TCP handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TcpState {
    None,
    Syn,
    SynAck,
    Established,
    Closed,
}

/// A flow.
pub(super) struct Flow {
    pub(super) id: u64,
    pub(super) client: (IpAddr, u16),
    last: Duration,
    created: u64,
    pub(super) seen: [bool; 2],
    pub(super) ip_only_done: [bool; 2],
    pub(super) tcp: TcpState,
    pub(super) action: FlowAction,
    pub(super) bits: Vec<u32>,
    /// Streams to the server and to the client.
    pub(super) streams: [Stream; 2],
    /// Client and server.
    pub(super) ends: [(IpAddr, u16); 2],
}

/// Flows by their ends, at most `capacity`; the oldest is evicted.
pub(super) struct Flows {
    flows: HashMap<Key, Box<Flow>, RandomState>,
    order: VecDeque<(Key, u64)>,
    capacity: usize,
    created: u64,
}

impl Flows {
    pub(super) fn new(capacity: usize) -> Self {
        Flows { flows: HashMap::default(), order: VecDeque::new(), capacity, created: 0 }
    }

    /// Takes over the flows of another table; if they are more than the capacity, later packets evict them.
    pub(super) fn take_over(&mut self, old: &mut Flows) {
        std::mem::swap(self, old);
        std::mem::swap(&mut self.capacity, &mut old.capacity);
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Removes and returns a flow, or a new one; [`put`](Self::put) returns it to the table.
    pub(super) fn take(&mut self, packet: &Packet<'_>, now: Duration) -> (Key, Box<Flow>) {
        let (src, dst) = ends(packet);
        let key = Key(if src <= dst { [src, dst] } else { [dst, src] }, packet.protocol);
        let idle = if packet.protocol == TCP { IDLE_TCP } else { IDLE_OTHER };
        let restarted = packet.is_tcp() && packet.tcp_flags() & 0x12 == 2;
        if let Some(mut flow) = self.flows.remove(&key)
            && now.saturating_sub(flow.last) <= idle
            && !(restarted && flow.tcp == TcpState::Closed)
        {
            flow.last = now;
            return (key, flow);
        }
        let flow = Box::new(self.create(packet, now));
        self.order.push_back((key, self.created));
        (key, flow)
    }

    /// Returns a new flow.
    pub(super) fn create(&mut self, packet: &Packet<'_>, now: Duration) -> Flow {
        let (src, dst) = ends(packet);
        self.created += 1;
        Flow {
            id: self.created,
            client: src,
            last: now,
            created: self.created,
            seen: [false; 2],
            ip_only_done: [false; 2],
            tcp: TcpState::None,
            action: FlowAction::Inspect,
            bits: vec![],
            streams: Default::default(),
            ends: [src, dst],
        }
    }

    /// Returns a flow to the table and evicts the oldest if it is full.
    pub(super) fn put(&mut self, key: Key, flow: Box<Flow>) {
        let mut evicted = 0;
        while self.flows.len() >= self.capacity
            && evicted < MAX_EVICTED
            && let Some((oldest, created)) = self.order.pop_front()
        {
            if self.flows.get(&oldest).is_some_and(|flow| flow.created == created) {
                self.flows.remove(&oldest);
                evicted += 1;
            }
        }
        self.flows.insert(key, flow);
        if self.order.len() > self.capacity * 2 {
            let flows = &self.flows;
            self.order.retain(|(key, created)| flows.get(key).is_some_and(|flow| flow.created == *created));
        }
    }

    /// Removes and returns all flows.
    pub(super) fn drain(&mut self) -> Vec<Flow> {
        self.order.clear();
        let mut all: Vec<_> = self.flows.drain().map(|(_, flow)| *flow).collect();
        all.sort_by_key(|flow| flow.id);
        all
    }
}

fn ends(packet: &Packet<'_>) -> ((IpAddr, u16), (IpAddr, u16)) {
    let port = match (packet.protocol, packet.is_icmp()) {
        // both directions of an echo have the same identifier
        (ICMP, true) if matches!(packet.header.first(), Some(0 | 8)) => packet.field16(4).unwrap_or(0),
        (ICMPV6, true) if matches!(packet.header.first(), Some(128 | 129)) => packet.field16(4).unwrap_or(0),
        _ => return ((packet.src, packet.src_port), (packet.dst, packet.dst_port)),
    };
    ((packet.src, port), (packet.dst, port))
}

impl Flow {
    /// Returns 0 for packets to the server and 1 for packets to the client.
    pub(super) fn direction(&self, packet: &Packet<'_>) -> usize {
        let (src, dst) = ends(packet);
        usize::from(src != self.client && dst == self.client)
    }
}
