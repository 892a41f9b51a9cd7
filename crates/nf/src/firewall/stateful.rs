//! The node with connection tracking.

use super::conntrack::connection::{ACK, Connection, FIN, Outcome, RST, SYN, Segment, State};
use super::conntrack::packet::{self, Content, PacketError, TrackedPacket};
use super::conntrack::table::{AddressFamily, Conntrack, Insertion};
use super::drop_reason::DropReason;
use super::key::{self, FrameKey};
use super::live_rules::{LiveRules, Mailbox};
use super::rule::{Action, PacketState};
use super::rule_set::{PacketKey, WorkerRules};
use super::updates::{self, ChangeCounter};
use crate::bits::for_each_bit;
use crate::fragment_queue::{FragmentQueue, HeldFragment};
use crate::link::plain_ipv4_mismatch;
use ::packet::{BURST, Batch, Packet};
use core::net::IpAddr;
use core::time::Duration;
use graph::{BoundedTable, Context, Counter, Counters, InvalidState, Named, Node, StateReader, StateWriter};
use std::any::Any;
use std::sync::Arc;
use tables::FlowTable;
use tables::flow::{Prepared, Tuple4, Tuple6};
use wire::flow::FiveTuple;
use wire::{EtherType, IpProtocol};

/// Timer interval; each tick scans a part of the tables.
const TICK: Duration = Duration::from_millis(1);

/// The node with connection tracking.
pub(super) struct StatefulNode {
    rules: Box<WorkerRules>,
    mailbox: Arc<Mailbox>,
    live: Arc<LiveRules>,
    change_counters: Counters<ChangeCounter>,
    other: Action,
    conntrack: Conntrack,
    v4: PlainPackets<Tuple4>,
    v6: PlainPackets<Tuple6>,
    queue: FragmentQueue<DatagramKey>,
}

/// Fields that all fragments of a datagram share: addresses, identification and, for IPv4, protocol (RFC 791 §3.2, RFC
/// 8200 §4.5).
type DatagramKey = (IpAddr, IpAddr, u32, u8);

/// The plain packets of a batch, of one IP version, whose table entries are being prefetched.
struct PlainPackets<K> {
    keys: [Prepared<K>; BURST],
    /// Positions in the batch.
    positions: [u8; BURST],
    /// Sending side of each packet, as a bit mask.
    sides: u64,
    n: usize,
}

/// Results of a look-up, as bit masks of positions in the batch.
#[derive(Default)]
struct LookupMasks {
    /// Packets without a connection, or that may begin another.
    slow: u64,
    /// TCP segments that neither have a connection nor can begin one.
    unconnected: u64,
    out_of_window: u64,
    out_of_state: u64,
}

/// Bytes that are read of a plain packet: up to and including the TCP window.
const IPV4_PLAIN_LEN: usize = 50;
const IPV6_PLAIN_LEN: usize = 70;
/// Offset of the transport header.
const IPV4_L4_OFFSET: usize = 34;
const IPV6_L4_OFFSET: usize = 54;

fn datagram_key(packet: &TrackedPacket<'_>) -> Option<DatagramKey> {
    let FiveTuple { src, dst, protocol, .. } = packet.tuple;
    Some((src, dst, packet.fragment?.id, if src.is_ipv4() { protocol.0 } else { 0 }))
}

impl<K: AddressFamily> PlainPackets<K> {
    fn new(table: &FlowTable<K, Connection>) -> Self {
        PlainPackets { keys: [table.prepare(K::default()); BURST], positions: [0; BURST], sides: 0, n: 0 }
    }

    /// Stores packet number `at` of the batch as the `n`th plain packet and returns the bit of its side.
    #[inline(always)]
    fn push(&mut self, table: &FlowTable<K, Connection>, key: K, at: usize, n: usize) -> u64 {
        let (key, side) = key.normalize();
        let n = n & (BURST - 1);
        (self.keys[n], self.positions[n]) = (table.prepare(key), at as u8);
        (side as u64) << n
    }

