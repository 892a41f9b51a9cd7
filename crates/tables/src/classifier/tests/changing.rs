//! Rules that come and go, against a scan of the list as it is after each change.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Something done to a list.
#[derive(Clone, Debug)]
enum Step {
    Insert(prop::sample::Index, Rule),
    Remove(prop::sample::Index),
    Begin,
    End,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<prop::sample::Index>(), rule()).prop_map(|(at, rule)| Step::Insert(at, rule)),
        6 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => Just(Step::Begin),
        1 => Just(Step::End),
    ]
}

/// A list, as a list, and as the classifier knows it.
struct Both {
    list: Vec<(Rule, u32)>,
    changing: Changing,
    fold: Option<Fold>,
    names: u32,
}

impl Both {
    fn new(rules: Vec<Rule>) -> Self {
        let list: Vec<_> = rules.into_iter().zip(1000..).collect();
        let names = 1000 + list.len() as u32;
        Both { changing: Changing::new(&list).expect("the rules are sound"), list, fold: None, names }
    }

    fn make(&mut self, step: Step) {
        match step {
            Step::Insert(at, rule) => {
                let at = at.index(self.list.len() + 1);
                self.changing.insert(at, &rule, self.names).expect("the rule is sound");
                self.list.insert(at, (rule, self.names));
                self.names += 1;
            }
            Step::Remove(at) if !self.list.is_empty() => {
                let at = at.index(self.list.len());
                assert_eq!(self.changing.remove(at), Some(self.list.remove(at).1));
            }
            Step::Remove(_) => assert_eq!(self.changing.remove(0), None),
            Step::Begin => self.fold = Some(self.changing.fold()),
            Step::End => drop(self.fold.take().map(|fold| self.changing.take(fold.make()))),
        }
        assert_eq!(self.changing.rules(), self.list.len());
    }

    /// Returns the rules as they are, with the name of each number.
    fn now(&mut self) -> Now {
        let classifier = self.changing.classifier();
        let names = self.changing.base().iter().copied().chain(self.changing.added()).collect();
        Now { list: self.list.clone(), classifier, names }
    }
}

struct Now {
    list: Vec<(Rule, u32)>,
    classifier: Classifier,
    names: Vec<u32>,
}

