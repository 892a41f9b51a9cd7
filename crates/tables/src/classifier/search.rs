//! Looking packets up: down the trees level by level, then each against the blocks of its leaf.
//!
//! Loops run over sets of packets, one bit each, so that a burst costs a mispredicted branch per level and not per packet.

use super::block::NONE;
use super::key::Key4;
use super::tree::{Entry, Tree};

/// Packets looked up together at most: bits of a set.
pub const BURST: usize = 64;
const _: () = assert!(BURST == u64::BITS as usize);

/// Instruction sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Simd {
    None,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Simd {
    /// Returns the largest value.
    pub(super) fn best() -> Self {
        Self::all().pop().unwrap_or(Self::None)
    }

    /// Creates a range from the smallest to the largest value.
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![Self::None];
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt") {
                all.push(Self::Avx2);
                if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
                    all.push(Self::Avx512);
                }
            }
        }
        all
    }
}

/// Hands `found` for each of up to [`BURST`] keys, `W` words with addresses of `A`, the least index of the rules that match in
/// any tree, and its bit. The set of those that no rule matches.
#[inline]
pub(super) fn search<const A: usize, const W: usize>(
    trees: &[Tree<A>],
    simd: Simd,
    keys: &[[u32; W]],
    found: impl FnMut(u32, u64),
) -> u64 {
    hand(&best(trees, simd, keys), keys.len(), found)
}

/// Returns the keys as the search reads them.
#[inline(always)]
pub(super) fn words4(keys: &[Key4]) -> [[u32; 4]; BURST] {
    let mut words = [[0; 4]; BURST];
    for (words, key) in words.iter_mut().zip(keys) {
        *words = key.words();
    }
    words
}

