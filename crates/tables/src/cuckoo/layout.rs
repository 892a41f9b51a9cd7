//! Layout of entries in a bucket, and writing an entry that others may be reading.
//!
//! Values are stored plus one, 0 is a free slot. An entry of 48 bits is one word, which changes at once. The wider ones
//! have several: a slot is filled only while its stored value is 0, and that value comes last. A reader that began before
//! the slot was free and was used again could mix two keys; so every filling first changes the bucket's version, and a
//! reader believes what it found only if the version is still the same. It waits for nothing: a writer that rests in the
//! middle has the new version there, and the slot is free.

use super::keys::{Key48, Key64, Key144};
use super::sync::{AtomicU64, Ordering, fence};
use crate::flow::Seed;

/// Common representation of stored values: 32 bits.
const LOW: u64 = u32::MAX as u64;

/// A bucket of some kind of key. Of two writers at a time one would undo what the other did.
pub trait Layout: Sized {
    /// Its words: whole cache lines.
    type Bucket: 'static;
    /// Slots.
    const WAYS: usize;
    /// Bytes of a saved key.
    const BYTES: usize;

    fn buckets(words: &[AtomicU64]) -> &[Self::Bucket];
    fn hash(self, seed: &Seed) -> u64;

    /// Returns the stored value, or 0.
    fn find(self, bucket: &Self::Bucket) -> u32;
    /// Returns the key and stored value of a slot that is not free. For the writer.
    fn entry(bucket: &Self::Bucket, way: usize) -> Option<(Self, u32)>;
    /// Fills a free slot.
    fn fill(self, bucket: &Self::Bucket, way: usize, stored: u32);
    /// Replaces the stored value of an occupied slot.
    fn replace(self, bucket: &Self::Bucket, way: usize, stored: u32);
    fn free(bucket: &Self::Bucket, way: usize);

    /// Writes a saved key, least byte first, to [`BYTES`](Self::BYTES) bytes.
    fn save(self, to: &mut [u8]);
    fn load(from: &[u8]) -> Self;
}

/// Returns the up to eight bytes as a number, the first one lowest.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Folds twice: the first product of consecutive keys is consecutive again.
#[inline(always)]
fn hash(seed: &Seed, a: u64, b: u64, c: u64) -> u64 {
    seed.mix(seed.mix(0, a, b), c, 0)
}

impl Layout for Key48 {
    type Bucket = [AtomicU64; 8];
    /// Two suffice for a model, whose time grows with every load.
    const WAYS: usize = if cfg!(loom) { 2 } else { 8 };
    const BYTES: usize = 6;

    #[inline(always)]
    fn buckets(words: &[AtomicU64]) -> &[[AtomicU64; 8]] {
        words.as_chunks().0
    }

    #[inline(always)]
    fn hash(self, seed: &Seed) -> u64 {
        hash(seed, self.0, 0, 0)
    }

    #[inline(always)]
    fn find(self, bucket: &[AtomicU64; 8]) -> u32 {
        // all slots that have the key, or'ed: at most one that is not free
        #[cfg(all(target_arch = "x86_64", target_feature = "avx2", not(any(loom, miri))))]
        // SAFETY: the processor has AVX2: this crate is compiled for it.
        let word = unsafe { avx2::matching(bucket, self.0) };
        #[cfg(not(all(target_arch = "x86_64", target_feature = "avx2", not(any(loom, miri)))))]
        let word = bucket[..Self::WAYS].iter().fold(0, |found, slot| {
            let word = slot.load(Ordering::Relaxed);
            if word >> 16 == self.0 { found | word } else { found }
        });
        word as u32 & 0xffff
    }

    #[inline(always)]
    fn entry(bucket: &[AtomicU64; 8], way: usize) -> Option<(Self, u32)> {
        let word = bucket[way].load(Ordering::Relaxed);
        (word != 0).then_some((Self(word >> 16), word as u32 & 0xffff))
    }

    fn fill(self, bucket: &[AtomicU64; 8], way: usize, stored: u32) {
        bucket[way].store(self.0 << 16 | u64::from(stored), Ordering::Release);
    }

