//! Sixteen packets down a tree at a time, or against few rules one after the other.

use super::super::block::{Block, LANES};
use super::super::tree::{AT_BITS, AT_MOST, Entry, Flat, Tree};
use super::{BURST, NONE, filled};
use core::arch::x86_64::*;

block_match!(#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]);
burst!(#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]);

/// Returns the set of packets that pass `test`.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn set(a: &[u32; BURST], b: &[u32; BURST], test: impl Fn(__m512i, __m512i) -> u16) -> u32 {
    // SAFETY: each half is sixteen words of the thirty-two, and loads are unaligned.
    let load = |array: &[u32; BURST], half: usize| unsafe { _mm512_loadu_si512(array.as_ptr().add(16 * half).cast()) };
    u32::from(test(load(a, 1), load(b, 1))) << 16 | u32::from(test(load(a, 0), load(b, 0)))
}

/// Returns the packets whose leaf has rules that may outrank what is found.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn worth(leaf: &[u32; BURST], best: &[u32; BURST], least: u32) -> u32 {
    let (at, least) = (_mm512_set1_epi32(AT_MOST as i32 - 1), _mm512_set1_epi32(least as i32));
    set(leaf, best, |leaf, best| _mm512_mask_cmpgt_epu32_mask(_mm512_test_epi32_mask(leaf, at), best, least))
}

/// Returns the packets without a match that have another block.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn unfinished(leaf: &[u32; BURST], found: &[u32; BURST]) -> u32 {
    let two = _mm512_set1_epi32((Entry::LEAF | 2 << AT_BITS) as i32);
    set(leaf, found, |leaf, found| {
        _mm512_mask_cmpeq_epi32_mask(_mm512_cmpge_epu32_mask(leaf, two), found, _mm512_set1_epi32(NONE as i32))
    })
}

/// Returns the leaves of up to [`BURST`] keys, and [`Entry::EMPTY`] beyond.
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

/// The words of sixteen packets each, side by side: source, destination, ports, [`meta`](super::super::region::meta).
struct Side<const A: usize> {
    src: [__m512i; A],
    dst: [__m512i; A],
    ports: __m512i,
    meta: __m512i,
}

/// [`flat`] for IPv4 keys as they stand in memory.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(in super::super) fn flat4(rules: &[Flat<1>], keys: &[[u32; 4]], found: impl FnMut(u32, u32)) -> u32 {
    let sides = match keys.first_chunk::<BURST>() {
        Some(full) => [four(full, 0), four(full, 16)],
        None => {
            let full = filled(keys);
            [four(&full, 0), four(&full, 16)]
        }
    };
    flat(rules, &sides, keys.len(), found)
}

/// [`flat`] for IPv6 keys.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
pub(in super::super) fn flat6(rules: &[Flat<4>], keys: &[[u32; 10]], found: impl FnMut(u32, u32)) -> u32 {
    let sides = match keys.first_chunk::<BURST>() {
        Some(full) => [ten(full, 0), ten(full, 16)],
        None => {
            let full = filled(keys);
            [ten(&full, 0), ten(&full, 16)]
        }
    };
    flat(rules, &sides, keys.len(), found)
}

/// The first of a few rules that match, for `n` packets of two times sixteen: rule after rule against all of them.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn flat<const A: usize>(rules: &[Flat<A>], sides: &[Side<A>; 2], n: usize, mut found: impl FnMut(u32, u32)) -> u32 {
    let all = |word: u32| _mm512_set1_epi32(word as i32);
    let mut todo = ((1u64 << n) - 1) as u32;
    for rule in rules {
        let mut hits = 0;
        for (half, side) in (0..).zip(sides) {
            let ports = _mm512_sub_epi16(side.ports, all(rule.first));
            let mut rest = _mm512_subs_epu16(ports, all(rule.span));
            let meta = _mm512_and_si512(_mm512_xor_si512(side.meta, all(rule.meta.0)), all(rule.meta.1));
            rest = _mm512_or_si512(rest, meta);
            for w in 0..A {
                let src = _mm512_and_si512(_mm512_xor_si512(side.src[w], all(rule.src[w].0)), all(rule.src[w].1));
                let dst = _mm512_and_si512(_mm512_xor_si512(side.dst[w], all(rule.dst[w].0)), all(rule.dst[w].1));
                rest = _mm512_or_si512(rest, _mm512_or_si512(src, dst));
            }
            hits |= u32::from(_mm512_testn_epi32_mask(rest, rest)) << (16 * half);
        }
        hits &= todo;
        todo ^= hits;
        found(rule.rule, hits);
    }
    todo
}

/// Sixteen of the keys, from the `from`th on: four by four into rows and columns, then into order, and into numbers.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn four(keys: &[[u32; 4]; BURST], from: usize) -> Side<1> {
    let keys = &keys[from..from + 16];
    // SAFETY: four keys of four words each, of sixteen; loads are unaligned.
    let [a, b, c, d] = [0, 4, 8, 12].map(|at| unsafe { _mm512_loadu_si512(keys.as_ptr().add(at).cast()) });
    let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
    let (above, beyond) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let swap = _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    let number = |words| _mm512_shuffle_epi8(_mm512_permutexvar_epi32(order, words), swap);
    Side {
        src: [number(_mm512_unpackhi_epi64(ab, cd))],
        dst: [number(_mm512_unpacklo_epi64(above, beyond))],
        ports: number(_mm512_unpackhi_epi64(above, beyond)),
        meta: _mm512_permutexvar_epi32(order, _mm512_unpacklo_epi64(ab, cd)),
    }
}

/// Returns the sixteen of the keys, from the `from`th on.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn ten(keys: &[[u32; 10]; BURST], from: usize) -> Side<4> {
    let keys = &keys[from..from + 16];
    let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let first = _mm512_mullo_epi32(lane, _mm512_set1_epi32(10));
    let word = |at: i32| {
        let index = _mm512_add_epi32(first, _mm512_set1_epi32(at));
        // SAFETY: word `at`, below 10, of each of sixteen keys.
        unsafe { _mm512_i32gather_epi32::<4>(index, keys.as_ptr().cast()) }
    };
    Side {
        src: [word(0), word(1), word(2), word(3)],
        dst: [word(4), word(5), word(6), word(7)],
        ports: word(8),
        meta: word(9),
    }
}
