//! Rules made ready, and what is counted of them.

use super::Action;
use super::rules::Written;
use graph::{Counter, Diagnostic};
use std::collections::HashMap;
use std::sync::Arc;
use tables::Classifier;
use tables::classifier::{Key4, Key6};

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
    pub(super) const NAMES: [&str; 4] = ["new", "established", "related", "invalid"];

    /// As a bit of [`Written::states`].
    pub(super) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The rules for packets of one class.
pub(super) struct List {
    classifier: Classifier,
    /// Which rules of all they are.
    rules: Box<[u32]>,
}

/// All rules, for all copies.
pub(super) struct Policy {
    lists: [List; 4],
    /// How a rule is written, and what it does.
    rules: Vec<(String, Action)>,
    by_default: Action,
}

impl Policy {
    pub(super) fn new(rules: Vec<Written>, by_default: Action) -> Result<Self, Diagnostic> {
        let list = |class: Class| {
            let of: Vec<_> = (0..).zip(&rules).filter(|(_, r)| r.states & class.bit() != 0).collect();
            let matches: Vec<_> = of.iter().map(|(_, r)| r.matches.clone()).collect();
            let classifier = Classifier::new(&matches)
                .map_err(|e| Diagnostic::new(e.to_string()).key("rules").value(matches.len()))?;
            Ok::<_, Diagnostic>(List { classifier, rules: of.iter().map(|(n, _)| *n).collect() })
        };
        let lists = [list(Class::New)?, list(Class::Established)?, list(Class::Related)?, list(Class::Invalid)?];
        Ok(Policy { lists, rules: rules.into_iter().map(|r| (r.text, r.action)).collect(), by_default })
    }
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

/// Counts by rule: its text, and which of several with that text it is.
pub(super) type Counts = HashMap<(String, u32), Arc<Counter>>;

/// The rules and the counts of one copy.
pub(super) struct Desk {
    policy: Arc<Policy>,
    /// Of each rule of each list.
    places: [Box<[Place]>; 4],
    by_default: Place,
    /// To be shown.
    pub(super) counters: Vec<(String, Arc<Counter>)>,
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
    /// With the counts of rules that were there before, beside the counters of the copy's own. `counts` becomes those of
    /// the rules there are now.
    pub(super) fn new(policy: Arc<Policy>, own: &[(String, Arc<Counter>)], counts: &mut Counts) -> Self {
        let mut seen = HashMap::new();
        let mut kept = Counts::new();
        let mut counters = Vec::with_capacity(policy.rules.len() + 1 + own.len());
        let places: Vec<_> = policy
            .rules
            .iter()
            .enumerate()
            .map(|(n, (text, action))| {
                let nth = seen.entry(text.as_str()).and_modify(|n| *n += 1).or_insert(0u32);
                let key = (text.clone(), *nth);
                let count = counts.get(&key).cloned().unwrap_or_default();
                kept.insert(key, count.clone());
                counters.push((format!("{} {text}", n + 1), count.clone()));
                (count, *action)
            })
            .collect();
        let key = (String::new(), 0);
        let default = counts.get(&key).cloned().unwrap_or_default();
        kept.insert(key, default.clone());
        counters.push(("default".to_owned(), default.clone()));
        counters.extend_from_slice(own);
        *counts = kept;
        let of = |list: &List| {
            list.rules.iter().map(|&n| Place::new(places[n as usize].0.clone(), places[n as usize].1)).collect()
        };
        let places = policy.lists.each_ref().map(of);
        let by_default = Place::new(default, policy.by_default);
        Desk { places, by_default, counters, policy }
    }

    /// Whether there are rules for a class.
    #[inline(always)]
    pub(super) fn has(&self, class: Class) -> bool {
        !self.places[class as usize].is_empty()
    }

    /// Asks the rules for new packets.
    #[inline(always)]
    pub(super) fn judge4(&self, keys: &[Key4]) -> Verdict {
        let (mut drop, places) = (0, &self.places[0]);
        let missed = self.policy.lists[0]
            .classifier
            .classify4(keys, |rule, packets| drop |= places[rule as usize].count(packets));
        Verdict { drop: drop | self.by_default.count(missed), missed }
    }

    /// As [`judge4`](Self::judge4).
    pub(super) fn judge6(&self, keys: &[Key6]) -> Verdict {
        let (mut drop, places) = (0, &self.places[0]);
        let missed = self.policy.lists[0]
            .classifier
            .classify6(keys, |rule, packets| drop |= places[rule as usize].count(packets));
        Verdict { drop: drop | self.by_default.count(missed), missed }
    }

    /// What the first rule that one packet of a class matches says: whether it is dropped. None matches: None, and for a new
    /// packet nothing is counted either.
    pub(super) fn ask(&self, class: Class, key: &Key) -> Option<bool> {
        let places = &self.places[class as usize];
        if places.is_empty() {
            return None;
        }
        let mut drop = 0;
        let classifier = &self.policy.lists[class as usize].classifier;
        let found = |rule: u32, packets: u32| {
            if packets != 0 {
                drop |= places[rule as usize].count(packets);
            }
        };
        let missed = match key {
            Key::V4(key) => classifier.classify4(core::slice::from_ref(key), found),
            Key::V6(key) => classifier.classify6(core::slice::from_ref(key), found),
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
