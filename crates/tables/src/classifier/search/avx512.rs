//! Sixteen packets down a tree at a time, or sixteen rules at once where there are no more.

use super::super::block::{Block, LANES};
use super::super::tree::{AT_BITS, AT_MOST, Entry, Tree};
use super::{BURST, NONE};
use core::arch::x86_64::*;

block_match!(#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]);
burst!(#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]);

/// The set of packets that pass `test`.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn set(a: &[u32; BURST], b: &[u32; BURST], test: impl Fn(__m512i, __m512i) -> u16) -> u32 {
    // SAFETY: each half is sixteen words of the thirty-two, and loads are unaligned.
    let load = |array: &[u32; BURST], half: usize| unsafe { _mm512_loadu_si512(array.as_ptr().add(16 * half).cast()) };
    u32::from(test(load(a, 1), load(b, 1))) << 16 | u32::from(test(load(a, 0), load(b, 0)))
}

/// Packets whose leaf has rules that may outrank what is found.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn worth(leaf: &[u32; BURST], best: &[u32; BURST], least: u32) -> u32 {
    let (at, least) = (_mm512_set1_epi32(AT_MOST as i32 - 1), _mm512_set1_epi32(least as i32));
    set(leaf, best, |leaf, best| _mm512_mask_cmpgt_epu32_mask(_mm512_test_epi32_mask(leaf, at), best, least))
}

/// Packets without a match that have another block.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn unfinished(leaf: &[u32; BURST], found: &[u32; BURST]) -> u32 {
    let two = _mm512_set1_epi32((Entry::LEAF | 2 << AT_BITS) as i32);
    set(leaf, found, |leaf, found| {
        _mm512_mask_cmpeq_epi32_mask(_mm512_cmpge_epu32_mask(leaf, two), found, _mm512_set1_epi32(NONE as i32))
    })
}

/// The leaves of up to [`BURST`] keys, and [`Entry::EMPTY`] beyond.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn leaves<const A: usize, const W: usize>(tree: &Tree<A>, keys: &[[u32; W]]) -> [u32; BURST] {
    let keys = &keys[..keys.len().min(BURST)];
    let all = |word: u32| _mm512_set1_epi32(word as i32);
    let used = ((1u64 << keys.len()) - 1) as u32;
    let used = [used as u16, (used >> 16) as u16];
    let mut entry = used.map(|used| _mm512_mask_mov_epi32(all(Entry::EMPTY.0), used, all(tree.root.0)));
    let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let first = _mm512_mullo_epi32(lane, all(W as u32));
    let first = [first, _mm512_add_epi32(first, all(16 * W as u32))];
    // a leaf has the top bit
    let mut active = entry.map(|entry| !_mm512_movepi32_mask(entry));
    while active[0] | active[1] != 0 {
        for half in 0..2 {
            let e = entry[half];
            let word = _mm512_add_epi32(first[half], _mm512_srli_epi32::<27>(e));
            // SAFETY: active lanes are cuts, whose word is below W by `Tree::is_sound`, of keys that are there.
            let bits = unsafe { _mm512_mask_i32gather_epi32::<4>(e, active[half], word, keys.as_ptr().cast()) };
            let shift = _mm512_and_si512(_mm512_srli_epi32::<22>(e), all(31));
            let width = _mm512_and_si512(_mm512_srli_epi32::<AT_BITS>(e), all(15));
            let beyond = _mm512_sllv_epi32(all(u32::MAX), width);
            let bits = _mm512_andnot_si512(beyond, _mm512_srlv_epi32(bits, shift));
            let at = _mm512_add_epi32(_mm512_and_si512(e, all(AT_MOST as u32 - 1)), bits);
            // SAFETY: by `Tree::is_sound`, all that a cut can lead to is in the table.
            entry[half] = unsafe { _mm512_mask_i32gather_epi32::<4>(e, active[half], at, tree.table.as_ptr().cast()) };
            active[half] &= !_mm512_movepi32_mask(entry[half]);
        }
    }
    let mut leaves = [0; BURST];
    // SAFETY: each half is sixteen words of the thirty-two, and stores are unaligned.
    unsafe {
        _mm512_storeu_si512(leaves.as_mut_ptr().cast(), entry[0]);
        _mm512_storeu_si512(leaves.as_mut_ptr().add(16).cast(), entry[1]);
    }
    leaves
}

/// The first of at most sixteen rules that match, for any number of keys.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn flat<const A: usize, const W: usize>(tree: &Tree<A>, keys: &[[u32; W]], out: &mut [u32]) {
    let (a, b) = match tree.blocks(tree.root) {
        [a, b, ..] => (a, b),
        [a] => (a, &Block::EMPTY),
        [] => return out.fill(NONE),
    };
    let load = |a: &[u32; LANES], b: &[u32; LANES]| {
        // SAFETY: lanes are 32 bytes, and loads are unaligned.
        let (a, b) = unsafe { (_mm256_loadu_si256(a.as_ptr().cast()), _mm256_loadu_si256(b.as_ptr().cast())) };
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b)
    };
    let widen = |a: &[u8; LANES], b: &[u8; LANES]| {
        let [a, b] = [a, b].map(|lanes| lanes.map(u32::from));
        load(&a, &b)
    };
    let src = core::array::from_fn::<_, A, _>(|w| (load(&a.src[w], &b.src[w]), widen(&a.src_free[w], &b.src_free[w])));
    let dst = core::array::from_fn::<_, A, _>(|w| (load(&a.dst[w], &b.dst[w]), widen(&a.dst_free[w], &b.dst_free[w])));
    let (first, span) = (load(&a.first, &b.first), load(&a.span, &b.span));
    let (meta, meta_mask) = (load(&a.meta, &b.meta), load(&a.meta_mask, &b.meta_mask));
    let mut rule = [NONE; 2 * LANES + 1];
    rule[..LANES].copy_from_slice(&a.rule[..LANES]);
    rule[LANES..2 * LANES].copy_from_slice(&b.rule[..LANES]);
    let all = |word: u32| _mm512_set1_epi32(word as i32);
    for (key, out) in keys.iter().zip(out) {
        let mut rest = _mm512_subs_epu16(_mm512_sub_epi16(all(key[W - 2]), first), span);
        for word in 0..A {
            let src = _mm512_srlv_epi32(_mm512_xor_si512(all(key[word]), src[word].0), src[word].1);
            let dst = _mm512_srlv_epi32(_mm512_xor_si512(all(key[A + word]), dst[word].0), dst[word].1);
            rest = _mm512_or_si512(rest, _mm512_or_si512(src, dst));
        }
        let meta = _mm512_and_si512(_mm512_xor_si512(all(key[W - 1]), meta), meta_mask);
        let hits = _mm512_testn_epi32_mask(_mm512_or_si512(rest, meta), all(u32::MAX));
        *out = rule[(u32::from(hits) | 1 << (2 * LANES)).trailing_zeros() as usize];
    }
}
