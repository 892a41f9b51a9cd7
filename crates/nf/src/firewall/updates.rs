//! The thread that applies changes of the file of rules.

use super::live_rules::{LiveRules, Mailbox};
use super::rule_set::WorkerRules;
use graph::{Counter, FileVersion};
use std::sync::{Arc, Weak};
use std::thread::{Builder, sleep};
use std::time::Duration;

/// Interval at which the file is checked. It is read once it has not changed for as long: an editor may write it in
/// parts.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

graph::named_enum! {
    /// Counters of rule changes.
    pub(super) enum ChangeCounter {
        Changed = "rules_changed",
        Rejected = "rules_rejected",
    }
}

/// Attaches a copy of the firewall, with its own counters that are shown beside those of the rules. The first call
/// starts the thread.
pub(super) fn attach(live: &Arc<LiveRules>, own: Vec<(String, Arc<Counter>)>) -> (Arc<Mailbox>, Box<WorkerRules>) {
    let attached = live.attach(own);
    if let Some(file) = live.watched_file() {
        let (weak, version) = (Arc::downgrade(live), FileVersion::of(file));
        // if a thread cannot be created, the rules stay as they are
        drop(Builder::new().name("firewall-rules".to_owned()).spawn(move || watch_file(&weak, version)));
    }
    attached
}

/// Reloads the rules when the file changes, until the last user of the rules is dropped.
fn watch_file(live: &Weak<LiveRules>, mut loaded: Option<FileVersion>) {
    let mut previous = loaded;
    loop {
        sleep(POLL_INTERVAL);
        let Some(live) = live.upgrade() else { return };
        live.drop_old();
        let now = live.file().and_then(FileVersion::of);
        // a missing file is being replaced
        if now.is_some() && now != loaded && now == previous {
            live.reload_file();
            loaded = now;
        }
        previous = now;
    }
}
