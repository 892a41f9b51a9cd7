//! Tables of connections and of first fragments.

use super::connection::{Connection, Outcome, Segment};
use super::packet::FragmentInfo;
use super::settings::{ConntrackSettings, FullPolicy, TICK_SHIFT, Timers, ticks};
use crate::firewall::key::MIN_TCP_FRAGMENT;
use core::net::IpAddr;
use diagnostics::Diagnostic;
use graph::{BoundedTable, Counter, Counters, Named};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tables::flow::{
    CAPACITY_MOST, FlowKey, FlowTable, Full as TableFull, Lookup, Settings as TableSettings, Tuple4, Tuple6,
};
use wire::IpProtocol;
use wire::flow::FiveTuple;

/// Largest number of remembered SYNs of hosts that may have restarted.
const MAX_PENDING_SYNS: usize = 1024;
/// Timer ticks per scan of all tables.
const SCAN_STEPS: usize = 4096;

/// A first fragment that has passed.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub(crate) struct FirstFragment {
    /// Ports and protocol of its connection.
    src_port: u16,
    dst_port: u16,
    protocol: u8,
    /// Sequence number that corresponds to the first byte of the datagram, for TCP.
    base: Option<u32>,
}

/// A flow key of either IP version.
pub(crate) trait AddressFamily: FlowKey + Default {
    fn of(tuple: &FiveTuple) -> Option<Self>;
    /// Returns a key that is the same for both directions, and the sending side.
    fn normalize(self) -> (Self, usize);
}

impl AddressFamily for Tuple4 {
    fn of(t: &FiveTuple) -> Option<Self> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (t.src, t.dst) else { return None };
        Some(Self::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0))
    }

    #[inline(always)]
    fn normalize(self) -> (Self, usize) {
        let (key, swapped) = self.either();
        (key, swapped.into())
    }
}

impl AddressFamily for Tuple6 {
    fn of(t: &FiveTuple) -> Option<Self> {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (t.src, t.dst) else { return None };
        Some(Self::new(src.to_bits(), dst.to_bits(), t.src_port, t.dst_port, t.protocol.0))
    }

    #[inline(always)]
    fn normalize(self) -> (Self, usize) {
        let (key, swapped) = self.either();
        (key, swapped.into())
    }
}

/// Connections and fragmented datagrams of one IP version.
pub(crate) struct ConnectionTable<K: FlowKey> {
    pub(crate) table: FlowTable<K, Connection>,
    pub(super) first_fragments: FlowTable<K, FirstFragment>,
    /// SYNs within established connections, with the side that sent them.
    pub(super) pending_syns: FlowTable<K, Option<(usize, Segment)>>,
    /// Number of connections that another process has created.
    pub(super) restored: u64,
    /// Timeouts while the table is full, and the number of connections that they expired.
    pressure_timers: Timers,
    evicted_early: u64,
    /// Scans for such connections that are still permitted in this tick; bounds the cost of a flood of new ones.
    pressure_scans: u32,
}

const PRESSURE_SCANS_PER_TICK: u32 = 16;

/// Result of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Insertion {
    Inserted,
    TableFull,
}

impl<K: AddressFamily> ConnectionTable<K> {
    pub(crate) fn new(track: &ConntrackSettings) -> Result<Self, Diagnostic> {
        let error = |value: u32| {
            move |e: tables::flow::Error| {
                let remedy = format!("write 1 to {CAPACITY_MOST}, within the available memory");
                Diagnostic::new(e.to_string()).key("track").value(value).remedy(remedy)
            }
        };
        let full = if track.full == FullPolicy::Evict { TableFull::EvictOldest } else { TableFull::Refuse };
        let table = FlowTable::new(&TableSettings { full, ..TableSettings::new(track.connections as usize) })
            .map_err(error(track.connections))?;
        let small = |capacity: usize| TableSettings {
            full: TableFull::EvictOldest,
            pages: tables::Pages::Ordinary,
            ..TableSettings::new(capacity)
        };
        let first_fragments = FlowTable::new(&small(track.fragments as usize)).map_err(error(track.fragments))?;
        let pending_syns = FlowTable::new(&small(MAX_PENDING_SYNS)).map_err(error(track.connections))?;
        Ok(ConnectionTable {
            table,
            first_fragments,
            pending_syns,
            restored: 0,
            pressure_timers: track.pressure_timers(),
            evicted_early: 0,
            pressure_scans: PRESSURE_SCANS_PER_TICK,
        })
    }