    fn replace(self, bucket: &[AtomicU64; 8], way: usize, stored: u32) {
        self.fill(bucket, way, stored);
    }

    fn free(bucket: &[AtomicU64; 8], way: usize) {
        bucket[way].store(0, Ordering::Release);
    }

    fn save(self, to: &mut [u8]) {
        to.copy_from_slice(&self.0.to_le_bytes()[..Self::BYTES]);
    }

    fn load(from: &[u8]) -> Self {
        Self::new(number(from))
    }
}

#[cfg(all(target_arch = "x86_64", target_feature = "avx2", not(any(loom, miri))))]
mod avx2 {
    use super::{AtomicU64, Key144};
    use core::arch::asm;
    use core::arch::x86_64::*;

    /// The slots of which the upper 48 bits are `key`, or'ed. The feature is named again for crates that this is inlined into:
    /// a doc test is compiled without.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn matching(bucket: &[AtomicU64; 8], key: u64) -> u64 {
        let (low, high): (__m256i, __m256i);
        // SAFETY: loads the 64 bytes of the bucket and no more. It stands for eight relaxed loads, which is what the
        // processor does: no aligned quadword of a vector load is ever seen in part. A plain vector load would race.
        unsafe {
            asm!(
                "vmovdqu {low}, [{bucket}]",
                "vmovdqu {high}, [{bucket} + 32]",
                bucket = in(reg) bucket.as_ptr(),
                low = out(ymm_reg) low,
                high = out(ymm_reg) high,
                options(readonly, nostack, preserves_flags),
            );
        }
        let key = _mm256_set1_epi64x(key.cast_signed());
        let matching = |four| _mm256_and_si256(four, _mm256_cmpeq_epi64(_mm256_srli_epi64::<16>(four), key));
        any_of(_mm256_or_si256(matching(low), matching(high)))
    }

    /// Returns all four, or'ed.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn any_of(four: __m256i) -> u64 {
        let two = _mm_or_si128(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
        _mm_cvtsi128_si64(_mm_or_si128(two, _mm_unpackhi_epi64(two, two))).cast_unsigned()
    }

    /// Returns the stored values of those of the first four slots that have the key, or'ed.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn matching_wide(bucket: &[AtomicU64; 16], key: Key144) -> u32 {
        let (low, high, last): (__m256i, __m256i, __m256i);
        // SAFETY: loads the first four of each five words, within the bucket. It stands for twelve loads, of which the
        // processor sees those of stored values first, and none in part.
        unsafe {
            asm!(
                "vmovdqu {last}, [{bucket} + 80]",
                "vmovdqu {low}, [{bucket}]",
                "vmovdqu {high}, [{bucket} + 40]",
                bucket = in(reg) bucket.as_ptr(),
                low = out(ymm_reg) low,
                high = out(ymm_reg) high,
                last = out(ymm_reg) last,
                options(readonly, nostack, preserves_flags),
            );
        }
        let of = |word: u64| _mm256_set1_epi64x(word.cast_signed());
        let low = _mm256_cmpeq_epi64(low, of(key.words[1]));
        let high = _mm256_cmpeq_epi64(high, of(key.words[0]));
        let rest = _mm256_cmpeq_epi64(_mm256_srli_epi64::<32>(last), of(key.high.into()));
        any_of(_mm256_and_si256(last, _mm256_and_si256(rest, _mm256_and_si256(low, high)))) as u32
    }
}

/// Five keys, then their stored values two to a word, the version above the last.
impl Layout for Key64 {
    type Bucket = [AtomicU64; 8];
    const WAYS: usize = 5;
    const BYTES: usize = 8;

    #[inline(always)]
    fn buckets(words: &[AtomicU64]) -> &[[AtomicU64; 8]] {
        words.as_chunks().0
    }

    #[inline(always)]
    fn hash(self, seed: &Seed) -> u64 {
        hash(seed, self.0, 0, 0)
    }

