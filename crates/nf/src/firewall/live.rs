//! Rules that change while packets are forwarded: single ones by a socket, or all by a file that is read anew when it has
//! changed. Changes are made ready off the packet path, and each copy takes them between two batches.

use super::policy::{Counts, Desk, Edit, Policy, pause};
use super::rules::Written;
use super::{Action, control, rules};
use diagnostics::Diagnostic;
use graph::{Counter, Context};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// How often the file is looked at. Rules are read once it has not changed for as long: an editor may take a while to write.
const LOOK: Duration = Duration::from_millis(200);

/// Where rules come from.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) rules: Vec<String>,
    pub(super) file: Option<PathBuf>,
    pub(super) control: Option<PathBuf>,
    pub(super) tracked: bool,
    pub(super) by_default: Action,
}

impl Origin {
    fn read<'a>(&self, known: impl Iterator<Item = &'a Arc<Written>>) -> Result<Vec<Arc<Written>>, Diagnostic> {
        rules::read(&self.rules, self.file.as_deref(), self.tracked, known)
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
    policy: Mutex<Policy>,
    copies: Mutex<Vec<Arc<Copy>>>,
    /// Whether there are threads that look for changes; whether packets may come; whether rules are being folded.
    watched: AtomicBool,
    runs: AtomicBool,
    folding: AtomicBool,
    /// Which file its socket is, once it listens.
    place: OnceLock<control::Place>,
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
        if let Some(socket) = &origin.control {
            control::check(socket)?;
        }
        let policy = Policy::new(origin.read([].iter())?, origin.by_default)?;
        Ok(Live {
            origin,
            policy: Mutex::new(policy),
            copies: Mutex::default(),
            watched: AtomicBool::new(false),
            runs: AtomicBool::new(false),
            folding: AtomicBool::new(false),
            place: OnceLock::new(),
            changed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// A further copy, with the counters of its own that are shown beside those of the rules.
    pub(super) fn join(self: &Arc<Self>, own: Vec<(String, Arc<Counter>)>) -> (Arc<Copy>, Box<Desk>) {
        let mut counts = Counts::default();
        let mut policy = lock(&self.policy);
        let desk = policy.desks([(&mut counts, own.as_slice())].into_iter(), true).pop();
        let desk = Box::new(desk.expect("a desk for each copy"));
        let copy = Copy {
            ready: AtomicBool::new(false),
            new: Mutex::default(),
            old: Mutex::default(),
            counts: Mutex::new(counts),
            own,
        };
        let copy = Arc::new(copy);
        lock(&self.copies).push(copy.clone());
        if self.may_change() && !self.watched.swap(true, Ordering::Relaxed) {
            let (weak, mark) = (Arc::downgrade(self), self.origin.mark());
            // without a thread the rules stay as they are
            if self.origin.file.is_some() {
                drop(Builder::new().name("firewall-rules".to_owned()).spawn(move || watch(&weak, mark)));
            }
            if let Some(socket) = self.origin.control.clone() {
                let weak = Arc::downgrade(self);
                drop(Builder::new().name("firewall-control".to_owned()).spawn(move || control::serve(&weak, &socket)));
            }
        }
        (copy, desk)
    }

    /// Whether they may change.
    pub(super) fn may_change(&self) -> bool {
        self.origin.file.is_some() || self.origin.control.is_some()
    }

    /// Says that packets may come from now on.
    pub(super) fn runs(&self) {
        if !self.runs.load(Ordering::Relaxed) {
            self.runs.store(true, Ordering::Relaxed);
        }
    }

    /// Whether packets may come: a chain that is only checked has no socket.
    pub(super) fn is_running(&self) -> bool {
        self.runs.load(Ordering::Relaxed)
    }

    /// Says which file its socket is.
    pub(super) fn listens_at(&self, place: control::Place) {
        // it listens but once
        let _ = self.place.set(place);
    }

    /// Times that rules were taken, and refused.
    pub(super) fn times(&self) -> (u64, u64) {
        (self.changed.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// A rule as it would stand in the list.
    pub(super) fn rule(&self, text: &str) -> Result<Arc<Written>, Diagnostic> {
        rules::one(text, self.origin.tracked).inspect_err(|_| _ = self.refused.fetch_add(1, Ordering::Relaxed))
    }

    /// What is made of all rules, as they stand.
    pub(super) fn look<T>(&self, at: impl FnOnce(&mut dyn ExactSizeIterator<Item = &Arc<Written>>) -> T) -> T {
        at(&mut lock(&self.policy).rules())
    }

    /// Makes changes of which each is found when those before it are made, and hands the rules to the copies. What became of
    /// each.
    pub(super) fn change(
        self: &Arc<Self>,
        changes: &[impl Fn(&Policy) -> Result<Edit, Diagnostic>],
    ) -> Vec<Result<(), Diagnostic>> {
        let mut policy = lock(&self.policy);
        let done: Vec<_> =
            changes.iter().map(|change| change(&policy).and_then(|edit| policy.edit(vec![edit]))).collect();
        let taken = done.iter().filter(|done| done.is_ok()).count() as u64;
        self.refused.fetch_add(done.len() as u64 - taken, Ordering::Relaxed);
        if taken != 0 {
            self.publish(&mut policy, false);
            self.changed.fetch_add(taken, Ordering::Relaxed);
        }
        done
    }

    /// Reads the file and hands its rules to the copies.
    fn renew(self: &Arc<Self>) {
        let mut policy = lock(&self.policy);
        let rules = self.origin.read(policy.rules());
        match rules.and_then(|rules| policy.set(&rules)) {
            Ok(changes) => {
                if changes {
                    self.publish(&mut policy, false);
                }
                self.changed.fetch_add(1, Ordering::Relaxed);
            }
            Err(fault) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                eprintln!("firewall: the rules stay as they were: {fault}");
            }
        }
    }

    /// Hands the rules to the copies as they are now; what is to be shown of them if that is asked for, or cheap.
    fn publish(self: &Arc<Self>, policy: &mut Policy, show: bool) {
        let mut copies = lock(&self.copies);
        // those that only this list knows are of nodes that are gone
        copies.retain(|copy| Arc::strong_count(copy) > 1);
        let mut counts: Vec<_> = copies.iter().map(|copy| (lock(&copy.counts), copy.own.as_slice())).collect();
        let desks = policy.desks(counts.iter_mut().map(|(counts, own)| (&mut **counts, *own)), show);
        drop(counts);
        for (copy, mut desk) in copies.iter().zip(desks) {
            let mut new = lock(&copy.new);
            // there has to be room for what the copy gives back, and nobody gives anything back while this lock is held
            let old = lock(&copy.old).take();
            // what a copy has not taken yet is to be shown all the same
            let mut unseen = new.take();
            desk.counters = desk.counters.or(unseen.as_mut().and_then(|unseen| unseen.counters.take()));
            *new = Some(Box::new(desk));
            copy.ready.store(true, Ordering::Release);
            // the locks are free again before thousands of rules are dropped: a worker may ask for them
            drop(new);
            drop((old, unseen));
        }
        if policy.untidy() && !self.folding.swap(true, Ordering::Relaxed) {
            let weak = Arc::downgrade(self);
            // without a thread look-ups stay as slow as they are
            if Builder::new().name("firewall-fold".to_owned()).spawn(move || tidy(&weak)).is_err() {
                self.folding.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Drops what copies have given back.
    fn clear(&self) {
        for copy in &*lock(&self.copies) {
            let old = lock(&copy.old).take();
            drop(old);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let (Some(socket), Some(place)) = (&self.origin.control, self.place.get()) {
            control::leave(socket, *place);
        }
    }
}

impl Copy {
    /// Puts new rules in the place of those there are, if there are some, and shows their counters. Does not wait for who
    /// makes them, nor drop what was.
    #[inline(always)]
    pub(super) fn renew(&self, desk: &mut Box<Desk>, cx: &Context<'_>) {
        if self.ready.load(Ordering::Acquire) {
            self.exchange(desk, cx);
        }
    }

    #[cold]
    fn exchange(&self, desk: &mut Box<Desk>, cx: &Context<'_>) {
        let (Ok(mut new), Ok(mut old)) = (self.new.try_lock(), self.old.try_lock()) else { return };
        if old.is_some() {
            // rather later than to drop many rules here
            return;
        }
        let Some(new) = new.take() else { return };
        self.ready.store(false, Ordering::Relaxed);
        let mut before = core::mem::replace(desk, new);
        if let Some(counters) = desk.counters.take() {
            before.counters = Some(cx.show_counters(counters));
        }
        *old = Some(before);
    }
}

/// Makes all rules ready anew when a change has been made, and shows what there is.
fn tidy(live: &Weak<Live>) {
    let mut took = Duration::ZERO;
    loop {
        sleep(pause(took));
        let Some(live) = live.upgrade() else { return };
        let folds = lock(&live.policy).fold();
        let began = Instant::now();
        let made: Vec<_> = folds.into_iter().map(|(class, fold)| (class, fold.make())).collect();
        took = began.elapsed();
        let mut policy = lock(&live.policy);
        policy.take(made);
        if policy.pending() == 0 {
            live.folding.store(false, Ordering::Relaxed);
        }
        live.publish(&mut policy, true);
        if policy.pending() == 0 {
            return;
        }
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
