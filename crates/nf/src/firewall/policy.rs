//! Rules made ready, and what is counted of them.

use super::Action;
use super::rules::Written;
use diagnostics::Diagnostic;
use graph::Counter;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tables::Classifier;
use tables::classifier::{Changing, Fold, Folded, Key4, Key6, MAX_RULES};

/// Changes for which it pays to make all rules ready anew before they are taken.
const MANY: usize = 512;
/// Rules whose counts are shown anew at every change.
const SHOWN_AT_ONCE: usize = 256;

/// What tracking knows of a packet; without it every packet is new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(super) enum Class {
    New,
    Established,
    Related,
    Invalid,
}

impl Class {
    const ALL: [Class; 4] = [Class::New, Class::Established, Class::Related, Class::Invalid];
    pub(super) const NAMES: [&str; 4] = ["new", "established", "related", "invalid"];

    /// As a bit of [`Written::states`].
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A rule of the list, and where its counts are.
struct Line {
    rule: Arc<Written>,
    slot: u32,
}

/// Where a rule's counts are.
#[derive(Clone, Copy)]
struct Slot {
    action: Action,
    /// The how manieth rule has it.
    born: u64,
}

/// All rules, for all copies.
pub(super) struct Policy {
    lines: Vec<Line>,
    /// For each class, the rules that are for it, by slots.
    lists: [Changing; 4],
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Rules that there have been.
    born: u64,
    by_default: Action,
    /// Whether what is shown is not what there is.
    stale: bool,
}

/// A change of the list.
pub(super) enum Edit {
    /// In front of the rule that stands there then.
    Insert(usize, Arc<Written>),
    Remove(usize),
}

pub(super) fn too_many(rules: usize) -> Diagnostic {
    let d = Diagnostic::new("are too many rules").key("rules").value(rules);
    d.remedy(format!("write {MAX_RULES} or fewer"))
}

fn fault(e: &tables::classifier::Error, rules: usize) -> Diagnostic {
    Diagnostic::new(e.to_string()).key("rules").value(rules)
}

impl Policy {
    pub(super) fn new(rules: Vec<Arc<Written>>, by_default: Action) -> Result<Self, Diagnostic> {
        let lines: Vec<_> = (0..).zip(rules).map(|(slot, rule)| Line { rule, slot }).collect();
        let slots: Vec<_> = (1..).zip(&lines).map(|(born, line)| Slot { action: line.rule.action, born }).collect();
        let born = slots.len() as u64;
        Ok(Policy { lists: lists(&lines)?, lines, slots, free: vec![], born, by_default, stale: true })
    }

    pub(super) fn rules(&self) -> impl ExactSizeIterator<Item = &Arc<Written>> {
        self.lines.iter().map(|line| &line.rule)
    }

    /// Makes the list this one; whether that was another.
    pub(super) fn set(&mut self, rules: &[Arc<Written>]) -> Result<bool, Diagnostic> {
        let edits = difference(&self.rules().map(|rule| &*rule.text).collect::<Vec<_>>(), rules);
        let changes = !edits.is_empty();
        self.edit(edits)?;
        Ok(changes)
    }

    /// Makes changes, one after the other, of which those that take away come first: all of them, or none.
    pub(super) fn edit(&mut self, edits: Vec<Edit>) -> Result<(), Diagnostic> {
        let removed = edits.iter().filter(|edit| matches!(edit, Edit::Remove(_))).count();
        let rules = self.lines.len() + edits.len() - 2 * removed;
        if rules > MAX_RULES {
            return Err(too_many(rules));
        }
        let anew = edits.len() > MANY;
        // a rule that only moves keeps its counts
        let mut taken: HashMap<String, Vec<u32>> = HashMap::new();
        for edit in edits {
            match edit {
                Edit::Remove(at) => {
                    let line = self.lines.remove(at);
                    if !anew {
                        self.each_list(at, &line.rule, |list, at| _ = list.remove(at));
                    }
                    taken.entry(line.rule.text.clone()).or_default().push(line.slot);
                }
                Edit::Insert(at, rule) => {
                    let slot = taken.get_mut(&rule.text).and_then(Vec::pop);
                    let slot = slot.unwrap_or_else(|| self.slot(rule.action));
                    if !anew {
                        let mut refused = None;
                        self.each_list(at, &rule, |list, at| refused = list.insert(at, &rule.matches, slot).err());
                        if let Some(e) = refused {
                            return Err(fault(&e, self.lines.len() + 1));
                        }
                    }
                    self.lines.insert(at, Line { rule, slot });
                }
            }
        }
        self.free.extend(taken.into_values().flatten());
        self.stale = true;
        if anew || self.pending() > MANY {
            self.lists = lists(&self.lines)?;
        }
        Ok(())
    }

