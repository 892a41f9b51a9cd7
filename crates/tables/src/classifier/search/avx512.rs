//! Sixteen packets down a tree at a time, or against few rules one after the other.

use super::super::block::{Block, LANES};
use super::super::tree::{AT_BITS, AT_MOST, Entry, Flat, Tree};
use super::{BURST, NONE, filled, first};
use core::arch::x86_64::*;

/// Packets of a vector.
const WIDTH: usize = 16;
const PARTS: usize = BURST / WIDTH;

block_match!(#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]);
burst!(#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]);

/// Returns the set of packets that pass `test`.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn set(a: &[u32; BURST], b: &[u32; BURST], test: impl Fn(__m512i, __m512i) -> u16) -> u64 {
    let mut set = 0;
    for (i, (a, b)) in a.chunks_exact(WIDTH).zip(b.chunks_exact(WIDTH)).enumerate() {
        // SAFETY: a chunk is 64 bytes, and loads are unaligned.
        let (a, b) = unsafe { (_mm512_loadu_si512(a.as_ptr().cast()), _mm512_loadu_si512(b.as_ptr().cast())) };
        set |= u64::from(test(a, b)) << (WIDTH * i);
    }
    set
}

/// Returns the packets whose leaf has rules that may outrank what is found.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn worth(leaf: &[u32; BURST], best: &[u32; BURST], least: u32) -> u64 {
    let (at, least) = (_mm512_set1_epi32(AT_MOST as i32 - 1), _mm512_set1_epi32(least as i32));
    set(leaf, best, |leaf, best| _mm512_mask_cmpgt_epu32_mask(_mm512_test_epi32_mask(leaf, at), best, least))
}

/// Returns the packets without a match that have another block.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn unfinished(leaf: &[u32; BURST], found: &[u32; BURST]) -> u64 {
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
    let used = first(keys.len());
    let (mut entry, mut words, mut active) = ([all(Entry::EMPTY.0); PARTS], [all(0); PARTS], [0; PARTS]);
    let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let word = _mm512_mullo_epi32(lane, all(W as u32));
    for part in 0..PARTS {
        entry[part] = _mm512_mask_mov_epi32(entry[part], (used >> (WIDTH * part)) as u16, all(tree.root.0));
        words[part] = _mm512_add_epi32(word, all((part * WIDTH * W) as u32));
        // a leaf has the top bit
        active[part] = !_mm512_movepi32_mask(entry[part]);
    }
    while active != [0; PARTS] {
        for part in 0..PARTS {
            let e = entry[part];
            let word = _mm512_add_epi32(words[part], _mm512_srli_epi32::<27>(e));
            // SAFETY: active lanes are cuts, whose word is below W by `Tree::is_sound`, of keys that are there.
            let bits = unsafe { _mm512_mask_i32gather_epi32::<4>(e, active[part], word, keys.as_ptr().cast()) };
            let shift = _mm512_and_si512(_mm512_srli_epi32::<22>(e), all(31));
            let width = _mm512_and_si512(_mm512_srli_epi32::<AT_BITS>(e), all(15));
            let beyond = _mm512_sllv_epi32(all(u32::MAX), width);
            let bits = _mm512_andnot_si512(beyond, _mm512_srlv_epi32(bits, shift));
            let at = _mm512_add_epi32(_mm512_and_si512(e, all(AT_MOST as u32 - 1)), bits);
            // SAFETY: by `Tree::is_sound`, all that a cut can lead to is in the table.
            entry[part] = unsafe { _mm512_mask_i32gather_epi32::<4>(e, active[part], at, tree.table.as_ptr().cast()) };
            active[part] &= !_mm512_movepi32_mask(entry[part]);
        }
    }
    let mut leaves = [0; BURST];
    for (leaves, entry) in leaves.chunks_exact_mut(WIDTH).zip(entry) {
        // SAFETY: a chunk is 64 bytes, and stores are unaligned.
        unsafe { _mm512_storeu_si512(leaves.as_mut_ptr().cast(), entry) };
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

/// Returns the sides of a whole burst; written out, as a closure for each part is not inlined.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn sides4(keys: &[[u32; 4]; BURST]) -> [Side<1>; BURST / WIDTH] {
    [four(keys, 0), four(keys, 16), four(keys, 32), four(keys, 48)]
}

flat_keys!(
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
    flat4,
    four,
    sides4,
    1,
    4
);

/// Returns the sides of a whole burst; written out, as a closure for each part is not inlined.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn sides10(keys: &[[u32; 10]; BURST]) -> [Side<4>; BURST / WIDTH] {
    [ten(keys, 0), ten(keys, 16), ten(keys, 32), ten(keys, 48)]
}

flat_keys!(
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
    flat6,
    ten,
    sides10,
    4,
    10
);

/// The first of a few rules that match, for `n` packets of `P` times sixteen: rule after rule against all of them.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn flat<const A: usize, const P: usize>(
    rules: &[Flat<A>],
    sides: &[Side<A>; P],
    n: usize,
    mut found: impl FnMut(u32, u64),
) -> u64 {
    let all = |word: u32| _mm512_set1_epi32(word as i32);
    let mut todo = first(n);
    for rule in rules {
        let mut hits = 0;
        for (part, side) in sides.iter().enumerate() {
            let ports = _mm512_sub_epi16(side.ports, all(rule.first));
            let mut rest = _mm512_subs_epu16(ports, all(rule.span));
            let meta = _mm512_and_si512(_mm512_xor_si512(side.meta, all(rule.meta.0)), all(rule.meta.1));
            rest = _mm512_or_si512(rest, meta);
            for w in 0..A {
                let src = _mm512_and_si512(_mm512_xor_si512(side.src[w], all(rule.src[w].0)), all(rule.src[w].1));
                let dst = _mm512_and_si512(_mm512_xor_si512(side.dst[w], all(rule.dst[w].0)), all(rule.dst[w].1));
                rest = _mm512_or_si512(rest, _mm512_or_si512(src, dst));
            }
            hits |= u64::from(_mm512_testn_epi32_mask(rest, rest)) << (WIDTH * part);
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
fn four(keys: &[[u32; 4]], from: usize) -> Side<1> {
    let keys = &keys[from..from + WIDTH];
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
fn ten(keys: &[[u32; 10]], from: usize) -> Side<4> {
    let keys = &keys[from..from + WIDTH];
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