    /// Calls a function with the connection of a tuple and the sending side, and restarts the idle timer.
    pub(crate) fn update<T>(
        &mut self,
        tuple: &FiveTuple,
        now: u32,
        each: impl FnOnce(&mut Connection, usize) -> T,
    ) -> Option<T> {
        let (key, side) = K::of(tuple)?.normalize();
        let key = self.table.prepare(key);
        let (mut each, mut found) = (Some(each), None);
        self.table.look_up(&[key], now, |_, connection| found = each.take().map(|each| each(connection, side)));
        found
    }

    /// Remembers a SYN within an established connection.
    pub(crate) fn remember_syn(&mut self, tuple: &FiveTuple, segment: &Segment, now: u32) {
        let Some((key, side)) = K::of(tuple).map(K::normalize) else { return };
        let key = self.pending_syns.prepare(key);
        self.pending_syns.look_up_or_insert(
            &[key],
            now,
            |_, _| {},
            |_, found| {
                if let Lookup::New(to) | Lookup::Known(to) = found {
                    *to = Some((side, *segment));
                }
            },
        );
    }

    /// Returns true if a SYN-ACK answers a remembered SYN: both hosts have restarted, and the entry becomes the new
    /// connection.
    pub(crate) fn resume_after_restart(&mut self, tuple: &FiveTuple, segment: &Segment, now: u32) -> bool {
        let Some((key, side)) = K::of(tuple).map(K::normalize) else { return false };
        let Some(&Some((from, syn))) = self.pending_syns.get(&key) else { return false };
        let Some(mut new) = Connection::from_first_segment(&syn, from, false).filter(|_| from != side) else {
            return false;
        };
        if new.segment(side, segment) != Outcome::Pass {
            return false;
        }
        self.pending_syns.remove(&key);
        self.update(tuple, now, |connection, _| *connection = new).is_some()
    }

    /// Returns the connection of a tuple and the sending side without restarting the idle timer.
    pub(crate) fn peek(&self, tuple: &FiveTuple) -> Option<(Connection, usize)> {
        let (key, side) = K::of(tuple)?.normalize();
        Some((*self.table.get(&key)?, side))
    }

    /// Inserts a connection, or replaces a closed one.
    pub(crate) fn insert(&mut self, tuple: &FiveTuple, now: u32, new: impl FnOnce(usize) -> Connection) -> Insertion {
        /// Buckets that are scanned for each new connection without room.
        const BUCKETS_PER_SCAN: usize = 8;
        let Some((key, side)) = K::of(tuple).map(K::normalize) else { return Insertion::TableFull };
        if self.table.len() >= self.table.capacity() && self.pressure_scans > 0 {
            self.pressure_scans -= 1;
            let pressure_timers = &self.pressure_timers;
            let over = |_: &K, c: &mut Connection, idle| idle >= pressure_timers[c.state() as usize & 15];
            self.evicted_early += self.table.age(now, BUCKETS_PER_SCAN, over) as u64;
        }
        let (key, mut done) = (self.table.prepare(key), Insertion::TableFull);
        let mut new = Some(new);
        self.table.look_up_or_insert(
            &[key],
            now,
            |_, _| {},
            |_, found| {
                if let Lookup::New(connection) | Lookup::Known(connection) = found
                    && let Some(new) = new.take()
                {
                    *connection = new(side);
                    done = Insertion::Inserted;
                }
            },
        );
        done
    }

    fn datagram(tuple: &FiveTuple, fragment: FragmentInfo) -> Option<K> {
        let (src_port, dst_port) = ((fragment.id >> 16) as u16, fragment.id as u16);
        // in IPv6 the identification is common to all protocols (RFC 8200 §4.5)
        let protocol = if tuple.src.is_ipv6() { IpProtocol(44) } else { tuple.protocol };
        K::of(&FiveTuple { src_port, dst_port, protocol, ..*tuple })
    }

