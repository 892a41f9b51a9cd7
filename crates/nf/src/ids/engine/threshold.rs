//! Limits on the alerts of rules.

use super::decode::Packet;
use crate::ids::rule::state::{Threshold, ThresholdKind, Track, UNIQUE_MAX, UniqueOn};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Largest number of counts; while all are in use, further keys do not reach their thresholds.
const MAX_COUNTS: usize = 65_536;
/// Time between two searches of a full table for counts that have ended.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

type Key = (u32, Option<IpAddr>, Option<IpAddr>, u64);

struct Count {
    since: Duration,
    seconds: u32,
    n: u32,
    /// Count of the next alert of `backoff`.
    next: u32,
    ports: Vec<u16>,
}

/// Effect of a match of a rule with a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// None.
    Nothing,
    /// The action without an alert.
    Action,
    /// The action and an alert.
    Alert,
}

/// Counts of thresholds.
#[derive(Default)]
pub(super) struct Thresholds {
    counts: HashMap<Key, Count>,
    next_search: Duration,
    /// Matches for which there was no room for a count.
    pub(super) refused: u64,
}

impl Thresholds {
    /// Counts a match and returns its effect.
    pub(super) fn count(
        &mut self,
        rule: u32,
        t: &Threshold,
        packet: &Packet<'_>,
        flow: u64,
        now: Duration,
    ) -> Permission {
        let key = match t.track {
            Track::Source => (rule, Some(packet.src), None, 0),
            Track::Destination => (rule, None, Some(packet.dst), 0),
            Track::Rule => (rule, None, None, 0),
            Track::Both => (rule, Some(packet.src.min(packet.dst)), Some(packet.src.max(packet.dst)), 0),
            Track::Flow => (rule, None, None, flow),
        };
        if !self.counts.contains_key(&key) && self.counts.len() >= MAX_COUNTS {
            if now >= self.next_search {
                self.counts.retain(|_, c| now.saturating_sub(c.since) < Duration::from_secs(c.seconds.into()));
                self.next_search = now + SEARCH_INTERVAL;
            }
            if self.counts.len() >= MAX_COUNTS {
                self.refused += 1;
                let is_reached = t.kind == ThresholdKind::Limit || t.count == 1;
                let reports = is_reached && t.kind != ThresholdKind::DetectionFilter;
                return if reports { Permission::Alert } else { Permission::Nothing };
            }
        }
        let period = Duration::from_secs(t.seconds.into());
        let new = || Count { since: now, seconds: t.seconds, n: 0, next: t.count, ports: vec![] };
        let count = self.counts.entry(key).or_insert_with(new);
        if now.saturating_sub(count.since) > period {
            *count = new();
        }
        match t.unique_on {
            None => count.n = count.n.saturating_add(1),
            Some(on) => {
                let port = if on == UniqueOn::SourcePort { packet.src_port } else { packet.dst_port };
                if !count.ports.contains(&port) && count.ports.len() < UNIQUE_MAX as usize {
                    count.ports.push(port);
                }
                count.n = count.ports.len() as u32;
            }
        }
        let (reports, acts) = match t.kind {
            ThresholdKind::Limit => (count.n <= t.count, true),
            ThresholdKind::Both => (count.n == t.count, count.n >= t.count),
            ThresholdKind::DetectionFilter => (count.n > t.count, false),
            ThresholdKind::Backoff { multiplier } => {
                count.since = now;
                let due = count.n == count.next;
                if due {
                    // 0 is never reached
                    count.next = count.next.checked_mul(multiplier).unwrap_or(0);
                }
                (due, count.n >= t.count)
            }
            ThresholdKind::Threshold => {
                let due = count.n >= t.count;
                if due {
                    count.n = 0;
                    count.ports.clear();
                }
                (due, false)
            }
        };
        match (reports, acts) {
            (true, _) => Permission::Alert,
            (false, true) => Permission::Action,
            (false, false) => Permission::Nothing,
        }
    }
}
