//! Rules that change while packets are forwarded.

use super::{ModelRule, address, rule};
use crate::Firewall;
use crate::live::LiveRules;
use control::RuleChange;
use proptest::prelude::*;
use std::fs::{remove_file, rename, write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{Harness, HarnessBuilder};
use wire::build;
use wire::flow::FiveTuple;

/// A temporary directory, removed on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bs-firewall-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn bench(file: &Path, more: &str) -> Harness {
    HarnessBuilder::new::<Firewall>(&format!("rules = [\"accept dst 10.0.0.9\"]\nfile = {file:?}\n{more}"))
        .build()
        .unwrap()
}

/// Advances time until a counter has this value.
fn advance_until(f: &mut Harness, counter: &str, n: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while f.counter(counter) != n {
        assert!(Instant::now() < deadline, "{counter} is {}, not {n}", f.counter(counter));
        std::thread::sleep(Duration::from_millis(10));
        f.advance(Duration::from_millis(20));
    }
}

#[test]
fn a_changed_file_is_loaded_and_an_invalid_one_is_not() {
    for more in ["", "track = { connections = 100 }"] {
        let folder = TempDir::new(if more.is_empty() { "plain" } else { "tracked" });
        let file = folder.0.join("edge.rules");
        write(&file, "accept dst 10.0.0.1\naccept dst 10.0.0.2 # a comment\n").unwrap();
        let mut f = bench(&file, more);
        let to = |host, port| build::udp4([192, 0, 2, 1], [10, 0, 0, host], port, 2).pad_to(60).to_vec();
        assert!(f.feed_one(&to(1, 1)).is_ok() && f.feed_one(&to(2, 1)).is_ok() && f.feed_one(&to(3, 1)).is_err());
        write(&file, "accept dst 10.0.0.3\naccept dst 10.0.0.2\n").unwrap();
        advance_until(&mut f, "rules_changed", 1);
        // other ports, because existing connections continue
        assert!(f.feed_one(&to(1, 2)).is_err() && f.feed_one(&to(2, 2)).is_ok() && f.feed_one(&to(3, 2)).is_ok());
        assert_eq!(f.feed_one(&to(1, 1)).is_ok(), !more.is_empty());
        // counters stay with the text of a rule
        assert_eq!((f.counter("2 accept dst 10.0.0.3"), f.counter("3 accept dst 10.0.0.2")), (1, 2));
        for wrong in ["accept dst nowhere\n", "accept dst 10.0.0.1 dport 80 type 8\n"] {
            let before = f.counter("rules_rejected");
            write(&file, wrong).unwrap();
            advance_until(&mut f, "rules_rejected", before + 1);
            assert!(f.feed_one(&to(3, 3)).is_ok() && f.feed_one(&to(1, 3)).is_err());
        }
        // a file that disappears and returns with other rules
        remove_file(&file).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        f.advance(Duration::from_millis(20));
        assert!(f.feed_one(&to(3, 4)).is_ok());
        write(&file, "drop dst 10.0.0.3\n").unwrap();
        advance_until(&mut f, "rules_changed", 2);
        assert_eq!(f.feed_one(&to(3, 5)), Err("denied"));
        assert!(f.feed_one(&to(9, 5)).is_ok(), "rules of the chain file come first");
    }
}

/// Builds a firewall and returns the rules that can be changed.
fn live(settings: &str) -> (Harness, Arc<LiveRules>) {
    let builder = HarnessBuilder::new::<Firewall>(settings);
    (builder.clone().build().unwrap(), builder.shared().unwrap())
}

fn add(rule: &str, number: Option<usize>) -> RuleChange {
    RuleChange::Add { rule: rule.to_owned(), number }
}