    /// Lets the later fragments of a datagram pass. `base` is the sequence number of its first byte, for TCP.
    pub(crate) fn remember_first_fragment(
        &mut self,
        tuple: &FiveTuple,
        fragment: FragmentInfo,
        base: Option<u32>,
        now: u32,
    ) {
        let Some(key) = Self::datagram(tuple, fragment) else { return };
        let first =
            FirstFragment { src_port: tuple.src_port, dst_port: tuple.dst_port, protocol: tuple.protocol.0, base };
        let key = self.first_fragments.prepare(key);
        self.first_fragments.look_up_or_insert(
            &[key],
            now,
            |_, _| {},
            |_, found| {
                if let Lookup::New(to) | Lookup::Known(to) = found {
                    *to = first;
                }
            },
        );
    }

    /// Returns true if the first fragment of the datagram has passed, and restarts the idle timer of its connection.
    pub(crate) fn match_fragment(&mut self, tuple: &FiveTuple, fragment: FragmentInfo, len: u32, now: u32) -> bool {
        let first = Self::datagram(tuple, fragment).and_then(|key| self.first_fragments.get(&key).copied());
        let Some(FirstFragment { src_port, dst_port, protocol, base }) = first else { return false };
        let protocol = IpProtocol(protocol);
        // a fragment at such an offset could overwrite the TCP header (RFC 1858 §3)
        if protocol == IpProtocol::TCP && (fragment.offset as usize) < MIN_TCP_FRAGMENT {
            return false;
        }
        let extend = |connection: &mut Connection, side: usize| {
            if let Some(base) = base {
                connection.extend(side, base.wrapping_add(fragment.offset).wrapping_add(len));
            }
        };
        self.update(&FiveTuple { src_port, dst_port, protocol, ..*tuple }, now, extend);
        true
    }

    /// Scans a part of the tables and returns the number of expired connections.
    fn age(&mut self, now: u32, timers: &Timers, fragment: u32) -> usize {
        self.pressure_scans = PRESSURE_SCANS_PER_TICK;
        if !self.first_fragments.is_empty() {
            self.first_fragments
                .age(now, self.first_fragments.buckets().div_ceil(SCAN_STEPS / 4), |_, _, idle| idle >= fragment);
        }
        if !self.pending_syns.is_empty() {
            self.pending_syns
                .age(now, self.pending_syns.buckets().div_ceil(SCAN_STEPS / 4), |_, _, idle| idle >= fragment);
        }
        if self.table.is_empty() {
            return 0;
        }
        self.table.age(now, self.table.buckets().div_ceil(SCAN_STEPS), |_, connection, idle| {
            idle >= timers[connection.state() as usize & 15]
        })
    }
}

graph::named_enum! {
    /// Counters of connection tracking.
    pub(crate) enum ConntrackCounter {
        Connections = "connections",
        Created = "connections_new",
        Expired = "connections_expired",
        Evicted = "connections_evicted",
        Fragments = "fragments_matched",
    }
}

/// Connection tracking of one core.
pub(crate) struct Conntrack {
    pub(crate) v4: ConnectionTable<Tuple4>,
    pub(crate) v6: ConnectionTable<Tuple6>,
    pub(crate) loose: bool,
    timers: Timers,
    fragment: u32,
    counters: Counters<ConntrackCounter>,
    /// The connections of IPv4 and of IPv6.
    bounded_tables: [BoundedTable; 2],
}

impl Conntrack {
    /// Takes over the connections of another with the same settings; both keep their counters.
    pub(crate) fn take_over(&mut self, old: &mut Conntrack) {
        core::mem::swap(&mut self.v4, &mut old.v4);
        core::mem::swap(&mut self.v6, &mut old.v6);
    }

    pub(crate) fn new(track: &ConntrackSettings) -> Result<Self, Diagnostic> {
        track.check()?;
        let (v4, v6) = (ConnectionTable::new(track)?, ConnectionTable::new(track)?);
        Ok(Conntrack {
            bounded_tables: [
                BoundedTable::new("connections_ipv4", v4.table.capacity() as u64),
                BoundedTable::new("connections_ipv6", v6.table.capacity() as u64),
            ],
            v4,
            v6,
            loose: track.loose,
            timers: track.timers(),
            fragment: ticks(track.fragment_time),
            counters: Counters::default(),
        })
    }

