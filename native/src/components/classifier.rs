//! The classifier compared with DPDK's `rte_acl` and TupleMerge: look-ups in and changes of rule sets like those of
//! ClassBench.

use super::sets::{ModelRule, Packet, Seed, model_rules, rng};
use super::table::{ComponentTable, Measurement};
use super::tuple_merge::{Filter, Header, NONE, TupleMerge};
use crate::nfs::firewall::{Acl, CRule};
use crate::sample::{compare, compare_costs};
use anyhow::ensure;
use core::hint::black_box;
use packet::{BURST, clock};
use std::time::Instant;
use tables::classifier::{Changing, Key4, Rule};

/// Packets of a sample.
const SAMPLE: usize = 16_384;
/// Changes of a sample.
const CHANGES: usize = 16;

impl From<&ModelRule> for Filter {
    fn from(rule: &ModelRule) -> Self {
        let ModelRule { src, dst, protocol, sport, dport } = *rule;
        Filter { src, dst, protocol, sport, dport }
    }
}

/// Packets in the format of each classifier.
struct Packets {
    keys: Vec<[Key4; BURST]>,
    headers: Vec<[Header; BURST]>,
    wire: Vec<[[u8; 16]; BURST]>,
}

impl Packets {
    fn near(rules: &[ModelRule]) -> Self {
        let mut rng = rng(77);
        let mut all = Packets { keys: vec![], headers: vec![], wire: vec![] };
        for _ in 0..SAMPLE / BURST {
            let burst: [Packet; BURST] = core::array::from_fn(|_| Packet {
                // plain packets of the C baseline are TCP or UDP
                protocol: [6, 17][rng.below(2)],
                ..Packet::near(&rules[rng.below(rules.len())], &mut rng)
            });
            all.keys.push(burst.map(|p| p.key()));
            all.headers.push(burst.map(|p| {
                let Packet { src, dst, protocol, sport, dport } = p;
                Header { src, dst, sport, dport, protocol }
            }));
            all.wire.push(burst.map(|p| {
                let mut bytes = [0; 16];
                bytes[0] = p.protocol;
                bytes[3..7].copy_from_slice(&p.src.to_be_bytes());
                bytes[7..11].copy_from_slice(&p.dst.to_be_bytes());
                bytes[11..13].copy_from_slice(&p.sport.to_be_bytes());
                bytes[13..15].copy_from_slice(&p.dport.to_be_bytes());
                bytes
            }));
        }
        all
    }
}

/// Returns the rule of each packet.
fn classify_ours(classifier: &tables::Classifier, keys: &[Key4; BURST]) -> [u32; BURST] {
    let mut out = [NONE; BURST];
    classifier.classify4(keys, |rule, mut packets| {
        while packets != 0 {
            out[packets.trailing_zeros() as usize] = rule;
            packets &= packets - 1;
        }
    });
    out
}

/// Returns a function that looks up all packets.
fn sample<'a>(mut classify: Box<dyn FnMut(usize) -> [u32; BURST] + 'a>) -> impl FnMut() -> u64 + 'a {
    move || {
        for burst in 0..SAMPLE / BURST {
            black_box(classify(burst));
        }
        SAMPLE as u64
    }
}

pub(super) fn rows(table: &mut ComponentTable<'_>) -> anyhow::Result<()> {
    for (name, seed) in [("access list", Seed::Acl), ("firewall", Seed::Firewall), ("chain", Seed::Chain)] {
        let names = ["looked up", "changed"].map(|operation| format!("rules {operation}, {name}"));
        if !names.iter().any(|name| table.is_selected(name)) {
            continue;
        }
        for n in [10, 1000, 10_000] {
            set(table, &names, seed, n)?;
        }
    }
    Ok(())
}

fn set(table: &mut ComponentTable<'_>, [looked_up, changed]: &[String; 2], seed: Seed, n: usize) -> anyhow::Result<()> {
    let rules = model_rules(seed, n);
    let filters: Vec<Filter> = rules.iter().map(Filter::from).collect();
    let named: Vec<(Rule, u32)> = rules.iter().map(ModelRule::rule).zip(0..).collect();
    let packets = Packets::near(&rules);
    let start = Instant::now();
    let mut changing = Changing::new(&named)?;
    let build_times = [start.elapsed(), {
        let start = Instant::now();
        drop(black_box(TupleMerge::new(&filters)));
        start.elapsed()
    }];
    let mut merged = TupleMerge::new(&filters);
    let start = Instant::now();
    let rules = rules.iter().map(|l| CRule::plain(l.src, l.dst, l.protocol, l.sport, l.dport)).collect();
    let acl = Acl::new(rules)?;
    let classifier = changing.classifier();
    for (burst, keys) in packets.keys.iter().enumerate() {
        let first = classify_ours(&classifier, keys);
        let (merge_rules, acl_rules) = (merged.classify(&packets.headers[burst]), acl.classify(&packets.wire[burst]));
        ensure!(first == merge_rules, "TupleMerge finds {merge_rules:?}, the classifier {first:?}");
        ensure!(first == acl_rules, "rte_acl finds {acl_rules:?}, the classifier {first:?}");
    }
    let acl_build_time = start.elapsed();
    for baseline in ["TupleMerge", "rte_acl"] {
        let measurement = Measurement { name: looked_up, baseline, size: n, unit: "packet" };
        let ours = sample(Box::new(|burst| classify_ours(&classifier, black_box(&packets.keys[burst]))));
        let theirs: Box<dyn FnMut(usize) -> [u32; BURST]> = match baseline {
            "rte_acl" => Box::new(|burst| acl.classify(black_box(&packets.wire[burst]))),
            _ => Box::new(|burst| merged.classify(black_box(&packets.headers[burst]))),
        };
        table.add(&measurement, &compare(table.pairs, || (), ours, sample(theirs)));
    }
    println!(
        "{:<46} {n:>7} built in {:.1?}, TupleMerge with {} tables in {:.1?}, rte_acl in {acl_build_time:.1?}",
        "",
        build_times[0],
        merged.tables(),
        build_times[1]
    );
    let measurement = Measurement { name: changed, baseline: "TupleMerge", size: n, unit: "change" };
    let (mut one, mut other) = (rng(5), rng(5));
    let cost = |from: u64| Some((clock::cycles() - from) as f64 / CHANGES as f64);
    let our_changes = || {
        // up to CHANGES changes are pending: others are merged outside the packet path
        let mut changing = changing.clone();
        let from = clock::cycles();
        for _ in 0..CHANGES / 2 {
            let at = one.below(n);
            let name = changing.remove(at).unwrap_or(0);
            black_box(changing.classifier());
            changing.insert(at, &named[name as usize].0, name).expect("a rule of the list");
            black_box(changing.classifier());
        }
        cost(from)
    };
    let baseline_changes = || {
        let from = clock::cycles();
        for _ in 0..CHANGES / 2 {
            let at = other.below(n);
            assert!(merged.remove(&filters[at], at as u32), "the rule exists");
            merged.insert(&filters[at], at as u32);
        }
        cost(from)
    };
    if let Some(compared) = compare_costs(table.pairs, our_changes, baseline_changes) {
        table.add(&measurement, &compared);
    }
    Ok(())
}