    /// Passes each packet to its connection. The transport header is at offset `upper`.
    #[inline(always)]
    fn look_up(
        &mut self,
        table: &mut FlowTable<K, Connection>,
        packets: &[Packet],
        upper: usize,
        loose: bool,
        now: u32,
    ) -> LookupMasks {
        let (n, sides) = (core::mem::take(&mut self.n).min(BURST), core::mem::take(&mut self.sides));
        let mut masks = LookupMasks::default();
        let positions = &self.positions;
        let absent = table.look_up(
            &self.keys[..n],
            now,
            #[inline(always)]
            |i, connection| {
                let at = usize::from(positions[i & (BURST - 1)]) & (BURST - 1);
                let side = (sides >> i & 1) as usize;
                let bit = 1 << at;
                let frame = packets[at].data();
                let outcome = match plain_segment(frame, upper) {
                    // packets of a connection are processed in order
                    Some(segment) if segment.flags & (FIN | SYN | RST | ACK) != ACK => match verified_segment(frame) {
                        Some(segment) => match connection.segment(side, &segment) {
                            // the SYN may be the first packet of a new connection
                            Outcome::OutOfWindow if segment.flags & SYN != 0 => Outcome::Resync,
                            other => other,
                        },
                        None => Outcome::Reopen,
                    },
                    Some(segment) => connection.segment(side, &segment),
                    None => {
                        connection.packet(side);
                        Outcome::Pass
                    }
                };
                match outcome {
                    Outcome::Pass => {}
                    Outcome::OutOfWindow => masks.out_of_window |= bit,
                    Outcome::OutOfState => masks.out_of_state |= bit,
                    Outcome::Reopen | Outcome::Resync => masks.slow |= bit,
                }
            },
        );
        for_each_bit(absent, |i| {
            let at = usize::from(positions[i]) & (BURST - 1);
            masks.slow |= 1 << at;
            let begins = |segment: &Segment| Connection::from_first_segment(segment, 0, loose).is_some();
            if plain_segment(packets[at].data(), upper).is_some_and(|segment| !begins(&segment)) {
                masks.unconnected |= 1 << at;
            }
        });
        masks
    }
}

/// Returns the TCP segment of a plain packet.
#[inline(always)]
fn plain_segment(frame: &[u8], upper: usize) -> Option<Segment> {
    let (protocol, len) = if upper == IPV4_L4_OFFSET { (23, 16) } else { (20, 18) };
    let h = frame.get(..upper + 16)?;
    if h[protocol] != IpProtocol::TCP.0 {
        return None;
    }
    let half = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    let word = |at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    let fixed = if upper == IPV4_L4_OFFSET { 20 } else { 0 };
    let header = fixed + u32::from(h[upper + 12] >> 4) * 4;
    Some(Segment {
        seq: word(upper + 4),
        ack: word(upper + 8),
        flags: h[upper + 13],
        window: half(upper + 14),
        len: u32::from(half(len)).wrapping_sub(header),
        scale: None,
    })
}

/// Returns a control segment if its checksum is valid: a segment that the receiving host ignores must not change the
/// state.
#[cold]
fn verified_segment(frame: &[u8]) -> Option<Segment> {
    match packet::parse(frame).ok()?.content {
        Content::Tcp { segment, .. } => Some(segment),
        _ => None,
    }
}

/// Returns true if a TCP header's data offset is possible for `bytes` bytes from its start.
#[inline(always)]
fn is_valid_tcp_header(offset: u8, bytes: usize) -> bool {
    let header = usize::from(offset >> 4) * 4;
    header >= 20 && header <= bytes
}

/// Returns the flow of an untagged, unfragmented TCP or UDP packet over IPv4 without options.
#[inline(always)]
fn plain_ipv4_tuple(frame: &[u8]) -> Option<Tuple4> {
    let h = frame.first_chunk::<IPV4_PLAIN_LEN>()?;
    let total = usize::from(u16::from_be_bytes([h[16], h[17]]));
    let not_plain = plain_ipv4_mismatch(h.first_chunk().expect("50 bytes"));
    let upper = total.wrapping_sub(20);
    if not_plain != 0 || total > frame.len() - 14 || upper > 0xffff {
        return None;
    }
    let plain = match IpProtocol(h[23]) {
        IpProtocol::TCP => is_valid_tcp_header(h[46], upper),
        IpProtocol::UDP => upper >= 8,
        _ => false,
    };
    plain.then(|| Tuple4::of_wire(h[26..].first_chunk().expect("50 bytes"), h[23]))
}

/// Returns the flow of an untagged TCP or UDP packet over IPv6 without extension headers.
#[inline(always)]
fn plain_ipv6_tuple(frame: &[u8]) -> Option<Tuple6> {
    let h = frame.first_chunk::<IPV6_PLAIN_LEN>()?;
    let upper = usize::from(u16::from_be_bytes([h[18], h[19]]));
    if h[12..14] != EtherType::IPV6.0.to_be_bytes() || h[14] >> 4 != 6 || upper > frame.len() - IPV6_L4_OFFSET {
        return None;
    }
    let plain = match IpProtocol(h[20]) {
        IpProtocol::TCP => is_valid_tcp_header(h[66], upper),
        IpProtocol::UDP => upper >= 8,
        _ => false,
    };
    let address = |at: usize| u128::from_be_bytes(*h[at..].first_chunk().expect("70 bytes"));
    let port = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    plain.then(|| Tuple6::new(address(22), address(38), port(54), port(56), h[20]))
}

