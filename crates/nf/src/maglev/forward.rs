//! Fast path: forwarding of plain IPv4 packets to backends, and of their replies.

use super::balancer::{AGEING_INTERVAL, Balancer, Burst};
use super::connection::Connection;
use super::counters::{CounterId, DropReason};
use super::destination::{Destination, ForwardAction, OUTER4, OUTER4_GRE};
use super::headers::parse;
use super::rewrite::{l3dsr4, nat4, reply4, tunnel4};
use super::settings::Unmatched;
use super::slow_path::datagram_key;
use crate::bits::for_each_bit;
use crate::fragment_queue::HeldFragment;
use graph::{BoundedTable, Context, Counter, InvalidState, Named, Node, StateReader, StateWriter, StatsTable};
use packet::{BURST, Batch, Packet};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{Lookup, Tuple4};
use wire::{Ethernet, IpProtocol};

impl Balancer {
    /// Looks up the connections of the first `n` packets of the burst and forwards them. Returns the mask of packets
    /// that were not forwarded, because their backend is down or they need another tunnel.
    #[inline(always)]
    fn forward_burst(&mut self, n: usize, now: u32, batch: &mut Batch, drops: &mut Drops) -> u64 {
        let Burst { keys, vips, positions, destinations: chosen } = &mut *self.burst;
        let (snapshot, services, seed, counters) = (&self.snapshot, &self.services, &self.seed, &self.counters);
        let choose = |at: usize| Self::choose(snapshot, services, seed, vips[at], &keys[at].key());
        let (destinations, id, mtu) = (&mut self.destinations, self.id, self.mtu);
        self.id = id.wrapping_add(n as u16);
        let packets = batch.as_mut_slice();
        let mut unsent = 0;
        self.v4.look_up_or_insert(
            &keys[..n],
            now,
            |_, _| {},
            #[inline(always)]
            |at, found| {
                let at = at & (BURST - 1);
                let connection = match found {
                    Lookup::Known(connection) => *connection,
                    Lookup::New(connection) => {
                        *connection = choose(at);
                        counters[CounterId::New].add(1);
                        *connection
                    }
                    Lookup::Refused => {
                        counters[CounterId::TableFull].add(1);
                        choose(at)
                    }
                };
                let position = usize::from(positions[at]);
                let (Some(packet), Some(to)) = (packets.get_mut(position), connection.find_mut(destinations)) else {
                    chosen[at] = connection;
                    unsent |= 1 << at;
                    return;
                };
                match forward4(packet, to, id.wrapping_add(at as u16 + 1), mtu) {
                    Forwarded::Sent => {}
                    Forwarded::Dropped(reason) => drops.add(position, reason),
                    Forwarded::NotSent => {
                        chosen[at] = connection;
                        unsent |= 1 << at;
                    }
                }
            },
        );
        unsent
    }

    /// Forwards the packets that [`forward_burst`](Self::forward_burst) did not forward.
    #[cold]
    #[inline(never)]
    fn forward_unsent(&mut self, unsent: u64, now: u32, batch: &mut Batch, drops: &mut Drops) {
        for_each_bit(unsent, |at| {
            let mut connection = self.burst.destinations[at];
            if !self.is_available(connection) {
                connection = self.move_connection(at, now);
            }
            let position = usize::from(self.burst.positions[at]);
            if let Some(packet) = batch.as_mut_slice().get_mut(position)
                && let Err(reason) = self.send(packet, None, connection)
            {
                drops.add(position, reason);
            }
        });
    }

    /// Moves a connection whose backend is down or has been removed to another destination, which is returned.
    #[cold]
    #[inline(never)]
    fn move_connection(&mut self, at: usize, now: u32) -> Connection {
        let (key, vip) = (self.burst.keys[at], self.burst.vips[at]);
        let chosen = self.choose_now(vip, &key.key());
        let (old, counters) = (self.burst.destinations[at], &self.counters);
        self.v4.look_up(&[key], now, |_, connection| {
            // unless an earlier packet of this burst has moved the connection
            if *connection != chosen && old != Connection::NONE {
                counters[CounterId::Moved].add(1);
            }
            *connection = chosen;
        });
        chosen
    }

