//! Table of flows.

use super::decode::{ICMP, ICMPV6, Packet};
use super::stream::Stream;
use crate::ids::app::AppFlow;
use crate::ids::rule::app::AppProtocol;
use diagnostics::Diagnostic;
use std::net::IpAddr;
use std::time::Duration;
use tables::flow::{FlowKey, FlowTable, Full, Lookup, Seed, Settings};

/// Idle time after which a flow ends.
const IDLE_TCP: Duration = Duration::from_secs(3600);
const IDLE_CLOSED: Duration = Duration::from_secs(60);
const IDLE_OTHER: Duration = Duration::from_secs(300);

/// Packed length of a key: addresses, ports, protocol, VLAN tags, and tunnels with the IP version.
const KEY_LEN: usize = 16 + 16 + 2 + 2 + 1 + 3 + 1;

/// Ends of a flow in their order, protocol, VLAN identifiers, number of tunnels, and IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key([u8; KEY_LEN]);

impl Default for Key {
    fn default() -> Self {
        Key([0; KEY_LEN])
    }
}

impl Key {
    fn new(packet: &Packet<'_>) -> Self {
        let (src, dst) = ends(packet);
        let (low, high) = if src <= dst { (src, dst) } else { (dst, src) };
        let mut key = [0; KEY_LEN];
        for (to, ip) in key.chunks_exact_mut(16).zip([low.0, high.0]) {
            match ip {
                IpAddr::V4(ip) => to.copy_from_slice(&ip.to_ipv6_mapped().octets()),
                IpAddr::V6(ip) => to.copy_from_slice(&ip.octets()),
            }
        }
        key[32..34].copy_from_slice(&low.1.to_be_bytes());
        key[34..36].copy_from_slice(&high.1.to_be_bytes());
        key[36] = packet.protocol;
        key[37..40].copy_from_slice(&packet.vlans.to_be_bytes()[1..]);
        key[40] = packet.tunnels << 1 | u8::from(packet.src.is_ipv6());
        Key(key)
    }
}

impl FlowKey for Key {
    type Packed = [u8; KEY_LEN];

    fn flow_hash(&self, seed: &Seed) -> u64 {
        let (words, _) = self.0.as_chunks::<8>();
        let word = |n: usize| words.get(n).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let hash = seed.mix(0, word(0), word(1));
        seed.mix(seed.mix(hash, word(2), word(3)), word(4), self.0[KEY_LEN - 1].into())
    }

    fn pack(&self) -> Self::Packed {
        self.0
    }

    fn unpack(packed: &Self::Packed) -> Self {
        Key(*packed)
    }

    fn is(&self, packed: &Self::Packed) -> bool {
        self.0 == *packed
    }
}

/// Action for all further packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowAction {
    Inspect,
    Pass,
    Drop,
}

/// Progress of a TCP connection.
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
    /// Number in the order of creation.
    pub(super) number: u64,
    pub(super) created: Duration,
    last: Duration,
    /// Packets, and bytes of frames, to the server and to the client.
    pub(super) packets: [u64; 2],
    pub(super) bytes: [u64; 2],
    pub(super) seen: [bool; 2],
    pub(super) ip_only_done: [bool; 2],
    pub(super) tcp: TcpState,
    /// Directions that a FIN has ended.
    pub(super) ended: [bool; 2],
    pub(super) action: FlowAction,
    pub(super) bits: Vec<u32>,
    /// Numbers that rules have set, by variable.
    pub(super) integers: Vec<(u32, u32)>,
    /// Streams to the server and to the client.
    pub(super) streams: [Stream; 2],
    /// Client and server.
    pub(super) ends: [(IpAddr, u16); 2],
    /// Bytes of the streams that are part of the sum of all flows.
    counted: usize,
    /// Parsers of the application protocol, once there are bytes for them.
    pub(super) app: Option<Box<AppFlow>>,
    pub(super) app_protocol: Option<AppProtocol>,
    /// Directions in which a packet has been inspected since the protocol is known.
    pub(super) app_announced: [bool; 2],
}

