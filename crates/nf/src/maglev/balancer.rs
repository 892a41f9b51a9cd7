//! State of the load balancer.

use super::backends::{BackendState, PoolHandle, PoolSnapshot};
use super::config::Backend;
use super::connection::{Connection, FIRST_REPLY};
use super::counters::CounterId;
use super::destination::{Destination, ForwardAction};
use super::service_map::ServiceMap;
use super::settings::{Settings, Unmatched};
use crate::fragment_queue::FragmentQueue;
use crate::visits::Visits;
use diagnostics::Diagnostic;
use graph::{BoundedTable, Context, Counters, Named, Row, StatsTable};
use packet::BURST;
use std::sync::Arc;
use std::time::Duration;
use tables::flow::{
    CAPACITY_MOST, FlowKey, FlowTable, Full, Prepared, Seed, Settings as TableSettings, Tuple4, Tuple6,
};
use tables::maglev::Ring;

/// Interval at which a part of the tables is searched for expired entries.
pub(super) const AGEING_INTERVAL: Duration = Duration::from_millis(1);
/// Number of parts: the whole tables are searched in two seconds.
pub(super) const AGEING_PARTS: usize = 2000;
/// Unit of the tables' clock, as a power of two of milliseconds. It fits the longest idle timeout, and the time of a busy
/// connection is not written with every packet.
const TIME_UNIT: u32 = 8;
/// Milliseconds for which fragments of a datagram are accepted (RFC 791 §3.2: 15 to 120 s, RFC 8200 §4.5: 60 s).
const FRAGMENT_TIMEOUT_MS: u32 = 30_000;
const COLUMNS: [&str; 6] = ["packets", "service", "backend", "address", "state", "slots"];
/// Maximum number of rows of the statistics table.
const ROWS_MAX: usize = 4096;

/// Plain packets of a burst that are for services.
pub(super) struct Burst {
    pub(super) keys: [Prepared<Tuple4>; BURST],
    pub(super) vips: [u32; BURST],
    /// Positions in the batch.
    pub(super) positions: [u8; BURST],
    pub(super) destinations: [Connection; BURST],
}

/// A copy of the load balancer.
pub(super) struct Balancer {
    pub(super) pool: Arc<PoolHandle>,
    /// Version of the snapshot.
    version: u64,
    pub(super) snapshot: PoolSnapshot,
    pub(super) services: ServiceMap,
    pub(super) destinations: Box<[Destination]>,
    pub(super) burst: Box<Burst>,
    pub(super) v4: FlowTable<Tuple4, Connection>,
    pub(super) v6: FlowTable<Tuple6, Connection>,
    pub(super) fragments: FlowTable<Tuple6, Connection>,
    /// Fragments received before the first of their datagram.
    pub(super) fragment_queue: FragmentQueue<Tuple6>,
    pub(super) seed: Seed,
    /// Identification of the next outer IPv4 header.
    pub(super) id: u16,
    pub(super) mtu: u16,
    pub(super) unmatched: Unmatched,
    /// Timeouts of connections and fragments in units of the tables' clock.
    pub(super) idle: u32,
    pub(super) fragment_timeout: u32,
    pub(super) counters: Counters<CounterId>,
    /// The connections of IPv4, and of IPv6 if a service has an IPv6 address.
    pub(super) bounded_tables: Vec<BoundedTable>,
    pub(super) stats_table: Arc<StatsTable>,
    pub(super) visits: Visits<Balancer>,
    /// Parts of the tables to be searched for connections to removed destinations.
    unswept: usize,
}

fn table<K: FlowKey>(capacity: usize, full: Full, key: &'static str) -> Result<FlowTable<K, Connection>, Diagnostic> {
    FlowTable::new(&TableSettings { full, ..TableSettings::new(capacity) }).map_err(|e| {
        let remedy = format!("write 1 to {CAPACITY_MOST}, as memory permits");
        Diagnostic::new(e.to_string()).key(key).value(capacity).remedy(remedy)
    })
}

/// Returns the units of the tables' clock after which a number of milliseconds has passed.
fn ticks(milliseconds: u32) -> u32 {
    milliseconds.div_ceil(1 << TIME_UNIT) + 1
}

