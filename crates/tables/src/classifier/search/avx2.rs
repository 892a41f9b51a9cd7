//! Few rules one after the other against eight packets at a time.

use super::super::block::{Block, LANES};
use super::super::tree::{AT_BITS, AT_MOST, Entry, Flat, Tree};
use super::{BURST, NONE, filled, first, leaves};
use core::arch::x86_64::*;

/// Packets of a vector.
const WIDTH: usize = 8;

/// Returns the set of packets whose lane in `test` is all ones.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn set(a: &[u32; BURST], b: &[u32; BURST], test: impl Fn(__m256i, __m256i) -> __m256i) -> u64 {
    let mut set = 0;
    for (i, (a, b)) in a.chunks_exact(WIDTH).zip(b.chunks_exact(WIDTH)).enumerate() {
        // SAFETY: a chunk is 32 bytes, and loads are unaligned.
        let (a, b) = unsafe { (_mm256_loadu_si256(a.as_ptr().cast()), _mm256_loadu_si256(b.as_ptr().cast())) };
        set |= u64::from(_mm256_movemask_ps(_mm256_castsi256_ps(test(a, b))) as u32) << (WIDTH * i);
    }
    set
}

/// Returns the packets whose leaf has rules that may outrank what is found.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn worth(leaf: &[u32; BURST], best: &[u32; BURST], least: u32) -> u64 {
    let (at, least) = (_mm256_set1_epi32(AT_MOST as i32 - 1), _mm256_set1_epi32(least as i32));
    set(leaf, best, |leaf, best| {
        let empty = _mm256_cmpeq_epi32(_mm256_and_si256(leaf, at), _mm256_setzero_si256());
        let done = _mm256_cmpeq_epi32(_mm256_min_epu32(best, least), best);
        _mm256_andnot_si256(_mm256_or_si256(empty, done), _mm256_set1_epi32(-1))
    })
}

/// Returns the packets without a match that have another block.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn unfinished(leaf: &[u32; BURST], found: &[u32; BURST]) -> u64 {
    set(leaf, found, |leaf, found| {
        let blocks = _mm256_srli_epi32::<{ AT_BITS as i32 + 1 }>(_mm256_slli_epi32::<1>(leaf));
        let more = _mm256_cmpgt_epi32(blocks, _mm256_set1_epi32(1));
        _mm256_and_si256(more, _mm256_cmpeq_epi32(found, _mm256_set1_epi32(NONE as i32)))
    })
}

block_match!(#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]);
burst!(#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]);

/// The words of eight packets each, side by side: source, destination, ports, [`meta`](super::super::region::meta).
struct Side<const A: usize> {
    src: [__m256i; A],
    dst: [__m256i; A],
    ports: __m256i,
    meta: __m256i,
}

/// Returns the sides of a whole burst; written out, as a closure for each part is not inlined.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn sides4(keys: &[[u32; 4]; BURST]) -> [Side<1>; BURST / WIDTH] {
    [
        four(keys, 0),
        four(keys, 8),
        four(keys, 16),
        four(keys, 24),
        four(keys, 32),
        four(keys, 40),
        four(keys, 48),
        four(keys, 56),
    ]
}

flat_keys!(
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    flat4,
    four,
    sides4,
    1,
    4
);

/// Returns the sides of a whole burst; written out, as a closure for each part is not inlined.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn sides10(keys: &[[u32; 10]; BURST]) -> [Side<4>; BURST / WIDTH] {
    [
        ten(keys, 0),
        ten(keys, 8),
        ten(keys, 16),
        ten(keys, 24),
        ten(keys, 32),
        ten(keys, 40),
        ten(keys, 48),
        ten(keys, 56),
    ]
}

flat_keys!(
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    flat6,
    ten,
    sides10,
    4,
    10
);

/// The first of a few rules that match, for `n` packets of `P` times eight: rule after rule against all of them.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn flat<const A: usize, const P: usize>(
    rules: &[Flat<A>],
    sides: &[Side<A>; P],
    n: usize,
    mut found: impl FnMut(u32, u64),
) -> u64 {
    let all = |word: u32| _mm256_set1_epi32(word as i32);
    let mut todo = first(n);
    for rule in rules {
        let mut hits = 0;
        for (part, side) in sides.iter().enumerate() {
            let ports = _mm256_sub_epi16(side.ports, all(rule.first));
            let mut rest = _mm256_subs_epu16(ports, all(rule.span));
            let meta = _mm256_and_si256(_mm256_xor_si256(side.meta, all(rule.meta.0)), all(rule.meta.1));
            rest = _mm256_or_si256(rest, meta);
            for w in 0..A {
                let src = _mm256_and_si256(_mm256_xor_si256(side.src[w], all(rule.src[w].0)), all(rule.src[w].1));
                let dst = _mm256_and_si256(_mm256_xor_si256(side.dst[w], all(rule.dst[w].0)), all(rule.dst[w].1));
                rest = _mm256_or_si256(rest, _mm256_or_si256(src, dst));
            }
            let nothing = _mm256_cmpeq_epi32(rest, _mm256_setzero_si256());
            hits |= u64::from(_mm256_movemask_ps(_mm256_castsi256_ps(nothing)) as u32) << (WIDTH * part);
        }
        hits &= todo;
        todo ^= hits;
        found(rule.rule, hits);
    }
    todo
}

/// Returns the eight of the keys, from the `from`th on: rows into columns, then into numbers.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn four(keys: &[[u32; 4]], from: usize) -> Side<1> {
    let keys = &keys[from..from + WIDTH];
    // SAFETY: one of eight keys, of four words; loads are unaligned.
    let key = |at: usize| unsafe { _mm_loadu_si128(keys.as_ptr().add(at).cast()) };
    let two = |at: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(key(at)), key(at + 4));
    let (a, b, c, d) = (two(0), two(1), two(2), two(3));
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let (above, beyond) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    let swap = _mm256_broadcastsi128_si256(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    let number = |words| _mm256_shuffle_epi8(words, swap);
    Side {
        src: [number(_mm256_unpackhi_epi64(ab, cd))],
        dst: [number(_mm256_unpacklo_epi64(above, beyond))],
        ports: number(_mm256_unpackhi_epi64(above, beyond)),
        meta: _mm256_unpacklo_epi64(ab, cd),
    }
}

/// Returns the eight of the keys, from the `from`th on.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn ten(keys: &[[u32; 10]], from: usize) -> Side<4> {
    let keys = &keys[from..from + WIDTH];
    let first = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(10));
    let word = |at: i32| {
        let index = _mm256_add_epi32(first, _mm256_set1_epi32(at));
        // SAFETY: word `at`, below 10, of each of eight keys.
        unsafe { _mm256_i32gather_epi32::<4>(keys.as_ptr().cast(), index) }
    };
    Side {
        src: [word(0), word(1), word(2), word(3)],
        dst: [word(4), word(5), word(6), word(7)],
        ports: word(8),
        meta: word(9),
    }
}
