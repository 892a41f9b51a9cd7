//! What connections and fragments there are.

use super::connection::{Connection, Outcome, Segment, State};
use super::key::TMIN;
use super::seen::Piece;
use core::net::IpAddr;
use diagnostics::Diagnostic;
use graph::Counter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tables::flow::{
    CAPACITY_MOST, FlowKey, FlowTable, Found, Full as TableFull, Settings as TableSettings, Tuple4, Tuple6,
};
use wire::IpProtocol;
use wire::flow::FiveTuple;

/// Tracking of connections.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Track {
    /// Connections that are known at most, for each core and IP version; 64 bytes each with IPv4, 128 with IPv6.
    pub(super) connections: u32,
    /// What becomes of a new connection when there is no room: refuse (its packet is dropped) or evict (of the connections
    /// beside which it would stand, at most sixteen, the one idle longest is forgotten).
    pub(super) full: Full,
    /// Whether a TCP connection that was there before may be taken up in the midst, by the rules and without window checks.
    pub(super) loose: bool,
    /// Datagrams of which a first fragment has passed, that are remembered at most, for each core and IP version, so that the
    /// others follow it; beyond, one of the oldest gives way.
    pub(super) fragments: u32,
    /// Seconds for which a first fragment lets others follow.
    pub(super) fragment_time: u32,
    /// Seconds without a packet after which an open TCP connection is forgotten (RFC 5382 REQ-5: not less than 7,440).
    pub(super) tcp_established: u32,
    /// The same while it is being opened or closed (RFC 5382 REQ-5: not less than 240).
    pub(super) tcp_transitory: u32,
    /// The same once both sides have closed it, or one has reset it.
    pub(super) tcp_closed: u32,
    /// Seconds without a packet after which UDP and its like are forgotten, when both sides have sent (RFC 4787 REQ-5: 300).
    pub(super) udp: u32,
    /// The same when one side has.
    pub(super) udp_one_way: u32,
    /// The same for an ICMP request (RFC 5508 REQ-2: not less than 60).
    pub(super) icmp: u32,
    /// The same for protocols without ports, such as GRE and ESP.
    pub(super) other: u32,
}

impl Default for Track {
    fn default() -> Self {
        Track {
            connections: 65_536,
            full: Full::Refuse,
            loose: false,
            fragments: 1024,
            fragment_time: 30,
            tcp_established: 7440,
            tcp_transitory: 240,
            tcp_closed: 60,
            udp: 300,
            udp_one_way: 30,
            icmp: 60,
            other: 600,
        }
    }
}

/// What becomes of a new connection when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Full {
    /// It is refused.
    Refuse,
    /// The one that has been idle longest among its neighbours gives way.
    Evict,
}

/// Milliseconds of a unit of the tables' time, as a power of two: about a second, so that the time of a busy connection is
/// seldom written.
const UNIT: u32 = 10;
/// Longest time, seconds: the tables' clocks go twice as far.
const LONGEST: u32 = 2_000_000;
/// Hosts that have begun anew, of which as many are remembered at most.
const AGAIN: usize = 1024;
/// Passes over both tables take so many wakes of a millisecond.
const PARTS: usize = 4096;

/// Times without a packet, in units, by state.
pub(super) type Timers = [u32; 16];

impl Track {
    fn times(&self) -> [(&'static str, u32); 8] {
        [
            ("track.fragment_time", self.fragment_time),
            ("track.tcp_established", self.tcp_established),
            ("track.tcp_transitory", self.tcp_transitory),
            ("track.tcp_closed", self.tcp_closed),
            ("track.udp", self.udp),
            ("track.udp_one_way", self.udp_one_way),
            ("track.icmp", self.icmp),
            ("track.other", self.other),
        ]
    }

    fn timers(&self) -> Timers {
        let mut timers = [units(self.other); 16];
        let mut set = |states: &[State], seconds| states.iter().for_each(|s| timers[*s as usize] = units(seconds));
        set(&[State::SynSent, State::SynBoth, State::SynReceived], self.tcp_transitory);
        set(&[State::Fin0, State::Fin1, State::FinBoth], self.tcp_transitory);
        set(&[State::Established], self.tcp_established);
        set(&[State::Closed], self.tcp_closed);
        set(&[State::OneWay], self.udp_one_way);
        set(&[State::BothWays], self.udp);
        set(&[State::Query], self.icmp);
        timers
    }

    /// What is left of these where new connections find no room: those that nobody has answered, or that are over, may be
    /// idle for five seconds.
    fn pressed(&self) -> Timers {
        let mut timers = self.timers();
        for state in [State::SynSent, State::SynBoth, State::SynReceived, State::Closed, State::OneWay, State::Query] {
            let timer = &mut timers[state as usize];
            *timer = (*timer).min(units(5));
        }
        timers
    }

    pub(super) fn check(&self) -> Result<(), Diagnostic> {
        for (key, seconds) in self.times() {
            if seconds == 0 || seconds > LONGEST {
                let d = Diagnostic::new(format!("{key} is no time after which to forget something"))
                    .key("track")
                    .value(seconds);
                return Err(d.remedy(format!("write 1 to {LONGEST} seconds")));
            }
        }
        Ok(())
    }
}

/// Rounded up, and one more, so that nothing is forgotten too early.
fn units(seconds: u32) -> u32 {
    ((u64::from(seconds) * 1000).div_ceil(1 << UNIT) + 1) as u32
}

/// A first fragment that has passed.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct First {
    /// Of its connection.
    src_port: u16,
    dst_port: u16,
    protocol: u8,
    /// Of TCP, the sequence number that the datagram's first byte would have.
    base: Option<u32>,
}

