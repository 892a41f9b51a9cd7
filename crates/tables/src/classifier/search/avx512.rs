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

/// The first of at most sixteen rules that match, for up to [`BURST`] keys: packets side by side, rule after rule, the
/// last first.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn flat<const A: usize, const W: usize>(tree: &Tree<A>, keys: &[[u32; W]], out: &mut [u32]) {
    let mut whole = [[0; W]; BURST];
    let full = keys.first_chunk::<BURST>().unwrap_or_else(|| {
        whole[..keys.len()].copy_from_slice(keys);
        &whole
    });
    let words = [0, 16].map(|from| side_by_side(full, from));
    let all = |word: u32| _mm512_set1_epi32(word as i32);
    let mut found = [all(NONE); 2];
    for block in tree.blocks(tree.root).iter().rev() {
        for lane in (0..LANES).rev() {
            let rule = block.rule[lane];
            if rule == NONE {
                continue;
            }
            let bits = |free: u8| all(u32::MAX.checked_shl(free.into()).unwrap_or(0));
            let src: [_; A] = core::array::from_fn(|w| (all(block.src[w][lane]), bits(block.src_free[w][lane])));
            let dst: [_; A] = core::array::from_fn(|w| (all(block.dst[w][lane]), bits(block.dst_free[w][lane])));
            let (first, span) = (all(block.first[lane]), all(block.span[lane]));
            let (meta, meta_mask) = (all(block.meta[lane]), all(block.meta_mask[lane]));
            for (found, key) in found.iter_mut().zip(&words) {
                let ports = _mm512_subs_epu16(_mm512_sub_epi16(key[W - 2], first), span);
                let meta = _mm512_and_si512(_mm512_xor_si512(key[W - 1], meta), meta_mask);
                let mut rest = _mm512_or_si512(ports, meta);
                for w in 0..A {
                    let src = _mm512_and_si512(_mm512_xor_si512(key[w], src[w].0), src[w].1);
                    let dst = _mm512_and_si512(_mm512_xor_si512(key[A + w], dst[w].0), dst[w].1);
                    rest = _mm512_or_si512(rest, _mm512_or_si512(src, dst));
                }
                *found = _mm512_mask_mov_epi32(*found, _mm512_testn_epi32_mask(rest, rest), all(rule));
            }
        }
    }
    let mut rules = [NONE; BURST];
    for (half, found) in found.into_iter().enumerate() {
        let found = if W == 4 { _mm512_permutexvar_epi32(four_by_four(), found) } else { found };
        // SAFETY: each half is sixteen words of the thirty-two, and stores are unaligned.
        unsafe { _mm512_storeu_si512(rules.as_mut_ptr().add(16 * half).cast(), found) };
    }
    out.copy_from_slice(&rules[..keys.len()]);
}

/// Lane 4 * (i % 4) + i / 4 for lane i.
#[target_feature(enable = "avx512f")]
#[inline]
fn four_by_four() -> __m512i {
    _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
}

/// The words of sixteen keys, those of all keys side by side; with four words in the order of [`four_by_four`].
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn side_by_side<const W: usize>(keys: &[[u32; W]; BURST], from: usize) -> [__m512i; W] {
    let keys = &keys[from..from + 16];
    let mut words = [_mm512_setzero_si512(); W];
    if W == 4 {
        // SAFETY: four keys of four words each, of sixteen; loads are unaligned.
        let [a, b, c, d] = [0, 4, 8, 12].map(|at| unsafe { _mm512_loadu_si512(keys.as_ptr().add(at).cast()) });
        let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (above, beyond) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        let all = [
            _mm512_unpacklo_epi64(ab, cd),
            _mm512_unpackhi_epi64(ab, cd),
            _mm512_unpacklo_epi64(above, beyond),
            _mm512_unpackhi_epi64(above, beyond),
        ];
        words.copy_from_slice(&all[..W]);
    } else {
        let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let first = _mm512_mullo_epi32(lane, _mm512_set1_epi32(W as i32));
        for (at, word) in words.iter_mut().enumerate() {
            let index = _mm512_add_epi32(first, _mm512_set1_epi32(at as i32));
            // SAFETY: word `at`, below W, of each of sixteen keys.
            *word = unsafe { _mm512_i32gather_epi32::<4>(index, keys.as_ptr().cast()) };
        }
    }
    words
}
