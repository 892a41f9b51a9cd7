//! Rules that change while packets are forwarded, by the control socket or by a file that is reloaded when it changes.
//! New rules are compiled outside the packet path, and each worker takes them between two batches.

use super::rule::{self, Action, FirewallRule};
use super::rule_set::{Edit, RuleCounters, RuleSet, WorkerRules, compaction_delay};
use ::control::socket::{self, SocketId};
use diagnostics::Diagnostic;
use graph::{Context, Counter, SettingFiles};
use logger::eprintln;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// Sources of the rules.
#[derive(Clone)]
pub(super) struct RuleSource {
    pub(super) rules: Vec<String>,
    pub(super) file: Option<PathBuf>,
    pub(super) files: SettingFiles,
    pub(super) control: Option<PathBuf>,
    pub(super) tracked: bool,
    pub(super) default_action: Action,
}

impl RuleSource {
    fn read<'a>(
        &self,
        known: impl Iterator<Item = &'a Arc<FirewallRule>>,
    ) -> Result<Vec<Arc<FirewallRule>>, Diagnostic> {
        rule::load(&self.rules, self.file.as_deref(), &self.files, self.tracked, known)
    }
}

/// The rules that all workers of a firewall share.
pub(super) struct LiveRules {
    source: RuleSource,
    rule_set: Mutex<RuleSet>,
    copies: Mutex<Vec<Arc<Mailbox>>>,
    /// Set once the update threads are started, once packets may arrive, and while rules are being recompiled.
    started: AtomicBool,
    running: AtomicBool,
    compacting: AtomicBool,
    /// Identity of the control socket, once it listens.
    socket: OnceLock<SocketId>,
    /// Numbers of accepted and rejected changes.
    changed: AtomicU64,
    rejected: AtomicU64,
}