/// A key of either IP version.
pub(super) trait Version: FlowKey + Default {
    fn of(tuple: &FiveTuple) -> Option<Self>;
    /// The same for both directions, and which side has sent.
    fn sides(self) -> (Self, usize);
}

impl Version for Tuple4 {
    fn of(t: &FiveTuple) -> Option<Self> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (t.src, t.dst) else { return None };
        Some(Self::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0))
    }

    #[inline(always)]
    fn sides(self) -> (Self, usize) {
        let (key, turned) = self.either();
        (key, turned.into())
    }
}

impl Version for Tuple6 {
    fn of(t: &FiveTuple) -> Option<Self> {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (t.src, t.dst) else { return None };
        Some(Self::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0))
    }

    #[inline(always)]
    fn sides(self) -> (Self, usize) {
        let (key, turned) = self.either();
        (key, turned.into())
    }
}

/// The connections and datagrams of one IP version.
pub(super) struct Half<K: FlowKey> {
    pub(super) table: FlowTable<K, Connection>,
    firsts: FlowTable<K, First>,
    /// SYNs in open connections, with the side that has sent each: there are few.
    again: FlowTable<K, Option<(usize, Segment)>>,
    /// Timers where there is no room, and how many connections they have ended.
    pressed: Timers,
    made_way: u64,
}

/// What an insertion did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Inserted {
    Yes,
    Full,
}

impl<K: Version> Half<K> {
    pub(super) fn new(track: &Track) -> Result<Self, Diagnostic> {
        let refused = |value: u32| {
            move |e: tables::flow::Error| {
                let remedy = format!("write 1 to {CAPACITY_MOST}, as far as memory goes");
                Diagnostic::new(e.to_string()).key("track").value(value).remedy(remedy)
            }
        };
        let full = if track.full == Full::Evict { TableFull::EvictOldest } else { TableFull::Refuse };
        let table = FlowTable::new(&TableSettings { full, ..TableSettings::new(track.connections as usize) })
            .map_err(refused(track.connections))?;
        let small = |capacity: usize| TableSettings {
            full: TableFull::EvictOldest,
            pages: tables::Pages::Ordinary,
            ..TableSettings::new(capacity)
        };
        let firsts = FlowTable::new(&small(track.fragments as usize)).map_err(refused(track.fragments))?;
        let again = FlowTable::new(&small(AGAIN)).map_err(refused(track.connections))?;
        Ok(Half { table, firsts, again, pressed: track.pressed(), made_way: 0 })
    }

    /// The connection of a tuple, which counts as seen, and the side that has sent.
    pub(super) fn find<T>(
        &mut self,
        tuple: &FiveTuple,
        now: u32,
        each: impl FnOnce(&mut Connection, usize) -> T,
    ) -> Option<T> {
        let (key, side) = K::of(tuple)?.sides();
        let key = self.table.prepare(key);
        let (mut each, mut found) = (Some(each), None);
        self.table.look_up(&[key], now, |_, connection| found = each.take().map(|each| each(connection, side)));
        found
    }

    /// Remembers a SYN in an open connection.
    pub(super) fn note(&mut self, tuple: &FiveTuple, segment: &Segment, now: u32) {
        let Some((key, side)) = K::of(tuple).map(K::sides) else { return };
        let key = self.again.prepare(key);
        self.again.look_up_or_insert(
            &[key],
            now,
            |_, _| {},
            |_, found| {
                if let Found::New(to) | Found::Known(to) = found {
                    *to = Some((side, *segment));
                }
            },
        );
    }