impl Balancer {
    pub(super) fn new(s: &Settings, pool: Arc<PoolHandle>, visits: Visits<Balancer>) -> Result<Self, Diagnostic> {
        let config = pool.0.config.clone();
        let services = ServiceMap::new(&config, &pool.0.numbers.of)?;
        let version = pool.0.version();
        let snapshot = loop {
            // health checks hold the lock for a moment
            if let Some(snapshot) = pool.0.snapshot() {
                break snapshot;
            }
            std::thread::yield_now();
        };
        let numbers = &pool.0.numbers;
        let mut destinations: Vec<_> = numbers.generations.iter().map(|n| Destination::unused(*n)).collect();
        for (pair, Connection { destination, generation }) in config.destinations().zip(&numbers.of) {
            let state = snapshot.states[pair.1];
            destinations[*destination as usize] = Destination::new(&config, pair, *generation, state);
        }
        let unswept = if numbers.has_removed() { AGEING_PARTS } else { 0 };
        let any6 = config.vips.iter().any(|v| v.endpoint.0.is_ipv6());
        let v4 = table::<Tuple4>(s.connections as usize, Full::Refuse, "connections")?;
        let v6 = table(if any6 { s.connections as usize } else { 1 }, Full::Refuse, "connections")?;
        let connections = |name| BoundedTable::new(name, s.connections.into());
        let mut bounded_tables = vec![connections("connections_ipv4")];
        bounded_tables.extend(any6.then(|| connections("connections_ipv6")));
        let burst = Burst {
            keys: [v4.prepare(Tuple4::default()); BURST],
            vips: [0; BURST],
            positions: [0; BURST],
            destinations: [Connection::NONE; BURST],
        };
        let mut balancer = Balancer {
            services,
            destinations: destinations.into(),
            burst: Box::new(burst),
            v4,
            v6,
            fragments: table(s.fragments as usize, Full::EvictOldest, "fragments")?,
            fragment_queue: FragmentQueue::new(),
            seed: Seed::fixed(s.seed),
            id: 0,
            mtu: s.mtu,
            unmatched: s.unmatched,
            idle: ticks(s.idle * 1000),
            fragment_timeout: ticks(FRAGMENT_TIMEOUT_MS),
            counters: Counters::default(),
            bounded_tables,
            stats_table: Arc::new(StatsTable::new(&COLUMNS, ROWS_MAX)),
            visits,
            unswept,
            version,
            snapshot,
            pool,
        };
        balancer.publish();
        Ok(balancer)
    }

    /// Takes over the connections and held fragments of the load balancer before a reload; its destinations have the
    /// same numbers here.
    pub(super) fn take_over_connections(&mut self, old: &mut Balancer) {
        if self.v4.capacity() == old.v4.capacity() {
            std::mem::swap(&mut self.v4, &mut old.v4);
        }
        if self.v6.capacity() == old.v6.capacity() {
            std::mem::swap(&mut self.v6, &mut old.v6);
        }
        if self.pool.0.same_replies && self.fragments.capacity() == old.fragments.capacity() {
            std::mem::swap(&mut self.fragments, &mut old.fragments);
        }
        std::mem::swap(&mut self.fragment_queue, &mut old.fragment_queue);
        self.id = old.id;
    }

    /// Removes connections from the next part of the tables: those that are idle, and those to removed destinations.
    pub(super) fn age_connections(&mut self, now: u32) {
        let (idle, destinations, sweeps) = (self.idle, &self.destinations, self.unswept > 0);
        let is_removed = |c: &Connection| c.destination < FIRST_REPLY && c.find(destinations).is_none();
        let is_over = |c: &Connection, since| since >= idle || sweeps && is_removed(c);
        if !self.v4.is_empty() {
            self.v4.age(now, self.v4.buckets().div_ceil(AGEING_PARTS), |_, c, since| is_over(c, since));
        }
        if !self.v6.is_empty() {
            self.v6.age(now, self.v6.buckets().div_ceil(AGEING_PARTS), |_, c, since| is_over(c, since));
        }
        let idle = self.fragment_timeout;
        if !self.fragments.is_empty() {
            let is_over = |c: &Connection, since| since >= idle || sweeps && is_removed(c);
            self.fragments.age(now, self.fragments.buckets().div_ceil(AGEING_PARTS), |_, c, since| is_over(c, since));
        }
        self.unswept = self.unswept.saturating_sub(1);
    }

