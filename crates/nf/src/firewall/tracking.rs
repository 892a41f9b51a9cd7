//! The firewall that knows connections.

use super::connection::{ACK, Connection, FIN, Outcome, RST, SYN, Segment, State};
use super::key::{self, View};
use super::live::{Copy as Seat, Live};
use super::policy::{Class, Desk, Key};
use super::seen::{self, Seen, What, Wrong};
use super::track::{Inserted, Tracker, Version};
use super::{Action, DROPS, Reason};
use crate::fragments::{Waited, Waiting};
use core::net::IpAddr;
use core::time::Duration;
use graph::{Counter, Context, Node};
use packet::{BURST, Batch, Packet};
use std::sync::Arc;
use tables::FlowTable;
use tables::flow::{Prepared, Tuple4, Tuple6};
use wire::flow::FiveTuple;
use wire::{EtherType, IpProtocol};

/// How often a part of the tables is looked through.
const TICK: Duration = Duration::from_millis(1);

/// A firewall with a memory.
pub(super) struct Tracking {
    desk: Box<Desk>,
    seat: Arc<Seat>,
    live: Arc<Live>,
    rules: [Arc<Counter>; 2],
    other: Action,
    tracker: Tracker,
    v4: Ring<Tuple4>,
    v6: Ring<Tuple6>,
    waiting: Waiting<Datagram>,
}

/// What fragments of a datagram have in common: addresses, identification, and of IPv4 the protocol (RFC 791 §3.2, RFC 8200
/// §4.5).
type Datagram = (IpAddr, IpAddr, u32, u8);

/// Plain packets of a batch, of one IP version, whose connections are on their way from memory.
struct Ring<K> {
    keys: [Prepared<K>; BURST],
    /// Which packets they are.
    who: [u8; BURST],
    /// Which side has sent, a bit for each.
    sides: u32,
    n: usize,
}

/// What a look-up has said of packets, as bits.
#[derive(Default)]
struct Marks {
    found: u32,
    out_of_window: u32,
    out_of_state: u32,
}

/// Bytes that are looked at of a plain packet, up to the window of TCP.
const PLAIN4: usize = 50;
const PLAIN6: usize = 70;
/// Where the header behind IP begins.
const UPPER4: usize = 34;
const UPPER6: usize = 54;

fn datagram(seen: &Seen<'_>) -> Option<Datagram> {
    let FiveTuple { src, dst, protocol, .. } = seen.tuple;
    Some((src, dst, seen.piece?.id, if src.is_ipv4() { protocol.0 } else { 0 }))
}

impl<K: Version> Ring<K> {
    fn new(table: &FlowTable<K, Connection>) -> Self {
        Ring { keys: [table.prepare(K::default()); BURST], who: [0; BURST], sides: 0, n: 0 }
    }

    /// Keeps packet number `at` as the `n`th; the bit of the side that has sent it.
    #[inline(always)]
    fn put(&mut self, table: &FlowTable<K, Connection>, key: K, at: usize, n: usize) -> u32 {
        let (key, side) = key.sides();
        let n = n & (BURST - 1);
        (self.keys[n], self.who[n]) = (table.prepare(key), at as u8);
        (side as u32) << n
    }

    /// Has each connection take its packet. The upper header begins at `upper`.
    #[inline(always)]
    fn take(&mut self, table: &mut FlowTable<K, Connection>, packets: &[Packet], upper: usize, now: u32) -> Marks {
        let (n, sides) = (core::mem::take(&mut self.n).min(BURST), core::mem::take(&mut self.sides));
        let mut marks = Marks::default();
        let who = &self.who;
        table.look_up(
            &self.keys[..n],
            now,
            #[inline(always)]
            |i, connection| {
                let at = usize::from(who[i & (BURST - 1)]) & (BURST - 1);
                let side = (sides >> i & 1) as usize;
                let bit = 1 << at;
                let frame = packets[at].data();
                let outcome = match segment(frame, upper) {
                    // packets of a connection keep their order
                    Some(segment) if segment.flags & (FIN | SYN | RST | ACK) != ACK => match deed(frame) {
                        Some(segment) => match connection.segment(side, &segment) {
                            // it may be about one that is to come
                            Outcome::OutOfWindow if segment.flags & SYN != 0 => Outcome::Again,
                            other => other,
                        },
                        None => Outcome::Anew,
                    },
                    Some(segment) => connection.segment(side, &segment),
                    None => {
                        connection.packet(side);
                        Outcome::Pass
                    }
                };
                match outcome {
                    Outcome::Pass => {}
                    Outcome::OutOfWindow => marks.out_of_window |= bit,
                    Outcome::OutOfState => marks.out_of_state |= bit,
                    // as if it were not known
                    Outcome::Anew | Outcome::Again => return,
                }
                marks.found |= bit;
            },
        );
        marks
    }
}