/// Place of a flow that was taken from the table; `None` if the table has no room for it.
#[must_use]
pub(super) struct Slot(Option<u32>);

/// Flows by their ends, at most `capacity`; of sixteen the one that was idle longest is evicted.
pub(super) struct Flows {
    /// Number of the slot of each flow, from 1.
    table: FlowTable<Key, u32>,
    slots: Vec<Option<Box<Flow>>>,
    free: Vec<u32>,
    /// Flows that were evicted, whose streams are to be inspected to their ends.
    pub(super) evicted: Vec<Flow>,
    created: u64,
    seed: Seed,
    /// Bytes of the streams of all flows in the table.
    stream_bytes: usize,
}

/// Unit of the times in the table, of which 23 bits are kept.
fn millis(now: Duration) -> u32 {
    now.as_millis() as u32
}

impl Flows {
    pub(super) fn new(capacity: usize) -> Result<Self, Diagnostic> {
        let settings = Settings { full: Full::EvictOldest, ..Settings::new(capacity) };
        let table = FlowTable::new(&settings).map_err(|e| {
            Diagnostic::new(format!("flows cannot be stored: {e}")).key("flows").value(capacity).remedy("store fewer")
        })?;
        let (slots, free, evicted) = (vec![], vec![], vec![]);
        Ok(Flows { table, slots, free, evicted, created: 0, seed: Seed::random(), stream_bytes: 0 })
    }

    /// Takes over the flows of another table; if they are more than the capacity, some are evicted.
    pub(super) fn take_over(&mut self, old: &mut Flows) {
        if self.table.capacity() == old.table.capacity() {
            return std::mem::swap(self, old);
        }
        self.created = old.created;
        let all: Vec<_> = old.table.iter_seen(0..old.table.buckets()).map(|(key, n, seen)| (key, *n, seen)).collect();
        for (key, number, seen) in all {
            let Some(flow) = old.release(number) else { continue };
            match self.place(key, seen) {
                Some(place) => {
                    self.stream_bytes += flow.counted;
                    self.put(&Slot(Some(place)), flow);
                }
                None => self.evicted.push(*flow),
            }
        }
    }

