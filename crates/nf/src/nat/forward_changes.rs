//! Changes of forwards by a reload, and what they leave to do.

use super::config::{Config, Forward};
use super::flow::Endpoint;
use foldhash::{HashMap, HashSet};

/// The forwards of a core in which its settings differ from those before a reload.
#[derive(Default)]
pub(crate) struct ForwardChanges {
    pub(super) removed: Vec<Forward>,
    pub(super) added: Vec<Forward>,
    /// Number of this copy and number of copies.
    pub(super) copy: (usize, usize),
}

impl ForwardChanges {
    /// Compares settings with the same external addresses.
    pub(crate) fn between(old: &Config, new: &Config, copy: (usize, usize)) -> Self {
        let without = |list: &[Forward], other: &[Forward]| {
            let other: HashSet<_> = other.iter().copied().collect();
            list.iter().filter(|f| !other.contains(f)).copied().collect()
        };
        ForwardChanges {
            removed: without(&old.forward, &new.forward),
            added: without(&new.forward, &old.forward),
            copy,
        }
    }
}

/// Work that reloads have left to do.
#[derive(Default)]
pub(super) struct Displaced {
    /// Changes that apply when the table takes over the sessions of another.
    pub(super) changes: ForwardChanges,
    /// Numbers of sessions, by inside and external endpoint, whose mapping was replaced by a forward.
    pub(super) replaced: HashMap<(Endpoint, Endpoint), u32>,
    /// Removed forwards. Their ports are reserved until no session has them.
    pub(super) removed: Vec<Forward>,
    /// Number of this copy and number of copies.
    pub(super) copy: (usize, usize),
    /// The next bucket to scan.
    pub(super) scan: Option<usize>,
    /// Number of sessions that the scan has closed.
    pub(super) closed: usize,
}
