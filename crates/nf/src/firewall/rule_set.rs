//! Compiled rules and their counters.

use super::rule::{Action, FirewallRule, PacketState, too_many_rules};
use diagnostics::Diagnostic;
use graph::Counter;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tables::Classifier;
use tables::classifier::{Changing, Fold, Folded, Key4, Key6, MAX_RULES};

/// Number of edits from which the rules are recompiled at once.
const REBUILD_THRESHOLD: usize = 512;
/// Up to this number of rules all counters are published at every change.
const ALWAYS_SHOWN_RULES: usize = 256;

/// A rule and its counter slot.
struct ListedRule {
    rule: Arc<FirewallRule>,
    slot: u32,
}

/// A counter slot.
#[derive(Clone, Copy)]
struct CounterSlot {
    action: Action,
    /// Distinguishes the rules that used the slot one after the other.
    generation: u64,
}

/// All rules, shared by the workers.
pub(super) struct RuleSet {
    lines: Vec<ListedRule>,
    /// The rules of each state, identified by slot.
    lists: [Changing; 4],
    slots: Vec<CounterSlot>,
    free: Vec<u32>,
    /// Number of rules added so far.
    generation: u64,
    default_action: Action,
    /// True if the published counters differ from the rules.
    counters_stale: bool,
}

/// A change of the list of rules.
pub(super) enum Edit {
    /// Inserts a rule before the given position.
    Insert(usize, Arc<FirewallRule>),
    Remove(usize),
}

fn rule_error(e: &tables::classifier::Error, rules: usize) -> Diagnostic {
    Diagnostic::new(e.to_string()).key("rules").value(rules)
}

impl RuleSet {
    pub(super) fn new(rules: Vec<Arc<FirewallRule>>, default_action: Action) -> Result<Self, Diagnostic> {
        let lines: Vec<_> = (0..).zip(rules).map(|(slot, rule)| ListedRule { rule, slot }).collect();
        let slots: Vec<_> =
            (1..).zip(&lines).map(|(generation, line)| CounterSlot { action: line.rule.action, generation }).collect();
        let generation = slots.len() as u64;
        Ok(RuleSet {
            lists: lists(&lines)?,
            lines,
            slots,
            free: vec![],
            generation,
            default_action,
            counters_stale: true,
        })
    }

    pub(super) fn rules(&self) -> impl ExactSizeIterator<Item = &Arc<FirewallRule>> {
        self.lines.iter().map(|line| &line.rule)
    }

    /// Returns the rules, each with the sum of its packets in the counters of the copies.
    pub(super) fn counts(&self, copies: &[&RuleCounters]) -> impl ExactSizeIterator<Item = (&FirewallRule, u64)> {
        self.lines.iter().map(|line| {
            let own = |copy: &&RuleCounters| copy.slots.get(line.slot as usize).map_or(0, |(_, count)| count.get());
            (&*line.rule, copies.iter().map(own).sum())
        })
    }

    /// Replaces the rules and returns true if they differ.
    pub(super) fn set(&mut self, rules: &[Arc<FirewallRule>]) -> Result<bool, Diagnostic> {
        let edits = difference(&self.rules().map(|rule| &*rule.text).collect::<Vec<_>>(), rules);
        let changes = !edits.is_empty();
        self.edit(edits)?;
        Ok(changes)
    }

    /// Applies edits in order, removals first: all of them, or none.
    pub(super) fn edit(&mut self, edits: Vec<Edit>) -> Result<(), Diagnostic> {
        let removed = edits.iter().filter(|edit| matches!(edit, Edit::Remove(_))).count();
        let rules = self.lines.len() + edits.len() - 2 * removed;
        if rules > MAX_RULES {
            return Err(too_many_rules(rules));
        }
        let rebuild = edits.len() > REBUILD_THRESHOLD;
        // a rule that only moves keeps its counters
        let mut taken: HashMap<String, Vec<u32>> = HashMap::new();
        for edit in edits {
            match edit {
                Edit::Remove(at) => {
                    let line = self.lines.remove(at);
                    if !rebuild {
                        self.for_each_list(at, &line.rule, |list, at| _ = list.remove(at));
                    }
                    taken.entry(line.rule.text.clone()).or_default().push(line.slot);
                }
                Edit::Insert(at, rule) => {
                    let slot = taken.get_mut(&rule.text).and_then(Vec::pop);
                    let slot = slot.unwrap_or_else(|| self.slot(rule.action));
                    if !rebuild {
                        let mut error = None;
                        self.for_each_list(at, &rule, |list, at| error = list.insert(at, &rule.matches, slot).err());
                        if let Some(e) = error {
                            return Err(rule_error(&e, self.lines.len() + 1));
                        }
                    }
                    self.lines.insert(at, ListedRule { rule, slot });
                }
            }
        }
        self.free.extend(taken.into_values().flatten());
        self.counters_stale = true;
        if rebuild || self.pending() > REBUILD_THRESHOLD {
            self.lists = lists(&self.lines)?;
        }
        Ok(())
    }