impl Now {
    /// Compares with the scan, and says how many packets matched.
    fn check(&mut self, packets: &[Packet]) -> usize {
        let mut matched = 0;
        let (v4, v6): (Vec<&Packet>, Vec<&Packet>) = packets.iter().partition(|p| p.src.is_ipv4());
        let keys4: Vec<Key4> = v4.iter().map(|p| p.key4().unwrap()).collect();
        let keys6: Vec<Key6> = v6.iter().map(|p| p.key6().unwrap()).collect();
        for simd in Simd::all() {
            self.classifier.simd = simd;
            let (mut out4, mut out6) = (vec![7; keys4.len()], vec![7; keys6.len()]);
            for (keys, out) in keys4.chunks(BURST).zip(out4.chunks_mut(BURST)) {
                one_each(out, |found| self.classifier.classify4(keys, found));
            }
            for (keys, out) in keys6.chunks(BURST).zip(out6.chunks_mut(BURST)) {
                one_each(out, |found| self.classifier.classify6(keys, found));
            }
            matched = 0;
            for (packet, number) in v4.iter().zip(&out4).chain(v6.iter().zip(&out6)) {
                let name = (*number != NONE).then(|| self.names[*number as usize]);
                let first = self.list.iter().find(|(rule, _)| packet.matches(rule)).map(|(_, name)| *name);
                assert_eq!(name, first, "{simd:?}: {packet:?} of {} rules", self.list.len());
                matched += usize::from(first.is_some());
            }
        }
        matched
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn after_every_change_a_scan_says_the_same(
        rules in vec(rule(), 50..200),
        steps in vec(step(), 1..60),
        raw in vec(raw(), 64),
    ) {
        let mut both = Both::new(rules);
        for step in steps {
            both.make(step);
            let rules: Vec<Rule> = both.list.iter().map(|(rule, _)| rule.clone()).collect();
            let packets: Vec<Packet> = raw.iter().map(|raw| aim(&rules, raw)).collect();
            both.now().check(&packets);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn many_changes_at_once_are_one(
        rules in vec(rule(), 100..400),
        steps in vec(step(), 100..400),
        raw in vec(raw(), 200),
    ) {
        let mut both = Both::new(rules);
        steps.into_iter().for_each(|step| both.make(step));
        let rules: Vec<Rule> = both.list.iter().map(|(rule, _)| rule.clone()).collect();
        let packets: Vec<Packet> = raw.iter().map(|raw| aim(&rules, raw)).collect();
        both.now().check(&packets);
    }
}

fn drawn(n: usize) -> (Vec<Rule>, Vec<Raw>) {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let rules = vec(rule(), n).new_tree(&mut runner).unwrap().current();
    (rules, vec(raw(), 600).new_tree(&mut runner).unwrap().current())
}

/// All rules go, one after the other from the front, and others come in their place: the longest way behind rules that went.
#[test]
fn a_list_may_be_replaced_rule_by_rule() {
    let (rules, raw) = drawn(1200);
    let (old, new) = rules.split_at(600);
    let mut both = Both::new(old.to_vec());
    let mut matched = 0;
    for (at, rule) in new.iter().enumerate() {
        both.changing.remove(at);
        both.list.remove(at);
        both.changing.insert(at, rule, 5000 + at as u32).unwrap();
        both.list.insert(at, (rule.clone(), 5000 + at as u32));
        if at % 50 == 49 {
            let packets: Vec<Packet> = raw.iter().map(|raw| aim(&rules, raw)).collect();
            matched += both.now().check(&packets);
        }
    }
    assert!(matched > 1000, "{matched} matches say little");
    assert_eq!(both.changing.pending(), 1200);
    let fold = both.changing.fold();
    assert!(both.changing.take(fold.make()) && both.changing.pending() == 0);
    let packets: Vec<Packet> = raw.iter().map(|raw| aim(&rules, raw)).collect();
    assert!(both.now().check(&packets) > 100);
}

#[test]
fn only_the_last_fold_is_taken() {
    let (rules, _) = drawn(100);
    let mut both = Both::new(rules.clone());
    let first = both.changing.fold();
    both.changing.remove(7);
    let second = both.changing.fold();
    assert!(!both.changing.take(first.make()));
    assert!(both.changing.take(second.make()));
    assert_eq!((both.changing.pending(), both.changing.rules()), (0, 99));
    let none = Classifier::new(&rules).map(|c| c.bytes());
    assert!(none.is_ok_and(|bytes| bytes > 0));
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut changing = Changing::new(&vec![(Rule::ANY, 1); MAX_RULES]).unwrap();
    assert_eq!(changing.insert(0, &Rule::ANY, 2), Err(Error::TooMany { given: MAX_RULES + 1 }));
    assert_eq!(changing.remove(MAX_RULES), None);
    assert_eq!(changing.remove(0), Some(1));
    let wrong = Rule { tcp_flags: Some(TcpFlags { mask: 1, value: 2 }), ..Rule::ANY };
    let error = changing.insert(5, &wrong, 2).unwrap_err();
    assert!(error.to_string().contains("rule 5"), "{error}");
    assert_eq!((changing.rules(), changing.pending()), (MAX_RULES - 1, 1));
    assert_eq!(changing.insert(0, &Rule::ANY, 2), Ok(()));
}

/// Readers look packets up in whatever is there while a writer changes it and another thread folds.
#[test]
fn readers_see_one_list_or_the_next() {
    let (rules, raw) = drawn(400);
    let packets: Vec<Packet> = raw.iter().map(|raw| aim(&rules, raw)).collect();
    let mut both = Both::new(rules[..200].to_vec());
    let shown = Mutex::new(Arc::new(both.now()));
    let (over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (shown, over, looks, packets) = (&shown, &over, &looks, &packets);
            scope.spawn(move || {
                for at in (0..).map(|n| (n * 7 + reader) % (packets.len() / 32)) {
                    let now = shown.lock().unwrap().clone();
                    let burst: Vec<_> = packets[at * 32..][..32].iter().filter_map(|p| Some((p, p.key4()?))).collect();
                    let keys: Vec<_> = burst.iter().map(|(_, key)| *key).collect();
                    let mut out = vec![7; keys.len()];
                    one_each(&mut out, |found| now.classifier.classify4(&keys, found));
                    for ((packet, _), number) in burst.iter().zip(out) {
                        let first = now.list.iter().find(|(rule, _)| packet.matches(rule)).map(|(_, name)| *name);
                        assert_eq!((number != NONE).then(|| now.names[number as usize]), first);
                    }
                    looks.fetch_add(1, Ordering::Relaxed);
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        for (n, rule) in rules[200..].iter().enumerate() {
            let at = n * 31 % (both.list.len() + 1);
            both.changing.insert(at, rule, 9000 + n as u32).unwrap();
            both.list.insert(at, (rule.clone(), 9000 + n as u32));
            let at = n * 17 % both.list.len();
            assert_eq!(both.changing.remove(at), Some(both.list.remove(at).1));
            if n % 40 == 0 {
                let fold = both.changing.fold();
                let made = std::thread::spawn(move || fold.make());
                both.changing.remove(0);
                both.list.remove(0);
                *shown.lock().unwrap() = Arc::new(both.now());
                assert!(both.changing.take(made.join().unwrap()));
            }
            *shown.lock().unwrap() = Arc::new(both.now());
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(looks.load(Ordering::Relaxed) > 10);
}