impl StatefulNode {
    pub(super) fn new(live: Arc<LiveRules>, conntrack: Conntrack, other: Action) -> Self {
        let change_counters = Counters::<ChangeCounter>::default();
        let own = conntrack.counters().into_iter().chain(change_counters.named()).collect();
        let (mailbox, rules) = updates::attach(&live, own);
        let (v4, v6) = (PlainPackets::new(&conntrack.v4.table), PlainPackets::new(&conntrack.v6.table));
        StatefulNode { rules, mailbox, live, change_counters, other, conntrack, v4, v6, queue: FragmentQueue::new() }
    }

    /// Evaluates the rules for a state other than new; `otherwise` is the result if none matches.
    fn evaluate_state(&self, state: PacketState, key: &PacketKey, otherwise: Option<DropReason>) -> Option<DropReason> {
        match self.rules.evaluate(state, key) {
            None => otherwise,
            Some(true) => Some(DropReason::Denied),
            Some(false) => None,
        }
    }

    /// Evaluates the rules for the first packet of a connection.
    fn evaluate_new(&self, key: &PacketKey) -> Option<DropReason> {
        match self.rules.evaluate(PacketState::New, key) {
            None => self.rules.apply_default().then_some(DropReason::DeniedByDefault),
            Some(drop) => drop.then_some(DropReason::Denied),
        }
    }

    /// Returns the drop reason of any packet, or `None` if it passes.
    #[inline(never)]
    fn classify(&mut self, frame: &[u8], now: u32) -> Option<DropReason> {
        let key = match key::parse(frame) {
            FrameKey::V4(key) => PacketKey::V4(key),
            FrameKey::V6(key) => PacketKey::V6(key),
            FrameKey::Other => return (self.other == Action::Drop).then_some(DropReason::NotIp),
            FrameKey::Malformed => return Some(DropReason::MalformedIp),
            FrameKey::TinyFragment => return Some(DropReason::TinyFragment),
        };
        let packet = match packet::parse(frame) {
            Ok(packet) => packet,
            Err(PacketError::Header) => return Some(DropReason::MalformedL4),
            Err(PacketError::Checksum) => return Some(DropReason::BadChecksum),
        };
        let dropped = self.track(&packet, &key, now);
        if dropped.is_none()
            && let Some(fragment) = packet.fragment.filter(|fragment| fragment.offset == 0)
        {
            let base = match &packet.content {
                Content::Tcp { segment, header } => Some(segment.seq.wrapping_sub(*header)),
                _ => None,
            };
            self.conntrack.remember_first_fragment(&packet.tuple, fragment, base, now);
            if let Some(datagram) = datagram_key(&packet) {
                self.queue.mark_arrived(datagram);
            }
        }
        dropped
    }