/// Returns the least index of the rules that match each key in any tree, and [`NONE`].
#[inline]
pub(super) fn best<const A: usize, const W: usize>(trees: &[Tree<A>], simd: Simd, keys: &[[u32; W]]) -> [u32; BURST] {
    const { assert!(W == 2 * A + 2) };
    match simd {
        Simd::None => none::burst(trees, keys),
        // SAFETY: only `Simd::all` makes one, and it has looked.
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => unsafe { avx2::burst(trees, keys) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 => unsafe { avx512::burst(trees, keys) },
    }
}

/// Hands `found` the index of each of `n` packets, and its bit. The set of those without.
#[inline]
pub(super) fn hand(best: &[u32; BURST], n: usize, mut found: impl FnMut(u32, u64)) -> u64 {
    let all = first(n);
    let none = (0..BURST).fold(0, |set, i| set | u64::from(best[i] == NONE) << i) & all;
    let mut rest = all & !none;
    while rest != 0 {
        let i = rest.trailing_zeros() as usize;
        found(best[i], 1 << i);
        rest &= rest - 1;
    }
    none
}

/// The least index for up to [`BURST`] keys, by functions of the same module: `leaves`; which leaves are `worth` a look and
/// which are `unfinished`, as sets; and `first_match`.
macro_rules! burst {
    ($(#[$features:meta])*) => {
        $(#[$features])*
        pub(super) fn burst<const A: usize, const W: usize>(trees: &[Tree<A>], keys: &[[u32; W]]) -> [u32; BURST] {
            let mut best = [NONE; BURST];
            for tree in trees {
                let mut leaf = leaves(tree, keys);
                // a rule that is found already may outrank the whole tree
                let mut todo = worth(&leaf, &best, tree.best);
                while todo != 0 {
                    let mut found = [NONE; BURST];
                    let mut rest = todo;
                    while rest != 0 {
                        let i = rest.trailing_zeros() as usize;
                        rest &= rest - 1;
                        found[i] = first_match(&tree.blocks[Entry(leaf[i]).at()], &keys[i]);
                    }
                    todo &= unfinished(&leaf, &found);
                    for i in 0..BURST {
                        best[i] = best[i].min(found[i]);
                        leaf[i] = leaf[i].wrapping_add(Entry::NEXT);
                    }
                }
            }
            best
        }
    };
}

/// Returns the set of the first `n` packets.
#[inline(always)]
fn first(n: usize) -> u64 {
    if n == 0 { 0 } else { u64::MAX >> (BURST - n) }
}

/// Returns the leaves of up to [`BURST`] keys, and [`Entry::EMPTY`] beyond.
#[inline(always)]
fn leaves<const A: usize, const W: usize>(tree: &Tree<A>, keys: &[[u32; W]]) -> [u32; BURST] {
    let mut entry = [Entry::EMPTY; BURST];
    entry[..keys.len()].fill(tree.root);
    let mut active = if tree.root.is_leaf() { 0 } else { first(keys.len()) };
    while active != 0 {
        let mut rest = active;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            entry[i] = tree.table[entry[i].child(&keys[i])];
            active ^= u64::from(entry[i].is_leaf()) << i;
        }
    }
    entry.map(|e| e.0)
}

/// Returns the keys, and zeros behind them.
#[cfg(target_arch = "x86_64")]
#[cold]
fn filled<const W: usize, const N: usize>(keys: &[[u32; W]]) -> [[u32; W]; N] {
    let mut whole = [[0; W]; N];
    whole[..keys.len()].copy_from_slice(keys);
    whole
}

/// A function that passes up to [`BURST`] keys to `flat` of the same module: `$one` prepares the keys of a vector, `$sides`
/// those of a whole burst.
#[cfg(target_arch = "x86_64")]
macro_rules! flat_keys {
    ($(#[$features:meta])* $name:ident, $one:ident, $sides:ident, $addresses:literal, $words:literal) => {
        /// `flat` for keys as they stand in memory.
        $(#[$features])*
        #[inline]
        pub(in super::super) fn $name(
            rules: &[Flat<$addresses>],
            keys: &[[u32; $words]],
            found: impl FnMut(u32, u64),
        ) -> u64 {
            match keys.first_chunk() {
                Some(full) => flat(rules, &$sides(full), BURST, found),
                None if keys.len() <= WIDTH => {
                    flat(rules, &[$one(&filled::<$words, WIDTH>(keys), 0)], keys.len(), found)
                }
                None => flat(rules, &$sides(&filled(keys)), keys.len(), found),
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! block_match {
    ($(#[$features:meta])*) => {
        /// [`Block::first_match`], all lanes at once.
        $(#[$features])*
        #[inline]
        fn first_match<const A: usize, const W: usize>(block: &Block<A>, key: &[u32; W]) -> u32 {
            // SAFETY: lanes are 32 bytes, and the load is unaligned.
            let load = |lanes: &[u32; LANES]| unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
            // SAFETY: lanes are 8 bytes, and the load is unaligned.
            let widen = |lanes: &[u8; LANES]| unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(lanes.as_ptr().cast())) };
            let all = |word: u32| _mm256_set1_epi32(word as i32);
            let port = _mm256_sub_epi16(all(key[W - 2]), load(&block.first));
            let mut rest = _mm256_subs_epu16(port, load(&block.span));
            for word in 0..A {
                let src = _mm256_xor_si256(all(key[word]), load(&block.src[word]));
                let dst = _mm256_xor_si256(all(key[A + word]), load(&block.dst[word]));
                rest = _mm256_or_si256(rest, _mm256_srlv_epi32(src, widen(&block.src_free[word])));
                rest = _mm256_or_si256(rest, _mm256_srlv_epi32(dst, widen(&block.dst_free[word])));
            }
            let meta = _mm256_xor_si256(all(key[W - 1]), load(&block.meta));
            rest = _mm256_or_si256(rest, _mm256_and_si256(meta, load(&block.meta_mask)));
            let hits = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(rest, _mm256_setzero_si256())));
            block.rule[(hits as u32 | 1 << LANES).trailing_zeros() as usize]
        }
    };
}

mod none {
    use super::super::block::Block;
    use super::{BURST, Entry, NONE, Tree, leaves};

    #[inline(always)]
    fn first_match<const A: usize, const W: usize>(block: &Block<A>, key: &[u32; W]) -> u32 {
        block.first_match(key)
    }

    /// Returns the packets whose leaf has rules that may outrank what is found.
    fn worth(leaf: &[u32; BURST], best: &[u32; BURST], least: u32) -> u64 {
        (0..BURST).fold(0, |set, i| set | u64::from(!Entry(leaf[i]).is_empty() && best[i] > least) << i)
    }

    /// Returns the packets without a match that have another block.
    fn unfinished(leaf: &[u32; BURST], found: &[u32; BURST]) -> u64 {
        (0..BURST).fold(0, |set, i| set | u64::from(Entry(leaf[i]).blocks() > 1 && found[i] == NONE) << i)
    }

    burst!();
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