    #[inline(always)]
    fn find(self, bucket: &[AtomicU64; 8]) -> u32 {
        loop {
            let values: [u64; 3] = core::array::from_fn(|i| bucket[7 - i].load(Ordering::Acquire));
            let mut found = 0;
            for way in 0..Self::WAYS {
                let stored = (values[2 - way / 2] >> (way % 2 * 32)) as u32;
                let here = bucket[way].load(Ordering::Relaxed) == self.0;
                found |= if here { stored } else { 0 };
            }
            fence(Ordering::Acquire);
            if found == 0 || bucket[7].load(Ordering::Relaxed) >> 32 == values[0] >> 32 {
                return found;
            }
        }
    }

    fn entry(bucket: &[AtomicU64; 8], way: usize) -> Option<(Self, u32)> {
        let stored = (bucket[5 + way / 2].load(Ordering::Relaxed) >> (way % 2 * 32)) as u32;
        (stored != 0).then(|| (Self(bucket[way].load(Ordering::Relaxed)), stored))
    }

    fn fill(self, bucket: &[AtomicU64; 8], way: usize, stored: u32) {
        let last = bucket[7].load(Ordering::Relaxed);
        // Release: who sees the version sees the slot free.
        bucket[7].store(last.wrapping_add(1 << 32), Ordering::Release);
        // a reader that sees the key sees the version
        fence(Ordering::Release);
        bucket[way].store(self.0, Ordering::Relaxed);
        self.replace(bucket, way, stored);
    }

    fn replace(self, bucket: &[AtomicU64; 8], way: usize, stored: u32) {
        let (pair, shift) = (&bucket[5 + way / 2], way % 2 * 32);
        let word = pair.load(Ordering::Relaxed);
        pair.store(word & !(LOW << shift) | u64::from(stored) << shift, Ordering::Release);
    }

    fn free(bucket: &[AtomicU64; 8], way: usize) {
        Self(0).replace(bucket, way, 0);
    }

    fn save(self, to: &mut [u8]) {
        to.copy_from_slice(&self.0.to_le_bytes());
    }

    fn load(from: &[u8]) -> Self {
        Self(number(from))
    }
}

/// Five times the lower and the upper words of keys, then five words of a stored value and the rest of the key above it,
/// then the version.
impl Layout for Key144 {
    type Bucket = [AtomicU64; 16];
    const WAYS: usize = 5;
    const BYTES: usize = 18;

    #[inline(always)]
    fn buckets(words: &[AtomicU64]) -> &[[AtomicU64; 16]] {
        words.as_chunks().0
    }

    #[inline(always)]
    fn hash(self, seed: &Seed) -> u64 {
        hash(seed, self.words[0], self.words[1], self.high.into())
    }

    #[inline(always)]
    fn find(self, bucket: &[AtomicU64; 16]) -> u32 {
        loop {
            let version = bucket[15].load(Ordering::Acquire);
            let mut found = 0;
            #[cfg(all(target_arch = "x86_64", target_feature = "avx2", not(any(loom, miri))))]
            let (first, rest) = {
                // SAFETY: the processor has AVX2: this crate is compiled for it.
                found |= unsafe { avx2::matching_wide(bucket, self) };
                (4, &bucket[10 + 4..15])
            };
            #[cfg(not(all(target_arch = "x86_64", target_feature = "avx2", not(any(loom, miri)))))]
            let (first, rest) = (0, &bucket[10..15]);
            for (way, last) in (first..).zip(rest) {
                let last = last.load(Ordering::Acquire);
                let low = bucket[way].load(Ordering::Relaxed) ^ self.words[1];
                let high = bucket[5 + way].load(Ordering::Relaxed) ^ self.words[0];
                let here = low | high | ((last >> 32) ^ u64::from(self.high)) == 0;
                found |= if here { last as u32 } else { 0 };
            }
            fence(Ordering::Acquire);
            if found == 0 || bucket[15].load(Ordering::Relaxed) == version {
                return found;
            }
        }
    }

    fn entry(bucket: &[AtomicU64; 16], way: usize) -> Option<(Self, u32)> {
        let last = bucket[10 + way].load(Ordering::Relaxed);
        let words = [5 + way, way].map(|at| bucket[at].load(Ordering::Relaxed));
        (last as u32 != 0).then_some((Self { high: (last >> 32) as u16, words }, last as u32))
    }

