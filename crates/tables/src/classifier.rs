//! Packet classifier: ordered rules on addresses, protocol, ports, ICMP type, TCP flags and fragments; the first that
//! matches wins.
//!
//! Rules become decision trees: a few bits of a packet choose a child, until at most a handful of rules is left, and
//! those are compared with the packet eight at a time. Rules that leave an address open would be copied into every child
//! of a cut of that address, so they get trees of their own where that is cheaper. Up to sixteen rules need no tree: with AVX-512, sixteen packets are compared with each of them at a time.
//! The idea is that of HiCuts and EffiCuts (Gupta and McKeown, 1999; Vamanan et al., 2010) with SIMD in the leaves.
//!
//! Median cycles for a packet of IPv4 (Sapphire Rapids, 2.7 GHz counter, AVX-512, bursts of 32, half of the packets aimed
//! at a rule), by the example `classifier`; beside it `rte_acl` with AVX-512 on the same machine, rules and keys:
//!
//! | rules | random, /8 to /24 | access list | firewall | mixed |
//! |---|---|---|---|---|
//! | 10 | 4 / 27 | 4 / 27 | 4 / 26 | 4 / 26 |
//! | 1,000 | 10 / 31 | 19 / 61 | 27 / 55 | 22 / 61 |
//! | 10,000 | 14 / 64 | 38 / 105 | 46 / 125 | 48 / 126 |
//!
//! IPv6 takes 10 for ten rules, 20 to 47 for a thousand.
//!
//! ```
//! use tables::Classifier;
//! use tables::classifier::{Addresses, FragmentKind, Key4, Rule, Upper};
//!
//! let to = |dst: [u8; 4], len, port| Rule {
//!     addresses: Addresses::V4 { src: ([0; 4].into(), 0), dst: (dst.into(), len) },
//!     protocol: Some(6),
//!     upper: Upper::Ports { src: 0..=u16::MAX, dst: port..=port },
//!     ..Rule::ANY
//! };
//! let classifier = Classifier::new(&[to([192, 0, 2, 7], 32, 443), to([192, 0, 2, 0], 24, 80)])?;
//! let keys = [(7, 443), (7, 80), (8, 443)].map(|(host, port)| {
//!     Key4::new([10, 0, 0, 1].into(), [192, 0, 2, host].into(), 6, FragmentKind::Whole).with_tcp(40_000, port, 0x02)
//! });
//! let mut found = vec![];
//! let none = classifier.classify4(&keys, |rule, packets| found.push((rule, packets)));
//! found.sort();
//! assert_eq!((&found[..], none), (&[(0, 0b001), (1, 0b010)][..], 0b100));
//! # Ok::<(), tables::classifier::Error>(())
//! ```

mod block;
mod build;
mod changing;
mod error;
mod key;
mod patch;
mod plan;
mod region;
mod rule;
mod search;
mod tree;
mod trees;

pub use changing::{Changing, Fold, Folded};
pub use error::{Error, Fault};
pub use key::{FragmentKind, Key4, Key6};
pub use rule::{Addresses, FragmentMatch, Rule, TcpFlags, Upper};

use block::LANES;
use patch::Patch;
use region::Region;
pub use search::BURST;
use search::{Simd, words4};
use std::sync::Arc;
use tree::{Entry, Tree};
use trees::Trees;

/// Most rules of a classifier: 65,528.
pub const MAX_RULES: usize = Entry::BLOCKS_MOST * LANES;

/// Ordered rules, made ready for look-up; never changes. A clone is the same one.
///
/// For rules that come and go there is [`Changing`], which makes one after the other of them.
#[derive(Clone)]
pub struct Classifier {
    trees: Arc<Trees>,
    /// Changes since the trees were built.
    patch: Option<Arc<Patch>>,
    rules: usize,
    simd: Simd,
}

