//! State of the load balancer.

use super::backends::{BackendState, PoolHandle, PoolSnapshot};
use super::config::Backend;
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
/// Smallest unit of the tables' clock, as a power of two of milliseconds: the time of a busy connection is not written
/// with every packet.
const TIME_UNIT_MIN: u32 = 6;
/// Milliseconds for which fragments of a datagram are accepted (RFC 791 §3.2: 15 to 120 s, RFC 8200 §4.5: 60 s).
const FRAGMENT_TIMEOUT_MS: u32 = 30_000;
const COLUMNS: [&str; 6] = ["packets", "service", "backend", "address", "state", "slots"];
/// Maximum number of rows of the statistics table.
const ROWS_MAX: usize = 4096;
/// Number that is not a destination.
pub(super) const NO_DESTINATION: u32 = u32::MAX;

/// Destination of a connection, or [`NO_DESTINATION`] if no backend was up.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Connection {
    pub(super) destination: u32,
}

/// Plain packets of a burst that are for services.
pub(super) struct Burst {
    pub(super) keys: [Prepared<Tuple4>; BURST],
    pub(super) vips: [u32; BURST],
    /// Positions in the batch.
    pub(super) positions: [u8; BURST],
    pub(super) destinations: [u32; BURST],
}

/// A copy of the load balancer.
pub(super) struct Balancer {
    pool: Arc<PoolHandle>,
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
    /// Unit of the tables' clock, as a power of two of milliseconds.
    time_unit: u32,
    pub(super) counters: Counters<CounterId>,
    /// The connections of IPv4, and of IPv6 if a service has an IPv6 address.
    pub(super) bounded_tables: Vec<BoundedTable>,
    pub(super) stats_table: Arc<StatsTable>,
    pub(super) visits: Visits<Balancer>,
}

fn table<K: FlowKey>(capacity: usize, full: Full, key: &'static str) -> Result<FlowTable<K, Connection>, Diagnostic> {
    FlowTable::new(&TableSettings { full, ..TableSettings::new(capacity) }).map_err(|e| {
        let remedy = format!("write 1 to {CAPACITY_MOST}, as memory permits");
        Diagnostic::new(e.to_string()).key(key).value(capacity).remedy(remedy)
    })
}

impl Balancer {
    pub(super) fn new(s: &Settings, pool: Arc<PoolHandle>, visits: Visits<Balancer>) -> Result<Self, Diagnostic> {
        let config = pool.0.config.clone();
        let services = ServiceMap::new(&config)?;
        let version = pool.0.version();
        let snapshot = loop {
            // health checks hold the lock for a moment
            if let Some(snapshot) = pool.0.snapshot() {
                break snapshot;
            }
            std::thread::yield_now();
        };
        let mut destinations = vec![];
        for (number, v) in config.vips.iter().enumerate() {
            let backends = config.services[v.service].backends.clone();
            destinations.extend(backends.map(|b| Destination::new(&config, number, b, snapshot.states[b])));
        }
        let any6 = config.vips.iter().any(|v| v.endpoint.0.is_ipv6());
        let v4 = table::<Tuple4>(s.connections as usize, Full::Refuse, "connections")?;
        let v6 = table(if any6 { s.connections as usize } else { 1 }, Full::Refuse, "connections")?;
        let connections = |name| BoundedTable::new(name, s.connections.into());
        let mut bounded_tables = vec![connections("connections_ipv4")];
        bounded_tables.extend(any6.then(|| connections("connections_ipv6")));
        let time_unit = ((s.idle * 1000) >> 20).checked_ilog2().map_or(0, |bits| bits + 1).max(TIME_UNIT_MIN);
        let burst = Burst {
            keys: [v4.prepare(Tuple4::default()); BURST],
            vips: [0; BURST],
            positions: [0; BURST],
            destinations: [NO_DESTINATION; BURST],
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
            idle: (s.idle * 1000) >> time_unit,
            fragment_timeout: FRAGMENT_TIMEOUT_MS >> time_unit,
            time_unit,
            counters: Counters::default(),
            bounded_tables,
            stats_table: Arc::new(StatsTable::new(&COLUMNS, ROWS_MAX)),
            visits,
            version,
            snapshot,
            pool,
        };
        balancer.publish();
        Ok(balancer)
    }

    /// Applies the changes of the backends' states.
    #[cold]
    pub(super) fn update(&mut self) {
        let version = self.pool.0.version();
        // a change in progress is applied with the next batch
        let Some(snapshot) = self.pool.0.snapshot() else { return };
        self.destinations.iter_mut().for_each(|d| d.set_state(snapshot.states[d.backend]));
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
    ) -> u32 {
        let (first, service) = services.vip[vip as usize];
        let ring: &Ring = &snapshot.rings[service as usize];
        ring.get(key.flow_hash(seed)).map_or(NO_DESTINATION, |member| first + u32::from(member))
    }

    /// As [`choose`](Self::choose), with the current backends.
    pub(super) fn choose_now(&self, vip: u32, key: &impl FlowKey) -> u32 {
        Self::choose(&self.snapshot, &self.services, &self.seed, vip, key)
    }

    /// Returns true if the backend of a destination is not down.
    pub(super) fn is_available(&self, destination: u32) -> bool {
        self.destinations.get(destination as usize).is_some_and(|d| d.action != ForwardAction::Down)
    }

    /// Returns the time in units of the tables' clock.
    pub(super) fn clock(&self, cx: &Context<'_>) -> u32 {
        (cx.now().as_millis() >> self.time_unit) as u32
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
        self.destinations.iter().for_each(|d| packets[d.backend] += d.packets);
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