    fn fill(self, bucket: &[AtomicU64; 16], way: usize, stored: u32) {
        let version = bucket[15].load(Ordering::Relaxed);
        // Release: who sees the version sees the slot free.
        bucket[15].store(version.wrapping_add(1), Ordering::Release);
        // a reader that sees the key sees the version
        fence(Ordering::Release);
        bucket[way].store(self.words[1], Ordering::Relaxed);
        bucket[5 + way].store(self.words[0], Ordering::Relaxed);
        self.replace(bucket, way, stored);
    }

    fn replace(self, bucket: &[AtomicU64; 16], way: usize, stored: u32) {
        bucket[10 + way].store(u64::from(self.high) << 32 | u64::from(stored), Ordering::Release);
    }

    fn free(bucket: &[AtomicU64; 16], way: usize) {
        bucket[10 + way].store(0, Ordering::Release);
    }

    fn save(self, to: &mut [u8]) {
        let bytes = [self.words[1].to_le_bytes(), self.words[0].to_le_bytes()];
        to[..16].copy_from_slice(bytes.as_flattened());
        to[16..].copy_from_slice(&self.high.to_le_bytes());
    }

    fn load(from: &[u8]) -> Self {
        Self { high: number(&from[16..]) as u16, words: [number(&from[8..16]), number(&from[..8])] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Debug;

    /// Tests every slot of a bucket alone and all together, with extreme values.
    fn fills<K: Layout + Copy + PartialEq + Debug>(words: usize, key: impl Fn(u64) -> K, most: u32) {
        let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let bucket = &K::buckets(&words)[0];
        assert_eq!(K::buckets(&words).len(), 1);
        for way in 0..K::WAYS {
            assert_eq!((key(0).find(bucket), K::entry(bucket, way)), (0, None));
            key(0).fill(bucket, way, 1);
            assert_eq!((key(0).find(bucket), key(1).find(bucket)), (1, 0));
            assert_eq!(K::entry(bucket, way), Some((key(0), 1)));
            key(0).replace(bucket, way, most);
            assert_eq!(key(0).find(bucket), most);
            K::free(bucket, way);
            assert_eq!(key(0).find(bucket), 0);
        }
        let stored = |way: usize| if way.is_multiple_of(2) { most - way as u32 } else { way as u32 };
        (0..K::WAYS).for_each(|way| key(way as u64).fill(bucket, way, stored(way)));
        for way in 0..K::WAYS {
            assert_eq!(key(way as u64).find(bucket), stored(way));
            assert_eq!(K::entry(bucket, way), Some((key(way as u64), stored(way))));
        }
        assert_eq!(key(K::WAYS as u64).find(bucket), 0);
        K::free(bucket, 2);
        assert_eq!((key(2).find(bucket), key(3).find(bucket)), (0, stored(3)));
        let mut bytes = vec![0; K::BYTES];
        key(7).save(&mut bytes);
        assert_eq!(K::load(&bytes), key(7));
    }

    #[test]
    fn entries_of_48_bits() {
        fills(8, Key48::new, 0xffff);
        fills(8, |n| Key48::new(!n), 0xffff);
        fills(8, |n| Key48::new(n << 40), 0xffff);
    }

    #[test]
    fn entries_of_64_bits() {
        fills(8, Key64::new, u32::MAX);
        fills(8, |n| Key64::new(!n), u32::MAX);
        fills(8, |n| Key64::new(n << 60), u32::MAX);
    }

    #[test]
    fn entries_of_144_bits() {
        fills(16, |n| Key144::vrf_ipv6(n as u16, 0), u32::MAX);
        fills(16, |n| Key144::vrf_ipv6(u16::MAX, u128::from(n)), u32::MAX);
        fills(16, |n| Key144::vrf_ipv6(0, u128::from(n) << 64), u32::MAX);
        fills(16, |n| Key144::vrf_ipv6(0, !u128::from(n)), u32::MAX);
    }
}