    /// Applies the changes of the backends' states.
    #[cold]
    pub(super) fn update(&mut self) {
        let version = self.pool.0.version();
        // a change in progress is applied with the next batch
        let Some(snapshot) = self.pool.0.snapshot() else { return };
        let present = self.destinations.iter_mut().filter_map(|d| Some((d.backend?, d)));
        present.for_each(|(backend, d)| d.set_state(snapshot.states[backend]));
        (self.snapshot, self.version) = (snapshot, version);
    }

    /// Returns the destination of a connection that is new or whose backend is down.
    #[inline(always)]
    pub(super) fn choose(
        snapshot: &PoolSnapshot,
        services: &ServiceMap,
        seed: &Seed,
        vip: u32,
        key: &impl FlowKey,
    ) -> Connection {
        let (first, service) = services.vip[vip as usize];
        let ring: &Ring = &snapshot.rings[service as usize];
        ring.get(key.flow_hash(seed))
            .map_or(Connection::NONE, |member| services.destinations[first as usize + usize::from(member)])
    }

    /// As [`choose`](Self::choose), with the current backends.
    pub(super) fn choose_now(&self, vip: u32, key: &impl FlowKey) -> Connection {
        Self::choose(&self.snapshot, &self.services, &self.seed, vip, key)
    }

    /// Returns true if the backend of a connection exists and is not down.
    pub(super) fn is_available(&self, connection: Connection) -> bool {
        connection.find(&self.destinations).is_some_and(|d| d.action != ForwardAction::Down)
    }

    /// Returns the time in units of the tables' clock.
    pub(super) fn clock(&self, cx: &Context<'_>) -> u32 {
        (cx.now().as_millis() >> TIME_UNIT) as u32
    }

    /// Returns true if states of backends have changed since the snapshot.
    pub(super) fn is_stale(&self) -> bool {
        self.pool.0.version() != self.version
    }

    /// Publishes the numbers of connections.
    pub(super) fn count_connections(&self) {
        let lens = [self.v4.len() as u64, self.v6.len() as u64];
        self.counters[CounterId::Connections].set(lens.iter().sum());
        self.bounded_tables.iter().zip(lens).for_each(|(table, len)| table.entries.set(len));
    }

    /// Publishes gauges and the statistics table.
    pub(super) fn publish(&mut self) {
        let config = &self.pool.0.config;
        self.count_connections();
        let c = &self.counters;
        let (v4, v6) = (self.v4.counters(), self.v6.counters());
        c[CounterId::Expired].set(v4.expired + v6.expired);
        c[CounterId::BackendsUp]
            .set(self.snapshot.states.iter().filter(|state| **state != BackendState::Down).count() as u64);
        c[CounterId::RingChanges].set(self.snapshot.ring_changes);
        c[CounterId::SlotsDisrupted].set(self.snapshot.slots_disrupted);
        c[CounterId::SlotsReassigned].set(self.snapshot.slots_reassigned);
        let mut packets = vec![0; config.backends.len()];
        let sent = self.destinations.iter().filter_map(|d| Some((d.backend?, d.packets)));
        sent.for_each(|(backend, n)| packets[backend] += n);
        let shares: Vec<Vec<usize>> = self.snapshot.rings.iter().map(|ring| ring.counts()).collect();
        let row = |(n, b): (usize, &Backend)| -> Row {
            let service = &config.services[b.service];
            let slots = shares[b.service][n - service.backends.start];
            let state = self.snapshot.states[n].name();
            let share = format!("{:.2} %", slots as f64 * 100.0 / config.table_size as f64);
            let columns = [packets[n].to_string(), service.name.clone(), b.name.clone(), b.address.to_string()];
            (packets[n], columns.into_iter().chain([state.to_owned(), share]).collect())
        };
        let mut rows: Vec<Row> = config.backends.iter().enumerate().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.0));
        self.stats_table.publish(rows);
    }
}