    fn slot(&mut self, action: Action) -> u32 {
        self.generation += 1;
        let new = CounterSlot { action, generation: self.generation };
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

    /// Calls `apply` for each list that contains a rule, with the position of rule `at` in it.
    fn for_each_list(&mut self, at: usize, rule: &FirewallRule, mut apply: impl FnMut(&mut Changing, usize)) {
        for state in PacketState::ALL.into_iter().filter(|state| rule.states & state.bit() != 0) {
            let before = self.lines[..at].iter().filter(|line| line.rule.states & state.bit() != 0).count();
            apply(&mut self.lists[state as usize], before);
        }
    }

    /// Returns the number of edits that slow down look-ups until the rules are recompiled.
    pub(super) fn pending(&self) -> usize {
        self.lists.iter().map(Changing::pending).sum()
    }

    /// Returns true if rules have to be recompiled or counters published.
    pub(super) fn needs_compaction(&self) -> bool {
        self.counters_stale || self.pending() != 0
    }

    /// Returns the recompilations to do, by state.
    pub(super) fn fold(&mut self) -> Vec<(usize, Fold)> {
        let lists = self.lists.iter_mut().enumerate();
        lists.filter(|(_, list)| list.pending() != 0).map(|(state, list)| (state, list.fold())).collect()
    }

    /// Installs finished recompilations.
    pub(super) fn install(&mut self, made: Vec<(usize, Folded)>) {
        for (state, folded) in made {
            self.lists[state].take(folded);
        }
    }

    /// Builds the current rules for each worker. Counters are included if `show` is set or the rules are few.
    pub(super) fn worker_rules<'a>(
        &mut self,
        copies: impl Iterator<Item = (&'a mut RuleCounters, &'a [(String, Arc<Counter>)])>,
        show: bool,
    ) -> Vec<WorkerRules> {
        let show = show || self.lines.len() <= ALWAYS_SHOWN_RULES;
        let classifiers = self.lists.each_mut().map(Changing::classifier);
        let worker_rules =
            copies.map(|(counts, own)| self.build_worker_rules(&classifiers, counts, own, show)).collect();
        self.counters_stale &= !show;
        worker_rules
    }

    fn build_worker_rules(
        &self,
        of: &[Classifier; 4],
        counts: &mut RuleCounters,
        own: &[(String, Arc<Counter>)],
        show: bool,
    ) -> WorkerRules {
        counts.sync_slots(&self.slots);
        let lists = PacketState::ALL.map(|state| {
            let (state, list) = (state as usize, &self.lists[state as usize]);
            let action = |slot: u32| CountedAction::new(counts.counter(slot), self.slots[slot as usize].action);
            let base = match &counts.bases[state] {
                Some((names, actions)) if Arc::ptr_eq(names, list.base()) => actions.clone(),
                _ => list.base().iter().map(|&slot| action(slot)).collect(),
            };
            StateRules { classifier: of[state].clone(), added: list.added().map(action).collect(), base }
        });
        for state in PacketState::ALL {
            counts.bases[state as usize] =
                Some((self.lists[state as usize].base().clone(), lists[state as usize].base.clone()));
        }
        let counters = show.then(|| {
            let rules = (1..).zip(&self.lines);
            let mut all: Vec<_> =
                rules.map(|(n, line)| (format!("{n} {}", line.rule.text), counts.counter(line.slot))).collect();
            all.push(("default".to_owned(), counts.default.clone()));
            all.extend_from_slice(own);
            all
        });
        WorkerRules { lists, default_action: CountedAction::new(counts.default.clone(), self.default_action), counters }
    }
}