    fn slot(&mut self, action: Action) -> u32 {
        self.born += 1;
        let new = Slot { action, born: self.born };
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Does something to the list of each class that a rule is for, told where in it the rule at `at` is.
    fn each_list(&mut self, at: usize, rule: &Written, mut what: impl FnMut(&mut Changing, usize)) {
        for class in Class::ALL.into_iter().filter(|class| rule.states & class.bit() != 0) {
            let before = self.lines[..at].iter().filter(|line| line.rule.states & class.bit() != 0).count();
            what(&mut self.lists[class as usize], before);
        }
    }

    /// Changes that look-ups pay for until rules are folded.
    pub(super) fn pending(&self) -> usize {
        self.lists.iter().map(Changing::pending).sum()
    }

    /// Whether there is something to be tidied up.
    pub(super) fn untidy(&self) -> bool {
        self.stale || self.pending() != 0
    }

    /// What there is to be made ready, by class.
    pub(super) fn fold(&mut self) -> Vec<(usize, Fold)> {
        let lists = self.lists.iter_mut().enumerate();
        lists.filter(|(_, list)| list.pending() != 0).map(|(class, list)| (class, list.fold())).collect()
    }

    /// Takes what was made ready.
    pub(super) fn take(&mut self, made: Vec<(usize, Folded)>) {
        for (class, folded) in made {
            self.lists[class].take(folded);
        }
    }

    /// Rules and counts for copies, as they are now; with what is to be shown if that is asked for, or cheap.
    pub(super) fn desks<'a>(
        &mut self,
        copies: impl Iterator<Item = (&'a mut Counts, &'a [(String, Arc<Counter>)])>,
        show: bool,
    ) -> Vec<Desk> {
        let show = show || self.lines.len() <= SHOWN_AT_ONCE;
        let classifiers = self.lists.each_mut().map(Changing::classifier);
        let desks = copies.map(|(counts, own)| self.desk(&classifiers, counts, own, show)).collect();
        self.stale &= !show;
        desks
    }