    /// Returns the counters with their names.
    pub(crate) fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.counters.named()
    }

    /// Returns the names of those counters that are present values.
    pub(crate) fn gauges() -> Vec<&'static str> {
        vec![ConntrackCounter::Connections.name()]
    }

    /// Returns the tables of connections.
    pub(crate) fn bounded_tables(&self) -> Vec<BoundedTable> {
        self.bounded_tables.to_vec()
    }

    /// Converts a time to the units of the tables.
    #[inline(always)]
    pub(crate) fn clock(now: core::time::Duration) -> u32 {
        (now.as_millis() >> TICK_SHIFT) as u32
    }

    /// Returns the number of connections that were created so far.
    pub(crate) fn inserted(&self) -> u64 {
        self.v4.table.counters().inserted + self.v6.table.counters().inserted
    }

    pub(crate) fn update<T>(
        &mut self,
        tuple: &FiveTuple,
        now: u32,
        each: impl FnOnce(&mut Connection, usize) -> T,
    ) -> Option<T> {
        if tuple.src.is_ipv4() { self.v4.update(tuple, now, each) } else { self.v6.update(tuple, now, each) }
    }

    pub(crate) fn remember_syn(&mut self, tuple: &FiveTuple, segment: &Segment, now: u32) {
        if tuple.src.is_ipv4() {
            self.v4.remember_syn(tuple, segment, now)
        } else {
            self.v6.remember_syn(tuple, segment, now)
        }
    }

    pub(crate) fn resume_after_restart(&mut self, tuple: &FiveTuple, segment: &Segment, now: u32) -> bool {
        if tuple.src.is_ipv4() {
            self.v4.resume_after_restart(tuple, segment, now)
        } else {
            self.v6.resume_after_restart(tuple, segment, now)
        }
    }

    pub(crate) fn peek(&self, tuple: &FiveTuple) -> Option<(Connection, usize)> {
        if tuple.src.is_ipv4() { self.v4.peek(tuple) } else { self.v6.peek(tuple) }
    }

    pub(crate) fn insert(&mut self, tuple: &FiveTuple, now: u32, new: impl FnOnce(usize) -> Connection) -> Insertion {
        if tuple.src.is_ipv4() { self.v4.insert(tuple, now, new) } else { self.v6.insert(tuple, now, new) }
    }

    pub(crate) fn remember_first_fragment(
        &mut self,
        tuple: &FiveTuple,
        fragment: FragmentInfo,
        base: Option<u32>,
        now: u32,
    ) {
        if tuple.src.is_ipv4() {
            self.v4.remember_first_fragment(tuple, fragment, base, now)
        } else {
            self.v6.remember_first_fragment(tuple, fragment, base, now)
        }
    }

    pub(crate) fn match_fragment(&mut self, tuple: &FiveTuple, fragment: FragmentInfo, len: u32, now: u32) -> bool {
        let matched = if tuple.src.is_ipv4() {
            self.v4.match_fragment(tuple, fragment, len, now)
        } else {
            self.v6.match_fragment(tuple, fragment, len, now)
        };
        self.counters[ConntrackCounter::Fragments].add(matched.into());
        matched
    }

    /// Scans a part of the tables for expired entries and updates the counters.
    pub(crate) fn age(&mut self, now: u32) {
        let evicted_early = core::mem::take(&mut self.v4.evicted_early) + core::mem::take(&mut self.v6.evicted_early);
        let expired = self.v4.age(now, &self.timers, self.fragment) + self.v6.age(now, &self.timers, self.fragment);
        let expired = expired + evicted_early as usize;
        self.counters[ConntrackCounter::Expired].add(expired as u64);
        self.publish();
    }

    pub(crate) fn publish(&self) {
        let (a, b) = (self.v4.table.counters(), self.v6.table.counters());
        self.counters[ConntrackCounter::Connections].set((self.v4.table.len() + self.v6.table.len()) as u64);
        self.bounded_tables[0].entries.set(self.v4.table.len() as u64);
        self.bounded_tables[1].entries.set(self.v6.table.len() as u64);
        self.counters[ConntrackCounter::Created].set(a.inserted + b.inserted - self.v4.restored - self.v6.restored);
        self.counters[ConntrackCounter::Evicted].set(a.evicted + b.evicted);
    }
}