#[test]
fn rules_are_changed_by_requests() {
    for more in ["", "track = { connections = 100 }"] {
        let (mut f, live) = live(&format!("rules = [\"accept dst 10.0.0.1\", \"accept dst 10.0.0.2\"]\n{more}"));
        let to = |host, port| build::udp4([192, 0, 2, 1], [10, 0, 0, host], port, 2).pad_to(60).to_vec();
        let texts = || live.page(1).rules.into_iter().map(|rule| (rule.rule, rule.packets)).collect::<Vec<_>>();
        let refused = |changes: &[RuleChange]| live.change(changes).unwrap_err().to_string();
        assert!(f.feed_one(&to(1, 1)).is_ok() && f.feed_one(&to(3, 1)).is_err());
        live.change(&[add("accept dst 10.0.0.3", None)]).unwrap();
        // effective with the next packet, without a timer
        assert!(f.feed_one(&to(3, 2)).is_ok());
        live.change(&[add(" drop dst 10.0.0.0/30 ", Some(1))]).unwrap();
        assert!(f.feed_one(&to(3, 3)).is_err() && f.feed_one(&to(1, 3)).is_err());
        let expected = ["drop dst 10.0.0.0/30", "accept dst 10.0.0.1", "accept dst 10.0.0.2", "accept dst 10.0.0.3"];
        let all: Vec<_> = expected.into_iter().map(str::to_owned).zip([2, 1, 0, 1]).collect();
        assert_eq!(texts(), all);
        assert_eq!((live.page(1).default_packets, live.page(1).default), (1, "drop".to_owned()));
        // all changes of a request, or none
        for (changes, words) in [
            (vec![RuleChange::Remove(1), add("accept nothing", None)], ["nothing", "change 2 of 2"]),
            (vec![RuleChange::Remove(1), RuleChange::Remove(4)], ["\"4\"", "there are 3 rules (change 2 of 2)"]),
            (vec![RuleChange::Remove(0)], ["\"0\"", "bondstone rules list"]),
            (vec![add("accept", Some(6))], ["\"6\"", "there are 4 rules\n"]),
            (vec![RuleChange::RemoveText("drop".into())], ["\"drop\": is not in the list", "help: "]),
        ] {
            let error = refused(&changes);
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
            assert_eq!(texts(), all);
        }
        assert!(f.feed_one(&to(1, 4)).is_err());
        let changes = [RuleChange::Remove(1), RuleChange::RemoveText("accept dst 10.0.0.1".into())];
        let changed = live.change(&changes).unwrap();
        assert_eq!((changed.added, changed.removed, changed.total), (0, 2, 2));
        assert!(f.feed_one(&to(1, 5)).is_err() && f.feed_one(&to(2, 4)).is_ok() && f.feed_one(&to(3, 4)).is_ok());
        assert_eq!((f.counter("1 accept dst 10.0.0.2"), f.counter("2 accept dst 10.0.0.3")), (1, 2));
        f.advance(Duration::from_millis(20));
        assert_eq!((f.counter("rules_changed"), f.counter("rules_rejected")), (4, 5));
        let tracked = live.change(&[add("accept dst 10.0.0.4 state established", None)]);
        assert_eq!(tracked.is_err(), more.is_empty());
    }
}