/// Compiles the rules of each state.
fn lists(lines: &[ListedRule]) -> Result<[Changing; 4], Diagnostic> {
    let list = |state: PacketState| {
        let of = lines.iter().filter(|line| line.rule.states & state.bit() != 0);
        let of: Vec<_> = of.map(|line| (line.rule.matches.clone(), line.slot)).collect();
        Changing::new(&of).map_err(|e| rule_error(&e, of.len()))
    };
    Ok([
        list(PacketState::New)?,
        list(PacketState::Established)?,
        list(PacketState::Related)?,
        list(PacketState::Invalid)?,
    ])
}

/// Returns the edits that turn one list into the other; a longest increasing subsequence of rules stays in place.
fn difference(old: &[&str], new: &[Arc<FirewallRule>]) -> Vec<Edit> {
    let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, text) in old.iter().enumerate().rev() {
        positions.entry(text).or_default().push(at);
    }
    // the old position of each new rule
    let old_index: Vec<_> = new.iter().map(|rule| positions.get_mut(rule.text.as_str()).and_then(Vec::pop)).collect();
    // longest increasing subsequence: for each length the end with the lowest position, and the predecessor of each
    // element
    let mut ends: Vec<usize> = vec![];
    let mut previous = vec![None; new.len()];
    for (n, at) in old_index.iter().enumerate().filter_map(|(n, at)| Some((n, (*at)?))) {
        let longer = ends.partition_point(|&end| old_index[end].is_some_and(|there| there < at));
        previous[n] = longer.checked_sub(1).map(|before| ends[before]);
        match ends.get_mut(longer) {
            Some(end) => *end = n,
            None => ends.push(n),
        }
    }
    let (mut unmoved_new, mut unmoved_old) = (HashSet::new(), HashSet::new());
    let mut next = ends.last().copied();
    while let Some(n) = next {
        unmoved_new.insert(n);
        unmoved_old.extend(old_index[n]);
        next = previous[n];
    }
    let removed = (0..old.len()).rev().filter(|at| !unmoved_old.contains(at)).map(Edit::Remove);
    let inserted = (0..new.len()).filter(|n| !unmoved_new.contains(n)).map(|n| Edit::Insert(n, new[n].clone()));
    removed.chain(inserted).collect()
}

/// Returns the delay before recompiling: further edits may follow, and recompiling must not use more than half of a
/// CPU.
pub(super) fn compaction_delay(last: Duration) -> Duration {
    Duration::from_millis(50).max(last)
}

/// Counter and action of a rule.
pub(super) struct CountedAction {
    count: Arc<Counter>,
    drop: u64,
}

impl CountedAction {
    fn new(count: Arc<Counter>, action: Action) -> Self {
        CountedAction { count, drop: if action == Action::Drop { u64::MAX } else { 0 } }
    }

    /// Counts packets and returns the mask of those that are dropped.
    #[inline(always)]
    fn count(&self, packets: u64) -> u64 {
        self.count.add(packets.count_ones().into());
        packets & self.drop
    }
}

/// The rule counters of one worker.
#[derive(Default)]
pub(super) struct RuleCounters {
    /// By slot, each with the generation of its rule.
    slots: Vec<(u64, Arc<Counter>)>,
    default: Arc<Counter>,
    /// Actions of the compiled rules of each state; reused until the rules are recompiled.
    bases: [Option<BaseActions>; 4],
}

/// Slots of rules, and their actions.
type BaseActions = (Arc<[u32]>, Arc<[CountedAction]>);

impl RuleCounters {
    /// Allocates a counter for each slot that has another rule now.
    fn sync_slots(&mut self, slots: &[CounterSlot]) {
        self.slots.resize_with(slots.len(), Default::default);
        for (count, slot) in self.slots.iter_mut().zip(slots) {
            if count.0 != slot.generation {
                *count = (slot.generation, Arc::default());
            }
        }
    }

    /// Returns the number of packets that no rule matched.
    pub(super) fn default_packets(&self) -> u64 {
        self.default.get()
    }

    fn counter(&self, slot: u32) -> Arc<Counter> {
        self.slots[slot as usize].1.clone()
    }
}

