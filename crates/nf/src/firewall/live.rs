//! Rules that change while packets are forwarded: a file is read anew when it has changed, off the packet path, and each
//! copy takes the rules that were made of it between two batches.

use super::policy::{Counts, Desk, Policy};
use super::{Action, rules};
use graph::{Counter, Cx, Diagnostic};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, sleep};
use std::time::Duration;

/// How often the file is looked at. Rules are read once it has not changed for as long: an editor may take a while to write.
const LOOK: Duration = Duration::from_millis(200);

/// Where rules come from.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) rules: Vec<String>,
    pub(super) file: Option<PathBuf>,
    pub(super) tracked: bool,
    pub(super) by_default: Action,
}

impl Origin {
    pub(super) fn policy(&self) -> Result<Arc<Policy>, Diagnostic> {
        let rules = rules::read(&self.rules, self.file.as_deref(), self.tracked)?;
        Ok(Arc::new(Policy::new(rules, self.by_default)?))
    }

    /// What tells one state of the file from another.
    fn mark(&self) -> Option<Mark> {
        let meta = std::fs::metadata(self.file.as_ref()?).ok()?;
        Some((meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()))
    }
}

type Mark = (u64, u64, u64, i64, i64, i64, i64);

/// The rules that the copies of a firewall have in common.
pub(super) struct Live {
    origin: Origin,
    policy: Mutex<Arc<Policy>>,
    copies: Mutex<Vec<Arc<Copy>>>,
    watched: AtomicBool,
    /// Times that rules were taken, and refused.
    changed: AtomicU64,
    refused: AtomicU64,
}

/// One copy's way to new rules.
pub(super) struct Copy {
    /// Whether there is something for it.
    ready: AtomicBool,
    /// What is for it, and what it has given back.
    new: Mutex<Option<Box<Desk>>>,
    old: Mutex<Option<Box<Desk>>>,
    counts: Mutex<Counts>,
    /// Its other counters.
    own: Vec<(String, Arc<Counter>)>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    pub(super) fn new(origin: Origin) -> Result<Self, Diagnostic> {
        let policy = Mutex::new(origin.policy()?);
        let (copies, watched) = (Mutex::default(), AtomicBool::new(false));
        Ok(Live { origin, policy, copies, watched, changed: AtomicU64::new(0), refused: AtomicU64::new(0) })
    }

    /// A further copy, with the counters of its own that are shown beside those of the rules.
    pub(super) fn join(self: &Arc<Self>, own: Vec<(String, Arc<Counter>)>) -> (Arc<Copy>, Box<Desk>) {
        let mut counts = Counts::new();
        let mut copies = lock(&self.copies);
        let desk = Box::new(Desk::new(lock(&self.policy).clone(), &own, &mut counts));
        let copy = Copy {
            ready: AtomicBool::new(false),
            new: Mutex::default(),
            old: Mutex::default(),
            counts: Mutex::new(counts),
            own,
        };
        let copy = Arc::new(copy);
        copies.push(copy.clone());
        if self.origin.file.is_some() && !self.watched.swap(true, Ordering::Relaxed) {
            let (weak, mark) = (Arc::downgrade(self), self.origin.mark());
            // without a thread the rules stay as they are
            drop(Builder::new().name("firewall-rules".to_owned()).spawn(move || watch(&weak, mark)));
        }
        (copy, desk)
    }

    /// Whether they may change.
    pub(super) fn may_change(&self) -> bool {
        self.origin.file.is_some()
    }

    /// Times that rules were taken, and refused.
    pub(super) fn times(&self) -> (u64, u64) {
        (self.changed.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// Reads the file and hands its rules to the copies.
    fn renew(&self) {
        let policy = match self.origin.policy() {
            Ok(policy) => policy,
            Err(fault) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                eprintln!("firewall: the rules stay as they were: {fault}");
                return;
            }
        };
        let mut copies = lock(&self.copies);
        *lock(&self.policy) = policy.clone();
        // those that only this list knows are of nodes that are gone
        copies.retain(|copy| Arc::strong_count(copy) > 1);
        for copy in &*copies {
            let desk = Box::new(Desk::new(policy.clone(), &copy.own, &mut lock(&copy.counts)));
            *lock(&copy.new) = Some(desk);
            copy.ready.store(true, Ordering::Release);
        }
        self.changed.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops what copies have given back.
    fn clear(&self) {
        for copy in &*lock(&self.copies) {
            // the lock is free again before thousands of rules are dropped: a worker may ask for it
            let old = lock(&copy.old).take();
            drop(old);
        }
    }
}

impl Copy {
    /// Puts new rules in the place of those there are, if there are some, and shows their counters. Does not wait for who
    /// makes them, nor drop what was.
    #[inline]
    pub(super) fn renew(&self, desk: &mut Box<Desk>, cx: &Cx<'_>) {
        if self.take(desk) {
            let shown = cx.show_counters(core::mem::take(&mut desk.counters));
            if let Some(old) = lock(&self.old).as_mut() {
                old.counters = shown;
            }
        }
    }

    fn take(&self, desk: &mut Box<Desk>) -> bool {
        if !self.ready.load(Ordering::Acquire) {
            return false;
        }
        let (Ok(mut new), Ok(mut old)) = (self.new.try_lock(), self.old.try_lock()) else { return false };
        if old.is_some() {
            // rather later than to drop many rules here
            return false;
        }
        let Some(new) = new.take() else { return false };
        self.ready.store(false, Ordering::Relaxed);
        *old = Some(core::mem::replace(desk, new));
        true
    }
}

/// Looks at the file until nobody has its rules any more.
fn watch(live: &Weak<Live>, mut taken: Option<Mark>) {
    let mut before = taken;
    loop {
        sleep(LOOK);
        let Some(live) = live.upgrade() else { return };
        live.clear();
        let now = live.origin.mark();
        // a file that is not there is about to be put there
        if now.is_some() && now != taken && now == before {
            live.renew();
            taken = now;
        }
        before = now;
    }
}
