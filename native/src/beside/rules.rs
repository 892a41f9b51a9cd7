//! The classifier beside DPDK's `rte_acl` and TupleMerge: sets of rules like ClassBench's, looked up and changed.

use super::sets::{Line, Packet, Seed, lines, rng};
use super::tuple_merge::{Filter, Header, NONE, TupleMerge};
use super::{Table, What};
use crate::firewall::{Acl, CRule};
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

impl From<&Line> for Filter {
    fn from(line: &Line) -> Self {
        let Line { src, dst, protocol, sport, dport } = *line;
        Filter { src, dst, protocol, sport, dport }
    }
}

/// What each way to look them up knows of packets.
struct Packets {
    keys: Vec<[Key4; BURST]>,
    headers: Vec<[Header; BURST]>,
    wire: Vec<[[u8; 16]; BURST]>,
}

impl Packets {
    fn near(lines: &[Line]) -> Self {
        let mut rng = rng(77);
        let mut all = Packets { keys: vec![], headers: vec![], wire: vec![] };
        for _ in 0..SAMPLE / BURST {
            let burst: [Packet; BURST] = core::array::from_fn(|_| Packet {
                // what a plain packet of rte_acl's baseline is
                protocol: [6, 17][rng.below(2)],
                ..Packet::near(&lines[rng.below(lines.len())], &mut rng)
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

/// The rule of each packet.
fn ours(classifier: &tables::Classifier, keys: &[Key4; BURST]) -> [u32; BURST] {
    let mut out = [NONE; BURST];
    classifier.classify4(keys, |rule, mut packets| {
        while packets != 0 {
            out[packets.trailing_zeros() as usize] = rule;
            packets &= packets - 1;
        }
    });
    out
}

/// Looks up all packets.
fn sample<'a>(mut look: Box<dyn FnMut(usize) -> [u32; BURST] + 'a>) -> impl FnMut() -> u64 + 'a {
    move || {
        for burst in 0..SAMPLE / BURST {
            black_box(look(burst));
        }
        SAMPLE as u64
    }
}

pub(super) fn rows(table: &mut Table<'_>) -> anyhow::Result<()> {
    for (name, seed) in [("access list", Seed::Acl), ("firewall", Seed::Firewall), ("chain", Seed::Chain)] {
        let names = ["looked up", "changed"].map(|what| format!("rules {what}, {name}"));
        if !names.iter().any(|name| table.wanted(name)) {
            continue;
        }
        for n in [10, 1000, 10_000] {
            set(table, &names, seed, n)?;
        }
    }
    Ok(())
}

fn set(table: &mut Table<'_>, [looked_up, changed]: &[String; 2], seed: Seed, n: usize) -> anyhow::Result<()> {
    let lines = lines(seed, n);
    let filters: Vec<Filter> = lines.iter().map(Filter::from).collect();
    let named: Vec<(Rule, u32)> = lines.iter().map(Line::rule).zip(0..).collect();
    let packets = Packets::near(&lines);
    let began = Instant::now();
    let mut changing = Changing::new(&named)?;
    let made = [began.elapsed(), {
        let began = Instant::now();
        drop(black_box(TupleMerge::new(&filters)));
        began.elapsed()
    }];
    let mut merged = TupleMerge::new(&filters);
    let began = Instant::now();
    let rules = lines.iter().map(|l| CRule::plain(l.src, l.dst, l.protocol, l.sport, l.dport)).collect();
    let acl = Acl::new(rules)?;
    let classifier = changing.classifier();
    for (burst, keys) in packets.keys.iter().enumerate() {
        let first = ours(&classifier, keys);
        let (theirs, others) = (merged.look(&packets.headers[burst]), acl.look(&packets.wire[burst]));
        ensure!(first == theirs, "TupleMerge finds {theirs:?}, and we {first:?}");
        ensure!(first == others, "rte_acl finds {others:?}, and we {first:?}");
    }
    let acl_made = began.elapsed();
    for beside in ["TupleMerge", "rte_acl"] {
        let what = What { what: looked_up, beside, size: n, unit: "packet" };
        let we = sample(Box::new(|burst| ours(&classifier, black_box(&packets.keys[burst]))));
        let they: Box<dyn FnMut(usize) -> [u32; BURST]> = match beside {
            "rte_acl" => Box::new(|burst| acl.look(black_box(&packets.wire[burst]))),
            _ => Box::new(|burst| merged.look(black_box(&packets.headers[burst]))),
        };
        table.add(&what, &compare(table.pairs, || (), we, sample(they)));
    }
    println!(
        "{:<46} {n:>7} made ready in {:.1?}, TupleMerge's {} tables in {:.1?}, rte_acl in {acl_made:.1?}",
        "",
        made[0],
        merged.tables(),
        made[1]
    );
    let what = What { what: changed, beside: "TupleMerge", size: n, unit: "change" };
    let (mut one, mut other) = (rng(5), rng(5));
    let cost = |from: u64| Some((clock::cycles() - from) as f64 / CHANGES as f64);
    let we = || {
        // up to CHANGES are pending: the rest is folded off the packet path
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
    let they = || {
        let from = clock::cycles();
        for _ in 0..CHANGES / 2 {
            let at = other.below(n);
            assert!(merged.remove(&filters[at], at as u32), "it was there");
            merged.insert(&filters[at], at as u32);
        }
        cost(from)
    };
    if let Some(compared) = compare_costs(table.pairs, we, they) {
        table.add(&what, &compared);
    }
    Ok(())
}
