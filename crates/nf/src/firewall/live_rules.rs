//! Rules that change while packets are forwarded, by requests or by a file that is reloaded when it changes.
//! New rules are compiled outside the packet path, and each worker takes them between two batches.

use super::rule::{self, Action, FirewallRule};
use super::rule_set::{Edit, RuleCounters, RuleSet, WorkerRules, compaction_delay};
use control::RulesChanged;
use diagnostics::Diagnostic;
use graph::{Context, Counter, SettingFiles};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// Sources of the rules.
#[derive(Clone)]
pub(super) struct RuleSource {
    pub(super) rules: Vec<String>,
    pub(super) file: Option<PathBuf>,
    pub(super) files: SettingFiles,
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
pub struct LiveRules {
    source: RuleSource,
    rule_set: Mutex<RuleSet>,
    copies: Mutex<Vec<Arc<Mailbox>>>,
    /// Set once the file is watched, and while rules are being recompiled.
    started: AtomicBool,
    compacting: AtomicBool,
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
        let rule_set = RuleSet::new(source.read([].iter())?, source.default_action)?;
        Ok(LiveRules {
            source,
            rule_set: Mutex::new(rule_set),
            copies: Mutex::default(),
            started: AtomicBool::new(false),
            compacting: AtomicBool::new(false),
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

    /// Returns the rule file to the first caller, which is to watch it.
    pub(super) fn watched_file(&self) -> Option<&Path> {
        self.file().filter(|_| !self.started.swap(true, Ordering::Relaxed))
    }

    /// Returns the rule file, if one is configured.
    pub(super) fn file(&self) -> Option<&Path> {
        self.source.file.as_deref()
    }

    pub(super) fn default_action(&self) -> Action {
        self.source.default_action
    }

    /// Returns the numbers of accepted and rejected changes.
    pub(super) fn change_counts(&self) -> (u64, u64) {
        (self.changed.load(Ordering::Relaxed), self.rejected.load(Ordering::Relaxed))
    }

    /// Parses a rule.
    pub(super) fn parse(&self, text: &str) -> Result<Arc<FirewallRule>, Diagnostic> {
        rule::parse(text.trim(), self.source.tracked)
    }

    /// Calls a function with all rules and their packets, and the packets that no rule matched.
    pub(super) fn with_counts<T>(
        &self,
        f: impl FnOnce(&mut dyn ExactSizeIterator<Item = (&FirewallRule, u64)>, u64) -> T,
    ) -> T {
        let rule_set = lock(&self.rule_set);
        let copies = lock(&self.copies);
        let counts: Vec<_> = copies.iter().map(|copy| lock(&copy.counts)).collect();
        let counts: Vec<&RuleCounters> = counts.iter().map(|counts| &**counts).collect();
        f(&mut rule_set.counts(&counts), counts.iter().map(|counts| counts.default_packets()).sum())
    }

    /// Makes the edits that a function returns for the current rules, and publishes the result.
    ///
    /// # Errors
    /// That of the function; nothing has changed then.
    pub(super) fn edit(
        self: &Arc<Self>,
        edits: impl FnOnce(&mut dyn ExactSizeIterator<Item = &Arc<FirewallRule>>) -> Result<Vec<Edit>, Diagnostic>,
    ) -> Result<RulesChanged, Diagnostic> {
        let mut rule_set = lock(&self.rule_set);
        let edits = edits(&mut rule_set.rules());
        let made = edits.and_then(|edits| {
            let all = edits.len();
            let added = edits.iter().filter(|edit| matches!(edit, Edit::Insert(..))).count();
            rule_set.edit(edits)?;
            Ok(RulesChanged { nf: String::new(), added, removed: all - added, total: rule_set.rules().len() })
        });
        match &made {
            Ok(changed) => {
                self.publish(&mut rule_set, false);
                self.changed.fetch_add((changed.added + changed.removed) as u64, Ordering::Relaxed);
            }
            Err(_) => _ = self.rejected.fetch_add(1, Ordering::Relaxed),
        }
        made
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
                let file = self.source.file.as_deref().map(|file| file.display().to_string());
                tracing::warn!(target: "nf", file, "firewall: the rules remain unchanged: {error}");
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
