//! Changes since the trees were built: added rules, which are searched separately, and removed rules.
//!
//! A rule that went stays in the trees. Where it is found, the packet is looked up again among the rules behind it that
//! meet it, which have a small tree of their own.

use super::block::NONE;
use super::key::{Key4, Key6};
use super::search::{self, BURST, Simd, words4};
use super::tree::Tree;
use super::trees::Trees;
use std::collections::HashMap;
use std::sync::Arc;

/// Picks trees of one version.
type Version<const A: usize> = fn(&Trees) -> &[Tree<A>];

/// Changes of a classifier.
pub(super) struct Patch {
    /// Rules that came, by their order.
    pub(super) added: Trees,
    /// For each of them, the rank of the first rule of the trees that stands behind it.
    pub(super) before: Box<[u32]>,
    /// Number of rules in the trees; added rules are numbered behind them.
    pub(super) base: u32,
    /// A bit for each rule of the trees that went.
    pub(super) gone: Box<[u64]>,
    /// The rules behind each of them.
    pub(super) behind: HashMap<u32, Arc<Trees>>,
}

impl Patch {
    pub(super) fn classify4(&self, trees: &Trees, simd: Simd, keys: &[Key4], found: impl FnMut(u32, u64)) -> u64 {
        let words = words4(keys);
        search::hand(&self.best(Trees::v4, trees, simd, &words[..keys.len()]), keys.len(), found)
    }

    pub(super) fn classify6(&self, trees: &Trees, simd: Simd, keys: &[Key6], found: impl FnMut(u32, u64)) -> u64 {
        search::hand(&self.best(Trees::v6, trees, simd, Key6::words(keys)), keys.len(), found)
    }

    /// Returns the number of each packet's rule.
    #[inline(never)]
    fn best<const A: usize, const W: usize>(
        &self,
        version: Version<A>,
        trees: &Trees,
        simd: Simd,
        keys: &[[u32; W]],
    ) -> [u32; BURST] {
        let mut best = search::best(version(trees), simd, keys);
        if !self.behind.is_empty() {
            self.pass(version, simd, keys, &mut best);
        }
        if !version(&self.added).is_empty() {
            let added = search::best(version(&self.added), simd, keys);
            for (best, added) in best.iter_mut().zip(added) {
                if added != NONE && self.before[added as usize] <= *best {
                    *best = self.base + added;
                }
            }
        }
        best
    }

    /// Looks on behind rules that went, until none of them is found.
    fn pass<const A: usize, const W: usize>(
        &self,
        version: Version<A>,
        simd: Simd,
        keys: &[[u32; W]],
        best: &mut [u32; BURST],
    ) {
        let gone = |rank: u32| self.gone.get(rank as usize / 64).is_some_and(|bits| bits >> (rank % 64) & 1 != 0);
        let mut todo = (0..keys.len()).fold(0u64, |set, i| set | u64::from(gone(best[i])) << i);
        while todo != 0 {
            let rank = best[todo.trailing_zeros() as usize];
            // packets of one rule together
            let (mut same, mut n) = ([[0; W]; BURST], 0);
            let mut at = [0; BURST];
            for i in (0..keys.len()).filter(|i| todo >> i & 1 != 0 && best[*i] == rank) {
                (same[n], at[n]) = (keys[i], i);
                n += 1;
            }
            let next = match self.behind.get(&rank) {
                Some(trees) => search::best(version(trees), simd, &same[..n]),
                None => [NONE; BURST],
            };
            for (&i, next) in at[..n].iter().zip(next) {
                best[i] = next;
                if !gone(next) {
                    todo &= !(1 << i);
                }
            }
        }
    }

    /// Returns the bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let tables = size_of_val(&*self.before) + size_of_val(&*self.gone);
        tables + self.added.bytes() + self.behind.values().map(|trees| trees.bytes()).sum::<usize>()
    }
}