    /// Whether a SYN with an acknowledgement answers one that was remembered: then both hosts have begun anew, and the
    /// connection is theirs.
    pub(super) fn resume(&mut self, tuple: &FiveTuple, segment: &Segment, now: u32) -> bool {
        let Some((key, side)) = K::of(tuple).map(K::sides) else { return false };
        let Some(&Some((from, syn))) = self.again.get(&key) else { return false };
        let Some(mut new) = Connection::begun_by(&syn, from, false).filter(|_| from != side) else { return false };
        if new.segment(side, segment) != Outcome::Pass {
            return false;
        }
        self.again.remove(&key);
        self.find(tuple, now, |connection, _| *connection = new).is_some()
    }

    /// As [`find`](Self::find), and it does not count as seen.
    pub(super) fn peek(&self, tuple: &FiveTuple) -> Option<(Connection, usize)> {
        let (key, side) = K::of(tuple)?.sides();
        Some((*self.table.get(&key)?, side))
    }

    /// Puts a new connection in, or in the place of one that was closed.
    pub(super) fn put(&mut self, tuple: &FiveTuple, now: u32, new: impl FnOnce(usize) -> Connection) -> Inserted {
        /// Buckets that are looked through for each connection that finds no room.
        const LOOKED_AT: usize = 8;
        let Some((key, side)) = K::of(tuple).map(K::sides) else { return Inserted::Full };
        if self.table.len() >= self.table.capacity() {
            let pressed = &self.pressed;
            let over = |_: &K, c: &mut Connection, idle| idle >= pressed[c.state() as usize & 15];
            self.made_way += self.table.age(now, LOOKED_AT, over) as u64;
        }
        let (key, mut done) = (self.table.prepare(key), Inserted::Full);
        let mut new = Some(new);
        self.table.look_up_or_insert(
            &[key],
            now,
            |_, _| {},
            |_, found| {
                if let Found::New(connection) | Found::Known(connection) = found
                    && let Some(new) = new.take()
                {
                    *connection = new(side);
                    done = Inserted::Yes;
                }
            },
        );
        done
    }

    fn datagram(tuple: &FiveTuple, piece: Piece) -> Option<K> {
        let (src_port, dst_port) = ((piece.id >> 16) as u16, piece.id as u16);
        // IPv6 has no protocol in this (RFC 8200 §4.5): later fragments name the header behind, the first is walked through
        let protocol = if tuple.src.is_ipv6() { IpProtocol(44) } else { tuple.protocol };
        K::of(&FiveTuple { src_port, dst_port, protocol, ..*tuple })
    }

    /// Lets the other fragments of a datagram follow its first, whose TCP header, if it has one, says `base`.
    pub(super) fn lead(&mut self, tuple: &FiveTuple, piece: Piece, base: Option<u32>, now: u32) {
        let Some(key) = Self::datagram(tuple, piece) else { return };
        let first = First { src_port: tuple.src_port, dst_port: tuple.dst_port, protocol: tuple.protocol.0, base };
        let key = self.firsts.prepare(key);
        self.firsts.look_up_or_insert(
            &[key],
            now,
            |_, _| {},
            |_, found| {
                if let Found::New(to) | Found::Known(to) = found {
                    *to = first;
                }
            },
        );
    }

    /// Whether a later fragment of so many bytes follows a first one. Its connection counts as seen.
    pub(super) fn follow(&mut self, tuple: &FiveTuple, piece: Piece, len: u32, now: u32) -> bool {
        let first = Self::datagram(tuple, piece).and_then(|key| self.firsts.get(&key).copied());
        let Some(First { src_port, dst_port, protocol, base }) = first else { return false };
        let protocol = IpProtocol(protocol);
        // what it says itself need not be true (RFC 1858 §3)
        if protocol == IpProtocol::TCP && (piece.offset as usize) < TMIN {
            return false;
        }
        let extend = |connection: &mut Connection, side: usize| {
            if let Some(base) = base {
                connection.extend(side, base.wrapping_add(piece.offset).wrapping_add(len));
            }
        };
        self.find(&FiveTuple { src_port, dst_port, protocol, ..*tuple }, now, extend);
        true
    }

    /// Looks through a part of the tables for what is to be forgotten; how many connections that are.
    fn age(&mut self, now: u32, timers: &Timers, fragment: u32) -> usize {
        if !self.firsts.is_empty() {
            self.firsts.age(now, self.firsts.buckets().div_ceil(PARTS / 4), |_, _, idle| idle >= fragment);
        }
        if !self.again.is_empty() {
            self.again.age(now, self.again.buckets().div_ceil(PARTS / 4), |_, _, idle| idle >= fragment);
        }
        if self.table.is_empty() {
            return 0;
        }
        self.table.age(now, self.table.buckets().div_ceil(PARTS), |_, connection, idle| {
            idle >= timers[connection.state() as usize & 15]
        })
    }
}