    fn desk(&self, of: &[Classifier; 4], counts: &mut Counts, own: &[(String, Arc<Counter>)], show: bool) -> Desk {
        counts.follow(&self.slots);
        let lists = Class::ALL.map(|class| {
            let (class, list) = (class as usize, &self.lists[class as usize]);
            let place = |slot: u32| Place::new(counts.of(slot), self.slots[slot as usize].action);
            let base = match &counts.bases[class] {
                Some((names, places)) if Arc::ptr_eq(names, list.base()) => places.clone(),
                _ => list.base().iter().map(|&slot| place(slot)).collect(),
            };
            List { classifier: of[class].clone(), added: list.added().map(place).collect(), base }
        });
        for class in Class::ALL {
            counts.bases[class as usize] =
                Some((self.lists[class as usize].base().clone(), lists[class as usize].base.clone()));
        }
        let counters = show.then(|| {
            let rules = (1..).zip(&self.lines);
            let mut all: Vec<_> =
                rules.map(|(n, line)| (format!("{n} {}", line.rule.text), counts.of(line.slot))).collect();
            all.push(("default".to_owned(), counts.default.clone()));
            all.extend_from_slice(own);
            all
        });
        Desk { lists, by_default: Place::new(counts.default.clone(), self.by_default), counters }
    }
}

/// All rules made ready, for each class.
fn lists(lines: &[Line]) -> Result<[Changing; 4], Diagnostic> {
    let list = |class: Class| {
        let of = lines.iter().filter(|line| line.rule.states & class.bit() != 0);
        let of: Vec<_> = of.map(|line| (line.rule.matches.clone(), line.slot)).collect();
        Changing::new(&of).map_err(|e| fault(&e, of.len()))
    };
    Ok([list(Class::New)?, list(Class::Established)?, list(Class::Related)?, list(Class::Invalid)?])
}

/// The changes that make one list of the other: what stays is the most that can stay in its order, where texts come once.
fn difference(old: &[&str], new: &[Arc<Written>]) -> Vec<Edit> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, text) in old.iter().enumerate().rev() {
        places.entry(text).or_default().push(at);
    }
    // for each new rule, where it stood
    let stood: Vec<_> = new.iter().map(|rule| places.get_mut(rule.text.as_str()).and_then(Vec::pop)).collect();
    // the longest run of those that rises: for each length the end of the one with the least end, and what it follows
    let mut ends: Vec<usize> = vec![];
    let mut follows = vec![None; new.len()];
    for (n, at) in stood.iter().enumerate().filter_map(|(n, at)| Some((n, (*at)?))) {
        let longer = ends.partition_point(|&end| stood[end].is_some_and(|there| there < at));
        follows[n] = longer.checked_sub(1).map(|before| ends[before]);
        match ends.get_mut(longer) {
            Some(end) => *end = n,
            None => ends.push(n),
        }
    }
    let (mut kept, mut stays) = (HashSet::new(), HashSet::new());
    let mut next = ends.last().copied();
    while let Some(n) = next {
        kept.insert(n);
        stays.extend(stood[n]);
        next = follows[n];
    }
    let removed = (0..old.len()).rev().filter(|at| !stays.contains(at)).map(Edit::Remove);
    let inserted = (0..new.len()).filter(|n| !kept.contains(n)).map(|n| Edit::Insert(n, new[n].clone()));
    removed.chain(inserted).collect()
}

/// How long to wait before rules are made ready anew behind a change: others may follow, and it is not to take all of a CPU.
pub(super) fn pause(last: Duration) -> Duration {
    Duration::from_millis(50).max(last)
}

/// What is counted together, and what becomes of it: no packet of a set is dropped, or all.
pub(super) struct Place {
    count: Arc<Counter>,
    drop: u32,
}

impl Place {
    fn new(count: Arc<Counter>, action: Action) -> Self {
        Place { count, drop: if action == Action::Drop { u32::MAX } else { 0 } }
    }

    /// Counts packets; those that are dropped.
    #[inline(always)]
    fn count(&self, packets: u32) -> u32 {
        self.count.add(packets.count_ones().into());
        packets & self.drop
    }
}

/// The counts of one copy.
#[derive(Default)]
pub(super) struct Counts {
    /// By slot, each with the rule that it is of.
    slots: Vec<(u64, Arc<Counter>)>,
    default: Arc<Counter>,
    /// Places of the rules in the trees, for each class, with their names: the same until rules are folded.
    bases: [Option<Base>; 4],
}

/// Names of rules, and their places.
type Base = (Arc<[u32]>, Arc<[Place]>);

impl Counts {
    /// A new count for every slot that another rule has.
    fn follow(&mut self, slots: &[Slot]) {
        self.slots.resize_with(slots.len(), Default::default);
        for (count, slot) in self.slots.iter_mut().zip(slots) {
            if count.0 != slot.born {
                *count = (slot.born, Arc::default());
            }
        }
    }

    fn of(&self, slot: u32) -> Arc<Counter> {
        self.slots[slot as usize].1.clone()
    }
}

/// The rules for packets of one class, and their counts.
struct List {
    classifier: Classifier,
    /// By the numbers that the classifier finds: of those in its trees, and of those that came since.
    base: Arc<[Place]>,
    added: Box<[Place]>,
}

impl List {
    #[inline(always)]
    fn place(&self, rule: u32) -> &Place {
        match self.base.get(rule as usize) {
            Some(place) => place,
            None => &self.added[rule as usize - self.base.len()],
        }
    }
}

/// The rules and the counts of one copy.
pub(super) struct Desk {
    lists: [List; 4],
    by_default: Place,
    /// To be shown, if that is another than was shown.
    pub(super) counters: Option<Vec<(String, Arc<Counter>)>>,
}

