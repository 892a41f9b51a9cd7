//! Threads that apply changes of the rules: one watches the file, one serves the control socket.

use super::control;
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
/// starts the threads.
pub(super) fn attach(live: &Arc<LiveRules>, own: Vec<(String, Arc<Counter>)>) -> (Arc<Mailbox>, Box<WorkerRules>) {
    let attached = live.attach(own);
    if live.start_updates() {
        // if a thread cannot be created, the rules stay as they are
        if let Some(file) = live.file() {
            let version = FileVersion::of(file);
            let weak = Arc::downgrade(live);
            drop(Builder::new().name("firewall-rules".to_owned()).spawn(move || watch_file(&weak, version)));
        }
        if let Some(path) = live.control_socket() {
            let (weak, path) = (Arc::downgrade(live), path.to_owned());
            drop(Builder::new().name("firewall-control".to_owned()).spawn(move || control::serve(&weak, &path)));
        }
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
