//! Groups of next hops: each flow uses the member that its hash selects.
//!
//! A group is an array of buckets, each with the adjacency number of a member. Members have buckets in proportion to their
//! weights, and which of them is fixed by rendezvous hashing: a group with one member more or less has the other members
//! in most of the same buckets, so that few flows between living next hops move (RFC 2992 §4 has the disruption of simpler
//! methods).

use super::adjacency::NeighbourKey;
use core::sync::atomic::{AtomicU32, Ordering};
use std::hash::BuildHasher as _;
use wire::flow;
use zerocopy::FromZeros as _;

/// Buckets of a group.
const BUCKETS: usize = 256;
/// Scores of pairs of a bucket and a member are high from this one on, as one of eight is.
const HIGH_SCORE: u64 = u64::MAX / 8 * 7;

/// A next hop of a route and its weight, 1 to 65,535.
pub(in crate::l3fwd) type Member = (NeighbourKey, u16);

/// The buckets of all groups, which workers read.
pub(super) struct Groups {
    /// Zeros, of which the kernel gives memory to those that are used.
    buckets: Box<[AtomicU32]>,
}

impl Groups {
    pub(super) fn new(groups: usize) -> Option<Groups> {
        Some(Groups { buckets: <[AtomicU32]>::new_box_zeroed_with_elems(groups * BUCKETS).ok()? })
    }

    /// Returns the maximum number of groups.
    pub(super) fn max(&self) -> usize {
        self.buckets.len() / BUCKETS
    }

    /// Sets the buckets of a group, which workers may use: each flow finds its old member or its new one. `numbers` are
    /// the adjacency numbers of the members.
    pub(super) fn set(&self, group: u32, members: &[Member], numbers: &[u32]) {
        for (bucket, member) in self.of(group).iter().zip(assign(members)) {
            bucket.store(numbers.get(usize::from(member)).copied().unwrap_or(0), Ordering::Release);
        }
    }

    /// Returns the adjacency number of the member for a flow with this hash; 0, that of no route, if there is no such
    /// group.
    #[inline(always)]
    pub(super) fn member(&self, group: usize, hash: u32) -> u32 {
        let bucket = group * BUCKETS + flow::share(hash, BUCKETS as u32) as usize;
        self.buckets.get(bucket).map_or(0, |bucket| bucket.load(Ordering::Acquire))
    }

    fn of(&self, group: u32) -> &[AtomicU32] {
        let start = group as usize * BUCKETS;
        self.buckets.get(start..start + BUCKETS).unwrap_or_default()
    }
}

/// Returns the member of each bucket. Every member has `BUCKETS * weight / sum of weights` buckets, rounded. Of all pairs of
/// a bucket and a member, those with the highest scores decide.
fn assign(members: &[Member]) -> [u8; BUCKETS] {
    let mut left = quotas(members);
    let state = foldhash::fast::FixedState::with_seed(0);
    let hashes: Vec<u64> = members.iter().map(|(key, _)| state.hash_one(key)).collect();
    let mut assigned = [None; BUCKETS];
    // few scores are high, and decide about most buckets: most of the others need not be sorted
    for is_high in [true, false] {
        let mut scores = vec![];
        for bucket in (0..BUCKETS).filter(|bucket| assigned[*bucket].is_none()) {
            for member in (0..members.len()).filter(|member| left[*member] > 0) {
                let score = state.hash_one((hashes[member], bucket as u64));
                if (score >= HIGH_SCORE) == is_high {
                    // single words are sorted faster than tuples
                    scores.push(score & !0xffff | (bucket as u64) << 8 | member as u64);
                }
            }
        }
        scores.sort_unstable();
        for score in scores.into_iter().rev() {
            let (bucket, member) = ((score >> 8 & 0xff) as usize, (score & 0xff) as usize);
            if assigned[bucket].is_none() && left[member] > 0 {
                assigned[bucket] = Some(member as u8);
                left[member] -= 1;
            }
        }
    }
    assigned.map(Option::unwrap_or_default)
}

/// Returns the number of buckets of each member: shares of the sum, and what rounding leaves to the largest remainders.
fn quotas(members: &[Member]) -> Vec<usize> {
    let sum: usize = members.iter().map(|(_, weight)| usize::from(*weight)).sum::<usize>().max(1);
    let share = |(_, weight): &Member| BUCKETS * usize::from(*weight);
    let mut quotas: Vec<usize> = members.iter().map(|member| share(member) / sum).collect();
    let mut by_remainder: Vec<usize> = (0..members.len()).collect();
    by_remainder.sort_by_key(|n| std::cmp::Reverse(share(&members[*n]) % sum));
    let rest = BUCKETS.saturating_sub(quotas.iter().sum());
    by_remainder.into_iter().take(rest).for_each(|n| quotas[n] += 1);
    quotas
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn member(n: u32, weight: u16) -> Member {
        ((0, Ipv4Addr::from_bits(0xc000_0200 + n).into()), weight)
    }

    fn counts(members: &[Member]) -> Vec<usize> {
        let assigned = assign(members);
        (0..members.len()).map(|n| assigned.iter().filter(|m| usize::from(**m) == n).count()).collect()
    }

    #[test]
    fn weights_are_shares() {
        assert_eq!(counts(&[member(1, 1), member(2, 3)]), [64, 192]);
        assert_eq!(counts(&[member(1, 200), member(2, 200)]), [128, 128]);
        assert_eq!(counts(&[member(1, 1), member(2, 1), member(3, 1)]), [86, 85, 85]);
    }

    proptest! {
        #[test]
        fn every_bucket_has_a_member(weights in prop::collection::vec(1u16.., 1..=64)) {
            let members: Vec<_> = weights.iter().enumerate().map(|(n, w)| member(n as u32, *w)).collect();
            prop_assert_eq!(counts(&members), quotas(&members));
            prop_assert_eq!(quotas(&members).iter().sum::<usize>(), BUCKETS);
        }

        #[test]
        fn few_flows_move_when_a_member_leaves(n in 3usize..=16, leaves: prop::sample::Index, first in 0u32..1000) {
            let members: Vec<_> = (0..n).map(|n| member(first + n as u32, 1)).collect();
            let mut fewer = members.clone();
            let gone = leaves.index(n);
            fewer.remove(gone);
            let (before, after) = (assign(&members), assign(&fewer));
            let moved = before.iter().zip(&after).filter(|(b, a)| {
                let before = members[usize::from(**b)];
                before != members[gone] && before != fewer[usize::from(**a)]
            });
            prop_assert!(moved.count() <= BUCKETS / 5);
        }
    }
}
