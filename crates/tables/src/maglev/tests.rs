//! The paper's example, and properties against §3.4 word for word.

use super::{Candidate, Error, Member, Permutation, Ring, WEIGHT_MOST, is_prime, populate};
use proptest::prelude::*;

/// Builds a ring by the pseudocode of §3.4, with explicit permutations.
fn slow(size: usize, members: &[(u16, Permutation)]) -> Vec<u16> {
    let permutation: Vec<Vec<usize>> =
        members.iter().map(|(_, p)| (0..size).map(|j| (p.offset + j * p.skip) % size).collect()).collect();
    let mut next = vec![0; members.len()];
    let mut entry: Vec<Option<u16>> = vec![None; size];
    let mut n = 0;
    loop {
        for i in 0..members.len() {
            let mut c = permutation[i][next[i]];
            while entry[c].is_some() {
                next[i] += 1;
                c = permutation[i][next[i]];
            }
            entry[c] = Some(members[i].0);
            next[i] += 1;
            n += 1;
            if n == size {
                return entry.into_iter().flatten().collect();
            }
        }
    }
}

fn turns(all: &[(usize, usize)]) -> Vec<Candidate> {
    let turn =
        |(at, &(offset, skip)): (usize, &(usize, usize))| Candidate::new(at as u16, 1, Permutation { offset, skip });
    all.iter().enumerate().map(turn).collect()
}

#[test]
fn the_example_of_the_paper() {
    // table 1: offsets and skips of B0, B1, B2; columns "before" and "after" the removal of B1
    let all = [(3, 4), (0, 2), (3, 1)];
    assert_eq!(*populate(7, turns(&all)), [1, 0, 1, 0, 2, 2, 0]);
    let mut without = turns(&all);
    without.remove(1);
    assert_eq!(*populate(7, without), [0, 0, 0, 0, 2, 2, 2]);
}

fn members<'n>(names: &'n [String], weights: &[u32]) -> Vec<Member<'n>> {
    names.iter().zip(weights).map(|(name, weight)| Member { name, weight: *weight }).collect()
}

fn named(n: usize) -> Vec<String> {
    (0..n).map(|i| format!("10.{}.{}.{}", i >> 16, i >> 8 & 255, i & 255)).collect()
}

#[test]
fn what_makes_no_ring_is_refused() {
    let one = |weight| [Member { name: "a", weight }];
    assert_eq!(Ring::build(65_536, &one(1)), Err(Error::Size(65_536, 65_537)));
    assert_eq!(Ring::build(0, &one(1)), Err(Error::Size(0, 2)));
    assert!(matches!(Ring::build(1 << 30, &one(1)), Err(Error::Size(..))));
    assert!(matches!(Ring::build(7, &one(WEIGHT_MOST + 1)), Err(Error::Weight { weight: 257, .. })));
    assert_eq!(Ring::build(7, &[one(1), one(2)].concat()), Err(Error::Twice("a".into())));
    let names = named(8);
    assert!(matches!(Ring::build(7, &members(&names, &[1; 8])), Err(Error::Members { most: 7, .. })));
    // no member
    let empty = Ring::build(7, &one(0)).unwrap();
    assert_eq!((empty.get(u64::MAX), empty.counts()), (None, vec![0]));
    assert_eq!(Ring::build(2, &one(1)).unwrap().get(0), Some(0));
}

#[test]
fn a_table_is_the_same_everywhere() {
    // what a fleet has agreed on may not change with a version
    let ring = Ring::build(31, &["a", "b", "c"].map(|name| Member { name, weight: 1 })).unwrap();
    let all: Vec<u16> = (0..31u64).map(|slot| ring.get((slot << 32).div_ceil(31) << 32).unwrap()).collect();
    assert_eq!(all, SAME);
    assert_eq!(*ring.slots, SAME);
}

const SAME: [u16; 31] = [1, 0, 2, 2, 2, 0, 2, 0, 2, 2, 2, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 2, 0, 1, 0, 1, 0, 2, 2, 0];

#[test]
fn a_thousand_backends_share_within_a_hundredth_and_one_that_goes_moves_few_others() {
    let names = named(1000);
    let mut weights = vec![1; 1000];
    let before = Ring::build(65_537, &members(&names, &weights)).unwrap();
    assert!(before.counts().iter().all(|n| [65, 66].contains(n)));
    weights[500] = 0;
    let after = Ring::build(65_537, &members(&names, &weights)).unwrap();
    let d = before.disruption(&after);
    assert_eq!(d.bereft, before.counts()[500]);
    // §5.3: a few slots in a hundred at this size
    assert!(d.share() < 0.05, "{d:?}");
    assert_eq!(before.disruption(&before).moved, 0);
}

proptest! {
    #[test]
    fn agrees_with_the_pseudocode(n in 1..40usize, size in prop::sample::select(vec![41usize, 101, 251, 1009]), salt in any::<u32>()) {
        let mut names: Vec<String> = (0..n).map(|i| format!("{salt}-{i}")).collect();
        let ring = Ring::build(size, &members(&names, &vec![3; n])).unwrap();
        let mut order: Vec<u16> = (0..n as u16).collect();
        order.sort_by_key(|at| names[*at as usize].clone());
        let list: Vec<_> = order.iter().map(|at| (*at, Permutation::of(&names[*at as usize], size))).collect();
        prop_assert_eq!(&*ring.slots, slow(size, &list));
        // in whatever order they come
        names.reverse();
        let other = Ring::build(size, &members(&names, &vec![1; n])).unwrap();
        prop_assert!(ring.slots.iter().zip(&other.slots).all(|(a, b)| usize::from(*a) == n - 1 - usize::from(*b)));
    }

    #[test]
    fn shares_follow_weights(weights in prop::collection::vec(0..=WEIGHT_MOST, 1..30)) {
        let names = named(weights.len());
        let ring = Ring::build(4099, &members(&names, &weights)).unwrap();
        let sum: u32 = weights.iter().sum();
        let counts = ring.counts();
        prop_assert_eq!(counts.iter().sum::<usize>(), if sum == 0 { 0 } else { 4099 });
        for (count, weight) in counts.iter().zip(&weights) {
            let fair = 4099.0 * f64::from(*weight) / f64::from(sum.max(1));
            // a turn is whole, and in the last round, which is not over, some have had theirs and others not
            let round = f64::from(*weight) * weights.len() as f64 / f64::from(sum.max(1));
            prop_assert!((*count as f64 - fair).abs() <= 2.0 + round, "{} slots where {} are fair", count, fair);
        }
    }

    #[test]
    fn any_hash_has_a_backend(hash in any::<u64>(), n in 1..5usize) {
        let names = named(n);
        let ring = Ring::build(5, &members(&names, &vec![1; n])).unwrap();
        prop_assert!(usize::from(ring.get(hash).unwrap()) < n);
        prop_assert_eq!(ring.get(hash), Some(ring.slots[((u128::from(hash >> 32) * 5) >> 32) as usize]));
    }

    #[test]
    fn primes(n in 0..100_000usize) {
        prop_assert_eq!(is_prime(n), n > 1 && (2..n).all(|d| n % d != 0));
    }
}