/// The rules of one state.
struct StateRules {
    classifier: Classifier,
    /// Actions by rule number: of compiled rules, followed by rules added since.
    base: Arc<[CountedAction]>,
    added: Box<[CountedAction]>,
}

impl StateRules {
    #[inline(always)]
    fn action(&self, rule: u32) -> &CountedAction {
        match self.base.get(rule as usize) {
            Some(action) => action,
            None => &self.added[rule as usize - self.base.len()],
        }
    }
}

/// The rules of one worker.
pub(super) struct WorkerRules {
    lists: [StateRules; 4],
    default_action: CountedAction,
    /// Counters to publish, if they changed.
    pub(super) counters: Option<Vec<(String, Arc<Counter>)>>,
}

/// Result for the packets of a batch, as bit masks.
#[derive(Clone, Copy, Default)]
pub(super) struct BatchVerdict {
    /// Packets to drop, by a rule or by default.
    pub(super) drop: u64,
    /// Packets that no rule matches.
    pub(super) missed: u64,
}

impl WorkerRules {
    /// Returns true if there are rules for a state.
    #[inline(always)]
    pub(super) fn has_rules(&self, state: PacketState) -> bool {
        self.lists[state as usize].classifier.rules() != 0
    }

    /// Classifies new IPv4 packets and counts them.
    #[inline(always)]
    pub(super) fn classify4_new(&self, keys: &[Key4]) -> BatchVerdict {
        let (mut drop, list) = (0, &self.lists[0]);
        let missed = list.classifier.classify4(keys, |rule, packets| drop |= list.action(rule).count(packets));
        BatchVerdict { drop: drop | self.default_action.count(missed), missed }
    }

    /// Classifies new IPv6 packets and counts them.
    pub(super) fn classify6_new(&self, keys: &[Key6]) -> BatchVerdict {
        let (mut drop, list) = (0, &self.lists[0]);
        let missed = list.classifier.classify6(keys, |rule, packets| drop |= list.action(rule).count(packets));
        BatchVerdict { drop: drop | self.default_action.count(missed), missed }
    }

    /// Evaluates the rules of a state on one packet: `Some(true)` if it is dropped, `None` if no rule matches, in which
    /// case nothing is counted.
    pub(super) fn evaluate(&self, state: PacketState, key: &PacketKey) -> Option<bool> {
        if !self.has_rules(state) {
            return None;
        }
        let (mut drop, list) = (0, &self.lists[state as usize]);
        let found = |rule: u32, packets: u64| {
            if packets != 0 {
                drop |= list.action(rule).count(packets);
            }
        };
        let missed = match key {
            PacketKey::V4(key) => list.classifier.classify4(core::slice::from_ref(key), found),
            PacketKey::V6(key) => list.classifier.classify6(core::slice::from_ref(key), found),
        };
        (missed == 0).then_some(drop != 0)
    }

    /// Counts a new packet that no rule matched and returns true if the default drops it.
    pub(super) fn apply_default(&self) -> bool {
        self.default_action.count(1) != 0
    }
}

/// Key of a packet of either IP version.
pub(super) enum PacketKey {
    V4(Key4),
    V6(Key6),
}

#[cfg(test)]
mod tests {
    use super::super::rule;
    use super::*;
    use proptest::prelude::*;

    fn list(hosts: &[u8]) -> Vec<Arc<FirewallRule>> {
        hosts.iter().map(|n| rule::parse(&format!("drop src 10.0.0.{n}"), false).expect("a rule")).collect()
    }

    proptest! {
        #[test]
        fn edits_turn_one_list_into_the_other(
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
    fn rules_that_keep_their_order_are_not_edited() {
        let difference = |old: &[u8], new: &[u8]| {
            let (old, new) = (list(old), list(new));
            difference(&old.iter().map(|rule| &*rule.text).collect::<Vec<_>>(), &new).len()
        };
        let all: Vec<u8> = (0..200).collect();
        let but_one: Vec<u8> = (0..200).filter(|n| *n != 77).collect();
        assert_eq!((difference(&all, &but_one), difference(&but_one, &all), difference(&all, &all)), (1, 1, 0));
        // a rule that moves is removed and inserted
        let moved: Vec<u8> = but_one.iter().copied().chain([77]).collect();
        assert_eq!(difference(&all, &moved), 2);
    }
}
