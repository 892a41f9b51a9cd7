//! ClassBench rule sets: the classifier compared with a linear scan.

use super::sets::{ModelRule, Packet, Seed, model_rules, rng};
use tables::Classifier;

/// Compares the first matching rule of packets near rules of a set; returns the number of distinct rules that matched.
fn compare(seed: Seed, n: usize, packets: usize) -> usize {
    let model = model_rules(seed, n);
    let rules: Vec<_> = model.iter().map(ModelRule::rule).collect();
    let start = std::time::Instant::now();
    let classifier = Classifier::new(&rules).unwrap();
    eprintln!("{seed:?}, {n} rules: compiled in {:?}, {} KiB", start.elapsed(), classifier.bytes() >> 10);
    let mut rng = rng(77);
    let mut matched = std::collections::HashSet::new();
    for _ in 0..packets / 64 {
        let burst: Vec<_> = (0..64).map(|_| Packet::near(&model[rng.below(n)], &mut rng)).collect();
        let keys: Vec<_> = burst.iter().map(Packet::key).collect();
        let mut found = [None; 64];
        let missed = classifier.classify4(&keys, |rule, set| {
            (0..64)
                .filter(|i| set >> i & 1 != 0)
                .for_each(|i| assert!(found[i].replace(rule).is_none(), "one rule per packet"));
        });
        for (i, packet) in burst.iter().enumerate() {
            let first = model.iter().position(|rule| rule.matches(packet)).map(|n| n as u32);
            assert_eq!(found[i], first, "{seed:?}, {n} rules: {packet:?}");
            assert_eq!(missed >> i & 1 != 0, first.is_none());
            matched.extend(first);
        }
    }
    matched.len()
}

#[test]
fn finds_the_first_match_of_10_to_10_000_rules() {
    for seed in [Seed::Acl, Seed::Firewall, Seed::Chain] {
        for (n, packets) in [(10, 20_000), (1000, 20_000), (10_000, 8000)] {
            let matched = compare(seed, n, packets);
            assert!(matched > n.min(1000) / 3, "{seed:?}, {n} rules: only {matched} rules matched");
        }
    }
}