    fn track(&mut self, packet: &TrackedPacket<'_>, key: &PacketKey, now: u32) -> Option<DropReason> {
        let tuple = &packet.tuple;
        match &packet.content {
            Content::LaterFragment => {
                let follows = packet
                    .fragment
                    .is_some_and(|fragment| self.conntrack.match_fragment(tuple, fragment, packet.len, now));
                if follows {
                    None
                } else {
                    self.evaluate_state(PacketState::Invalid, key, Some(DropReason::NoFirstFragment))
                }
            }
            Content::IcmpError(quoted) => {
                if self.is_related(tuple, quoted) {
                    self.evaluate_state(PacketState::Related, key, None)
                } else {
                    self.evaluate_state(PacketState::Invalid, key, Some(DropReason::UnrelatedIcmp))
                }
            }
            Content::OtherIcmp => self.evaluate_new(key),
            // such segments are small and never fragmented, and their checksum cannot be verified in fragments
            Content::Tcp { segment, .. } if packet.fragment.is_some() && segment.flags & (SYN | RST) != 0 => {
                self.evaluate_state(PacketState::Invalid, key, Some(DropReason::OutOfState))
            }
            Content::Tcp { segment, .. } => {
                match self.conntrack.update(tuple, now, |connection, side| connection.segment(side, segment)) {
                    Some(Outcome::Pass) => self.evaluate_state(PacketState::Established, key, None),
                    Some(Outcome::Resync) => {
                        self.conntrack.remember_syn(tuple, segment, now);
                        self.evaluate_state(PacketState::Established, key, None)
                    }
                    Some(Outcome::OutOfWindow)
                        if segment.flags & (FIN | SYN | RST | ACK) == SYN | ACK
                            && self.conntrack.resume_after_restart(tuple, segment, now) =>
                    {
                        self.evaluate_state(PacketState::Established, key, None)
                    }
                    Some(Outcome::OutOfWindow) => {
                        self.evaluate_state(PacketState::Invalid, key, Some(DropReason::OutOfWindow))
                    }
                    Some(Outcome::OutOfState) => {
                        self.evaluate_state(PacketState::Invalid, key, Some(DropReason::OutOfState))
                    }
                    Some(Outcome::Reopen) | None => {
                        let loose = self.conntrack.loose;
                        match Connection::from_first_segment(segment, 0, loose) {
                            Some(_) => self.create(tuple, key, now, |side| {
                                Connection::from_first_segment(segment, side, loose).unwrap_or_default()
                            }),
                            None => self.evaluate_state(PacketState::Invalid, key, Some(DropReason::NoConnection)),
                        }
                    }
                }
            }
            &Content::Flow(state, first) => {
                let fit = |connection: &mut Connection, side| {
                    let fits = state != State::Query || first == (side == connection.originator());
                    if fits {
                        connection.packet(side);
                    }
                    fits
                };
                let known = self.conntrack.update(tuple, now, fit);
                match known {
                    Some(true) => self.evaluate_state(PacketState::Established, key, None),
                    None if first => self.create(tuple, key, now, |side| Connection::new(state, side)),
                    _ => self.evaluate_state(PacketState::Invalid, key, Some(DropReason::NoConnection)),
                }
            }
        }
    }

    /// Creates a connection if the rules accept its first packet.
    fn create(
        &mut self,
        tuple: &FiveTuple,
        key: &PacketKey,
        now: u32,
        new: impl FnOnce(usize) -> Connection,
    ) -> Option<DropReason> {
        self.evaluate_new(key).or_else(|| match self.conntrack.insert(tuple, now, new) {
            Insertion::Inserted => None,
            Insertion::TableFull => Some(DropReason::TableFull),
        })
    }

    /// Returns true if an ICMP error quotes a packet of a known connection and is sent to the source of that packet.
    fn is_related(&self, outer: &FiveTuple, quoted: &[u8]) -> bool {
        packet::parse_quoted(quoted, outer.src.is_ipv4()).is_some_and(|quoted| {
            quoted.tuple.src == outer.dst
                && self
                    .conntrack
                    .peek(&quoted.tuple)
                    .is_some_and(|(connection, side)| quoted.seq.is_none_or(|seq| connection.has_sent(side, seq)))
        })
    }

    /// Processes the packets that the fast path left, and drops packets.
    #[inline(never)]
    fn process_slow(&mut self, cx: &mut Context<'_>, batch: &mut Batch, slow: u64, masks: [&LookupMasks; 2], now: u32) {
        let mut reasons = [DropReason::Denied; BURST];
        let mut dropped = 0u64;
        let has_established = self.rules.has_rules(PacketState::Established);
        let window = masks[0].out_of_window | masks[1].out_of_window;
        let state = masks[0].out_of_state | masks[1].out_of_state;
        let unconnected = masks[0].unconnected | masks[1].unconnected;
        let (packets, all) = (batch.as_slice(), batch.mask());
        let mut judge = |mask: u64, verdict: &mut dyn FnMut(usize, &[u8]) -> Option<DropReason>| {
            for_each_bit(mask, |at| {
                if let Some(reason) = packets.get(at).and_then(|packet| verdict(at, packet.data())) {
                    dropped |= 1 << at;
                    reasons[at] = reason;
                }
            });
        };
        // class by class, as the class of the next packet is unpredictable under attack
        let inserted = self.conntrack.inserted();
        judge(slow, &mut |at, frame| {
            // unless a packet before it has begun the connection
            if unconnected >> at & 1 != 0 && self.conntrack.inserted() == inserted {
                self.evaluate_plain(PacketState::Invalid, frame, Some(DropReason::NoConnection))
            } else {
                self.classify(frame, now)
            }
        });
        judge(window, &mut |_, frame| self.evaluate_plain(PacketState::Invalid, frame, Some(DropReason::OutOfWindow)));
        judge(state, &mut |_, frame| self.evaluate_plain(PacketState::Invalid, frame, Some(DropReason::OutOfState)));
        if has_established {
            let others = all & !(slow | window | state);
            judge(others, &mut |_, frame| self.evaluate_plain(PacketState::Established, frame, None));
        }
        if dropped != 0 {
            let (path, since) = (cx.path(), cx.now());
            batch.extract_mask(dropped, |at, packet| {
                self.drop_or_hold(cx, reasons[at & (BURST - 1)], HeldFragment { path, input: 0, since, packet });
            });
        }
        for held in self.queue.take_ready(cx) {
            match self.classify(held.packet.data(), now) {
                None => cx.emit_on_path(held.path, 0, held.packet),
                Some(reason) => self.drop_or_hold(cx, reason, held),
            }
        }
    }