/// Transfers new rules to one worker and old ones back.
pub(super) struct Mailbox {
    /// True if `new` is set.
    ready: AtomicBool,
    /// Rules for the worker, and rules that it returned.
    new: Mutex<Option<Box<WorkerRules>>>,
    old: Mutex<Option<Box<WorkerRules>>>,
    counts: Mutex<RuleCounters>,
    /// Counters of the node besides those of the rules.
    own: Vec<(String, Arc<Counter>)>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveRules {
    pub(super) fn new(source: RuleSource) -> Result<Self, Diagnostic> {
        if let Some(socket) = &source.control {
            socket::check(socket).map_err(|e| e.key("control"))?;
        }
        let rule_set = RuleSet::new(source.read([].iter())?, source.default_action)?;
        Ok(LiveRules {
            source,
            rule_set: Mutex::new(rule_set),
            copies: Mutex::default(),
            started: AtomicBool::new(false),
            running: AtomicBool::new(false),
            compacting: AtomicBool::new(false),
            socket: OnceLock::new(),
            changed: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        })
    }

    /// Adds a worker, with the counters of its node that are shown beside those of the rules.
    pub(super) fn attach(self: &Arc<Self>, own: Vec<(String, Arc<Counter>)>) -> (Arc<Mailbox>, Box<WorkerRules>) {
        let mut counts = RuleCounters::default();
        let mut rule_set = lock(&self.rule_set);
        let rules = rule_set.worker_rules([(&mut counts, own.as_slice())].into_iter(), true).pop();
        let rules = Box::new(rules.expect("rules for each copy"));
        let copy = Mailbox {
            ready: AtomicBool::new(false),
            new: Mutex::default(),
            old: Mutex::default(),
            counts: Mutex::new(counts),
            own,
        };
        let copy = Arc::new(copy);
        lock(&self.copies).push(copy.clone());
        (copy, rules)
    }

    /// Returns true if a file or a control socket is configured.
    pub(super) fn may_change(&self) -> bool {
        self.source.file.is_some() || self.source.control.is_some()
    }

    /// Returns true for the first caller if the rules may change.
    pub(super) fn start_updates(&self) -> bool {
        self.may_change() && !self.started.swap(true, Ordering::Relaxed)
    }

    /// Returns the rule file, if one is configured.
    pub(super) fn file(&self) -> Option<&Path> {
        self.source.file.as_deref()
    }

    pub(super) fn control_socket(&self) -> Option<&Path> {
        self.source.control.as_deref()
    }

    /// Records that packets may arrive from now on.
    pub(super) fn set_running(&self) {
        if !self.running.load(Ordering::Relaxed) {
            self.running.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if packets may arrive. A chain that is only checked opens no socket.
    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    /// Records the identity of the control socket.
    pub(super) fn set_socket(&self, socket: SocketId) {
        // set only once
        let _ = self.socket.set(socket);
    }

    /// Returns the numbers of accepted and rejected changes.
    pub(super) fn change_counts(&self) -> (u64, u64) {
        (self.changed.load(Ordering::Relaxed), self.rejected.load(Ordering::Relaxed))
    }

    /// Parses a rule.
    pub(super) fn rule(&self, text: &str) -> Result<Arc<FirewallRule>, Diagnostic> {
        rule::parse(text, self.source.tracked).inspect_err(|_| _ = self.rejected.fetch_add(1, Ordering::Relaxed))
    }

    /// Calls a function with all rules.
    pub(super) fn with_rules<T>(
        &self,
        at: impl FnOnce(&mut dyn ExactSizeIterator<Item = &Arc<FirewallRule>>) -> T,
    ) -> T {
        at(&mut lock(&self.rule_set).rules())
    }

    /// Applies changes, each to the result of the previous one, publishes the rules and returns the result of each
    /// change.
    pub(super) fn apply_changes(
        self: &Arc<Self>,
        changes: &[impl Fn(&RuleSet) -> Result<Edit, Diagnostic>],
    ) -> Vec<Result<(), Diagnostic>> {
        let mut rule_set = lock(&self.rule_set);
        let done: Vec<_> =
            changes.iter().map(|change| change(&rule_set).and_then(|edit| rule_set.edit(vec![edit]))).collect();
        let taken = done.iter().filter(|done| done.is_ok()).count() as u64;
        self.rejected.fetch_add(done.len() as u64 - taken, Ordering::Relaxed);
        if taken != 0 {
            self.publish(&mut rule_set, false);
            self.changed.fetch_add(taken, Ordering::Relaxed);
        }
        done
    }

    /// Reloads the file and publishes its rules.
    pub(super) fn reload_file(self: &Arc<Self>) {
        let mut rule_set = lock(&self.rule_set);
        let rules = self.source.read(rule_set.rules());
        match rules.and_then(|rules| rule_set.set(&rules)) {
            Ok(changes) => {
                if changes {
                    self.publish(&mut rule_set, false);
                }
                self.changed.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                self.rejected.fetch_add(1, Ordering::Relaxed);
                eprintln!("firewall: the rules remain unchanged: {error}");
            }
        }
    }

    /// Sends the current rules to the workers, with counters if `show` is set or the rules are few.
    fn publish(self: &Arc<Self>, rule_set: &mut RuleSet, show: bool) {
        let mut copies = lock(&self.copies);
        // drop the mailboxes of nodes that no longer exist
        copies.retain(|copy| Arc::strong_count(copy) > 1);
        let mut counts: Vec<_> = copies.iter().map(|copy| (lock(&copy.counts), copy.own.as_slice())).collect();
        let worker_rules = rule_set.worker_rules(counts.iter_mut().map(|(counts, own)| (&mut **counts, *own)), show);
        drop(counts);
        for (copy, mut rules) in copies.iter().zip(worker_rules) {
            let mut new = lock(&copy.new);
            // make room for the rules that the worker returns; it cannot return any while `new` is locked
            let old = lock(&copy.old).take();
            // counters of rules that the worker has not received still have to be published
            let mut undelivered = new.take();
            rules.counters =
                rules.counters.or(undelivered.as_mut().and_then(|undelivered| undelivered.counters.take()));
            *new = Some(Box::new(rules));
            copy.ready.store(true, Ordering::Release);
            // unlock before dropping thousands of rules: a worker may need the locks
            drop(new);
            drop((old, undelivered));
        }
        if rule_set.needs_compaction() && !self.compacting.swap(true, Ordering::Relaxed) {
            let weak = Arc::downgrade(self);
            // without the thread look-ups merely stay slower
            if Builder::new().name("firewall-compact".to_owned()).spawn(move || compact(&weak)).is_err() {
                self.compacting.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Drops the rules that workers returned.
    pub(super) fn drop_old(&self) {
        for copy in &*lock(&self.copies) {
            let old = lock(&copy.old).take();
            drop(old);
        }
    }
}

impl Drop for LiveRules {
    fn drop(&mut self) {
        if let (Some(path), Some(id)) = (&self.source.control, self.socket.get()) {
            socket::close(path, *id);
        }
    }
}

impl Mailbox {
    /// Replaces the rules by new ones, if there are any, and publishes their counters. Neither blocks nor drops the old
    /// rules.
    #[inline(always)]
    pub(super) fn receive(&self, rules: &mut Box<WorkerRules>, cx: &Context<'_>) {
        if self.ready.load(Ordering::Acquire) {
            self.exchange(rules, cx);
        }
    }

    #[cold]
    fn exchange(&self, rules: &mut Box<WorkerRules>, cx: &Context<'_>) {
        let (Ok(mut new), Ok(mut old)) = (self.new.try_lock(), self.old.try_lock()) else { return };
        if old.is_some() {
            // try again later rather than drop many rules here
            return;
        }
        let Some(new) = new.take() else { return };
        self.ready.store(false, Ordering::Relaxed);
        let mut before = core::mem::replace(rules, new);
        if let Some(counters) = rules.counters.take() {
            before.counters = Some(cx.replace_counters(counters));
        }
        *old = Some(before);
    }
}

/// Recompiles the rules after a change and publishes their counters.
fn compact(live_rules: &Weak<LiveRules>) {
    let mut elapsed = Duration::ZERO;
    loop {
        sleep(compaction_delay(elapsed));
        let Some(live_rules) = live_rules.upgrade() else { return };
        let folds = lock(&live_rules.rule_set).fold();
        let start = Instant::now();
        let folded: Vec<_> = folds.into_iter().map(|(class, fold)| (class, fold.make())).collect();
        elapsed = start.elapsed();
        let mut rule_set = lock(&live_rules.rule_set);
        rule_set.install(folded);
        if rule_set.pending() == 0 {
            live_rules.compacting.store(false, Ordering::Relaxed);
        }
        live_rules.publish(&mut rule_set, true);
        if rule_set.pending() == 0 {
            return;
        }
    }
}