impl Classifier {
    /// Makes rules ready, first match first. Takes milliseconds for a hundred, 0.2 s for a thousand, seconds for ten
    /// thousand: keep it off the packet path.
    ///
    /// Memory is that of the rules (32 bytes each for IPv4, 64 for IPv6, in blocks of eight) times at most 16, and at most
    /// 1 MiB of tables for each of up to four trees of either version; [`bytes`](Self::bytes) tells.
    ///
    /// # Errors
    /// More than [`MAX_RULES`], or a rule that is contradictory: the error says which, and why.
    pub fn new(rules: &[Rule]) -> Result<Self, Error> {
        let (v4, v6) = compile(rules)?;
        let trees = Trees { v4: plan::plan(v4), v6: plan::plan(v6) };
        Ok(Self { trees: Arc::new(trees), patch: None, rules: rules.len(), simd: Simd::best() })
    }

    /// Hands `found` the index of a rule and the set of packets of which it is the first that matches: bit i for `keys[i]`. A
    /// rule may come several times, and with no packets. Returns the set of packets that no rule matches.
    ///
    /// # Panics
    /// If there are more than [`BURST`] keys.
    #[inline]
    pub fn classify4(&self, keys: &[Key4], found: impl FnMut(u32, u64)) -> u64 {
        assert!(keys.len() <= BURST, "at most a burst");
        if let Some(patch) = &self.patch {
            return patch.classify4(&self.trees, self.simd, keys, found);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(rules) = Tree::only_flat(&self.trees.v4) {
            match self.simd {
                // SAFETY: the processor has it.
                Simd::Avx512 => return unsafe { search::avx512::flat4(rules, Key4::wire(keys), found) },
                // SAFETY: as above.
                Simd::Avx2 => return unsafe { search::avx2::flat4(rules, Key4::wire(keys), found) },
                Simd::None => {}
            }
        }
        let words = words4(keys);
        search::search(&self.trees.v4, self.simd, &words[..keys.len()], found)
    }

    /// [`classify4`](Self::classify4) for IPv6.
    ///
    /// # Panics
    /// If there are more than [`BURST`] keys.
    #[inline]
    pub fn classify6(&self, keys: &[Key6], found: impl FnMut(u32, u64)) -> u64 {
        assert!(keys.len() <= BURST, "at most a burst");
        if let Some(patch) = &self.patch {
            return patch.classify6(&self.trees, self.simd, keys, found);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(rules) = Tree::only_flat(&self.trees.v6) {
            match self.simd {
                // SAFETY: the processor has it.
                Simd::Avx512 => return unsafe { search::avx512::flat6(rules, Key6::words(keys), found) },
                // SAFETY: as above.
                Simd::Avx2 => return unsafe { search::avx2::flat6(rules, Key6::words(keys), found) },
                Simd::None => {}
            }
        }
        search::search(&self.trees.v6, self.simd, Key6::words(keys), found)
    }

    /// Returns the number of rules.
    pub fn rules(&self) -> usize {
        self.rules
    }

    /// Returns the bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.trees.bytes() + self.patch.as_ref().map_or(0, |patch| patch.bytes())
    }
}

/// Returns the regions of rules, for each version those that have some, by rank.
fn compile(rules: &[Rule]) -> Result<(Vec<Region>, Vec<Region>), Error> {
    if rules.len() > MAX_RULES {
        return Err(Error::TooMany { given: rules.len() });
    }
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (rank, rule) in (0..).zip(rules) {
        let regions = rule.compile(rank)?;
        v4.extend(regions.0);
        v6.extend(regions.1);
    }
    Ok((v4, v6))
}

impl core::fmt::Debug for Classifier {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let trees = [self.trees.v4.len(), self.trees.v6.len()];
        f.debug_struct("Classifier")
            .field("rules", &self.rules)
            .field("trees", &trees)
            .field("simd", &self.simd)
            .finish()
    }
}

#[cfg(test)]
mod tests;