    /// Returns the number of the slot of a flow, a free one if the flow is new; `None` if there is no room.
    fn place(&mut self, key: Key, now: u32) -> Option<u32> {
        let next = self.free.last().copied().unwrap_or(self.slots.len() as u32 + 1);
        let (mut lost, mut place) = (0, None);
        self.table.look_up_or_insert(
            &[self.table.prepare(key)],
            now,
            |_, number| lost = *number,
            |_, found| match found {
                Lookup::Known(number) => place = Some(*number),
                Lookup::New(number) => (*number, place) = (next, Some(next)),
                Lookup::Refused => {}
            },
        );
        if place == Some(next) && self.free.pop().is_none() {
            self.slots.push(None);
        }
        let lost = self.release(lost);
        self.evicted.extend(lost.map(|flow| *flow));
        place
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn stream_bytes(&self) -> usize {
        self.stream_bytes
    }

    /// Takes a flow out of its slot, or a new one; [`put`](Self::put) puts it back.
    pub(super) fn take(&mut self, packet: &Packet<'_>, now: Duration) -> (Slot, Box<Flow>) {
        let Some(number) = self.place(Key::new(packet), millis(now)) else {
            return (Slot(None), self.create(packet, now));
        };
        let slot = Slot(Some(number));
        let Some(mut flow) = self.slots.get_mut(number as usize - 1).and_then(Option::take) else {
            return (slot, self.create(packet, now));
        };
        let has_ended =
            flow.tcp == TcpState::Closed || flow.action == FlowAction::Drop && flow.tcp == TcpState::Established;
        let restarts = packet.is_tcp() && packet.tcp_flags() & 0x12 == 2 && has_ended;
        if now.saturating_sub(flow.last) > flow.idle_max() || restarts {
            self.stream_bytes -= flow.counted;
            flow.counted = 0;
            let new = self.create(packet, now);
            self.evicted.push(*std::mem::replace(&mut flow, new));
        }
        flow.last = now;
        (slot, flow)
    }

    /// Returns a new flow.
    pub(super) fn create(&mut self, packet: &Packet<'_>, now: Duration) -> Box<Flow> {
        let (src, dst) = ends(packet);
        self.created += 1;
        Box::new(Flow {
            // 53 bits, which JSON numbers can hold
            id: self.seed.mix(0, self.created, 0) >> 11,
            number: self.created,
            created: now,
            last: now,
            packets: [0; 2],
            bytes: [0; 2],
            seen: [false; 2],
            ip_only_done: [false; 2],
            tcp: TcpState::None,
            ended: [false; 2],
            action: FlowAction::Inspect,
            bits: vec![],
            integers: vec![],
            streams: Default::default(),
            ends: [src, dst],
            app: None,
            app_protocol: None,
            app_announced: [false; 2],
            counted: 0,
        })
    }

    /// Puts a flow back; one that is not inspected any more keeps no bytes.
    pub(super) fn put(&mut self, slot: &Slot, mut flow: Box<Flow>) {
        if flow.action != FlowAction::Inspect && (flow.app.is_some() || flow.streams.iter().any(|s| s.len() != 0)) {
            (flow.streams, flow.app) = (Default::default(), None);
        }
        let Some(to) = slot.0.and_then(|number| self.slots.get_mut(number as usize - 1)) else { return };
        let bytes = flow.streams.iter().map(Stream::len).sum();
        self.stream_bytes = self.stream_bytes + bytes - flow.counted;
        flow.counted = bytes;
        *to = Some(flow);
    }

    fn release(&mut self, number: u32) -> Option<Box<Flow>> {
        let flow = self.slots.get_mut((number as usize).checked_sub(1)?)?.take()?;
        self.free.push(number);
        self.stream_bytes -= flow.counted;
        Some(flow)
    }

    /// Visits part of the table, moves flows that have been idle too long to `evicted`.
    pub(super) fn age(&mut self, now: Duration, parts: usize) {
        let mut expired = vec![];
        let slots = &self.slots;
        self.table.age(millis(now), self.table.buckets().div_ceil(parts), |_, number, idle| {
            let flow = (*number as usize).checked_sub(1).and_then(|at| slots.get(at)?.as_ref());
            let ends = flow.is_none_or(|flow| Duration::from_millis(idle.into()) > flow.idle_max());
            if ends {
                expired.push(*number);
            }
            ends
        });
        for number in expired {
            let flow = self.release(number);
            self.evicted.extend(flow.map(|flow| *flow));
        }
    }

    /// Moves all flows to `evicted`.
    pub(super) fn drain(&mut self) {
        self.evicted.extend(self.slots.drain(..).flatten().map(|flow| *flow));
        self.free.clear();
        self.stream_bytes = 0;
        let buckets = self.table.buckets();
        self.table.age(0, buckets, |_, _, _| true);
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
    /// Returns the value of a number that rules set.
    pub(super) fn integer(&self, variable: u32) -> Option<u32> {
        self.integers.iter().find(|(of, _)| *of == variable).map(|(_, value)| *value)
    }

    /// Returns true once the application protocol is known, or known not to be a supported one.
    pub(super) fn is_app_decided(&self) -> bool {
        self.app.as_ref().is_some_and(|app| app.is_decided())
    }

    /// Returns 0 for packets to the server and 1 for packets to the client.
    pub(super) fn direction(&self, packet: &Packet<'_>) -> usize {
        let (src, dst) = ends(packet);
        usize::from(src != self.ends[0] && dst == self.ends[0])
    }

    /// Returns true if a connection is established, or if both ends of another flow have sent packets.
    pub(super) fn is_established(&self, is_tcp: bool) -> bool {
        if is_tcp { self.tcp >= TcpState::Established } else { self.seen == [true; 2] }
    }

    fn idle_max(&self) -> Duration {
        match self.tcp {
            TcpState::None | TcpState::Syn | TcpState::SynAck => IDLE_OTHER,
            TcpState::Closed => IDLE_CLOSED,
            _ => IDLE_TCP,
        }
    }
}
