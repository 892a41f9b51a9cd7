//! Counters, event log and subscriber statistics of a translator.

use super::config::Config;
use super::log::Log;
use super::log::record::RecordKind;
use super::sessions::{SessionTable, clock};
use super::settings::Allocation;
use diagnostics::Diagnostic;
use graph::{
    BoundedTable, BuildContext, Counter, Counters, InvalidState, Named, Row, StateReader, StateWriter, StatsTable,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// Timer interval of a translator. All of the session table is scanned once in a [`SCAN_PERIOD`].
pub(crate) const TICK: Duration = Duration::from_millis(1);
const SCAN_PERIOD: Duration = Duration::from_secs(4);
/// Subscribers in the statistics table.
const TOP_SUBSCRIBERS: usize = 10;
/// Largest number of subscribers that are ranked periodically.
const MAX_RANKED_SUBSCRIBERS: usize = 2000;
const COLUMNS: [&str; 4] = ["sessions", "subscriber", "external", "blocks"];

/// Inside hosts, which sessions refer to by number.
pub(crate) trait Subscribers {
    /// Returns the address of a host.
    fn ip(&self, number: u32) -> IpAddr;

    /// Returns true if there is a host with this number.
    fn is_known(&self, _number: u32) -> bool {
        true
    }

    /// Called for each session of the host that another process has saved.
    fn session_restored(&mut self, _number: u32) {}

    /// Called when a session of the host has ended and the event was logged.
    fn session_ended(&mut self, _number: u32) {}
}

graph::named_enum! {
    /// Counters of a translator.
    pub(super) enum SessionCounter {
        Sessions = "sessions",
        Created = "created",
        Expired = "expired",
        Evicted = "evicted",
        Closed = "closed",
        /// Sessions that did not fit the forwards after a reload.
        ClosedByReload = "closed_by_reload",
        Mappings = "mappings",
        Ports = "ports",
        Subscribers = "subscribers",
        Blocks = "blocks",
        Fragments = "fragments",
        Hairpinned = "hairpinned",
        Untranslated = "untranslated",
        LogLost = "log_lost",
    }
}

/// Statistics of one core.
pub(crate) struct Statistics {
    pub(super) counters: Counters<SessionCounter>,
    /// Largest number of sessions.
    max_sessions: u64,
    log: Option<Log>,
    /// True if port blocks are logged, false if sessions are.
    by_blocks: bool,
    stats_table: Arc<StatsTable>,
    /// Times of the last scan for expired sessions, `None` if another process has done it, and of the last ranking.
    last_scan: Option<Duration>,
    last_ranking: Duration,
}

impl Statistics {
    /// Creates the statistics; `ipv6` is the IP version of the subscribers.
    ///
    /// # Errors
    /// The log cannot be started.
    pub(crate) fn new(config: &Config, cx: &BuildContext, ipv6: bool) -> Result<Self, Diagnostic> {
        let (counters, by_blocks) = (Counters::default(), config.allocation == Allocation::Blocks);
        let log = config
            .log
            .map(|target| {
                Log::new(target, cx, RecordKind { ipv6, blocks: by_blocks }, &counters[SessionCounter::LogLost])
            })
            .transpose()?;
        let stats_table = Arc::new(StatsTable::new(&COLUMNS, TOP_SUBSCRIBERS));
        Ok(Statistics {
            counters,
            max_sessions: config.sessions as u64,
            log,
            by_blocks,
            stats_table,
            last_scan: Some(Duration::ZERO),
            last_ranking: Duration::ZERO,
        })
    }

    /// Returns true if sessions are logged.
    pub(crate) fn logs_sessions(&self, config: &Config) -> bool {
        self.log.is_some() && config.allocation == Allocation::Dynamic
    }

    /// Returns the counters with their names.
    pub(crate) fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        self.counters.named()
    }

    /// Returns the names of those counters that are present values.
    pub(crate) fn gauges(&self) -> Vec<&'static str> {
        use SessionCounter::{Blocks, Fragments, Mappings, Ports, Sessions, Subscribers};
        [Sessions, Mappings, Ports, Subscribers, Blocks, Fragments].map(Named::name).to_vec()
    }

    /// Returns the session table.
    pub(crate) fn bounded_tables(&self) -> Vec<BoundedTable> {
        let entries = self.counters[SessionCounter::Sessions].clone();
        vec![BoundedTable { name: SessionCounter::Sessions.name(), entries, capacity: self.max_sessions }]
    }

    pub(crate) fn stats_table(&self) -> Arc<StatsTable> {
        self.stats_table.clone()
    }

    /// Removes expired sessions from the part of the table that is due since the last call, and after a reload sessions
    /// that do not fit its forwards.
    pub(crate) fn expire_sessions(&mut self, sessions: &mut SessionTable, now: Duration) {
        let last = self.last_scan.replace(now).unwrap_or(now);
        let since = now.saturating_sub(last).min(SCAN_PERIOD);
        let share = since.as_secs_f64() / SCAN_PERIOD.as_secs_f64();
        let buckets = (sessions.outbound.buckets() as f64 * share).ceil() as usize;
        self.counters[SessionCounter::Expired].add(sessions.age(clock(now), buckets) as u64);
        self.counters[SessionCounter::ClosedByReload].add(sessions.close_displaced() as u64);
    }

    /// Writes the sessions, without those that do not fit the forwards after a reload.
    pub(crate) fn save_sessions(
        &mut self,
        sessions: &mut SessionTable,
        inside: &mut impl Subscribers,
        state: &mut StateWriter,
    ) {
        while sessions.displaced.scan.is_some() {
            self.counters[SessionCounter::ClosedByReload].add(sessions.close_displaced() as u64);
        }
        self.report(sessions, inside);
        sessions.save(state);
    }

    /// Adds the sessions that another table has saved.
    ///
    /// # Errors
    /// The state is not valid.
    pub(crate) fn restore_sessions(
        &mut self,
        sessions: &mut SessionTable,
        inside: &mut impl Subscribers,
        state: &mut StateReader<'_>,
    ) -> Result<(), InvalidState> {
        self.last_scan = None;
        let left_out = sessions.restore(state, inside)?;
        self.counters[SessionCounter::ClosedByReload].add(left_out as u64);
        Ok(())
    }

    /// Logs pending events and updates the gauges.
    pub(crate) fn report(&mut self, sessions: &mut SessionTable, inside: &mut impl Subscribers) {
        for event in sessions.ports.events() {
            if let Some(log) = self.log.as_ref().filter(|_| self.by_blocks) {
                log.block(inside.ip(event.subscriber), event);
            }
        }
        for event in sessions.events() {
            if let Some(log) = self.log.as_ref().filter(|_| !self.by_blocks) {
                log.session(inside.ip(event.flow.src), event);
            }
            if !event.created {
                inside.session_ended(event.flow.src);
            }
        }
        self.log.iter().for_each(Log::update_counter);
        self.counters[SessionCounter::Sessions].set(sessions.len() as u64);
        self.counters[SessionCounter::Evicted].set(sessions.evicted());
        self.counters[SessionCounter::Mappings].set(sessions.mappings() as u64);
        self.counters[SessionCounter::Ports].set(sessions.ports.ports_in_use());
        self.counters[SessionCounter::Subscribers].set(sessions.ports.subscribers() as u64);
        self.counters[SessionCounter::Blocks].set(sessions.ports.blocks_in_use());
    }

    /// Publishes the subscribers with the most sessions.
    pub(crate) fn rank_subscribers(&self, sessions: &SessionTable, inside: &impl Subscribers) {
        let row = |(subscriber, external, sessions, blocks): (u32, u32, u32, usize)| -> Row {
            let (subscriber, external) = (inside.ip(subscriber).to_string(), Ipv4Addr::from_bits(external).to_string());
            (sessions.into(), [sessions.to_string(), subscriber, external, blocks.to_string()].into())
        };
        self.stats_table.publish(sessions.ports.top_subscribers(TOP_SUBSCRIBERS).into_iter().map(row).collect());
    }

    /// Ranks subscribers once in a [`SCAN_PERIOD`]. With very many subscribers that happens only at the end: sorting
    /// them takes too long between two batches.
    pub(crate) fn rank_subscribers_periodically(
        &mut self,
        sessions: &SessionTable,
        inside: &impl Subscribers,
        now: Duration,
    ) {
        if now.saturating_sub(self.last_ranking) >= SCAN_PERIOD
            && sessions.ports.subscribers() <= MAX_RANKED_SUBSCRIBERS
        {
            self.last_ranking = now;
            self.rank_subscribers(sessions, inside);
        }
    }
}
