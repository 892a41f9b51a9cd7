//! What a translation says of itself: its counts, its log, and who has most sessions.

use super::ipfix::Kind;
use super::log::Log;
use super::sessions::{Sessions, clock};
use super::settings::{Allocation, Config};
use diagnostics::Diagnostic;
use graph::{StatsTable, BuildContext, Counter, Row};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// How often a part of the tables is looked through, and how long all of it takes.
pub(crate) const TICK: Duration = Duration::from_millis(1);
const ROUND: Duration = Duration::from_secs(4);
/// Subscribers that the summary shows.
const SHOWN: usize = 10;
/// Subscribers up to which it is kept up to date.
const SHOWN_AT_ONCE: usize = 2000;
const COLUMNS: [&str; 4] = ["sessions", "subscriber", "external", "blocks"];

/// Those inside, whom sessions know by a number.
pub(crate) trait Subscribers {
    fn ip(&self, number: u32) -> IpAddr;

    /// One of its sessions has ended, and that was told.
    fn ended(&mut self, _number: u32) {}
}

/// Counts that are shown.
#[derive(Default)]
pub(crate) struct Counts {
    sessions: Arc<Counter>,
    pub(crate) begun: Arc<Counter>,
    ended: Arc<Counter>,
    made_way: Arc<Counter>,
    mappings: Arc<Counter>,
    ports: Arc<Counter>,
    subscribers: Arc<Counter>,
    blocks: Arc<Counter>,
    pub(crate) fragments: Arc<Counter>,
    pub(crate) hairpinned: Arc<Counter>,
    pub(crate) untranslated: Arc<Counter>,
    log_lost: Arc<Counter>,
}

/// Of one copy.
pub(crate) struct Ledger {
    pub(crate) counts: Counts,
    log: Option<Log>,
    /// What is told: blocks, or sessions.
    by_blocks: bool,
    board: Arc<StatsTable>,
    /// When a part of the tables was last looked through, and when subscribers were last shown.
    looked: Duration,
    shown: Duration,
}

impl Ledger {
    /// That of a copy; `six` says of which version the subscribers are.
    ///
    /// # Errors
    /// The log cannot be written.
    pub(crate) fn new(config: &Config, cx: &BuildContext, six: bool) -> Result<Self, Diagnostic> {
        let (counts, by_blocks) = (Counts::default(), config.allocation == Allocation::Blocks);
        let log = Log::of(config, cx, Kind { six, blocks: by_blocks }, &counts.log_lost)?;
        let board = Arc::new(StatsTable::new(&COLUMNS, SHOWN));
        Ok(Ledger { counts, log, by_blocks, board, looked: Duration::ZERO, shown: Duration::ZERO })
    }

    /// Whether it wants to hear of sessions.
    pub(crate) fn tells_sessions(&self, config: &Config) -> bool {
        self.log.is_some() && config.allocation == Allocation::Dynamic
    }

    /// By their names.
    pub(crate) fn counters(&self) -> Vec<(String, Arc<Counter>)> {
        let c = &self.counts;
        Counter::named([
            ("sessions", &c.sessions),
            ("begun", &c.begun),
            ("ended", &c.ended),
            ("made_way", &c.made_way),
            ("mappings", &c.mappings),
            ("ports", &c.ports),
            ("subscribers", &c.subscribers),
            ("blocks", &c.blocks),
            ("fragments", &c.fragments),
            ("hairpinned", &c.hairpinned),
            ("untranslated", &c.untranslated),
            ("log_lost", &c.log_lost),
        ])
    }

    pub(crate) fn board(&self) -> Arc<StatsTable> {
        self.board.clone()
    }

    /// Looks through a part of the tables for sessions that have been idle too long, as much as the time since the last call
    /// asks for.
    pub(crate) fn age(&mut self, sessions: &mut Sessions, now: Duration) {
        let since = now.saturating_sub(core::mem::replace(&mut self.looked, now)).min(ROUND);
        let share = since.as_secs_f64() / ROUND.as_secs_f64();
        let buckets = (sessions.outwards.buckets() as f64 * share).ceil() as usize;
        self.counts.ended.add(sessions.age(clock(now), buckets) as u64);
    }

    /// Tells of what began and ended, and counts what there is.
    pub(crate) fn tell(&mut self, sessions: &mut Sessions, inside: &mut impl Subscribers) {
        for event in sessions.ports.events() {
            if let Some(log) = self.log.as_ref().filter(|_| self.by_blocks) {
                log.block(inside.ip(event.subscriber), event);
            }
        }
        for event in sessions.events() {
            if let Some(log) = self.log.as_ref().filter(|_| !self.by_blocks) {
                log.session(inside.ip(event.flow.src), event);
            }
            if !event.begins {
                inside.ended(event.flow.src);
            }
        }
        let c = &self.counts;
        c.sessions.set(sessions.len() as u64);
        c.made_way.set(sessions.made_way());
        c.mappings.set(sessions.mappings() as u64);
        c.ports.set(sessions.ports.ports_taken());
        c.subscribers.set(sessions.ports.subscribers() as u64);
        c.blocks.set(sessions.ports.blocks_taken());
    }

    /// Shows who has most sessions.
    pub(crate) fn show(&self, sessions: &Sessions, inside: &impl Subscribers) {
        let row = |(subscriber, external, sessions, blocks): (u32, u32, u32, usize)| -> Row {
            let (subscriber, external) = (inside.ip(subscriber).to_string(), Ipv4Addr::from_bits(external).to_string());
            (sessions.into(), [sessions.to_string(), subscriber, external, blocks.to_string()].into())
        };
        self.board.show(sessions.ports.largest(SHOWN).into_iter().map(row).collect());
    }

    /// The same every few seconds. More are shown at the end: to look at all of them takes too long between two batches.
    pub(crate) fn show_by_and_by(&mut self, sessions: &Sessions, inside: &impl Subscribers, now: Duration) {
        if now.saturating_sub(self.shown) >= ROUND && sessions.ports.subscribers() <= SHOWN_AT_ONCE {
            self.shown = now;
            self.show(sessions, inside);
        }
    }
}