    /// Drops a packet, or holds a fragment whose first fragment may still arrive.
    fn drop_or_hold(&mut self, cx: &mut Context<'_>, reason: DropReason, held: HeldFragment) {
        let datagram = match reason {
            DropReason::NoFirstFragment => packet::parse(held.packet.data()).ok().as_ref().and_then(datagram_key),
            _ => None,
        };
        let packet = match datagram {
            Some(datagram) => self.queue.hold(cx, held, datagram).err(),
            None => Some(held.packet),
        };
        if let Some(packet) = packet {
            cx.drop(reason, packet);
        }
    }

    /// Evaluates the rules for a state on a plain packet.
    fn evaluate_plain(&self, state: PacketState, frame: &[u8], otherwise: Option<DropReason>) -> Option<DropReason> {
        if !self.rules.has_rules(state) {
            return otherwise;
        }
        match key::parse(frame) {
            FrameKey::V4(key) => self.evaluate_state(state, &PacketKey::V4(key), otherwise),
            FrameKey::V6(key) => self.evaluate_state(state, &PacketKey::V6(key), otherwise),
            _ => otherwise,
        }
    }
}

impl Node for StatefulNode {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.rules.counters.clone().unwrap_or_default()
    }

    fn gauges(&self) -> Vec<&'static str> {
        Conntrack::gauges()
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.conntrack.bounded_tables()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        self.mailbox.receive(&mut self.rules, cx);
        let now = Conntrack::clock(cx.now());
        let mut at = 0;
        let (v4, v6, conntrack) = (&mut self.v4, &mut self.v6, &mut self.conntrack);
        let (mut n, mut sides, mut not_plain) = (0, 0, 0u64);
        batch.for_each(
            #[inline(always)]
            |packet| {
                let frame = packet.data();
                match plain_ipv4_tuple(frame) {
                    Some(key) => {
                        sides |= v4.push(&conntrack.v4.table, key, at, n);
                        n += 1;
                    }
                    None => match plain_ipv6_tuple(frame) {
                        Some(key) => {
                            v6.sides |= v6.push(&conntrack.v6.table, key, at, v6.n);
                            v6.n += 1;
                        }
                        None => not_plain |= 1 << at,
                    },
                }
                at += 1;
            },
        );
        (v4.n, v4.sides) = (n, sides);
        let (packets, loose) = (batch.as_slice(), conntrack.loose);
        let masks4 = v4.look_up(&mut conntrack.v4.table, packets, IPV4_L4_OFFSET, loose, now);
        let masks6 = if v6.n != 0 {
            v6.look_up(&mut conntrack.v6.table, packets, IPV6_L4_OFFSET, loose, now)
        } else {
            LookupMasks::default()
        };
        let slow = not_plain | masks4.slow | masks6.slow;
        let invalid = masks4.out_of_window | masks4.out_of_state | masks6.out_of_window | masks6.out_of_state;
        if slow | invalid != 0 || self.rules.has_rules(PacketState::Established) {
            self.process_slow(cx, batch, slow, [&masks4, &masks6], now);
        }
    }

    fn take_over(&mut self, old: &mut dyn Any) {
        let Some(old) = old.downcast_mut::<StatefulNode>() else { return };
        self.conntrack.take_over(&mut old.conntrack);
        core::mem::swap(&mut self.queue, &mut old.queue);
    }

    fn save(&mut self, state: &mut StateWriter) {
        self.conntrack.save(state);
    }

    fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        self.conntrack.restore(state)
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.conntrack.age(Conntrack::clock(cx.now()));
        self.queue.drop_expired(cx, DropReason::NoFirstFragment);
        self.mailbox.receive(&mut self.rules, cx);
        let (changed, rejected) = self.live.change_counts();
        self.change_counters[ChangeCounter::Changed].set(changed);
        self.change_counters[ChangeCounter::Rejected].set(rejected);
    }

    fn finish(&mut self) {
        self.conntrack.publish();
    }
}