#[test]
fn long_lists_have_pages() {
    let rules: Vec<String> = (0..2500).map(|n| format!("drop src 10.{}.{}.0/24", n / 250, n % 250)).collect();
    let (mut f, live) = live(&format!("rules = {rules:?}\ndefault = \"accept\""));
    assert!(f.feed_one(&build::udp4([10, 8, 7, 1], [1, 1, 1, 1], 1, 2).pad_to(60).to_vec()).is_err());
    let (mut all, mut from) = (vec![], Some(1));
    while let Some(number) = from {
        let page = live.page(number);
        assert!(page.rules.len() <= 1000 && page.total == 2500);
        all.extend(page.rules);
        from = page.next;
    }
    assert!(all.iter().map(|rule| &rule.rule).eq(&rules));
    assert!(all.iter().enumerate().all(|(n, rule)| rule.number == n + 1 && rule.packets == u64::from(n == 2007)));
    assert_eq!((live.page(2501).rules, live.page(usize::MAX).next), (vec![], None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// The list is long enough that edits do not recompile it.
    #[test]
    fn matches_a_linear_scan_after_changes_by_requests_and_file(
        rules in prop::collection::vec(rule(), 80..200),
        steps in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(rule())), 1..40),
        packets in prop::collection::vec((address(), address(), any::<bool>(), 0..4u16), 32..100),
    ) {
        let folder = TempDir::new("scan");
        let file = folder.0.join("fw.rules");
        let lines = |rules: &[ModelRule]| rules.iter().map(|r| r.text() + "\n").collect::<String>();
        write(&file, lines(&rules)).unwrap();
        let (mut f, live) = live(&format!("file = {file:?}"));
        let frames: Vec<_> = packets
            .iter()
            .map(|(src, dst, udp, port)| match udp {
                true => build::udp4(*src, *dst, 9, *port).pad_to(60).to_vec(),
                false => build::tcp4(*src, *dst, 9, *port).pad_to(60).to_vec(),
            })
            .collect();
        let expected = |list: &[ModelRule]| -> Vec<Vec<u8>> {
            let passes = |frame: &&Vec<u8>| {
                let tuple = FiveTuple::of_frame(frame).unwrap();
                list.iter().find(|r| r.matches(&tuple)).is_some_and(|r| r.accept)
            };
            frames.iter().filter(passes).cloned().collect()
        };
        let mut list = rules.clone();
        prop_assert_eq!(f.feed(&frames), expected(&list));
        for (at, new) in &steps {
            let change = match new {
                Some(new) => {
                    let at = at.index(list.len() + 1);
                    list.insert(at, new.clone());
                    add(&new.text(), Some(at + 1))
                }
                None => {
                    let at = at.index(list.len());
                    list.remove(at);
                    RuleChange::Remove(at + 1)
                }
            };
            prop_assert!(live.change(&[change]).is_ok());
            prop_assert_eq!(f.feed(&frames), expected(&list));
        }
        // reloading the file discards changes by requests
        let changed = steps.len() as u64;
        let backwards: Vec<_> = rules[..60].iter().rev().cloned().chain(rules[60..].iter().cloned()).collect();
        write(&file, lines(&backwards)).unwrap();
        advance_until(&mut f, "rules_changed", changed + 1);
        prop_assert_eq!(f.feed(&frames), expected(&backwards));
        // the result is the same after recompiling
        std::thread::sleep(Duration::from_millis(100));
        prop_assert_eq!(f.feed(&frames), expected(&backwards));
    }
}

/// While the file changes, exactly one of two hosts may send: no packet is matched against both rules or neither.
#[test]
fn changes_are_atomic() {
    let folder = TempDir::new("half");
    let (file, next) = (folder.0.join("fw.rules"), folder.0.join("next"));
    let filler: String = (0..150).map(|n| format!("drop src 172.16.{n}.0/24\n")).collect();
    let lists: Vec<_> =
        ["1", "2"].map(|host| format!("{filler}accept src 10.0.0.{host}\n# no other\ndrop src 10.0.0.0/24\n")).into();
    write(&file, &lists[0]).unwrap();
    let mut f = HarnessBuilder::new::<Firewall>(&format!("file = {file:?}")).build().unwrap();
    let frames = [1, 2].map(|host| build::udp4([10, 0, 0, host], [1, 1, 1, 1], 1, 2).pad_to(60).to_vec());
    let over = AtomicBool::new(false);
    let mut seen = [0u32; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..7 {
                write(&next, &lists[n % 2]).unwrap();
                rename(&next, &file).unwrap();
                std::thread::sleep(Duration::from_millis(450));
            }
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            let out = f.feed(&frames);
            assert_eq!(out.len(), 1, "exactly one host");
            seen[usize::from(out[0] == frames[1])] += 1;
        }
    });
    assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
    f.advance(Duration::from_millis(20));
    assert!(f.counter("rules_changed") > 2);
}