/// What rules say of up to 32 packets.
#[derive(Clone, Copy, Default)]
pub(super) struct Verdict {
    /// Those that are dropped, by a rule or by default.
    pub(super) drop: u32,
    /// Those that no rule matches.
    pub(super) missed: u32,
}

impl Desk {
    /// Whether there are rules for a class.
    #[inline(always)]
    pub(super) fn has(&self, class: Class) -> bool {
        self.lists[class as usize].classifier.rules() != 0
    }

    /// Asks the rules for new packets.
    #[inline(always)]
    pub(super) fn judge4(&self, keys: &[Key4]) -> Verdict {
        let (mut drop, list) = (0, &self.lists[0]);
        let missed = list.classifier.classify4(keys, |rule, packets| drop |= list.place(rule).count(packets));
        Verdict { drop: drop | self.by_default.count(missed), missed }
    }

    /// As [`judge4`](Self::judge4).
    pub(super) fn judge6(&self, keys: &[Key6]) -> Verdict {
        let (mut drop, list) = (0, &self.lists[0]);
        let missed = list.classifier.classify6(keys, |rule, packets| drop |= list.place(rule).count(packets));
        Verdict { drop: drop | self.by_default.count(missed), missed }
    }

    /// What the first rule that one packet of a class matches says: whether it is dropped. None matches: None, and for a new
    /// packet nothing is counted either.
    pub(super) fn ask(&self, class: Class, key: &Key) -> Option<bool> {
        if !self.has(class) {
            return None;
        }
        let (mut drop, list) = (0, &self.lists[class as usize]);
        let found = |rule: u32, packets: u32| {
            if packets != 0 {
                drop |= list.place(rule).count(packets);
            }
        };
        let missed = match key {
            Key::V4(key) => list.classifier.classify4(core::slice::from_ref(key), found),
            Key::V6(key) => list.classifier.classify6(core::slice::from_ref(key), found),
        };
        (missed == 0).then_some(drop != 0)
    }

    /// Whether the default drops a new packet that no rule matched, which is counted.
    pub(super) fn default_drops(&self) -> bool {
        self.by_default.count(1) != 0
    }
}

/// A packet of either version, as rules see it.
pub(super) enum Key {
    V4(Key4),
    V6(Key6),
}

#[cfg(test)]
mod tests {
    use super::super::rules;
    use super::*;
    use proptest::prelude::*;

    fn list(hosts: &[u8]) -> Vec<Arc<Written>> {
        hosts.iter().map(|n| rules::one(&format!("drop src 10.0.0.{n}"), false).expect("a rule")).collect()
    }

    proptest! {
        #[test]
        fn a_difference_makes_one_list_of_the_other(
            old in prop::collection::vec(0..20u8, 0..40),
            new in prop::collection::vec(0..20u8, 0..40),
        ) {
            let (old, new) = (list(&old), list(&new));
            let edits = difference(&old.iter().map(|rule| &*rule.text).collect::<Vec<_>>(), &new);
            let mut made = old;
            for edit in edits {
                match edit {
                    Edit::Insert(at, rule) => made.insert(at, rule),
                    Edit::Remove(at) => drop(made.remove(at)),
                }
            }
            prop_assert!(made.iter().map(|rule| &rule.text).eq(new.iter().map(|rule| &rule.text)));
        }
    }

    #[test]
    fn what_stays_in_its_order_is_not_touched() {
        let difference = |old: &[u8], new: &[u8]| {
            let (old, new) = (list(old), list(new));
            difference(&old.iter().map(|rule| &*rule.text).collect::<Vec<_>>(), &new).len()
        };
        let all: Vec<u8> = (0..200).collect();
        let but_one: Vec<u8> = (0..200).filter(|n| *n != 77).collect();
        assert_eq!((difference(&all, &but_one), difference(&but_one, &all), difference(&all, &all)), (1, 1, 0));
        // one that moves is taken away and put elsewhere
        let moved: Vec<u8> = but_one.iter().copied().chain([77]).collect();
        assert_eq!(difference(&all, &moved), 2);
    }
}
