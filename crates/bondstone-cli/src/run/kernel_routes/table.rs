//! The kernel's routes: several to a prefix, of which packets use the first.

use fpm::{Hop, Route, Target};
use ipnet::IpNet;
use std::collections::HashMap;

/// A route of the kernel, of a prefix.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    metric: u32,
    target: Target,
}

/// Effect of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The route that packets use, or whether there is one.
    Used,
    /// Nothing that packets use.
    Nothing,
    /// There are too many routes for a further one.
    Full,
    /// A removal that does not name its route exactly: all are to be read again.
    Unclear,
}

/// The routes of the kernel's main table.
pub(super) struct KernelTable {
    /// Routes to a prefix, by metric; the kernel uses the first.
    routes: HashMap<IpNet, Vec<Entry>>,
    len: usize,
    max: usize,
}

impl KernelTable {
    /// Returns an empty table for at most `max` routes.
    pub(super) fn new(max: usize) -> KernelTable {
        KernelTable { routes: HashMap::new(), len: 0, max }
    }

    /// Returns the target of the route that packets to a prefix use.
    pub(super) fn used(&self, prefix: IpNet) -> Option<&Target> {
        self.routes.get(&prefix)?.first().map(|entry| &entry.target)
    }

    /// Executes a message about a route. One that arrives again has no effect: notifications may precede the reply to a
    /// request for all routes.
    pub(super) fn apply(&mut self, route: &Route<'_>) -> Effect {
        let before = self.used(route.prefix).cloned();
        let done = if route.removes { self.remove(route) } else { self.add(route) };
        match done {
            Some(problem) => problem,
            None if self.used(route.prefix) == before.as_ref() => Effect::Nothing,
            None => Effect::Used,
        }
    }

    fn add(&mut self, route: &Route<'_>) -> Option<Effect> {
        let metric = route.metric;
        let entries = self.routes.entry(route.prefix).or_default();
        let same = positions(entries, metric);
        let is_ipv4 = route.prefix.addr().is_ipv4();
        if entries[same.clone()].iter().any(|entry| entry.target == route.target) {
            return None;
        }
        // a message about an IPv6 route with several next hops has all, also if one is added
        let is_merged = |entry: &&mut Entry| !is_ipv4 && has_gateways(&entry.target) && has_gateways(&route.target);
        if let Some(entry) = entries[same.clone()].iter_mut().find(is_merged) {
            entry.target = route.target.clone();
            return None;
        }
        if route.replaces && !same.is_empty() {
            // of IPv6 routes one of the same kind, if there is one
            let is_same_kind = |entry: &Entry| is_ipv4 || has_gateways(&entry.target) == has_gateways(&route.target);
            let at = entries[same.clone()].iter().position(is_same_kind).unwrap_or(0);
            entries[same.start + at].target = route.target.clone();
            return None;
        }
        if self.len >= self.max {
            if entries.is_empty() {
                self.routes.remove(&route.prefix);
            }
            return Some(Effect::Full);
        }
        let at = if is_ipv4 && !route.appends { same.start } else { same.end };
        entries.insert(at, Entry { metric, target: route.target.clone() });
        self.len += 1;
        None
    }

    fn remove(&mut self, route: &Route<'_>) -> Option<Effect> {
        let entries = self.routes.get_mut(&route.prefix)?;
        let same = positions(entries, route.metric);
        let exact = entries[same.clone()].iter().position(|entry| entry.target == route.target);
        let before = entries.len();
        match (exact, route.prefix.addr().is_ipv4()) {
            (Some(at), _) => drop(entries.remove(same.start + at)),
            // next hops that are dead are not in the table
            (None, true) if same.len() == 1 => drop(entries.remove(same.start)),
            (None, true) if same.is_empty() => {}
            (None, true) => return Some(Effect::Unclear),
            (None, false) => {
                for n in same.rev() {
                    let (Target::Hops(hops), Target::Hops(removed)) = (&mut entries[n].target, &route.target) else {
                        continue;
                    };
                    hops.retain(|hop| !removed.iter().any(|gone| is_same(hop, gone)));
                    if hops.is_empty() {
                        entries.remove(n);
                    }
                }
            }
        }
        self.len -= before - entries.len();
        if entries.is_empty() {
            self.routes.remove(&route.prefix);
        }
        None
    }
}

/// Returns the positions of routes with a metric, or where they would be.
fn positions(entries: &[Entry], metric: u32) -> core::ops::Range<usize> {
    entries.partition_point(|entry| entry.metric < metric)..entries.partition_point(|entry| entry.metric <= metric)
}

/// Returns true if the kernel merges such an IPv6 route with others of its prefix and metric.
fn has_gateways(target: &Target) -> bool {
    matches!(target, Target::Hops(hops) if hops.iter().all(|hop| hop.gateway.is_some()))
}

fn is_same(one: &Hop, other: &Hop) -> bool {
    (one.gateway, one.interface) == (other.gateway, other.interface)
}

#[cfg(test)]
mod tests;