/// The TCP segment of a plain packet.
#[inline(always)]
fn segment(frame: &[u8], upper: usize) -> Option<Segment> {
    let (protocol, len) = if upper == UPPER4 { (23, 16) } else { (20, 18) };
    let h = frame.get(..upper + 16)?;
    if h[protocol] != IpProtocol::TCP.0 {
        return None;
    }
    let half = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    let word = |at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    let fixed = if upper == UPPER4 { 20 } else { 0 };
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

/// A TCP segment that is more than an acknowledgement, if its checksum is right: it must not change what its host would not
/// look at.
#[cold]
fn deed(frame: &[u8]) -> Option<Segment> {
    match seen::see(frame).ok()?.what {
        What::Tcp { segment, .. } => Some(segment),
        _ => None,
    }
}

/// Whether a TCP header has a length that is possible with so many bytes from it on.
#[inline(always)]
fn is_tcp(offset: u8, bytes: usize) -> bool {
    let header = usize::from(offset >> 4) * 4;
    header >= 20 && header <= bytes
}

/// The flow of an untagged, unfragmented packet of TCP or UDP over IPv4 without options.
#[inline(always)]
fn plain4(frame: &[u8]) -> Option<Tuple4> {
    let h = frame.first_chunk::<PLAIN4>()?;
    let word = |at: usize| u32::from_le_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    let total = usize::from(u16::from_be_bytes([h[16], h[17]]));
    // EtherType, version and header length; of the flags only "don't fragment" may be set
    let odd = ((word(12) & 0x00ff_ffff) ^ 0x0045_0008) | word(20) & 0xffbf;
    let upper = total.wrapping_sub(20);
    if odd != 0 || total > frame.len() - 14 || upper > 0xffff {
        return None;
    }
    let plain = match IpProtocol(h[23]) {
        IpProtocol::TCP => is_tcp(h[46], upper),
        IpProtocol::UDP => upper >= 8,
        _ => false,
    };
    plain.then(|| Tuple4::of_wire(h[26..].first_chunk().expect("50 bytes"), h[23]))
}

/// The same over IPv6 without extension headers.
#[inline(always)]
fn plain6(frame: &[u8]) -> Option<Tuple6> {
    let h = frame.first_chunk::<PLAIN6>()?;
    let upper = usize::from(u16::from_be_bytes([h[18], h[19]]));
    if h[12..14] != EtherType::IPV6.0.to_be_bytes() || h[14] >> 4 != 6 || upper > frame.len() - UPPER6 {
        return None;
    }
    let plain = match IpProtocol(h[20]) {
        IpProtocol::TCP => is_tcp(h[66], upper),
        IpProtocol::UDP => upper >= 8,
        _ => false,
    };
    let address = |at: usize| u128::from_be_bytes(*h[at..].first_chunk().expect("70 bytes"));
    let port = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    plain.then(|| Tuple6::new(address(22), address(38), port(54), port(56), h[20]))
}

impl Tracking {
    pub(super) fn new(live: Arc<Live>, tracker: Tracker, other: Action) -> Self {
        let rules = [Arc::<Counter>::default(), Arc::default()];
        let mut own = tracker.tallies.list();
        own.push(("rules_changed".to_owned(), rules[0].clone()));
        own.push(("rules_refused".to_owned(), rules[1].clone()));
        let (seat, desk) = live.join(own);
        let (v4, v6) = (Ring::new(&tracker.v4.table), Ring::new(&tracker.v6.table));
        Tracking { desk, seat, live, rules, other, tracker, v4, v6, waiting: Waiting::new() }
    }

    /// What the rules for a class that has its own way say: whether that way is taken.
    fn passes(&self, class: Class, key: &Key, otherwise: Option<Reason>) -> Option<Reason> {
        match self.desk.ask(class, key) {
            None => otherwise,
            Some(true) => Some(Reason::Refused),
            Some(false) => None,
        }
    }

    /// What the rules say of a new packet.
    fn admits(&self, key: &Key) -> Option<Reason> {
        match self.desk.ask(Class::New, key) {
            None => self.desk.default_drops().then_some(Reason::Default),
            Some(drop) => drop.then_some(Reason::Refused),
        }
    }

    /// Any packet, by itself: why it is dropped, if it is.
    #[inline(never)]
    fn single(&mut self, frame: &[u8], now: u32) -> Option<Reason> {
        let key = match key::look(frame) {
            View::V4(key) => Key::V4(key),
            View::V6(key) => Key::V6(key),
            View::Other => return (self.other == Action::Drop).then_some(Reason::NotIp),
            View::Malformed => return Some(Reason::Malformed),
            View::TinyFragment => return Some(Reason::TinyFragment),
        };
        let seen = match seen::see(frame) {
            Ok(seen) => seen,
            Err(Wrong::Header) => return Some(Reason::MalformedUpper),
            Err(Wrong::Checksum) => return Some(Reason::BadChecksum),
        };
        let dropped = self.decide(&seen, &key, now);
        if dropped.is_none()
            && let Some(piece) = seen.piece.filter(|piece| piece.offset == 0)
        {
            let base = match &seen.what {
                What::Tcp { segment, header } => Some(segment.seq.wrapping_sub(*header)),
                _ => None,
            };
            self.tracker.lead(&seen.tuple, piece, base, now);
            if let Some(datagram) = datagram(&seen) {
                self.waiting.come(datagram);
            }
        }
        dropped
    }

    fn decide(&mut self, seen: &Seen<'_>, key: &Key, now: u32) -> Option<Reason> {
        let tuple = &seen.tuple;
        match &seen.what {
            What::Later => {
                let follows = seen.piece.is_some_and(|piece| self.tracker.follow(tuple, piece, seen.len, now));
                if follows { None } else { self.passes(Class::Invalid, key, Some(Reason::NoFirstFragment)) }
            }
            What::Error(quoted) => {
                if self.is_related(tuple, quoted) {
                    self.passes(Class::Related, key, None)
                } else {
                    self.passes(Class::Invalid, key, Some(Reason::UnrelatedIcmp))
                }
            }
            What::Message => self.admits(key),
            // nobody sends one in pieces, whose checksum is not known before all are there
            What::Tcp { segment, .. } if seen.piece.is_some() && segment.flags & (SYN | RST) != 0 => {
                self.passes(Class::Invalid, key, Some(Reason::OutOfState))
            }
            What::Tcp { segment, .. } => {
                match self.tracker.find(tuple, now, |connection, side| connection.segment(side, segment)) {
                    Some(Outcome::Pass) => self.passes(Class::Established, key, None),
                    Some(Outcome::Again) => {
                        self.tracker.note(tuple, segment, now);
                        self.passes(Class::Established, key, None)
                    }
                    Some(Outcome::OutOfWindow)
                        if segment.flags & (FIN | SYN | RST | ACK) == SYN | ACK
                            && self.tracker.resume(tuple, segment, now) =>
                    {
                        self.passes(Class::Established, key, None)
                    }
                    Some(Outcome::OutOfWindow) => self.passes(Class::Invalid, key, Some(Reason::OutOfWindow)),
                    Some(Outcome::OutOfState) => self.passes(Class::Invalid, key, Some(Reason::OutOfState)),
                    Some(Outcome::Anew) | None => {
                        let loose = self.tracker.loose;
                        match Connection::begun_by(segment, 0, loose) {
                            Some(_) => self.begin(tuple, key, now, |side| {
                                Connection::begun_by(segment, side, loose).unwrap_or_default()
                            }),
                            None => self.passes(Class::Invalid, key, Some(Reason::NotTracked)),
                        }
                    }
                }
            }
            &What::Flow(state, first) => {
                let fit = |connection: &mut Connection, side| {
                    let fits = state != State::Query || first == (side == connection.origin());
                    if fits {
                        connection.packet(side);
                    }
                    fits
                };
                let known = self.tracker.find(tuple, now, fit);
                match known {
                    Some(true) => self.passes(Class::Established, key, None),
                    None if first => self.begin(tuple, key, now, |side| Connection::begun(state, side)),
                    _ => self.passes(Class::Invalid, key, Some(Reason::NotTracked)),
                }
            }
        }
    }

    /// The first packet of a connection, if the rules let it.
    fn begin(
        &mut self,
        tuple: &FiveTuple,
        key: &Key,
        now: u32,
        new: impl FnOnce(usize) -> Connection,
    ) -> Option<Reason> {
        self.admits(key).or_else(|| match self.tracker.put(tuple, now, new) {
            Inserted::Yes => None,
            Inserted::Full => Some(Reason::TableFull),
        })
    }

    /// Whether an error message with these addresses is about a packet of a known connection, and goes to who sent that.
    fn is_related(&self, outer: &FiveTuple, quoted: &[u8]) -> bool {
        seen::about(quoted, outer.src.is_ipv4()).is_some_and(|about| {
            about.tuple.src == outer.dst
                && self
                    .tracker
                    .peek(&about.tuple)
                    .is_some_and(|(connection, side)| about.seq.is_none_or(|seq| connection.has_sent(side, seq)))
        })
    }

    /// Packets that need a closer look, and what is to be dropped.
    #[inline(never)]
    fn closer(&mut self, cx: &mut Context<'_>, batch: &mut Batch, rest: u32, marks: [&Marks; 2], now: u32) {
        let mut reasons = [Reason::Refused; BURST];
        let mut dropped = 0u32;
        let has_established = self.desk.has(Class::Established);
        let window = marks[0].out_of_window | marks[1].out_of_window;
        let state = marks[0].out_of_state | marks[1].out_of_state;
        for (at, (packet, reason)) in batch.as_slice().iter().zip(&mut reasons).enumerate() {
            let frame = packet.data();
            let is = |bits: u32| bits >> at & 1 != 0;
            let why = if is(rest) {
                self.single(frame, now)
            } else if is(window) {
                self.of(Class::Invalid, frame, Some(Reason::OutOfWindow))
            } else if is(state) {
                self.of(Class::Invalid, frame, Some(Reason::OutOfState))
            } else if has_established {
                self.of(Class::Established, frame, None)
            } else {
                None
            };
            dropped |= u32::from(why.is_some()) << at;
            *reason = why.unwrap_or(*reason);
        }
        if dropped != 0 {
            let (way, since) = (cx.path(), cx.now());
            batch.extract_mask(dropped, |at, packet| {
                self.dispose(cx, reasons[at & (BURST - 1)], Waited { way, input: 0, since, packet });
            });
        }
        for waited in self.waiting.ready(cx) {
            match self.single(waited.packet.data(), now) {
                None => cx.emit_from(waited.way, 0, waited.packet),
                Some(reason) => self.dispose(cx, reason, waited),
            }
        }
    }

    /// Drops a packet, but if it may follow a fragment that is to come.
    fn dispose(&mut self, cx: &mut Context<'_>, reason: Reason, it: Waited) {
        let waits = match reason {
            Reason::NoFirstFragment => seen::see(it.packet.data()).ok().as_ref().and_then(datagram),
            _ => None,
        };
        let packet = match waits {
            Some(datagram) => self.waiting.keep(cx, it, datagram).err(),
            None => Some(it.packet),
        };
        if let Some(packet) = packet {
            cx.drop(reason as u8, packet);
        }
    }

    /// What the rules for a class say of a plain packet.
    fn of(&self, class: Class, frame: &[u8], otherwise: Option<Reason>) -> Option<Reason> {
        if !self.desk.has(class) {
            return otherwise;
        }
        match key::look(frame) {
            View::V4(key) => self.passes(class, &Key::V4(key), otherwise),
            View::V6(key) => self.passes(class, &Key::V6(key), otherwise),
            _ => otherwise,
        }
    }
}

impl Node for Tracking {
    fn drops(&self) -> &[&'static str] {
        &DROPS
    }

    fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.desk.counters.clone().unwrap_or_default()
    }

    fn process(&mut self, cx: &mut Context<'_>, _: u8, batch: &mut Batch) {
        self.seat.renew(&mut self.desk, cx);
        let now = Tracker::clock(cx.now());
        let mut at = 0;
        let (v4, v6, tracker) = (&mut self.v4, &mut self.v6, &mut self.tracker);
        let (mut n, mut sides) = (0, 0);
        batch.for_each(
            #[inline(always)]
            |packet| {
                let frame = packet.data();
                match plain4(frame) {
                    Some(key) => {
                        sides |= v4.put(&tracker.v4.table, key, at, n);
                        n += 1;
                    }
                    None => {
                        if let Some(key) = plain6(frame) {
                            v6.sides |= v6.put(&tracker.v6.table, key, at, v6.n);
                            v6.n += 1;
                        }
                    }
                }
                at += 1;
            },
        );
        (v4.n, v4.sides) = (n, sides);
        let packets = batch.as_slice();
        let all = ((1u64 << packets.len()) - 1) as u32;
        let four = v4.take(&mut tracker.v4.table, packets, UPPER4, now);
        let six = if v6.n != 0 { v6.take(&mut tracker.v6.table, packets, UPPER6, now) } else { Marks::default() };
        let rest = all & !(four.found | six.found);
        let bad = four.out_of_window | four.out_of_state | six.out_of_window | six.out_of_state;
        if rest | bad != 0 || self.desk.has(Class::Established) {
            self.closer(cx, batch, rest, [&four, &six], now);
        }
    }

    fn interval(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_timer(&mut self, cx: &mut Context<'_>) {
        self.tracker.age(Tracker::clock(cx.now()));
        self.waiting.give_up(cx, Reason::NoFirstFragment as u8);
        if self.live.may_change() {
            self.live.runs();
            self.seat.renew(&mut self.desk, cx);
            let (changed, refused) = self.live.times();
            self.rules[0].set(changed);
            self.rules[1].set(refused);
        }
    }

    fn finish(&mut self) {
        self.tracker.show();
    }
}