    /// Processes packets from clients.
    fn process_requests(&mut self, cx: &mut Context<'_>, batch: &mut Batch) {
        let (mut not_plain, mut at, mut n, mut unmatched) = (0u64, 0, 0, 0u64);
        let Burst { keys, vips, positions, .. } = &mut *self.burst;
        let (table, services) = (&self.v4, &self.services);
        batch.for_each(
            #[inline(always)]
            |packet| {
                match plain4(packet.data()) {
                    Some(plain) => match services.vips4.get(plain.dst) {
                        Some(vip) => {
                            let slot = n & (BURST - 1);
                            keys[slot] = table.prepare(plain.tuple);
                            vips[slot] = vip;
                            positions[slot] = at as u8;
                            n += 1;
                        }
                        None => unmatched |= 1 << at,
                    },
                    None => not_plain |= 1 << at,
                }
                at += 1;
            },
        );
        let now = self.clock(cx);
        let mut drops = Drops::default();
        let unsent = self.forward_burst(n, now, batch, &mut drops);
        if unsent != 0 {
            self.forward_unsent(unsent, now, batch, &mut drops);
        }
        if not_plain | unmatched != 0 {
            self.counters[CounterId::Unmatched].add(unmatched.count_ones().into());
            if self.unmatched == Unmatched::Drop {
                for_each_bit(unmatched, |at| drops.add(at, DropReason::NoService));
            }
            for_each_bit(not_plain, |at| {
                if let Err(reason) = self.process_request(&mut batch.as_mut_slice()[at], now) {
                    drops.add(at, reason);
                }
            });
        }
        self.drop_packets(cx, batch, &drops);
        for mut held in self.fragment_queue.take_ready(cx) {
            match self.process_request(&mut held.packet, now) {
                Ok(()) => cx.emit_on_path(held.path, 0, held.packet),
                Err(reason) => self.drop_or_hold(cx, reason, held),
            }
        }
    }

    /// Removes the dropped packets from a batch.
    #[inline(always)]
    fn drop_packets(&mut self, cx: &mut Context<'_>, batch: &mut Batch, drops: &Drops) {
        if drops.packets != 0 {
            let (path, since) = (cx.path(), cx.now());
            batch.extract_mask(drops.packets, |at, packet| {
                let packet = HeldFragment { path, input: 0, since, packet };
                self.drop_or_hold(cx, drops.reasons[at & (BURST - 1)], packet);
            });
        }
    }

    /// Drops a packet, or holds it if it is a fragment whose first fragment may still be received.
    fn drop_or_hold(&mut self, cx: &mut Context<'_>, reason: DropReason, fragment: HeldFragment) {
        let parsed = (reason == DropReason::UnknownFragment).then(|| parse(fragment.packet.data()));
        let packet = match parsed.flatten() {
            Some(parsed) => self.fragment_queue.hold(cx, fragment, datagram_key(&parsed)).err(),
            None => Some(fragment.packet),
        };
        if let Some(packet) = packet {
            cx.drop(reason, packet);
        }
    }

    /// Processes packets from backends.
    fn process_replies(&mut self, cx: &mut Context<'_>, batch: &mut Batch) {
        let (mut not_plain, mut at, mut replies) = (0u64, 0, 0);
        let services = &self.services;
        batch.for_each(
            #[inline(always)]
            |packet| {
                let frame = packet.data_mut();
                match plain4(frame) {
                    Some(plain) => {
                        if let Some(reply) = services.replies4.get(plain.src) {
                            reply4(frame, &services.reply_rewrites[reply as usize]);
                            replies += 1;
                        }
                    }
                    None => not_plain |= 1 << at,
                }
                at += 1;
            },
        );
        self.counters[CounterId::Replies].add(replies);
        let (now, mut drops) = (self.clock(cx), Drops::default());
        for_each_bit(not_plain, |at| {
            if let Err(reason) = self.process_reply(&mut batch.as_mut_slice()[at], now) {
                drops.add(at, reason);
            }
        });
        self.drop_packets(cx, batch, &drops);
    }
}

/// Result of forwarding a packet.
enum Forwarded {
    Sent,
    Dropped(DropReason),
    /// The backend is down, or the tunnel is not one of the fast path.
    NotSent,
}

/// Forwards a plain packet; `id` is the identification of an outer IPv4 header.
#[inline(always)]
fn forward4(packet: &mut Packet, to: &mut Destination, id: u16, mtu: u16) -> Forwarded {
    let result = match to.action {
        ForwardAction::Nat => {
            nat4(packet.data_mut(), to);
            Ok(())
        }
        ForwardAction::L3dsr => {
            l3dsr4(packet.data_mut(), to);
            Ok(())
        }
        ForwardAction::Ipip4 => tunnel4::<OUTER4>(packet, to, id, mtu),
        ForwardAction::Gre4 => tunnel4::<OUTER4_GRE>(packet, to, id, mtu),
        ForwardAction::Tunnel | ForwardAction::Down => return Forwarded::NotSent,
    };
    to.packets += 1;
    match result {
        Ok(()) => Forwarded::Sent,
        Err(reason) => Forwarded::Dropped(reason),
    }
}

