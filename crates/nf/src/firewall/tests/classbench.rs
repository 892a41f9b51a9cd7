//! Rule sets as ClassBench makes them, by linear scan and by the classifier.

use super::sets::{Line, Packet, Seed, lines, rng};
use tables::Classifier;

/// So many packets near rules of a set: the same first rule by both, and how many different ones.
fn proved(seed: Seed, n: usize, packets: usize) -> usize {
    let lines = lines(seed, n);
    let rules: Vec<_> = lines.iter().map(Line::rule).collect();
    let began = std::time::Instant::now();
    let classifier = Classifier::new(&rules).unwrap();
    eprintln!("{seed:?}, {n} rules: made in {:?}, {} KiB", began.elapsed(), classifier.bytes() >> 10);
    let mut rng = rng(77);
    let mut met = std::collections::HashSet::new();
    for _ in 0..packets / 32 {
        let burst: Vec<_> = (0..32).map(|_| Packet::near(&lines[rng.below(n)], &mut rng)).collect();
        let keys: Vec<_> = burst.iter().map(Packet::key).collect();
        let mut found = [None; 32];
        let missed = classifier.classify4(&keys, |rule, set| {
            (0..32)
                .filter(|i| set >> i & 1 != 0)
                .for_each(|i| assert!(found[i].replace(rule).is_none(), "one rule each"));
        });
        for (i, packet) in burst.iter().enumerate() {
            let first = lines.iter().position(|line| line.matches(packet)).map(|n| n as u32);
            assert_eq!(found[i], first, "{seed:?}, {n} rules: {packet:?}");
            assert_eq!(missed >> i & 1 != 0, first.is_none());
            met.extend(first);
        }
    }
    met.len()
}

#[test]
fn the_first_match_of_ten_a_thousand_and_ten_thousand_rules() {
    for seed in [Seed::Acl, Seed::Firewall, Seed::Chain] {
        for (n, packets) in [(10, 20_000), (1000, 20_000), (10_000, 8000)] {
            let met = proved(seed, n, packets);
            assert!(met > n.min(1000) / 3, "{seed:?}, {n} rules: the {met} that were met say little");
        }
    }
}