/// What is counted of connections.
#[derive(Default)]
pub(super) struct Tallies {
    connections: Arc<Counter>,
    new: Arc<Counter>,
    forgotten: Arc<Counter>,
    evicted: Arc<Counter>,
    fragments: Arc<Counter>,
}

impl Tallies {
    pub(super) fn list(&self) -> Vec<(String, Arc<Counter>)> {
        Counter::named([
            ("connections", &self.connections),
            ("connections_new", &self.new),
            ("connections_forgotten", &self.forgotten),
            ("connections_evicted", &self.evicted),
            ("fragments_followed", &self.fragments),
        ])
    }
}

/// All connections and datagrams of one copy.
pub(super) struct Tracker {
    pub(super) v4: Half<Tuple4>,
    pub(super) v6: Half<Tuple6>,
    pub(super) loose: bool,
    timers: Timers,
    fragment: u32,
    pub(super) tallies: Tallies,
}

impl Tracker {
    pub(super) fn new(track: &Track) -> Result<Self, Diagnostic> {
        track.check()?;
        Ok(Tracker {
            v4: Half::new(track)?,
            v6: Half::new(track)?,
            loose: track.loose,
            timers: track.timers(),
            fragment: units(track.fragment_time),
            tallies: Tallies::default(),
        })
    }

    /// The tables' time.
    #[inline(always)]
    pub(super) fn clock(now: core::time::Duration) -> u32 {
        (now.as_millis() >> UNIT) as u32
    }

    pub(super) fn find<T>(
        &mut self,
        tuple: &FiveTuple,
        now: u32,
        each: impl FnOnce(&mut Connection, usize) -> T,
    ) -> Option<T> {
        if tuple.src.is_ipv4() { self.v4.find(tuple, now, each) } else { self.v6.find(tuple, now, each) }
    }

    pub(super) fn note(&mut self, tuple: &FiveTuple, segment: &Segment, now: u32) {
        if tuple.src.is_ipv4() { self.v4.note(tuple, segment, now) } else { self.v6.note(tuple, segment, now) }
    }

    pub(super) fn resume(&mut self, tuple: &FiveTuple, segment: &Segment, now: u32) -> bool {
        if tuple.src.is_ipv4() { self.v4.resume(tuple, segment, now) } else { self.v6.resume(tuple, segment, now) }
    }

    pub(super) fn peek(&self, tuple: &FiveTuple) -> Option<(Connection, usize)> {
        if tuple.src.is_ipv4() { self.v4.peek(tuple) } else { self.v6.peek(tuple) }
    }

    pub(super) fn put(&mut self, tuple: &FiveTuple, now: u32, new: impl FnOnce(usize) -> Connection) -> Inserted {
        if tuple.src.is_ipv4() { self.v4.put(tuple, now, new) } else { self.v6.put(tuple, now, new) }
    }

    pub(super) fn lead(&mut self, tuple: &FiveTuple, piece: Piece, base: Option<u32>, now: u32) {
        if tuple.src.is_ipv4() { self.v4.lead(tuple, piece, base, now) } else { self.v6.lead(tuple, piece, base, now) }
    }

    pub(super) fn follow(&mut self, tuple: &FiveTuple, piece: Piece, len: u32, now: u32) -> bool {
        let follows = if tuple.src.is_ipv4() {
            self.v4.follow(tuple, piece, len, now)
        } else {
            self.v6.follow(tuple, piece, len, now)
        };
        self.tallies.fragments.add(follows.into());
        follows
    }

    /// Forgets what has been idle too long, a part with every wake, and counts.
    pub(super) fn age(&mut self, now: u32) {
        let made_way = core::mem::take(&mut self.v4.made_way) + core::mem::take(&mut self.v6.made_way);
        let gone = self.v4.age(now, &self.timers, self.fragment) + self.v6.age(now, &self.timers, self.fragment);
        let gone = gone + made_way as usize;
        self.tallies.forgotten.add(gone as u64);
        self.show();
    }

    pub(super) fn show(&self) {
        let (a, b) = (self.v4.table.counters(), self.v6.table.counters());
        self.tallies.connections.set((self.v4.table.len() + self.v6.table.len()) as u64);
        self.tallies.new.set(a.inserted + b.inserted);
        self.tallies.evicted.set(a.evicted + b.evicted);
    }
}