/// Packets of a batch that are dropped.
struct Drops {
    /// Mask of the packets.
    packets: u64,
    reasons: [DropReason; BURST],
}

impl Default for Drops {
    fn default() -> Self {
        Drops { packets: 0, reasons: [DropReason::NoBackend; BURST] }
    }
}

impl Drops {
    fn add(&mut self, at: usize, reason: DropReason) {
        self.packets |= 1 << at;
        self.reasons[at & (BURST - 1)] = reason;
    }
}

/// Bytes of the headers of the shortest plain packet: Ethernet, IPv4, UDP.
const PLAIN_LEN: usize = 42;

/// Keys of a plain packet: untagged TCP or UDP over IPv4 without options, not fragmented, with complete headers.
struct Plain {
    tuple: Tuple4,
    /// Keys of source and destination, as of [`endpoint_key`](super::destination::endpoint_key).
    src: u64,
    dst: u64,
}

/// Returns the keys of a frame if it is a plain packet.
#[inline(always)]
fn plain4(frame: &[u8]) -> Option<Plain> {
    let h = frame.first_chunk::<PLAIN_LEN>()?;
    let word = |at: usize| u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    // EtherType, version and header length, type of service
    let first = word(12);
    // flags and fragment offset, time to live, protocol
    let second = word(20);
    // "don't fragment" is the only flag that may be set
    let not_plain = ((first & 0x00ff_ffff) ^ 0x0045_0008) | second & 0xff3f;
    let total = u32::from(u16::from_be_bytes([h[16], h[17]]));
    let protocol = (second >> 24) as u8;
    let total_min = match IpProtocol(protocol) {
        IpProtocol::TCP => 40,
        IpProtocol::UDP => 28,
        _ => return None,
    };
    if not_plain != 0 || total < total_min || total as usize + size_of::<Ethernet>() > frame.len() {
        return None;
    }
    let (addresses, ports) = (u64::from(word(26)) | u64::from(word(30)) << 32, u64::from(word(34)));
    let ports_and_protocol = u64::from(protocol) << 32 | ports;
    let src = (addresses & 0xffff_ffff) | (ports & 0xffff) << 32 | u64::from(protocol) << 48;
    let dst = addresses >> 32 | (ports_and_protocol & !0xffff) << 16;
    Some(Plain { tuple: Tuple4::of_wire(h[26..].first_chunk()?, protocol), src, dst })
}

impl Node for Balancer {
    fn drops(&self) -> &[&'static str] {
        DropReason::NAMES
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.counters.named()
    }

    fn gauges(&self) -> Vec<&'static str> {
        vec![CounterId::Connections.name(), CounterId::BackendsUp.name()]
    }

    fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.bounded_tables.clone()
    }

    fn process(&mut self, cx: &mut Context<'_>, input: u8, batch: &mut Batch) {
        if self.is_stale() {
            self.update();
        }
        if input == 0 {
            self.process_requests(cx, batch);
        } else {
            self.process_replies(cx, batch);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(AGEING_INTERVAL)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        if self.is_stale() {
            self.update();
        }
        if let Ok(visit) = self.visits.try_recv() {
            visit(self, cx.now());
        }
        let now = self.clock(cx);
        self.age_connections(now);
        self.fragment_queue.drop_expired(cx, DropReason::UnknownFragment);
        self.count_connections();
        // the table of backends takes longer to build
        if cx.now().as_millis().is_multiple_of(1000) {
            self.publish();
        }
    }

    fn stats_table(&self) -> Option<Arc<StatsTable>> {
        Some(self.stats_table.clone())
    }

    fn take_over(&mut self, old: &mut dyn Any) {
        if let Some(old) = old.downcast_mut::<Balancer>() {
            self.take_over_connections(old);
        }
    }

    fn save(&mut self, state: &mut StateWriter) {
        self.save_connections(state);
    }

    fn restore(&mut self, state: &mut StateReader<'_>) -> Result<(), InvalidState> {
        self.restore_connections(state)
    }

    fn finish(&mut self) {
        self.publish();
    }
}
